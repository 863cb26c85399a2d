// Scores as multiples of γ, on a logarithmic scale: an alarm is often ten times γ, a quiet service a third of it.

import { clock, day, el, figures, say, svg, zone } from "./elements.js";

const LOW = 0.1;
const SPARK = { width: 240, height: 38, points: 120, high: 30 };
let clips = 0;

/** Height of a multiple of γ, 0 at the bottom to 1 at the top. */
export function level(ratio, high) {
  const value = Math.log(Math.max(ratio, LOW) / LOW) / Math.log(high / LOW);
  return Math.min(Math.max(value, 0), 1);
}

/** A small drawing of recent scores. The line is red where it is above γ. */
export function spark() {
  const { width, height, high } = SPARK;
  const gamma = height * (1 - level(1, high));
  const clip = `above-${++clips}`;
  const under = svg("path", { class: "under" });
  const line = svg("path", { class: "line" });
  const over = svg("path", { class: "over", "clip-path": `url(#${clip})` });
  const drawing = svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img" },
    svg("clipPath", { id: clip }, svg("rect", { x: 0, y: -2, width, height: gamma + 2 })),
    under, svg("line", { class: "gamma", x1: 0, x2: width, y1: gamma, y2: gamma }), line, over);
  return { drawing, update(lmap) { fill(lmap, { drawing, under, line, over }); } };
}

function fill(lmap, { drawing, under, line, over }) {
  const { width, height, points, high } = SPARK;
  const scores = lmap.recent.slice(-points);
  const isScore = (score) => score !== null && score !== undefined;
  if (!lmap.gamma || scores.filter(isScore).length < 2) {
    [under, line, over].forEach((path) => path.setAttribute("d", ""));
    drawing.setAttribute("aria-label", "no threshold yet");
    return;
  }
  const x = (at) => width - (scores.length - 1 - at) * width / (points - 1);
  const point = (at) => `${x(at).toFixed(1)} ${(height * (1 - level(scores[at] / lmap.gamma, high))).toFixed(1)}`;
  // Rows without a score are a gap, and not zero.
  const runs = [];
  scores.forEach((score, at) => {
    if (!isScore(score)) return;
    if (at && isScore(scores[at - 1])) runs.at(-1).push(at);
    else runs.push([at]);
  });
  const along = (run) => `M${run.map(point).join("L")}`;
  const path = runs.map(along).join("");
  line.setAttribute("d", path);
  over.setAttribute("d", path);
  under.setAttribute("d", runs.map((run) => `${along(run)}L${x(run.at(-1)).toFixed(1)} ${height}L${x(run[0]).toFixed(1)} ${height}Z`).join(""));
  const last = scores.at(-1);
  drawing.setAttribute("aria-label", isScore(last) ? `score ${figures(last / lmap.gamma)} times γ` : "no score now");
}

const MARGIN = { left: 44, right: 6, top: 10, bottom: 24 };
const STEPS = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 259200];

/** A large chart of buckets [second, seconds, score, γ, alarm, who else says so] over the last `span` seconds. */
export function chart() {
  const drawing = svg("svg", { role: "img", "aria-label": "score over time" });
  const readout = el("p", { class: "readout" });
  const frame = el("div", { class: "chart" }, drawing, readout);
  let last = null;
  drawing.addEventListener("pointermove", (event) => last && point(event, last, readout));
  drawing.addEventListener("pointerleave", () => last && leave(last, readout));
  new ResizeObserver(() => last && draw(last.buckets, last.episodes, last.span)).observe(drawing);

  function draw(buckets, episodes, asked) {
    let span = asked;
    const box = drawing.getBoundingClientRect();
    if (!box.width) { last = { buckets, episodes, span }; return; }
    const now = Math.max(buckets.length ? buckets.at(-1)[0] + buckets.at(-1)[1] : 0, span);
    // A young history fills the frame.
    const first = buckets.length ? buckets[0][0] : now;
    const from = Math.max(now - span, Math.min(first, now - 60));
    span = now - from;
    const shown = buckets.filter(([second, step]) => second + step > from);
    const ratios = shown.map(([, , score, gamma]) => gamma ? score / gamma : null);
    const high = Math.max(10, ...ratios.filter((ratio) => ratio !== null).map((ratio) => ratio * 1.3));
    const x = (second) => MARGIN.left + (second - from) / span * (box.width - MARGIN.left - MARGIN.right);
    const y = (ratio) => MARGIN.top + (1 - level(ratio, high)) * (box.height - MARGIN.top - MARGIN.bottom);
    last = { buckets, episodes, span: asked, shown, ratios, from, now, x, y, box, cursor: last?.cursor };
    drawing.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
    drawing.replaceChildren(...shaded(episodes, last), ...rows(high, last), ...columns(span, last), ...lines(last));
    if (!last.hovered) leave(last, readout);
  }
  return { frame, draw };
}

