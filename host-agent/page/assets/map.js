// The map: operations where requests enter, services, and who calls whom.

import { follow, isUrgent, lmapOf, state } from "./feed.js";
import { breakable, count, el, fetched, figures, length, percent, redraw, say, svg, table } from "./elements.js";
import { columns } from "./graph.js";
import { find, watch } from "./metrics.js";

const AGAIN = 3000;
const BOX = { width: 164, height: 54, across: 212, down: 70 };
const ENTRY = { width: 196, height: 30, most: 16 };
const LISTED = 40;
/** A stream's line is so far above that of the calls between the same two. */
const ABOVE = 14;
/** Streams whose figures are fetched: the first by name. */
const WATCHED = 8;

const perSecond = (rate) => rate === null || rate === undefined ? "–" : `${figures(rate)}/s`;
const share = (errors) => errors === null ? "–" : percent(errors);
const time = (ms) => ms === null ? "–" : length(ms);
/** As many characters as fit. */
const cut = (text, most) => [...text].length > most ? `${[...text].slice(0, most - 1).join("")}…` : text;

function brief([rate, errors, mean]) {
  const parts = [rate === null ? "" : perSecond(rate), errors ? `${percent(errors)} failed` : "", mean === null ? "" : length(mean)];
  return parts.filter(Boolean).join(" · ");
}

function cells([rate, errors, mean, slowest]) {
  return [perSecond(rate), errors ? el("span", { class: "failed" }, share(errors)) : share(errors), time(mean), slowest === null ? "–" : `≤ ${length(slowest)}`];
}

const FIGURES = ["#Requests", "#Failed", "#Mean delay", "#99 % of delays"];

/** Places of all that is drawn. */
function placed(map, wanted) {
  const fits = (text) => text.toLowerCase().includes(wanted);
  const services = map.services.map(({ name }) => !wanted || fits(name));
  const entries = map.operations.filter(({ path, service, name }) => path && (!wanted || fits(name) || services[service]));
  if (wanted) entries.forEach(({ path }) => path.forEach((service) => { services[service] = true; }));
  const byName = (a, b) => a.name.localeCompare(b.name);
  // By name, so that places stay while rates change.
  const shown = [...services.keys()].filter((service) => services[service]).sort((a, b) => byName(map.services[a], map.services[b]));
  const number = new Map(shown.map((service, at) => [service, at]));
  const calls = map.calls.filter(([from, to]) => number.has(from) && number.has(to));
  const roots = [...new Set(entries.map(({ service }) => service))].filter((service) => number.has(service));
  const inColumns = columns(shown.length, calls.map(([from, to]) => [number.get(from), number.get(to)]), roots.map((service) => number.get(service)));
  const drawn = entries.slice(0, ENTRY.most).sort(byName);
  const left = drawn.length ? ENTRY.width + 52 : 0;
  // Figures of streams stand between the boxes.
  const step = map.streams.length ? BOX.width + 148 : BOX.across;
  const rows = Math.max(1, ...inColumns.map((column) => column.length));
  const height = Math.max(rows * BOX.down, drawn.length * (ENTRY.height + 8)) + 24;
  const at = new Map();
  inColumns.forEach((column, across) => column.forEach((service, down) => {
    at.set(shown[service], [left + across * step + 6, (down + 0.5) * height / column.length - BOX.height / 2]);
  }));
  const width = Math.max(left + (inColumns.length - 1) * step + BOX.width + 12, 300);
  return { at, calls, drawn, entries, width, height };
}

function curve([x1, y1], [x2, y2]) {
  const half = Math.max((x2 - x1) / 2, 40);
  // Backwards and within a column, a line goes around.
  if (x2 <= x1) return `M${x1} ${y1}C${x1 + 60} ${y1 + 46} ${x2 - 60} ${y2 + 46} ${x2} ${y2}`;
  return `M${x1} ${y1}C${x1 + half} ${y1} ${x2 - half} ${y2} ${x2} ${y2}`;
}

const middle = ([x, y]) => [x, y + BOX.height / 2];
const end = ([x, y]) => [x + BOX.width, y + BOX.height / 2];

/** Calls fail visibly from this share on. */
const FAILING = 0.01;

function call(map, at, [from, to, rate, mean, failed, unanswered]) {
  const all = (rate ?? 0) + (unanswered ?? 0);
  const width = 1 + Math.log10(1 + all) * 1.3;
  const both = [from, to].every((service) => { const lmap = lmapOf(map.services[service].name); return lmap && isUrgent(lmap); });
  const text = `${map.services[from].name} calls ${map.services[to].name}${rate === null ? "" : `, about ${perSecond(rate)}`}${mean === null ? "" : `, ${length(mean)}`}${failed ? `, ${percent(failed)} failed` : ""}${unanswered ? `, about ${perSecond(unanswered)} unanswered` : ""}`;
  const isFailing = failed >= FAILING || (unanswered && unanswered >= FAILING * all);
  const kind = `${both ? " alarm" : ""}${isFailing ? " failing" : ""}`;
  return svg("path", { class: `call${kind}`, d: curve(end(at.get(from)), middle(at.get(to))), "stroke-width": width.toFixed(1), "data-ends": `${from} ${to}` }, svg("title", {}, text));
}

