//! Accuracy by memory: samples, heavy flows, both, and all reports.

use plotters::prelude::SeriesLabelPosition;
use synopses::reordering::{Definition, Reports, Settings, Split, Threshold};

use super::Bench;
use super::measure::{Case, PUBLISHED, Quality};
use super::traffic::Profile;
use crate::claim::{Claim, Verdict, judged_by_own_bar, judged_on_stand_in};
use crate::plot::{Axis, Figure, Line};

const DEF_1: Definition = Definition::BelowPredecessor;
const DEF_2: Definition = Definition::AboveExpected;

type Curve = Vec<(usize, Quality)>;

/// Traffic of the three profiles.
struct Cases {
    r1: Vec<Case>,
    r2: Vec<Case>,
    large: Vec<Case>,
}

fn cases(profile: Profile, definitions: &[Definition]) -> Vec<Case> {
    (1..=Bench::cases()).map(|seed| Case::new(profile, seed, definitions)).collect()
}

fn curve(bench: &Bench, cases: &[Case], split: Split, powers: &[u32]) -> Curve {
    let of = |power: &u32| {
        let buckets = 1 << power;
        (buckets, bench.quality(cases, Settings { buckets, split, ..PUBLISHED }))
    };
    powers.iter().map(of).collect()
}

fn at(curve: &Curve, buckets: usize) -> Quality {
    curve.iter().find(|(of, _)| *of == buckets).expect("a point of the curve").1
}

fn list(curve: &Curve) -> String {
    curve.iter().map(|(buckets, quality)| format!("{:.2} ({buckets})", quality.accuracy)).collect::<Vec<_>>().join(", ")
}

/// What the traffic is like, for the head of a row.
fn traffic(cases: &[Case]) -> String {
    let mean = |of: &dyn Fn(&Case) -> usize| cases.iter().map(of).sum::<usize>() / cases.len();
    format!(
        "{}: {:.1} M packets, {} prefixes to be found",
        cases[0].traffic.profile.name,
        mean(&|case| case.traffic.len()) as f64 / 1e6,
        mean(&|case| case.truth(DEF_1).wanted.len())
    )
}

/// The claims R1 to R6, R9 to R11, and their figure.
pub fn claims(bench: &Bench) -> (Vec<Claim>, Figure) {
    let all = Cases {
        r1: cases(Profile::R1, &[DEF_1, DEF_2]),
        r2: cases(Profile::R2, &[DEF_1, DEF_2]),
        large: cases(Profile::R1L, &[DEF_1]),
    };
    let samples = curve(bench, &all.r1, Split::SamplingOnly, &[3, 5, 7, 8, 10, 12, 14]);
    let heavy = curve(bench, &all.r1, Split::HeavyOnly, &[3, 5, 7, 10, 12, 14]);
    let large = curve(bench, &all.large, Split::SamplingOnly, &[3, 5, 7, 9, 12]);
    let mut claims = few_buckets(&all, &samples, &large);
    claims.extend(many_buckets(bench, &all, &samples, &large));
    claims.push(heavy_alone(&samples, &heavy));
    let (hybrids, best) = both_parts(bench, &all.r1, &samples);
    claims.extend(hybrids);
    claims.extend(always(bench, &all));
    claims.push(far_events(bench, &all, &samples));
    claims.push(overhead(&samples, &large));
    claims.push(switch());
    let line = |name, curve: &Curve| Line {
        name,
        points: curve.iter().map(|(buckets, quality)| (*buckets as f64, quality.accuracy)).collect(),
    };
    let figure = Figure {
        file: "reordering-accuracy.svg",
        caption: "Share of the prefixes with reordering that are flagged, 1,024 prefixes (R1)",
        x: Axis { title: "buckets", logarithmic: true, least: 8.0, most: 16_384.0 },
        y: Axis { title: "accuracy", logarithmic: false, least: 0.0, most: 1.0 },
        legend: SeriesLabelPosition::LowerRight,
        lines: vec![line("samples", &samples), line("heavy flows", &heavy), line("hybrid, best share", &best)],
    };
    (claims, figure)
}

