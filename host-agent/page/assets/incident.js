// Incidents: the list, and one with its time line, services, metrics, changes, traces and log records.

import { follow, lmapOf, state } from "./feed.js";
import { breakable, count, el, fetched, figures, length, percent, redraw, say, svg, table, titled, utc } from "./elements.js";
import { level, share } from "./charts.js";
import { profile } from "./flames.js";
import { waterfall } from "./traces.js";

/** One that goes on is fetched again after this time. */
const AGAIN = 2_000;
const WIDTH = 1100, LEFT = 190, RIGHT = 12, STRIP = 84, TOP = 26, AXIS = 26, STRIPS = 10;
const STEPS = [10, 30, 60, 120, 300, 600, 1800, 3600, 10800];

const day = (ms) => new Date(ms).toLocaleDateString(undefined, { day: "numeric", month: "short", timeZone: "UTC" });
const lasted = ({ began, ended }) => ended === null ? "goes on" : length(Math.max(ended - began, 1));

/** A line of the list. */
function item(incident) {
  return el("li", {}, el("a", { class: "trace incident", href: `#/incident/${incident.id}` },
    el("time", {}, `${day(incident.began)} ${utc(incident.began, false)} UTC`),
    el("span", { class: `what ${incident.ended === null ? "failed" : ""}` }, incident.services.join(", ")),
    el("span", { class: "took" }, lasted(incident)),
    el("span", { class: "badge" }, `${count(incident.traces)} ${incident.traces === 1 ? "trace" : "traces"}`),
    el("span", { class: "why quiet" }, incident.cause)));
}

/** Calls `taken` with the list of incidents at each change of it, until the returned function is called. */
function changing(taken) {
  let seen = null, asked = false, over = false;
  async function update() {
    if (over || asked || seen === state.node.incidents || state.node.incidents === undefined) return;
    asked = true;
    const wanted = state.node.incidents;
    const answer = await fetched("/api/incidents").catch(() => null);
    setTimeout(() => { asked = false; update(); }, AGAIN);
    if (!answer || over) return;
    seen = wanted;
    taken(answer);
  }
  update();
  const unfollow = follow(update);
  return () => { over = true; unfollow(); };
}

/** At most `most` of these incidents; `none` is said if there are none. */
function list(of, most, inMemory, none) {
  const shown = of.slice(0, most), more = of.length - shown.length;
  const kept = inMemory ? "They end with the agent: incidents.dir keeps them on disk." : "";
  if (!shown.length) return [el("p", { class: "quiet" }, none)];
  return [el("ul", { class: "traces" }, shown.map(item)),
    el("p", { class: "small quiet" }, more ? el("a", { href: "#/incidents" }, `${count(more)} further incidents. `) : "", kept)];
}

/** Incidents that go on, and the newest `most` of the others, which keep themselves up to date. Returns both, and what ends them. */
export function openAndClosed(most) {
  const [open, closed] = [el("section", { class: "open", hidden: true }), el("section")];
  const end = changing(({ incidents, in_memory: inMemory }) => {
    const on = incidents.filter(({ ended }) => ended === null), past = incidents.filter(({ ended }) => ended !== null);
    redraw(open, () => {
      open.hidden = !on.length;
      open.replaceChildren(el("h2", {}, on.length === 1 ? "Open incident" : "Open incidents"), ...list(on, most, false, ""));
    });
    redraw(closed, () => closed.replaceChildren(el("h2", {}, on.length ? "Earlier incidents" : "Incidents"),
      ...list(past, most, inMemory, on.length ? "None." : "No incident yet.")));
  });
  return [open, closed, end];
}

/** Shows the list in `main`. Returns what ends it. */
export function incidents(main) {
  const body = el("div");
  main.replaceChildren(el("h1", {}, "Incidents"), el("p", { class: "lead" }, "Alarms within ten seconds are one incident. The newest first. Times are UTC, as in their addresses and files."), body);
  return changing(({ incidents, in_memory: inMemory }) => redraw(body, () => body.replaceChildren(...list(incidents, 1000, inMemory, "No incident yet."))));
}

