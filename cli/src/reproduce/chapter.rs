//! The claims of chapter 4 that need no experiment of their own: k, l and q, dynamic sampling, memory; and the claims
//! that cannot be measured here. Pure.

use evaluation::reproduction::memory::DetectorSet;
use evaluation::reproduction::sampling::{SamplingCurve, SamplingPoint, saving, straightness};
use evaluation::reproduction::sweep::{PaperForm, Point, at, between_sketches};
use evaluation::reproduction::{Claim, Verdict};
use lmap::{DetectorError, Settings, SketchForm};

/// Differences below this are noise.
const NOISE: f64 = 0.03;
/// Number of rows of the sketch at which the sweep over k is read.
const L: usize = 50;
const SMALL: usize = 1;
const LARGE: usize = 20;
const CARD: &str = "a BlueField-2 card; [scale.md](../scale.md) says what is expected of one";
const NO_DATA: &str = "UVIEW_DATA does not name a folder with the set, or none of its units has a fault";

/// The rows of one reading of the chapter: their ids end in its suffix.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// How the sketch is kept.
    pub sketch: SketchForm,
    /// The end of ids.
    pub suffix: &'static str,
    /// The verdicts on published figures.
    judge: fn(bool) -> Verdict,
}

impl Reading {
    /// As published, and with the sketch that our detectors have.
    pub const ALL: [Self; 2] = [
        Self { sketch: SketchForm::RowWise, suffix: "", judge: Verdict::on_stand_in },
        Self { sketch: SketchForm::Buffered, suffix: "-buffered", judge: Verdict::by_own_bar },
    ];

