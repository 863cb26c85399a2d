// A profile: the heaviest functions, and each function below its caller, as wide as its share.

import { count, el, percent, svg, table, utc } from "./elements.js";

const WIDTH = 1100, ROW = 20, CHARACTER = 6.4, NARROWEST = 2, DEEPEST = 48, LISTED = 5;

/** How it was sampled, in words. */
function sampled({ problem, event, samples, frequency, lost, left_out: out, further_threads: threads }) {
  if (problem) return problem;
  const what = event === "processor time" ? "samples" : "times";
  const more = [[lost, "samples lost"], [out, `${what} in stacks that did not fit`], [threads, "threads not sampled"]];
  return [`${event}: ${count(samples)} ${what}, sampled at ${frequency} Hz`,
    ...more.filter(([of]) => of).map(([of, what]) => `${count(of)} ${what}`)].join(", ");
}

/** Calls `each` for every function at every place with its name, depth, begin and samples, the frequent ones first. */
function walk(stacks, depth, begin, each) {
  const below = new Map();
  for (const stack of stacks) {
    const [names, samples] = stack;
    if (depth >= names.length) continue;
    const group = below.get(names[depth]) ?? { samples: 0, stacks: [] };
    group.samples += samples;
    group.stacks.push(stack);
    below.set(names[depth], group);
  }
  for (const [name, group] of [...below].sort(([, one], [, other]) => other.samples - one.samples)) {
    each(name, depth, begin, group.samples);
    if (depth + 1 < DEEPEST) walk(group.stacks, depth + 1, begin, each);
    begin += group.samples;
  }
}

function flames(stacks) {
  const all = stacks.reduce((sum, [, samples]) => sum + samples, 0) || 1;
  const boxes = [];
  let deepest = 0;
  walk(stacks, 0, 0, (name, depth, begin, samples) => {
    const width = samples / all * WIDTH, x = begin / all * WIDTH, y = depth * ROW;
    if (width < NARROWEST) return;
    deepest = Math.max(deepest, depth);
    const fits = Math.floor((width - 8) / CHARACTER), letters = [...name];
    // The end of a name says most.
    const text = fits < 3 ? "" : letters.length <= fits ? name : `…${letters.slice(letters.length - fits + 1).join("")}`;
    boxes.push(svg("g", {}, svg("title", {}, `${name}: ${percent(samples / all)}`),
      svg("rect", { x, y, width: Math.max(width - 1, 1), height: ROW - 1, rx: 2 }),
      svg("text", { x: x + 4, y: y + 14 }, text)));
  });
  return el("div", { class: "chart" }, el("div", { class: "scrolled" }, svg("svg", { class: "flames",
    viewBox: `0 0 ${WIDTH} ${(deepest + 1) * ROW}`, role: "img", "aria-label": "functions below their callers" }, boxes)));
}

/** The functions that were seen running most often: name, share, share with what they called. */
function heaviest(stacks, samples) {
  const counts = new Map();
  for (const [names, times] of stacks) {
    const seen = names.slice(1);
    for (const name of new Set(seen)) {
      const [itself, whole] = counts.get(name) ?? [0, 0];
      counts.set(name, [itself + (name === seen.at(-1) ? times : 0), whole + times]);
    }
  }
  return [...counts].sort(([, one], [, other]) => other[0] - one[0] || other[1] - one[1]).slice(0, LISTED)
    .map(([name, [itself, whole]]) => [percent(itself / samples), percent(whole / samples), name]);
}

/** One profile. */
export function profile(of) {
  const stacks = of.stacks.map(([frames, samples]) => [frames.map((frame) => of.names[frame] ?? ""), samples]);
  return [el("h3", {}, of.service), el("p", { class: "small quiet" }, `At ${utc(of.at)} UTC, ${sampled(of)}.`),
    stacks.length ? [flames(stacks), table(["~Running", "~With what it called", "Function"], heaviest(stacks, of.samples || 1))] : ""];
}
