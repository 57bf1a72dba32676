// A token tree (made in the kernel, the only form of Markdown there is) into elements.
//
// Elements are made one by one from a list of allowed names, text becomes text, addresses are looked
// at again. Nothing is parsed as HTML.

const BLOCKS = new Set(["p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "hr", "br"]);
const INLINE = new Set(["em", "strong", "s"]);
const TABLE = new Set(["table", "thead", "tbody", "tr", "th", "td"]);
const ALIGN = new Set(["left", "center", "right"]);
const ADDRESS = /^(?:https?:\/\/|mailto:)[^\s]/i;
const DEEPEST = 120;

export function safeAddress(href) {
  return typeof href === "string" && ADDRESS.test(href) ? href : null;
}

export function textOf(nodes, depth = 0) {
  if (!Array.isArray(nodes) || depth > DEEPEST) return "";
  return nodes.map((node) => (typeof node === "string" ? node : textOf(node?.c, depth + 1))).join("");
}

export function buildMarkdown(nodes, doc, depth = 0) {
  const out = doc.createDocumentFragment();
  if (!Array.isArray(nodes)) return out;
  for (const node of nodes) {
    if (typeof node === "string") out.appendChild(doc.createTextNode(node));
    else if (node && typeof node === "object") out.appendChild(buildNode(node, doc, depth));
  }
  return out;
}

function buildNode(node, doc, depth) {
  const tag = node.t;
  if (depth > DEEPEST) return doc.createTextNode("");
  if (tag === "pre") return buildCode(node, doc);
  const inside = () => buildMarkdown(node.c, doc, depth + 1);
  if (tag === "a") {
    const address = safeAddress(node.href);
    if (address === null) return inside();
    const link = doc.createElement("a");
    link.setAttribute("href", address);
    link.setAttribute("target", "_blank");
    link.setAttribute("rel", "noopener noreferrer nofollow");
    link.appendChild(inside());
    return link;
  }
  if (tag === "table") {
    const frame = doc.createElement("div"); // a wide table scrolls by itself
    frame.className = "anb-table";
    const table = doc.createElement("table");
    table.appendChild(inside());
    frame.appendChild(table);
    return frame;
  }
  if (!BLOCKS.has(tag) && !INLINE.has(tag) && !TABLE.has(tag) && tag !== "code") return inside();
  const element = doc.createElement(tag);
  if (tag === "hr" || tag === "br") return element;
  if (tag === "ol" && Number.isInteger(node.start)) element.setAttribute("start", String(node.start));
  if ((tag === "th" || tag === "td") && ALIGN.has(node.align)) element.className = `anb-${node.align}`;
  element.appendChild(inside());
  return element;
}

function buildCode(node, doc) {
  const block = doc.createElement("pre");
  block.className = "anb-code";
  if (typeof node.lang === "string") block.setAttribute("data-lang", node.lang);
  const code = doc.createElement("code");
  code.appendChild(doc.createTextNode(textOf(node.c)));
  block.appendChild(code);
  return block;
}
