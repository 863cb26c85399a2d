// What made the score, second by second: metrics with the largest parts of the squared score as rows. Those of seconds
// above γ are the agent's, from before the view was opened; of the others it knows what it has seen itself.

import { clock, count, el, figures, svg } from "./elements.js";

/** Seconds that are shown: the agent's ten minutes. */
const KEPT = 600;
const ROWS = 12;
const CHART = { width: 1100, left: 330, row: 20, axis: 22 };
/** Range of the logarithmic scale of colours: parts of the squared score in units of γ², as in the demo's report. */
const FAINTEST = 0.1, DARKEST = 100;

const cut = (text, most) => [...text].length > most ? `${[...text].slice(0, most - 1).join("")}…` : text;

/** Opacity of a cell, 0.08 to 1. */
function depth(part) {
  const share = Math.log(part / FAINTEST) / Math.log(DARKEST / FAINTEST);
  return 0.08 + 0.92 * Math.min(Math.max(share, 0), 1);
}

/** Of each metric its title and its parts by second, the largest sum first. A cell counts as far as it can be seen. */
function ranked(cells) {
  const rows = new Map();
  for (const [title, second, part] of cells) {
    if (!(part >= FAINTEST)) continue;
    const row = rows.get(title) ?? new Map();
    row.set(second, Math.max(row.get(second) ?? 0, part));
    rows.set(title, row);
  }
  const sum = (row) => [...row.values()].reduce((whole, part) => whole + Math.min(part, DARKEST), 0);
  return [...rows].map(([title, row]) => [title, row, sum(row)]).sort((a, b) => b[2] - a[2]);
}

/** `seconds` are those of which something is known: a cell reaches to the next of them, or two seconds far. */
function drawing(rows, seconds, episodes) {
  const { width, left, row, axis } = CHART;
  const height = rows.length * row + axis + 6;
  const from = seconds[0], to = Math.max(seconds.at(-1) + 1, from + 60);
  const x = (second) => left + (Math.min(Math.max(second, from), to) - from) / (to - from) * (width - left);
  const ends = new Map(seconds.map((second, at) => [second, Math.min(seconds[at + 1] ?? Infinity, second + 2)]));
  const box = (begin, end) => ({ x: x(begin).toFixed(1), width: Math.max(x(end) - x(begin), 0.5).toFixed(1) });
  const cells = rows.map(([title, parts], place) => [
    svg("text", { class: "axis", x: left - 8, y: 6 + place * row + 14, "text-anchor": "end" }, svg("title", {}, title), cut(title, 46)),
    [...parts].map(([second, part]) =>
      svg("rect", { class: "heat", ...box(second, ends.get(second)), y: 6 + place * row + 1, height: row - 2, "fill-opacity": depth(part).toFixed(2), "data-second": second },
        svg("title", {}, `${clock(second * 1000)}, ${title}: ${figures(part)} γ² of the score`)))]);
  const shown = episodes.filter((episode) => (episode.to ?? to) >= from && episode.from < to);
  const alarms = shown.map((episode) => svg("rect", { class: "heat-alarm", ...box(episode.from, episode.to ?? to), y: 0, height: 4 }));
  return svg("svg", { class: "heats", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "parts of the squared score over time, by metric" }, alarms, cells,
    svg("text", { class: "axis", x: left, y: height - 4 }, clock(from * 1000)), svg("text", { class: "axis", x: width, y: height - 4, "text-anchor": "end" }, clock(to * 1000)));
}

/** A heat map. Returns its element, what takes each metric of a row, and what takes the history of the service. */
export function heatMap() {
  const body = el("div", { class: "scrolled" }), says = el("p", { class: "readout" });
  // Parts by second, as far as somebody looked, and as far as the agent remembers.
  const seen = new Map();
  let past = { heat: [], episodes: [] };

  function draw() {
    const own = [...seen].flatMap(([second, parts]) => parts.map(([title, part]) => [title, second, part]));
    const kept = past.heat.flatMap(([title, cells]) => cells.map(([second, part]) => [title, second, part]));
    const known = [...new Set([...seen.keys(), ...kept.map(([, second]) => second)])].sort((a, b) => a - b);
    const seconds = known.filter((second) => second > known.at(-1) - KEPT);
    const all = ranked([...kept, ...own].filter(([, second]) => second >= seconds[0])), rows = all.slice(0, ROWS);
    const more = all.length > ROWS ? ` ${count(all.length - ROWS)} metrics with less are not drawn.` : "";
    says.textContent = rows.length ? `The darker, the more a metric made of the squared score: from ${FAINTEST} to ${DARKEST} γ². Seconds above γ reach back ten minutes, others to when the view was opened. Red above: an alarm.${more}` : "No metric made a part of the score that could be seen.";
    body.replaceChildren(rows.length ? drawing(rows, seconds, past.episodes) : "");
  }

  function add({ at, ratio, metrics }) {
    const second = Math.floor(at / 1000), newest = Math.max(...seen.keys());
    if (!metrics.length || typeof ratio !== "number" || second === newest) return;
    // The clock was set back: seconds of before have other dates now.
    if (second < newest) seen.clear();
    const parts = metrics.map(({ title, share }) => [title, (share ?? 0) * ratio * ratio]);
    seen.set(second, parts.filter(([, part]) => part >= FAINTEST));
    for (const old of seen.keys()) if (old <= second - KEPT) seen.delete(old);
    draw();
  }

  function remember({ heat, episodes }) {
    past = { heat, episodes };
    draw();
  }
  return [el("div", { class: "chart" }, body, says), add, remember];
}
