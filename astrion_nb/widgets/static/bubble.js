// One message as elements: role, purpose, content (message protocol §6), and its tool calls folded.

export function buildBubble(bubble, { doc, words, nameOf, lane }) {
  if (bubble.left !== undefined) return make(doc, "div", "anb-aside", words.left(bubble.left));
  const own = isOwn(bubble, lane);
  const box = make(doc, "article", `anb-bubble ${own ? "anb-own" : "anb-in"}`);
  box.dataset.hue = bubble.role === undefined ? hueOf(bubble.by) : "none";
  box.appendChild(buildHeading(bubble, { doc, words, nameOf }));
  if (bubble.think) {
    const fold = make(doc, "details", "anb-think");
    fold.appendChild(make(doc, "summary", "", words.thoughts));
    fold.appendChild(make(doc, "div", "anb-plain", bubble.think));
    box.appendChild(fold);
  }
  if (bubble.nodes.length) {
    const content = make(doc, "div", "anb-content");
    content.appendChild(buildMarkdown(bubble.nodes, doc));
    box.appendChild(content);
  }
  for (const call of bubble.calls || []) box.appendChild(buildCall(call, { doc, words, nameOf, lane }));
  return box;
}

function buildHeading(bubble, { doc, words, nameOf }) {
  const { role, purpose, notes } = heading(bubble, nameOf, words);
  const line = make(doc, "header", "anb-heading");
  if (bubble.id) line.title = bubble.id;
  line.appendChild(make(doc, "span", "anb-role", role));
  if (purpose) line.appendChild(make(doc, "span", "anb-purpose", purpose));
  for (const note of notes) line.appendChild(make(doc, "span", "anb-note", note));
  return line;
}

function buildCall(call, context) {
  const { doc, words } = context;
  const fold = make(doc, "details", "anb-call");
  const line = make(doc, "summary");
  const open = call.name.startsWith("ask_") ? "waiting" : "running";
  const ended = words.status[call.bad]; // else it was refused
  const state = call.out === undefined ? open : !call.bad ? "completed" : ended ? call.bad : "failed";
  line.appendChild(mark(doc, state));
  line.appendChild(make(doc, "code", "anb-tool", call.name));
  line.appendChild(make(doc, "span", "anb-short", shortOf(call.args)));
  if (state !== "completed") line.appendChild(make(doc, "span", "anb-note", state === "running" ? words.running : state === "waiting" ? words.status.waiting : ended || words.refused));
  fold.appendChild(line);
  appendFields(fold, words.arguments, call.args, doc);
  if (call.out !== undefined) appendFields(fold, words.result, call.out, doc);
  if (!call.reply) return fold;
  const both = doc.createDocumentFragment();
  both.appendChild(fold);
  both.appendChild(buildBubble(call.reply, context));
  return both;
}

export function shortOf(fields) {
  if (!Array.isArray(fields)) return "";
  const short = fields.filter(([, value]) => value.length <= 60 && !value.includes("\n"));
  const told = short.length ? short : fields.slice(0, 1).map(([name, value]) => [name, value.trim().split("\n")[0]]);
  return told
    .map(([name, value]) => `${name}: ${value}`)
    .join(" · ")
    .slice(0, 120);
}

function appendFields(fold, title, fields, doc) {
  if (!fields || !fields.length) return;
  fold.appendChild(make(doc, "div", "anb-fields-title", title));
  if (!Array.isArray(fields)) {
    fold.appendChild(make(doc, "div", "anb-plain", fields));
    return;
  }
  const list = make(doc, "dl", "anb-fields");
  for (const [name, value] of fields) {
    list.appendChild(make(doc, "dt", "", name));
    const long = value.length > 40 || value.includes("\n");
    list.appendChild(make(doc, "dd", long ? "anb-long" : "", value));
  }
  fold.appendChild(list);
}
