//! The claims on disaggregated sketches.

mod atomic;
mod bus;
mod claims;
mod fat_tree;
mod policy;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use synopses::digest::Digest;
use synopses::disaggregated::{Fragment, Path, Settings};

use crate::claim::Reproduction;

/// w, counters of a fragment.
const COUNTERS: u32 = 2_000;

/// A flow: whose series it is in, its path, its name and its packets.
struct Flow {
    group: usize,
    path: usize,
    digest: Digest,
    size: u32,
}

/// Draws sizes and names of flows.
struct Random(ChaCha8Rng);

impl Random {
    fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Pareto, shape 1.2, mean 10, at least one packet and at most `cap`.
    fn size(&mut self, cap: f64) -> u32 {
        let scale = 10.0 * 0.2 / 1.2;
        let size = scale * (1.0 - self.0.random::<f64>()).powf(-1.0 / 1.2);
        size.round().clamp(1.0, cap) as u32
    }

    fn digest(&mut self) -> Digest {
        Digest(self.0.random())
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0.random_range(0..limit)
    }

    /// Number of arrivals in a time in which `mean` are expected.
    fn poisson(&mut self, mean: f64) -> usize {
        let mut at = 0.0;
        let arrivals = std::iter::from_fn(|| {
            at -= (1.0 - self.0.random::<f64>()).ln();
            (at < mean).then_some(())
        });
        arrivals.count()
    }
}

/// Empty fragments with these numbers. The seed is of a run.
fn fragments(number: u32, seed: u64) -> Vec<Fragment> {
    let new = |id: u32| Settings { id, counters: COUNTERS, rows: 1, seed: seed << 32 | u64::from(id) };
    (0..number).map(|id| Fragment::new(new(id)).expect("possible")).collect()
}

/// Counts all flows, each at once when it arrives, and returns the mean relative error at its end: of all flows, then
/// of those of each group.
fn errors<const GROUPS: usize>(fragments: &mut [Fragment], paths: &[Path], flows: &[Flow]) -> (f64, [f64; GROUPS]) {
    let (mut sums, mut counts) = ([0.0; GROUPS], [0.0; GROUPS]);
    for flow in flows {
        let path = &paths[flow.path];
        let chosen = path.select(flow.digest).positions().map(|position| path.fragments()[position] as usize);
        let least = chosen.map(|id| fragments[id].insert(flow.digest, flow.size)).min().expect("a fragment is chosen");
        sums[flow.group] += f64::from(least - flow.size) / f64::from(flow.size);
        counts[flow.group] += 1.0;
    }
    let all = sums.iter().sum::<f64>() / counts.iter().sum::<f64>();
    (all, std::array::from_fn(|group| sums[group] / counts[group]))
}

/// The middle number, of an even number the mean of both.
fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.into_iter().collect();
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    if numbers.len() % 2 == 1 { numbers[middle] } else { 0.5 * (numbers[middle - 1] + numbers[middle]) }
}

/// Mean relative errors of all flows and of two series, medians over runs.
#[derive(Clone, Copy, Debug)]
struct Series {
    all: f64,
    horizontal: f64,
    vertical: f64,
}

impl Series {
    fn of(runs: &[(f64, [f64; 2])]) -> Self {
        Self {
            all: median(runs.iter().map(|run| run.0)),
            horizontal: median(runs.iter().map(|run| run.1[0])),
            vertical: median(runs.iter().map(|run| run.1[1])),
        }
    }

    fn text(&self) -> String {
        format!("{:.3} / {:.3} / {:.3}", self.all, self.horizontal, self.vertical)
    }
}

/// All claims on disaggregated sketches. They take seconds, so that the reduced form is the full one.
pub fn reproduction() -> Reproduction {
    let (mut claims, figures) = claims::claims();
    claims.extend(policy::claims());
    claims.extend(atomic::claims());
    claims.extend(fat_tree::claims());
    Reproduction {
        name: "disaggregated",
        title: "Disaggregated sketches",
        about: "Chapter 3 of the thesis. A bus of 8 switches, each with a fragment of one row of 2,000 counters (8 kB). Horizontal flows cross all of \
                them and update K at random, vertical ones cross one. Sizes are Pareto's (shape 1.2, mean 10), a flow's packets come at once, and its relative error is \
                read at its end, from empty fragments on. The thesis simulates packets in time and states neither the number of flows nor resets: \
                6,000 horizontal flows are *fitted*, to D2, D3 and D5, so that these rows say that such a setting exists. It states 100 horizontal flows per vertical \
                flow of a switch; rows named -ten have 10, fitted to D4. Errors are medians of 30 runs, since the mean of such sizes has no variance: all / horizontal / vertical flows. \
                The policy test (D7-policy and after) and the fat tree are our own workloads: sizes up to 10,000 packets, loads of the epoch before, which chose at random.",
        claims,
        figures,
    }
}
