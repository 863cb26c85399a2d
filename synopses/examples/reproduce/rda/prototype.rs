//! The prototype: bytes sent, two hosts, and the time of computing.

use std::path::Path;

use serde_json::Value;
use synopses::finecomb::Deviation;
use synopses::rda::{Layout, Reconciliation, Settings, sizing};

use super::decoding::decode_ms;
use super::{Delays, WEIBULL};
use crate::claim::{Claim, Verdict, judged, judged_by_own_bar, judged_on_stand_in};
use crate::interval::Case;
use crate::scale::Scale;
use crate::timing::least_ms;

/// R10: where cells cost as much as sending everything.
pub fn bytes() -> Claim {
    const PACKETS: usize = 100_000;
    // `per` cells of 24 bytes for each of d, and 16 for the time of each that is requested, against 16 for each of n.
    let crossing = |per: usize, requested: fn(usize) -> usize| {
        let more = |d: &usize| sizing::exchanged_bytes(per * d, requested(*d)) > sizing::direct_bytes(PACKETS);
        (1..PACKETS).find(more).unwrap_or(0) as f64 / PACKETS as f64
    };
    let (four, two) = (crossing(4, |_| 0), crossing(2, |_| 0));
    let half = |d| d / 2;
    Claim {
        id: "R10",
        text: "from which share of differences on sending all ids and times takes fewer bytes, with four and two cells for each; also property A12",
        published: "0.17 (0.2 in one plot) and 0.34",
        ours: format!(
            "{four:.3} and {two:.3}; {:.3} and {:.3} if the times of half of them are requested, which the publication does not count",
            crossing(4, half),
            crossing(2, half)
        ),
        tolerance: "1/6 and 1/3",
        verdict: judged((four - 1.0 / 6.0).abs() < 1e-3 && (two - 1.0 / 3.0).abs() < 1e-3),
    }
}

/// What two agents measured, each in a network namespace.
struct TwoAgents {
    /// Traffic and link, in words.
    conditions: String,
    /// Without a flag, and all.
    intervals: (u64, u64),
    packets_per_second: f64,
    mbits_per_second: f64,
    mean_us: f64,
    mean_error: f64,
    deviation_error: f64,
    exchange_ms: f64,
    slowest_exchange_ms: f64,
    after_end_ms: f64,
}

impl TwoAgents {
    /// Reads what the test wrote.
    ///
    /// # Errors
    ///
    /// What is missing, in words.
    fn read(file: Option<&Path>) -> Result<Self, String> {
        let Some(file) = file else {
            return Err("needs the figures of two agents (`--two-agents FILE`), which `cargo lab reproduce rda` makes as root with `ip`"
                .to_owned());
        };
        let text =
            std::fs::read_to_string(file).map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
        let found: Value = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        if let Some(missing) = found["missing"].as_str() {
            return Err(format!("needs {missing}"));
        }
        if found["release"] != true {
            return Err("needs agents of a release build".to_owned());
        }
        let number = |name: &str| found[name].as_f64().ok_or_else(|| format!("{} lacks {name}", file.display()));
        Ok(Self {
            conditions: found["conditions"].as_str().unwrap_or_default().to_owned(),
            intervals: (number("intervals")? as u64, number("of_intervals")? as u64),
            packets_per_second: number("packets_per_second")?,
            mbits_per_second: number("mbits_per_second")?,
            mean_us: number("mean_us")?,
            mean_error: number("mean_error")?,
            deviation_error: number("deviation_error")?,
            exchange_ms: number("exchange_ms")?,
            slowest_exchange_ms: number("slowest_exchange_ms")?,
            after_end_ms: number("after_end_ms")?,
        })
    }
}

/// R11: the whole pipeline; and its time as it is if the wait for late packets is counted.
pub fn two_agents(file: Option<&Path>) -> [Claim; 2] {
    let found = TwoAgents::read(file);
    let ours = |of: &dyn Fn(&TwoAgents) -> String| found.as_ref().map_or_else(Clone::clone, of);
    let verdict = |judge: fn(&TwoAgents) -> Verdict| found.as_ref().map_or(Verdict::NotComputable, judge);
    [
        Claim {
            id: "R11",
            text: "two hosts, 940 Mb/s of five TCP connections, intervals of a second: errors of mean and deviation, time to a result",
            published: "10⁻⁷ to 10⁻⁸; 0.01 to 0.1; about 20 ms for sending cells, decoding, times of missing packets, erasing and computing",
            ours: ours(&|agents| {
                format!(
                    "{:.0e}; {:.3}; {:.1} ms from the end of the grace period, when the exchange begins, to the result, {:.1} at most (medians at the sender of {} of \
                     {} intervals, the others have a flag). In place of two hosts: two agents of a release build in network namespaces of one machine with one clock; {}, \
                     {:.0} packets and {:.0} Mb in a second, delays of {:.0} µs",
                    agents.mean_error,
                    agents.deviation_error,
                    agents.exchange_ms,
                    agents.slowest_exchange_ms,
                    agents.intervals.0,
                    agents.intervals.1,
                    agents.conditions,
                    agents.packets_per_second,
                    agents.mbits_per_second,
                    agents.mean_us
                )
            }),
            tolerance: "published: 10⁻⁷; 0.1; 20 ms. Ours: 10⁻⁶; 0.1; 50 ms",
            verdict: verdict(|agents| {
                let within = |mean: f64, ms: f64| {
                    agents.mean_error <= mean && agents.deviation_error <= 0.1 && agents.exchange_ms <= ms
                };
                if within(1e-7, 20.0) { judged_on_stand_in(true) } else { judged_by_own_bar(within(1e-6, 50.0)) }
            }),
        },
        Claim {
            id: "R11-end",
            text: "the same, time from the interval's own end to its final result",
            published: "as R11",
            ours: ours(&|agents| {
                format!(
                    "{:.0} ms: ours waits 60 ms for packets that the kernel still has, and for the next interval, which tells late packets from lost ones",
                    agents.after_end_ms
                )
            }),
            tolerance: "ours: 50 ms",
            verdict: verdict(|agents| judged_by_own_bar(agents.after_end_ms <= 50.0)),
        },
    ]
}

