// Renders Markdown as the installed JupyterLab does: its own formula pre-pass, its own marked.
// Reads one JSON string per line, writes one line with the HTML, or the error that the page would show.
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");
const readline = require("node:readline");

const folder = process.argv[2];

function modulesOf(file) {
  const modules = {};
  const chunk = { push: (pushed) => Object.assign(modules, pushed[1]) };
  const self = new Proxy({}, { get: (_, name) => (String(name).includes("Chunk") ? chunk : undefined) });
  vm.runInThisContext(`(function (self) {${fs.readFileSync(file, "utf8")}\n})`, { filename: file })(self);
  return modules;
}

function load(source) {
  const exported = {};
  const need = () => ({});
  need.r = () => {};
  need.d = (target, getters) => {
    for (const name of Object.keys(getters)) Object.defineProperty(target, name, { get: getters[name], enumerable: true });
  };
  source({}, exported, need);
  return exported;
}

function find(mark) {
  for (const name of fs.readdirSync(folder)) {
    const file = path.join(folder, name);
    if (!name.endsWith(".js") || !fs.readFileSync(file, "utf8").includes(mark)) continue;
    for (const source of Object.values(modulesOf(file))) {
      if (Function.prototype.toString.call(source).includes(mark)) return load(source);
    }
  }
  throw new Error(`JupyterLab in ${folder} has no module with ${mark}`);
}

globalThis.navigator ??= { appName: "Netscape" };
const { Marked } = find("emStrongLDelim");
const formulas = Object.values(find("\\\\(?:begin|end)\\{[a-z]*\\*?\\}"));
const restore = formulas.find((each) => each.length === 2);
const remove = formulas.find((each) => each.length === 1);
const marked = new Marked({ gfm: true });

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  let answer;
  try {
    const { text, math } = remove(JSON.parse(line));
    answer = { html: restore(marked.parse(text), math) };
  } catch (error) {
    answer = { error: String(error.message) };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
});
