import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { newDocument } from "./dom.mjs";
import { files, load, source } from "./joined.mjs";

const { Store, TeamPage, default: widget, heading, initialsOf, shortOf, standing, countText, timeText, wordsOf } = await load();

let frames = [];
globalThis.requestAnimationFrame = (run) => frames.push(run);
globalThis.cancelAnimationFrame = () => {};
const open = [];
afterEach(() => {
  for (const page of open.splice(0)) page.close();
  frames = [];
});

const draw = () => {
  for (const run of frames.splice(0)) run();
};

function show({ language = "en", state = {}, agents = [lead, worker], view = null } = {}) {
  const sent = [];
  const store = new Store({ send: (message) => sent.push(message), later: () => 0, cancel: () => {}, now: () => 0 });
  const team = { title: "A <b>task</b>", leader: "model", run: 1, status: "running", error: "", elapsed: 61 };
  store.receive({ v: 1, kind: "snapshot", seq: 1, window: 40, state: { team, cost: 0.5, agents, questions: [], warnings: [], ...state } });
  const el = newDocument(view).createElement("div");
  const page = new TeamPage({ store, el, language });
  open.push(page);
  let seq = 1;
  const tell = (...events) => {
    store.receive({ v: 1, kind: "batch", seq: (seq += 1), events });
    draw();
  };
  const stream = (...items) => {
    store.receive({ v: 1, kind: "delta", seq: (seq += 1), items });
    draw();
  };
  return { store, sent, el, page, tell, stream };
}

const fields = { status: "running", detail: "", error: "", waits: [], task: "", tokens: 0, inbox: 0, model: "m", count: 0, bubbles: [] };
const lead = { ...fields, id: 0, name: "Team Leader" };
const worker = { ...fields, id: 1, name: "UI Operator_1", task: "Paint", tokens: 12345 };
const question = { id: "ask_1", by: 1, body: "Which colour?" };

test("a head, a lane for each agent with the leader's first, and a box to write in", () => {
  const { el } = show({ agents: [worker, lead] });
  assert.equal(el.one("anb-title").textContent, "A <b>task</b>");
  assert.deepEqual(el.all("anb-name").map((node) => node.textContent), ["Team Leader", "UI Operator_1"]);
  assert.equal(el.one("anb-time").textContent, "1:01");
  assert.match(el.one("anb-facts").textContent, /1 agent.*12\.3k tokens.*0\.50/);
  assert.equal(el.one("anb-foot").all("option").length, 2);
});

test("a status is a mark and a word, and says for whom an agent waits", () => {
  const { el, tell } = show();
  const status = () => el.all("anb-status-text").map((node) => node.textContent)[1];
  assert.equal(status(), "running");
  tell({ t: "agent", id: 1, status: "waiting", waits: [0] });
  assert.equal(status(), "waiting for Team Leader");
  tell({ t: "agent", id: 1, waits: [-1] });
  assert.equal(status(), "waiting for you");
  tell({ t: "agent", id: 1, status: "idle", waits: [], detail: "timed_out", error: "after 600 s" });
  assert.equal(status(), "timed out");
  assert.equal(el.all("anb-lane-error")[1].textContent, "after 600 s");
  assert.equal(el.all("anb-lane")[1].dataset.status, "timed_out");
});

test("a bubble shows role, purpose and content; its id is a tooltip", () => {
  const { el, tell } = show({ language: "zh" });
  tell({ t: "say", a: 1, n: 1, id: "task_001", by: 0, kind: "task", body: "画一个按钮" });
  const bubble = el.one("anb-in");
  assert.equal(bubble.one("anb-role").textContent, "Team Leader");
  assert.equal(bubble.one("anb-purpose").textContent, "任务发布");
  assert.equal(bubble.one("anb-content").textContent, "画一个按钮");
  assert.equal(bubble.one("anb-heading").title, "task_001");
  assert.ok(!bubble.textContent.includes("task_001"));
});

