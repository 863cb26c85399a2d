//! The claims of chapter 4 that need no experiment of their own: k, l and q, dynamic sampling, memory; and the claims
//! that cannot be measured here. Pure.

use evaluation::reproduction::sampling::{SamplingPoint, saving, straightness};
use evaluation::reproduction::sweep::{Point, at, between_sketches};
use evaluation::reproduction::{self, Claim};
use lmap::DetectorError;

/// Differences below this are noise.
const NOISE: f64 = 0.03;
/// Number of rows of the sketch at which the sweep over k is read.
const L: usize = 50;
const SMALL: usize = 1;
const LARGE: usize = 20;
const NO_DATA: &str = "UVIEW_DATA does not name a folder with the set";

/// The claims about k, l and q, on Redis (one server, 141 metrics at 1 s, as in the chapter) and on Online Boutique
/// (mean over its units).
#[must_use]
pub fn sweeps(redis: Option<&[Point]>, boutique: Option<&[Point]>) -> Vec<Claim> {
    let mut claims = sweep(
        redis,
        ["k-tail-redis", "k-mass-redis", "k-recall-redis", "k-precision-redis", "q-mitigates-redis", "l-redis"],
    );
    claims.extend(sweep(
        boutique,
        [
            "k-tail-boutique",
            "k-mass-boutique",
            "k-recall-boutique",
            "k-precision-boutique",
            "q-mitigates-boutique",
            "l-boutique",
        ],
    ));
    claims
}

