// The widget: one store per model, any number of views of it.

const HEARD = 12; // announcements that are kept for one reading
const LATE = 700; // ms between two updates of lanes that nobody sees
const SLICE = 12; // ms that such an update takes at a time
const IN_SIGHT = 12; // lanes that are taken to be seen until the page knows better

export class TeamPage {
  constructor({ store, el, language }) {
    const doc = el.ownerDocument;
    this.doc = doc;
    this.store = store;
    this.words = wordsOf(language);
    this.lanes = new Map();
    this.pending = { agents: new Set(), team: true, questions: true, roster: true, whole: true };
    this.frame = null;
    this.root = make(doc, "div", "anb");
    this.root.setAttribute("role", "region");
    this.root.setAttribute("lang", this.words === wordsOf("zh") ? "zh-CN" : "en");
    const context = { doc, words: this.words, store };
    this.head = new Head(context);
    this.questions = new Questions(context);
    this.composer = new Composer(context);
    this.head.asking.addEventListener("click", () => this.questions.focus());
    this.grid = make(doc, "div", "anb-lanes");
    this.loading = make(doc, "div", "anb-loading", this.words.loading);
    this.said = make(doc, "div", "anb-said"); // for screen readers: how agents stand, never what they stream
    this.said.setAttribute("role", "status");
    this.said.setAttribute("aria-live", "polite");
    this.standings = new Map();
    this.root.append(this.head.root, this.head.notices, this.questions.root, this.loading, this.grid, this.composer.root, this.said);
    el.appendChild(this.root);
    this.late = new Set(); // lanes out of sight with something new
    this.lateWhole = false;
    this.later = null;
    const Sight = doc.defaultView?.IntersectionObserver;
    this.sight = Sight ? new Sight((entries) => this.seen(entries)) : null;
    this.unsubscribe = store.subscribe((change) => this.changed(change));
    for (const id of store.agents.keys()) this.pending.agents.add(id);
    this.clock = setInterval(() => {
      this.head.tick();
      this.questions.tick();
    }, 1000);
    this.draw();
  }

  changed(change) {
    for (const id of change.agents) this.pending.agents.add(id);
    for (const key of ["team", "questions", "roster", "whole"]) this.pending[key] = this.pending[key] || change[key];
    if (this.frame === null) this.frame = requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.frame = null;
    const change = this.pending;
    const { store } = this;
    this.pending = { agents: new Set(), team: false, questions: false, roster: false, whole: false };
    if (change.whole || change.roster) {
      this.arrange();
      for (const id of store.agents.keys()) change.agents.add(id); // names stand in other lanes too
    }
    const touched = [];
    for (const id of change.agents) {
      const agent = store.agents.get(id);
      const lane = this.lanes.get(id);
      if (!agent || !lane) continue;
      if (lane.seen) {
        lane.update(agent, change.whole);
        touched.push(lane);
      } else {
        this.late.add(id);
        this.lateWhole = this.lateWhole || change.whole;
      }
    }
    if (this.late.size && this.later === null) this.later = setTimeout(() => this.catchUp(), LATE);
    if (change.questions || change.roster) this.questions.update();
    if (change.team || change.roster) {
      this.head.update();
      this.composer.update();
      this.root.setAttribute("aria-label", store.team.title || this.words.team);
      this.root.dataset.status = store.team.status;
      this.announce();
    }
    this.loading.hidden = store.agents.size > 0;
    setText(this.loading, store.silent ? this.words.silent : this.words.loading);
    for (const lane of touched) lane.scroll();
  }

  // What nobody sees costs little: it is brought up to date now and then, and when it comes into sight.
  seen(entries) {
    for (const { target, isIntersecting } of entries) {
      for (const [id, lane] of this.lanes) {
        if (lane.root !== target) continue;
        lane.seen = isIntersecting;
        if (!isIntersecting) continue;
        if (this.late.delete(id) && this.store.agents.has(id)) lane.update(this.store.agents.get(id), this.lateWhole);
        lane.scroll();
      }
    }
  }

  catchUp() {
    const end = performance.now() + SLICE;
    this.later = null;
    for (const id of this.late) {
      if (performance.now() > end) break;
      this.late.delete(id);
      const agent = this.store.agents.get(id);
      if (agent) this.lanes.get(id)?.update(agent, this.lateWhole);
    }
    if (this.late.size) this.later = setTimeout(() => this.catchUp(), SLICE);
    else this.lateWhole = false;
  }

  arrange() {
    const { store, doc, words } = this;
    for (const [id, lane] of this.lanes) {
      if (!store.agents.has(id)) {
        this.sight?.unobserve(lane.root);
        lane.root.remove();
        this.lanes.delete(id);
      }
    }
    const ids = [...store.agents.keys()].sort((one, other) => one - other);
    for (const id of ids) {
      if (this.lanes.has(id)) continue;
      const lane = new Lane(id, { doc, words, store, onStop: (agent) => store.submit("stop-one", "stop", { agent }) });
      this.lanes.set(id, lane);
      const after = ids.find((other) => other > id && this.lanes.has(other));
      this.grid.insertBefore(lane.root, after === undefined ? null : this.lanes.get(after).root);
      lane.seen = this.sight === null || this.lanes.size <= IN_SIGHT;
      this.sight?.observe(lane.root);
    }
    this.grid.dataset.many = ids.length > 8 ? "1" : "";
  }

  announce() {
    const { store, words } = this;
    const lines = [];
    const note = (key, text, line) => {
      if (this.standings.get(key) === text) return;
      if (this.standings.has(key) || key !== "team") lines.push(line);
      this.standings.set(key, text);
    };
    for (const agent of store.agents.values()) {
      const { text } = standing(agent, (id) => store.nameOf(id), words);
      note(agent.id, text, `${agent.name}: ${text}`);
    }
    note("team", store.team.status, `${words.team}: ${words.run[store.team.status] ?? store.team.status}`);
    for (const question of store.questions.values()) {
      const name = store.nameOf(question.by);
      note(question.id, "open", question.approval ? words.wants(name, question.approval.tool) : words.asks(name));
    }
    if (lines.length) setText(this.said, lines.slice(-HEARD).join(". "));
  }

  close() {
    this.unsubscribe();
    clearInterval(this.clock);
    this.sight?.disconnect();
    if (this.later !== null) clearTimeout(this.later);
    if (this.frame !== null) cancelAnimationFrame(this.frame);
    this.frame = null;
    this.root.remove();
  }
}

export default () => {
  let store = null;
  return {
    initialize({ model }) {
      const mine = new Store({ send: (message) => model.send(message) });
      store = mine;
      const receive = (message) => mine.receive(message);
      model.on("msg:custom", receive);
      mine.hello();
      return () => {
        model.off("msg:custom", receive);
        mine.close();
      };
    },
    render({ model, el }) {
      const page = new TeamPage({ store, el, language: model.get("language") });
      return () => page.close();
    },
  };
};
