// Which view is shown, keys, and whether the agent is there.

import { follow, isUrgent, listen, state } from "./feed.js";
import { el, length, say } from "./elements.js";
import { overview } from "./overview.js";
import { service } from "./service.js";
import { trace, traces } from "./traces.js";
import { incident, incidents } from "./incident.js";
import { map } from "./map.js";
import { receipt } from "./receipt.js";
import { network } from "./network.js";
import { node } from "./node.js";
import { sources } from "./sources.js";

const VIEWS = [["Overview", "#/"], ["Map", "#/map"], ["Incidents", "#/incidents"], ["Traces", "#/traces"], ["Network", "#/network"], ["Receipt", "#/receipt"], ["Node", "#/node"], ["Sources", "#/sources"]];
const KEYS = [["/", "filter services"], ["j k", "next, previous"], ["Enter", "open"], ["Esc", "back"], [`1 to ${VIEWS.length}`, "views"], ["?", "these keys"]];

const CARDS = ".service, .trace, .node", FOCUSED = ".service:focus, .trace:focus, .node:focus";

const main = document.getElementById("main");
const live = document.getElementById("live");
const dialog = document.getElementById("keys");
const tabs = VIEWS.map(([name, href]) => el("a", { href }, name));
const nav = document.getElementById("views");
nav.replaceChildren(...tabs);
dialog.append(el("dl", {}, KEYS.flatMap(([key, what]) => [el("dt", {}, key), el("dd", {}, what)])));
dialog.addEventListener("click", () => dialog.close());

/** Says at which edges of the row there are further views: on a phone not all fit. */
function edges() {
  nav.classList.toggle("before", nav.scrollLeft > 1);
  nav.classList.toggle("after", nav.scrollLeft + nav.clientWidth < nav.scrollWidth - 1);
}

/** A text of an address within the page. */
function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

function view(path) {
  const [name, id] = path.replace("#/", "").split("/");
  if (name === "service" && /^\d+$/.test(id)) return ["#/", (into) => service(into, Number(id))];
  if (name === "trace" && /^[0-9a-f]{32}$/.test(id)) return ["#/traces", (into) => trace(into, id)];
  if (name === "incident" && /^\d{8,}-\d{6}-\d{3}$/.test(id)) return ["#/incidents", (into) => incident(into, id)];
  if (name === "traces" && id) return ["#/traces", (into) => traces(into, decoded(id))];
  const views = { map, incidents, traces, network, receipt, node, sources };
  return Object.hasOwn(views, name) ? [`#/${name}`, views[name]] : ["#/", overview];
}

let end = () => {};
function show() {
  end();
  const [tab, begin] = view(location.hash);
  tabs.forEach((link) => link.getAttribute("href") === tab ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current"));
  nav.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  end = begin(main);
  window.scrollTo(0, 0);
}

function status() {
  const urgent = [...state.lmaps.values()].filter(isUrgent).length;
  document.title = urgent ? `(${urgent}) uview` : "uview";
  live.classList.toggle("gone", Boolean(state.gone));
  if (!state.gone) return say(live, state.ready ? "live" : "connecting");
  const over = state.over ? "; if your session is over: uview open" : "";
  say(live, `no answer for ${length(Math.max(1000, Date.now() - state.gone))}${over}`);
}

function move(by) {
  const links = [...main.querySelectorAll(CARDS)];
  const at = links.indexOf(document.activeElement);
  links[Math.min(Math.max(at + by, 0), links.length - 1)]?.focus();
}

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const field = main.querySelector("input[type=search]");
  if (event.key === "Escape") {
    if (dialog.open) return;
    if (document.activeElement === field && field.value) { field.value = ""; field.dispatchEvent(new Event("input")); }
    else if (document.activeElement === field) field.blur();
    else if (location.hash.startsWith("#/trace/")) location.hash = "#/traces";
    else if (location.hash.startsWith("#/incident/")) location.hash = "#/incidents";
    else location.hash = "#/";
    return;
  }
  if (event.target instanceof HTMLInputElement) return;
  if (event.key === "/" && field) { event.preventDefault(); field.focus(); }
  else if (event.key === "j" || event.key === "ArrowDown" && main.querySelector(FOCUSED)) { event.preventDefault(); move(1); }
  else if (event.key === "k" || event.key === "ArrowUp" && main.querySelector(FOCUSED)) { event.preventDefault(); move(-1); }
  else if (event.key === "?") dialog.showModal();
  else if (Number(event.key) >= 1 && Number(event.key) <= VIEWS.length) location.hash = VIEWS[Number(event.key) - 1][1];
}

window.addEventListener("hashchange", show);
nav.addEventListener("scroll", edges, { passive: true });
new ResizeObserver(edges).observe(nav);
document.addEventListener("keydown", key);
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
follow(status);
setInterval(status, 1000);
show();
listen();
