//! Expected errors of a fridge's quantiles, calculated from the chance of each answered request to survive, for
//! requests at an even rate.

use crate::workload::Trace;

/// The largest expected error, in log₂ of the delay, of the 5th to the 95th percentile, for `runs` runs together.
pub fn expected(trace: &Trace, slots: usize, probability: f64, runs: u64) -> f64 {
    let delays = &trace.delays;
    let count = delays.len() as f64;
    let requests_per_ns = trace.requests as f64 / trace.length_s / 1e9;
    // A request adds a variance of 1/q − 1, where q is its chance to be sampled.
    let evicted = -(-probability / slots as f64).ln_1p();
    let variance = |delay: &u64| (*delay as f64 * requests_per_ns * evicted).exp() / probability - 1.0;
    let mut below = Vec::with_capacity(delays.len() + 1);
    below.push(0.0);
    for delay in delays {
        below.push(below[below.len() - 1] + variance(delay));
    }
    let all = below[delays.len()];
    let at = |share: f64| (share * count) as usize;
    let off = |step: u32| {
        let share = f64::from(step) / 200.0;
        let here = below[at(share)];
        let deviation = (here * (1.0 - share).powi(2) + (all - here) * share.powi(2)).sqrt() / count;
        // Octaves of the delay per share of requests at this quantile.
        let octaves = (delays[at(share + 0.02)] as f64 / delays[at(share - 0.02)] as f64).log2() / 0.04;
        deviation * octaves
    };
    // The mean of a normal error's absolute value.
    (10..=190).map(off).fold(0.0, f64::max) * (2.0 / std::f64::consts::PI / runs as f64).sqrt()
}