test("streamed text is appended to one text node and never written again", () => {
  const { el, stream } = show();
  stream([1, 0, "first "]);
  const text = el.all("anb-stream")[1].childNodes[0];
  stream([1, 0, "second "]);
  stream([1, 0, "third"]);
  assert.equal(text.data, "first second third");
  assert.equal(text.appended, "second third".length);
  assert.equal(el.all("anb-live")[1].hidden, false);
});

test("a finished message takes the place of the streamed text", () => {
  const { el, tell, stream } = show();
  stream([1, 0, "Hel"]);
  tell({ t: "say", a: 1, n: 1, by: 1, kind: "completion", live: "lo" }, { t: "agent", id: 1, status: "completed" });
  const lane = el.all("anb-lane")[1];
  assert.equal(lane.all("anb-content").at(0).textContent, "Hello");
  assert.equal(lane.one("anb-live").hidden, true);
  assert.equal(lane.one("anb-live").one("anb-stream").childNodes[0].data, "");
});

test("what requests leave out is one quiet line without a speaker", () => {
  for (const [language, words] of [["en", "12 earlier messages left out of the requests: the model's context was full"], ["zh", "请求里略去了 12 条较早的消息：模型的上下文已满"]]) {
    const { el, tell } = show({ language });
    tell({ t: "say", a: 1, n: 1, by: 0, role: "system", small: 1, left: 12 });
    const lane = el.all("anb-lane")[1];
    assert.deepEqual(lane.all("anb-aside").map((node) => node.textContent), [words]);
    assert.equal(lane.all("anb-in").length, 0);
    assert.equal(lane.one("anb-empty").hidden, true);
  }
});

test("the complete lines of a long text are not laid out again", () => {
  const { el, stream } = show();
  const line = "word ".repeat(30).trim();
  let said = "";
  for (let n = 0; n < 40; n += 1) {
    said += `${line}\n`;
    stream([1, 0, `${line}\n`]);
  }
  const box = el.all("anb-stream")[1];
  const text = box.childNodes.at(-2);
  assert.ok(box.all("div").length > 5);
  assert.ok(text.data.length <= 800);
  assert.equal([...box.all("div").slice(1).map((node) => node.textContent), text.data].join("\n"), said);
  stream([1, 1, "anew"]);
  assert.equal(box.textContent, "anew");
});

test("lanes out of sight wait, and are up to date when they come into sight", (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  let look;
  const watched = new Set();
  class IntersectionObserver {
    constructor(report) {
      look = report;
    }
    observe(node) {
      watched.add(node);
    }
    unobserve(node) {
      watched.delete(node);
    }
    disconnect() {
      watched.clear();
    }
  }
  const { el, page, stream } = show({ view: { IntersectionObserver } });
  const [first, second] = el.all("anb-lane");
  assert.equal(watched.size, 2);
  look([{ target: second, isIntersecting: false }]);
  const said = (lane) => lane.one("anb-stream").textContent;
  stream([0, 0, "seen"], [1, 0, "unseen"]);
  assert.deepEqual([said(first), said(second)], ["seen", ""]);
  context.mock.timers.tick(1000);
  assert.equal(said(second), "unseen");
  stream([1, 0, ", then seen"]);
  assert.equal(said(second), "unseen");
  look([{ target: second, isIntersecting: true }]);
  assert.equal(said(second), "unseen, then seen");
  stream([1, 0, "!"]);
  assert.equal(said(second), "unseen, then seen!");
  page.close();
  assert.equal(watched.size, 0);
});

test("a try that failed is wiped when the next one begins", () => {
  const { el, stream } = show();
  stream([1, 0, "broken half"]);
  stream([1, 1, ""]);
  stream([1, 1, "anew"]);
  assert.equal(el.all("anb-stream")[1].textContent, "anew");
});

test("what an agent was saying when it stopped stays, marked as broken off", () => {
  const { el, tell, stream } = show();
  stream([1, 0, "I was about to"]);
  tell({ t: "agent", id: 1, status: "idle", detail: "stopped" });
  const live = el.all("anb-live")[1];
  assert.equal(live.hidden, false);
  assert.ok(live.classes.has("anb-still"));
  assert.equal(live.one("anb-note").textContent, "broke off");
});

