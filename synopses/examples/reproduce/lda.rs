//! The claims on LDA that FineComb's and RDA's publications make.

use plotters::chart::SeriesLabelPosition;
use synopses::digest::Digest;
use synopses::finecomb::{Bank, Deviation, FineComb, Interval, Rule, Sampling, Settings, Solver};

use crate::claim::{Claim, Reproduction, judged};
use crate::finecomb::{SPREAD, weibull};
use crate::plot::{Axis, Figure, Line};
use crate::scale::Scale;
use crate::streams::{Delays, Loss, Reading, SPACING_NS, Stream, play, random};
use crate::sweep::{
    self, Errors, MEMORY, PACKETS, PlayedInterval, Point, SHARES, SweepPoint, displaced, each, estimate, list, percent,
    run, settings,
};
use crate::trace::{TRACE, TRACE_PACKETS, TRACE_SPACING_NS, queue};

pub fn reproduction(scale: Scale) -> Reproduction {
    let delays = weibull();
    let all = along(Reading::All, &SHARES, scale, &delays);
    let mut claims = misled(&all);
    claims.push(corrected(scale, &delays));
    claims.push(two_banks(scale, &delays));
    claims.push(few_lost(scale, &delays));
    claims.push(trace());
    claims.push(useful(scale));
    Reproduction {
        name: "lda",
        title: "LDA",
        about: "What FineComb's publication (F) and RDA's (R) say of LDA: its own is not at hand, so that its sampling is the one recommended in what builds on it. \
                Workloads and words are those of [finecomb.md](finecomb.md); LDA has half as many buckets again, of two words instead of three. LDA+ \
                leaves out buckets whose packets arrived before they were sent.",
        claims,
        figures: vec![figure(&all)],
    }
}

type Sweep = Vec<(f64, SweepPoint)>;

fn along(reading: Reading, shares: &[f64], scale: Scale, delays: &Delays) -> Sweep {
    let point = |share| Point { loss: 1e-4, share, reading };
    scale.of(shares).into_iter().map(|share| (share, run(point(share), delays, scale.runs))).collect()
}

/// What became of the points with ρ from `from` on.
fn from(sweep: &[(f64, SweepPoint)], from: f64) -> impl Iterator<Item = &(f64, SweepPoint)> {
    sweep.iter().filter(move |(share, _)| *share >= from)
}

fn misled(all: &[(f64, SweepPoint)]) -> Vec<Claim> {
    let last = all[all.len() - 1];
    let means: Vec<f64> = from(all, 5e-4).map(|(_, found)| found.lda.mean).collect();
    let losses: Vec<f64> = from(all, 5e-4).map(|(_, found)| found.lda_buckets.loss).collect();
    let better = from(all, 2e-4)
        .map(|(share, found)| (*share, found.lda.mean / found.fine.mean, found.lda_buckets.loss / found.fine.loss));
    let better: Vec<_> = better.collect();
    let times = |(share, mean, loss): &(f64, f64, f64)| format!("{mean:.0} and {loss:.0} (ρ = {share:.0e})");
    vec![
        Claim {
            id: "F10",
            text: "error of LDA's mean delay, β = 10⁻⁴",
            published: "100 % at ρ = 5·10⁻⁴ to 400 % at 4·10⁻³",
            ours: list(all.iter().map(|(share, found)| (*share, found.lda.mean))),
            tolerance: "above 30 % from 5·10⁻⁴ on, above 100 % at the largest ρ, and more there than at 5·10⁻⁴",
            verdict: judged(
                means.iter().all(|mean| *mean > 0.3) && last.1.lda.mean > 1.0 && last.1.lda.mean > means[0],
            ),
        },
        Claim {
            id: "F12",
            text: "FineComb's errors are smaller than LDA's even where little is displaced: mean, loss",
            published: "10 times, 200 times",
            ours: better.iter().map(times).collect::<Vec<_>>().join(", "),
            tolerance: "mean at least 10 times from ρ = 2·10⁻⁴ on",
            verdict: judged(!better.is_empty() && better.iter().all(|(_, mean, _)| *mean >= 10.0)),
        },
        Claim {
            id: "F13b",
            text: "error of LDA's loss, β = 10⁻⁴",
            published: "100 to 500 %",
            ours: format!(
                "bucket by bucket {}; from sums of all counts, in which displaced packets cancel out here, at most {}",
                list(all.iter().map(|(share, found)| (*share, found.lda_buckets.loss))),
                percent(all.iter().map(|(_, found)| found.lda.loss).fold(0.0, f64::max))
            ),
            tolerance: "bucket by bucket at least 90 % from ρ = 5·10⁻⁴ on",
            verdict: judged(losses.iter().all(|loss| *loss >= 0.9)),
        },
    ]
}

