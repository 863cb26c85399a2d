// Where the boxes of a map stand: callers left of callees, as few crossings as a few passes give.

/** Boxes by column: `count` services, `calls` of pairs of their numbers, `entries` where requests enter. */
export function columns(count, calls, entries) {
  const [callees, callers] = [lists(count), lists(count)];
  for (const [from, to] of calls) if (from !== to) { callees[from].push(to); callers[to].push(from); }
  const depth = depths(count, callees, callers, entries);
  const columns = [];
  depth.forEach((at, service) => (columns[at] ??= []).push(service));
  const filled = columns.filter(Boolean);
  for (let pass = 0; pass < 4; pass++) sweep(filled, pass % 2 ? callees : callers, Boolean(pass % 2));
  return filled;
}

const lists = (count) => Array.from({ length: count }, () => []);

/** The longest way from where requests enter; calls back to a caller count for nothing. No recursion: chains may be long. */
function depths(count, callees, callers, entries) {
  const seen = new Uint8Array(count), order = [], back = new Set();
  const roots = [...entries, ...lists(count).keys()].filter((service, at) => at < entries.length || !callers[service].length);
  for (const root of [...roots, ...lists(count).keys()]) {
    if (seen[root]) continue;
    const open = [[root, 0]];
    seen[root] = 1;
    while (open.length) {
      const top = open.at(-1);
      const [service, next] = top;
      if (next === callees[service].length) { seen[service] = 2; order.push(service); open.pop(); continue; }
      top[1] += 1;
      const callee = callees[service][next];
      if (seen[callee] === 1) back.add(service * count + callee);
      else if (!seen[callee]) { seen[callee] = 1; open.push([callee, 0]); }
    }
  }
  const depth = new Array(count).fill(0);
  for (const service of order.reverse()) {
    for (const callee of callees[service]) if (!back.has(service * count + callee)) depth[callee] = Math.max(depth[callee], depth[service] + 1);
  }
  return depth;
}

/** Orders each column by the mean place of its neighbours in the others. */
function sweep(columns, neighbours, backwards) {
  const place = new Map(columns.flatMap((column) => column.map((service, at) => [service, at / column.length])));
  for (const column of backwards ? [...columns].reverse() : columns) {
    const mean = (service) => {
      const of = neighbours[service];
      return of.length ? of.reduce((all, one) => all + place.get(one), 0) / of.length : place.get(service);
    };
    const means = new Map(column.map((service) => [service, mean(service)]));
    column.sort((a, b) => means.get(a) - means.get(b) || a - b);
    column.forEach((service, at) => place.set(service, at / column.length));
  }
}
