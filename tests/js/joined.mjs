// The page's files joined into one module as the widget joins them, every exported name kept.

import { readdirSync, readFileSync } from "node:fs";

const FOLDER = new URL("../../astrion_nb/widgets/static/", import.meta.url);

export const files = readdirSync(FOLDER)
  .filter((name) => name.endsWith(".js"))
  .sort()
  .map((name) => ({ name, text: readFileSync(new URL(name, FOLDER), "utf8") }));

export const source = files.map((file) => file.text).join("\n");

export async function load() {
  return import(`data:text/javascript;base64,${Buffer.from(source).toString("base64")}`);
}
