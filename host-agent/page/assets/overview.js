// Services by urgency.

import { byUrgency, follow, isUrgent, ratio, state, words } from "./feed.js";
import { breakable, el, figures, say } from "./elements.js";
import { spark } from "./charts.js";
import { list as incidents } from "./incident.js";

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
      word.replaceChildren(el("b", { "aria-hidden": "true" }, sign), text);
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
  const about = first?.about ? ` About ${first.about}.` : "";
  const text = first ? `${last}${silent}${first.title} ${first.seen}, expected ${first.expected}.${about}${points}` : silent;
  if (why.dataset.text === text) return;
  why.dataset.text = text;
  why.replaceChildren();
  if (first) why.append(last, silent, el("span", { class: "metric" }, breakable(first.title)), ` ${first.seen}, expected ${first.expected}.${about}${points}`);
  else why.append(silent);
}

/** Shows the view in `main`. Returns what ends it. */
export function overview(main) {
  const title = el("h1"), lead = el("p", { class: "lead" });
  const problems = el("div");
  const filter = el("input", { type: "search", placeholder: "Filter services", "aria-label": "Filter services", input: () => update(new Set()) });
  const list = el("ul", { class: "services" });
  const none = el("p", { class: "quiet" });
  const [newest, endIncidents] = incidents(5);
  main.replaceChildren(title, lead, problems, el("div", { class: "bar-of-tools" }, filter), list, none, el("h2", {}, "Incidents"), newest);
  const rows = new Map();

  function order(ids) {
    const items = ids.map((id) => rows.get(id).item);
    if (items.length === list.children.length && items.every((item, at) => list.children[at] === item)) return;
    const focused = list.contains(document.activeElement) ? document.activeElement : null;
    list.replaceChildren(...items);
    if (focused?.isConnected) focused.focus({ preventScroll: true });
  }

  function update(changed) {
    const [text, more] = headline();
    say(title, text);
    say(lead, more);
    const said = JSON.stringify(state.node.problems ?? []);
    if (problems.dataset.said !== said) {
      problems.dataset.said = said;
      problems.replaceChildren(...(state.node.problems ?? []).slice(0, 5).map((problem) => el("p", { class: "notice" }, problem)));
    }
    const wanted = filter.value.toLowerCase();
    const fits = (lmap) => [lmap.service, ...(lmap.reasons ?? []).map((reason) => reason.title)].some((text) => text.toLowerCase().includes(wanted));
    const shown = byUrgency().filter(fits);
    for (const id of rows.keys()) if (!state.lmaps.has(id)) rows.delete(id);
    for (const lmap of shown) {
      if (!rows.has(lmap.id)) rows.set(lmap.id, row(lmap));
      else if (changed.has(lmap.id)) rows.get(lmap.id).update(lmap);
    }
    order(shown.map(({ id }) => id));
    list.hidden = !shown.length;
    say(none, shown.length || !state.lmaps.size ? "" : "No service matches the filter.");
  }
  update(new Set());
  const unfollow = follow(update);
  return () => { unfollow(); endIncidents(); };
}
