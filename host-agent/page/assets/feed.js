// What the agent says: everything once, then what changes.

const RECENT = 120;

/** The state of the node, and who wants to know when it changes. */
export const state = { lmaps: new Map(), node: {}, ready: false, gone: null };
const listeners = new Set();
/** Services by urgency, and by name, as long as nothing has changed of what these say. */
let sorted = null, byName = null;
/** What the order of services, and their names, depend on. */
const ORDERED = ["service", "state", "rank", "incident", "silent"];
const names = new Intl.Collator();

/** Calls `listener` after each change, until the returned function is called. */
export function follow(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function tell(changed) {
  for (const listener of [...listeners]) listener(changed);
}

function merge(into, changes) {
  for (const [key, value] of Object.entries(changes)) {
    if (value === null) delete into[key];
    else into[key] = value;
  }
}

function snapshot({ lmaps, node }) {
  state.lmaps = new Map(lmaps.map((lmap) => [lmap.id, lmap]));
  sorted = byName = null;
  Object.assign(state, { node, ready: true, gone: null });
  tell(new Set(state.lmaps.keys()));
}

function delta({ gone = [], lmaps = [], node = {} }) {
  gone.forEach((id) => state.lmaps.delete(id));
  const isOrdered = (changes) => state.lmaps.has(changes.id) && !ORDERED.some((field) => Object.hasOwn(changes, field));
  if (gone.length || !lmaps.every(isOrdered)) sorted = byName = null;
  for (const { s, at, ...changes } of lmaps) {
    const lmap = state.lmaps.get(changes.id) ?? { recent: [] };
    merge(lmap, changes);
    if (s !== undefined) {
      Object.assign(lmap, { s, at });
      // Before a threshold is learnt a score is no multiple of it.
      lmap.recent.push(lmap.gamma ? s : null);
      lmap.recent.splice(0, lmap.recent.length - RECENT);
    }
    state.lmaps.set(changes.id, lmap);
  }
  merge(state.node, node);
  tell(new Set(lmaps.map(({ id }) => id)));
}

/** Begins to listen. The browser connects again by itself; where the session is over it cannot. */
export function listen() {
  const source = new EventSource("/api/events");
  source.addEventListener("snapshot", ({ data }) => snapshot(JSON.parse(data)));
  source.addEventListener("delta", ({ data }) => delta(JSON.parse(data)));
  source.addEventListener("error", () => {
    state.gone ??= Date.now();
    state.over = source.readyState === EventSource.CLOSED;
    // Refused, perhaps as one viewer too many: once more later.
    if (state.over) setTimeout(listen, 5000);
    tell(new Set());
  });
}

/** The newest score as a multiple of γ; null while there is none. */
export function ratio(lmap) {
  const score = lmap.s ?? lmap.recent.at(-1);
  return lmap.gamma && score !== null && score !== undefined ? score / lmap.gamma : null;
}

/** Whether it is in alarm, or a replica is silent. */
export const isUrgent = (lmap) => ["alarm", "silent"].includes(lmap.state) || (lmap.silent?.length ?? 0) > 0;

/** Services by urgency: the newest incident first, its suspected cause on top, then other alarms, then by name. */
export function byUrgency() {
  const key = (lmap) => [lmap.rank ? 0 : 1, -(lmap.incident ?? 0), lmap.rank ?? 0, isUrgent(lmap) ? 0 : 1, lmap.state === "drifted" ? 0 : 1];
  const order = ([a, one], [b, other]) => {
    const at = a.findIndex((value, index) => value !== b[index]);
    return at >= 0 ? a[at] - b[at] : names.compare(one.service, other.service);
  };
  // There may be 10,000 of them, and an event twice a second.
  sorted ??= [...state.lmaps.values()].map((lmap) => [key(lmap), lmap]).sort(order).map(([, lmap]) => lmap);
  return sorted;
}

/** The LMAP of the service `name`; undefined if there is none now. */
export function lmapOf(name) {
  byName ??= new Map([...state.lmaps.values()].map((lmap) => [lmap.service, lmap]));
  return byName.get(name);
}

/** The address of the incident that goes on and that the service is in; null if it is in none that is kept. */
export function incidentOf({ rank, incident }) {
  if (!rank || !incident || !state.node.incidents) return null;
  return new Date(incident).toISOString().replace(/[-:Z]/g, "").replace(/[T.]/g, "-");
}

const SIGNS = { alarm: "▲", silent: "■", drifted: "~", armed: "●" };

/** Sign and words for the state of an LMAP. */
export function words(lmap) {
  const sign = SIGNS[lmap.state] ?? "◌", silent = lmap.silent?.length ?? 0;
  if (lmap.state === "alarm" && lmap.rank === 1) return [sign, "suspected cause"];
  if (lmap.state === "silent" && lmap.rank === 1) return [sign, "silent, suspected cause"];
  if (lmap.state === "alarm") return [sign, lmap.rank ? `in alarm, rank ${lmap.rank}` : "in alarm"];
  if (lmap.state === "armed") return [sign, silent ? `${silent} silent ${silent === 1 ? "replica" : "replicas"}` : "quiet"];
  if (lmap.state === "learning") return [sign, `learning, ${lmap.rows ?? 0} of ${lmap.needed ?? 0} rows`];
  return [sign, lmap.state ?? "starting"];
}
