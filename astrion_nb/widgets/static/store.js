// What the page knows of a team: built from the kernel's messages, read by every view of it.
//
// Messages carry `seq`. A number that is not the next one is a gap: the store keeps what it has, asks
// for a snapshot and takes nothing else until one comes. Knows no document and no timer but the one
// it is given.

export const PROTOCOL = 1;
const ASK_AGAIN = [2000, 4000, 8000, 16000];
const MOST_TRIES = 20;
const HELLO_AGAIN = [500, 1000, 2000, 4000, 8000];
const SILENT = 2; // tries without an answer after which the reader is told
const WARNINGS = 5;
const SLOW = 5000; // ms without an ack after which the reader is told
const GIVE_UP = 30000; // … after which the form can be used again
const TEAM = { title: "", leader: "model", run: 0, status: "", error: "", banner: "", loading: "", elapsed: 0 };
const AGENT = { name: "", status: "idle", detail: "", error: "", waits: [], task: "", tokens: 0, inbox: 0, model: "" };

export function nodesOf(body) {
  if (typeof body === "string") return body ? [{ t: "p", c: [body] }] : [];
  return Array.isArray(body) ? body : [];
}

// A tree whose texts are pieces of a source: n characters of it, after -n to pass over (see bubbles.py).
export function expandTree(children, text) {
  let at = 0;
  const expand = (list, from) => {
    const out = [];
    for (let i = from; i < list.length; i += 1) {
      const node = list[i];
      if (typeof node === "string") out.push(node);
      else if (typeof node === "number") {
        if (node > 0) out.push(text.slice(at, at + node));
        at += Math.abs(node);
      } else {
        const held = node.length > 1 && node[1] !== null && typeof node[1] === "object" && !Array.isArray(node[1]);
        const made = { t: node[0], ...(held ? node[1] : {}) };
        const inside = expand(node, held ? 2 : 1);
        if (made.t !== "hr" && made.t !== "br") made.c = inside;
        out.push(made);
      }
    }
    return out;
  };
  return expand(children, 0);
}

// Whether an agent wrote it, and was not told it.
export function isOwn(bubble, agent) {
  return bubble.by === agent && bubble.role === undefined && !bubble.small;
}

function newAgent(id) {
  return { id, ...AGENT, count: 0, bubbles: [], live: null };
}

function readBubble(raw) {
  const { body, ...bubble } = raw;
  bubble.nodes = nodesOf(body);
  if (bubble.calls) bubble.calls = bubble.calls.map((call) => readResult({ name: call.name, args: call.args }, call));
  return bubble;
}

function readResult(call, raw) {
  const out = { ...call };
  if (raw.out !== undefined) out.out = raw.out;
  if (raw.bad) out.bad = raw.bad;
  if (raw.reply) out.reply = readBubble(raw.reply);
  return out;
}

export class Store {
  constructor({ send, later = (run, ms) => setTimeout(run, ms), cancel = (id) => clearTimeout(id), now = () => Date.now() }) {
    this.transmit = send;
    this.later = later;
    this.cancel = cancel;
    this.now = now;
    this.seq = null; // number of the last message taken; null before the first snapshot
    this.waiting = true; // for a snapshot
    this.tries = 0;
    this.asking = null;
    this.greeting = null;
    this.window = 40;
    this.team = { ...TEAM };
    this.since = this.now(); // local time at which team.elapsed held
    this.cost = null;
    this.agents = new Map();
    this.questions = new Map();
    this.warnings = [];
    this.listeners = new Set();
    this.drafts = new Map(); // question id or "send" -> text; the reader's own, no message touches it
    this.target = "0"; // of the box to send
    this.forms = new Map(); // the same key -> how its last submission stands: "", "busy", "slow", "sent", or an error
    this.requests = new Map(); // req -> what to do with its ack
    this.requested = 0;
  }

  // -- listening

  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  tell(change) {
    for (const listener of [...this.listeners]) {
      try {
        listener(change);
      } catch (error) {
        console.error("a view of the team failed", error);
      }
    }
  }

  // -- to the kernel

  send(kind, payload, done) {
    const req = `r${(this.requested += 1)}`;
    if (done) this.requests.set(req, done);
    try {
      this.transmit({ v: PROTOCOL, kind, req, ...payload });
    } catch (error) {
      console.warn("the team's view cannot reach the kernel", error); // its comm is closed: nothing will answer
    }
    return req;
  }