/// LDA+, the variant with corrected means.
fn corrected(scale: Scale, delays: &Delays) -> Claim {
    let shares = [5e-4, 4e-3];
    let forward = along(Reading::Forward, &shares, scale, delays);
    let backward = along(Reading::Backward, &shares, scale, delays);
    let both = along(Reading::All, &shares, scale, delays);
    let pair = |sweep: &[(f64, SweepPoint)]| {
        let of = |(_, found): &(f64, SweepPoint)| {
            format!("{} and {}", percent(found.lda.mean), percent(found.lda_plus.mean))
        };
        sweep.iter().map(of).collect::<Vec<_>>().join("; ")
    };
    let fixes = forward.iter().all(|(_, found)| found.lda_plus.mean < 0.2 * found.lda.mean);
    let same = backward.iter().all(|(_, found)| (found.lda_plus.mean / found.lda.mean - 1.0).abs() < 0.1);
    Claim {
        id: "F11",
        text: "LDA+ puts right what arrives late from the interval before, and nothing of what arrives early from the one after",
        published: "yes",
        ours: format!(
            "LDA and LDA+ at ρ = 5·10⁻⁴ and the largest: late {}; early {}; on all sides {}",
            pair(&forward),
            pair(&backward),
            pair(&both)
        ),
        tolerance: "late: a fifth of LDA's error at most; early: the same within 10 %",
        verdict: judged(fixes && same),
    }
}

fn lda_of_two_banks(buckets: usize, packets: f64, seed: u64) -> Settings {
    let bank =
        |loss: f64| Bank { probability: (0.5 * buckets as f64 / (loss * packets + 1.0)).min(0.5), stash: 0, loss };
    Settings { buckets, banks: vec![bank(1e-4), bank(1e-2)], sampling: Sampling::Disjoint, seed }
}

fn two_banks(scale: Scale, delays: &Delays) -> Claim {
    let mut found = Vec::new();
    for share in scale.of(&[4e-6, 2e-4, 8e-4, 4e-3, 1.6e-2, 4e-2]) {
        let seen = each(scale.runs, |seed| {
            let draw = |_, random| delays.draw(random);
            let stream = Stream {
                packets: PACKETS,
                spacing_ns: SPACING_NS,
                loss: Loss::Share(1e-2),
                displaced: Reading::All.of(displaced(PACKETS, share)),
                delays: &draw,
                seed,
            };
            let (ends, truth) = play(&stream, &[lda_of_two_banks(1_500, PACKETS as f64, seed)]);
            PlayedInterval { ends, truth }
        });
        let errors = sweep::errors(&seen, Rule::Lda, Deviation::Centred);
        found.push((share, errors.mean));
    }
    let many = found.iter().filter(|(share, _)| *share >= 8e-4).map(|(_, mean)| *mean).fold(f64::MAX, f64::min);
    Claim {
        id: "F15b",
        text: "LDA with two banks, β = 10⁻²: mean delay",
        published: "good where almost nothing is displaced, two orders worse than four banks of FineComb (1 %) from ρ = 8·10⁻⁴ on",
        ours: list(found.iter().copied()),
        tolerance: "100 % and more from 8·10⁻⁴ on, at most 10 % at 4·10⁻⁶",
        verdict: judged(many >= 1.0 && found[0].1 <= 0.10),
    }
}

fn few_lost(scale: Scale, delays: &Delays) -> Claim {
    let mut errors = Vec::new();
    for lost in scale.of(&[5_u64, 10, 50, 100]) {
        let point = Point { loss: lost as f64 / PACKETS as f64, share: 1e-4, reading: Reading::All };
        let seen = each(scale.runs, |seed| {
            let [.., lda] = settings(point, 2.0 * MEMORY, PACKETS as f64, seed);
            let draw = |_, random| delays.draw(random);
            let stream = Stream {
                packets: PACKETS,
                spacing_ns: SPACING_NS,
                loss: Loss::Exactly(lost),
                displaced: point.reading.of(displaced(PACKETS, point.share)),
                delays: &draw,
                seed,
            };
            let (ends, truth) = play(&stream, &[lda]);
            PlayedInterval { ends, truth }
        });
        // Without a digest, FineComb's rule for loss is that of LDA's buckets.
        let found = sweep::errors(&seen, Rule::FineCombMinus, Deviation::PerBucket);
        errors.push((lost, found.loss));
    }
    let each = errors.iter().map(|(lost, error)| format!("{} ({lost} lost)", percent(*error)));
    Claim {
        id: "F14b",
        text: "error of LDA's loss, bucket by bucket, where 5 to 100 packets are lost, ρ = 10⁻⁴",
        published: "about 2,000 %",
        ours: each.collect::<Vec<_>>().join(", "),
        tolerance: "at least 300 % with 5 lost",
        verdict: judged(errors[0].1 >= 3.0),
    }
}

