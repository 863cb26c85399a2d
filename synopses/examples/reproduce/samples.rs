//! The claims on the number of packets in useful buckets (figure 4a).

use crate::claim::{Claim, judged, judged_by_own_bar};
use crate::streams::{Reading, rows};
use crate::sweep::{LOSSES, Sweep, SweepPoint, Sweeps, along, percent, worst};

/// The first point, the least ρ, in each reading.
fn first(sweeps: &Sweeps, loss: f64) -> [SweepPoint; 4] {
    Reading::ROWS.map(|reading| sweeps.of(loss, reading)[0])
}

/// How far the other readings are from the first one.
fn apart(points: &[SweepPoint; 4]) -> f64 {
    points.iter().map(|found| (found.fine.packets / points[0].fine.packets - 1.0).abs()).fold(0.0, f64::max)
}

fn few_displaced(sweeps: &Sweeps) -> [Claim; 2] {
    let [rare, often] = [LOSSES[0], LOSSES[2]].map(|loss| first(sweeps, loss));
    let same =
        |points: &[SweepPoint; 4]| format!("one row: the other readings are within {} of it", percent(apart(points)));
    let off = |found: &SweepPoint| (found.fine.packets / found.expected - 1.0).abs();
    let [most, least] = [rare[0].fine.packets, often[0].fine.packets];
    [
        Claim {
            id: "F1",
            text: "packets in useful buckets, β = 10⁻⁴, few displaced",
            published: "almost 3 million",
            ours: format!(
                "forward: {:.2} million (formula: {:.2}); {}",
                most / 1e6,
                rare[0].expected / 1e6,
                same(&rare)
            ),
            tolerance: "3 % of formula (2), 5 % of 3 million",
            verdict: judged(off(&rare[0]) <= 0.03 && (most / 3e6 - 1.0).abs() <= 0.05),
        },
        Claim {
            id: "F3",
            text: "the same, β = 10⁻²",
            published: "about 40,000",
            ours: format!("forward: {least:.0} (formula: {:.0}); {}", often[0].expected, same(&often)),
            tolerance: "10 %",
            verdict: judged((least / 40_000.0 - 1.0).abs() <= 0.10),
        },
    ]
}

fn thousandth(id: &'static str, reading: Reading, sweep: &Sweep) -> Claim {
    let (least, largest) = (sweep[0], sweep[sweep.len() - 1]);
    let off = worst(sweep, |found| (found.fine.packets / found.expected - 1.0).abs());
    Claim {
        id,
        text: "the same, β = 10⁻³, all ρ",
        published: "a curve, no figures",
        ours: format!(
            "{}: {:.0} at ρ = {:e}, {:.0} at {:e} (formula: {:.0} and {:.0}; at most {} off at all ρ)",
            reading.name(),
            least.fine.packets,
            least.point.share,
            largest.fine.packets,
            largest.point.share,
            least.expected,
            largest.expected,
            percent(off)
        ),
        tolerance: "5 % of formula (2)",
        verdict: judged_by_own_bar(off <= 0.05),
    }
}

fn gain(id: &'static str, reading: Reading, sweeps: &Sweeps) -> Claim {
    let gains =
        LOSSES.map(|loss| along(sweeps.of(loss, reading), |found| found.fine.packets / found.minus.packets - 1.0));
    let all = || gains.iter().flatten().map(|(_, gain)| *gain);
    let (least, most) = (all().fold(f64::MAX, f64::min), all().fold(f64::MIN, f64::max));
    let (within, points) = (all().filter(|gain| (0.15..=0.30).contains(gain)).count(), all().count());
    let told = LOSSES.iter().zip(&gains).map(|(loss, gains)| {
        let each: Vec<String> =
            gains.iter().map(|(share, gain)| format!("{:+.0} % (ρ = {share:e})", 100.0 * gain)).collect();
        format!("β = {loss:e}: {}", each.join(", "))
    });
    Claim {
        id,
        text: "the stash wins useful packets: FineComb beside FineComb−",
        published: "about 15 to 30 % more",
        ours: format!(
            "{}, {}; from 15 to 30 % at {within} of {points} points",
            reading.name(),
            told.collect::<Vec<_>>().join("; ")
        ),
        tolerance: "at least 15 % at some point, nowhere more than 30 % nor less than −2 %",
        verdict: judged((0.15..=0.30).contains(&most) && least > -0.02),
    }
}

pub fn claims(sweeps: &Sweeps) -> Vec<Claim> {
    let mut claims = Vec::from(few_displaced(sweeps));
    claims.extend(rows!("F2").map(|(id, reading)| thousandth(id, reading, sweeps.of(LOSSES[1], reading))));
    claims.extend(rows!("F5").map(|(id, reading)| gain(id, reading, sweeps)));
    claims
}
