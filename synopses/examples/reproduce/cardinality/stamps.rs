//! C11 to C13: the saw tooth of TS-PCSA, and bits of time stamps.

use std::f64::consts::TAU;

use plotters::prelude::SeriesLabelPosition;
use synopses::cardinality::{Cardinality, Hash, Pruning, Rounding, Settings, TsPcsa, TsPcsaSettings};
use synopses::digest::Digest;

use super::bench::{Random, mean, mean_absolute, percent, positions};
use crate::claim::{Claim, judged, judged_by_own_bar, judged_on_stand_in};
use crate::plot::{Axis, Figure, Line};
use crate::scale::Scale;

const WINDOW_NS: u64 = 1 << 30;
/// Slots per window of C11 and C12, which is 16 per second of a window of one second.
const SLOTS: u64 = 16;
/// Flows per window of C11 and C12.
const FLOWS: u64 = 100_000;
/// Estimates per slot.
const POINTS: u64 = 40;

fn settings(registers: usize, slots: u64, items: u64, offsets: bool, seed: u64) -> TsPcsaSettings {
    let common = Settings { registers, window_ns: WINDOW_NS, start_ns: 0, hash: Hash::Seeded(seed) };
    let settings = TsPcsaSettings {
        positions: positions(items as f64, registers),
        slot_ns: WINDOW_NS / slots,
        offsets,
        pruning: Pruning::ByTimer,
        prune_ns: WINDOW_NS / 4,
        ..TsPcsaSettings::plus(common)
    };
    TsPcsaSettings { bits: settings.least_bits().expect("slots are not 0"), ..settings }
}

/// Mean error at each point of one window, of flows that come at equal distances.
fn curve(rounding: Rounding, offsets: bool, runs: u64) -> Vec<f64> {
    let points = SLOTS * POINTS;
    let mut sums = vec![0.0; points as usize];
    for seed in 0..runs {
        let settings = TsPcsaSettings { rounding, ..settings(256, SLOTS, FLOWS, offsets, seed) };
        let mut synopsis = TsPcsa::new(settings).expect("possible");
        let (mut item, mut pruned_ns) = (0, 0);
        for (sum, point) in sums.iter_mut().zip(0..) {
            let now_ns = 2 * WINDOW_NS + point * (WINDOW_NS / points);
            while item * WINDOW_NS / FLOWS <= now_ns {
                let at_ns = item * WINDOW_NS / FLOWS;
                if at_ns >= pruned_ns + WINDOW_NS / 8 {
                    synopsis.prune(at_ns);
                    pruned_ns = at_ns;
                }
                synopsis.insert(Digest(item), at_ns);
                item += 1;
            }
            let count = synopsis.estimate(now_ns, WINDOW_NS).expect("a possible window").count;
            *sum += (count / FLOWS as f64 - 1.0) / runs as f64;
        }
    }
    sums
}

/// The mean of all slots, point by point.
fn folded(curve: &[f64]) -> Vec<f64> {
    let of = |point: usize| mean(&curve.iter().copied().skip(point).step_by(POINTS as usize).collect::<Vec<_>>());
    (0..POINTS as usize).map(of).collect()
}

fn ends(curve: &[f64]) -> (f64, f64) {
    (curve.iter().copied().fold(f64::MAX, f64::min), curve.iter().copied().fold(f64::MIN, f64::max))
}

/// The frequency with the largest amplitude, from 2 to 64 per window.
fn peaks(curve: &[f64]) -> u32 {
    let amplitude = |frequency: u32| {
        let turn = |at: usize| TAU * f64::from(frequency) * at as f64 / curve.len() as f64;
        let (sine, cosine) = curve.iter().enumerate().fold((0.0, 0.0), |(sine, cosine), (at, value)| {
            (sine + value * turn(at).sin(), cosine + value * turn(at).cos())
        });
        sine.hypot(cosine)
    };
    (2..=64).max_by(|one, other| amplitude(*one).total_cmp(&amplitude(*other))).unwrap_or_default()
}

/// Mean absolute errors at random moments by slots per window, without and with offsets.
struct Precision {
    registers: usize,
    /// Bits of a time stamp; errors without and with offsets.
    by_bits: Vec<(u32, [f64; 2])>,
    /// With slots of a thousandth of the window.
    ideal: f64,
}

/// Slots per window: four to eight bits with a prune period of a quarter of the window.
const SLOT_NUMBERS: [u64; 5] = [4, 8, 16, 32, 64];
const LOAD: u64 = 64;

