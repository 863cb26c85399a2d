// Streams that the node measures: delays, loss, and what else their agents say.

import { byUrgency, follow, isUrgent, state, words } from "./feed.js";
import { breakable, clock, count, el, length, percent, redraw, say, svg, zone } from "./elements.js";
import { find, metricTable, watch } from "./metrics.js";

const PREFIX = "network.";
/** Streams that are looked at at once: the most urgent ones that fit the filter. */
const SHOWN = 12;
/** Values that are remembered while the view is open: five minutes. */
const KEPT = 300;
const DELAYS = { "network.delay.p50": "median", "network.delay.p95": "95 %", "network.delay.p99": "99 %", "network.owd.mean": "mean" };
const LOSSES = { "network.loss": "lost", "network.requests.unanswered": "unanswered", "network.requests.repeated": "repeated" };
/** The histogram: each class is a metric whose only label is its upper bound in seconds. */
const SHARES = "network.delay.share", BOUND = "le";
const CHART = { width: 520, height: 150, left: 62, right: 92, top: 8, bottom: 20 };

const isStream = ({ service }) => service.startsWith(PREFIX);
const value = (metrics, name) => find(metrics, name)?.values[0] ?? null;
/** The upper bound of a class of the histogram in seconds; undefined for other metrics, and for a bound that is no number. */
function boundOf({ metric, labels }) {
  const text = metric === SHARES && labels.length === 1 ? new Map(labels).get(BOUND) : undefined;
  const bound = text === "+Inf" ? Infinity : text ? Number(text) : NaN;
  return bound > 0 ? bound : undefined;
}
/** A delay; 0 is one of which there have been too few packets so far. */
const delay = (seconds) => (seconds > 0 ? length(seconds * 1000) : "–");
const whole = (number) => count(Math.round(number));
/** What a stream says now, beside its charts: title, metric, and its value as a text. */
const FIGURES = [
  ["Median delay", "network.delay.p50", delay], ["95 % of delays", "network.delay.p95", delay], ["99 % of delays", "network.delay.p99", delay],
  ["Mean one-way delay", "network.owd.mean", delay], ["Lost", "network.loss", percent], ["Unanswered", "network.requests.unanswered", percent],
  ["Top talker", "network.top_talker.share", percent], ["Distinct sources", "network.sources.distinct", whole], ["Distinct flows", "network.flows.distinct", whole],
];

