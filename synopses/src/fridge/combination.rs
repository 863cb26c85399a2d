//! Combines the samples of several fridges.

use alloc::vec;
use alloc::vec::Vec;

use super::distribution::Sample;
use super::tally::Report;

/// Number of bins of inverse variances, one per octave of nanoseconds.
const BINS: usize = 64;
/// Maximum number of fridges.
pub(super) const MAX_FRIDGES: usize = 16;

/// How samples of several fridges are weighted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combination {
    /// Weight 1/Σ qₖ for each sample, whatever its fridge. Unbiased, without bins, and the best of all fixed weights.
    HtTotal,
    /// As published: in each octave of the delay, fridges are weighted with the inverse of their estimated variance Σ
    /// w², without those that have no sample. Tails are underestimated, because a fridge that has no heavy samples by
    /// chance seems to vary little: by up to 11 % in the two longest of seven bins with octaves, by 3 to 67 % with a
    /// single bin (the paper does not give the width of its bins; rows A6 of docs/reproduction/fridges.md). For
    /// comparison.
    Ivw,
    /// Equal weights for all fridges. Unbiased, but as imprecise as the worst fridge.
    Mean,
    /// Only the samples of the fridge with this index.
    Only(u8),
}

/// Weights the samples in `reports` of the fridges below index `fridges`, so that together they stand for all answered
/// requests. Ignores reports of other fridges.
#[must_use]
pub fn combine(reports: &[Report], fridges: usize, how: Combination) -> Vec<Sample> {
    let fridges = fridges.min(MAX_FRIDGES);
    let there = reports.iter().filter(|report| usize::from(report.fridge) < fridges);
    let weighted = |report: &Report, weight: f64| Sample { delay_ns: report.delay_ns, weight };
    match how {
        Combination::HtTotal => there.map(|report| weighted(report, report.total_weight())).collect(),
        Combination::Mean => there.map(|report| weighted(report, report.weight() / fridges as f64)).collect(),
        Combination::Only(fridge) => {
            there.filter(|report| report.fridge == fridge).map(|report| weighted(report, report.weight())).collect()
        }
        Combination::Ivw => {
            let shares = inverse_variance_shares(there.clone());
            there.map(|report| weighted(report, report.weight() * shares[place(report)])).collect()
        }
    }
}

/// Index of a report's fridge and octave.
fn place(report: &Report) -> usize {
    report.delay_ns.max(1).ilog2() as usize * MAX_FRIDGES + usize::from(report.fridge)
}

fn inverse_variance_shares<'a>(reports: impl Iterator<Item = &'a Report>) -> Vec<f64> {
    let mut variances = vec![0.0; BINS * MAX_FRIDGES];
    for report in reports {
        let weight = report.weight();
        variances[place(report)] += weight * weight;
    }
    for bin in variances.chunks_mut(MAX_FRIDGES) {
        let known = |variance: &f64| if *variance > 0.0 { 1.0 / variance } else { 0.0 };
        let all: f64 = bin.iter().map(known).sum();
        for variance in bin {
            *variance = if all > 0.0 { known(variance) / all } else { 0.0 };
        }
    }
    variances
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(fridge: u8, delay_ns: u64, weight: f64, total: f64) -> Report {
        Report { fridge, delay_ns, insertions: 0, ln_weight: libm::log(weight), ln_total: libm::log(total) }
    }

    fn weights(reports: &[Report], how: Combination) -> Vec<f64> {
        combine(reports, 2, how).iter().map(|sample| libm::round(sample.weight * 1e9) / 1e9).collect()
    }

    #[test]
    fn every_sample_gets_the_weight_that_the_combination_says() {
        let reports = [report(0, 5, 2.0, 1.5), report(1, 5, 4.0, 1.5), report(1, 90, 3.0, 2.5), report(2, 5, 9.0, 9.0)];

        assert_eq!(weights(&reports, Combination::HtTotal), [1.5, 1.5, 2.5]);
        assert_eq!(weights(&reports, Combination::Mean), [1.0, 2.0, 1.5]);
        assert_eq!(weights(&reports, Combination::Only(1)), [4.0, 3.0]);
        // Variances 4 and 16 in the first octave: 4/5 and 1/5. Alone in the other one: 1.
        assert_eq!(weights(&reports, Combination::Ivw), [1.6, 0.8, 3.0]);
        assert!(weights(&[], Combination::Ivw).is_empty());
    }

    #[test]
    fn weights_inverse_to_known_variances_give_the_least_variance() {
        let variances: [f64; 3] = [1.0, 4.0, 10.0];
        let all: f64 = variances.iter().map(|variance| 1.0 / variance).sum();
        let best: Vec<f64> = variances.iter().map(|variance| 1.0 / variance / all).collect();
        let variance = |shares: &[f64]| -> f64 { shares.iter().zip(&variances).map(|(w, v)| w * w * v).sum() };

        for (one, other) in [(0, 1), (1, 2), (0, 2)] {
            for step in [-0.05, 0.05] {
                let mut moved = best.clone();
                moved[one] += step;
                moved[other] -= step;
                assert!(variance(&moved) > variance(&best));
            }
        }
        assert!((variance(&best) - 1.0 / all).abs() < 1e-12);
    }
}
