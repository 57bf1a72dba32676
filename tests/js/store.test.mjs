import assert from "node:assert/strict";
import { test } from "node:test";

import { load } from "./joined.mjs";

const { Store, expandTree, nodesOf } = await load();

function newStore() {
  const sent = [];
  const timers = new Map();
  let clock = 0;
  let last = 0;
  const store = new Store({
    send: (message) => sent.push(message),
    later: (run, ms) => {
      timers.set((last += 1), { run, at: clock + ms });
      return last;
    },
    cancel: (id) => timers.delete(id),
    now: () => clock,
  });
  const pass = (ms) => {
    clock += ms;
    for (const [id, timer] of [...timers]) {
      if (timer.at <= clock && timers.delete(id)) timer.run();
    }
  };
  return { store, sent, timers, pass, kinds: () => sent.map((message) => message.kind) };
}

const agent = (id, more = {}) => ({
  id,
  name: id ? `Worker_${id}` : "Team Leader",
  status: "running",
  detail: "",
  error: "",
  waits: [],
  task: "",
  tokens: 0,
  inbox: 0,
  model: "m",
  count: 0,
  bubbles: [],
  ...more,
});

const snapshot = (seq, more = {}, agents = [agent(0), agent(1)]) => ({
  v: 1,
  kind: "snapshot",
  seq,
  window: 3,
  state: { team: { title: "T", leader: "model", run: 1, status: "running", error: "", elapsed: 2 }, cost: null, agents, questions: [], warnings: [], ...more },
});

const event = (seq, event) => ({ v: 1, kind: "event", seq, event });
const ack = (req) => ({ v: 1, kind: "ack", req });
const delta = (seq, ...items) => ({ v: 1, kind: "delta", seq, items });

test("nothing is shown before the first snapshot, whatever comes", () => {
  const { store } = newStore();
  store.receive(delta(7, [1, 0, "early"]));
  assert.equal(store.agents.size, 0);
  store.receive(snapshot(8));
  assert.deepEqual([...store.agents.keys()], [0, 1]);
});

test("streamed text grows, and another answer's begins anew", () => {
  const { store } = newStore();
  store.receive(snapshot(1));
  store.receive(delta(2, [1, 0, "one "], [0, 4, "lead"]));
  store.receive(delta(3, [1, 0, "two"]));
  assert.equal(store.agents.get(1).live.text, "one two");
  store.receive(delta(4, [1, 1, ""]));
  assert.equal(store.agents.get(1).live.text, "");
  assert.equal(store.agents.get(0).live.text, "lead");
});

test("reasoning stands apart from the answer", () => {
  const { store } = newStore();
  store.receive(snapshot(1));
  store.receive(delta(2, [1, 0, "hm", 1], [1, 0, "yes"]));
  assert.equal(store.agents.get(1).live.text, "yes");
  assert.equal(store.agents.get(1).live.thoughts, "hm");
});

test("a finished message goes on from what was streamed", () => {
  const { store } = newStore();
  store.receive(snapshot(1));
  store.receive(delta(2, [1, 0, "Hello **wor"]));
  store.receive(event(3, { t: "say", a: 1, n: 4, by: 1, live: "ld**", tree: [["p", 6, ["strong", -2, 5]]] }));
  const shown = store.agents.get(1);
  assert.deepEqual(shown.bubbles[0].nodes, [{ t: "p", c: ["Hello ", { t: "strong", c: ["world"] }] }]);
  assert.equal(shown.live, null);
});

test("a report repeats the bubble it comes from", () => {
  const { store } = newStore();
  store.receive(snapshot(1));
  store.receive(event(2, { t: "say", a: 1, n: 1, by: 1, body: "Done" }));
  store.receive(event(3, { t: "say", a: 0, n: 5, by: 1, kind: "completion", copy: [1, 1] }));
  assert.deepEqual(store.agents.get(0).bubbles[0].nodes, nodesOf("Done"));
});

test("a number that is not the next one is a gap: one question, and nothing taken until a snapshot", () => {
  const { store, kinds, sent } = newStore();
  store.receive(snapshot(1));
  store.receive(delta(3, [1, 0, "lost before me"]));
  store.receive(delta(4, [1, 0, "and me"]));
  assert.deepEqual(kinds(), ["need"]);
  assert.equal(sent[0].since, 1);
  assert.equal(store.agents.get(1).live, null);
  store.receive(snapshot(5, {}, [agent(0), agent(1, { live: [0, "all of it"] })]));
  assert.equal(store.agents.get(1).live.text, "all of it");
  store.receive(delta(6, [1, 0, "!"]));
  assert.equal(store.agents.get(1).live.text, "all of it!");
});

test("a store that hears nothing asks again, ever more seldom, and stops when it is answered", () => {
  const { store, pass, kinds } = newStore();
  store.hello();
  store.receive(ack("r1"));
  pass(2000);
  pass(4000);
  assert.deepEqual(kinds(), ["hello", "need", "need"]);
  store.receive(snapshot(1));
  pass(60000);
  assert.equal(kinds().length, 3);
});

