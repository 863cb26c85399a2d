//! The claims on LDA that FineComb's and RDA's publications make.

use plotters::chart::SeriesLabelPosition;
use synopses::digest::Digest;
use synopses::finecomb::{Deviation, FineComb, Interval, Rule, Settings, Solver};

use crate::banks::Banks;
use crate::claim::{Claim, Reproduction, judged, judged_by_own_bar};
use crate::microscopic::Microscopic;
use crate::plot::{Axis, Figure, Line};
use crate::scale::Scale;
use crate::streams::{Loss, Reading, random, rows};
use crate::sweep::{
    Case, LOSSES, MEMORY, PACKETS, Point, Sweep, SweepPoint, Sweeps, along, errors, from, graded, list, percent, run,
    settings, weibull, whole,
};
use crate::trace::TraceResults;

/// ρ between which figure 5's errors of LDA are printed.
const PRINTED: [f64; 2] = [5e-4, 4e-3];

const ABOUT: &str = "What FineComb's publication (F) and RDA's (R) say of LDA: its own is not at hand, so that its sampling is the one \
    recommended in what builds on it (half of the packets that would spoil every bucket). Workloads, readings and words are those of \
    [finecomb.md](finecomb.md), and so are the runs: both tables are made at once. LDA has half as many buckets again, of two words instead \
    of three. LDA+ leaves out buckets whose packets arrived before they were sent. *Early* is ⟨0, 0, x, 0⟩, the other end of a backward \
    packet: in the interval that it arrives in. LDA's loss is that of the *sums of all counts*, less what is received than what is sent; \
    *bucket by bucket* is FineComb's rule on LDA's buckets, only those with fewer received packets.";

pub fn reproduction(
    scale: Scale,
    sweeps: &Sweeps,
    few: &Microscopic,
    banks: &Banks,
    trace: &TraceResults,
) -> Reproduction {
    let early = PRINTED.map(|share| run(LOSSES[0], share, &[Reading::Early], scale.many)).concat();
    let mut claims: Vec<Claim> =
        rows!("F10").map(|(id, reading)| misled(id, reading, sweeps.of(LOSSES[0], reading))).collect();
    claims.push(misled("F10-early", Reading::Early, &early));
    claims.push(corrected(sweeps, &early));
    claims.push(better(scale));
    claims.extend(rows!("F12-mean").map(|(id, reading)| means(id, reading, sweeps.of(LOSSES[0], reading))));
    claims.extend(rows!("F12-loss").map(|(id, reading)| losses(id, reading, sweeps.of(LOSSES[0], reading))));
    claims.extend(rows!("F13b").map(|(id, reading)| sums(id, reading, sweeps.of(LOSSES[0], reading))));
    claims.push(buckets(sweeps));
    claims.extend(few.lda_claims());
    claims.extend(banks.lda_claims(scale));
    claims.extend(trace.lda_claims());
    claims.push(useful(scale));
    Reproduction { name: "lda", title: "LDA", about: ABOUT, claims, figures: vec![figure(sweeps)] }
}

/// The points at the two ρ of figure 5.
fn printed(sweep: &Sweep) -> [SweepPoint; 2] {
    let last = sweep[sweep.len() - 1];
    [from(sweep, PRINTED[0]).next().copied().unwrap_or(last), last]
}

fn misled(id: &'static str, reading: Reading, sweep: &Sweep) -> Claim {
    let [less, more] = printed(sweep).map(|found| found.lda.mean);
    let within = |factor: f64| (less.max(1.0 / less) <= factor) && (more / 4.0).max(4.0 / more) <= factor;
    let high = from(sweep, PRINTED[0]).all(|found| found.lda.mean > 0.3);
    Claim {
        id,
        text: "error of LDA's mean delay, β = 10⁻⁴",
        published: "100 % at ρ = 5·10⁻⁴ to 400 % at 4·10⁻³",
        ours: format!(
            "{}: {}; {:.1} and {:.1} times what is printed",
            reading.name(),
            list(along(sweep, |found| found.lda.mean)),
            less,
            more / 4.0
        ),
        tolerance: "within a factor of two at both, or by our own bar within a factor of ten, above 30 % from 5·10⁻⁴ on, and more at the \
                    largest ρ than there",
        verdict: graded(within(2.0), within(10.0) && high && more > less),
    }
}