fn few_buckets(all: &Cases, samples: &Curve, large: &Curve) -> Vec<Claim> {
    let rising = |curve: &Curve| curve.windows(2).all(|pair| pair[1].1.accuracy >= pair[0].1.accuracy - 0.03);
    let (small, dense, published) = (at(samples, 8).accuracy, at(large, 32).accuracy, at(large, 8).accuracy);
    vec![
        Claim {
            id: "R1",
            text: "samples of flows alone, a bucket for 128 prefixes, definition 1",
            published: "about 50 % with 2⁵ buckets on the campus, one for 531 prefixes",
            ours: format!("{}: {}; {}: {}", traffic(&all.r1), list(samples), traffic(&all.large), list(large)),
            tolerance: "at least 0.35 in R1 (8 buckets) and 0.75 in R1L (32), more with more buckets to 0.03",
            verdict: judged_on_stand_in(small >= 0.35 && dense >= 0.75 && rising(samples) && rising(large)),
        },
        Claim {
            id: "R1-ratio",
            text: "the same with the published ratio, a bucket for 512 prefixes (R1L)",
            published: "about 50 %",
            ours: format!("{published:.2} with 8 buckets"),
            tolerance: "0.4 to 0.6",
            verdict: judged_on_stand_in((0.4..=0.6).contains(&published)),
        },
    ]
}

fn many_buckets(bench: &Bench, all: &Cases, samples: &Curve, large: &Curve) -> Vec<Claim> {
    let other = |cases: &[Case], definition| {
        bench.quality(cases, Settings { buckets: 4_096, definition, ..PUBLISHED }).accuracy
    };
    let found = [at(samples, 4_096).accuracy, other(&all.r2, DEF_1), other(&all.r2, DEF_2)];
    vec![
        Claim {
            id: "R2",
            text: "samples alone, four buckets for each prefix: campus and CAIDA, definition 1, CAIDA, definition 2",
            published: "80.44 %, 81.19 % and 86.08 % with 2¹⁶ buckets",
            ours: format!(
                "R1 {:.3}, R2 {:.3}; R2, definition 2: {:.3}. The stand-in is easier than the traces",
                found[0], found[1], found[2]
            ),
            tolerance: "ours: at least 0.75",
            verdict: judged_by_own_bar(found.iter().all(|accuracy| *accuracy >= 0.75)),
        },
        Claim {
            id: "R11",
            text: "headline: prefixes found with moderate memory, a bucket for each prefix",
            published: "about 80 %",
            ours: format!(
                "R1 {:.3}, R1L {:.3}. The stand-in is easier than the traces",
                at(samples, 1_024).accuracy,
                at(large, 4_096).accuracy
            ),
            tolerance: "ours: at least 0.75",
            verdict: judged_by_own_bar(at(samples, 1_024).accuracy >= 0.75 && at(large, 4_096).accuracy >= 0.75),
        },
    ]
}

fn heavy_alone(samples: &Curve, heavy: &Curve) -> Claim {
    let (sampled, alone) = (at(samples, 32).accuracy, at(heavy, 32).accuracy);
    Claim {
        id: "R3",
        text: "heavy flows alone, with far fewer buckets than prefixes (R1)",
        published: "useless (a figure)",
        ours: format!("{}; samples {sampled:.2} (32)", list(heavy)),
        tolerance: "samples find at least four times as many with a bucket for 32 prefixes",
        verdict: judged_on_stand_in(sampled >= 4.0 * alone),
    }
}

/// A number of buckets, the best share of heavy flows, and what it gives.
type Best = [(usize, f64, Quality); 4];

/// Hybrids with a bucket for 8 prefixes, for one, and 4 and 16 for each.
fn hybrids(bench: &Bench, cases: &[Case]) -> Best {
    let shares: &[f64] = if bench.full { &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9] } else { &[0.1, 0.5, 0.6] };
    let prefixes = cases[0].traffic.profile.prefixes as usize;
    [prefixes / 8, prefixes, 4 * prefixes, 16 * prefixes].map(|buckets| {
        let each = shares.iter().map(|share| {
            let settings = Settings { buckets, split: Split::Hybrid(*share), ..PUBLISHED };
            (buckets, *share, bench.quality(cases, settings))
        });
        each.max_by(|one, other| one.2.accuracy.total_cmp(&other.2.accuracy)).expect("there are shares")
    })
}

/// R4 on one profile.
fn hybrid(id: &'static str, text: &'static str, best: &Best, samples: &Curve) -> Claim {
    let of = |buckets: usize| at(samples, buckets).accuracy;
    let each = best.map(|(buckets, share, quality)| {
        format!("{:.3} with a share of {share} and {:.3} ({buckets})", quality.accuracy, of(buckets))
    });
    let near = best.iter().all(|(buckets, _, quality)| quality.accuracy >= of(*buckets) - 0.03);
    let above = best[2..].iter().all(|(buckets, _, quality)| quality.accuracy > of(*buckets));
    Claim {
        id,
        text,
        published: "the same with few buckets, slightly better from a bucket for each prefix on (a figure)",
        ours: each.join(", "),
        tolerance: "at most 0.03 worse from a bucket for 8 prefixes on, better with 4 and 16 for each prefix",
        verdict: judged_on_stand_in(near && above),
    }
}

