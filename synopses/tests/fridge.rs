//! Guarantees of the paper on fridges, on seeded traces: estimates are unbiased, and their variance is within the
//! bound.

use std::collections::BTreeMap;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use synopses::digest::Digest;
use synopses::fridge::{
    Combination, Counter, Duplicates, Fridge, FridgeSpec, Fridges, FridgesSettings, Report, Sample, Settings, Stamp,
    combine,
};

/// Bins of the delay, as parts of the longest one.
const BINS: [f64; 7] = [0.01, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0];

#[derive(Clone, Copy, Debug)]
enum Event {
    Request(u64),
    Response(u64),
}

/// Requests, one per tick, and the responses to some of them.
struct Trace {
    events: Vec<(u64, Event)>,
    longest: u64,
    /// Answered requests by bin.
    truth: [f64; BINS.len()],
}

/// Parameters of a trace.
#[derive(Clone, Copy)]
struct Shape {
    requests: u64,
    /// The longest delay, counted in requests.
    longest: u64,
    answered: f64,
    /// Time after which unanswered requests are retransmitted.
    again: Option<u64>,
}

fn bin(delay: u64, longest: u64) -> usize {
    let part = delay as f64 / longest as f64;
    BINS.iter().position(|end| part <= *end).expect("no delay is longer than the longest")
}

impl Trace {
    fn new(shape: Shape, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut events = BTreeMap::<(u64, u64), Event>::new();
        let mut truth = [0.0; BINS.len()];
        for number in 0..shape.requests {
            let at = 2 * number;
            events.insert((at, number), Event::Request(number));
            if random.random::<f64>() < shape.answered {
                // Half of the delays spread evenly, half of them on a logarithmic scale.
                let part: f64 = random.random();
                let delay = if random.random() {
                    part
                } else {
                    (part * (shape.longest as f64).ln()).exp() / shape.longest as f64
                };
                let delay = ((delay * shape.longest as f64) as u64).max(1);
                if number + delay < shape.requests {
                    truth[bin(delay, shape.longest)] += 1.0;
                    events.insert((at + 2 * delay + 1, number), Event::Response(number));
                }
            } else if let Some(later) = shape.again {
                events.insert((at + 2 * later, number + shape.requests), Event::Request(number));
            }
        }
        let events = events.into_iter().map(|((at, _), event)| (at, event)).collect();
        Self { events, longest: shape.longest, truth }
    }

    /// All reports of a fridge, given its two verbs.
    fn play<F>(
        &self,
        fridge: &mut F,
        insert: fn(&mut F, Digest, u64),
        answer: fn(&mut F, Digest, u64) -> Option<Report>,
    ) -> Vec<Report> {
        let digest = |number: u64| Digest(number.wrapping_mul(0xd129_90b7_c3a8_f5e5) ^ 0x5bd1);
        let mut reports = Vec::new();
        for (at, event) in &self.events {
            match event {
                Event::Request(number) => insert(fridge, digest(*number), *at),
                Event::Response(number) => reports.extend(answer(fridge, digest(*number), *at)),
            }
        }
        reports
    }

    /// What samples say of each bin.
    fn estimate(&self, samples: impl IntoIterator<Item = Sample>) -> [f64; BINS.len()] {
        let mut sums = [0.0; BINS.len()];
        for sample in samples {
            sums[bin(sample.delay_ns / 2, self.longest)] += sample.weight;
        }
        sums
    }
}

/// Means and deviations of estimates over seeds.
#[derive(Clone, Copy, Default)]
struct Moments {
    runs: f64,
    sum: [f64; BINS.len()],
    squares: [f64; BINS.len()],
}

impl Moments {
    fn add(&mut self, values: [f64; BINS.len()]) {
        self.runs += 1.0;
        for (at, value) in values.into_iter().enumerate() {
            self.sum[at] += value;
            self.squares[at] += value * value;
        }
    }

    fn mean(&self, at: usize) -> f64 {
        self.sum[at] / self.runs
    }

    fn variance(&self, at: usize) -> f64 {
        (self.squares[at] / self.runs - self.mean(at).powi(2)).max(0.0)
    }

