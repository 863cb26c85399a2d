//! How much estimates vary.

use synopses::fridge::{Counter, Settings};

use super::simulation::{BINS, Counts, Delays, Moments, Shape, Trace, own};
use super::single;
use crate::claim::{Claim, judged_by_own_bar, refuted};
use crate::scale::Scale;
use crate::streams::random;
use crate::sweep::each;

/// A4: the right bound.
fn bound(scale: Scale) -> Claim {
    let (slots, probability) = (1_024, 0.25);
    let trace = Trace::new(Shape::of_lifetimes(slots, probability, 0.4), 3);
    let runs = (5 * scale.trials).max(600);
    let moments = single(&trace, Settings { slots, probability, ..Settings::default() }, runs, own);
    let bound = trace.variance_bound(slots, probability);
    let ratios: Vec<f64> = (0..BINS.len()).map(|at| (moments.variance(at) / bound[at]).sqrt()).collect();
    Claim {
        id: "A4",
        text: "the variance of the sum of weights in a bin is at most Σ (1/q − 1) over the answered requests in it",
        published: "another formula (A5)",
        ours: format!(
            "M = 2¹⁰, p = 1/4, {runs} seeds, bins of rising delay up to 2.4 M/p requests: deviation {} of that bound's root. An independent simulation \
             gives 0.94 to 1.04",
            ratios.iter().map(|ratio| format!("{ratio:.3}")).collect::<Vec<_>>().join(", ")
        ),
        tolerance: "ours: at most 1.1, as the deviation of so many seeds is only known to a few per cent",
        verdict: judged_by_own_bar(ratios.iter().all(|ratio| *ratio <= 1.1)),
    }
}

/// Bins of a second, as four of them.
const fn four(counts: Counts) -> [f64; 4] {
    [counts[0], counts[1] + counts[2], counts[3] + counts[4], counts[5] + counts[6]]
}

/// A5: the printed variance.
fn printed(scale: Scale) -> Claim {
    let (slots, probability) = (1_024, 0.25);
    let shape = Shape { delays: Delays::LogUniform(10), ..Shape::new(40_000, 10_000, 0.4) };
    let trace = Trace::new(shape, 1);
    let settings = Settings { slots, probability, counter: Counter::Arrivals, ..Settings::default() };
    let runs = (50 * scale.trials).max(2_000);
    let simulated = each(runs, |seed| four(trace.single(Settings { seed, ..settings }, own)));
    let simulated: Moments<4> = simulated.into_iter().collect();
    // 1/q of each answered request.
    let inverse = |delay: u64| (-(delay as f64) * (-probability / slots as f64).ln_1p()).exp() / probability;
    let all = trace.delays.len() as f64;
    let sum: f64 = trace.delays.iter().map(|delay| inverse(*delay)).sum();
    let share = four(trace.truth).map(|count| count / all);
    let right = four(trace.sums(trace.delays.iter().map(|delay| (*delay, inverse(*delay) - 1.0))));
    let ratio = |formula: f64, at: usize| formula / simulated.variance(at);
    let printed: [f64; 4] = std::array::from_fn(|at| ratio(share[at] * (sum - all * share[at]), at));
    let right: [f64; 4] = std::array::from_fn(|at| ratio(right[at], at));
    let list = |ratios: [f64; 4]| ratios.map(|ratio| format!("{ratio:.2}")).join(", ");
    let agreed = right.iter().all(|ratio| (ratio - 1.0).abs() < 0.1);
    let wrong = printed.iter().any(|ratio| (ratio - 1.0).abs() > 0.5);
    Claim {
        id: "A5",
        text: "the variance of f̂(t) is f(t)/n · Σ (1/qᵢ − f(t)/n) over all n answered requests",
        published: "lemma 3.1 (2.1 in the dissertation)",
        ours: format!(
            "M = 2¹⁰, p = 1/4, {runs} seeds, log-uniform delays of {} requests: printed / simulated variance {}; Σ (1/q − 1) over the \
             requests in the bin / simulated {}. An independent simulation gives 2.00, 1.87, 1.24, 0.34 for the printed one. Its proof draws the delay of \
             request i anew with chance f(t)/n, while xᵢ stays",
            "10 to 100, to 1,000, to 4,000, to 10,000",
            list(printed),
            list(right)
        ),
        tolerance: "refuted if Σ (1/q − 1) is within 10 % of the simulation everywhere, and the printed one off by more than 50 % somewhere \
                    (10 % and the number of seeds were set after 15 % with fewer seeds; judged again independently, by the specification's statement)",
        verdict: refuted(agreed && wrong),
    }
}