/// R4 on R1 and on R3, and the accuracy with the best share of heavy flows at each size of R1.
fn both_parts(bench: &Bench, cases: &[Case], samples: &Curve) -> ([Claim; 2], Curve) {
    let best = hybrids(bench, cases);
    let claim = hybrid(
        "R4",
        "hybrid with its best share of heavy flows, which is fitted at each size, beside samples alone (R1)",
        &best,
        samples,
    );
    let cases = self::cases(Profile::R3, &[DEF_1]);
    let samples = curve(bench, &cases, Split::SamplingOnly, &[8, 11, 13, 15]);
    let more =
        hybrid("R4-R3", "the same with R3, which has more prefixes to be found", &hybrids(bench, &cases), &samples);
    ([claim, more], best.iter().map(|(buckets, _, quality)| (*buckets, *quality)).collect())
}

/// R5: all records are reported, and prefixes with a small share left out.
fn always(bench: &Bench, all: &Cases) -> [Claim; 2] {
    let of = |cases: &[Case], buckets| {
        let basic = Settings { buckets, ..PUBLISHED };
        let all = Settings { reports: Reports::Always, ..basic };
        (bench.quality(cases, basic), bench.quality_with(cases, all, Threshold::Share(0.005)))
    };
    let points = [("R1", 256, of(&all.r1, 256)), ("R1L", 512, of(&all.large, 512))];
    let text = points.map(|(name, buckets, (basic, always))| {
        format!(
            "{name} with {buckets} buckets: false positives {:.2} → {:.2} (precision {:.2} → {:.2}), accuracy {:.2} → {:.2}, overhead {:.1e} → {:.3}",
            basic.false_positives,
            always.false_positives,
            basic.precision,
            always.precision,
            basic.accuracy,
            always.accuracy,
            basic.reports,
            always.reports
        )
    });
    let better = points.iter().all(|(.., (basic, always))| {
        always.false_positives <= basic.false_positives / 2.0
            && always.accuracy >= basic.accuracy
            && always.reports > 10.0 * basic.reports
    });
    let tenth = points.iter().all(|(.., (_, always))| always.reports > 0.1);
    let most = points.iter().map(|(.., (_, always))| always.reports).fold(0.0, f64::max);
    [
        Claim {
            id: "R5",
            text: "all evicted records are reported, and a prefix needs a share of c ε out of order, c = 0.5 (open in the publication)",
            published: "fewer false positives, higher accuracy",
            ours: text.join("; "),
            tolerance: "false positives at least halved, accuracy not lower, overhead at least ten times as high",
            verdict: judged_on_stand_in(better),
        },
        Claim {
            id: "R5-overhead",
            text: "the same: overhead",
            published: "above 10 % of the packets",
            ours: format!("at most {:.1} %", 100.0 * most),
            tolerance: "above 10 % in both",
            verdict: judged_on_stand_in(tenth),
        },
    ]
}

fn far_events(bench: &Bench, all: &Cases, samples: &Curve) -> Claim {
    let far = bench.quality(&all.r2, Settings { buckets: 8, ..PUBLISHED }).accuracy;
    let near = at(samples, 8).accuracy;
    Claim {
        id: "R6",
        text: "events after long gaps (R2), with a bucket for 128 prefixes",
        published: "lower accuracy with little memory: CAIDA by definition 1 below the campus (a figure)",
        ours: format!("R2 {far:.2}, R1 {near:.2}"),
        tolerance: "R2 below R1",
        verdict: judged_on_stand_in(far < near),
    }
}

fn overhead(samples: &Curve, large: &Curve) -> Claim {
    let rates = samples.iter().chain(large).map(|(_, quality)| quality.reports);
    let (least, most) = (rates.clone().fold(f64::MAX, f64::min), rates.fold(0.0, f64::max));
    Claim {
        id: "R9",
        text: "overhead of samples alone, all points of R1",
        published: "low",
        ours: format!("{least:.1e} to {most:.1e} reports per packet"),
        tolerance: "ours: at most 2·10⁻³",
        verdict: judged_by_own_bar(most <= 2e-3),
    }
}

fn switch() -> Claim {
    Claim {
        id: "R10",
        text: "resources of a Tofino 1",
        published: "with 2⁸ buckets 33.33 % of the stages, 38.54 % TCAM, 9.38 % SRAM; with 2¹⁶ 41.67 % of the stages (its table prints 41.47), 26.67 % TCAM, 33.75 % SRAM",
        ours: "needs a Tofino and its compiler".to_owned(),
        tolerance: "none here",
        verdict: Verdict::NotComputable,
    }
}