    /// How far the mean is from `truth`, in deviations of a mean.
    fn off(&self, at: usize, truth: f64) -> f64 {
        (self.mean(at) - truth) / (self.variance(at) / self.runs).sqrt().max(1e-9)
    }

    /// The root of the mean square of the error, as a part of `truth`.
    fn error(&self, at: usize, truth: f64) -> f64 {
        (self.variance(at) + (self.mean(at) - truth).powi(2)).sqrt() / truth
    }
}

fn own(report: &Report) -> Sample {
    Sample { delay_ns: report.delay_ns, weight: report.weight() }
}

fn single(trace: &Trace, settings: Settings, seeds: u64, weigh: impl Fn(&Report) -> Sample) -> Moments {
    let mut moments = Moments::default();
    for seed in 0..seeds {
        let mut fridge = Fridge::new(Settings { seed, tick_shift: 0, ..settings }).expect("possible");
        let reports = trace.play(&mut fridge, Fridge::insert, Fridge::match_response);
        moments.add(trace.estimate(reports.iter().map(&weigh)));
    }
    moments
}

/// Delays up to 2.4 lifetimes: beyond about four the mean lives in events that no number of seeds sees.
fn shape(slots: usize, probability: f64, answered: f64) -> Shape {
    let lifetime = slots as f64 / probability;
    Shape { requests: (4.0 * lifetime) as u64, longest: (2.4 * lifetime) as u64, answered, again: None }
}

#[test]
fn counts_are_unbiased_in_every_bin_for_both_counters() {
    for (slots, probability) in [(64, 1.0), (64, 1.0 / 16.0), (256, 0.25), (1024, 1.0), (1024, 0.25)] {
        let trace = Trace::new(shape(slots, probability, 0.4), 1);
        for counter in [Counter::Accepted, Counter::Arrivals] {
            let settings = Settings { slots, probability, counter, ..Settings::default() };
            let moments = single(&trace, settings, 1_000, own);
            for (at, truth) in trace.truth.into_iter().enumerate() {
                let off = moments.off(at, truth);
                let ratio = moments.mean(at) / truth;
                assert!(
                    off.abs() < 4.0,
                    "M {slots}, p {probability}, {counter:?}, bin {at}: {ratio} × truth, {off} sigma"
                );
            }
            let (all, truth): (f64, f64) = (moments.sum.iter().sum(), trace.truth.iter().sum());
            assert!(
                (all / moments.runs / truth - 1.0).abs() < 0.01,
                "all answered requests: {} of {truth}",
                all / moments.runs
            );
        }
    }
}

#[test]
fn the_chance_of_one_counter_with_the_other_is_far_off() {
    let (slots, probability) = (1024, 0.25);
    let trace = Trace::new(shape(slots, probability, 0.4), 1);
    let settings = Settings { slots, probability, ..Settings::default() };
    // A counter of those that entered, with the chance of one of all that came.
    let literal = |report: &Report| {
        let survived = f64::from(report.insertions) * (-probability / slots as f64).ln_1p();
        Sample { delay_ns: report.delay_ns, weight: (-survived).exp() / probability }
    };
    let moments = single(&trace, settings, 200, literal);

    let last = BINS.len() - 1;
    assert!(moments.off(last, trace.truth[last]) < -10.0);
    assert!(moments.mean(last) / trace.truth[last] < 0.35);
}

#[test]
fn whatever_share_is_answered_counts_stay_unbiased() {
    for (answered, requests) in [(1.0, 2.0), (0.4, 2.0), (0.05, 8.0)] {
        let shape = shape(256, 0.5, answered);
        let trace = Trace::new(Shape { requests: (shape.requests as f64 * requests) as u64, ..shape }, 2);
        let settings = Settings { slots: 256, probability: 0.5, ..Settings::default() };
        let moments = single(&trace, settings, 1_000, own);
        for (at, truth) in trace.truth.into_iter().enumerate() {
            assert!(moments.off(at, truth).abs() < 4.0, "{answered} answered, bin {at}: {}", moments.off(at, truth));
        }
    }
}

