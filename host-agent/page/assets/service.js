// One service: its score over time, what explains it, its replicas and what it learnt.

import { follow, incidentOf, isUrgent, state, words } from "./feed.js";
import { breakable, clock, count, day, el, fetched, figures, length, percent, redraw, say, table, titled, zone } from "./elements.js";
import { chart, share } from "./charts.js";
import { heatMap } from "./heat.js";
import { everyMetric } from "./metrics.js";

const DAY = 86400, WEEK = 7 * DAY;
const SPANS = [["5 min", 300], ["1 h", 3600], ["24 h", DAY], ["7 days", WEEK]];
/** Alarms of a Prometheus in the list: the newest. */
const LISTED = 50;
/** Episodes are the agent's: fetched again after this time. */
const AGAIN = 20_000;
/** Seconds between two scores after which somebody may have set the clock: the agent dates them all anew. */
const JUMP = 30;

function facts(lmap) {
  const pairs = [
    ["State", words(lmap)[1]],
    ["Alarms", count(lmap.alarms ?? 0)],
    ["Threshold γ", lmap.gamma ? figures(lmap.gamma) : "not learnt yet"],
    ["Budget of γ", lmap.budget ? `${figures(lmap.budget)} alarms a day, factor ${figures(lmap.factor ?? 1)}` : "fixed"],
    ["Learning", lmap.needed && (lmap.rows ?? 0) < lmap.needed ? `${lmap.rows ?? 0} of ${lmap.needed} rows` : "done, goes on"],
    ["Replicas", lmap.silent?.length ? `${lmap.replicas ?? 0}, silent: ${lmap.silent.join(", ")}` : String(lmap.replicas ?? 0)],
    ["Columns", lmap.unwatched ? `${lmap.columns ?? 0}, ${lmap.unwatched} not watched yet` : String(lmap.columns ?? 0)],
    ["Interval", lmap.interval ?? "–"],
    ["Worker", lmap.worker ?? "none"],
  ];
  if (lmap.members) pairs.push(["Over the services", lmap.members.join(", ")]);
  return el("dl", { class: "facts" }, pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function metrics(lmap) {
  if (!lmap.reasons?.length) return el("p", { class: "quiet" }, "No metric stood out yet: no score was at or over γ.");
  const rows = lmap.reasons.map((reason) => {
    const { group, seen, expected, share: part, since } = reason;
    return [el("span", {}, share(part ?? 0), percent(part ?? 0)), titled(reason), seen, expected, since, group];
  });
  return table(["Share of the score", "Metric", "#Seen", "#Expected", "#For", "Group"], rows);
}

function episodes(of) {
  if (!of.length) return el("p", { class: "quiet" }, "No alarm is remembered.");
  // Of those that a Prometheus has, steps are known, and multiples of γ.
  const rows = of.slice().reverse().map(({ from, to, peak, rank, points_at, metrics, step }) => [
    step ? `${day(from * 1000)} ${clock(from * 1000, false)}` : clock(from * 1000),
    to === null ? "goes on" : length((to - from || 1) * 1000),
    peak === null ? "–" : step ? `${figures(peak)} γ` : figures(peak),
    rank === 1 ? el("span", { class: "badge cause" }, "suspected cause") : rank ? `rank ${rank}` : "",
    step ? el("span", { class: "quiet" }, `scraped by a Prometheus, to ${step / 60} min`)
      : el("span", {}, metrics.slice(0, 3).map(({ title, seen, expected }) => el("div", {}, el("b", {}, breakable(title)), ` ${seen}, expected ${expected}`)),
        points_at ? el("div", { class: "quiet" }, `points at ${points_at}`) : ""),
  ]);
  return table([`Began (${zone(Date.now())})`, "#Lasted", "#Highest score", "Rank", "What stood out"], rows);
}

/** Where else it is: the incident that goes on, and its kept traces. */
function elsewhere({ service }, incident) {
  return [incident ? el("a", { href: `#/incident/${incident}` }, "Its open incident") : "",
    el("a", { href: `#/traces/${encodeURIComponent(service)}` }, "Its kept traces")].filter(Boolean);
}

/** Shows the view of the LMAP `id` in `main`. Returns what ends it. */
export function service(main, id) {
  const title = el("h1"), lead = el("p", { class: "lead" }), links = el("p", { class: "links" });
  const plot = chart();
  const [now, past, about] = [el("div"), el("div"), el("div")];
  const heading = el("h2");
  const [heats, heat, remember] = heatMap();
  const [every, endMetrics] = everyMetric(id, heat);
  const note = el("p", { class: "notice", hidden: true });
  let span = 300, history = { buckets: [], episodes: [] }, older = null;
  const buttons = SPANS.map(([name, seconds]) => el("button", { click: () => choose(seconds), "data-span": seconds }, name));
  buttons.at(-1).hidden = true;
  main.replaceChildren(title, lead, links, el("div", { class: "bar-of-tools" }, buttons), plot.frame, note,
    heading, now, el("h2", {}, "What made the score"), heats, el("h2", {}, "Each metric"), every, el("h2", {}, "Alarms"), past, el("h2", {}, "The service"), about);

  function choose(seconds) {
    span = seconds;
    buttons.forEach((button) => button.setAttribute("aria-pressed", String(Number(button.dataset.span) === span)));
    draw();
    fetchOlder();
  }

  // What a Prometheus has, then what this run remembers itself. Its scores are multiples of γ already.
  function draw() {
    const first = history.buckets[0]?.[0] ?? Infinity;
    const before = older?.span === span ? older.scores.filter(([second]) => second + older.step <= first) : [];
    const alarms = older?.span === span ? olderAlarms() : [];
    plot.draw([...before.map(([second, ratio]) => [second, older.step, ratio, 1, 0, "Prometheus"]), ...history.buckets], [...alarms, ...history.episodes], span);
  }

  // Alarms that a Prometheus has, up to where this run's own history begins.
  function olderAlarms() {
    const first = history.buckets[0]?.[0] ?? Infinity;
    return (older?.alarms ?? []).filter(([from]) => from + older.step <= first)
      .map(([from, to, peak]) => ({ from, to: Math.min(to, first), peak, rank: 0, points_at: "", metrics: [], step: older.step }));
  }

  function list() {
    redraw(past, () => past.replaceChildren(episodes([...olderAlarms().slice(-LISTED), ...history.episodes])));
  }

  // Asked for only where somebody looks so far back.
  async function fetchOlder() {
    const asked = span;
    if (!history.older || asked < DAY) { note.hidden = true; return; }
    const answer = await fetched(`/api/older/${id}/${asked}`).catch(() => null);
    if (!answer || asked !== span) return;
    older = { ...answer, span: asked };
    note.hidden = !answer.error;
    say(note, answer.error ? `Older scores are missing: the Prometheus of page.prometheus: ${answer.error}` : "");
    draw();
    list();
  }

  let asking = 0;
  async function fetchAgain() {
    asking += 1;
    const answer = await fetched(`/api/service/${id}`).catch(() => null);
    asking -= 1;
    if (answer) {
      history = answer;
      remember(answer);
    }
    buttons.at(-1).hidden = !history.older;
    list();
    draw();
    fetchOlder();
  }

  let wasAlarm = false;
  function update(changed) {
    const lmap = state.lmaps.get(id);
    if (!lmap) {
      say(title, state.ready ? "This service is gone" : "Connecting");
      return;
    }
    if (!changed.has(id)) return;
    say(title, lmap.service);
    const first = lmap.reasons?.[0];
    const points = lmap.points_at ? ` Its metrics point at ${lmap.points_at}.` : "";
    if (first && isUrgent(lmap)) redraw(lead, () => lead.replaceChildren(...breakable(first.title), ` is ${first.seen}, expected ${first.expected}.${points}`));
    else say(lead, words(lmap).join(" "));
    const incident = incidentOf(lmap), where = `${lmap.service} ${incident}`;
    if (links.dataset.where !== where) {
      links.dataset.where = where;
      redraw(links, () => links.replaceChildren(...elsewhere(lmap, incident)));
    }
    redraw(about, () => about.replaceChildren(facts(lmap)));
    say(heading, isUrgent(lmap) ? "What stands out" : "What stood out last");
    redraw(now, () => now.replaceChildren(metrics(lmap)));
    append(lmap);
    draw();
    const isAlarm = lmap.state === "alarm";
    if (isAlarm !== wasAlarm) fetchAgain();
    wasAlarm = isAlarm;
  }

  function append(lmap) {
    if (lmap.s === undefined || !lmap.at) return;
    const second = Math.floor(lmap.at / 1000);
    const newest = history.buckets.at(-1);
    if (newest && (second < newest[0] - JUMP || second > newest[0] + newest[1] + JUMP)) {
      if (!asking) fetchAgain();
      return;
    }
    if (newest && second < newest[0] + newest[1]) newest[2] = Math.max(newest[2], lmap.s);
    else history.buckets.push([second, 1, lmap.s, lmap.gamma ?? null, lmap.state === "alarm" ? 1 : 0]);
  }
  choose(span);
  fetchAgain();
  update(new Set([id]));
  const timer = setInterval(fetchAgain, AGAIN);
  const unfollow = follow(update);
  return () => { clearInterval(timer); unfollow(); endMetrics(); };
}
