// One agent's column: how it stands, what was said, what is being said.

const LONG = 800; // characters of streamed text that are laid out again with each piece
const NEAR = 24; // px from the end within which a reader counts as reading the end

export class Lane {
  constructor(id, { doc, words, store, onStop }) {
    this.id = id;
    this.doc = doc;
    this.words = words;
    this.store = store;
    this.onStop = onStop;
    this.shown = new Map(); // n -> { bubble, node }
    this.pinned = true; // the reader follows the end
    this.seen = true; // as far as is known
    this.streamed = 0; // characters of the streamed text on the page
    this.message = null; // which streamed answer that is
    this.build();
  }

  build() {
    const { doc, words } = this;
    this.root = make(doc, "section", "anb-lane");
    this.root.dataset.hue = hueOf(this.id);
    const head = make(doc, "header", "anb-lane-head");
    this.badge = make(doc, "span", "anb-badge");
    this.badge.setAttribute("aria-hidden", "true");
    const lines = make(doc, "div", "anb-lane-lines");
    this.name = make(doc, "h4", "anb-name");
    this.status = make(doc, "div", "anb-status");
    this.statusMark = make(doc, "span", "anb-status-mark");
    this.statusText = make(doc, "span", "anb-status-text");
    this.status.append(this.statusMark, this.statusText);
    lines.append(this.name, this.status);
    this.facts = make(doc, "div", "anb-lane-facts");
    this.tokens = make(doc, "span", "anb-tokens");
    this.inbox = make(doc, "span", "anb-inbox");
    this.facts.append(this.inbox, this.tokens);
    head.append(this.badge, lines, this.facts);
    if (this.id !== 0) {
      this.stop = make(doc, "button", "anb-icon");
      this.stop.type = "button";
      this.stop.appendChild(mark(doc, "stop"));
      this.stop.addEventListener("click", () => this.onStop(this.id));
      head.appendChild(this.stop);
    }
    this.task = make(doc, "div", "anb-task");
    this.error = make(doc, "div", "anb-lane-error");
    this.body = make(doc, "div", "anb-body");
    this.body.tabIndex = 0;
    this.body.setAttribute("role", "group");
    this.earlier = make(doc, "div", "anb-earlier");
    this.empty = make(doc, "div", "anb-empty", words.nothing);
    this.live = make(doc, "article", "anb-bubble anb-own anb-live");
    this.live.dataset.hue = hueOf(this.id);
    this.liveHead = make(doc, "header", "anb-heading");
    this.liveRole = make(doc, "span", "anb-role");
    this.liveNote = make(doc, "span", "anb-note", words.thinking);
    this.liveHead.append(this.liveRole, this.liveNote);
    this.liveText = doc.createTextNode("");
    this.lines = []; // blocks of streamed text before it
    this.liveBox = make(doc, "div", "anb-content anb-stream");
    this.liveBox.append(this.liveText, make(doc, "span", "anb-caret"));
    this.live.append(this.liveHead, this.liveBox);
    this.body.append(this.earlier, this.empty, this.live);
    this.latest = make(doc, "button", "anb-latest");
    this.latest.type = "button";
    this.latest.append(mark(doc, "down"), doc.createTextNode(words.latest));
    this.latest.addEventListener("click", () => this.toEnd());
    const follow = () => this.follow(this.atEnd());
    this.body.addEventListener("scroll", follow, { passive: true });
    this.body.addEventListener("toggle", follow, true); // what a reader unfolds must not run away
    this.follow(true);
    this.root.append(head, this.task, this.error, this.body, this.latest);
  }

  atEnd() {
    return this.body.scrollHeight - this.body.scrollTop - this.body.clientHeight <= NEAR;
  }

  follow(pinned) {
    this.pinned = pinned;
    this.latest.hidden = pinned;
  }

  toEnd() {
    this.follow(true);
    this.scroll();
  }

  // Written apart from everything that changes the page: the page is laid out once for all lanes.
  scroll() {
    if (this.pinned) this.body.scrollTop = this.body.scrollHeight;
  }

  update(agent, whole) {
    this.updateHead(agent);
    this.updateBubbles(agent, whole);
    this.updateLive(agent);
  }