impl Precision {
    fn new(registers: usize, runs: u64) -> Self {
        let items = LOAD * registers as u64;
        let mut errors = vec![Vec::new(); 2 * SLOT_NUMBERS.len() + 1];
        let mut bits = Vec::new();
        for seed in 0..runs {
            let all: Vec<_> = SLOT_NUMBERS
                .iter()
                .flat_map(|slots| [false, true].map(|offsets| settings(registers, *slots, items, offsets, seed)))
                .chain([settings(registers, 1 << 10, items, false, seed)])
                .collect();
            bits = all.iter().map(|settings| settings.bits).collect();
            let mut random = Random::new(seed + 1);
            let end_ns = 2 * WINDOW_NS + (random.uniform() * WINDOW_NS as f64) as u64;
            for (errors, settings) in errors.iter_mut().zip(all) {
                let mut synopsis = TsPcsa::new(settings).expect("possible");
                for item in 0.. {
                    let at_ns = item * WINDOW_NS / items;
                    if at_ns > end_ns {
                        break;
                    }
                    if item.is_multiple_of(items / 8) {
                        synopsis.prune(at_ns);
                    }
                    synopsis.insert(Digest(item), at_ns);
                }
                let count = synopsis.estimate(end_ns, WINDOW_NS).expect("a possible window").count;
                errors.push(count / items as f64 - 1.0);
            }
        }
        let means: Vec<f64> = errors.iter().map(|errors| mean_absolute(errors)).collect();
        let (pairs, ideal) = means.split_at(2 * SLOT_NUMBERS.len());
        let by_bits = bits.as_chunks::<2>().0.iter().zip(pairs.as_chunks().0).map(|(bits, pair)| (bits[0], *pair));
        Self { registers, by_bits: by_bits.collect(), ideal: ideal[0] }
    }

    /// The fewest bits with an error of at most `most`, without (0) or with (1) offsets.
    fn bits(&self, kind: usize, most: f64) -> Option<u32> {
        self.by_bits.iter().find(|(_, errors)| errors[kind] <= most).map(|(bits, _)| *bits)
    }

    fn error(&self, bits: u32, kind: usize) -> f64 {
        self.by_bits.iter().find(|(found, _)| *found == bits).map_or(f64::NAN, |(_, errors)| errors[kind])
    }
}

pub fn claims(scale: Scale) -> (Vec<Claim>, Figure) {
    let runs = if scale.full { 200 } else { 60 };
    let [closest, up, down] =
        [Rounding::Closest, Rounding::Up, Rounding::Down].map(|rounding| curve(rounding, false, runs));
    let smooth = curve(Rounding::Closest, true, runs);
    let ranges = [&closest, &up, &down].map(|curve| ends(&folded(curve)));
    let range = |(least, most): (f64, f64)| format!("{} to {}", percent(least), percent(most));
    let numbers = [&closest, &up, &down].map(|curve| peaks(curve));
    let heights = ranges.map(|(least, most)| most - least);
    let (smooth_least, smooth_most) = ends(&folded(&smooth));
    let mut claims = vec![
        Claim {
            id: "C11",
            text: "figure 2.17: TS-PCSA of 256 registers, τ = 1/16 s, flows at equal distances: a saw tooth (rounding to the closest slot, up, down). W = 1 s \
                   and 100,000 flows/s are ours, and b = 6, since 5 bits are too few for that window",
            published: "16 peaks per second with 5 bits; up only over-estimates, down only under-estimates",
            ours: format!("{:?} peaks; {}; {}; {}", numbers, range(ranges[0]), range(ranges[1]), range(ranges[2])),
            tolerance: "16 peaks each, from peak to peak 5 to 7.5 % (τ/W is 6.25 %), up and down at most 1 % on the other side of 0",
            verdict: judged_by_own_bar(
                numbers == [16; 3]
                    && heights.iter().all(|height| (0.05..=0.075).contains(height))
                    && ranges[1].0 >= -0.01
                    && ranges[2].1 <= 0.01,
            ),
        },
        Claim {
            id: "C12",
            text: "figure 2.18: the same with TS-PCSA+, offsets in steps of τ/(m − 1)",
            published: "smooth",
            ours: format!("{:.2} % from peak to peak", 100.0 * (smooth_most - smooth_least)),
            tolerance: "below 1 %",
            verdict: judged(smooth_most - smooth_least < 0.01),
        },
    ];
    claims.extend(bits(scale));
    let line = |name, curve: &[f64]| Line {
        name,
        points: curve
            .iter()
            .take(4 * POINTS as usize)
            .zip(0..)
            .map(|(error, point)| (f64::from(point) / POINTS as f64, 100.0 * error))
            .collect(),
    };
    let figure = Figure {
        file: "cardinality-saw-tooth.svg",
        caption: "Error of TS-PCSA and TS-PCSA+ over four slots, 16 slots per window, 256 registers",
        x: Axis { title: "time in slots", logarithmic: false, least: 0.0, most: 4.0 },
        y: Axis { title: "error in per cent", logarithmic: false, least: -8.0, most: 8.0 },
        legend: SeriesLabelPosition::LowerRight,
        lines: vec![
            line("rounded to the closest slot", &closest),
            line("rounded up", &up),
            line("rounded down", &down),
            line("with offsets", &smooth),
        ],
    };
    (claims, figure)
}

