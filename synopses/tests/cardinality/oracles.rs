//! What ST-HLL says with many registers, whatever the traffic: a closed form, beside runs.

use std::f64::consts::LN_2;

use synopses::cardinality::{Cardinality, Correction, StHllSettings, TsPcsa, TsPcsaSettings};
use synopses::digest::Digest;

use super::{SECOND, settings, st_hll};

const REGISTERS: usize = 512;
const WINDOW_NS: u64 = 1 << 32;

/// E[2⁻ᴹ] of a register with a Poisson number of items of this mean.
fn mean_inverse(items: f64) -> f64 {
    let share = |k: i32| (-items * 0.5_f64.powi(k)).exp();
    share(0) + (1..60).map(|k| 0.5_f64.powi(k) * (share(k) - share(k - 1))).sum::<f64>()
}

/// The estimate, per window and register, without any correction. `items(x)` are those of a register in the last 2 W x.
fn expected(items: impl Fn(f64) -> f64, skipped: f64) -> f64 {
    const STEPS: u32 = 20_000;
    let step = (1.0 - skipped) / f64::from(STEPS);
    let middle = |at: u32| skipped + (f64::from(at) + 0.5) * step;
    let integral: f64 = (0..STEPS).map(|at| middle(at) * mean_inverse(items(middle(at))) * step).sum();
    (1.0 - skipped) / (2.0 * LN_2) / (2.0 * integral)
}

/// The same by runs, as a mean. Items come in time as the profile says; `persistent` ones per register at the end.
fn simulated(
    settings_of: impl Fn(u64) -> StHllSettings,
    items: impl Fn(f64) -> f64,
    persistent: f64,
    runs: u64,
) -> f64 {
    let registers = REGISTERS as f64;
    let sum: f64 = (0..runs)
        .map(|run| {
            let mut synopsis = st_hll(settings_of(run));
            let now = 4 * WINDOW_NS + run * WINDOW_NS / runs;
            let (mut inserted, mut item) = (0.0, run << 32);
            for piece in (0..4_096_u64).rev() {
                let x = piece as f64 / 4_096.0;
                let due = (items(1.0) - items(x)) * registers;
                while inserted < due {
                    synopsis.insert(Digest(item), now - (x * 2.0 * WINDOW_NS as f64) as u64);
                    (inserted, item) = (inserted + 1.0, item + 1);
                }
            }
            (0..(persistent * registers) as u64).for_each(|one| synopsis.insert(Digest(u64::MAX - one), now));
            synopsis.estimate(now, WINDOW_NS).expect("the window").count / registers
        })
        .sum();
    sum / runs as f64
}

fn plain(run: u64) -> StHllSettings {
    StHllSettings { correction: Correction::None, ..StHllSettings::plain(settings(REGISTERS, WINDOW_NS, run)) }
}

fn plus(run: u64) -> StHllSettings {
    StHllSettings { correction: Correction::None, ..StHllSettings::plus(settings(REGISTERS, WINDOW_NS, run)) }
}

/// Compares runs with the closed form for ST-HLL and ST-HLL+, and returns the latter.
fn both(items: impl Fn(f64) -> f64 + Copy, persistent: f64, runs: u64) -> [f64; 2] {
    let all = |x: f64| items(x) + persistent;
    let forms = [expected(all, 0.0), expected(all, 0.125)];
    let found = [simulated(plain, items, persistent, runs), simulated(plus, items, persistent, runs)];
    for (found, form) in found.into_iter().zip(forms) {
        // Four standard errors, and a bias of the order of 1/m.
        let tolerance = 4.0 * 1.11 / (REGISTERS as f64 * runs as f64).sqrt() + 4.0 / REGISTERS as f64;
        assert!((found / form - 1.0).abs() < tolerance, "{found}, closed form {form}");
    }
    forms
}

#[test]
fn a_steady_load_without_correction_is_biased_as_computed() {
    for (load, full, skipping) in
        [(1.0, 0.493, 0.346), (2.5, 0.161, 0.067_5), (5.0, 0.074_5, 0.012_3), (10.0, 0.035_9, 8e-4)]
    {
        let [plain, plus] = both(|x| 2.0 * load * x, 0.0, 40).map(|found| found / load - 1.0);
        assert!((plain - full).abs() < 2e-3 && (plus - skipping).abs() < 2e-3, "{load}: {plain}, {plus}");
    }
    // ln 2/(2 ρ) for large loads.
    let bias = expected(|x| 2.0 * 20.0 * x, 0.0) / 20.0 - 1.0;
    assert!((bias / (LN_2 / 40.0) - 1.0).abs() < 0.04, "{bias}");
}

