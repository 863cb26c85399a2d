// Each metric of a service, as long as somebody looks: only then does the agent fetch them.

import { count, el, fetched, percent, redraw, say, table, titled } from "./elements.js";
import { share } from "./charts.js";

const AGAIN = 1000;
const LISTED = 60;

/** The metric of that name itself: no statistic of a distribution, and without labels. */
export const find = (metrics, name) => metrics.find(({ metric, statistic, labels }) => metric === name && !statistic && !labels.length);

/** Asks for the metrics of the LMAP `id` each second, until the returned function is called. */
export function watch(id, seen) {
  let over = false, timer = null;
  async function ask() {
    const answer = await fetched(`/api/metrics/${id}`).catch(() => null);
    if (over) return;
    if (answer) seen(answer);
    timer = setTimeout(ask, AGAIN);
  }
  ask();
  return () => { over = true; clearTimeout(timer); };
}

/** A table of metrics: seen and expected in their units, with their share of the score. */
export function metricTable(metrics) {
  const rows = metrics.map(({ title, about, group, seen, expected, share: part }) => [
    part ? el("span", {}, share(part), percent(part)) : el("span", { class: "quiet" }, "0 %"),
    titled({ title, about }), seen ?? "–", expected ?? el("span", { class: "quiet" }, "not judged"), group,
  ]);
  return table(["~Share of the score", "Metric", "#Seen", "#Expected", "Group"], rows);
}

/** All metrics of the LMAP `id`, with a filter; `seen` takes each answer. Returns the element, and what ends it. */
export function everyMetric(id, seen) {
  const filter = el("input", { type: "search", placeholder: "Filter metrics", "aria-label": "Filter metrics", input: () => draw() });
  const byShare = el("button", { "aria-pressed": "false", click: () => { order(byShare.getAttribute("aria-pressed") !== "true"); } }, "By share");
  const says = el("span", { class: "quiet small" }), body = el("div");
  let known = null;
  function order(on) {
    byShare.setAttribute("aria-pressed", String(on));
    draw();
  }
  function draw() {
    if (!known) return;
    const wanted = filter.value.toLowerCase();
    const fits = known.metrics.filter(({ title, group }) => `${title} ${group}`.toLowerCase().includes(wanted));
    if (byShare.getAttribute("aria-pressed") === "true") fits.sort((a, b) => (b.share ?? 0) - (a.share ?? 0));
    const rest = fits.length - LISTED;
    say(says, known.full ? "Too many services are looked at." : !known.metrics.length ? "The values come with the next row." : `${count(known.metrics.length)} metrics${rest > 0 ? `, ${count(rest)} of them not shown: filter` : ""}`);
    redraw(body, () => body.replaceChildren(...(fits.length ? [metricTable(fits.slice(0, LISTED))] : [])));
  }
  const end = watch(id, (answer) => { known = answer; draw(); seen(answer); });
  return [el("div", {}, el("div", { class: "bar-of-tools" }, filter, byShare, says), body), end];
}