/** The name of a service, which leads to its view if it is there now. */
function named(service, text = service) {
  const lmap = lmapOf(service);
  return lmap ? el("a", { href: `#/service/${lmap.id}` }, text) : text;
}

/** The id of a trace, which leads to its own view. */
const traced = (id) => /^[0-9a-f]{32}$/.test(id) ? el("a", { href: `#/trace/${id}` }, id) : id;

/** Where a second and a multiple of γ are drawn. */
function scales(incident, services) {
  const ends = services.map(({ from, step, ratios }) => from + step * ratios.length);
  const until = Math.max(...ends, (incident.ended ?? incident.began) / 1000);
  const first = ({ from, step, ratios, began }) => ratios.some((ratio) => ratio !== null) ? from + step * ratios.findIndex((ratio) => ratio !== null) : began / 1000;
  const from = Math.min(...services.map(first), incident.began / 1000);
  const high = 1.3 * Math.max(10, ...services.flatMap(({ ratios, peak }) => [peak ?? 0, ...ratios.filter((ratio) => ratio !== null)]));
  const span = Math.max(until - from, 1);
  const x = (second) => LEFT + Math.min(Math.max((second - from) / span, 0), 1) * (WIDTH - LEFT - RIGHT);
  const y = (ratio) => 6 + (1 - level(ratio, high)) * (STRIP - 14);
  return { from, until, span, high, x, y };
}

function strip(service, place, { until, x, y, high }) {
  let path = "", pen = "M";
  service.ratios.forEach((ratio, at) => {
    if (ratio === null) {
      // Of a service with slow rows not every second has a score.
      if (!service.ratios.slice(at, at + 3).some((ratio) => ratio !== null)) pen = "M";
      return;
    }
    path += `${path ? pen : "M"}${x(service.from + (at + 0.5) * service.step).toFixed(1)} ${y(ratio).toFixed(1)}`;
    pen = "L";
  });
  const [left, right] = [x(service.began / 1000), x((service.ended ?? until * 1000) / 1000)];
  const name = service.service.length > 24 ? `${service.service.slice(0, 24)}…` : service.service;
  const rank = service.rank === 1 ? "suspected cause" : `rank ${service.rank}`;
  const clip = `strip-${place}`;
  return svg("g", { transform: `translate(0 ${TOP + STRIP * place})` },
    svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: 0, y2: 0 }),
    svg("text", { class: "strip-name", x: 0, y: 26 }, svg("title", {}, service.service), name),
    svg("text", { class: "axis", x: 0, y: 44 }, `${rank}, ${figures(service.peak ?? 0)} γ`),
    svg("rect", { class: "episode", x: left, y: y(high), width: Math.max(right - left, 2), height: y(0) - y(high) }),
    svg("clipPath", { id: clip }, svg("rect", { x: 0, y: 0, width: WIDTH, height: y(1) })),
    svg("line", { class: "gamma", x1: LEFT, x2: WIDTH - RIGHT, y1: y(1), y2: y(1) }),
    svg("text", { class: "axis", x: LEFT - 8, y: y(1) + 4, "text-anchor": "end" }, "γ"),
    svg("path", { class: "line", d: path }), svg("path", { class: "over", d: path, "clip-path": `url(#${clip})` }));
}

function marks(changes, { from, x }, height) {
  let free = 0;
  return changes.map(({ at, service, text, first }, number) => {
    if (at / 1000 < from) return "";
    const line = x(at / 1000);
    // Numbers of marks that are close stand side by side.
    const place = Math.min(Math.max(line, free), WIDTH - RIGHT);
    free = place + 22;
    return svg("g", { class: `change ${first ? "first" : ""}` },
      svg("title", {}, service ? `${service}: ${text}` : text),
      svg("line", { x1: line, x2: line, y1: TOP, y2: height - AXIS }),
      svg("circle", { cx: place, cy: 12, r: 10 }),
      svg("text", { x: place, y: 16, "text-anchor": "middle" }, String(number + 1)));
  });
}

