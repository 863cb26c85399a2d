// The receipt: spans and log records that were seen, kept, dropped and lost, and what that cost.

import { bytes, count, el, fetched, length, percent, redraw, say, table, utc } from "./elements.js";

const sum = (lines, key) => lines.reduce((all, line) => all + line[key], 0);
/** The sum of what is counted by name. */
const all = (counts) => counts.reduce((sum, [, number]) => sum + number, 0);
const total = (lines, key) => lines.reduce((sum, line) => sum + all(line[key]), 0);
const day = (number) => new Date(number * 86_400_000).toISOString().slice(0, 10);

function one(of) {
  const lines = [...of.services].sort((a, b) => b.seen_bytes - a.seen_bytes);
  const rows = lines.map((line) => [
    line.service, count(line.seen_spans), count(line.kept_spans), line.seen_spans ? percent(line.kept_spans / line.seen_spans) : "–",
    bytes(line.kept_bytes), `${count(line.kept_requests)} of ${count(line.requests)}`, `${count(line.kept_failed)} of ${count(line.failed)}`,
    reasons(line.dropped), reasons(line.lost), `${count(line.alarms)}${line.alarm_ms ? `, ${length(line.alarm_ms)}` : ""}`,
  ]);
  const [seen, kept] = [sum(lines, "seen_spans"), sum(lines, "kept_spans")];
  const share = seen ? `${percent(kept / seen)} of ${count(seen)} spans kept` : "no spans";
  return [el("h2", {}, `${day(of.day)} (UTC): ${share}, ${count(total(lines, "dropped"))} dropped, ${count(total(lines, "lost"))} lost`), cost(of),
    table(["Service", "#Spans seen", "#Kept", "#Share", "#Kept bytes", "#Requests kept", "#Failed kept", "#Dropped", "#Lost", "#Alarms"], rows), logs(of)];
}

/** The sum of counts by reason; the reasons are its title. */
function reasons(counts) {
  const each = counts.map(([why, number]) => `${why} ${count(number)}`).join(", ");
  return el("span", { title: each || null }, count(all(counts)));
}

/** What the host agent used on that day, and sent on. */
function cost({ node }) {
  const cpu = new Map(node).get("cpu_ms") ?? 0;
  const sent = all(node.filter(([name]) => name.startsWith("sent_bytes.")));
  return el("p", { class: "quiet cost" }, `The host agent used ${length(cpu)} of processor time, and sent ${bytes(sent)} on.`);
}

/** Log records of a day, beside what would be sent on if all were kept; nothing where they pass through. */
function logs(of) {
  const lines = of.services.filter(({ logs }) => logs).sort((a, b) => b.logs.seen_bytes - a.logs.seen_bytes);
  if (!lines.length) return "";
  const rows = lines.map(({ service, logs }) => [
    service, count(logs.seen), bytes(logs.seen_bytes), count(logs.kept), bytes(logs.kept_bytes),
    logs.seen_bytes ? percent(logs.kept_bytes / logs.seen_bytes) : "–",
    logs.by_policy.map(([name, of]) => `${name} ${bytes(of)}`).join(", "), count(all(logs.dropped)), count(all(logs.lost)),
  ]);
  return table(["Service", "#Log records", "#Keep all", "#Kept", "#Kept bytes", "#Share", "By policy", "#Dropped", "#Lost"], rows);
}

/** Shows the view in `main`. Returns what ends it. */
export function receipt(main) {
  const body = el("div"), lead = el("p", { class: "lead" });
  main.replaceChildren(el("h1", {}, "Receipt"), lead, body);
  async function update() {
    const answer = await fetched("/api/receipt").catch(() => null);
    if (!answer) return;
    const since = `${new Date(answer.since).toISOString().slice(0, 10)} ${utc(answer.since, false)} UTC`;
    say(lead, `What became of every span on ${answer.node || "this node"} since ${since}${answer.in_memory ? ", in memory only" : ""}. ` +
      `${count(answer.waiting)} spans${answer.waiting_logs ? ` and ${count(answer.waiting_logs)} log records` : ""} wait for a decision.${answer.resident === null ? "" : ` The host agent has ${bytes(answer.resident)} in memory now.`}`);
    const days = answer.days.filter(({ services }) => services.length).reverse();
    redraw(body, () => body.replaceChildren(...(days.length ? days.flatMap(one) : [el("p", { class: "empty" }, "No span was seen yet.")])));
  }
  update();
  const timer = setInterval(update, 5000);
  return () => clearInterval(timer);
}
