// A call that waits to be allowed: what it would do, exactly, and the reader's yes or no.

const KINDS = { "+": "anb-diff anb-plus", "-": "anb-diff anb-minus" };
const TALL = 40; // lines of a preview beyond which it scrolls

// A preview or arguments as text; of a diff each line says what it is.
export function buildPreview(text, doc) {
  const root = make(doc, "pre", "anb-preview");
  const lines = text.split("\n");
  const diff = lines.length > 1 && lines[0].startsWith("--- ") && lines[1].startsWith("+++ ");
  root.dataset.long = lines.length > TALL ? "1" : "";
  root.tabIndex = lines.length > TALL ? 0 : -1; // what scrolls can be scrolled by keys
  if (!diff) {
    root.appendChild(doc.createTextNode(text));
    return root;
  }
  for (const [at, line] of lines.entries()) {
    const kind = at < 2 || line.startsWith("@@") ? "anb-diff anb-hunk" : KINDS[line[0]] || "anb-diff";
    root.appendChild(make(doc, "span", kind, at < lines.length - 1 ? `${line}\n` : line));
  }
  return root;
}

// The arguments as a reader takes them in: one line each, unless they are no object.
export function argumentsText(json) {
  try {
    const found = JSON.parse(json);
    if (found && typeof found === "object" && !Array.isArray(found))
      return Object.entries(found)
        .map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
        .join("\n");
  } catch {
    // shown as it stands
  }
  return json;
}

export class Approval {
  constructor(question, { doc, words, store }) {
    this.asked = question.approval;
    this.words = words;
    this.store = store;
    this.id = question.id;
    const name = store.nameOf(question.by);
    const label = words.wants(name, this.asked.tool);
    this.node = make(doc, "section", "anb-question anb-approval");
    this.node.dataset.hue = hueOf(question.by);
    this.node.setAttribute("aria-label", label);
    const line = make(doc, "header", "anb-heading");
    line.title = question.id;
    this.left = make(doc, "span", "anb-left");
    line.append(mark(doc, "asking"), make(doc, "span", "anb-role", label), this.left);
    this.node.append(line);
    if (this.asked.preview) this.node.append(buildPreview(this.asked.preview, doc));
    const exact = make(doc, "details", "anb-exact");
    exact.open = !this.asked.preview;
    exact.append(make(doc, "summary", "", words.exactly), buildPreview(argumentsText(this.asked.arguments), doc));
    this.node.append(exact);
    this.draft = new Draft(question.id, {
      doc,
      words,
      store,
      label: words.whyNot(name),
      hint: words.whyNotHint,
      action: words.deny,
      submit: (reason) => this.settle({ ok: false, reason }),
    });
    this.draft.empty = true; // a denial needs no reason
    this.draft.button.className = "anb-button";
    this.once = this.button(doc, words.allow, "anb-button anb-primary", () => this.settle({ ok: true }));
    this.all = this.button(doc, words.allowAll, "anb-button", () => this.settle({ ok: true, lasting: true }));
    this.all.title = words.allowAllTitle(name, this.asked.kind);
    this.draft.root.append(this.once, this.all, this.draft.field, this.draft.button);
    this.node.append(this.draft.root, this.draft.note);
    this.update();
    this.tick();
  }

  button(doc, text, className, act) {
    const button = make(doc, "button", className, text);
    button.type = "button";
    button.addEventListener("click", act);
    return button;
  }

  settle(how) {
    this.store.submit(this.id, "approve", { id: this.id, digest: this.asked.digest, ...how });
  }

  update() {
    this.draft.update();
    this.once.disabled = this.all.disabled = this.store.busy(this.id);
  }

  // The kernel's own clock decides; this one only tells.
  tick() {
    const left = this.asked.until ? Math.max(0, Math.round(this.asked.until - Date.now() / 1000)) : 0;
    setText(this.left, this.asked.until ? this.words.leftToAllow(timeText(left)) : "");
  }

  focus() {
    this.once.focus();
  }
}