test("bubbles that did not change keep their elements, also over a snapshot", () => {
  const { el, store, tell } = show();
  tell({ t: "say", a: 1, n: 1, by: 1, body: "one" }, { t: "say", a: 1, n: 2, by: 1, calls: [{ name: "f", args: [] }] });
  const [one, two] = el.all("anb-lane")[1].all("anb-own");
  two.one("details").open = true;
  tell({ t: "result", a: 1, n: 2, k: 0, out: "ok" });
  const [same, other] = el.all("anb-lane")[1].all("anb-own");
  assert.equal(same, one);
  assert.notEqual(other, two);
  assert.equal(other.one("details").open, true);
  const bubbles = [{ n: 1, by: 1, body: "one" }, { n: 2, by: 1, calls: [{ name: "f", args: [], out: "ok" }] }];
  const team = { title: "T", leader: "model", run: 1, status: "running", error: "", elapsed: 0 };
  store.receive({ v: 1, kind: "snapshot", seq: 99, reset: 1, window: 40, state: { team, cost: null, agents: [lead, { ...worker, count: 2, bubbles }], questions: [], warnings: [] } });
  draw();
  assert.deepEqual(el.all("anb-lane")[1].all("anb-own").slice(0, 2), [one, other]);
});

test("bubbles out of the window leave the page and are counted", () => {
  const { el, tell } = show();
  tell({ t: "window", size: 2 });
  for (let n = 1; n <= 5; n += 1) tell({ t: "say", a: 1, n, by: 1, body: `m${n}` });
  const lane = el.all("anb-lane")[1];
  assert.deepEqual(lane.all("anb-content").map((node) => node.textContent).filter(Boolean), ["m4", "m5"]);
  assert.equal(lane.one("anb-earlier").textContent, "3 earlier messages are in the transcript");
});

test("a tool call is folded with its arguments, then its result; an ask shows the answer", () => {
  const { el, tell } = show();
  tell({ t: "say", a: 1, n: 1, by: 1, calls: [{ name: "ask_master", args: [["question", "Why?"]] }] });
  assert.match(el.one("anb-call").one("summary").textContent, /ask_master.*question: Why\?.*waiting/);
  tell({ t: "result", a: 1, n: 1, k: 0, out: [["success", "true"]], reply: { id: "ans_1", by: 0, kind: "answer", body: "Because." } });
  assert.match(el.one("anb-call").textContent, /success.*true/);
  assert.ok(!el.one("anb-call").textContent.includes("waiting"));
  assert.match(el.all("anb-in").at(-1).textContent, /Team Leader.*answer.*Because\./);
});

test("the view follows the end until the reader scrolls up, and again from the button", () => {
  const { el, tell, stream } = show();
  const lane = el.all("anb-lane")[1];
  const body = lane.one("anb-body");
  body.scrollHeight = 500;
  stream([1, 0, "x"]);
  assert.equal(body.scrollTop, 500);
  body.scrollTop = 120;
  body.fire("scroll");
  body.scrollHeight = 900;
  tell({ t: "say", a: 1, n: 1, by: 1, body: "more" });
  assert.equal(body.scrollTop, 120);
  assert.equal(lane.one("anb-latest").hidden, false);
  lane.one("anb-latest").fire("click");
  assert.equal(body.scrollTop, 900);
  assert.equal(lane.one("anb-latest").hidden, true);
});

