// The node: its workers, what is wrong, what is open.

import { follow, state } from "./feed.js";
import { count, el, table } from "./elements.js";

/** Shows the view in `main`. Returns what ends it. */
export function node(main) {
  const body = el("div");
  main.replaceChildren(el("h1", {}, "Node"), body);
  let said = null;
  function update() {
    const { version = "", workers = [], problems = [], warnings = [] } = state.node;
    const lmaps = state.lmaps.size;
    const now = JSON.stringify([state.node, lmaps]);
    if (now === said) return;
    said = now;
    const rows = workers.map((worker) => [
      String(worker.worker), worker.drained_by ? `drained by ${worker.drained_by}` : worker.connected ? "connected" : "gone", worker.transport,
      count(worker.lmaps), count(worker.late), count(worker.failed), count(worker.lost),
    ]);
    const list = (texts, none) => texts.length ? texts.map((text) => el("p", { class: "notice" }, text)) : [el("p", { class: "quiet" }, none)];
    body.replaceChildren(
      el("p", { class: "lead" }, `Host agent ${version}, ${lmaps} services.`),
      el("h2", {}, "Workers"),
      workers.length ? table(["Worker", "State", "Reads by", "#LMAPs", "#Late ticks", "#Failed reads", "#Lost verdicts"], rows)
        : el("p", { class: "empty" }, "No NIC agent is connected: nothing is judged. ", el("code", {}, "uview nic-agent")),
      el("h2", {}, "Problems"), ...list(problems, "None."),
      el("h2", {}, "Open to others"), ...list(warnings, "Nothing is open to anybody beyond this machine."));
  }
  update();
  return follow(update);
}
