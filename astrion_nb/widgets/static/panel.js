// Everything around the lanes: the head, the questions for the reader, the box to send.

export class Head {
  constructor({ doc, words, store }) {
    this.doc = doc;
    this.words = words;
    this.store = store;
    this.root = make(doc, "header", "anb-head");
    this.state = make(doc, "span", "anb-state");
    this.stateMark = make(doc, "span", "anb-status-mark");
    this.stateText = make(doc, "span");
    this.state.append(this.stateMark, this.stateText);
    this.title = make(doc, "h3", "anb-title");
    this.behind = make(doc, "span", "anb-behind", words.behind);
    this.asking = make(doc, "button", "anb-asking");
    this.asking.type = "button";
    this.facts = make(doc, "div", "anb-facts");
    this.agents = make(doc, "span");
    this.time = make(doc, "span", "anb-time");
    this.time.title = words.elapsed;
    this.tokens = make(doc, "span");
    this.cost = make(doc, "span");
    this.cost.title = words.cost;
    this.facts.append(this.agents, this.tokens, this.cost, this.time);
    this.stop = make(doc, "button", "anb-button anb-stop");
    this.stop.type = "button";
    this.stop.setAttribute("aria-label", words.stopAll);
    this.stopText = make(doc, "span", "", words.stop);
    this.stop.append(mark(doc, "stop"), this.stopText);
    this.stop.addEventListener("click", () => this.store.submit("stop", "stop", {}));
    this.root.append(this.state, this.title, this.behind, this.asking, this.facts, this.stop);
    this.notices = make(doc, "div", "anb-notices");
  }

  update() {
    const { doc, words, store } = this;
    const { team } = store;
    const key = team.status || "idle";
    if (this.root.dataset.status !== key) {
      this.root.dataset.status = key;
      this.stateMark.replaceChildren(mark(doc, key));
    }
    setText(this.stateText, words.run[team.status] ?? team.status);
    setText(this.title, team.title || words.team);
    this.title.title = team.title;
    this.behind.hidden = !(store.waiting && store.seq !== null);
    const questions = store.questions.size;
    this.asking.hidden = !questions;
    if (questions) {
      const text = words.questions(questions);
      if (this.asking.textContent !== text) this.asking.replaceChildren(mark(doc, "asking"), doc.createTextNode(text));
    }
    const members = [...store.agents.keys()].filter((id) => id !== 0).length;
    setText(this.agents, members ? words.agents(members) : "");
    const { tokens, cost } = store;
    setText(this.tokens, tokens ? words.tokens(countText(tokens)) : "");
    setText(this.cost, cost ? costText(cost) : "");
    this.tick();
    const running = team.status === "running";
    this.stop.hidden = !running;
    if (!running) store.forms.delete("stop");
    const standing = store.forms.get("stop");
    const stopping = store.busy("stop") || standing === "sent";
    this.stop.disabled = stopping;
    setText(this.stopText, stopping ? words.stopping : words.stop);
    this.updateNotices(standing);
  }

  updateNotices(standing) {
    const { doc, words, store } = this;
    const lines = store.team.banner ? [["banner", store.team.banner]] : [];
    if (store.team.loading) lines.push(["progress", store.team.loading]);
    lines.push(...store.warnings.map((text) => ["warning", text]));
    if (store.team.error) lines.push(["error", store.team.error]);
    for (const how of [standing, store.forms.get("stop-one")]) {
      if (how && how.error) lines.push(["error", how.error]);
      if (how === "slow" || how === "late") lines.push(["warning", words.noReply]);
    }
    const now = JSON.stringify(lines);
    if (now === this.noticed) return;
    this.noticed = now;
    this.notices.replaceChildren(
      ...lines.map(([kind, text]) => {
        const line = make(doc, "div", `anb-notice anb-${kind}`);
        line.append(mark(doc, { banner: "idle", progress: "running" }[kind] ?? "failed"), make(doc, "span", "anb-strong", words[kind]), make(doc, "span", "anb-text", text));
        return line;
      }),
    );
    this.notices.hidden = !lines.length;
  }

  tick() {
    const { elapsed, team } = this.store;
    setText(this.time, team.run ? timeText(elapsed) : "");
  }
}

// A text field that sends on Enter and keeps what was typed whatever arrives meanwhile.
class Draft {
  constructor(key, { doc, words, store, label, hint, action, submit }) {
    this.key = key;
    this.words = words;
    this.store = store;
    this.submit = submit;
    this.root = make(doc, "form", "anb-draft");
    this.root.setAttribute("data-lm-suppress-shortcuts", "true"); // in JupyterLab Shift+Enter would run the cell
    this.field = make(doc, "textarea", "anb-field");
    this.field.rows = 1;
    this.field.value = store.drafts.get(key) || "";
    this.field.setAttribute("aria-label", label);
    this.field.placeholder = hint;
    this.button = make(doc, "button", "anb-button anb-primary", action);
    this.button.type = "submit";
    this.note = make(doc, "div", "anb-form-note");
    this.note.setAttribute("role", "status");
    this.empty = false; // whether nothing may be sent
    this.field.addEventListener("input", () => {
      store.drafts.set(key, this.field.value);
      if (!store.busy(key)) store.forms.delete(key);
      this.update();
    });
    this.field.addEventListener("keydown", (event) => {
      // Enter that ends the composition of a Chinese word is not meant for us.
      if (event.key !== "Enter" || event.isComposing || event.keyCode === 229) return;
      event.preventDefault();
      event.stopPropagation();
      if (event.shiftKey) this.breakLine(doc);
      else this.send();
    });
    this.root.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    this.update();
  }

