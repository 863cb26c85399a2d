//! FineComb with four banks on a synthetic stand-in for the trace.

use synopses::finecomb::{Deviation, Rule, Settings};

use crate::claim::{Claim, judged};
use crate::finecomb::SPREAD;
use crate::scale::Scale;
use crate::streams::{Loss, Reading, Stream, play, random};
use crate::sweep::{Errors, displaced, each, estimate, list, percent};

/// Shares of lost packets of the trace's twelve intervals.
pub const TRACE: [f64; 12] = [0.0, 0.0, 0.0, 0.0, 3e-4, 6e-4, 6e-4, 1e-3, 4e-3, 6e-3, 6.5e-3, 9.6e-3];
/// Packets of one of them.
pub const TRACE_PACKETS: u64 = 200_000;
/// Number of intervals with lost packets.
const LOSSY: f64 = 8.0;
/// Nanoseconds between packets: 2.4 million in 150 s.
pub const TRACE_SPACING_NS: u64 = 62_500;

/// Correlated delays of 3 to 30 ms, like those of a queue.
pub fn queue() -> Vec<u64> {
    let mut level = 0.0_f64;
    let step = |number: u64| {
        let gaussian = (0..12).map(|part| random(number * 12 + part) as f64 / u64::MAX as f64).sum::<f64>() - 6.0;
        level = 0.999 * level + 0.25 * gaussian;
        ((2.0 + (10.0 + level).clamp(1.0, 28.0)) * 1e6) as u64
    };
    (0..TRACE_PACKETS).map(step).collect()
}

/// Errors at one ρ.
struct TracePoint {
    share: f64,
    mean: f64,
    /// Over the intervals in which something is lost.
    loss: f64,
    /// The largest, of the numbers of all packets.
    in_all: f64,
}

/// Four banks of `memory` buckets and stash entries.
fn along(reading: Reading, memory: usize, scale: Scale) -> Vec<TracePoint> {
    let queue = queue();
    let draw = |number: u64, _| queue[(number % TRACE_PACKETS) as usize];
    let at = |share: f64| {
        let runs = each(scale.runs, |run| {
            let (mut errors, mut loss, mut in_all) = (Errors::default(), 0.0, 0.0_f64);
            for (number, lost) in (0..).zip(TRACE) {
                let seed = run * TRACE.len() as u64 + number;
                let settings = Settings::four_banks(memory, TRACE_PACKETS as f64, SPREAD, seed);
                let stream = Stream {
                    packets: TRACE_PACKETS,
                    spacing_ns: TRACE_SPACING_NS,
                    loss: Loss::Share(lost),
                    displaced: reading.of(displaced(TRACE_PACKETS, share)),
                    delays: &draw,
                    seed,
                };
                let (ends, truth) = play(&stream, &[settings]);
                let found = estimate(&ends[0], Rule::FineComb, Deviation::Centred);
                errors.add(&found, &truth, TRACE.len() as u64);
                if truth.lost > 0 {
                    let lost = truth.lost as f64 / (truth.lost + truth.arrived) as f64;
                    loss += (found.loss.unwrap_or(0.0) / lost - 1.0).abs() / LOSSY;
                    in_all = in_all.max((found.loss_in_all.unwrap_or(0.0) / lost - 1.0).abs());
                }
            }
            (errors.mean, loss, in_all)
        });
        let of = |of: fn(&(f64, f64, f64)) -> f64| runs.iter().map(of).sum::<f64>() / scale.runs as f64;
        let in_all = runs.iter().map(|run| run.2).fold(0.0, f64::max);
        TracePoint { share, mean: of(|run| run.0), loss: of(|run| run.1), in_all }
    };
    scale.of(&[4e-4, 2.4e-3, 8e-3, 1.6e-2, 4e-2]).into_iter().map(at).collect()
}

pub fn claims(scale: Scale) -> Vec<Claim> {
    let [all, late, large] = [(Reading::All, 1_000), (Reading::Forward, 1_000), (Reading::Forward, 2_000)]
        .map(|(reading, memory)| along(reading, memory, scale));
    let losses = |found: &[TracePoint]| list(found.iter().map(|found| (found.share, found.loss)));
    let means = |found: &[TracePoint]| list(found.iter().map(|found| (found.share, found.mean)));
    let mild = large.iter().filter(|found| found.share <= 1.6e-2).map(|found| found.loss).fold(0.0, f64::max);
    vec![
        Claim {
            id: "F16",
            text: "four banks, trace: mean delay",
            published: "below 1 %",
            ours: format!("on all sides {}; forward {}", means(&all), means(&late)),
            tolerance: "at most 2 % in both",
            verdict: judged(all.iter().chain(&late).all(|found| found.mean <= 0.02)),
        },
        Claim {
            id: "F17",
            text: "four banks, trace: loss, packets displaced *forward* as the figure's caption says",
            published: "below 20 % up to ρ = 0.016, then about 55 %",
            ours: format!(
                "2,000 buckets, as in F15: {}; 1,000: {}. Sampling alone leaves that much: of 60 lost packets the bank that bears ρ = 0.04 \
                 samples one or two. On all sides at once (1,000) it is {}: every bank's stash is made for a ρ, and what of another one is \
                 left over counts as lost. From the numbers of all packets (`loss_in_all`), in which displaced ones cancel out there, at most {}",
                losses(&large),
                losses(&late),
                losses(&all),
                percent(all.iter().map(|found| found.in_all).fold(0.0, f64::max))
            ),
            tolerance: "at most 30 % up to 0.016, forward, with 2,000 buckets",
            verdict: judged(mild <= 0.30),
        },
    ]
}