/// The variance of a weighted mean of uncorrelated estimates.
fn combined(weights: &[f64], variances: &[f64]) -> f64 {
    weights.iter().zip(variances).map(|(weight, variance)| weight * weight * variance).sum()
}

/// The weights of least variance by search: between any two of them so much is moved as helps.
fn searched(variances: &[f64]) -> Vec<f64> {
    let count = variances.len();
    let mut weights = vec![1.0 / count as f64; count];
    let mut step = 0.1;
    while step > 1e-7 {
        let before = combined(&weights, variances);
        for (to, from) in (0..count).flat_map(|to| (0..count).map(move |from| (to, from))) {
            let mut moved = weights.clone();
            moved[to] += step;
            moved[from] -= step;
            if combined(&moved, variances) < combined(&weights, variances) {
                weights = moved;
            }
        }
        if combined(&weights, variances) >= before {
            step *= 0.5;
        }
    }
    weights
}

/// A11: the theorem behind the combination of several fridges.
fn inverse_variances() -> Claim {
    let uniform = |number: u64| random(number) as f64 / u64::MAX as f64;
    let gap = (0..200_u64).map(|set| {
        let count = 2 + set % 7;
        let variances: Vec<f64> = (0..count).map(|at| 100.0_f64.powf(uniform(set * 8 + at))).collect();
        let all: f64 = variances.iter().map(|variance| 1.0 / variance).sum();
        let stated: Vec<f64> = variances.iter().map(|variance| 1.0 / variance / all).collect();
        let found = searched(&variances);
        let weights = stated.iter().zip(&found).map(|(one, other)| (one - other).abs()).fold(0.0, f64::max);
        (combined(&found, &variances) / combined(&stated, &variances) - 1.0, weights)
    });
    let none = (f64::INFINITY, f64::NEG_INFINITY, 0.0_f64);
    let (least, most, weights) =
        gap.fold(none, |all, (above, weights)| (all.0.min(above), all.1.max(above), all.2.max(weights)));
    // Variances 1 and 4, correlation 0.9: the covariance is 1.8.
    let correlated = combined(&[0.8, 0.2], &[1.0, 4.0]) + 2.0 * 0.8 * 0.2 * 1.8;
    Claim {
        id: "A11",
        text: "of all weights with sum 1, those inverse to the known variances give the least variance",
        published: "theorem 4.1",
        ours: format!(
            "200 sets of 2 to 8 variances from 1 to 100: the least variance that a search finds is {least:.0e} to {most:.0e} above theirs, its weights \
             within {weights:.0e}. This is \
             for uncorrelated estimates, which the theorem does not ask for: with variances 1 and 4 and a correlation of 0.9 its weights give \
             {correlated:.2}, the first estimate alone 1"
        ),
        tolerance: "ours, as the printed theorem lacks that condition: variance never lower by 10⁻¹², within 10⁻⁶, weights within 10⁻³",
        verdict: judged_by_own_bar(least > -1e-12 && most < 1e-6 && weights < 1e-3),
    }
}

pub fn claims(scale: Scale) -> Vec<Claim> {
    vec![bound(scale), printed(scale), inverse_variances()]
}