#[test]
fn the_variance_is_at_most_the_sum_of_the_inverse_chances_less_one() {
    let (slots, probability) = (1024, 0.25);
    let trace = Trace::new(shape(slots, probability, 0.4), 3);
    let moments = single(&trace, Settings { slots, probability, ..Settings::default() }, 1_000, own);
    // What is expected of 1/q − 1 for each answered request: after t arrivals, (1 + p/(M−1))^t / p − 1.
    let mut bound = [0.0; BINS.len()];
    let growth = (probability / (slots as f64 - 1.0)).ln_1p();
    let mut asked = BTreeMap::new();
    for (at, event) in &trace.events {
        match event {
            Event::Request(number) => {
                asked.insert(*number, *at);
            }
            Event::Response(number) => {
                let delay = (at - asked[number]) / 2;
                bound[bin(delay, trace.longest)] += (delay as f64 * growth).exp() / probability - 1.0;
            }
        }
    }

    for (at, bound) in bound.into_iter().enumerate() {
        let ratio = (moments.variance(at) / bound).sqrt();
        assert!((0.85..1.1).contains(&ratio), "bin {at}: {ratio} of the deviation stated");
    }
}

/// A trace with retransmissions of unanswered requests: 18 % of all requests are copies.
fn retransmitting() -> Trace {
    Trace::new(Shape { requests: 16_000, longest: 2_400, answered: 0.78, again: Some(150) }, 4)
}

#[test]
fn retransmissions_do_not_bias_the_delays_of_other_requests() {
    let trace = retransmitting();
    let settings = Settings { slots: 1_000, ..Settings::default() };
    let moments = single(&trace, settings, 400, own);
    for (at, truth) in trace.truth.into_iter().enumerate() {
        let (ratio, noise) = (moments.mean(at) / truth, (moments.variance(at) / moments.runs).sqrt() / truth);
        assert!((ratio - 1.0).abs() < 0.03 + 4.0 * noise, "bin {at}: {ratio} ± {noise}");
    }
}

#[test]
fn a_counter_that_counted_copies_would_overstate_long_delays() {
    let trace = retransmitting();
    let mut moments = Moments::default();
    for seed in 0..200 {
        let mut fridge =
            Fridge::new(Settings { slots: 1_000, seed, tick_shift: 0, ..Settings::default() }).expect("possible");
        // Counts as the prototype does: the copies that came while each sample waited are added to its x.
        let (mut copies, mut stamped) = (0_u64, BTreeMap::new());
        let mut samples = Vec::new();
        for (at, event) in &trace.events {
            match event {
                Event::Request(number) => {
                    let before = fridge.tally().duplicate_requests;
                    fridge.insert(Digest(number.wrapping_mul(0xd129_90b7_c3a8_f5e5)), *at);
                    copies += fridge.tally().duplicate_requests - before;
                    stamped.insert(*number, copies);
                }
                Event::Response(number) => {
                    let report = fridge.match_response(Digest(number.wrapping_mul(0xd129_90b7_c3a8_f5e5)), *at);
                    samples.extend(report.map(|report| {
                        let x = f64::from(report.insertions) + (copies - stamped[number]) as f64;
                        Sample { delay_ns: report.delay_ns, weight: (-x * (-1.0 / 1_000.0_f64).ln_1p()).exp() }
                    }));
                }
            }
        }
        moments.add(trace.estimate(samples));
    }

    let last = BINS.len() - 1;
    assert!(moments.mean(last) / trace.truth[last] > 1.3, "{}", moments.mean(last) / trace.truth[last]);
}

