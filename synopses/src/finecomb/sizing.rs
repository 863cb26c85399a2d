//! The best probabilities and stash sizes, and the results to expect. Symbols are those of the paper: T packets in an
//! interval, a share β of them lost, a share ρ displaced across an end of the interval (R = ρT), memory S of M buckets
//! and W stash entries.

/// The p with the most packets in useful buckets, if `memory` S = M + W is divided with W = pR. Numerically stable,
/// also without displaced packets. 1 if nothing is lost or displaced.
#[must_use]
pub fn best_probability(memory: f64, packets: f64, loss: f64, displaced: f64) -> f64 {
    let root = libm::sqrt(loss * loss + 4.0 * displaced * loss);
    let bad = packets * (2.0 * displaced + loss + root);
    if bad > 2.0 * memory { 2.0 * memory / bad } else { 1.0 }
}

/// The best p without a stash: S / (R + βT), at most 1.
#[must_use]
pub fn best_probability_without_stash(memory: f64, packets: f64, loss: f64, displaced: f64) -> f64 {
    let bad = packets * (loss + displaced);
    if bad > memory { memory / bad } else { 1.0 }
}

/// Number L of sampled packets that make a bucket useless: βpT, and the part of pR that the stash does not hold.
#[must_use]
pub fn spoiling(probability: f64, packets: f64, loss: f64, displaced: f64, stash: f64) -> f64 {
    loss * probability * packets + (probability * displaced * packets - stash).max(0.0)
}

/// Number of packets in useful buckets: p G (1 − 1/M)^L, for G `good` packets and L `spoiling` ones.
#[must_use]
pub fn useful_packets(probability: f64, good: f64, buckets: usize, spoiling: f64) -> f64 {
    probability * good * libm::exp(spoiling * libm::log1p(-1.0 / buckets.max(1) as f64))
}

/// Number of useless buckets of M, for L `spoiling` packets: M (1 − (1 − 1/M)^L).
#[must_use]
pub fn useless_buckets(buckets: usize, spoiling: f64) -> f64 {
    let buckets = buckets.max(1) as f64;
    -buckets * libm::expm1(spoiling * libm::log1p(-1.0 / buckets))
}

/// Stash size w for `displaced` packets on one side of an interval's end, sampled with `probability`: two deviations
/// above the mean, so that it seldom overflows. The paper's size is the mean, which overflows half of the time.
#[must_use]
pub fn stash(probability: f64, displaced: f64) -> usize {
    let mean = probability * displaced;
    libm::ceil(mean + 2.0 * libm::sqrt(mean * (1.0 - probability))) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stable_form_is_the_printed_one_and_the_numeric_best() {
        for (loss, displaced) in [(1e-4, 4e-4), (1e-4, 4e-2), (1e-2, 4e-4), (1e-2, 4e-2)] {
            let (memory, packets) = (200.0, 5e6);
            let best = best_probability(memory, packets, loss, displaced);
            let root = libm::sqrt(4.0 * displaced * loss + loss * loss);
            let printed = memory / (2.0 * displaced * displaced * packets) * (2.0 * displaced + loss - root);
            assert!((best / printed - 1.0).abs() < 1e-6, "{best} and {printed}");

            let found = |p: f64| {
                let stash = p * displaced * packets;
                let buckets = memory - stash;
                if buckets <= 0.0 { 0.0 } else { p * libm::exp(-p * loss * packets / buckets) }
            };
            assert!((1..=200).all(|step| found(best * f64::from(step) / 100.0) <= found(best) * (1.0 + 1e-9)));
        }
    }

    #[test]
    fn without_displaced_packets_there_is_no_stash() {
        let [with, without] =
            [best_probability, best_probability_without_stash].map(|best| best(1_000.0, 5e6, 1e-2, 0.0));
        assert!((with - without).abs() < 1e-12);
        assert_eq!(best_probability(1_000.0, 5e6, 0.0, 0.0), 1.0);
        assert_eq!(stash(0.5, 0.0), 0);
        assert_eq!(stash(1.0, 7.0), 7);
    }

    #[test]
    fn published_numbers_of_packets_in_useful_buckets_come_out() {
        // β = 10⁻⁴ and 10⁻² with 1,000 buckets: almost three millions, and about 40,000.
        for (loss, expected, tolerance) in [(1e-4, 3.0e6, 0.05), (1e-2, 40_000.0, 0.12)] {
            let (packets, displaced) = (5e6, 4e-6);
            let p = best_probability(1_000.0, packets, loss, displaced);
            let stash = p * displaced * packets;
            let spoiling = spoiling(p, packets, loss, displaced, stash);
            let useful = useful_packets(p, (1.0 - loss) * packets, (1_000.0 - stash) as usize, spoiling);
            assert!((useful / expected - 1.0).abs() < tolerance, "{loss}: {useful}");
        }
        assert!((useless_buckets(8, 3.0) - 8.0 * (1.0 - 0.875_f64.powi(3))).abs() < 1e-9);
    }
}