fn sweep(points: Option<&[Point]>, ids: [&'static str; 6]) -> Vec<Claim> {
    let [tail, mass, recall, precision, mitigates, sketch] = ids;
    let unknown = [
        (
            tail,
            "a small k underfits: the tail of the training scores (relative form) approaches 1",
            "approaches 1",
            "99.9th percentile at k = 1 at least 0.9",
        ),
        (
            mass,
            "k = 20 overfits: training scores concentrate around 0",
            "concentrated around 0",
            "median at k = 20 below 0.25",
        ),
        (
            recall,
            "recall grows with k",
            "better recall",
            "at k = 20 at least as much as at k = 1, less 0.03 (mean over q)",
        ),
        (
            precision,
            "precision falls with k",
            "lower precision",
            "at k = 20 no more than at k = 1, plus 0.03 (mean over q)",
        ),
        (
            mitigates,
            "a higher threshold mitigates the false positives of a large k",
            "mitigated",
            "precision at k = 20: q = 99.9 above q = 90",
        ),
        (
            sketch,
            "precision and recall do not change significantly from l = 25 to l = 50",
            "no significant change",
            "mean difference over k and q at most 0.05",
        ),
    ];
    let unknown =
        unknown.map(|(id, claim, published, tolerance)| Claim::without(id, claim, published, tolerance, NO_DATA));
    let Some(points) = points else { return unknown.to_vec() };
    let read = |rank, figure: fn(&Point) -> f64| at(points, rank, L, figure);
    let both = |figure| (read(SMALL, figure), read(LARGE, figure));
    let (low, high) = both(|point| point.recall);
    let (early, late) = both(|point| point.precision);
    let precision_at = |percentile: f64| {
        let found = points.iter().find(|p| (p.rank, p.sketch_rows, p.percentile) == (LARGE, L, percentile));
        found.map_or(0.0, |point| point.precision)
    };
    let (loose, strict) = (precision_at(90.0), precision_at(99.9));
    let (mean, most) = between_sketches(points);
    let (tail, median) = (read(SMALL, |point| point.tail), read(LARGE, |point| point.median));
    let found = [
        (format!("{tail:.2}"), tail >= 0.9),
        (format!("{median:.2} (k = 1: {:.2})", read(SMALL, |point| point.median)), median < 0.25),
        (format!("k = 1: {low:.2}, k = 20: {high:.2}"), high >= low - NOISE),
        (format!("k = 1: {early:.2}, k = 20: {late:.2}"), late <= early + NOISE),
        (format!("q = 90: {loose:.2}, q = 99.9: {strict:.2}"), strict > loose),
        (format!("mean {mean:.3}, most {most:.3}"), mean <= 0.05),
    ];
    unknown.into_iter().zip(found).map(|(claim, (ours, holds))| claim.found(ours, holds)).collect()
}

/// The claims about dynamic sampling, on Redis.
#[must_use]
pub fn sampling(curve: Option<&[SamplingPoint]>) -> Vec<Claim> {
    let unknown = [
        (
            "sampling-at-half",
            "dynamic sampling, Redis, k = 15, l = 25: at threshold 0.5 half of the data is saved for less than 5 % of accuracy (NCC)",
            "50 %, < 5 %",
            "saved 40 to 60 %, loss below 5 %",
        ),
        (
            "sampling-half",
            "some threshold saves half of the data for less than 5 % of accuracy",
            "50 %, < 5 %",
            "saved at least 50 %, loss below 5 %",
        ),
        (
            "sampling-linear",
            "the volume falls linearly with the threshold",
            "linearly",
            "R² of a straight line at least 0.9",
        ),
        (
            "sampling-plateau",
            "accuracy stays on a plateau before it drops",
            "plateau",
            "loss below 1 % at a quarter of the data saved, and above 5 % at the last threshold",
        ),
    ];
    let unknown =
        unknown.map(|(id, claim, published, tolerance)| Claim::without(id, claim, published, tolerance, NO_DATA));
    let Some(curve) = curve else { return unknown.to_vec() };
    let words = |sampled: SamplingPoint| {
        let SamplingPoint { threshold, saved, loss } = sampled;
        format!("{:.0} % saved at a loss of {:.1} % (threshold {threshold:.2})", 100.0 * saved, 100.0 * loss)
    };
    let nowhere = SamplingPoint { threshold: 0.0, saved: 0.0, loss: 1.0 };
    let middle = curve.iter().find(|sampled| (sampled.threshold - 0.5).abs() < 1e-9).copied().unwrap_or(nowhere);
    let half = saving(curve, 0.5).unwrap_or(nowhere);
    let quarter = saving(curve, 0.25).unwrap_or(nowhere);
    let last = curve.last().copied().unwrap_or(nowhere);
    let straight = straightness(curve);
    let found = [
        (words(middle), (0.4..=0.6).contains(&middle.saved) && middle.loss < 0.05),
        (words(half), half.saved >= 0.5 && half.loss < 0.05),
        (format!("R² {straight:.2}"), straight >= 0.9),
        (format!("{}; {}", words(quarter), words(last)), quarter.loss < 0.01 && last.loss > 0.05),
    ];
    unknown.into_iter().zip(found).map(|(claim, (ours, holds))| claim.found(ours, holds)).collect()
}

/// The claims about memory, for the chapter's example.
///
/// # Errors
///
/// [`DetectorError`] if the detector cannot be built.
pub fn memory() -> Result<Vec<Claim>, DetectorError> {
    let found = reproduction::memory(100, 1_000, 10, 60)?;
    let [bases, whole] = [found.bases, found.detectors].map(|bytes| bytes as f64 / 1e6);
    let tolerance = "at most 10 % more";
    let of_bases = Claim::without(
        "memory-bases",
        "1,000 metrics of 100 services at k = 10 in f64: the rank-k approximations",
        "8 MB",
        tolerance,
        "",
    );
    let of_all = Claim::without(
        "memory-detectors",
        "the same, everything that a detector holds: sketch (2l rows, l = 25), basis, variances, rows that wait",
        "8 MB",
        tolerance,
        "",
    );
    let within = |megabytes: f64| megabytes <= 8.8;
    Ok(vec![
        of_bases.found(format!("{bases:.1} MB"), within(bases)),
        of_all.found(format!("{whole:.1} MB"), within(whole)),
    ])
}

/// Claims that need other hardware, software or data.
#[must_use]
pub fn elsewhere() -> Vec<Claim> {
    vec![
        Claim::without(
            "node-cpu",
            "node CPU of Prometheus and cAdvisor at generation/ingestion intervals 1 s/1 s, 1 s/30 s, 30 s/30 s",
            "12–13 %, 3–4 %, 2 %",
            "± 20 % of each",
            "a Kubernetes cluster with Istio, Prometheus and cAdvisor",
        ),
        Claim::without(
            "tracing",
            "tracing by LMAPs covers nearly all symptomatic traces, 5 times head sampling at 20 %, at about 5 % overhead",
            "≈ 100 %, 5 times, 5 %",
            "coverage at least 90 %, overhead at most 10 %",
            "traces and metrics of one system together: no such data is at hand, and the data that is has traces only",
        ),
        Claim::without(
            "prototype-rate",
            "scrapes per second and LMAP on a BlueField-2, 8 pods, 16, 64, 128, 256 metrics",
            "196, 100, 55, 30",
            "at least as many",
            "a BlueField card; docs/scale.md says what is expected of one",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use evaluation::reproduction::Verdict;

    fn point(rank: usize, percentile: f64, precision: f64, recall: f64) -> Point {
        Point {
            rank,
            sketch_rows: L,
            percentile,
            median: 0.5 / rank as f64,
            tail: 1.0 / rank as f64,
            precision,
            recall,
        }
    }

    #[test]
    fn a_sweep_as_published_holds_and_its_opposite_fails() {
        let published = [point(1, 90.0, 0.6, 0.4), point(20, 90.0, 0.3, 0.8), point(20, 99.9, 0.5, 0.7)];
        let opposite = [point(1, 90.0, 0.3, 0.8), point(20, 90.0, 0.9, 0.4), point(20, 99.9, 0.8, 0.3)];

        let verdicts = |points: &[Point]| sweeps(Some(points), None).iter().map(|c| c.verdict).collect::<Vec<_>>();

        assert!(verdicts(&published)[..5].iter().all(|verdict| *verdict == Verdict::Holds));
        assert!(verdicts(&opposite)[2..5].iter().all(|verdict| *verdict == Verdict::Fails));
        assert!(verdicts(&published)[6..].iter().all(|verdict| *verdict == Verdict::NotComputable));
    }

    #[test]
    fn sampling_is_judged_at_the_published_threshold_and_at_the_best_one() {
        let at = |step: u32, saved: f64, loss: f64| SamplingPoint { threshold: f64::from(step) / 20.0, saved, loss };
        let curve = [at(4, 0.25, 0.001), at(10, 0.3, 0.01), at(12, 0.55, 0.03), at(19, 0.9, 0.4)];

        let verdicts: Vec<_> = sampling(Some(&curve)).iter().map(|claim| claim.verdict).collect();

        assert_eq!(verdicts[..2], [Verdict::Fails, Verdict::Holds]);
        assert_eq!(verdicts[3], Verdict::Holds);
        assert!(sampling(None).iter().all(|claim| claim.verdict == Verdict::NotComputable));
    }

    #[test]
    fn every_claim_has_a_name_of_its_own() {
        let mut all = sweeps(None, None);
        all.extend(sampling(None));
        all.extend(memory().unwrap());
        all.extend(elsewhere());
        let mut ids: Vec<_> = all.iter().map(|claim| claim.id).collect();
        ids.sort_unstable();
        ids.dedup();

        assert_eq!(ids.len(), all.len());
    }
}