/// R12: a ping.
pub fn ping() -> Claim {
    Claim {
        id: "R12",
        text: "half of a ping beside it",
        published: "0.075 ms for a mean of 0.05 ms",
        ours: "needs two hosts at one switch, with clocks that are synchronised to microseconds: in one machine a ping takes no wire".to_owned(),
        tolerance: "none here",
        verdict: Verdict::NotComputable,
    }
}

/// Cells in all, and the packets that they hold.
const SIZES: [usize; 5] = [5_000, 10_000, 20_000, 40_000, 80_000];
const PACKETS: u64 = 100_000;

/// The exponent b of time ~ cellsᵇ, by least squares of the logarithms.
fn exponent(times: &[f64]) -> f64 {
    let points: Vec<(f64, f64)> =
        SIZES.iter().zip(times).map(|(cells, time)| ((*cells as f64).ln(), time.ln())).collect();
    let count = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0 / count, sum.1 + point.1 / count));
    let squares: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>() / squares
}

fn list(times: &[f64]) -> String {
    SIZES.iter().zip(times).map(|(cells, time)| format!("{time:.2} ({cells})")).collect::<Vec<_>>().join(", ")
}

/// Milliseconds for an estimate from repaired cells, with `differences` erased.
fn estimate_ms(layout: Layout, cells: usize, differences: u64) -> f64 {
    let delays = Delays::weibull(WEIBULL.0, WEIBULL.1);
    let case = Case::new(PACKETS, differences / 2, differences / 2, &delays, 1);
    let exchange: Reconciliation = case.reconcile(&Settings { layout, ..Settings::paper(cells / 2, 1) });
    least_ms(21, || {
        std::hint::black_box(exchange.estimate(Deviation::Selective));
    })
}

/// R13: computing by number of cells. How a time grows with a size is judged by the full form only: caches that others
/// use, too, bend it.
pub fn scaling(scale: Scale) -> Vec<Claim> {
    // Pairs of a flat layout say nothing, so that only its mean is computed.
    let means = SIZES.map(|cells| estimate_ms(Layout::Flat, cells, 0));
    let both = SIZES.map(|cells| estimate_ms(Layout::Banks, cells, 0));
    let decoding = SIZES.map(|cells| decode_ms(cells, PACKETS, cells as u64 / 4));
    let erasing = SIZES.map(|cells| estimate_ms(Layout::Banks, cells, cells as u64 / 4));
    let all: Vec<f64> = decoding.iter().zip(erasing).map(|(decode, rest)| decode + rest).collect();
    let (mean, deviation, whole) = (exponent(&means), exponent(&both), exponent(&all));
    let linear = |exponent: f64| (0.8..=1.2).contains(&exponent);
    vec![
        Claim {
            id: "R13",
            text: "milliseconds for the mean by number of repaired cells",
            published: "3 for 20,000 cells, linear",
            ours: format!(
                "{}: like the {mean:.2}th power (with a flat layout, whose deviation is not computed)",
                list(&means)
            ),
            tolerance: "at most 3 for 20,000 cells; linear: the 0.8th to 1.2th power",
            verdict: judged(means[2] <= 3.0 && (linear(mean) || !scale.full)),
        },
        Claim {
            id: "R13b",
            text: "milliseconds for mean and deviation by number of repaired cells",
            published: "more than linear, since it takes several passes (the text of its algorithm says O(k m))",
            ours: format!("{}: like the {deviation:.2}th power", list(&both)),
            tolerance: "above the 1.2th power",
            verdict: judged(deviation > 1.2),
        },
        Claim {
            id: "R13-all",
            text: "milliseconds for decoding, erasing, mean and deviation, a difference for every four cells",
            published: "no figure",
            ours: format!(
                "{}: like the {whole:.2}th power, since a large cache of packets is looked up for each of them",
                list(&all)
            ),
            tolerance: "ours: at most 3 for 20,000 cells",
            verdict: judged_by_own_bar(all[2] <= 3.0),
        },
        Claim {
            id: "R13c",
            text: "time of sending cells, and records of missing packets",
            published: "grows modestly with the cells, linearly with the records",
            ours: "needs two hosts and a link of 1 Gb/s: between namespaces of one machine nothing is sent".to_owned(),
            tolerance: "none here",
            verdict: Verdict::NotComputable,
        },
    ]
}
