//! Weights, counters, tables and histograms.

use synopses::digest::Digest;
use synopses::encoding::{Kind, seal};
use synopses::fridge::{
    CorrectionTable, Counter, Fridge, Histogram, HistogramShape, Report, Sample, Settings, TableShape,
};

use super::simulation::{Shape, Trace, own};
use crate::claim::{Claim, judged, judged_by_own_bar};

/// Largest relative error of a weight: it is computed as the exponential of a logarithm.
const MAX_ROUNDING: f64 = 1e-9;

fn reports(trace: &Trace, settings: Settings) -> Vec<Report> {
    let mut fridge = Fridge::new(settings).expect("possible");
    trace.play(&mut fridge, Fridge::insert, Fridge::match_response)
}

/// A7: weights by x.
fn weights() -> Claim {
    let (slots, probability) = (4_096, 0.25);
    let trace = Trace::new(Shape::of_lifetimes(slots, probability, 0.4), 7);
    // In both units a lifetime: so many that entered, so many that came.
    let counters = [(Counter::Accepted, 1.0, 4_096), (Counter::Arrivals, probability, 16_384)];
    let (mut rounding, mut rising, mut unsurvived) = (0.0_f64, true, 0);
    let lifetime = counters.map(|(counter, entering, lifetime)| {
        let mut reports = reports(&trace, Settings { slots, probability, counter, ..Settings::default() });
        reports.sort_by_key(|report| report.insertions);
        let next = reports.iter().zip(&reports[1..]);
        rising &=
            next.into_iter().all(|(one, next)| (one.weight() < next.weight()) == (one.insertions < next.insertions));
        for report in &reports {
            let exact = (1.0 - entering / slots as f64).powi(-(report.insertions as i32)) / probability;
            rounding = rounding.max((report.weight() / exact - 1.0).abs());
            unsurvived +=
                u32::from(report.insertions == 0 && (report.weight() * probability - 1.0).abs() < MAX_ROUNDING);
        }
        let nearest = reports.iter().min_by_key(|report| report.insertions.abs_diff(lifetime));
        nearest.map_or((0, 0.0), |report| (report.insertions, report.weight() * probability))
    });
    let tiny = reports(&Trace::new(Shape::new(200_000, 20, 0.4), 7), Settings { slots: 2, ..Settings::default() });
    let twos = tiny.iter().map(|report| (report.weight() / f64::from(report.insertions).exp2() - 1.0).abs());
    let (twos, most) = (twos.fold(0.0, f64::max), tiny.iter().map(|report| report.insertions).max().unwrap_or(0));
    let typical = lifetime.iter().all(|(_, weight)| (weight / std::f64::consts::E - 1.0).abs() < 0.01);
    let [accepted, arrivals] = lifetime.map(|(x, weight)| format!("{weight:.4}/p at x = {x}"));
    Claim {
        id: "A7",
        text: "a sample with x = 0 weighs 1/p; weights rise with x; with M = 2 and p = 1 they are 2ˣ; a sample of a lifetime weighs about e/p",
        published: "equation 1; e/p in section 3.2",
        ours: format!(
            "M = 2¹², p = 1/4: {unsurvived} samples with x = 0 weigh 1/p, all rise: {}; {accepted} of those that entered, {arrivals} of all (e is \
             2.7183); at most {rounding:.0e} off the formula. M = 2: up to x = {most} at most {twos:.0e} off 2ˣ",
            if rising { "yes" } else { "no" }
        ),
        tolerance: "10⁻⁹ at x ≥ 10 at least, and 1 % of e/p",
        verdict: judged(unsurvived > 0 && rising && typical && rounding.max(twos) < MAX_ROUNDING && most >= 10),
    }
}

/// A fridge with a counter that is about to wrap.
fn restored(settings: Settings, insertions: u64) -> Fridge {
    let mut bytes = Fridge::new(settings).expect("possible").encode();
    let place = counter_place(settings.slots);
    bytes[place..place + 8].copy_from_slice(&insertions.to_le_bytes());
    let sealed = seal(Kind::Fridge, &bytes[HEAD..]);
    Fridge::decode(&sealed, settings.slots).expect("only the counter is changed")
}

/// Length of an encoding's header.
const HEAD: usize = 14;

/// Where an encoding has the counter: after M, 7 bits a byte, and p, four codes and the seed.
const fn counter_place(slots: usize) -> usize {
    HEAD + slots.ilog2() as usize / 7 + 1 + 8 + 4 + 8
}