/** Lines over time of the metrics in `names`; null where there is none. On a logarithmic scale if `log`. */
function lines(past, names, { log, text, label }) {
  const has = (one) => Number.isFinite(one) && (!log || one > 0);
  const shown = Object.keys(names).filter((name) => past.some(({ values }) => has(values[name])));
  const all = past.flatMap(({ values }) => shown.map((name) => values[name])).filter(has);
  if (!all.length) return null;
  let [low, high] = [log ? Math.min(...all) / 2 : 0, Math.max(...all) * (log ? 2 : 1.2)];
  if (high <= low) high = low + 0.01;
  const scale = log ? Math.log : (one) => one;
  const { width, height, left, right, top, bottom } = CHART;
  const [from, to] = [past[0].at, Math.max(past.at(-1).at, past[0].at + 30_000)];
  const x = (at) => left + (at - from) / (to - from) * (width - left - right);
  const y = (one) => top + (1 - (scale(Math.max(one, low)) - scale(low)) / (scale(high) - scale(low))) * (height - top - bottom);
  const drawn = shown.map((name, place) => {
    const points = past.filter(({ values }) => has(values[name]));
    const path = points.map(({ at, values }, number) => `${number ? "L" : "M"}${x(at).toFixed(1)} ${y(values[name]).toFixed(1)}`).join("");
    const last = points.at(-1);
    return [svg("path", { class: `line t${place}`, d: path }),
      last && svg("text", { class: `axis t${place}`, x: x(last.at) + 6, y: y(last.values[name]) + 4 }, names[name])];
  });
  const ticks = (log ? [low * 1.3, Math.sqrt(low * high), high / 1.3] : [0, high / 1.2]).map((one) => [
    svg("line", { class: "grid", x1: left, x2: width - right, y1: y(one), y2: y(one) }),
    svg("text", { class: "axis", x: left - 6, y: y(one) + 4, "text-anchor": "end" }, text(one))]);
  return svg("svg", { class: "stream", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ticks, drawn.flat().filter(Boolean),
    svg("text", { class: "axis", x: left, y: height - 4 }, clock(from)), svg("text", { class: "axis", x: width - right, y: height - 4, "text-anchor": "end" }, clock(to)));
}

/** The distribution of delays now, as far as its quantiles tell; above them what is expected. */
function distribution(metrics) {
  const named = ["p50", "p95", "p99"].map((name) => [name, find(metrics, `network.delay.${name}`)]).filter(([, metric]) => metric && metric.values[0] > 0);
  const [mean, deviation] = [value(metrics, "network.owd.mean"), value(metrics, "network.owd.deviation")];
  const marks = named.length ? named.map(([name, { values }]) => [name, ...values]) : mean > 0 ? [["mean", mean, find(metrics, "network.owd.mean").values[1]]] : [];
  if (!marks.length) return null;
  const spread = named.length ? [] : [Math.max(mean - (deviation ?? 0), mean / 10), mean + (deviation ?? 0)];
  const ends = [...marks.flatMap(([, seen, expected]) => [seen, expected]), ...spread].filter((one) => one > 0);
  const [low, high] = [Math.min(...ends) / 1.4, Math.max(...ends) * 1.4];
  const x = (one) => 8 + Math.log(one / low) / Math.log(high / low) * 504;
  const [from, to] = named.length ? [marks[0][1], marks.at(-1)[1]] : spread;
  return svg("svg", { class: "stream", viewBox: "0 0 520 78", role: "img", "aria-label": marks.map(([name, seen]) => `${name} ${delay(seen)}`).join(", ") },
    svg("line", { class: "grid", x1: 8, x2: 512, y1: 40, y2: 40 }),
    svg("rect", { class: "spread", x: x(from), width: Math.max(x(to) - x(from), 2), y: 30, height: 20, rx: 3 }),
    marks.map(([name, seen, expected], at) => [
      expected > 0 ? svg("path", { class: "usual", d: `M${x(expected)} 28l-5 -8h10z` }, svg("title", {}, `${name}, expected ${delay(expected)}`)) : "",
      svg("line", { class: `mark t${at}`, x1: x(seen), x2: x(seen), y1: 27, y2: 53 }),
      svg("text", { class: "axis", x: x(seen), y: 70, "text-anchor": x(seen) > 430 ? "end" : x(seen) < 90 ? "start" : "middle" }, `${name} ${delay(seen)}`)]),
    marks.some(([, , expected]) => expected > 0) ? svg("text", { class: "axis", x: 512, y: 12, "text-anchor": "end" }, "▾ expected") : "");
}

/** The histogram of delays now: the share of each class, with the quantiles above it. */
function histogram(metrics) {
  const of = metrics.map((metric) => ({ bound: boundOf(metric), share: metric.values[0] })).filter(({ bound, share }) => bound && share !== null);
  if (!of.length) return null;
  of.sort((a, b) => a.bound - b.bound);
  const filled = of.map(({ share }) => share > 0.0005);
  const [first, last] = [Math.max(filled.indexOf(true) - 1, 0), Math.min(filled.lastIndexOf(true) + 1, of.length - 1)];
  const shown = of.slice(first, last + 1), high = Math.max(...shown.map(({ share }) => share), 0.01);
  const { width, height, left, bottom } = CHART, top = 20, wide = (width - left - 8) / shown.length;
  const y = (share) => top + (1 - share / high) * (height - top - bottom);
  const said = shown.map(({ bound, share }) => `${bound === Infinity ? "longer" : `up to ${delay(bound)}`}: ${percent(share)}`).join(", ");
  return svg("svg", { class: "stream histogram", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": said },
    [0, high].map((share) => [svg("line", { class: "grid", x1: left, x2: width - 8, y1: y(share), y2: y(share) }),
      svg("text", { class: "axis", x: left - 6, y: y(share) + 4, "text-anchor": "end" }, percent(share))]),
    shown.map((one, at) => [
      svg("rect", { class: "bar", x: left + at * wide + 1, width: wide - 2, y: y(one.share), height: y(0) - y(one.share) },
        svg("title", {}, `${at || first ? `${delay(of[first + at - 1].bound)} to ` : "up to "}${one.bound === Infinity ? "any" : delay(one.bound)}: ${percent(one.share)}`)),
      // The bound is where its class ends.
      one.bound === Infinity ? "" : svg("text", { class: "axis", x: left + (at + 1) * wide, y: height - 5, "text-anchor": at + 1 < shown.length ? "middle" : "end" }, delay(one.bound))]));
}

/** Metrics with labels, by what they measure: the talkers of a stream, for example. The largest come first. */
function rankings(metrics) {
  const by = new Map();
  for (const metric of metrics.filter(({ labels, seen }) => labels.length && seen !== null)) {
    if (boundOf(metric)) continue;
    const name = metric.statistic ? `${metric.metric}.${metric.statistic}` : metric.metric;
    const title = metric.labels.map(([key, value]) => `${key}="${value}"`).join(",");
    by.set(name, [...(by.get(name) ?? []), { ...metric, title }]);
  }
  return [...by].filter(([, of]) => of.length > 1).map(([name, of]) =>
    [el("h3", {}, breakable(name)), metricTable(of.sort((a, b) => (b.values[0] ?? 0) - (a.values[0] ?? 0)).slice(0, 20))]);
}

/** The figures of the stream that are there, each with whom it is about; null without any. */
function facts(metrics) {
  const known = FIGURES.map(([title, name, text]) => [title, find(metrics, name), text]).filter(([, metric]) => metric && metric.values[0] !== null);
  if (!known.length) return null;
  return el("dl", { class: "facts" }, known.map(([title, { values: [seen], about }, text]) =>
    el("div", {}, el("dt", {}, title), el("dd", {}, text(seen), about ? el("span", { class: "small quiet about" }, breakable(about)) : ""))));
}

/** A stream, which is looked at until its `end`. */
function card(lmap) {
  const past = [];
  const name = el("a", { href: `#/service/${lmap.id}` }), word = el("span", { class: "state" }), says = el("p", { class: "quiet" }), body = el("div");
  const part = (title, drawn) => drawn ? el("figure", {}, el("figcaption", {}, title), drawn) : "";
  const each = el("div"), details = el("details", { hidden: true }, el("summary", {}, "Each metric"), each);
  const item = el("section", { class: "streams" }, el("h2", {}, name, word), says, body, details);
  function seen({ at, metrics }) {
    const now = facts(metrics);
    say(says, now ? "" : metrics.length ? "No trusted figure yet." : "The values come with the next row.");
    says.hidden = Boolean(now);
    if (!metrics.length) return;
    if (past.at(-1)?.at !== at) past.push({ at, values: Object.fromEntries([...Object.keys(DELAYS), ...Object.keys(LOSSES)].map((name) => [name, value(metrics, name)])) });
    past.splice(0, past.length - KEPT);
    const figures = [part("Delays now", distribution(metrics)), part("Histogram of delays now", histogram(metrics)), part("Delays", lines(past, DELAYS, { log: true, text: delay, label: "delays over time" })),
      part("Loss", lines(past, LOSSES, { log: false, text: percent, label: "loss over time" }))].filter(Boolean);
    details.hidden = false;
    redraw(each, () => each.replaceChildren(metricTable(metrics)));
    redraw(body, () => body.replaceChildren(now ?? "", figures.length ? el("div", { class: "figures" }, figures) : "", ...rankings(metrics).flat()));
  }
  function update(lmap) {
    say(name, lmap.service.slice(PREFIX.length));
    word.className = `state ${lmap.state ?? ""}`;
    say(word, words(lmap).join(" "));
    item.classList.toggle("alarm", isUrgent(lmap));
  }
  update(lmap);
  return { item, update, end: watch(lmap.id, seen) };
}

/** Shows the view in `main`. Returns what ends it. */
export function network(main) {
  const says = el("p", { class: "lead" }), list = el("div");
  const filter = el("input", { type: "search", placeholder: "Filter streams", "aria-label": "Filter streams", input: () => update() });
  const tools = el("div", { class: "bar-of-tools" }, filter);
  main.replaceChildren(el("h1", {}, "Network"), says, tools, list);
  const cards = new Map();
  function update() {
    const all = byUrgency().filter(isStream);
    const fits = all.filter(({ service }) => service.toLowerCase().includes(filter.value.toLowerCase()));
    const shown = fits.slice(0, SHOWN);
    tools.hidden = all.length < 2;
    const rest = fits.length - shown.length;
    say(says, all.length ? `${count(all.length)} ${all.length === 1 ? "stream" : "streams"} of packets${rest ? `; ${count(rest)} are not shown: filter` : ""}. Charts begin when the view is opened. Times are ${zone(Date.now())}.` : "");
    for (const [id, { end }] of cards) if (!shown.some((lmap) => lmap.id === id)) { end(); cards.delete(id); }
    for (const lmap of shown) {
      if (cards.has(lmap.id)) cards.get(lmap.id).update(lmap);
      else cards.set(lmap.id, card(lmap));
    }
    const items = shown.map(({ id }) => cards.get(id).item);
    if (!all.length) list.replaceChildren(el("p", { class: "empty" }, state.ready ? "No stream of packets is measured on this node. " : "Connecting", state.ready ? el("code", {}, "network.streams") : ""));
    else if (items.length !== list.children.length || items.some((item, at) => list.children[at] !== item)) redraw(list, () => list.replaceChildren(...items));
  }
  update();
  const unfollow = follow(update);
  return () => { unfollow(); for (const { end } of cards.values()) end(); };
}