function shaded(episodes, { from, now, x, y, box }) {
  const open = episodes.filter(({ to }) => (to ?? now) >= from);
  return open.map(({ from: begin, to }) => {
    const [left, right] = [x(Math.max(begin, from)), x(Math.min(to ?? now, now))];
    return svg("rect", { class: "episode", x: left, y: MARGIN.top, width: Math.max(right - left, 2), height: box.height - MARGIN.top - MARGIN.bottom });
  });
}

function rows(high, { y, box }) {
  const multiples = [0.1, 1, 10, 100, 1000, 10000].filter((multiple) => multiple <= high);
  return multiples.flatMap((multiple) => [
    svg("line", { class: multiple === 1 ? "gamma" : "grid", x1: MARGIN.left, x2: box.width - MARGIN.right, y1: y(multiple), y2: y(multiple) }),
    svg("text", { class: "axis", x: MARGIN.left - 8, y: y(multiple) + 4, "text-anchor": "end" }, multiple === 1 ? "γ" : `${multiple} γ`),
  ]);
}

function columns(span, { from, now, x, box }) {
  const most = Math.max(2, Math.floor(box.width / 110));
  const step = STEPS.find((step) => span / step <= most) ?? 604800;
  const marks = [];
  // Whole steps of local time.
  const shift = new Date(now * 1000).getTimezoneOffset() * 60;
  for (let at = Math.ceil((from - shift) / step) * step + shift; at <= now; at += step) {
    const anchor = x(at) > box.width - 30 ? "end" : "middle";
    if (x(at) < MARGIN.left + 14) continue;
    marks.push(svg("text", { class: "axis", x: x(at), y: box.height - 6, "text-anchor": anchor }, step < 86400 ? clock(at * 1000, step < 60) : day(at * 1000)));
  }
  return marks;
}

function lines({ shown, ratios, x, y, box }) {
  let path = "", until = null;
  shown.forEach(([second, step], at) => {
    if (ratios[at] === null) { until = null; return; }
    // A gap in time is a gap in the line.
    const joined = until !== null && second - until <= 3 * step;
    path += `${joined ? "L" : "M"}${x(second + step / 2).toFixed(1)} ${y(ratios[at]).toFixed(1)}`;
    until = second + step;
  });
  const clip = `above-${++clips}`;
  return [
    svg("clipPath", { id: clip }, svg("rect", { x: 0, y: 0, width: box.width, height: y(1) })),
    svg("path", { class: "line", d: path }),
    svg("path", { class: "over", d: path, "clip-path": `url(#${clip})` }),
  ];
}

function point(event, last, readout) {
  if (!last.shown?.length) return;
  const at = event.clientX - last.box.left;
  const centre = (bucket) => last.x(bucket[0] + bucket[1] / 2);
  let nearest = 0;
  last.shown.forEach((bucket, index) => {
    if (Math.abs(centre(bucket) - at) < Math.abs(centre(last.shown[nearest]) - at)) nearest = index;
  });
  const [second, step, score, gamma, , source] = last.shown[nearest];
  const when = step > 1 ? `${last.now - last.from > 86400 ? `${day(second * 1000)}, ` : ""}${clock(second * 1000)} to ${clock((second + step) * 1000)}, highest ` : `${clock(second * 1000)}, `;
  if (source) say(readout, `${when}${figures(score)} times γ, of ${source}`);
  else say(readout, `${when}score ${figures(score)}${gamma ? `, ${figures(score / gamma)} times γ (${figures(gamma)})` : ""}`);
  const drawing = event.currentTarget;
  drawing.querySelector(".cursor")?.remove();
  const x = centre(last.shown[nearest]);
  drawing.append(svg("line", { class: "cursor", x1: x, x2: x, y1: MARGIN.top, y2: last.box.height - MARGIN.bottom }));
  last.hovered = true;
}

function leave(last, readout) {
  last.hovered = false;
  say(readout, `Highest score of each moment, as a multiple of its threshold γ. Alarms are shaded. Times are ${zone(Date.now())}.`);
}

/** The share of a metric in the score. */
export function share(value) {
  const width = 100 * Math.min(Math.max(value, 0), 1);
  return svg("svg", { class: "share", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "track", width: 100, height: 8, rx: 4 }), svg("rect", { class: "part", width, height: 8, rx: 4 }));
}