function axis({ from, span, x }, height) {
  const step = STEPS.find((step) => span / step <= 10) ?? 86400;
  const times = [];
  for (let at = Math.ceil(from / step) * step; at <= from + span; at += step) {
    times.push(svg("text", { class: "axis", x: Math.min(Math.max(x(at), LEFT + 20), WIDTH - 30), y: height - 8, "text-anchor": "middle" }, utc(at * 1000)));
  }
  return times;
}

function timeLine(incident) {
  const services = incident.services.slice(0, STRIPS);
  if (!services.length) return "";
  const scale = scales(incident, services);
  const height = TOP + STRIP * services.length + AXIS;
  const drawing = svg("svg", { class: "timeline", viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": "scores of each service over time" },
    services.map((service, place) => strip(service, place, scale)), marks(incident.changes, scale, height), axis(scale, height));
  const more = incident.services.length - services.length;
  return el("div", { class: "chart" }, el("div", { class: "scrolled" }, drawing),
    el("p", { class: "readout" }, `Highest score of each moment, as a multiple of its threshold γ. Alarms are shaded; numbers are what was changed. Times are UTC.${more > 0 ? ` ${more} further services are not drawn.` : ""}`));
}

function changes({ changes, began }) {
  if (!changes.length) return el("p", { class: "quiet" }, "No restart, other version, configuration or limit was seen from ten minutes before the first alarm on.");
  return table(["~Mark", "~When (UTC)", "~Kind", "What"], changes.map(({ at, service, kind, text, first }, number) => {
    const what = service ? `${service}: ${text}` : text;
    const before = first && at <= began ? `, ${length(Math.max(began - at, 1))} before the first alarm` : "";
    return [String(number + 1), utc(at), kind, first ? el("b", {}, what, before) : what];
  }));
}

function services({ services, further_services: more }) {
  const rows = services.map((of) => [
    el("b", {}, named(of.service)), of.rank === 1 ? el("span", { class: "badge cause" }, "suspected cause") : `rank ${of.rank}`,
    utc(of.began), lasted(of), `${figures(of.peak ?? 0)} γ`, of.points_at ? el("span", {}, "points at ", named(of.points_at)) : "",
  ]);
  return [table(["Service", "~Suspicion", "~Alarm from (UTC)", "~For", "~Highest score", "Points at"], rows),
    more ? el("p", { class: "small quiet" }, `${more} further services are not kept.`) : ""];
}

function metrics({ services }) {
  return services.filter(({ metrics, silent }) => metrics.length || silent.length).map((of) => {
    const rows = of.metrics.slice(0, 5).map(({ title, about, replica, group, seen, expected, share: part, since }) => [
      el("span", {}, share(part ?? 0), percent(part ?? 0)), titled({ title, about, replica }), seen, expected, since, group]);
    return [el("h3", {}, named(of.service)), of.silent.length ? el("p", {}, `Silent replicas: ${of.silent.join(", ")}`) : "",
      rows.length ? table(["~Share of the score", "Metric", "#Seen", "#Expected", "#For", "Group"], rows) : ""];
  });
}

function traces({ id, traces, kept_traces: kept }) {
  const more = kept - traces.length;
  const shown = traces.map((trace) => {
    const root = trace.spans.find(({ parent }) => !parent) ?? trace.spans[0];
    return [el("h3", {}, `${root?.service ?? ""} ${root?.name ?? ""}`),
      el("p", { class: "small quiet" }, `${length(trace.took / 1e6)}, ${trace.spans.length} spans, at ${utc(trace.start)} UTC. Kept by ${trace.policy}: ${trace.reason}`),
      waterfall(trace),
      el("p", { class: "small quiet" }, "Trace ", traced(trace.id), trace.cut ? `; ${trace.cut} further spans are not kept` : "",
        trace.link ? [". ", el("a", { href: trace.link, target: "_blank", rel: "noreferrer" }, "Open in the tracing backend")] : "")];
  });
  const rest = more > 0 ? `${count(more)} further traces were kept.` : traces.length ? "" : "No kept trace belongs to this incident.";
  return [shown, rest ? el("p", { class: "quiet" }, rest) : "",
    kept ? el("p", {}, el("a", { href: `#/traces/${id}` }, "Traces on this page that were kept for this incident")) : ""];
}

function streams({ streams }) {
  const rows = streams.flatMap(({ service, figures }) => figures.map(({ metric, largest, at, expected, last }) =>
    [el("b", {}, named(service, service.replace(/^network\./, ""))), breakable(metric), largest, utc(at), expected ?? el("span", { class: "quiet" }, "not judged"), last]));
  return rows.length ? [el("h2", {}, "Streams of packets"), table(["Stream", "Metric", "#Largest", "~When (UTC)", "#Expected", "#At last"], rows)] : "";
}

function logs({ logs, kept_logs: kept }) {
  if (!kept) return "";
  const more = kept - logs.length;
  const rows = logs.map(({ at, level, service, text, trace, reason }) => [utc(at), level, el("b", {}, named(service)),
    [el("div", {}, text || "(no text)"), el("div", { class: "small quiet" }, `${reason}.`, trace ? [" Trace ", traced(trace), "."] : "")]]);
  return [el("h2", {}, "Kept log records"), table(["~When (UTC)", "~Severity", "~Service", "What"], rows),
    more > 0 ? el("p", { class: "quiet" }, `${count(more)} further log records were kept.`) : ""];
}

function usual({ services }) {
  const rows = services.map((of) => [el("b", {}, named(of.service)),
    of.usual_seconds ? `median ${figures(of.usual)} γ, at most ${figures(of.usual_maximum)} γ, in ${of.usual_seconds} s before` : "no score is known from before its alarm",
    of.metrics.slice(0, 5).map(({ title, expected }) => el("div", {}, breakable(title), ` ${expected}`))]);
  return table(["Service", "Scores", "Expected of what stood out"], rows);
}

function parts(incident) {
  const { id, node, began, ended, cut_short: cut } = incident;
  const when = ended === null ? "It goes on." : `Until ${utc(ended)} UTC, ${lasted(incident)}${cut ? ", cut short by the end of the agent" : ""}.`;
  return [
    el("p", { class: "cause" }, incident.cause),
    el("p", { class: "lead" }, `On ${node} since ${day(began)} ${utc(began)} UTC. ${when} `,
      el("a", { href: `/api/incident/${id}.html`, download: `incident-${id}.html` }, "Save as a file")),
    el("h2", {}, "Time line"), timeLine(incident),
    el("h2", {}, "What was changed"), changes(incident),
    el("h2", {}, "Services, the suspected cause first"), services(incident),
    el("h2", {}, "What stood out"), metrics(incident),
    incident.profiles.length ? [el("h2", {}, "What its processes did"), incident.profiles.map(profile)] : "",
    streams(incident),
    el("h2", {}, "Kept traces"), traces(incident),
    logs(incident),
    el("h2", {}, "What was normal before"), usual(incident),
  ];
}

/** Shows the incident `id` in `main`. Returns what ends it. */
export function incident(main, id) {
  const title = el("h1", {}, `Incident ${id}`), body = el("div");
  main.replaceChildren(title, body);
  let timer = null, over = false, said = null, known = null, linked = null;
  // Services come and go: their names lead to what is there.
  const links = () => [...known.services, ...known.streams].flatMap(({ service, points_at: other }) => [service, other]).map((name) => lmapOf(name)?.id).join();
  function draw() {
    linked = links();
    redraw(body, () => {
      const at = window.scrollY;
      body.replaceChildren(...parts(known).flat(Infinity).filter((part) => part !== ""));
      window.scrollTo(0, at);
    });
  }
  const look = () => fetched(`/api/incident/${id}`).catch(() => undefined).then((answer) => {
    if (over) return;
    if (answer === null) {
      body.replaceChildren(el("p", { class: "empty" }, "This incident is not kept: newer ones have taken its place, or the agent was started again without incidents.dir."));
      return;
    }
    // One that is over may still get traces.
    timer = setTimeout(look, answer && answer.ended !== null ? 10 * AGAIN : AGAIN);
    const now = JSON.stringify(answer);
    if (!answer || now === said) return;
    [said, known] = [now, answer];
    say(title, `Incident ${answer.id}`);
    draw();
  });
  look();
  const unfollow = follow(() => { if (known && links() !== linked) draw(); });
  return () => { over = true; clearTimeout(timer); unfollow(); };
}
