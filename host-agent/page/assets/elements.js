// Elements of the page. Whatever a service says becomes text, never markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== "") node.append(child);
  }
  return node;
}

/** An HTML element: attributes, listeners of events, children that are nodes or texts. */
export const el = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);

/** An element of a drawing. */
export const svg = (tag, attributes, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

/** A title of a metric, which may be broken where its parts end. */
export function breakable(text) {
  const parts = text.split(/(?<=[._/{,])/);
  return parts.flatMap((part, at) => at ? [document.createElement("wbr"), part] : [part]);
}

/** A metric by its title, and below it who it is about and which replica stands out, if anyone. */
export function titled({ title, about, replica }) {
  const notes = [about, replica && `replica ${replica}`].filter(Boolean);
  return notes.length ? el("span", {}, breakable(title), notes.map((note) => el("div", { class: "quiet" }, breakable(note)))) : breakable(title);
}

/** What waits until nobody selects, presses or has the focus on something in a part: how it is drawn, by part. */
const waiting = new Map();
let pressed = null;

function isHeld(part, keepsFocus) {
  const selection = document.getSelection();
  if (selection?.rangeCount && !selection.isCollapsed && selection.getRangeAt(0).intersectsNode(part)) return true;
  if (pressed && part.contains(pressed)) return true;
  // Of a click with the mouse nothing is lost.
  return !keepsFocus && part.querySelector(":focus-visible") !== null;
}

/** Draws `part` anew: at once, or when nothing in it is selected or focused any more. People copy text while it changes. */
export function redraw(part, draw, { keepsFocus = false } = {}) {
  if (isHeld(part, keepsFocus)) waiting.set(part, { draw, keepsFocus });
  else { waiting.delete(part); draw(); }
}

function drawWaiting() {
  for (const [part, { draw, keepsFocus }] of [...waiting]) {
    if (!part.isConnected) waiting.delete(part);
    else redraw(part, draw, { keepsFocus });
  }
}
document.addEventListener("selectionchange", drawWaiting);
// Afterwards: the focus may go on to something else in the same part, and a press become a click.
document.addEventListener("focusout", () => setTimeout(drawWaiting));
document.addEventListener("pointerdown", ({ target, button }) => { if (!button) pressed = target; });
for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, () => { pressed = null; setTimeout(drawWaiting); });

/** Sets the text of a node, unless it is the same, or somebody selects in it. */
export function say(node, text) {
  if (node.textContent === text) waiting.delete(node);
  else redraw(node, () => { node.textContent = text; }, { keepsFocus: true });
}

const pad = (number) => String(number).padStart(2, "0");

/** Time of the day of a moment in milliseconds. */
export function clock(ms, seconds = true) {
  const at = new Date(ms);
  return `${pad(at.getHours())}:${pad(at.getMinutes())}${seconds ? ":" + pad(at.getSeconds()) : ""}`;
}

/** The zone of the browser's clock at a moment: "UTC+2". */
export function zone(ms) {
  const ahead = -new Date(ms).getTimezoneOffset(), minutes = Math.abs(ahead) % 60;
  if (!ahead) return "UTC";
  return `UTC${ahead < 0 ? "-" : "+"}${Math.floor(Math.abs(ahead) / 60)}${minutes ? `:${pad(minutes)}` : ""}`;
}

/** Time of the day in UTC of a moment in milliseconds: that of incidents, their addresses and their files. */
export const utc = (ms, seconds = true) => new Date(ms).toISOString().slice(11, seconds ? 19 : 16);

/** Day of a moment in milliseconds. */
export const day = (ms) => new Date(ms).toLocaleDateString(undefined, { weekday: "short", day: "numeric" });

/** A length of time in milliseconds. */
export function length(ms) {
  if (ms < 1) return `${Math.round(ms * 1000)} µs`;
  if (ms < 1000) return `${figures(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${figures(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${pad(Math.floor(seconds % 60))} s`;
  return `${Math.floor(seconds / 3600)} h ${pad(Math.floor(seconds / 60) % 60)} min`;
}

/** Three digits. */
export const figures = (value) => value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);

/** Bytes with a unit. */
export function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) [count, unit] = [count / 1000, unit + 1];
  return `${unit ? figures(count) : count} ${units[unit]}`;
}

/** A number with thin spaces between thousands. */
export const count = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, "\u2009");

/** A share as percent. */
export const percent = (share) => `${(100 * share).toFixed(share < 0.0995 && share > 0 ? 1 : 0)} %`;

/** A table: titles, then rows of cells. A title that begins with a hash is of numbers, one with a tilde of a narrow column. */
export function table(titles, rows) {
  const kind = titles.map((title) => ({ "#": "number", "~": "narrow" })[title[0]] ?? "text");
  const head = titles.map((title, at) => el("th", { class: kind[at], scope: "col" }, title.replace(/^[#~]/, "")));
  const body = rows.map((cells) => el("tr", {}, cells.map((cell, at) => el("td", { class: kind[at] }, cell))));
  return el("div", { class: "wide" }, el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, body)));
}

/** JSON of the agent; null if there is no such thing. */
export async function fetched(path) {
  const response = await fetch(path);
  if (response.status === 401) throw new Error("session");
  return response.ok ? response.json() : null;
}