  // Sends what a form holds. The draft is kept until the kernel has taken it.
  submit(key, kind, payload) {
    if (this.busy(key)) return;
    const timers = [
      this.later(() => this.stand(key, "slow"), SLOW),
      this.later(() => {
        this.requests.delete(req);
        this.stand(key, "late");
      }, GIVE_UP),
    ];
    const req = this.send(kind, payload, (error) => {
      for (const timer of timers) this.cancel(timer);
      if (!error) this.drafts.delete(key);
      this.stand(key, error ? { error } : "sent");
    });
    this.stand(key, "busy");
  }

  busy(key) {
    const standing = this.forms.get(key);
    return standing === "busy" || standing === "slow";
  }

  stand(key, how) {
    this.forms.set(key, how);
    this.tell({ agents: new Set(), team: true, questions: true, roster: false, whole: false });
  }

  // Says that somebody can act here, until the kernel has heard it. What a page says first while a cell
  // runs may wait in that cell's own queue for its end; what it says a moment later comes through.
  hello(said = 0) {
    if (said === 0) this.askLater();
    this.send("hello", { since: this.seq }, () => this.quiet());
    if (said < HELLO_AGAIN.length) this.greeting = this.later(() => this.hello(said + 1), HELLO_AGAIN[said]);
  }

  quiet() {
    if (this.greeting !== null) this.cancel(this.greeting);
    this.greeting = null;
  }

  ask() {
    this.send("need", { since: this.seq });
    this.askLater();
  }

  askLater() {
    if (this.asking !== null) this.cancel(this.asking);
    const wait = ASK_AGAIN[Math.min(this.tries, ASK_AGAIN.length - 1)];
    this.asking = this.later(() => {
      this.asking = null;
      this.tries += 1;
      if (!this.waiting) return;
      if (this.tries < MOST_TRIES) this.ask();
      this.tell({ agents: new Set(), team: true, questions: false, roster: false, whole: false });
    }, wait);
  }

  close() {
    if (this.asking !== null) this.cancel(this.asking);
    this.asking = null;
    this.quiet();
    this.waiting = false;
    this.listeners.clear();
    this.requests.clear();
  }

  // -- from the kernel

  receive(message) {
    if (!message || message.v !== PROTOCOL) return;
    switch (message.kind) {
      case "ack": {
        const done = this.requests.get(message.req);
        this.requests.delete(message.req);
        if (done) done(message.error || "");
        return;
      }
      case "snapshot":
        this.takeSnapshot(message);
        return;
      case "mark":
        if (!this.waiting && message.seq > this.seq) this.lost();
        return;
      case "delta":
      case "event":
      case "batch":
        break;
      default:
        console.info("the team's view ignores a message of kind", message.kind);
        return;
    }
    if (this.waiting || message.seq <= this.seq) return;
    if (message.seq !== this.seq + 1) {
      this.lost();
      return;
    }
    this.seq = message.seq;
    const change = { agents: new Set(), team: false, questions: false, roster: false, whole: false };
    try {
      for (const event of message.events || (message.event ? [message.event] : [])) this.apply(event, change);
      for (const item of message.items || []) this.stream(item, change);
    } catch (error) {
      console.error("the team's view cannot read a message", error);
      this.lost();
    }
    this.tell(change);
  }

  lost() {
    if (this.waiting) return;
    this.waiting = true;
    this.tries = 0;
    this.ask();
    this.tell({ agents: new Set(), team: true, questions: false, roster: false, whole: false });
  }

  takeSnapshot(message) {
    if (!this.waiting && !message.reset) {
      if (message.seq === this.seq + 1) {
        this.seq = message.seq; // asked for by another page; this one has it all
        return;
      }
      if (message.seq <= this.seq) return;
    }
    const { team, cost, agents, questions, warnings } = message.state;
    this.seq = message.seq;
    this.waiting = false;
    this.tries = 0;
    if (this.asking !== null) this.cancel(this.asking);
    this.asking = null;
    this.window = message.window;
    this.team = { ...TEAM, ...team };
    this.since = this.now();
    this.cost = cost ?? null;
    this.warnings = warnings.slice(-WARNINGS);
    this.agents = new Map();
    for (const { bubbles, live, ...fields } of agents) {
      const agent = Object.assign(newAgent(fields.id), fields);
      agent.bubbles = bubbles.map(readBubble);
      agent.live = live ? { message: live[0], text: live[1], thoughts: "" } : null;
      this.agents.set(agent.id, agent);
    }
    const open = new Set(questions.map((question) => question.id));
    for (const id of [...this.questions.keys()]) if (!open.has(id)) this.forget(id);
    this.questions = new Map(questions.map((question) => [question.id, this.question(question)]));
    this.tell({ agents: new Set(this.agents.keys()), team: true, questions: true, roster: true, whole: true });
  }

