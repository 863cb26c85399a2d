//! Horizontal and vertical flows on a bus of switches.

use rand::seq::SliceRandom as _;
use synopses::disaggregated::Path;

use super::{Flow, Random, Series, errors, fragments};

/// S, number of switches.
pub const SWITCHES: u32 = 8;
pub const RUNS: u64 = 30;

/// Flows on the bus.
pub struct Traffic {
    pub horizontal: usize,
    /// Vertical flows of each switch.
    pub vertical: [usize; SWITCHES as usize],
    /// Largest size; 1 for flows of one packet.
    pub cap: f64,
}

impl Traffic {
    /// As the thesis has it, with `ratio` vertical flows of a switch per horizontal one.
    pub fn uniform(ratio: f64, cap: f64, random: &mut Random) -> Self {
        let mean = 6_000.0;
        Self { horizontal: random.poisson(mean), vertical: std::array::from_fn(|_| random.poisson(ratio * mean)), cap }
    }

    /// Flows in random order. Path 0 is that of horizontal flows, path 1 + k that of switch k.
    pub fn flows(&self, random: &mut Random) -> Vec<Flow> {
        let vertical = self.vertical.iter().enumerate().flat_map(|(switch, flows)| vec![1 + switch; *flows]);
        let mut paths: Vec<usize> = vertical.chain(vec![0; self.horizontal]).collect();
        paths.shuffle(&mut random.0);
        let flow = |path: usize| Flow {
            group: usize::from(path > 0),
            path,
            digest: random.digest(),
            size: random.size(self.cap),
        };
        paths.into_iter().map(flow).collect()
    }
}

/// The path of horizontal flows, then those of each switch.
pub fn paths(horizontal: Path) -> Vec<Path> {
    let vertical = (0..SWITCHES).map(|switch| Path::all(&[switch]).expect("possible"));
    std::iter::once(horizontal).chain(vertical).collect()
}

/// Runs with K of the fragments at random.
pub fn runs(count: usize, ratio: f64, cap: f64) -> Vec<(f64, [f64; 2])> {
    let run = |seed: u64| {
        let mut random = Random::new(seed);
        let flows = Traffic::uniform(ratio, cap, &mut random).flows(&mut random);
        let ids: Vec<u32> = (0..SWITCHES).collect();
        let paths = paths(Path::random(&ids, count, seed).expect("possible"));
        errors(&mut fragments(SWITCHES, seed + 1), &paths, &flows)
    };
    (0..RUNS).map(run).collect()
}

/// Errors for each K of [`COUNTS`].
pub struct Sweep {
    pub series: [Series; COUNTS.len()],
    /// Growth of the error of vertical flows from K = 1 to 8, in each run.
    pub growth: Vec<f64>,
}

pub const COUNTS: [usize; 6] = [1, 2, 3, 4, 6, 8];

impl Sweep {
    pub fn new(ratio: f64) -> Self {
        let all = COUNTS.map(|count| runs(count, ratio, f64::from(u32::MAX)));
        let growth = all[0].iter().zip(&all[COUNTS.len() - 1]).map(|(one, eight)| eight.1[1] / one.1[1]);
        Self { growth: growth.collect(), series: all.map(|runs| Series::of(&runs)) }
    }

    pub fn at(&self, count: usize) -> Series {
        self.series[COUNTS.iter().position(|known| *known == count).expect("one of the list")]
    }
}
