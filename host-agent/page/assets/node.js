// The node: its workers, what is wrong, what is open, what its agents keep of what they may, and other nodes.

import { follow, state } from "./feed.js";
import { breakable, bytes, count, el, fetched, length, redraw, table } from "./elements.js";
import { share } from "./charts.js";

const AGAIN = 2_000;

function workers({ workers = [] }) {
  const rows = workers.map((worker) => [
    String(worker.worker), worker.drained_by ? `drained by ${worker.drained_by}` : worker.connected ? "connected" : "gone", worker.transport,
    count(worker.lmaps), count(worker.late), count(worker.failed), count(worker.lost),
  ]);
  return workers.length ? table(["Worker", "State", "Reads by", "#LMAPs", "#Late ticks", "#Failed reads", "#Lost verdicts"], rows)
    : el("p", { class: "empty" }, "No NIC agent is connected: nothing is judged. ", el("code", {}, "uview nic-agent"));
}

function others(nodes) {
  if (!nodes) return el("p", { class: "quiet" }, "This node is alone: ", el("code", {}, "coherence.peers"), " names no other.");
  if (!nodes.length) return el("p", { class: "quiet" }, "No other node was heard, and none is called.");
  const rows = nodes.map(({ name, addresses, contact, silent, problem }) => [
    name === null ? el("span", { class: "quiet" }, "unknown") : breakable(name),
    addresses.length ? addresses.map((address) => el("div", {}, breakable(address))) : el("span", { class: "quiet" }, "calls, and is not called"),
    el("span", { class: contact === "live" && !problem ? "" : "state alarm" }, contact),
    silent === null ? "never, or not for 15 min" : silent < 1_000 ? "less than 1 s ago" : `${length(silent)} ago`,
    problem ?? "",
  ]);
  return table(["Node", "Address", "~State", "~Heard", "Problem"], rows);
}

/** What an agent keeps of what it may: its name, the command that says the same, and its rows. */
function budget(agent, command, { rows, total, resident, services, columns }) {
  const amount = ({ used, most, bytes: inBytes }) => {
    const text = inBytes ? bytes : count;
    return el("span", { class: "use" }, share(most ? used / most : 0), `${text(used)} of ${text(most)}`);
  };
  const used = ({ uses }) => uses.length ? uses.map((use) => el("div", {}, amount(use), el("span", { class: "quiet" }, ` ${use.what}`))) : el("span", { class: "quiet" }, "not counted");
  const says = ({ metric }) => metric ? [el("div", { class: "quiet small" }, breakable(metric[0]), ` ${count(metric[1])}`)] : [];
  const all = ["all", resident === null ? "–" : [amount({ used: resident, most: total, bytes: true }), el("span", { class: "quiet" }, " resident")], bytes(total), ""];
  return [
    el("p", { class: "quiet" }, `What the ${agent} may keep in memory, with ${count(services)} services of ${count(columns)} metrics, as `,
      el("code", {}, command), " says, and what it keeps by its own account."),
    table(["What", "Used", "#At most", "When it is full"], [...rows.map((row) => [row.what, used(row), bytes(row.bytes), el("div", {}, row.full, says(row))]), all]),
  ];
}

/** The NIC agents of connected workers; one of an earlier release says nothing of its memory. */
function nics(all) {
  return all.flatMap(({ worker, budget: of }) => {
    const name = `NIC agent of worker ${worker}`;
    return [el("h2", {}, `Budget of the ${name}`), ...budget(name, "uview nic-agent --budget", of)];
  });
}

/** Shows the view in `main`. Returns what ends it. */
export function node(main) {
  const [body, more] = [el("div"), el("div")];
  main.replaceChildren(el("h1", {}, "Node"), body, more);
  let said = null, saidMore = null, over = false, asking = false;
  function update() {
    const { version = "", problems = [], warnings = [], notes = [] } = state.node;
    const lmaps = state.lmaps.size;
    const now = JSON.stringify([state.node, lmaps]);
    if (now === said) return;
    said = now;
    const list = (texts, none) => texts.length ? texts.map((text) => el("p", { class: "notice" }, text)) : [el("p", { class: "quiet" }, none)];
    redraw(body, () => body.replaceChildren(
      el("p", { class: "lead" }, `Host agent ${version}, ${lmaps} services.`),
      ...notes.map((text) => el("p", {}, text)),
      el("h2", {}, "Workers"), workers(state.node),
      el("h2", {}, "Problems"), ...list(problems, "None."),
      el("h2", {}, "Open to others"), ...list(warnings, "Nothing is open to anybody beyond this machine.")));
  }
  // Asked for only while somebody looks.
  async function ask() {
    if (asking) return;
    asking = true;
    const answer = await fetched("/api/node").catch(() => null);
    asking = false;
    const now = JSON.stringify(answer);
    if (over || !answer || now === saidMore) return;
    saidMore = now;
    redraw(more, () => more.replaceChildren(el("h2", {}, "Other nodes"), others(answer.others), el("h2", {}, "Budget"),
      ...budget("host agent", "uview host-agent --budget", answer.budget), ...nics(answer.nics)));
  }
  update();
  ask();
  const timer = setInterval(ask, AGAIN);
  const unfollow = follow(update);
  return () => { over = true; clearInterval(timer); unfollow(); };
}