test("a page says that somebody is there until it is heard, for what it says first may wait for a cell's end", () => {
  const { store, pass, kinds, timers } = newStore();
  store.hello();
  store.receive(snapshot(1));
  pass(500);
  pass(1000);
  assert.deepEqual(kinds(), ["hello", "hello", "hello"]);
  store.receive(ack("r2"));
  for (let n = 0; n < 20; n += 1) pass(16000);
  assert.equal(kinds().length, 3);
  const unheard = newStore();
  unheard.store.hello();
  unheard.store.receive(snapshot(1));
  for (let n = 0; n < 20; n += 1) unheard.pass(16000);
  assert.equal(unheard.kinds().length, 6);
  assert.equal(unheard.timers.size, 0);
});

test("a kernel that stays silent is not asked for ever, and the reader is told", () => {
  const { store, pass, kinds } = newStore();
  const told = [];
  store.hello();
  store.receive(ack("r1"));
  store.subscribe(() => told.push(store.silent));
  for (let n = 0; n < 100; n += 1) pass(16000);
  assert.equal(kinds().length, 20);
  assert.equal(told.at(-1), true);
  store.receive(snapshot(1));
  assert.equal(store.silent, false);
});

test("a comm that is closed ends nothing", (context) => {
  context.mock.method(console, "warn", () => {});
  const store = new Store({
    send: () => {
      throw new Error("no comm");
    },
    later: () => 0,
  });
  assert.doesNotThrow(() => store.hello());
  assert.doesNotThrow(() => store.submit("send", "send", { target: "leader", text: "x" }));
});

test("the number said again at rest reveals that the last message was lost", () => {
  const { store, kinds } = newStore();
  store.receive(snapshot(1));
  store.receive({ v: 1, kind: "mark", seq: 1 });
  assert.deepEqual(kinds(), []);
  store.receive({ v: 1, kind: "mark", seq: 2 });
  assert.deepEqual(kinds(), ["need"]);
});

test("a snapshot that another page asked for changes nothing but the number", () => {
  const { store } = newStore();
  store.receive(snapshot(1));
  const before = store.agents.get(1);
  store.receive(snapshot(2, {}, []));
  assert.equal(store.agents.get(1), before);
  assert.equal(store.seq, 2);
  store.receive({ ...snapshot(3, {}, [agent(0)]), reset: 1 });
  assert.deepEqual([...store.agents.keys()], [0]);
});

test("messages that came twice or late are passed over", () => {
  const { store, kinds } = newStore();
  store.receive(snapshot(5));
  store.receive(delta(5, [1, 0, "x"]));
  store.receive(snapshot(4, {}, []));
  assert.equal(store.agents.size, 2);
  store.receive(delta(6, [1, 0, "a"]));
  store.receive(delta(6, [1, 0, "a"]));
  assert.equal(store.agents.get(1).live.text, "a");
  assert.deepEqual(kinds(), []);
});

test("a message that cannot be read is a gap, not the end", (context) => {
  context.mock.method(console, "error", () => {});
  const { store, kinds } = newStore();
  store.receive(snapshot(1));
  store.receive(event(2, { t: "say", a: 0, n: 5, by: 1, copy: [1, 99] }));
  assert.deepEqual(kinds(), ["need"]);
  store.receive(snapshot(3));
  assert.equal(store.waiting, false);
});

test("unknown kinds, events and versions are passed over", (context) => {
  context.mock.method(console, "info", () => {});
  const { store } = newStore();
  store.receive(snapshot(1));
  store.receive({ v: 1, kind: "novelty", seq: 9 });
  store.receive({ v: 2, kind: "delta", seq: 2, items: [[1, 0, "x"]] });
  store.receive(null);
  store.receive(event(2, { t: "novelty" }));
  assert.equal(store.seq, 2);
  assert.equal(store.waiting, false);
});

test("only the window's bubbles are kept, the others are counted", () => {
  const { store } = newStore();
  store.receive(snapshot(1));
  for (let n = 1; n <= 5; n += 1) store.receive(event(n + 1, { t: "say", a: 1, n, by: 1, body: `m${n}` }));
  const shown = store.agents.get(1);
  assert.deepEqual(shown.bubbles.map((bubble) => bubble.n), [3, 4, 5]);
  assert.equal(shown.count, 5);
  store.receive(event(7, { t: "window", size: 1 }));
  assert.deepEqual(shown.bubbles.map((bubble) => bubble.n), [5]);
  store.receive(event(8, { t: "skip", a: 1, count: 9 }));
  assert.equal(shown.count, 14);
});