/// Errors of LDA's mean where nothing is lost and where something is, and of FineComb's with four banks.
fn on_trace(share: f64) -> [f64; 3] {
    let queue = queue();
    let draw = |number: u64, _| queue[(number % TRACE_PACKETS) as usize];
    let packets = TRACE_PACKETS as f64;
    let [mut lossless, mut lossy, mut fine] = [Errors::default(); 3];
    for (seed, loss) in (0..).zip(TRACE) {
        let displaced = Reading::All.of(displaced(TRACE_PACKETS, share));
        let stream = Stream {
            packets: TRACE_PACKETS,
            spacing_ns: TRACE_SPACING_NS,
            loss: Loss::Share(loss),
            displaced,
            delays: &draw,
            seed,
        };
        let settings = [lda_of_two_banks(750, packets, seed), Settings::four_banks(1_000, packets, SPREAD, seed)];
        let (ends, truth) = play(&stream, &settings);
        let (errors, runs) = if loss == 0.0 { (&mut lossless, 4) } else { (&mut lossy, 8) };
        errors.add(&estimate(&ends[0], Rule::Lda, Deviation::Centred), &truth, runs);
        fine.add(&estimate(&ends[1], Rule::FineComb, Deviation::Centred), &truth, TRACE.len() as u64);
    }
    [lossless.mean, lossy.mean, fine.mean]
}

fn trace() -> Claim {
    let found = [0.0, 2.4e-3, 1.6e-2].map(|share| (share, on_trace(share)));
    let each = found.iter().map(|(share, [none, some, fine])| {
        format!("{}, {}; {} (ρ = {share:.1e})", percent(*none), percent(*some), percent(*fine))
    });
    let worse = |(_, [none, some, fine]): &(f64, [f64; 3])| (4.0 * none + 8.0 * some) / 12.0 >= 10.0 * fine;
    Claim {
        id: "F16b",
        text: "LDA with two banks, trace: mean delay",
        published: "ten times worse than FineComb from ρ = 0.0024 on; good on intervals without loss",
        ours: format!("intervals without loss, with loss; FineComb: {}", each.collect::<Vec<_>>().join(", ")),
        tolerance: "ten times FineComb's error from 0.0024 on; below 1 % without loss and displacement",
        verdict: judged(found[0].1[0] < 0.01 && found[1..].iter().all(worse)),
    }
}

/// Shares of packets in buckets that LDA takes for useful, where a tenth is lost and a tenth came too much.
fn useful(scale: Scale) -> Claim {
    let (packets, lost, extra) = (100_000_u64, 10_000, 10_000);
    let settings = Settings::one_bank(4 * (lost + extra), 1.0, 0, 3);
    let mut shares = 0.0;
    for seed in 0..scale.runs {
        let (mut sender, mut receiver) =
            (FineComb::new(&settings).expect("possible"), FineComb::new(&settings).expect("possible"));
        for number in 0..packets + extra as u64 {
            let digest = Digest(random(number ^ random(seed)));
            if number < packets {
                sender.insert(digest, number);
            }
            if number >= lost as u64 {
                receiver.insert(digest, number + 5);
            }
        }
        let found =
            Interval::without_stash(receiver).estimate(&sender, Rule::Lda, Solver::Elimination, Deviation::PerBucket);
        shares += found.expect("one kind").packets as f64 / (packets - lost as u64) as f64 / scale.runs as f64;
    }
    // As many of one kind as of the other, both of Poisson's law with 1/8 in the mean: e^(−1/4) I₀(1/4).
    let expected = (-0.25_f64).exp() * (1.0 + 0.25_f64.powi(2) / 4.0);
    Claim {
        id: "R7b",
        text: "packets in buckets that LDA takes for useful, a tenth lost and a tenth too much, four buckets for each",
        published: "lowest, flat",
        ours: format!("{shares:.3} (expected of coinciding counts: {expected:.3})"),
        tolerance: "within 0.02",
        verdict: judged((shares - expected).abs() <= 0.02),
    }
}

fn figure(all: &[(f64, SweepPoint)]) -> Figure {
    let line = |name, of: fn(&SweepPoint) -> f64| Line {
        name,
        points: all.iter().map(|(share, found)| (*share, of(found))).collect(),
    };
    Figure {
        file: "lda-mean.svg",
        caption: "Relative error of the mean delay, β = 10⁻⁴, packets displaced on all sides",
        x: Axis { title: "ρ, displaced packets as a share of all", logarithmic: true, least: 4e-6, most: 4e-3 },
        y: Axis { title: "error of the mean", logarithmic: true, least: 1e-4, most: 1e2 },
        legend: SeriesLabelPosition::UpperLeft,
        lines: vec![
            line("FineComb", |found| found.fine.mean),
            line("LDA", |found| found.lda.mean),
            line("LDA+", |found| found.lda_plus.mean),
        ],
    }
}