/** Median delay, or mean one-way delay, and loss of a stream; null where there is none. */
function onStream(metrics) {
  const value = (name) => find(metrics, name)?.values[0] ?? null;
  const delay = value("network.delay.p50") ?? value("network.owd.mean");
  return { delay: delay === null ? null : delay * 1000, slow: (value("network.delay.p99") || -1) * 1000, loss: value("network.loss") ?? value("network.requests.unanswered") };
}

const onEdge = ({ delay, loss }) => [delay === null ? "" : length(delay), loss === null ? "" : `${percent(loss)} lost`].filter(Boolean).join(" · ");

/** A stream of packets between two services, with its delay and loss. */
function stream(map, at, [from, to, id], measured) {
  const [start, stop] = [end(at.get(from)), middle(at.get(to))].map(([x, y]) => [x, y - ABOVE]);
  const [x, y] = [(start[0] + stop[0]) / 2, (start[1] + stop[1]) / 2];
  const lmap = state.lmaps.get(id), urgent = lmap && isUrgent(lmap);
  const says = measured ? onEdge(measured) || "no figure" : "…";
  const said = `Packets from ${map.services[from].name} to ${map.services[to].name}: ${says}${urgent ? ", in alarm" : ""}`;
  return svg("a", { class: `stream-edge${urgent ? " alarm" : ""}`, href: `#/service/${id}`, "aria-label": said },
    svg("title", {}, said), svg("path", { d: curve(start, stop) }),
    svg("rect", { x: x - 62, y: y - 10, width: 124, height: 20, rx: 10 }),
    svg("text", { x, y: y + 4, "text-anchor": "middle" }, urgent ? `▲ ${says}` : says));
}

function streamTable(map, measured) {
  if (!map.streams.length) return [];
  const row = ([from, to, id]) => {
    const { delay = null, slow = -1, loss = null } = measured.get(id) ?? {};
    const name = state.lmaps.get(id)?.service ?? "";
    return [el("a", { href: `#/service/${id}` }, breakable(name)), map.services[from].name, map.services[to].name, time(delay), slow < 0 ? "–" : length(slow), loss === null ? "–" : percent(loss)];
  };
  return [el("h2", {}, "Packets between services"), table(["Stream", "From", "To", "#Delay", "#99 % of delays", "#Lost"], map.streams.map(row))];
}

function box(map, at, service, select) {
  const { name, figures: of } = map.services[service];
  const lmap = lmapOf(name);
  const [x, y] = at.get(service);
  const urgent = lmap && isUrgent(lmap), cause = urgent && lmap.rank === 1;
  const said = `${name}. ${cause ? "Suspected cause. " : urgent ? "In alarm. " : ""}${brief(of)}`;
  const words = cause ? "▲ suspected cause" : urgent ? "▲ in alarm" : brief([of[0], 0, of[2]]);
  return svg("g", { class: `node${urgent ? " alarm" : ""}${cause ? " suspect" : ""}`, tabindex: 0, role: "button", "aria-label": said, "data-key": `service ${name}`, transform: `translate(${x} ${y})`, ...pressed(() => select({ service: name })) },
    svg("title", {}, urgent ? `${said}` : name),
    svg("rect", { width: BOX.width, height: BOX.height, rx: 8 }),
    // Where requests are not counted there is only the name.
    svg("text", { class: "name", ...(words ? { x: 12, y: 22 } : { x: BOX.width / 2, y: BOX.height / 2 + 5, "text-anchor": "middle" }) }, cut(name, of[1] ? 13 : 19)),
    of[1] ? svg("text", { class: "errors", x: BOX.width - 12, y: 22, "text-anchor": "end" }, `${percent(of[1])} ✕`) : "",
    words ? svg("text", { class: "figures", x: 12, y: 41 }, cut(words, 25)) : "");
}

function pressed(act) {
  return { click: act, keydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(); } } };
}

