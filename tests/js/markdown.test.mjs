import assert from "node:assert/strict";
import { test } from "node:test";

import { newDocument } from "./dom.mjs";
import { load, source } from "./joined.mjs";

const { buildMarkdown, safeAddress } = await load();

const build = (nodes) => {
  const doc = newDocument();
  const box = doc.createElement("div");
  box.appendChild(buildMarkdown(nodes, doc));
  return box;
};

test("every tag of the tree becomes its element", () => {
  const box = build([
    { t: "h2", c: ["Title"] },
    { t: "p", c: ["a ", { t: "em", c: ["b"] }, { t: "strong", c: ["c"] }, { t: "s", c: ["d"] }, { t: "code", c: ["e"] }, { t: "br" }] },
    { t: "ol", start: 3, c: [{ t: "li", c: ["one"] }] },
    { t: "blockquote", c: [{ t: "p", c: ["quoted"] }] },
    { t: "hr" },
    { t: "table", c: [{ t: "thead", c: [{ t: "tr", c: [{ t: "th", align: "right", c: ["n"] }] }] }] },
  ]);
  for (const tag of ["h2", "p", "em", "strong", "s", "code", "br", "ol", "li", "blockquote", "hr", "table", "thead", "tr", "th"])
    assert.ok(box.all(tag).length, tag);
  assert.equal(box.one("ol").getAttribute("start"), "3");
  assert.ok(box.one("th").classes.has("anb-right"));
});

test("code keeps its text and names its language", () => {
  const box = build([{ t: "pre", lang: "python", c: ["print('<b>')\n  x"] }]);
  assert.equal(box.one("pre").getAttribute("data-lang"), "python");
  assert.equal(box.one("code").textContent, "print('<b>')\n  x");
});

test("text is text, whatever it looks like", () => {
  const hostile = "<img src=x onerror=alert(1)><script>alert(2)</script>";
  const box = build([{ t: "p", c: [hostile] }]);
  assert.equal(box.textContent, hostile);
  assert.equal(box.all("img").length + box.all("script").length, 0);
});

test("a link keeps only an address that leads to the web or to mail, and leads nowhere near the page", () => {
  const link = build([{ t: "a", href: "https://example.org/?a=1", c: ["see"] }]).one("a");
  assert.equal(link.getAttribute("href"), "https://example.org/?a=1");
  assert.match(link.getAttribute("rel"), /noopener/);
  for (const href of [
    "javascript:alert(1)",
    " javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "java\nscript:alert(1)",
    "data:text/html,<script>",
    "vbscript:x",
    "file:///etc/passwd",
    "//evil.example",
    "https://",
    "https:// x",
    "",
    null,
    7,
    { toString: () => "https://x.y" },
  ]) {
    assert.equal(safeAddress(href), null, String(href));
    const box = build([{ t: "a", href, c: ["words"] }]);
    assert.equal(box.all("a").length, 0);
    assert.equal(box.textContent, "words");
  }
});

test("tags that are not on the list lose their element and keep their text", () => {
  for (const tag of ["script", "style", "iframe", "img", "svg", "object", "input", "form", "__proto__", "constructor", "a:b", 5, null]) {
    const box = build([{ t: tag, onclick: "x", src: "y", c: ["inside"] }]);
    assert.equal(box.textContent, "inside", String(tag));
    assert.equal(box.all((node) => node !== box).length, 0, String(tag));
  }
});

test("attributes that are no part of the tree go nowhere", () => {
  const box = build([{ t: "p", onclick: "x", style: "y", class: "z", c: ["a"] }, { t: "td", align: "evil", c: [] }, { t: "ol", start: "7", c: [] }]);
  for (const node of box.all(() => true)) assert.deepEqual(node.attributes, {});
});

test("broken trees are shown as far as they go", () => {
  for (const nodes of [null, 7, "text", {}, [null], [[]], [7], [undefined], [{ t: "p" }], [{ t: "p", c: "no list" }], [{ c: [{}] }]])
    assert.doesNotThrow(() => build(nodes));
});

test("a tree without end in depth ends the element, not the page", () => {
  let node = { t: "em", c: ["deep"] };
  for (let i = 0; i < 20000; i += 1) node = { t: "em", c: [node] };
  assert.doesNotThrow(() => build([node]));
  assert.doesNotThrow(() => build([{ t: "pre", c: [node] }]));
});

test("the page has no way to parse text as HTML or code", () => {
  for (const way of ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "eval(", "new Function", "createContextualFragment", "srcdoc"])
    assert.ok(!source.includes(way), way);
});
