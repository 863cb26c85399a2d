// Sources: what is scraped or exported, and which of its series are watched.

import { breakable, bytes, count, el, fetched, length, redraw, table } from "./elements.js";

/** Sources whose metrics are shown. They stay so when the view is drawn again. */
const open = new Set();
const AGAIN = 2_000;

function state({ state, problem, learned, needed, url }) {
  if (problem) return el("span", { class: "state alarm" }, "down");
  const what = url.startsWith("otlp:") ? "exports" : "scrapes";
  return state === "learning" ? `learning, ${learned} of ${needed} ${what}` : state;
}

function families({ families }) {
  return table(["Metric", "~Kind", "#Series", "#Watched", "What became of them"],
    families.map((of) => [breakable(of.name), of.kind, count(of.exposed), count(of.watched), of.why]));
}

function one(of) {
  const body = el("div", {}, open.has(of.url) ? families(of) : "");
  const shown = el("details", { open: open.has(of.url), toggle: (event) => {
    if (event.target.open === open.has(of.url)) return;
    event.target.open ? open.add(of.url) : open.delete(of.url);
    body.replaceChildren(event.target.open ? families(of) : "");
  } }, el("summary", {}, `${count(of.families.length)} metrics`), body);
  const refused = of.refused ? `, ${count(of.refused)} refused` : "";
  const failed = of.failed ? `, ${count(of.failed)} failed` : "";
  const restarts = of.restarts ? `, ${count(of.restarts)} restarts` : "";
  return [el("h2", {}, of.service), el("p", { class: "small quiet" }, breakable(of.url)),
    of.problem ? el("p", { class: "notice" }, of.problem) : "",
    table(["~State", "~Every", "~Took", "#Times", "#Samples", "#Bytes", "#Series", "#Watched", "#Summed up", "#Columns"], [[
      state(of), of.interval ? length(of.interval / 1000) : "–", of.took ? length(of.took / 1000) : "–", `${count(of.scrapes)}${failed}${restarts}`,
      `${count(of.samples)}${refused}`, bytes(of.bytes), count(of.exposed), count(of.watched), count(of.summed), count(of.columns)]]),
    of.families.length ? shown : ""];
}

/** Shows the view in `main`. Returns what ends it. */
export function sources(main) {
  const body = el("div");
  let said = null;
  main.replaceChildren(el("h1", {}, "Sources"),
    el("p", { class: "lead" }, "Endpoints that are scraped and services that export metrics: which of their series are watched, and why."), body);
  async function update() {
    const answer = await fetched("/api/sources").catch(() => null);
    const now = JSON.stringify(answer);
    if (!answer || now === said) return;
    said = now;
    redraw(body, () => {
      const all = answer.sources.flatMap(one).flat(Infinity).filter((part) => part !== "");
      body.replaceChildren(...(all.length ? all : [el("p", { class: "empty" },
        "No endpoint is scraped, and no service exports OTLP metrics: ", el("code", {}, "sources.prometheus.targets"), ", or ", el("code", {}, "otlp.upstream"), " or ", el("code", {}, "otlp.watch_only"), " of the host agent.")]));
    });
  }
  update();
  const timer = setInterval(update, AGAIN);
  return () => clearInterval(timer);
}