#[test]
fn the_weights_are_no_triangle_but_a_logarithm() {
    // A step of 10 %, u/W ago: the share of it that shows.
    for (since, share) in [(0.10, 0.200), (0.25, 0.385), (0.50, 0.597), (1.00, 0.847), (1.50, 0.966)] {
        let load = 1_000.0;
        let items = |x: f64| load * (2.0 * x + 0.1 * (2.0 * x).min(since));
        let shown = (expected(items, 0.0) / load - 1.0) / 0.1;
        assert!((shown - share).abs() < 0.02, "{since}: {shown}, expected {share}");
    }
    // Runs, with a step to the double: half of it shows after 0.44 W, 90 % after 1.21 W.
    for (since, shown) in [(0.44, 0.5), (1.21, 0.9)] {
        let [plain, _] = both(|x| 40.0 * (2.0 * x + (2.0 * x).min(since)), 0.0, 40);
        assert!((plain / 40.0 - 1.0 - shown).abs() < 0.02, "{since}: {plain}");
    }
}

#[test]
fn a_fall_shows_much_sooner_than_a_rise() {
    let after = |since: f64| expected(|x| 1e3 * (2.0 * x).min(since) + 1e5 * (2.0 * x - since).max(0.0), 0.0);

    // From 100,000 to 1,000 items per register and window: half after 0.02 W, 90 % after 0.15 W.
    for (since, left) in [(0.02, 0.5), (0.15, 0.1)] {
        let share = (after(since) - 1e3) / 99e3;
        assert!((share - left).abs() < 0.05, "{since}: {share}");
    }
}

#[test]
fn silence_makes_st_hll_collapse_and_st_hll_plus_not() {
    for (load, gap, full, skipping) in [(20.0, 0.1, 0.81, 0.87), (100.0, 0.1, 0.62, 0.87), (100.0, 0.2, 0.35, 0.71)] {
        let found = both(|x| load * (2.0 * x - gap).max(0.0), 0.0, 16).map(|found| found / load);
        assert!((found[0] - full).abs() < 0.03 && (found[1] - skipping).abs() < 0.03, "{load}, {gap}: {found:?}");
    }
    let collapsed = expected(|x| 1_000.0 * (2.0 * x - 0.1).max(0.0), 0.0) / 1_000.0;
    assert!((collapsed - 0.21).abs() < 0.03, "{collapsed}");
}

#[test]
fn items_that_come_again_are_over_counted_as_computed() {
    // s = p/(a W) items are in every window.
    for (share, full, skipping) in [(0.1, 0.072, 0.013), (0.5, 0.116, 0.016), (2.0, 0.086, -0.027)] {
        let fresh = 40.0_f64;
        let (truth, persistent) = (fresh * (1.0 + share), fresh * share);
        let found = both(|x| 2.0 * fresh * x, persistent, 40).map(|found| found / truth - 1.0);
        assert!((found[0] - full).abs() < 0.01 && (found[1] - skipping).abs() < 0.01, "{share}: {found:?}");
    }
}

#[test]
fn items_that_come_again_by_a_power_law_are_over_counted_as_computed() {
    // Of w windows w^β items per register and window are distinct.
    for (power, full, skipping) in [(0.7, 0.056, -0.010), (0.8, 0.045, -0.004), (0.9, 0.026, -5e-4)] {
        let load = 1e4;
        let biases = [0.0, 0.125].map(|skipped| expected(|x| load * f64::powf(2.0 * x, power), skipped) / load - 1.0);
        assert!((biases[0] - full).abs() < 2e-3 && (biases[1] - skipping).abs() < 2e-3, "{power}: {biases:?}");
        let form = (2.0 - power) / f64::powf(2.0, 1.0 - power) - 1.0;
        assert!((biases[0] - form).abs() < 1e-3, "{power}: {biases:?}, {form}");
    }
    // Runs, with fewer items: youngest registers have few, which adds to the bias of all.
    let [plain, plus] = both(|x| 40.0 * f64::powf(2.0 * x, 0.7), 0.0, 20).map(|found| found / 40.0 - 1.0);
    assert!(plain > 0.03 && plus < plain, "{plain}, {plus}");
}

/// Mean and root mean square of the relative error under a steady load.
fn errors(settings_of: impl Fn(u64) -> StHllSettings, load: f64, runs: u64) -> (f64, f64) {
    let errors = (0..runs).map(|run| {
        let one = simulated(|_| settings_of(run), |x| 2.0 * load * x, 0.0, 1);
        one / load - 1.0
    });
    let errors: Vec<f64> = errors.collect();
    let mean = |of: &dyn Fn(f64) -> f64| errors.iter().map(|error| of(*error)).sum::<f64>() / runs as f64;
    (mean(&|error| error), mean(&|error| error * error).sqrt())
}

