// Elements and marks. Text only ever becomes text nodes.

const SVG = "http://www.w3.org/2000/svg";

// Lines in a field of 16 × 16, drawn with the colour of the text.
const MARKS = {
  running: ["M8 2a6 6 0 1 1-6 6"],
  waiting: ["M5 2h6M5 14h6M5.5 2v2.2L8 7.4l2.5-3.2V2M5.5 14v-2.2L8 8.6l2.5 3.2V14"],
  asking: ["M2.5 3h11v8H8l-3 2.6V11H2.5z", "M6.6 5.6a1.5 1.5 0 1 1 2 1.5q-.6.3-.6.9M8 9.3v.1"],
  idle: ["M8 5a3 3 0 1 1 0 6 3 3 0 0 1 0-6z"],
  completed: ["M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2z", "M5.4 8.2l1.9 1.9 3.4-3.9"],
  terminated: ["M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2z", "M3.9 3.9l8.2 8.2"],
  failed: ["M8 2.3l6.2 11H1.8z", "M8 6.4v3.2M8 11.5v.1"],
  timed_out: ["M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2z", "M8 4.8V8l2.3 1.6"],
  stopped: ["M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2z", "M6 6h4v4H6z"],
  interrupted: ["M9 1.8L4 9h3.6L7 14.2 12 7H8.4z"],
  tool: ["M9.8 2.4a3.4 3.4 0 0 0-3.4 4.5l-4 4 1.9 1.9 4-4a3.4 3.4 0 0 0 4.3-4.6L10.600 6.200 9 4.600z"],
  down: ["M8 3v9.500M4.200 8.800 8 12.500l3.800-3.700"],
  stop: ["M4 4h8v8H4z"],
  inbox: ["M2.500 3.500h11v9h-11z", "M2.500 5l5.500 4 5.500-4"],
};

export function make(doc, tag, className, text) {
  const element = doc.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined && text !== "") element.appendChild(doc.createTextNode(text));
  return element;
}

export function mark(doc, key) {
  const lines = Object.hasOwn(MARKS, key) ? MARKS[key] : MARKS.idle;
  const svg = doc.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("focusable", "false");
  svg.setAttribute("class", `anb-mark anb-mark-${Object.hasOwn(MARKS, key) ? key : "idle"}`);
  for (const line of lines) {
    const path = doc.createElementNS(SVG, "path");
    path.setAttribute("d", line);
    svg.appendChild(path);
  }
  return svg;
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// A colour of its own for everyone who speaks; never the only sign of who it is.
export function hueOf(id) {
  if (id === -1) return "you";
  if (id === 0) return "lead";
  return String((id - 1) % 8);
}