test("a question for the person has a box of its own; Enter sends, Shift+Enter does not", () => {
  const { el, sent, store, tell } = show();
  tell({ t: "ask", ...question });
  const box = el.one("anb-question");
  assert.match(box.textContent, /UI Operator_1 asks you.*Which colour\?/);
  assert.equal(el.one("anb-asking").textContent, "1 question for you");
  const field = box.one("textarea");
  assert.equal(box.one("anb-primary").disabled, true);
  field.value = "blue";
  field.fire("input");
  assert.equal(box.one("anb-primary").disabled, false);
  field.selectionStart = field.selectionEnd = 4;
  field.fire("keydown", { key: "Enter", shiftKey: true });
  assert.equal(sent.length, 0);
  assert.equal(store.drafts.get("ask_1"), "blue\n");
  field.fire("keydown", { key: "Enter", isComposing: true });
  assert.equal(sent.length, 0);
  assert.equal(field.fire("keydown", { key: "Enter" }).prevented, true);
  assert.deepEqual(sent, [{ v: 1, kind: "answer", req: "r1", question_id: "ask_1", text: "blue\n" }]);
  draw();
  assert.equal(field.readOnly, true);
  store.receive({ v: 1, kind: "ack", req: "r1", error: "it was answered already" });
  draw();
  assert.equal(field.readOnly, false);
  assert.equal(box.one("anb-form-note").textContent, "it was answered already");
  tell({ t: "closed", id: "ask_1" });
  assert.equal(el.all("anb-question").length, 0);
  assert.equal(el.one("anb-questions").hidden, true);
});

const approval = { tool: "write_file", arguments: '{"path":"a.txt","content":"<b>new</b>\\n"}', preview: "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-old\n+<b>new</b>", kind: "write_file", digest: "d1", until: 0 };

test("a call that waits to be allowed shows its diff and its exact arguments, and nothing of it is markup", () => {
  const { el, tell } = show();
  tell({ t: "ask", id: "ask_2", by: 1, body: "write_file", approval });
  const card = el.one("anb-approval");
  assert.equal(card.one("anb-role").textContent, "UI Operator_1 asks to use write_file");
  assert.deepEqual(card.all("anb-plus").map((node) => node.textContent), ["+<b>new</b>"]);
  assert.deepEqual(card.all("anb-minus").map((node) => node.textContent), ["-old\n"]);
  assert.equal(card.all("anb-preview")[1].textContent, "path: a.txt\ncontent: <b>new</b>\n");
  assert.equal(card.all("b").length, 0);
  assert.equal(el.one("anb-asking").textContent, "1 question for you");
});

test("approve, approve all of a kind, deny with a reason or without: each says which call was seen", () => {
  for (const [act, expected] of [
    [(card) => card.all("button")[0].fire("click"), { ok: true }],
    [(card) => card.all("button")[1].fire("click"), { ok: true, lasting: true }],
    [(card) => card.one("anb-draft").fire("submit"), { ok: false, reason: "" }],
  ]) {
    const { sent, el, tell } = show();
    tell({ t: "ask", id: "ask_2", by: 1, body: "write_file", approval });
    act(el.one("anb-approval"));
    draw();
    assert.deepEqual(sent, [{ v: 1, kind: "approve", req: "r1", id: "ask_2", digest: "d1", ...expected }]);
    assert.ok(el.one("anb-approval").all("button").every((button) => button.disabled), "nothing is said twice");
    tell({ t: "closed", id: "ask_2" });
    assert.equal(el.all("anb-approval").length, 0);
  }
});

test("arguments that are no object are shown as they stand, and a call without a preview shows them at once", () => {
  const { el, tell } = show();
  tell({ t: "ask", id: "ask_2", by: 1, body: "x", approval: { ...approval, preview: "", arguments: "[1, 2" } });
  const exact = el.one("anb-approval").one("details");
  assert.equal(exact.open, true);
  assert.equal(exact.one("anb-preview").textContent, "[1, 2");
});

test("a draft, its box and its place survive streaming and other questions", () => {
  const { el, tell, stream } = show();
  tell({ t: "ask", ...question });
  const field = el.one("anb-question").one("textarea");
  field.value = "half";
  field.fire("input");
  stream([1, 0, "text"]);
  tell({ t: "ask", id: "ask_2", by: 0, body: "And you?" }, { t: "agent", id: 1, name: "UI Operator_1", tokens: 5 });
  assert.equal(el.all("anb-question")[0].one("textarea"), field);
  assert.equal(field.value, "half");
});