  question({ id, by, body, approval }) {
    return { id, by, nodes: nodesOf(body), approval };
  }

  forget(id) {
    this.questions.delete(id);
    this.drafts.delete(id);
    this.forms.delete(id);
  }

  agent(id, change) {
    let agent = this.agents.get(id);
    if (!agent) {
      agent = newAgent(id);
      this.agents.set(id, agent);
      change.roster = true;
    }
    change.agents.add(id);
    return agent;
  }

  apply(event, change) {
    switch (event.t) {
      case "team": {
        const { t, ...fields } = event;
        Object.assign(this.team, fields);
        this.since = this.now();
        change.team = true;
        return;
      }
      case "agent": {
        const { t, id, ...fields } = event;
        if ("name" in fields) change.roster = true;
        Object.assign(this.agent(id, change), fields);
        change.team = true;
        return;
      }
      case "say":
        this.say(event, change);
        return;
      case "skip":
        this.agent(event.a, change).count += event.count;
        return;
      case "result": {
        const { t, a, n, k, ...result } = event;
        const agent = this.agent(a, change);
        const at = agent.bubbles.findIndex((bubble) => bubble.n === n);
        if (at < 0) return;
        const bubble = { ...agent.bubbles[at], calls: [...(agent.bubbles[at].calls || [])] };
        if (bubble.calls[k]) bubble.calls[k] = readResult(bubble.calls[k], result);
        agent.bubbles[at] = bubble; // another object: whoever shows the bubble sees that it changed
        return;
      }
      case "ask":
        this.questions.set(event.id, this.question(event));
        change.questions = change.team = true;
        return;
      case "closed":
        this.forget(event.id);
        change.questions = change.team = true;
        return;
      case "warn":
        this.warnings = [...this.warnings, event.text].slice(-WARNINGS);
        change.team = true;
        return;
      case "cost":
        this.cost = event.cost;
        change.team = true;
        return;
      case "window":
        this.window = event.size;
        for (const agent of this.agents.values()) {
          if (agent.bubbles.length > this.window) this.trim(this.agent(agent.id, change));
        }
        return;
      default:
        console.info("the team's view ignores an event", event.t);
    }
  }

  say(event, change) {
    const { t, a, live, tree, copy, ...raw } = event;
    const agent = this.agent(a, change);
    const bubble = readBubble(raw);
    if (live !== undefined) {
      if (!agent.live) throw new Error("the text that a message goes on from is missing");
      const text = agent.live.text + live;
      bubble.nodes = tree ? expandTree(tree, text) : nodesOf(text);
    } else if (copy) {
      const source = this.agents.get(copy[0])?.bubbles.find((other) => other.n === copy[1]);
      if (!source) throw new Error("the message that another one repeats is missing");
      bubble.nodes = source.nodes;
    }
    if (isOwn(bubble, a)) agent.live = null;
    agent.bubbles.push(bubble);
    agent.count += 1;
    this.trim(agent);
  }

  trim(agent) {
    if (agent.bubbles.length > this.window) agent.bubbles.splice(0, agent.bubbles.length - this.window);
  }

  stream([id, message, text, reasoning], change) {
    const agent = this.agent(id, change);
    if (!agent.live || agent.live.message !== message) agent.live = { message, text: "", thoughts: "" };
    if (reasoning) agent.live.thoughts += text;
    else agent.live.text += text;
  }

  // -- reading

  get tokens() {
    let total = 0;
    for (const agent of this.agents.values()) total += agent.tokens;
    return total;
  }

  get silent() {
    return this.waiting && this.tries >= SILENT;
  }

  get elapsed() {
    const running = this.team.status === "running";
    return this.team.elapsed + (running ? Math.max(0, this.now() - this.since) / 1000 : 0);
  }

  nameOf(id) {
    return this.agents.get(id)?.name ?? "";
  }

  plain() {
    // Everything that messages made, as JSON: for tests that hold it against the kernel's state.
    return {
      seq: this.seq,
      team: { ...this.team, elapsed: 0 },
      cost: this.cost,
      window: this.window,
      warnings: this.warnings,
      agents: [...this.agents.values()]
        .sort((one, other) => one.id - other.id)
        .map((agent) => ({ ...agent, live: agent.live ? [agent.live.message, agent.live.text] : null })),
      questions: [...this.questions.values()],
    };
  }
}
