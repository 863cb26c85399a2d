// What made the score, second by second: metrics with the largest shares as rows, as long as somebody looks.

import { clock, count, el, percent, svg } from "./elements.js";

/** Moments that are remembered while the view is open: five minutes. */
const KEPT = 300;
const ROWS = 12;
const CHART = { width: 1100, left: 330, row: 20, axis: 22 };
/** Shares below this one are not drawn. */
const LEAST = 0.01;

const cut = (text, most) => [...text].length > most ? `${[...text].slice(0, most - 1).join("")}…` : text;

/** Rows of metrics with the largest shares of all moments together. */
function ranked(past) {
  const sums = new Map();
  for (const { shares } of past) for (const [title, part] of shares) sums.set(title, (sums.get(title) ?? 0) + part);
  return [...sums].sort((a, b) => b[1] - a[1]);
}

function drawing(past, rows) {
  const { width, left, row, axis } = CHART;
  const height = rows.length * row + axis + 6;
  const [from, to] = [past[0].at, Math.max(past.at(-1).at + 1000, past[0].at + 60_000)];
  const x = (at) => left + (at - from) / (to - from) * (width - left);
  const end = (at) => x(Math.min(past[at + 1]?.at ?? Infinity, past[at].at + 2000, to));
  const cells = rows.map(([title], place) => [
    svg("text", { class: "axis", x: left - 8, y: 6 + place * row + 14, "text-anchor": "end" }, svg("title", {}, title), cut(title, 46)),
    past.map(({ at, shares }, number) => {
      const part = shares.get(title) ?? 0;
      return part < LEAST ? "" : svg("rect", { class: "heat", x: x(at).toFixed(1), y: 6 + place * row + 1, width: Math.max(end(number) - x(at), 0.5).toFixed(1), height: row - 2, "fill-opacity": Math.min(0.12 + part, 1).toFixed(2) },
        svg("title", {}, `${clock(at)}, ${title}: ${percent(part)} of the score`));
    })]);
  const alarms = past.map(({ at, alarm }, number) => alarm ? svg("rect", { class: "heat-alarm", x: x(at).toFixed(1), y: 0, width: Math.max(end(number) - x(at), 0.5).toFixed(1), height: 4 }) : "");
  return svg("svg", { class: "heats", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "shares of the score over time, by metric" }, alarms, cells,
    svg("text", { class: "axis", x: left, y: height - 4 }, clock(from)), svg("text", { class: "axis", x: width, y: height - 4, "text-anchor": "end" }, clock(to)));
}

/** A heat map. Returns its element, and what takes a moment: when, the metrics, and whether there is an alarm. */
export function heatMap() {
  const body = el("div", { class: "scrolled" }), says = el("p", { class: "readout" });
  const past = [];
  function add({ at, metrics }, alarm) {
    if (!metrics.length || past.at(-1)?.at === at) return;
    past.push({ at, alarm, shares: new Map(metrics.filter(({ share }) => share >= LEAST).map(({ title, share }) => [title, share])) });
    past.splice(0, past.length - KEPT);
    const all = ranked(past), rows = all.slice(0, ROWS);
    says.textContent = rows.length ? `The darker, the larger a metric's share of the score, since the view was opened. Red above: an alarm.${all.length > ROWS ? ` ${count(all.length - ROWS)} metrics with smaller shares are not drawn.` : ""}` : "No metric has a share of the score yet.";
    body.replaceChildren(rows.length ? drawing(past, rows) : "");
  }
  return [el("div", { class: "chart" }, body, says), add];
}