test("two views of one team show the same, and share the draft", () => {
  const { el, store, page, tell } = show();
  const second = new TeamPage({ store, el: newDocument().createElement("div"), language: "en" });
  open.push(second);
  tell({ t: "say", a: 1, n: 1, by: 1, body: "hello" }, { t: "ask", ...question });
  assert.equal(second.root.textContent, page.root.textContent);
  const field = el.one("anb-question").one("textarea");
  field.value = "shared";
  field.fire("input");
  store.stand("ask_1", "busy");
  draw();
  assert.equal(second.root.one("anb-question").one("textarea").value, "shared");
  page.close();
  tell({ t: "say", a: 1, n: 2, by: 1, body: "again" });
  assert.equal(second.root.all("anb-lane")[1].all("anb-own").length, 3);
});

test("a message goes to whom the reader chose, by number, and to the leader by name", () => {
  const { el, sent, store } = show();
  const foot = el.one("anb-foot");
  const field = foot.one("textarea");
  const write = (text) => {
    field.value = text;
    field.fire("input");
    foot.one("form").fire("submit");
  };
  write("to all of you");
  store.receive({ v: 1, kind: "ack", req: "r1" });
  foot.one("select").value = "1";
  foot.one("select").fire("change");
  write("to you");
  assert.deepEqual(sent.map(({ target, text }) => [target, text]), [["leader", "to all of you"], [1, "to you"]]);
});

test("who is gone, or a person's own part, cannot be written to", () => {
  const { el, tell } = show();
  const targets = () => el.one("anb-foot").all("option").map((node) => node.textContent);
  tell({ t: "agent", id: 1, status: "terminated" });
  assert.deepEqual(targets(), ["Team Leader"]);
  tell({ t: "agent", id: 1, status: "idle" }, { t: "team", leader: "human" });
  assert.deepEqual(targets(), ["UI Operator_1"]);
});

test("the team is stopped once; a refusal is shown", () => {
  const { el, sent, store, tell } = show();
  const stop = el.one("anb-stop");
  stop.fire("click");
  stop.fire("click");
  assert.equal(sent.length, 1);
  draw();
  assert.equal(stop.disabled, true);
  store.receive({ v: 1, kind: "ack", req: "r1", error: "nobody works" });
  draw();
  assert.equal(stop.disabled, false);
  assert.match(el.one("anb-notices").textContent, /nobody works/);
  tell({ t: "team", status: "stopped", elapsed: 3 });
  assert.equal(stop.hidden, true);
});

test("who answers, and what is still being loaded, stand above everything", () => {
  const { el, tell } = show();
  tell({ t: "team", banner: "A small <b>model</b> answers.", loading: "smollm2 (2 s)" });
  assert.deepEqual(el.one("anb-notices").all("anb-text").map((node) => node.textContent), ["A small <b>model</b> answers.", "smollm2 (2 s)"]);
  tell({ t: "team", loading: "" });
  assert.deepEqual(el.one("anb-notices").all("anb-text").map((node) => node.textContent), ["A small <b>model</b> answers."]);
});

test("screen readers are told how agents stand and who asks, never what is streamed", () => {
  const { el, tell, stream } = show();
  const said = el.one("anb-said");
  assert.equal(said.getAttribute("aria-live"), "polite");
  stream([1, 0, "secret"]);
  assert.ok(!said.textContent.includes("secret"));
  tell({ t: "agent", id: 1, status: "completed" });
  assert.match(said.textContent, /UI Operator_1: completed/);
  tell({ t: "ask", ...question });
  assert.match(said.textContent, /UI Operator_1 asks you/);
  for (const node of el.all((node) => node.getAttribute("aria-live") !== null)) assert.equal(node, said);
});

test("everything that can be used has a name", () => {
  const { el, tell } = show();
  tell({ t: "ask", ...question });
  for (const node of el.all((node) => ["TEXTAREA", "SELECT"].includes(node.tagName))) assert.ok(node.getAttribute("aria-label"), node.className);
  for (const node of el.all("button")) assert.ok(node.textContent || node.getAttribute("aria-label"), node.className);
  for (const node of el.all("anb-body")) assert.equal(node.tabIndex, 0);
});

