//! One sketch at one place: its bound, and what it gives for the memory of a bus.

use synopses::disaggregated::{Fragment, Settings};

use super::bus::{RUNS, Traffic, runs};
use super::{COUNTERS, Random, median};
use crate::claim::{Claim, judged_by_own_bar};

const EPSILON: f64 = 0.01;
const DELTA: f64 = 0.05;

/// Share of the flows beyond the bound.
fn beyond(seed: u64) -> f64 {
    let mut sketch = Fragment::new(Settings::of_error(0, EPSILON, DELTA, seed).expect("possible")).expect("possible");
    let mut random = Random::new(seed);
    let flows: Vec<_> = (0..4_000).map(|_| (random.digest(), random.size(1e4))).collect();
    for (flow, size) in &flows {
        sketch.insert(*flow, *size);
    }
    let bound = EPSILON * sketch.load() as f64;
    let over = flows.iter().filter(|(flow, size)| f64::from(sketch.estimate(*flow) - size) > bound).count();
    over as f64 / flows.len() as f64
}

/// The error of horizontal flows at one switch with the memory of eight, which sees its own vertical flows too.
fn whole(seed: u64) -> f64 {
    let mut random = Random::new(seed);
    let flows = Traffic::uniform(0.01, f64::from(u32::MAX), &mut random).flows(&mut random);
    let settings = Settings { id: 0, counters: COUNTERS, rows: 8, seed };
    let mut sketch = Fragment::new(settings).expect("possible");
    let seen = flows.iter().filter(|flow| flow.path <= 1);
    let errors = seen
        .map(|flow| (flow.group, f64::from(sketch.insert(flow.digest, flow.size) - flow.size) / f64::from(flow.size)));
    let horizontal: Vec<f64> = errors.filter(|(group, _)| *group == 0).map(|(_, error)| error).collect();
    horizontal.iter().sum::<f64>() / horizontal.len() as f64
}

pub fn claims() -> [Claim; 2] {
    let worst = (0..20).map(beyond).fold(0.0, f64::max);
    let atomic = median((0..RUNS).map(whole));
    let all = median(runs(8, 0.01, f64::from(u32::MAX)).iter().map(|run| run.1[0]));
    [
        Claim {
            id: "D8",
            text: "bound of one sketch (3.1.2): ⌈e/ε⌉ counters in ⌈ln(1/δ)⌉ rows, ε = 0.01, δ = 0.05, 4,000 flows",
            published: "estimates exceed x + ε ‖x‖ with a probability of at most δ",
            ours: format!("a share of at most {worst:.4} of the flows, in each of 20 runs"),
            tolerance: "at most δ, in each run. No workload is published",
            verdict: judged_by_own_bar(worst <= DELTA),
        },
        Claim {
            id: "D9",
            text: "atomic sketch of 8 rows at one switch (64 kB there) beside all 8 fragments (8 kB each), horizontal flows",
            published: "no figure",
            ours: format!("{atomic:.3} beside {all:.3}; it counts the vertical flows of its own switch only"),
            tolerance: "ours: within 15 % of each other, which says that cutting a sketch costs nothing",
            verdict: judged_by_own_bar((atomic / all - 1.0).abs() <= 0.15),
        },
    ]
}
