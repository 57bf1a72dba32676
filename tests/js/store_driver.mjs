// Plays messages to stores: one JSON list of pages a line, each a list of messages; answers with what each shows.

import { createInterface } from "node:readline";

import { load } from "./joined.mjs";

const { Store } = await load();
console.error = () => {}; // a gap that a store finds by a failing message is no news here

for await (const line of createInterface({ input: process.stdin })) {
  const pages = JSON.parse(line).map((messages) => {
    const sent = [];
    const store = new Store({ send: (message) => sent.push(message), later: () => 0, cancel: () => {}, now: () => 0 });
    for (const message of messages) store.receive(message);
    return { ...store.plain(), waiting: store.waiting, asked: sent.filter((message) => message.kind === "need").length };
  });
  process.stdout.write(`${JSON.stringify(pages)}\n`);
}
