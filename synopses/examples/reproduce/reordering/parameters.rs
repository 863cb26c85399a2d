//! The parameters T, C and d.

use plotters::prelude::SeriesLabelPosition;
use synopses::reordering::{Definition, Settings, Split};

use super::Bench;
use super::measure::{Case, PUBLISHED};
use super::traffic::Profile;
use crate::claim::{Claim, judged_on_stand_in};
use crate::plot::{Axis, Figure, Line};

/// Logarithms of T in seconds.
const TIMEOUTS: [i32; 10] = [-17, -15, -13, -11, -9, -7, -5, -3, -1, 1];

/// The claims R7 and R8, and a figure.
pub fn claims(bench: &Bench) -> (Vec<Claim>, Figure) {
    let cases: Vec<Case> =
        (1..=Bench::cases()).map(|seed| Case::new(Profile::R3, seed, &[Definition::BelowPredecessor])).collect();
    let of = |most_packets| -> Vec<(i32, f64, f64)> {
        let point = |power: i32| {
            let timeout_ns = (2.0_f64.powi(power) * 1e9) as u64;
            let found = bench.quality(&cases, Settings { timeout_ns, most_packets, ..PUBLISHED });
            (power, found.accuracy, found.admitted)
        };
        TIMEOUTS.into_iter().filter(|power| bench.full || [-15, -13, -1].contains(power)).map(point).collect()
    };
    let (endless, short) = (of(u16::MAX), of(PUBLISHED.most_packets));
    let line = |name, points: &[(i32, f64, f64)]| Line {
        name,
        points: points.iter().map(|(power, accuracy, _)| (f64::from(*power), *accuracy)).collect(),
    };
    let figure = Figure {
        file: "reordering-timeout.svg",
        caption: "Accuracy by the timeout T, 2,048 prefixes in 256 buckets (R3)",
        x: Axis { title: "logarithm of T in seconds to the base 2", logarithmic: false, least: -17.0, most: 1.0 },
        y: Axis { title: "accuracy", logarithmic: false, least: 0.0, most: 1.0 },
        legend: SeriesLabelPosition::LowerLeft,
        lines: vec![line("C = 16", &short), line("no limit C", &endless)],
    };
    (vec![timeout(&endless, &short), stages(bench, &cases)], figure)
}

fn timeout(endless: &[(i32, f64, f64)], short: &[(i32, f64, f64)]) -> Claim {
    let list = |points: &[(i32, f64, f64)]| {
        points.iter().map(|(power, accuracy, _)| format!("{accuracy:.2} ({power})")).collect::<Vec<_>>().join(", ")
    };
    let at = |wanted: i32| endless.iter().find(|(power, ..)| *power == wanted).expect("a point of the sweep").1;
    let admitted = short.iter().find(|(power, ..)| *power == -15).expect("a point of the sweep").2;
    let apart = endless.iter().zip(short).map(|(without, with)| with.1 - without.1).fold(0.0_f64, f64::max);
    Claim {
        id: "R7",
        text: "timeout T, 256 buckets for 2,048 prefixes (R3), without a limit C and with 16",
        published: "a small T is what matters, C is secondary (a figure)",
        ours: format!(
            "by log₂ T: {}; with C = 16 {}, at most {apart:.2} more; then {:.1} % of the packets are first ones of admitted flows (T = 2⁻¹⁵)",
            list(endless),
            list(short),
            100.0 * admitted
        ),
        tolerance: "without C at most half as accurate with T = 2⁻¹ as with 2⁻¹³",
        verdict: judged_on_stand_in(at(-1) <= at(-13) / 2.0),
    }
}

fn stages(bench: &Bench, cases: &[Case]) -> Claim {
    let of = |buckets| {
        [2, 3, 4, 5].map(|stages| {
            bench.quality(cases, Settings { buckets, stages, split: Split::HeavyOnly, ..PUBLISHED }).accuracy
        })
    };
    let (few, many) = (of(256), of(4_096));
    let spread = |found: [f64; 4]| found.into_iter().fold(0.0, f64::max) - found.into_iter().fold(1.0, f64::min);
    let list = |found: [f64; 4]| found.map(|accuracy| format!("{accuracy:.3}")).join(", ");
    // Two against the mean of the others.
    let fewer_better = few[0] >= few[1..].iter().sum::<f64>() / 3.0;
    let more_better = many[0] <= many[1..].iter().sum::<f64>() / 3.0;
    Claim {
        id: "R8",
        text: "two to five stages of heavy flows alone, with 256 and 4,096 buckets (R3)",
        published: "little difference; fewer stages slightly better with little memory, more with much (a figure)",
        ours: format!("{}; {}", list(few), list(many)),
        tolerance: "a spread of at most 0.1; two stages not below the mean of the others with 256, not above it with 4,096",
        verdict: judged_on_stand_in(spread(few) <= 0.1 && spread(many) <= 0.1 && fewer_better && more_better),
    }
}