/// LDA+, the variant with corrected means.
fn corrected(sweeps: &Sweeps, early: &Sweep) -> Claim {
    let of = |reading: Reading| printed(sweeps.of(LOSSES[0], reading));
    let [forward, backward, all] = [Reading::Forward, Reading::Backward, Reading::All].map(of);
    let early = printed(early);
    let pair = |points: &[SweepPoint]| {
        let of = |found: &SweepPoint| format!("{} and {}", percent(found.lda.mean), percent(found.lda_plus.mean));
        points.iter().map(of).collect::<Vec<_>>().join("; ")
    };
    let fixes = forward.iter().all(|found| found.lda_plus.mean < 0.2 * found.lda.mean);
    let same = backward.iter().chain(&early).all(|found| (found.lda_plus.mean / found.lda.mean - 1.0).abs() < 0.1);
    Claim {
        id: "F11",
        text: "LDA+ puts most of the forward case right, and nothing of the backward one",
        published: "yes",
        ours: format!(
            "LDA and LDA+ at ρ = 5·10⁻⁴ and the largest: forward {}; backward {}; early {}; on all sides {}",
            pair(&forward),
            pair(&backward),
            pair(&early),
            pair(&all)
        ),
        tolerance: "forward: a fifth of LDA's error at most; backward and early: the same within 10 %",
        verdict: judged(fixes && same),
    }
}

/// LDA+ beside FineComb where more is lost.
fn better(scale: Scale) -> Claim {
    let runs = if scale.full { 400 } else { 24 };
    let (readings, delays) = ([Reading::Forward], weibull());
    let point = Point { loss: LOSSES[1], share: 2e-4, reading: readings[0] };
    let case = Case { loss: Loss::Share(point.loss), share: point.share, readings: &readings, delays: &delays };
    let played = case.play(runs, |seed| {
        let [fine, _, lda] = settings(point, MEMORY, PACKETS as f64, seed);
        vec![fine, lda]
    });
    let of = |which: usize, rule: Rule| errors(&played, 0, which, rule, Deviation::PerBucket);
    let (fine, lda) = (of(0, Rule::FineComb), of(1, Rule::LdaPlus));
    Claim {
        id: "F11b",
        text: "LDA+ is slightly more accurate than FineComb at β = 10⁻³, forward, since its sampling rate is slightly higher and it has more samples",
        published: "yes",
        ours: format!(
            "mean delay off by {} and {} (FineComb) at ρ = {:e}, {runs} runs; {:.0} and {:.0} packets in useful buckets",
            percent(lda.mean),
            percent(fine.mean),
            point.share,
            lda.packets,
            fine.packets
        ),
        tolerance: "a smaller error, and more packets",
        verdict: judged(lda.mean < fine.mean && lda.packets > fine.packets),
    }
}

fn means(id: &'static str, reading: Reading, sweep: &Sweep) -> Claim {
    let ratios: Vec<(f64, f64)> =
        from(sweep, 2e-4).map(|found| (found.point.share, found.lda.mean / found.fine.mean)).collect();
    let holds = ratios.iter().all(|(_, ratio)| *ratio >= 10.0);
    Claim {
        id,
        text: "FineComb's mean delay is better than LDA's even where little is displaced, β = 10⁻⁴",
        published: "10 times lower relative error",
        ours: format!("{}: times {}", reading.name(), whole(ratios)),
        tolerance: "at least 10 times from ρ = 2·10⁻⁴ on",
        verdict: judged(holds),
    }
}