/// C13 and its readings.
fn bits(scale: Scale) -> Vec<Claim> {
    let runs = if scale.full { 1_000 } else { 300 };
    let found = [64, 128, 256, 512].map(|registers| Precision::new(registers, runs));
    let rows = found.iter().map(|one| {
        let errors = one
            .by_bits
            .iter()
            .map(|(bits, [plain, offsets])| format!("{:.1}/{:.1} % ({bits} bits)", 100.0 * plain, 100.0 * offsets));
        format!("m = {}: {}, ideal {:.1} %", one.registers, errors.collect::<Vec<_>>().join(", "), 100.0 * one.ideal)
    });
    let rows: Vec<_> = rows.collect();
    let is_flat = found.iter().all(|one| one.error(5, 1) <= 1.1 * one.ideal);
    let needed = found.iter().filter(|one| one.registers >= 256).map(|one| {
        let of = |kind| one.bits(kind, 1.12 * one.ideal).map_or(f64::NAN, f64::from);
        (one.registers, of(0), of(1))
    });
    let needed: Vec<_> = needed.collect();
    let least = needed.iter().map(|(_, plain, offsets)| plain / offsets).fold(f64::MAX, f64::min);
    let below_ten = found.iter().map(|one| [0, 1].map(|kind| one.bits(kind, 0.1)));
    let below_ten: Vec<_> = below_ten.collect();
    let saved = below_ten.iter().map(|pair| match pair {
        [Some(plain), Some(offsets)] => 1.0 - f64::from(*offsets) / f64::from(*plain),
        _ => 0.0,
    });
    let saved = saved.fold(0.0, f64::max);
    let bits = |bits: Option<u32>| bits.map_or_else(|| "more".to_owned(), |bits| bits.to_string());
    let below: Vec<_> =
        below_ten.iter().map(|[plain, offsets]| format!("{} and {}", bits(*plain), bits(*offsets))).collect();
    let needs = |(registers, plain, offsets): &(usize, f64, f64)| format!("m = {registers}: {plain} and {offsets}");
    vec![
        Claim {
            id: "C13",
            text: "figure 2.19: bits of a time stamp that TS-PCSA and TS-PCSA+ need for an error below 10 %; 64 to 512 registers, 64 flows per register at \
                   equal distances in place of a trace, random moments. 4 to 8 bits are 4 to 64 slots per window, with a prune period of W/4, which is ours",
            published: "TS-PCSA+ needs up to 38 % fewer (5 in place of 8)",
            ours: format!("up to {:.0} % fewer; {} (64 to 512 registers)", 100.0 * saved, below.join(", ")),
            tolerance: "at least 33 % fewer at some number of registers, as 4 in place of 6 would be",
            verdict: judged_on_stand_in(saved >= 0.33),
        },
        Claim {
            id: "C13-flat",
            text: "the same: errors of TS-PCSA/TS-PCSA+ by bits; with five bits TS-PCSA+ is as good as with ideal time stamps",
            published: "flat from 5 bits on; 32 bits are no better",
            ours: rows.join("; "),
            tolerance: "with 5 bits within 10 % of the error with ideal time stamps",
            verdict: judged_on_stand_in(is_flat),
        },
        Claim {
            id: "C13-near",
            text: "the same: bits for an error within 12 % of that with ideal time stamps, 256 and 512 registers",
            published: "no figure",
            ours: needed.iter().map(needs).collect::<Vec<_>>().join("; "),
            tolerance: "ours: TS-PCSA needs at least 1.3 times the bits of TS-PCSA+",
            verdict: judged_by_own_bar(least >= 1.3),
        },
    ]
}
