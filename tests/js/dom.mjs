// As much of a document as the view uses, and no more: what it does not have cannot be used by mistake.
// There is no innerHTML here; a view that parsed text as HTML would fail.

class Node {
  constructor(doc) {
    this.ownerDocument = doc;
    this.parentNode = null;
    this.childNodes = [];
  }

  get children() {
    return this.childNodes.filter((node) => node instanceof Element);
  }

  get textContent() {
    return this.childNodes.map((node) => node.textContent).join("");
  }

  set textContent(text) {
    for (const node of [...this.childNodes]) node.remove();
    if (text !== "") this.appendChild(new Text(this.ownerDocument, String(text)));
  }

  insertBefore(node, before) {
    if (node instanceof Fragment) {
      for (const child of [...node.childNodes]) this.insertBefore(child, before);
      return node;
    }
    if (!(node instanceof Node)) throw new TypeError("not a node");
    node.remove();
    const at = before === null ? this.childNodes.length : this.childNodes.indexOf(before);
    if (at < 0) throw new Error("the node to insert before is not here");
    this.childNodes.splice(at, 0, node);
    node.parentNode = this;
    return node;
  }

  appendChild(node) {
    return this.insertBefore(node, null);
  }

  append(...nodes) {
    for (const node of nodes) this.appendChild(node);
  }

  replaceChildren(...nodes) {
    for (const node of [...this.childNodes]) node.remove();
    this.append(...nodes);
  }

  replaceWith(node) {
    this.parentNode.insertBefore(node, this);
    this.remove();
  }

  remove() {
    if (!this.parentNode) return;
    this.parentNode.childNodes.splice(this.parentNode.childNodes.indexOf(this), 1);
    this.parentNode = null;
  }

  *walk() {
    yield this;
    for (const node of this.childNodes) yield* node.walk();
  }

  all(test) {
    const fits = typeof test === "function" ? test : (node) => node.classes?.has(test) || node.tagName === test.toUpperCase();
    return [...this.walk()].filter((node) => node instanceof Element && fits(node));
  }

  one(test) {
    const found = this.all(test);
    if (found.length !== 1) throw new Error(`${found.length} elements are ${test}`);
    return found[0];
  }

  querySelectorAll(tag) {
    return this.all(tag).filter((node) => node !== this);
  }
}

class Text extends Node {
  constructor(doc, data) {
    super(doc);
    this.data = data;
    this.appended = 0;
  }

  get textContent() {
    return this.data;
  }

  appendData(text) {
    this.data += text;
    this.appended += text.length;
  }
}

class Fragment extends Node {}

class Element extends Node {
  constructor(doc, tag) {
    super(doc);
    this.tagName = tag.toUpperCase();
    this.attributes = {};
    this.dataset = {};
    this.classes = new Set();
    this.listeners = {};
    this.hidden = false;
    this.disabled = false;
    this.value = "";
    this.title = "";
    this.open = false;
    this.scrollTop = 0;
    this.scrollHeight = 100;
    this.clientHeight = 100;
    const { classes } = this;
    this.classList = {
      toggle(name, on) {
        if (on) classes.add(name);
        else classes.delete(name);
      },
    };
  }

  get className() {
    return [...this.classes].join(" ");
  }

  set className(text) {
    this.classes.clear();
    for (const name of text.split(" ").filter(Boolean)) this.classes.add(name);
  }

  setAttribute(name, value) {
    if (/^on/i.test(name)) throw new Error(`${name} is script`);
    this.attributes[name] = String(value);
  }

  getAttribute(name) {
    return this.attributes[name] ?? null;
  }

  addEventListener(type, listener) {
    (this.listeners[type] ||= []).push(listener);
  }

  fire(type, fields = {}) {
    const event = { type, target: this, prevented: false, preventDefault: () => (event.prevented = true), stopPropagation() {}, ...fields };
    for (const listener of this.listeners[type] || []) listener(event);
    return event;
  }

  setRangeText(text, start, end) {
    this.value = this.value.slice(0, start) + text + this.value.slice(end);
  }

  focus() {
    this.ownerDocument.activeElement = this;
  }
}

export function newDocument(defaultView = null) {
  const doc = {
    defaultView,
    activeElement: null,
    createElement: (tag) => new Element(doc, tag),
    createElementNS: (_, tag) => new Element(doc, tag),
    createTextNode: (text) => {
      if (typeof text !== "string") throw new TypeError("a text node holds a string");
      return new Text(doc, text);
    },
    createDocumentFragment: () => new Fragment(doc),
  };
  return doc;
}

export { Element, Text };
