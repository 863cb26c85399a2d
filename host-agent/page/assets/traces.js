// Kept traces, and the waterfall of one.

import { follow, state } from "./feed.js";
import { clock, count, el, fetched, length, redraw, say, svg, zone } from "./elements.js";

/** Times that a trace is looked at, for spans that come late. */
const LOOKS = 5;
const WHY = { lmap: "alarm", error: "error", latency: "slow", trigger: "asked for", floor: "chance" };

function item(trace) {
  const name = `${trace.service ?? ""} ${trace.name ?? ""}`;
  return el("li", {}, el("a", { class: "trace", href: `#/trace/${trace.id}` },
    el("time", {}, clock(trace.start)),
    el("span", { class: `what ${trace.failed ? "failed" : ""}` }, name, trace.failed ? " (failed)" : ""),
    el("span", { class: "took" }, length(trace.took / 1e6)),
    el("span", { class: `badge ${trace.policy ?? ""}` }, WHY[trace.policy] ?? trace.policy ?? "…"),
    el("span", { class: "why quiet" }, trace.reason ?? "")));
}

function nothing(keeping, some) {
  if (some) return el("p", { class: "quiet" }, "No kept trace matches the filter.");
  if (keeping) return el("p", { class: "empty" }, "No trace is kept yet. Those that fail, are slow, or pass a service in alarm appear here.");
  return el("p", { class: "empty" }, "The agent chooses no traces. To keep those that matter: ", el("code", {}, "otlp.traces.keep: tail"));
}

/** Whether a trace has `wanted` in its name, in those of its services, in its reason, or in its incident's address. */
const fits = ({ service, name, services, reason, incident }, wanted) =>
  [service, name, ...services, reason, incident].some((text) => text?.toLowerCase().includes(wanted));

/** Shows the list of traces in `main`, at first those with `wanted` in their texts. Returns what ends it. */
export function traces(main, wanted = "") {
  const filter = el("input", { type: "search", placeholder: "Filter by service, reason or incident", "aria-label": "Filter traces", value: wanted, input: () => show() });
  const lead = el("p", { class: "lead" });
  const policies = Object.entries(WHY);
  let only = null, all = [], keeping = true;
  const buttons = policies.map(([policy, word]) => el("button", { click: () => { only = only === policy ? null : policy; show(); }, "data-policy": policy }, word));
  const list = el("div");
  main.replaceChildren(el("h1", {}, "Kept traces"), lead, el("div", { class: "bar-of-tools" }, filter, buttons), list);

  function show() {
    buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.policy === only)));
    const text = filter.value.trim().toLowerCase();
    const shown = all.filter((trace) => (!only || trace.policy === only) && (!text || fits(trace, text)));
    redraw(list, () => list.replaceChildren(shown.length ? el("ul", { class: "traces" }, shown.map(item)) : nothing(keeping, all.length)));
  }

  let seen = null, asked = false, over = false;
  async function update() {
    if (over || asked || seen === state.node.traces) return;
    asked = true;
    const answer = await fetched("/api/traces").catch(() => null);
    // At most every two seconds: many traces may come at a time.
    setTimeout(() => { asked = false; update(); }, 2000);
    if (!answer || over) return;
    seen = answer.taken;
    ({ traces: all, keeping } = answer);
    say(lead, `${count(all.length)} of ${count(answer.taken)} that this node has kept since its start, the newest first, with the reason. Times are ${zone(Date.now())}.`);
    show();
  }
  update();
  const unfollow = follow(update);
  return () => { over = true; unfollow(); };
}

/** Spans in the order of a tree, each with its depth. */
function tree(spans) {
  const known = new Set(spans.map(({ id }) => id));
  const below = new Map();
  const roots = [];
  for (const span of [...spans].sort((a, b) => a.start - b.start)) {
    if (!span.parent || !known.has(span.parent) || span.parent === span.id) roots.push(span);
    else below.set(span.parent, [...(below.get(span.parent) ?? []), span]);
  }
  const ordered = [], seen = new Set();
  // Not by recursion: a trace may be deep, and parents may form a circle.
  const stack = roots.reverse().map((span) => [span, 0]);
  while (stack.length) {
    const [span, depth] = stack.pop();
    if (seen.has(span.id)) continue;
    seen.add(span.id);
    ordered.push([span, depth]);
    for (const child of (below.get(span.id) ?? []).reverse()) stack.push([child, depth + 1]);
  }
  return ordered.concat(spans.filter(({ id }) => !seen.has(id)).map((span) => [span, 0]));
}

/** The spans of a trace as bars over time, each below its caller. */
export function waterfall(trace) {
  const services = [...new Set(trace.spans.map(({ service }) => service))];
  const whole = Math.max(trace.took, 1);
  const row = ([span, depth]) => {
    const left = 100 * span.start / whole;
    const width = Math.max(100 * span.took / whole, 0.3);
    const colour = `s${services.indexOf(span.service) % 8}`;
    const lines = [0, 25, 50, 75, 100].map((at) => svg("line", { class: "at", x1: `${at}%`, x2: `${at}%`, y1: -5, y2: 21 }));
    const bar = svg("rect", { class: colour, x: `${left}%`, width: `${Math.min(width, 100)}%`, y: span.side === "client" ? 5 : 2, height: span.side === "client" ? 6 : 12, rx: 2 });
    const indent = el("span", { class: "depth" });
    indent.style.width = `${Math.min(depth, 12) * 12}px`;
    const who = el("span", { class: "who", title: `${span.service} ${span.name}` }, indent, el("b", {}, span.service), ` ${span.name}`);
    return el("li", { class: `span ${span.side} ${span.failed ? "failed" : ""}` }, who, svg("svg", { "aria-hidden": "true" }, lines, bar),
      el("span", { class: "took" }, length(span.took / 1e6)));
  };
  return el("ol", { class: "waterfall" }, tree(trace.spans).map(row));
}

/** Shows the trace `id` in `main`. Returns what ends it. */
export function trace(main, id) {
  const body = el("div", {}, el("h1", {}, "Trace"), el("p", { class: "lead" }, id));
  main.replaceChildren(body);
  let timer = null, left = LOOKS, spans = 0, over = false;
  const look = () => fetched(`/api/trace/${id}`).catch(() => null).then((answer) => {
    if (over) return;
    // Spans of a young trace may still be on their way.
    if (--left > 0) timer = setTimeout(look, 2000);
    if (answer?.spans.length === spans && spans) return;
    spans = answer?.spans.length ?? 0;
    if (!answer) {
      clearTimeout(timer);
      body.append(el("p", { class: "empty" }, "This trace is not here any more: newer ones have taken its place. It went on to the upstream, if there is one."));
      return;
    }
    const root = answer.spans.find(({ parent }) => !parent) ?? answer.spans[0];
    redraw(body, () => body.replaceChildren(
      el("h1", {}, `${root?.service ?? ""} ${root?.name ?? ""}`),
      el("p", { class: "lead" }, `${length(answer.took / 1e6)}, ${answer.spans.length} spans, at ${clock(answer.start)} ${zone(answer.start)}. `,
        answer.reason ? `Kept: ${answer.reason}. ` : "", answer.link ? el("a", { href: answer.link, target: "_blank", rel: "noreferrer" }, "Open in the tracing backend") : ""),
      waterfall(answer),
      el("p", { class: "small quiet" }, `Trace ${answer.id}${answer.cut ? `; ${answer.cut} further spans are not shown` : ""}`)));
  });
  look();
  return () => { over = true; clearTimeout(timer); };
}
