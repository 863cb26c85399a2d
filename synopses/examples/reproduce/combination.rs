//! The published combination of several fridges, for several widths of its bins.

use synopses::digest::Digest;
use synopses::fridge::{Combination, FridgeSpec, Fridges, FridgesSettings, Report, Sample, combine};

use crate::claim::{Claim, judged};
use crate::scale::Scale;
use crate::streams::random;
use crate::sweep::each;

/// Requests in a millisecond.
const RATE: u64 = 10;
/// Milliseconds between which shares are counted: the two longest bins of a second.
const LONG: [(u64, u64); 2] = [(400, 700), (700, 1_000)];

/// Requests at an even rate, of which two in five are answered after a log-uniform time from 1 ms to a second.
struct Pairs {
    requests: u64,
    /// When each is answered, in units of requests; rising.
    answers: Vec<(u64, u64)>,
    truth: [f64; 2],
}

impl Pairs {
    fn new(requests: u64) -> Self {
        let mut answers = Vec::new();
        for number in 0..requests {
            let share = random(random(number)) as f64 / u64::MAX as f64;
            let delay_ms = 1_000.0_f64.powf(share);
            let at = number + (delay_ms * RATE as f64) as u64;
            if random(number) % 5 < 2 && at < requests {
                answers.push((at, number));
            }
        }
        answers.sort_unstable();
        let truth = LONG.map(|bin| answers.iter().filter(|(at, number)| within(at - number, bin)).count() as f64);
        Self { requests, answers, truth }
    }

    fn reports(&self, parts: &[(usize, f64)], seed: u64) -> Vec<Report> {
        let parts = parts.iter().map(|&(slots, probability)| FridgeSpec { slots, probability }).collect();
        let settings = FridgesSettings { fridges: parts, tick_shift: 0, seed, ..FridgesSettings::default() };
        let mut fridges = Fridges::new(settings).expect("possible");
        let (mut found, mut next) = (Vec::new(), 0);
        for now in 0..self.requests {
            while self.answers.get(next).is_some_and(|(at, _)| *at <= now) {
                let (at, number) = self.answers[next];
                found.extend(fridges.match_response(Digest(random(number)), at));
                next += 1;
            }
            fridges.insert(Digest(random(now)), now);
        }
        found
    }
}

fn within(delay: u64, (from, end): (u64, u64)) -> bool {
    (from * RATE..end * RATE).contains(&delay)
}

/// The published combination with all delays in one bin.
fn in_one_bin(reports: &[Report]) -> Vec<Sample> {
    let of = |fridge: u8| reports.iter().filter(move |report| report.fridge == fridge);
    let known = [0, 1].map(|fridge| {
        let variance: f64 = of(fridge).map(|report| report.weight().powi(2)).sum();
        if variance > 0.0 { 1.0 / variance } else { 0.0 }
    });
    let sample = |report: &Report| {
        let share = known[usize::from(report.fridge)] / (known[0] + known[1]);
        Sample { delay_ns: report.delay_ns, weight: report.weight() * share }
    };
    reports.iter().map(sample).collect()
}

fn shares(pairs: &Pairs, samples: &[Sample]) -> [f64; 2] {
    let sum = |bin| samples.iter().filter(|s| within(s.delay_ns, bin)).map(|s| s.weight).sum::<f64>();
    [0, 1].map(|at| sum(LONG[at]) / pairs.truth[at])
}

/// Mean and relative error of both shares over runs.
fn spread(runs: &[[f64; 2]]) -> [(f64, f64); 2] {
    [0, 1].map(|at| {
        let of = |by: fn(f64) -> f64| runs.iter().map(|run| by(run[at])).sum::<f64>() / runs.len() as f64;
        (of(|share| share), of(|share| (share - 1.0).powi(2)).sqrt())
    })
}

/// Fridges together: without bias, and not worse than the others where there is enough to compare.
pub fn claim(scale: Scale) -> Claim {
    let (parts, pairs) = ([(512, 0.45), (512, 0.05)], Pairs::new(20_000));
    let found = each(3 * scale.trials, |seed| {
        let reports = pairs.reports(&parts, seed);
        let how = |how| shares(&pairs, &combine(&reports, parts.len(), how));
        let one_bin = shares(&pairs, &in_one_bin(&reports));
        [how(Combination::HtTotal), how(Combination::Ivw), one_bin, how(Combination::Mean)]
    });
    let all = [0, 1, 2, 3].map(|at| spread(&found.iter().map(|run| run[at]).collect::<Vec<_>>()));
    let [total, octaves, one_bin, mean] = all;
    let runs = found.len() as f64;
    let unbiased = total.iter().all(|(share, error)| (share - 1.0).abs() < 4.0 * error / runs.sqrt());
    let best = |at: usize| octaves[at].1.min(mean[at].1);
    let not_worse = (0..2).filter(|at| total[*at].1 < 0.5).all(|at| total[at].1 <= 1.1 * best(at));
    let text = |[one, other]: [(f64, f64); 2]| format!("{:.3}/{:.3}, {:.3}/{:.3}", one.0, one.1, other.0, other.1);
    Claim {
        id: "A6",
        text: "several fridges together are unbiased since their weights sum to 1",
        published: "inverse variances",
        ours: format!(
            "found of the true number, and its relative error, at 400 to 700 and 700 to 1,000 ms, fridges of 512 slots with p = 0.45 and 0.05: \
             `HtTotal` {}; the published inverse variances (`Ivw`) in octaves {}, in one bin for all delays {}; `Mean` {}. How low `Ivw` \
             is depends on its bins, of which the publication says nothing: the wider, the more a fridge that caught no heavy sample counts",
            text(total),
            text(octaves),
            text(one_bin),
            text(mean)
        ),
        tolerance: "`HtTotal` within four standard errors of 1, its error at most 1.1 times the least of the others",
        verdict: judged(unbiased && not_worse),
    }
}
