//! Properties of fridges: theorems of the publication, and what a sound implementation has to have.

mod arithmetic;
#[path = "../../tests/fridge/simulation.rs"]
pub mod simulation;
mod unbiased;
mod variance;

use synopses::fridge::{Report, Sample, Settings};

use crate::claim::Claim;
use crate::scale::Scale;
use crate::sweep::each;
use simulation::{ALL, Counts, Moments, Trace};

/// Means and variances by bin, and of all bins together.
pub type BinMoments = Moments<{ ALL + 1 }>;

/// Estimates as parts of the true numbers.
pub fn parts_of_truth(trace: &Trace, counts: Counts) -> Counts {
    std::array::from_fn(|at| counts[at] / trace.truth[at])
}

/// What runs of a single fridge estimate, with the weights of `weigh`.
fn single(trace: &Trace, settings: Settings, runs: u64, weigh: impl Fn(&Report) -> Sample + Sync) -> BinMoments {
    each(runs, |seed| trace.single(Settings { seed, ..settings }, &weigh)).into_iter().collect()
}

/// The bin of which the mean is furthest from the truth: its ratio to it, and the difference in standard errors.
fn furthest(trace: &Trace, moments: &BinMoments) -> (f64, f64) {
    let bins = (0..=ALL).map(|at| (moments.mean(at) / trace.truth[at], moments.off(at, trace.truth[at])));
    bins.fold((1.0, 0.0), |most: (f64, f64), bin| if bin.1.abs() > most.1.abs() { bin } else { most })
}

/// Rows A1 to A5, A7 to A11 and A13 to A15.
pub fn claims(scale: Scale) -> Vec<Claim> {
    let claims = [unbiased::claims(scale), variance::claims(scale), arithmetic::claims()];
    claims.into_iter().flatten().collect()
}
