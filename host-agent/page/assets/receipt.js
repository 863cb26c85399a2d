// The receipt: spans and log records that were seen, kept, dropped and lost.

import { bytes, clock, count, el, fetched, length, percent, table } from "./elements.js";

const sum = (lines, key) => lines.reduce((all, line) => all + line[key], 0);
const total = (lines, key) => lines.reduce((all, line) => all + line[key].reduce((of, [, number]) => of + number, 0), 0);
const day = (number) => new Date(number * 86_400_000).toISOString().slice(0, 10);

function one(of) {
  const lines = [...of.services].sort((a, b) => b.seen_bytes - a.seen_bytes);
  const rows = lines.map((line) => [
    line.service, count(line.seen_spans), count(line.kept_spans), line.seen_spans ? percent(line.kept_spans / line.seen_spans) : "–",
    bytes(line.kept_bytes), `${count(line.kept_requests)} of ${count(line.requests)}`, `${count(line.kept_failed)} of ${count(line.failed)}`,
    count(line.lost.reduce((all, [, number]) => all + number, 0)), `${count(line.alarms)}${line.alarm_ms ? `, ${length(line.alarm_ms)}` : ""}`,
  ]);
  const [seen, kept] = [sum(lines, "seen_spans"), sum(lines, "kept_spans")];
  const share = seen ? `${percent(kept / seen)} of ${count(seen)} spans kept` : "no spans";
  return [el("h2", {}, `${day(of.day)} (UTC): ${share}, ${count(total(lines, "lost"))} lost`),
    table(["Service", "#Spans seen", "#Kept", "#Share", "#Kept bytes", "#Requests kept", "#Failed kept", "#Lost", "#Alarms"], rows), logs(of)];
}

/** Log records of a day, beside what would be sent on if all were kept; nothing where they pass through. */
function logs(of) {
  const lines = of.services.filter(({ logs }) => logs).sort((a, b) => b.logs.seen_bytes - a.logs.seen_bytes);
  if (!lines.length) return "";
  const all = (counts) => count(counts.reduce((of, [, number]) => of + number, 0));
  const rows = lines.map(({ service, logs }) => [
    service, count(logs.seen), bytes(logs.seen_bytes), count(logs.kept), bytes(logs.kept_bytes),
    logs.seen_bytes ? percent(logs.kept_bytes / logs.seen_bytes) : "–",
    logs.by_policy.map(([name, of]) => `${name} ${bytes(of)}`).join(", "), all(logs.dropped), all(logs.lost),
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
    const since = `${new Date(answer.since).toISOString().slice(0, 10)} ${clock(answer.since, false)}`;
    lead.textContent = `What became of every span on ${answer.node || "this node"} since ${since}${answer.in_memory ? ", in memory only" : ""}. ` +
      `${count(answer.waiting)} spans${answer.waiting_logs ? ` and ${count(answer.waiting_logs)} log records` : ""} wait for a decision.`;
    const days = answer.days.filter(({ services }) => services.length).reverse();
    body.replaceChildren(...(days.length ? days.flatMap(one) : [el("p", { class: "empty" }, "No span was seen yet.")]));
  }
  update();
  const timer = setInterval(update, 5000);
  return () => clearInterval(timer);
}