/// Weighted answers per pair of which the last copy was answered. Every `each`th request comes again after 300 others,
/// and is answered 20 later. And how much of it is to be expected: the chance not to meet those copies that were not
/// counted because their request was still there.
fn copies(each: u64, runs: u64) -> (f64, f64) {
    let (requests, slots) = (2_000_u64, 512);
    let (mut sum, mut pairs, mut resident) = (0.0, 0.0, 0);
    for seed in 0..runs {
        let settings =
            Settings { slots, probability: 0.5, duplicates: Duplicates::Overwrite, seed, ..Settings::default() };
        let mut fridge = Fridge::new(settings).expect("possible");
        let digest = |number: u64| Digest(number.wrapping_mul(0xd129_90b7_c3a8_f5e5));
        let before = |now: u64, by: u64| now.checked_sub(by).filter(|number| *number < requests && number % each == 0);
        for now in 0..requests + 400 {
            if now < requests {
                fridge.insert(digest(now), now << 10);
            }
            if let Some(number) = before(now, 300) {
                fridge.insert(digest(number), now << 10);
            }
            if let Some(number) = before(now, 320) {
                sum += fridge.match_response(digest(number), now << 10).map_or(0.0, |report| report.weight());
                pairs += 1.0;
            }
        }
        resident += fridge.tally().duplicate_requests;
    }
    let uncounted = resident as f64 / pairs * 20.0 / each as f64;
    (sum / pairs, (uncounted * (-1.0 / slots as f64).ln_1p()).exp())
}

#[test]
fn with_one_fate_for_all_copies_the_last_one_is_kept_with_probability_p() {
    let (ratio, _) = copies(20, 2_000);

    assert!((ratio - 1.0).abs() < 0.01, "{ratio}");
}

#[test]
fn where_every_request_comes_twice_copies_that_are_not_counted_are_missing_in_the_weights() {
    // A copy of a pending request evicts nothing. But it might have evicted a request that arrived in between, had they
    // shared a slot.
    let (ratio, expected) = copies(1, 600);

    assert!((0.98..0.995).contains(&expected), "{expected}");
    assert!((ratio - expected).abs() < 0.004, "{ratio}, expected {expected}");
}

fn several(trace: &Trace, parts: &[(usize, f64)], stamp: Stamp, how: Combination, seeds: u64) -> Moments {
    let parts: Vec<_> = parts.iter().map(|&(slots, probability)| FridgeSpec { slots, probability }).collect();
    let mut moments = Moments::default();
    for seed in 0..seeds {
        let settings =
            FridgesSettings { fridges: parts.clone(), stamp, tick_shift: 0, seed, ..FridgesSettings::default() };
        let mut fridges = Fridges::new(settings).expect("possible");
        let reports = trace.play(&mut fridges, Fridges::insert, Fridges::match_response);
        moments.add(trace.estimate(combine(&reports, parts.len(), how)));
    }
    moments
}

#[test]
fn samples_of_several_fridges_are_unbiased_together_and_better_than_the_published_weights() {
    let trace = Trace::new(Shape { requests: 12_000, longest: 4_000, answered: 0.4, again: None }, 5);
    for (parts, stamp) in [
        (&[(512, 0.45), (512, 0.05)][..], Stamp::Arrivals),
        (&[(512, 0.45), (512, 0.05)], Stamp::Accepted),
        (&[(256, 0.3), (256, 0.05), (512, 0.1)], Stamp::Arrivals),
    ] {
        let total = several(&trace, parts, stamp, Combination::HtTotal, 400);
        let published = several(&trace, parts, stamp, Combination::Ivw, 400);
        let mean = several(&trace, parts, stamp, Combination::Mean, 400);
        for (at, truth) in trace.truth.into_iter().enumerate() {
            assert!(total.off(at, truth).abs() < 4.0, "{parts:?}, bin {at}: {} sigma", total.off(at, truth));
            let (ours, others) = (total.error(at, truth), published.error(at, truth).min(mean.error(at, truth)));
            assert!(ours >= 0.5 || ours <= 1.1 * others, "{parts:?}, bin {at}: {ours}, others {others}");
        }
    }
}

#[test]
fn the_published_weights_pull_tails_down() {
    let trace = Trace::new(Shape { requests: 24_000, longest: 10_000, answered: 0.4, again: None }, 5);
    let of = |how| several(&trace, &[(512, 0.45), (512, 0.05)], Stamp::Arrivals, how, 300);
    let (published, total) = (of(Combination::Ivw), of(Combination::HtTotal));

    for at in [BINS.len() - 2, BINS.len() - 1] {
        let truth = trace.truth[at];
        assert!(published.off(at, truth) < -5.0 && published.mean(at) / truth < 0.97, "{}", published.mean(at) / truth);
        assert!(total.off(at, truth).abs() < 4.0, "{}", total.mean(at) / truth);
    }
}