/// A8: wrapping counters and clocks.
fn wraps() -> Claim {
    let (settings, requests) = (Settings { slots: 256, ..Settings::default() }, 2_000);
    let run = |insertions: u64, start_ns: u64| {
        let mut fridge = restored(settings, insertions);
        let mut reports = Vec::new();
        for number in 0..requests {
            let now = start_ns + number * 1_000_000;
            fridge.insert(Digest(number), now);
            if let Some(asked) = number.checked_sub(100) {
                reports.extend(fridge.match_response(Digest(asked), now + 512));
            }
        }
        let place = counter_place(settings.slots);
        let end = fridge.encode()[place..place + 8].try_into().map_or(0, u64::from_le_bytes);
        (reports, end - insertions == fridge.tally().admitted)
    };
    let (plain, counted) = run(0, 0);
    // Each wraps after some fifty requests.
    let (counter, tick) = ((1 << 32) - 50, ((1 << 32) - 50_000) << 10);
    let others = [(0, 123_456 << 10), (counter, 0), (0, tick), (counter, tick)].map(|(from, at)| run(from, at));
    let same = others.iter().filter(|(reports, counted)| *reports == plain && *counted).count();
    Claim {
        id: "A8",
        text: "where the counter and the clock begin does not matter, nor do their wraps at 2³²",
        published: "not stated",
        ours: format!(
            "{same} of 4 runs (later, counter from 2³² − 50, clock from 2³² − 50,000 ticks, both) have the same {} samples as one from 0",
            plain.len()
        ),
        tolerance: "ours: all four, to the bit",
        verdict: judged_by_own_bar(same == others.len() && counted && plain.len() > 100),
    }
}

/// A13: histograms of parts add up.
fn merged() -> Claim {
    let trace = Trace::new(Shape::of_lifetimes(1_024, 0.25, 0.4), 7);
    let parts = [1, 2].map(|seed| {
        let settings = Settings { slots: 1_024, probability: 0.25, seed, ..Settings::default() };
        reports(&trace, settings).iter().map(own).collect::<Vec<_>>()
    });
    let of = |samples: &[Sample]| {
        let mut histogram = Histogram::new(HistogramShape::default()).expect("the default is possible");
        for sample in samples {
            histogram.insert(*sample);
        }
        histogram
    };
    let all = of(&parts.concat());
    let [mut sum, other] = parts.map(|part| of(&part));
    let merged = sum.merge(&other).is_ok();
    let quantiles = (0..=100_u32).map(|percent| {
        let delay = |histogram: &Histogram| {
            histogram.estimate(f64::from(percent) / 100.0).map_or(0.0, |quantile| quantile.delay_ns)
        };
        (delay(&sum) / delay(&all) - 1.0).abs()
    });
    let quantiles = quantiles.fold(0.0, f64::max);
    let answered = (sum.answered().unwrap_or(0.0) / all.answered().unwrap_or(1.0) - 1.0).abs();
    Claim {
        id: "A13",
        text: "the histogram of two fridges' samples is the sum of their histograms",
        published: "not stated",
        ours: format!(
            "{} and {} samples; sum of weights {answered:.0e} off, the 0th to 100th percentile at most {quantiles:.0e}",
            sum.samples(),
            all.samples()
        ),
        tolerance: "ours: equal numbers, the rest within 10⁻⁹",
        verdict: judged_by_own_bar(
            merged && sum.samples() == all.samples() && answered.max(quantiles) < MAX_ROUNDING && all.samples() > 1_000,
        ),
    }
}

/// A14: weights as a table of ranges of x.
fn table() -> Claim {
    let evicting = 1.0 / 65_536.0;
    let table = |shape| CorrectionTable::new(shape).expect("possible");
    let mut sound = true;
    for probability in [1.0, 0.5, 1.0 / 16.0, 1.0 / 1_351.0] {
        let shapes = [TableShape::published(probability, evicting), TableShape::precise(probability, evicting)];
        for shape in shapes {
            let (table, unit) = (table(shape), f64::from(1_u32 << shape.fraction_bits));
            let first = table.ranges().first().is_some_and(|range| range.from == 0);
            let rises = table.ranges().is_sorted_by(|one, next| one.from < next.from && one.weight < next.weight);
            let covers = [0, 1, 1 << 16, 1 << 20, u32::MAX].iter().all(|x| table.weight(*x) >= table.weight(0));
            sound &= first && rises && covers && table.weight(0) == (unit / probability).round() / unit;
        }
    }
    let boundaries = |significant_bits, evicting| {
        let table = table(TableShape { significant_bits, ..TableShape::published(0.5, evicting) });
        [1, 2].map(|at| table.ranges().get(at).map_or(0, |range| range.from))
    };
    let (rounded, exact, printed) = (boundaries(4, evicting), boundaries(0, evicting), boundaries(0, evicting / 2.0));
    Claim {
        id: "A14",
        text: "weights as ranges of x: with p = 1/2 and M = 2¹⁶ weight 2 below 7 · 2¹¹, 3 below 9 · 2¹²; they rise, cover all x, and begin with 1/p",
        published: "14,336 and 36,864",
        ours: format!(
            "boundaries {} and {} with 1/M and 4 significant bits, both chosen after the printed ones; exactly {} and {} with 1/M, {} and {} with the p/M of \
             equation 1. p = 1, 1/2, 1/16, 1/1,351, whole weights and 8 bits of fraction: rising from 1/p on, all x covered: {}",
            rounded[0],
            rounded[1],
            exact[0],
            exact[1],
            printed[0],
            printed[1],
            if sound { "yes" } else { "no" }
        ),
        tolerance: "ours, since the publication does not say how it rounds: both boundaries with 4 bits, and all tables sound",
        verdict: judged_by_own_bar(rounded == [14_336, 36_864] && sound),
    }
}

pub fn claims() -> Vec<Claim> {
    vec![weights(), wraps(), merged(), table()]
}