  // JupyterLab takes the line break of every Shift+Enter in the document away, so it is made here.
  breakLine(doc) {
    const { field } = this;
    if (doc.execCommand?.("insertText", false, "\n")) return; // the way that can be undone
    field.setRangeText("\n", field.selectionStart, field.selectionEnd, "end");
    this.store.drafts.set(this.key, field.value);
  }

  send() {
    const text = this.field.value;
    if ((!text.trim() && !this.empty) || this.store.busy(this.key)) return;
    this.submit(text);
  }

  update() {
    const { words, store, key } = this;
    const how = store.forms.get(key);
    const busy = store.busy(key);
    const draft = store.drafts.get(key) || "";
    if (this.field.value !== draft) this.field.value = draft;
    this.field.readOnly = busy;
    this.root.classList.toggle("anb-busy", busy);
    this.button.disabled = busy || (!draft.trim() && !this.empty);
    const failed = how && how.error;
    this.note.classList.toggle("anb-bad", Boolean(failed) || how === "slow" || how === "late");
    let note = "";
    if (failed) note = how.error;
    else if (how === "busy") note = words.sending;
    else if (how === "sent") note = words.sent;
    else if (how === "slow" || how === "late") note = words.noReply;
    setText(this.note, note);
    this.note.hidden = !note;
  }
}

export class Questions {
  constructor({ doc, words, store }) {
    this.doc = doc;
    this.words = words;
    this.store = store;
    this.root = make(doc, "div", "anb-questions");
    this.shown = new Map(); // id -> { node, draft }
  }

  update() {
    const { doc, words, store } = this;
    for (const [id, entry] of this.shown) {
      if (!store.questions.has(id)) {
        entry.node.remove();
        this.shown.delete(id);
      }
    }
    for (const question of store.questions.values()) {
      const entry = this.shown.get(question.id);
      if (entry) {
        (entry.card ?? entry.draft).update();
        continue;
      }
      if (question.approval) {
        const card = new Approval(question, { doc, words, store });
        this.root.appendChild(card.node);
        this.shown.set(question.id, { node: card.node, draft: card.draft, card });
        continue;
      }
      const name = store.nameOf(question.by);
      const node = make(doc, "section", "anb-question");
      node.dataset.hue = hueOf(question.by);
      node.setAttribute("aria-label", words.asks(name));
      const line = make(doc, "header", "anb-heading");
      line.title = question.id;
      line.append(mark(doc, "asking"), make(doc, "span", "anb-role", words.asks(name)));
      const content = make(doc, "div", "anb-content");
      content.appendChild(buildMarkdown(question.nodes, doc));
      const draft = new Draft(question.id, {
        doc,
        words,
        store,
        label: words.answerLabel(name),
        hint: words.answerHint,
        action: words.answer,
        submit: (text) => store.submit(question.id, "answer", { question_id: question.id, text }),
      });
      draft.root.append(draft.field, draft.button);
      node.append(line, content, draft.root, draft.note);
      this.root.appendChild(node);
      this.shown.set(question.id, { node, draft });
    }
    this.root.hidden = !this.shown.size;
  }

  focus() {
    const first = this.shown.values().next().value;
    if (first) (first.card ?? first.draft.field).focus();
  }

  tick() {
    for (const { card } of this.shown.values()) if (card) card.tick();
  }
}

export class Composer {
  constructor({ doc, words, store }) {
    this.doc = doc;
    this.words = words;
    this.store = store;
    this.select = make(doc, "select", "anb-select");
    this.select.setAttribute("aria-label", words.sendTo);
    this.select.addEventListener("change", () => {
      store.target = this.select.value;
      this.update();
    });
    this.draft = new Draft("send", {
      doc,
      words,
      store,
      label: words.sendLabel,
      hint: "",
      action: words.send,
      submit: (text) => {
        const target = store.target === "0" ? "leader" : Number(store.target);
        store.submit("send", "send", { target, text });
      },
    });
    this.draft.root.append(this.select, this.draft.field, this.draft.button);
    this.root = make(doc, "footer", "anb-foot");
    this.root.append(this.draft.root, this.draft.note);
  }

  update() {
    const { doc, store, words } = this;
    const targets = [...store.agents.values()]
      .filter((agent) => agent.status !== "terminated" && !(agent.id === 0 && store.team.leader === "human"))
      .sort((one, other) => one.id - other.id);
    const now = JSON.stringify(targets.map((agent) => [agent.id, agent.name]));
    if (now !== this.listed) {
      this.listed = now;
      this.select.replaceChildren(
        ...targets.map((agent) => {
          const option = make(doc, "option", "", agent.name);
          option.value = String(agent.id);
          return option;
        }),
      );
    }
    if (!targets.some((agent) => String(agent.id) === store.target)) store.target = targets.length ? String(targets[0].id) : "0";
    this.select.value = store.target;
    this.draft.field.placeholder = words.sendHint(store.nameOf(Number(store.target)) || words.leader);
    this.root.hidden = !targets.length;
    this.draft.update();
  }
}