function entry(map, place, operation, select) {
  const service = map.services[operation.service]?.name ?? "";
  const said = `${operation.name} of ${service}. ${brief(operation.figures)}`, [rate] = operation.figures;
  return svg("g", { class: "node entry", tabindex: 0, role: "button", "aria-label": said, "data-key": `operation ${service} ${operation.name}`, transform: `translate(6 ${place})`, ...pressed(() => select({ service, operation: operation.name })) },
    svg("title", {}, said),
    svg("rect", { width: ENTRY.width, height: ENTRY.height, rx: 15 }),
    svg("text", { x: 14, y: 20 }, cut(operation.name, rate === null ? 25 : 17)),
    rate === null ? "" : svg("text", { class: "figures", x: ENTRY.width - 12, y: 20, "text-anchor": "end" }, perSecond(rate)));
}

function drawing(map, places, select, measured) {
  const { at, calls, drawn, width, height } = places;
  const streams = map.streams.filter(([from, to]) => at.has(from) && at.has(to));
  const top = (row) => (row + 0.5) * height / drawn.length - ENTRY.height / 2;
  const into = drawn.map((operation, row) => at.has(operation.service) && svg("path", { class: "call", "data-ends": `entry ${operation.service}`, d: curve([ENTRY.width + 6, top(row) + ENTRY.height / 2], middle(at.get(operation.service))), "stroke-width": 1 }));
  return svg("svg", { class: "map", viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": "Operations, services, and who calls whom" },
    into.filter(Boolean), calls.map((one) => call(map, at, one)),
    drawn.map((operation, row) => entry(map, top(row), operation, select)),
    [...at.keys()].map((service) => box(map, at, service, select)),
    streams.map((one) => stream(map, at, one, measured.get(one[2]))));
}

/** Marks what belongs to the selection. */
function mark(picture, map, chosen) {
  const number = map.services.findIndex(({ name }) => name === chosen?.service);
  const path = new Set(map.operations.find(({ service, name }) => service === number && name === chosen?.operation)?.path ?? []);
  picture.classList.toggle("chosen", number >= 0);
  const neighbours = new Set(path.size ? path : [number]);
  for (const line of picture.querySelectorAll(".call")) {
    const [from, to] = line.dataset.ends.split(" ");
    const on = path.size ? from !== "entry" && path.has(Number(from)) && path.has(Number(to)) : Number(from) === number || Number(to) === number;
    line.classList.toggle("on", on);
    if (on && !path.size) [from, to].filter((of) => of !== "entry").forEach((of) => neighbours.add(Number(of)));
  }
  for (const node of picture.querySelectorAll(".node")) {
    const key = node.dataset.key;
    const isChosen = key === (chosen?.operation ? `operation ${chosen.service} ${chosen.operation}` : `service ${chosen?.service}`);
    const isNear = [...neighbours].some((service) => key === `service ${map.services[service]?.name}`);
    node.classList.toggle("on", isChosen || isNear);
    node.setAttribute("aria-pressed", String(isChosen));
  }
}

function details(map, chosen) {
  const number = map.services.findIndex(({ name }) => name === chosen.service);
  if (number < 0) return [];
  const operations = map.operations.filter(({ service }) => service === number);
  const service = map.services[number];
  const lmap = lmapOf(service.name);
  const link = lmap ? el("a", { href: `#/service/${lmap.id}` }, "Its score and metrics") : "";
  if (chosen.operation) {
    const of = operations.find(({ name }) => name === chosen.operation);
    if (!of) return [];
    const path = (of.path ?? []).map((at) => map.services[at]);
    return [el("h2", {}, breakable(of.name), ` of ${service.name}`), table(["Where", ...FIGURES], [[el("b", {}, "The operation"), ...cells(of.figures)], ...path.map((on) => [on.name, ...cells(on.figures)])]),
      el("p", { class: "quiet" }, "Below it: all requests of the services on its path.")];
  }
  const pairs = (mine, other) => map.calls.filter((call) => call[mine] === number).map((call) => [map.services[call[other]].name, perSecond(call[2]), call[4] ? el("span", { class: "failed" }, share(call[4])) : share(call[4]), inVain(call[5]), time(call[3])]);
  const inVain = (rate) => rate ? el("span", { class: "failed" }, perSecond(rate)) : rate === 0 ? "0" : "–";
  const [callers, callees] = [pairs(1, 0), pairs(0, 1)];
  const part = (title, rows) => rows.length ? [el("h3", {}, title), table(["Service", "#Answered, about", "#Failed, about", "#Unanswered, about", "#Mean delay"], rows)] : [];
  const rest = service.operations - operations.length;
  return [el("h2", {}, service.name), el("p", {}, link),
    table(["Operation", ...FIGURES], [[el("b", {}, "All"), ...cells(service.figures)], ...operations.slice(0, LISTED).map((of) => [breakable(of.name), ...cells(of.figures)])]),
    rest + Math.max(operations.length - LISTED, 0) > 0 ? el("p", { class: "quiet" }, `${count(rest + Math.max(operations.length - LISTED, 0))} more operations have fewer requests.`) : "",
    ...part("Called by", callers), ...part("Calls", callees)];
}

function operationTable(map, entries, select) {
  if (!entries.length) return [];
  const row = (of) => {
    const service = map.services[of.service]?.name ?? "";
    const name = el("button", { class: "plain", click: () => select({ service, operation: of.name }) }, breakable(of.name));
    return [name, service, ...cells(of.figures)];
  };
  const rest = entries.length - LISTED;
  return [el("h2", {}, "Operations with which requests enter"), table(["Operation", "Service", ...FIGURES], entries.slice(0, LISTED).map(row)),
    rest > 0 ? el("p", { class: "quiet" }, `${count(rest)} more have fewer requests: the filter finds them.`) : ""];
}

function lead(map) {
  const over = map.over ? `Rates are of the last ${Math.round(map.over)} s.` : "Rates follow in a moment.";
  const { services, operations, calls } = map.left_out;
  const out = [[services, "services"], [operations, "operations"], [calls, "pairs"]].filter(([number]) => number).map(([number, of]) => `${count(number)} ${of}`);
  const counted = map.counted ? "" : " Requests of services and operations are not counted here (otlp.derived).";
  const learnt = map.learnt ? "" : " Who calls whom is learnt where traces are kept (otlp.traces.keep: tail).";
  return `${count(map.services.length)} services. ${over}${out.length ? ` Not shown: ${out.join(", ")} with the fewest requests.` : ""}${counted}${learnt}`;
}

/** Shows the view in `main`. Returns what ends it. */
export function map(main) {
  const says = el("p", { class: "lead" }), frame = el("div", { class: "chart scrolled" }), below = el("div"), list = el("div");
  const filter = el("input", { type: "search", placeholder: "Filter services and operations", "aria-label": "Filter services and operations", input: () => draw() });
  main.replaceChildren(el("h1", {}, "Map"), says, el("div", { class: "bar-of-tools" }, filter), frame, below, list);
  let known = null, chosen = null, drawnAs = "";
  const measured = new Map(), watched = new Map();

  function select(what) {
    chosen = JSON.stringify(what) === JSON.stringify(chosen) ? null : what;
    tell();
  }
  function tell() {
    const picture = frame.querySelector("svg");
    if (picture) mark(picture, known, chosen);
    redraw(below, () => below.replaceChildren(...(chosen ? details(known, chosen) : [])));
  }
  /** Fetches figures of streams that are drawn, and of no others. */
  function follows() {
    const wanted = known.streams.slice(0, WATCHED).map(([, , id]) => id);
    for (const [id, end] of watched) if (!wanted.includes(id)) { end(); watched.delete(id); measured.delete(id); }
    for (const id of wanted) {
      if (!watched.has(id)) watched.set(id, watch(id, ({ metrics }) => { if (metrics.length) { measured.set(id, onStream(metrics)); draw(); } }));
    }
  }
  function draw() {
    if (!known) return;
    const places = placed(known, filter.value.trim().toLowerCase());
    // The focus stays on a box, wherever that is drawn.
    redraw(frame, () => {
      const focused = frame.contains(document.activeElement) ? document.activeElement.dataset.key : null;
      frame.replaceChildren(places.at.size ? drawing(known, places, select, measured) : el("p", { class: "quiet" }, "No service matches the filter."));
      if (focused) [...frame.querySelectorAll(".node")].find(({ dataset }) => dataset.key === focused)?.focus({ preventScroll: true });
      tell();
    }, { keepsFocus: true });
    redraw(list, () => list.replaceChildren(...streamTable(known, measured), ...operationTable(known, places.entries, select)));
  }
  async function update() {
    const answer = await fetched("/api/map").catch(() => null);
    if (!answer) return;
    known = answer;
    const empty = !answer.services.length;
    frame.hidden = filter.hidden = empty;
    say(says, empty ? "" : lead(answer));
    follows();
    if (empty) return list.replaceChildren(nothing(answer));
    draw();
  }
  function urgency() {
    const now = [...state.lmaps.values()].filter(isUrgent).map(({ service, rank }) => `${service} ${rank}`).join();
    if (now !== drawnAs) { drawnAs = now; draw(); }
  }
  update();
  // Twice soon, so that there are rates.
  const soon = setTimeout(update, 2100), timer = setInterval(update, AGAIN), unfollow = follow(urgency);
  return () => { clearTimeout(soon); clearInterval(timer); unfollow(); for (const end of watched.values()) end(); };
}

function nothing({ counted }) {
  return el("p", { class: "empty" }, counted ? "No request was seen yet. Services and operations appear as their spans arrive." : "Spans are not counted here: the map needs the OTLP endpoint. ", counted ? "" : el("code", {}, "otlp"));
}