fn losses(id: &'static str, reading: Reading, sweep: &Sweep) -> Claim {
    let ratio = |found: &SweepPoint| [found.lda.in_all / found.fine.loss, found.lda_buckets.loss / found.fine.loss];
    let ratios: Vec<(f64, [f64; 2])> = from(sweep, 2e-4).map(|found| (found.point.share, ratio(found))).collect();
    let told = ratios.iter().map(|(share, [sums, buckets])| format!("{sums:.1} and {buckets:.1} (ρ = {share:e})"));
    Claim {
        id,
        text: "FineComb's loss is better than LDA's even where little is displaced, β = 10⁻⁴",
        published: "200 times lower relative error",
        ours: format!(
            "{}: times, LDA's from sums of all counts and bucket by bucket, {}",
            reading.name(),
            told.collect::<Vec<_>>().join(", ")
        ),
        tolerance: "at least 200 times by one of them from ρ = 2·10⁻⁴ on",
        verdict: judged(ratios.iter().all(|(_, [sums, buckets])| sums.max(*buckets) >= 200.0)),
    }
}

/// The error of LDA's own loss. It samples every packet here, so that its counts are those of all packets.
fn sums(id: &'static str, reading: Reading, sweep: &Sweep) -> Claim {
    let high = from(sweep, PRINTED[0]).all(|found| found.lda.in_all >= 0.9);
    Claim {
        id,
        text: "error of LDA's loss from the sums of all counts, β = 10⁻⁴",
        published: "more than 100 to 500 %",
        ours: format!("{}: {}", reading.name(), list(along(sweep, |found| found.lda.in_all))),
        tolerance: "at least 90 % from ρ = 5·10⁻⁴ on",
        verdict: judged(high),
    }
}

fn buckets(sweeps: &Sweeps) -> Claim {
    let of = |reading: Reading| along(sweeps.of(LOSSES[0], reading), |found| found.lda_buckets.loss);
    let high = |reading: &Reading| of(*reading).iter().all(|(share, loss)| *share < PRINTED[0] || *loss >= 0.9);
    let told = Reading::ROWS.map(|reading| format!("{}: {}", reading.name(), list(of(reading))));
    let which: Vec<&str> = Reading::ROWS.iter().filter(|reading| high(reading)).map(|reading| reading.name()).collect();
    Claim {
        id: "F13b-buckets",
        text: "the same bucket by bucket",
        published: "more than 100 to 500 %",
        ours: format!("{}. At least 90 % from ρ = 5·10⁻⁴ on: {}", told.join("; "), which.join(", ")),
        tolerance: "at least 90 % from ρ = 5·10⁻⁴ on, forward and backward",
        verdict: judged_by_own_bar(high(&Reading::Forward) && high(&Reading::Backward)),
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
    // As many of one kind as of the other, both of Poisson's law with 1/8 in the mean: e^(−1/4) I₀(1/4) of the buckets.
    let right = (-0.25_f64).exp() * (1.0 + 0.25_f64.powi(2) / 4.0);
    // Of one and one, the next term is 1 % of it; there are 80,000 buckets for 90,000 packets.
    let wrong = (-0.25_f64).exp() / 64.0 * (settings.buckets as f64 / (packets - lost as u64) as f64);
    let expected = right + wrong;
    Claim {
        id: "R7b",
        text: "packets in buckets that LDA takes for useful, a tenth lost and a tenth too much, four buckets for each",
        published: "lowest, flat",
        ours: format!(
            "{shares:.3} (expected of coinciding counts: {expected:.3}, of which {right:.3} are right and {wrong:.3} are of packets that came too much). \
             That it is the lowest and flat is judged by R7 of RDA's table"
        ),
        tolerance: "ours: within 0.005",
        verdict: judged_by_own_bar((shares - expected).abs() <= 0.005),
    }
}

fn figure(sweeps: &Sweeps) -> Figure {
    let line =
        |name, of: fn(&SweepPoint) -> f64| Line { name, points: along(sweeps.of(LOSSES[0], Reading::Forward), of) };
    Figure {
        file: "lda-mean.svg",
        caption: "Relative error of the mean delay, β = 10⁻⁴, forward",
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