test("the widget says hello when its model begins, and a view shown later has it all", () => {
  const sent = [];
  let receive;
  const model = { get: () => "en", send: (message) => sent.push(message), on: (_, listener) => (receive = listener), off: () => (receive = null) };
  const mine = widget();
  const end = mine.initialize({ model });
  assert.deepEqual(sent, [{ v: 1, kind: "hello", req: "r1", since: null }]);
  const team = { title: "T", leader: "model", run: 1, status: "running", error: "", elapsed: 0 };
  receive({ v: 1, kind: "snapshot", seq: 1, window: 40, state: { team, cost: null, agents: [lead], questions: [], warnings: [] } });
  receive({ v: 1, kind: "delta", seq: 2, items: [[0, 0, "early"]] });
  const el = newDocument().createElement("div");
  const close = mine.render({ model, el });
  assert.equal(el.one("anb-stream").textContent, "early");
  close();
  assert.equal(el.childNodes.length, 0);
  end();
  assert.equal(receive, null);
});

test("two models have a store each", () => {
  const [one, other] = [widget(), widget()];
  const heard = {};
  const model = (key) => ({ get: () => "en", send: () => {}, on: (_, listener) => (heard[key] = listener), off: () => {} });
  const ends = [one.initialize({ model: model("one") }), other.initialize({ model: model("other") })];
  const team = { title: "first", leader: "model", run: 1, status: "running", error: "", elapsed: 0 };
  heard.one({ v: 1, kind: "snapshot", seq: 1, window: 40, state: { team, cost: null, agents: [lead], questions: [], warnings: [] } });
  const el = newDocument().createElement("div");
  const close = other.render({ model: model("other"), el });
  assert.equal(el.all("anb-lane").length, 0);
  close();
  for (const end of ends) end();
});

test("both languages have the same words", () => {
  const shape = (words) => Object.entries(words).map(([key, value]) => [key, typeof value === "object" ? Object.keys(value) : typeof value]);
  assert.deepEqual(shape(wordsOf("zh-CN")), shape(wordsOf("en")));
  assert.equal(wordsOf("fr"), wordsOf("en"));
});

test("figures are short", () => {
  assert.deepEqual([0, 999, 1000, 12345, 123456, 2500000].map(countText), ["0", "999", "1.0k", "12.3k", "123k", "2.5M"]);
  assert.deepEqual([0, 59.9, 61, 3661].map(timeText), ["0:00", "0:59", "1:01", "1:01:01"]);
});

test("headings name strangers, the system and the person", () => {
  const words = wordsOf("en");
  const nameOf = () => "Worker_1";
  assert.equal(heading({ by: -1 }, nameOf, words).role, "You");
  assert.equal(heading({ by: 0, role: "system" }, nameOf, words).role, "System");
  assert.equal(heading({ by: 0, role: "Elsewhere" }, nameOf, words).role, "Elsewhere");
  assert.deepEqual(heading({ by: 1, mark: "failed", you: 1, cut: 1 }, nameOf, words).notes, ["failed", "sent by you", "broke off"]);
  assert.equal(standing({ status: "waiting", detail: "", waits: [] }, nameOf, words).text, "waiting");
});

test("initials are of the role, in any script", () => {
  assert.deepEqual(["UI Operator_1", "Team Leader", "研究员_2", "tester_10", "_1", ""].map(initialsOf), ["UO", "TL", "研", "TE", "?", "?"]);
});

test("short arguments are those that fit on a line", () => {
  assert.equal(shortOf([["a", "1"], ["b", "x\ny"], ["c", "z".repeat(70)], ["d", "2"]]), "a: 1 · d: 2");
  assert.equal(shortOf([["task", "  long\nlines"], ["more", "x\ny"]]), "task: long");
  assert.equal(shortOf("not JSON"), "");
});

test("the files have no imports, one default export, and no name twice", () => {
  assert.ok(!/^\s*import\b/m.test(source));
  assert.equal(source.match(/^export default/gm).length, 1);
  const names = files.flatMap(({ text }) => [...text.matchAll(/^(?:export )?(?:async )?(?:function|const|let|class) (\w+)/gm)].map((found) => found[1]));
  assert.equal(new Set(names).size, names.length);
});