  updateHead(agent) {
    const { doc, words } = this;
    const nameOf = (id) => this.store.nameOf(id);
    setText(this.name, agent.name);
    this.name.title = agent.model ? `${agent.name} · ${agent.model}` : agent.name;
    this.root.setAttribute("aria-label", agent.name);
    this.body.setAttribute("aria-label", words.conversation(agent.name));
    setText(this.badge, initialsOf(agent.name));
    const { key, text } = standing(agent, nameOf, words);
    if (this.root.dataset.status !== key) {
      this.root.dataset.status = key;
      this.statusMark.replaceChildren(mark(doc, key));
    }
    setText(this.statusText, text);
    this.status.title = text;
    setText(this.tokens, agent.tokens ? countText(agent.tokens) : "");
    this.tokens.title = agent.tokens ? words.tokens(agent.tokens.toLocaleString("en")) : "";
    this.inbox.hidden = !agent.inbox;
    if (agent.inbox) {
      this.inbox.replaceChildren(mark(doc, "inbox"), doc.createTextNode(String(agent.inbox)));
      this.inbox.title = words.inbox(agent.inbox);
    }
    setText(this.task, agent.task);
    this.task.title = agent.task;
    this.task.hidden = !agent.task;
    setText(this.error, agent.error);
    this.error.hidden = !agent.error;
    if (this.stop) {
      this.stop.hidden = !(agent.status === "running" || agent.status === "waiting");
      this.stop.title = words.stopOne(agent.name);
      this.stop.setAttribute("aria-label", words.stopOne(agent.name));
    }
  }

  updateBubbles(agent, whole) {
    const { doc, words } = this;
    const context = { doc, words, lane: this.id, nameOf: (id) => this.store.nameOf(id) };
    const first = agent.bubbles.length ? agent.bubbles[0].n : Infinity;
    for (const [n, entry] of this.shown) {
      if (n < first) {
        entry.node.remove();
        this.shown.delete(n);
      }
    }
    for (const bubble of agent.bubbles) {
      const entry = this.shown.get(bubble.n);
      if (entry && entry.bubble === bubble) continue;
      if (entry && whole && JSON.stringify(entry.bubble) === JSON.stringify(bubble)) {
        entry.bubble = bubble;
        continue;
      }
      const node = buildBubble(bubble, context);
      if (entry) {
        keepOpen(entry.node, node);
        entry.node.replaceWith(node);
      } else {
        this.body.insertBefore(node, this.live);
      }
      this.shown.set(bubble.n, { bubble, node });
    }
    const hidden = agent.count - agent.bubbles.length;
    this.earlier.hidden = hidden <= 0;
    if (hidden > 0) setText(this.earlier, words.earlier(hidden));
  }

  updateLive(agent) {
    const running = agent.status === "running";
    const live = agent.live;
    const text = live ? live.text : "";
    const calls = agent.bubbles.at(-1)?.calls || [];
    const working = calls.some((call) => call.out === undefined); // a tool is at work, not the model
    this.live.hidden = !(text || (running && !working));
    this.empty.hidden = agent.bubbles.length > 0 || !this.live.hidden;
    if (this.live.hidden) {
      this.message = null;
      if (this.streamed) this.beginStream("");
      this.streamed = 0;
      return;
    }
    setText(this.liveRole, agent.name);
    this.live.classList.toggle("anb-still", !running);
    this.live.classList.toggle("anb-mute", !text);
    const thoughts = live && !text ? live.thoughts : "";
    setText(this.liveNote, text ? (running ? "" : this.words.cut) : thoughts ? lastLine(thoughts) : this.words.thinking);
    const message = live ? live.message : null;
    if (message !== this.message || text.length < this.streamed) {
      this.message = message;
      this.beginStream(text);
    } else if (text.length > this.streamed) {
      this.liveText.appendData(text.slice(this.streamed));
    }
    this.streamed = text.length;
    this.setLines();
  }

  beginStream(text) {
    for (const lines of this.lines.splice(0)) lines.remove();
    this.liveText.data = text;
  }

  // Lines that are complete become blocks of their own, so that a long text is not laid out again and again.
  setLines() {
    const { data } = this.liveText;
    const end = data.length > LONG ? data.lastIndexOf("\n") : -1;
    if (end <= 0) return;
    const lines = make(this.doc, "div", "", data.slice(0, end));
    this.liveBox.insertBefore(lines, this.liveText);
    this.lines.push(lines);
    this.liveText.data = data.slice(end + 1);
  }
}

export function lastLine(text) {
  const line = text.trimEnd().split("\n").pop().trim();
  return line.length > 90 ? `…${line.slice(-90)}` : line;
}

// What the reader had unfolded stays so when a bubble is made anew.
function keepOpen(old, made) {
  const before = old.querySelectorAll("details");
  made.querySelectorAll("details").forEach((fold, at) => {
    if (before[at] && before[at].open) fold.open = true;
  });
}

export function initialsOf(name) {
  const words = name.replace(/_\d+$/, "").split(/[\s_-]+/).filter(Boolean);
  if (!words.length) return "?";
  const first = [...words[0]];
  if (/[^\u0000-\u02ff]/.test(first[0])) return first[0];
  return (words.length > 1 ? first[0] + [...words[1]][0] : first.slice(0, 2).join("")).toUpperCase();
}
