//! Theorems of RDA's publication, by formula and by simulation.

use synopses::digest::Digest;
use synopses::finecomb::{Deviation, FineComb, Interval, Rule, Settings as CombSettings, Solver};
use synopses::rda::{Ids, Peeling};

use crate::claim::{Claim, judged, refuted};
use crate::rda::decoded;
use crate::scale::Scale;
use crate::streams::random;

/// Packets of which each bank has two cells.
const DIFFERENCES: [u64; 3] = [50, 250, 1_000];

pub fn claims(scale: Scale) -> Vec<Claim> {
    vec![damaged(scale), complete(scale), one_bank(scale), impure(scale)]
}

/// Theorem 1: damaged buckets.
fn damaged(scale: Scale) -> Claim {
    let (buckets, lost, trials) = (100, 50, 10 * scale.trials);
    let mut useless = 0;
    for seed in 0..trials {
        let mut sender = FineComb::new(&CombSettings::one_bank(buckets, 1.0, 0, seed)).expect("possible");
        let receiver = sender.clone();
        (0..lost).for_each(|number| sender.insert(Digest(random(number ^ random(seed))), number));
        let interval = Interval::without_stash(receiver);
        let found = interval.estimate(&sender, Rule::FineCombMinus, Solver::Elimination, Deviation::PerBucket);
        useless += found.expect("one kind").health.useless;
    }
    let (found, expected) = (useless as f64 / trials as f64, 100.0 * (1.0 - (-0.5_f64).exp()));
    Claim {
        id: "A1",
        text: "theorem 1: buckets of FineComb that are damaged, 100 of them, 50 packets lost",
        published: "m (1 − e^(−n/m)) = 39.35",
        ours: format!("{found:.2}"),
        tolerance: "2 %",
        verdict: judged((found / expected - 1.0).abs() <= 0.02),
    }
}

/// Theorem 2: complete decoding.
fn complete(scale: Scale) -> Claim {
    let trials = 10 * scale.trials;
    let whole = DIFFERENCES.map(|d| decoded(2, 4 * d as usize, Ids::Checked16, d, Peeling::UndoAndBan, trials).1);
    // No cycle in a random bipartite graph.
    let expected = 0.75_f64.sqrt();
    let error = (expected * (1.0 - expected) / trials as f64).sqrt();
    let agreed = whole.iter().all(|whole| (whole - expected).abs() <= 3.0 * error);
    let each = DIFFERENCES.iter().zip(whole).map(|(d, whole)| format!("{whole:.3} (d = {d})"));
    Claim {
        id: "A2",
        text: "theorem 2: all of d packets are decoded, two banks of 2 d cells each",
        published: "fails with a probability of the order of d⁻²",
        ours: format!(
            "whole in {} of {trials} runs, whatever d: √(1 − (d/m)²) = {expected:.3}, the probability that a random bipartite graph has no cycle. \
             The proof multiplies the failures of the banks, but a bank alone fails almost surely",
            each.collect::<Vec<_>>().join(", ")
        ),
        tolerance: "refuted if the runs are within three standard errors of that formula at every d",
        verdict: refuted(agreed),
    }
}

fn one_bank(scale: Scale) -> Claim {
    let (named, _) = decoded(1, 1_000, Ids::Checked16, 500, Peeling::UndoAndBan, scale.trials);
    let expected = (-0.499_f64).exp();
    Claim {
        id: "A5",
        text: "share decoded with one bank, 500 packets in 1,000 cells",
        published: "e^(−(d − 1)/m) = 0.607",
        ours: format!("{named:.3}"),
        tolerance: "3 %",
        verdict: judged((named / expected - 1.0).abs() <= 0.03),
    }
}

/// Theorem II.2: cells with several packets that look like one.
fn impure(scale: Scale) -> Claim {
    let (cells, lost, extra, trials) = (1_000_u64, 40, 50, 200 * scale.trials);
    let (mut impure, mut pure) = (0_u64, 0_u64);
    for seed in 0..trials {
        let mut there = vec![(0_u32, 0_i32); cells as usize];
        for number in 0..lost + extra {
            let cell = &mut there[(random(number ^ random(seed)) % cells) as usize];
            cell.0 += 1;
            cell.1 += if number < lost { -1 } else { 1 };
        }
        let one = there.iter().filter(|cell| cell.1.abs() == 1);
        let (alone, several): (Vec<&(u32, i32)>, Vec<_>) = one.partition(|cell| cell.0 == 1);
        pure += alone.len() as u64;
        impure += several.len() as u64;
    }
    let share = |count: u64| count as f64 / (trials * cells) as f64;
    let expected = impure_expected(cells as f64, lost as f64, extra as f64);
    Claim {
        id: "A6",
        text: "theorem II.2: a cell has more than one packet and a difference of one, 1,000 cells, 40 lost and 50 too many",
        published: "0.08 in its example; its formula gives 0.077",
        ours: format!(
            "{:.2e} in {trials} trials, {expected:.2e} by the right formula; {:.3} of the cells are truly pure, which is what 0.08 is near to",
            share(impure),
            share(pure)
        ),
        tolerance: "refuted if both are within 10 % of each other and below 10⁻³",
        verdict: refuted((share(impure) / expected - 1.0).abs() <= 0.1 && expected < 1e-3),
    }
}

/// A cell with a + 1 of one kind and a of the other.
fn impure_expected(cells: f64, lost: f64, extra: f64) -> f64 {
    let packets = lost + extra;
    let (mut sum, mut choices) = (0.0, 1.0);
    for both in 1..10 {
        let a = f64::from(both);
        choices *= (lost - a + 1.0) / a * (extra - a + 1.0) / a;
        sum += (packets - 2.0 * a) / (a + 1.0) / (cells - 1.0).powf(2.0 * a + 1.0) * choices;
    }
    (1.0 - 1.0 / cells).powf(packets) * sum
}
