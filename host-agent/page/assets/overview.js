// Services by urgency.

import { byUrgency, follow, incidentOf, isUrgent, ratio, state, words } from "./feed.js";
import { breakable, count, el, figures, redraw, say } from "./elements.js";
import { spark } from "./charts.js";
import { openAndClosed } from "./incident.js";

/** Services that are drawn: the most urgent. The filter finds the others. */
const DRAWN = 500;
/** Services whose scores the agent remembers. */
const REMEMBERED = 8192;

function headline() {
  const all = [...state.lmaps.values()];
  const urgent = all.filter(isUrgent);
  const cause = urgent.find(({ rank }) => rank === 1);
  if (!state.ready) return ["Connecting", ""];
  if (!all.length) return ["No service yet", "Services appear here as soon as they register."];
  if (urgent.length) {
    const others = urgent.length === 1 ? "1 service stands out" : `${urgent.length} services stand out`;
    const first = cause?.reasons?.[0];
    const silent = cause?.silent?.length ? `${cause.silent.join(", ")} is silent. ` : "";
    const why = silent ? silent : first ? `${first.title} is ${first.seen}, expected ${first.expected}.` : "";
    return [others, cause ? `Suspected cause: ${cause.service}. ${why}` : "See below what differs from what was learnt."];
  }
  const learning = all.filter((lmap) => lmap.state === "learning").length;
  const rest = learning ? `${learning} of ${all.length} services still learn what is normal.` : all.length === 1 ? "The service behaves as it was learnt." : `All ${all.length} services behave as they were learnt.`;
  return ["All is quiet", rest];
}

function row(lmap) {
  const drawing = spark();
  const name = el("span", { class: "name" });
  const title = el("span"), word = el("span", { class: "state" });
  name.append(title, word);
  const value = el("span"), unit = el("small");
  const why = el("span", { class: "why" });
  const link = el("a", { class: "service", href: `#/service/${lmap.id}` }, name, drawing.drawing, el("span", { class: "ratio" }, value, unit), why);
  const item = el("li", {}, link);
  function update(lmap) {
    const [sign, text] = words(lmap);
    say(title, lmap.service);
    word.className = `state ${lmap.state ?? ""}`;
    if (word.dataset.text !== sign + text) {
      word.dataset.text = sign + text;
      redraw(word, () => word.replaceChildren(el("b", { "aria-hidden": "true" }, sign), text));
    }
    link.className = `service ${isUrgent(lmap) ? "alarm" : ""}`;
    const multiple = ratio(lmap);
    say(value, multiple === null ? "–" : figures(multiple));
    say(unit, multiple === null ? "" : "× γ");
    reasons(why, lmap);
    drawing.update(lmap);
  }
  update(lmap);
  return { item, update };
}

function reasons(why, lmap) {
  const first = lmap.reasons?.[0];
  const silent = lmap.silent?.length ? `Silent: ${lmap.silent.join(", ")}. ` : "";
  const points = lmap.points_at ? ` Points at ${lmap.points_at}.` : "";
  const last = isUrgent(lmap) ? "" : "Last: ";
  const about = (first?.about ? ` About ${first.about}.` : "") + (first?.replica ? ` Replica ${first.replica}.` : "");
  const text = first ? `${last}${silent}${first.title} ${first.seen}, expected ${first.expected}.${about}${points}` : silent;
  if (why.dataset.text === text) return;
  why.dataset.text = text;
  redraw(why, () => {
    why.replaceChildren();
    if (first) why.append(last, silent, el("span", { class: "metric" }, breakable(first.title)), ` ${first.seen}, expected ${first.expected}.${about}${points}`);
    else why.append(silent);
  });
}

/** What is to be said below the list, of which so many services fit the filter. */
function note(fitting, wanted) {
  const all = state.lmaps.size;
  if (all && !fitting) return "No service matches the filter.";
  const of = wanted ? `${count(fitting)} that match` : count(fitting);
  const others = fitting > DRAWN ? `The ${DRAWN} most urgent services of ${of} are shown: ${wanted ? "a longer filter" : "the filter"} finds the others. ` : "";
  const forgotten = all > REMEMBERED ? `Scores of ${count(REMEMBERED)} services are remembered: charts of those that came later begin when you open them.` : "";
  return `${others}${forgotten}`.trim();
}

/** Shows the view in `main`. Returns what ends it. */
export function overview(main) {
  // While an incident goes on, the heading leads to it.
  const plain = el("span"), link = el("a"), lead = el("p", { class: "lead" });
  const problems = el("div");
  const filter = el("input", { type: "search", placeholder: "Filter services", "aria-label": "Filter services", input: () => update(new Set()) });
  const list = el("ul", { class: "services" });
  const none = el("p", { class: "quiet" });
  const [open, closed, endIncidents] = openAndClosed(5);
  main.replaceChildren(el("h1", {}, plain, link), lead, problems, open, el("div", { class: "bar-of-tools" }, filter), list, none, closed);
  const rows = new Map();
  let shown = [];

  function order() {
    const items = shown.map(({ id }) => rows.get(id).item);
    if (items.length === list.children.length && items.every((item, at) => list.children[at] === item)) return;
    const focused = list.contains(document.activeElement) ? document.activeElement : null;
    list.replaceChildren(...items);
    if (focused?.isConnected) focused.focus({ preventScroll: true });
  }

  function update(changed) {
    const [text, more] = headline();
    const first = byUrgency()[0], incident = first && incidentOf(first);
    link.hidden = !incident;
    if (incident) link.setAttribute("href", `#/incident/${incident}`);
    say(plain, incident ? "" : text);
    say(link, incident ? text : "");
    say(lead, more);
    const said = JSON.stringify(state.node.problems ?? []);
    if (problems.dataset.said !== said) {
      problems.dataset.said = said;
      redraw(problems, () => problems.replaceChildren(...(state.node.problems ?? []).slice(0, 5).map((problem) => el("p", { class: "notice" }, problem))));
    }
    const wanted = filter.value.toLowerCase();
    const fits = (lmap) => [lmap.service, ...(lmap.reasons ?? []).map((reason) => reason.title)].some((text) => text.toLowerCase().includes(wanted));
    const fitting = wanted ? byUrgency().filter(fits) : byUrgency();
    shown = fitting.slice(0, DRAWN);
    const ids = new Set(shown.map(({ id }) => id));
    // What is not shown is not kept up to date.
    for (const id of rows.keys()) if (!ids.has(id)) rows.delete(id);
    for (const lmap of shown) {
      if (!rows.has(lmap.id)) rows.set(lmap.id, row(lmap));
      else if (changed.has(lmap.id)) rows.get(lmap.id).update(lmap);
    }
    redraw(list, order, { keepsFocus: true });
    list.hidden = !shown.length;
    say(none, note(fitting.length, wanted));
  }
  update(new Set());
  const unfollow = follow(update);
  return () => { unfollow(); endIncidents(); };
}