    fn claim(self, id: &str, [claim, published, tolerance]: [&'static str; 3]) -> Claim {
        Claim::without(format!("{id}{}", self.suffix), claim, published, tolerance, NO_DATA)
    }
}

/// The claims about k, l and q: id, claim, what is published, tolerance.
const OF_SWEEPS: [(&str, [&str; 3]); 6] = [
    (
        "k-tail",
        [
            "a small k underfits: the tail of the training scores (relative form) approaches 1",
            "approaches 1",
            "99.9th percentile at k = 1 at least 0.9",
        ],
    ),
    (
        "k-mass",
        [
            "k = 20 overfits: training scores concentrate around 0",
            "concentrated around 0",
            "median at k = 20 below 0.25",
        ],
    ),
    (
        "k-recall",
        ["recall grows with k", "better recall; no figure", "at k = 20 at least 0.03 more than at k = 1 (mean over q)"],
    ),
    (
        "k-precision",
        [
            "precision falls with k",
            "lower precision; no figure",
            "at k = 20 at least 0.03 less than at k = 1 (mean over q)",
        ],
    ),
    (
        "q-mitigates",
        [
            "a higher threshold mitigates the false positives of a large k",
            "mitigated; no figure",
            "precision at k = 20: with q = 99.9 at least 0.03 more than with q = 90",
        ],
    ),
    (
        "l",
        [
            "precision and recall do not change significantly from l = 25 to l = 50",
            "no significant change; no figure",
            "mean difference over k and q at most 0.05",
        ],
    ),
];

/// The claims about k, l and q on the data set `name`: on Redis (one server at 1 s, as in the chapter) or on Online
/// Boutique (mean over its units).
#[must_use]
pub fn sweep(name: &str, points: Option<&[Point]>, reading: Reading) -> Vec<Claim> {
    let unknown = OF_SWEEPS.map(|(id, texts)| reading.claim(&format!("{id}-{name}"), texts));
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
    let (published, own_bar) = (reading.judge, Verdict::by_own_bar);
    let found = [
        (format!("{tail:.2}"), published(tail >= 0.9)),
        (format!("{median:.2} (k = 1: {:.2})", read(SMALL, |point| point.median)), published(median < 0.25)),
        (format!("k = 1: {low:.2}, k = 20: {high:.2}"), own_bar(high >= low + NOISE)),
        (format!("k = 1: {early:.2}, k = 20: {late:.2}"), own_bar(late <= early - NOISE)),
        (format!("q = 90: {loose:.2}, q = 99.9: {strict:.2}"), own_bar(strict >= loose + NOISE)),
        (format!("mean {mean:.3}, most {most:.3}"), own_bar(mean <= 0.05)),
    ];
    unknown.into_iter().zip(found).map(|(claim, (ours, verdict))| claim.with(ours, verdict)).collect()
}

/// The claims about dynamic sampling: id, claim, what is published, tolerance.
const OF_SAMPLING: [(&str, [&str; 3]); 6] = [
    (
        "sampling-at-half",
        [
            "dynamic sampling, Redis, k = 15, l = 25: at threshold 0.5 half of the data is saved for less than 5 % of accuracy (NCC)",
            "50 %, < 5 %",
            "saved 40 to 60 %, loss below 5 %",
        ],
    ),
    (
        "sampling-at-half-squared",
        ["the same, of the squared norm, which the chapter's text calls the score", "50 %, < 5 %", "as above"],
    ),
    (
        "sampling-half",
        [
            "another threshold than the published one saves half of the data for less than 5 % of accuracy",
            "50 %, < 5 %, at threshold 0.5",
            "the threshold with the least loss: saved at least 50 %, loss below 5 %",
        ],
    ),
    ("sampling-half-centred", ["the same, of the centred loss", "50 %, < 5 %, at threshold 0.5", "as above"]),
    (
        "sampling-linear",
        ["the volume falls linearly with the threshold", "linearly; no figure", "R² of a straight line at least 0.9"],
    ),
    (
        "sampling-plateau",
        [
            "accuracy stays on a plateau before it drops",
            "plateau; no figure",
            "loss below 1 % at a quarter of the data saved, and above 5 % at the last threshold",
        ],
    ),
];

/// The claims about dynamic sampling, on Redis.
#[must_use]
pub fn sampling(curve: Option<&SamplingCurve>, reading: Reading) -> Vec<Claim> {
    let unknown = OF_SAMPLING.map(|(id, texts)| reading.claim(id, texts));
    let Some(SamplingCurve { points, squared }) = curve else { return unknown.to_vec() };
    let words = |saved: f64, loss: f64, threshold: f64| {
        format!("{:.0} % saved at a loss of {:.1} % (threshold {threshold:.2})", 100.0 * saved, 100.0 * loss)
    };
    let text = |point: SamplingPoint| words(point.saved, point.loss, point.threshold);
    let nowhere = SamplingPoint { threshold: 0.0, saved: 0.0, loss: 1.0, centred: 1.0 };
    let middle = points.iter().find(|sampled| (sampled.threshold - 0.5).abs() < 1e-9).copied().unwrap_or(nowhere);
    let saving = |share, loss: fn(&SamplingPoint) -> f64| saving(points, share, loss).unwrap_or(nowhere);
    let (half, quarter) = (saving(0.5, |point| point.loss), saving(0.25, |point| point.loss));
    let centred = saving(0.5, |point| point.centred);
    let last = points.last().copied().unwrap_or(nowhere);
    let straight = straightness(points);
    let as_published = |point: &SamplingPoint| (0.4..=0.6).contains(&point.saved) && point.loss < 0.05;
    let (published, own_bar) = (reading.judge, Verdict::by_own_bar);
    let found = [
        (text(middle), published(as_published(&middle))),
        (text(*squared), published(as_published(squared))),
        (text(half), own_bar(half.saved >= 0.5 && half.loss < 0.05)),
        (
            words(centred.saved, centred.centred, centred.threshold),
            own_bar(centred.saved >= 0.5 && centred.centred < 0.05),
        ),
        (format!("R² {straight:.2}"), own_bar(straight >= 0.9)),
        (format!("{}; {}", text(quarter), text(last)), own_bar(quarter.loss < 0.01 && last.loss > 0.05)),
    ];
    unknown.into_iter().zip(found).map(|(claim, (ours, verdict))| claim.with(ours, verdict)).collect()
}

/// The claims about memory, for the chapter's example: of the paper's form and of our default.
///
/// # Errors
///
/// [`DetectorError`] if the detectors cannot be built.
pub fn memory() -> Result<Vec<Claim>, DetectorError> {
    let sketch = SketchForm::RowWise;
    let papers = PaperForm { sketch, rank: RANK_OF_MEMORY, sketch_rows: SKETCH_OF_MEMORY, percentile: 99.0 }.settings();
    let default = Settings { sketch_rows: Some(SKETCH_OF_MEMORY), ..Settings::default() };
    let mut claims = of_memory(papers, ["memory-bases", "memory-detectors"], Verdict::judged)?;
    claims.extend(of_memory(default, ["memory-bases-default", "memory-detectors-default"], Verdict::by_own_bar)?);
    Ok(claims)
}

/// The chapter's k, and our l.
const RANK_OF_MEMORY: usize = 10;
const SKETCH_OF_MEMORY: usize = 25;

fn of_memory(
    settings: Settings,
    ids: [&'static str; 2],
    judge: fn(bool) -> Verdict,
) -> Result<Vec<Claim>, DetectorError> {
    let set = DetectorSet { settings, services: 100, metrics: 1_000, rank: RANK_OF_MEMORY, rows: 60 };
    let found = set.memory()?;
    let tolerance = "at most 10 % more";
    let claim = |id, text, bytes: usize| {
        let megabytes = bytes as f64 / 1e6;
        Claim::without(id, text, "8 MB", tolerance, "").with(format!("{megabytes:.1} MB"), judge(megabytes <= 8.8))
    };
    Ok(vec![
        claim(
            ids[0],
            "1,000 metrics of 100 services at k = 10: the rank-k approximations in all precisions that are held (paper's form: \
             f64 and a copy in f32; default: f32)",
            found.bases,
        ),
        claim(
            ids[1],
            "the same, everything that a detector holds: sketch (l = 25; 2l rows in the default), basis, variances, rows that wait",
            found.detectors,
        ),
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
            "coverage at least 90 %, 4.5 times, overhead at most 5 %",
            "traces and metrics of the publication's system; rows of simulated shops are in [hooks.md](hooks.md), with the chapter's \
             oracle, and figures of real traces without metrics in [dsbhotel.md](dsbhotel.md)",
        ),
        Claim::without(
            "prototype-rate",
            "scrapes per second and LMAP on a BlueField-2 with 8 pods: of 16, 64, 128, 256 metrics",
            "196, 100, 55, 30",
            "at least as many",
            CARD,
        ),
        Claim::without(
            "prototype-pods",
            "scrapes per second and LMAP on a BlueField-2: with 8, 16, 64, 128, 256 pods",
            "97, 48, 13, 6, 3",
            "at least as many",
            CARD,
        ),
        Claim::without(
            "prototype-endpoint",
            "the same as in the first row, read behind the prototype's Prometheus endpoint",
            "127, 44, 23, 12",
            "at least as many",
            "a BlueField-2 card and an endpoint on it: our NIC agent sends verdicts to the host and serves no metrics of services",
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

        let verdicts = |points: Option<&[Point]>| {
            sweep("redis", points, Reading::ALL[0]).iter().map(|claim| claim.verdict).collect::<Vec<_>>()
        };

        assert!(verdicts(Some(&published))[..5].iter().all(|verdict| verdict.holds()));
        assert!(verdicts(Some(&opposite))[2..5].iter().all(|verdict| *verdict == Verdict::Fails));
        assert!(verdicts(None).iter().all(|verdict| *verdict == Verdict::NotComputable));
    }

    #[test]
    fn sampling_is_judged_at_the_published_threshold_and_at_the_best_one() {
        let at = |step: u32, saved: f64, loss: f64| SamplingPoint {
            threshold: f64::from(step) / 20.0,
            saved,
            loss,
            centred: 2.0 * loss,
        };
        let points = vec![at(4, 0.25, 0.001), at(10, 0.3, 0.01), at(12, 0.55, 0.03), at(19, 0.9, 0.4)];
        let curve = SamplingCurve { points, squared: at(14, 0.5, 0.04) };

        let verdicts = |reading| sampling(Some(&curve), reading).iter().map(|claim| claim.verdict).collect::<Vec<_>>();

        let [published, buffered] = Reading::ALL.map(verdicts);
        assert_eq!(published[..4], [Verdict::Fails, Verdict::HoldsOnStandIn, Verdict::HoldsByOwnBar, Verdict::Fails]);
        assert_eq!((buffered[1], buffered[5]), (Verdict::HoldsByOwnBar, Verdict::HoldsByOwnBar));
        assert!(sampling(None, Reading::ALL[0]).iter().all(|claim| claim.verdict == Verdict::NotComputable));
    }

    #[test]
    fn every_claim_has_a_name_of_its_own() {
        let mut all = memory().unwrap();
        for reading in Reading::ALL {
            all.extend(["redis", "boutique"].into_iter().flat_map(|name| sweep(name, None, reading)));
            all.extend(sampling(None, reading));
        }
        all.extend(elsewhere());
        let mut ids: Vec<_> = all.iter().map(|claim| &claim.id).collect();
        ids.sort_unstable();
        ids.dedup();

        assert_eq!(ids.len(), all.len());
    }
}