test("a result finds its call, and makes another bubble object of it", () => {
  const { store } = newStore();
  store.receive(snapshot(1));
  store.receive(event(2, { t: "say", a: 1, n: 1, by: 1, calls: [{ name: "f", args: [] }, { name: "g", args: [] }] }));
  const before = store.agents.get(1).bubbles[0];
  store.receive(event(3, { t: "result", a: 1, n: 1, k: 1, out: [["success", "false"]], bad: 1 }));
  const after = store.agents.get(1).bubbles[0];
  assert.notEqual(after, before);
  assert.equal(after.calls[0].out, undefined);
  assert.deepEqual(after.calls[1], { name: "g", args: [], out: [["success", "false"]], bad: 1 });
  store.receive(event(4, { t: "result", a: 1, n: 1, k: 0, out: [["success", "false"]], bad: "stopped" }));
  assert.equal(store.agents.get(1).bubbles[0].calls[0].bad, "stopped");
});

test("a draft outlives streaming and snapshots, and goes with its question", () => {
  const { store } = newStore();
  const question = { id: "ask_1", by: 1, body: "Really?" };
  store.receive(snapshot(1, { questions: [question] }));
  store.drafts.set("ask_1", "half a thou");
  store.drafts.set("send", "and this");
  store.receive(delta(2, [1, 0, "text"]));
  store.receive({ ...snapshot(9, { questions: [question] }), reset: 1 });
  assert.equal(store.drafts.get("ask_1"), "half a thou");
  store.receive(event(10, { t: "closed", id: "ask_1" }));
  assert.equal(store.drafts.has("ask_1"), false);
  assert.equal(store.drafts.get("send"), "and this");
});

test("what is sent is kept until the kernel has taken it", () => {
  const { store, sent } = newStore();
  store.receive(snapshot(1));
  store.drafts.set("send", "hello");
  store.submit("send", "send", { target: "leader", text: "hello" });
  store.submit("send", "send", { target: "leader", text: "hello" });
  assert.equal(sent.length, 1);
  assert.equal(store.busy("send"), true);
  store.receive({ v: 1, kind: "ack", req: sent[0].req });
  assert.equal(store.drafts.has("send"), false);
  assert.equal(store.forms.get("send"), "sent");
});

test("a refusal is shown and the text stays", () => {
  const { store, sent } = newStore();
  store.receive(snapshot(1));
  store.drafts.set("ask_1", "too late");
  store.submit("ask_1", "answer", { question_id: "ask_1", text: "too late" });
  store.receive({ v: 1, kind: "ack", req: sent[0].req, error: "it was answered" });
  assert.deepEqual(store.forms.get("ask_1"), { error: "it was answered" });
  assert.equal(store.drafts.get("ask_1"), "too late");
  assert.equal(store.busy("ask_1"), false);
});

test("a kernel that does not answer is said to be slow, and later the form can be used again", () => {
  const { store, pass } = newStore();
  store.receive(snapshot(1));
  store.drafts.set("send", "hello");
  store.submit("send", "send", { target: "leader", text: "hello" });
  pass(5000);
  assert.equal(store.forms.get("send"), "slow");
  assert.equal(store.busy("send"), true);
  pass(25000);
  assert.equal(store.busy("send"), false);
  assert.equal(store.drafts.get("send"), "hello");
});

test("the time of a run goes on by itself and stands still at its end", () => {
  const { store, pass } = newStore();
  store.receive(snapshot(1));
  pass(3000);
  assert.equal(store.elapsed, 5);
  store.receive(event(2, { t: "team", status: "completed", elapsed: 5.5 }));
  pass(9000);
  assert.equal(store.elapsed, 5.5);
});

test("a listener that fails keeps no other from hearing", (context) => {
  context.mock.method(console, "error", () => {});
  const { store } = newStore();
  const heard = [];
  store.subscribe(() => {
    throw new Error("broken view");
  });
  const end = store.subscribe((change) => heard.push(change.whole));
  store.receive(snapshot(1));
  end();
  store.receive(delta(2, [1, 0, "x"]));
  assert.deepEqual(heard, [true]);
});

test("a closed store has no timer and asks for nothing", () => {
  const { store, timers, pass, kinds } = newStore();
  store.hello();
  store.close();
  assert.equal(timers.size, 0);
  pass(60000);
  assert.deepEqual(kinds(), ["hello"]);
});

test("a tree of pieces takes its texts from the source", () => {
  const source = "# Plan\n\nA *b* [c](https://d.e)\n";
  const tree = [["h1", -2, 4], ["p", -2, 2, ["em", -1, 1], -1, 1, ["a", { href: "https://d.e" }, -1, 1]], ["hr"], ["p", "other"]];
  assert.deepEqual(expandTree(tree, source), [
    { t: "h1", c: ["Plan"] },
    { t: "p", c: ["A ", { t: "em", c: ["b"] }, " ", { t: "a", href: "https://d.e", c: ["c"] }] },
    { t: "hr" },
    { t: "p", c: ["other"] },
  ]);
});