#[test]
fn likelihood_and_staggered_counting_are_right_where_the_published_correction_is_not() {
    let with = |correction| {
        move |run| StHllSettings { correction, ..StHllSettings::plain(settings(REGISTERS, WINDOW_NS, run)) }
    };
    for load in [0.1, 0.5, 1.0, 2.0, 2.5, 5.0, 36.0] {
        let (bias, spread) = errors(with(Correction::Likelihood), load, 100);
        assert!(bias.abs() < 4.0 * spread / 10.0 + 2.0 / REGISTERS as f64, "{load}: {bias}");
        if load <= 2.0 {
            let (bias, spread) = errors(with(Correction::Staggered), load, 100);
            assert!(bias.abs() < 4.0 * spread / 10.0 + 4.0 / REGISTERS as f64, "{load}: {bias}");
        }
    }
    // Linear counting takes all registers to be of one age.
    let (low, _) = errors(with(Correction::Published), 1.0, 60);
    assert!((low + 0.162).abs() < 0.02, "{low}");
    let skipping = |run| StHllSettings::plus(settings(REGISTERS, WINDOW_NS, run));
    for load in [0.5, 2.0, 36.0] {
        let (bias, spread) = errors(skipping, load, 100);
        assert!(bias.abs() < 4.0 * spread / 10.0 + 2.0 / REGISTERS as f64, "{load}: {bias}");
    }
}

#[test]
fn standard_errors_are_those_of_the_registers_that_count() {
    for (settings_of, registers) in [(plain as fn(u64) -> StHllSettings, 512.0), (plus, 448.0)] {
        let (bias, spread) = errors(settings_of, 36.0, 500);
        let sigma = (spread * spread - bias * bias).sqrt();
        // Of 500 runs it is known to 3 %.
        assert!((sigma / (1.04 / f64::sqrt(registers)) - 1.0).abs() < 0.12, "{sigma}");
    }
}

#[test]
fn a_rate_is_per_second_whatever_the_window() {
    for window_ns in [SECOND / 10, SECOND, 240 * SECOND] {
        let common = settings(1_024, window_ns, 3);
        let mut staggered = st_hll(StHllSettings::plus(common));
        let mut stamped = TsPcsa::new(TsPcsaSettings::plus(common)).expect("possible");
        for item in 0..60_000 {
            staggered.insert(Digest(item), item * window_ns / 20_000);
            stamped.insert(Digest(item), item * window_ns / 20_000);
        }
        let rate = 20_000.0 / (window_ns as f64 / 1e9);
        for found in [staggered.estimate(3 * window_ns, window_ns), stamped.estimate(3 * window_ns, window_ns)] {
            let found = found.expect("the window");
            assert!((found.rate / rate - 1.0).abs() < 0.2 && found.warm, "{found:?}");
            assert!((found.rate * window_ns as f64 / 1e9 / found.count - 1.0).abs() < 1e-3);
        }
    }
}

#[test]
fn a_new_synopsis_is_right_at_once() {
    let (mut sum, load) = (0.0, 64);
    for run in 0..20 {
        let mut staggered = st_hll(StHllSettings::plus(settings(REGISTERS, WINDOW_NS, run)));
        // A quarter of a window.
        let items = load * REGISTERS as u64 / 4;
        (0..items).for_each(|item| staggered.insert(Digest(item), item * WINDOW_NS / (4 * items)));
        let found = staggered.estimate(WINDOW_NS / 4, WINDOW_NS).expect("the window");
        assert!(!found.warm);
        sum += found.count / (load * REGISTERS as u64) as f64 / 20.0;
    }

    assert!((sum - 1.0).abs() < 0.05, "{sum}");
}

#[test]
fn clocks_apart_by_half_a_slot_do_little_harm() {
    let (mut sum, items) = (0.0, 36 * 128_u64);
    for run in 0..40 {
        let of = || st_hll(StHllSettings::plain(settings(128, WINDOW_NS, run)));
        let (mut one, mut other) = (of(), of());
        let skew = WINDOW_NS / 128;
        for item in 0..3 * items {
            let at = item * WINDOW_NS / items;
            one.insert(Digest(item), at);
            other.insert(Digest(item), at + skew);
        }
        one.merge(&other).expect("one grid");
        sum += one.estimate(3 * WINDOW_NS, WINDOW_NS).expect("the window").count / items as f64 / 40.0;
    }

    assert!((sum - 1.0).abs() < 0.08, "{sum}");
}
