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

/** Sets the text of a node, unless it is the same. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const pad = (number) => String(number).padStart(2, "0");

/** Time of the day of a moment in milliseconds. */
export function clock(ms, seconds = true) {
  const at = new Date(ms);
  return `${pad(at.getHours())}:${pad(at.getMinutes())}${seconds ? ":" + pad(at.getSeconds()) : ""}`;
}

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
