//! Requests and responses with known delays, played to fridges many times. For the tests of fridges, and for the rows
//! on their properties in `examples/reproduce`.

use std::collections::BTreeMap;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use synopses::digest::Digest;
use synopses::fridge::{Fridge, FridgeSpec, Fridges, FridgesSettings, Report, Sample, Settings, Stamp};

/// Upper ends of the bins of delays, as parts of the longest one.
pub const BINS: [f64; 7] = [0.01, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0];
/// Index of the sum of all bins.
pub const ALL: usize = BINS.len();
/// Nanoseconds between requests: ten in a millisecond.
pub const SPACING_NS: u64 = 100_000;

/// Numbers of answered requests in each bin, and in all.
pub type Counts = [f64; ALL + 1];

#[derive(Clone, Copy, Debug)]
enum Event {
    Request(u64),
    Response(u64),
}

/// How delays are distributed, counted in requests.
#[derive(Clone, Copy, Debug)]
pub enum Delays {
    /// Half of them evenly, half of them on a logarithmic scale from one request on.
    Mixed,
    /// All on a logarithmic scale from this number of requests on.
    LogUniform(u64),
}

/// Parameters of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Number of requests that may get a response.
    pub requests: u64,
    /// Number of requests after them, none of which gets one.
    pub after: u64,
    pub delays: Delays,
    /// The longest delay, counted in requests.
    pub longest: u64,
    /// Share of requests that get a response, if it comes before the last request.
    pub answered: f64,
    /// Number of requests after which an unanswered one is retransmitted.
    pub again: Option<u64>,
    /// Number of unanswered requests that come with each of the others.
    pub orphans: u64,
}

impl Shape {
    /// Delays of up to `longest` requests.
    pub const fn new(requests: u64, longest: u64, answered: f64) -> Self {
        Self { requests, after: 0, delays: Delays::Mixed, longest, answered, again: None, orphans: 0 }
    }

    /// Delays of up to 2.4 lifetimes: beyond about four the mean lives in events that no number of seeds sees.
    pub fn of_lifetimes(slots: usize, probability: f64, answered: f64) -> Self {
        let lifetime = slots as f64 / probability;
        Self::new((4.0 * lifetime) as u64, (2.4 * lifetime) as u64, answered)
    }

    /// Delays from 1 ms to a second, and unanswered requests that come once more after 50 ms.
    pub const fn retransmitting(answered: f64) -> Self {
        Self { delays: Delays::LogUniform(10), again: Some(500), ..Self::new(40_000, 10_000, answered) }
    }

    /// Delays from 1 ms to a second, no response cut off at the end.
    pub const fn second(requests: u64) -> Self {
        Self { delays: Delays::LogUniform(10), after: 10_000, ..Self::new(requests, 10_000, 0.4) }
    }

    fn delay(&self, random: &mut ChaCha8Rng) -> u64 {
        let longest = self.longest as f64;
        let part: f64 = random.random();
        let delay = match self.delays {
            Delays::Mixed if random.random() => part * longest,
            Delays::Mixed => longest.powf(part),
            Delays::LogUniform(least) => least as f64 * (longest / least as f64).powf(part),
        };
        (delay as u64).max(1)
    }
}

/// Requests at an even rate, and the responses to some of them.
pub struct Trace {
    events: Vec<(u64, Event)>,
    longest: u64,
    /// Delays of all answered requests, counted in requests.
    pub delays: Vec<u64>,
    /// Number of answered requests by bin.
    pub truth: Counts,
}

impl Trace {
    pub fn new(shape: Shape, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let all = shape.requests + shape.after;
        let mut events = BTreeMap::<(u64, u64), Event>::new();
        let mut delays = Vec::new();
        let mut orphan = 2 * all;
        for number in 0..all {
            let at = number * SPACING_NS;
            events.insert((at, number), Event::Request(number));
            for place in 1..=shape.orphans {
                orphan += 1;
                events.insert((at + place * SPACING_NS / (shape.orphans + 1), orphan), Event::Request(orphan));
            }
            if number < shape.requests && random.random::<f64>() < shape.answered {
                let delay = shape.delay(&mut random);
                if number + delay < all {
                    delays.push(delay);
                    events.insert((at + delay * SPACING_NS + 1, number), Event::Response(number));
                }
            } else if let Some(later) = shape.again {
                events.insert((at + later * SPACING_NS, number + all), Event::Request(number));
            }
        }
        let events = events.into_iter().map(|((at, _), event)| (at, event)).collect();
        let mut trace = Self { events, longest: shape.longest, delays, truth: Counts::default() };
        trace.truth = trace.sums(trace.delays.iter().map(|delay| (*delay, 1.0)));
        trace
    }

    /// The bin of a delay, counted in requests.
    pub fn bin(&self, delay: u64) -> usize {
        let part = delay as f64 / self.longest as f64;
        BINS.iter().position(|end| part <= *end).unwrap_or(BINS.len() - 1)
    }

    /// Sums of values by the bin of their delay.
    pub fn sums(&self, values: impl IntoIterator<Item = (u64, f64)>) -> Counts {
        let mut sums = Counts::default();
        for (delay, value) in values {
            sums[self.bin(delay)] += value;
            sums[ALL] += value;
        }
        sums
    }

    /// Number of answered requests by samples' weights.
    pub fn estimate(&self, samples: impl IntoIterator<Item = Sample>) -> Counts {
        self.sums(samples.into_iter().map(|sample| (in_requests(sample.delay_ns), sample.weight)))
    }

    /// All reports of a fridge, given its two verbs.
    pub fn play<F>(
        &self,
        fridge: &mut F,
        insert: fn(&mut F, Digest, u64),
        match_response: fn(&mut F, Digest, u64) -> Option<Report>,
    ) -> Vec<Report> {
        let mut reports = Vec::new();
        for (at, event) in &self.events {
            match event {
                Event::Request(number) => insert(fridge, digest(*number), *at),
                Event::Response(number) => reports.extend(match_response(fridge, digest(*number), *at)),
            }
        }
        reports
    }

    /// Number of answered requests as a fridge has it, with the weights of `weigh`.
    pub fn single(&self, settings: Settings, weigh: impl Fn(&Report) -> Sample) -> Counts {
        let mut fridge = Fridge::new(settings).expect("possible");
        let reports = self.play(&mut fridge, Fridge::insert, Fridge::match_response);
        self.estimate(reports.iter().map(weigh))
    }

    /// All reports of fridges of so many slots and with such probabilities.
    pub fn several(&self, parts: &[(usize, f64)], stamp: Stamp, seed: u64) -> Vec<Report> {
        let fridges = parts.iter().map(|&(slots, probability)| FridgeSpec { slots, probability }).collect();
        let settings = FridgesSettings { fridges, stamp, seed, ..FridgesSettings::default() };
        let mut fridges = Fridges::new(settings).expect("possible");
        self.play(&mut fridges, Fridges::insert, Fridges::match_response)
    }

    /// Number of answered requests as the published prototype has it, which counts copies: those that came while a
    /// request was pending are added to its x. Only for p = 1.
    pub fn with_copies_counted(&self, slots: usize, seed: u64) -> Counts {
        let mut fridge = Fridge::new(Settings { slots, seed, ..Settings::default() }).expect("possible");
        let evicting = 1.0 / slots as f64;
        let mut stamped = BTreeMap::new();
        let mut sums = Vec::new();
        for (at, event) in &self.events {
            match event {
                Event::Request(number) => {
                    fridge.insert(digest(*number), *at);
                    stamped.insert(*number, fridge.tally().duplicate_requests);
                }
                Event::Response(number) => {
                    let copies = fridge.tally().duplicate_requests - stamped[number];
                    sums.extend(fridge.match_response(digest(*number), *at).map(|report| {
                        let x = f64::from(report.insertions) + copies as f64;
                        (in_requests(report.delay_ns), (-x * (-evicting).ln_1p()).exp())
                    }));
                }
            }
        }
        self.sums(sums)
    }

    /// Σ (1/q − 1) of a fridge that counts those that entered. What is to be expected of 1/q after t requests is
    /// (1 + p/(M − 1))ᵗ / p.
    pub fn variance_bound(&self, slots: usize, probability: f64) -> Counts {
        let growth = (probability / (slots as f64 - 1.0)).ln_1p();
        self.sums(self.delays.iter().map(|delay| (*delay, (*delay as f64 * growth).exp() / probability - 1.0)))
    }
}

fn digest(number: u64) -> Digest {
    Digest(number.wrapping_mul(0xd129_90b7_c3a8_f5e5) ^ 0x5bd1)
}

/// A measured delay, counted in requests.
pub const fn in_requests(delay_ns: u64) -> u64 {
    (delay_ns + SPACING_NS / 2) / SPACING_NS
}

/// The sample of a single fridge.
pub fn own(report: &Report) -> Sample {
    Sample { delay_ns: report.delay_ns, weight: report.weight() }
}

/// The same by the publication's text: a counter of those that entered, in the formula for one of all that came.
pub fn literal(slots: usize, probability: f64) -> impl Fn(&Report) -> Sample {
    let per_count = -(-probability / slots as f64).ln_1p();
    move |report| {
        let weight = (f64::from(report.insertions) * per_count).exp() / probability;
        Sample { delay_ns: report.delay_ns, weight }
    }
}

/// Means and variances of values over runs.
#[derive(Clone, Copy)]
pub struct Moments<const N: usize> {
    runs: f64,
    sum: [f64; N],
    squares: [f64; N],
}

impl<const N: usize> FromIterator<[f64; N]> for Moments<N> {
    fn from_iter<I: IntoIterator<Item = [f64; N]>>(runs: I) -> Self {
        let mut moments = Self { runs: 0.0, sum: [0.0; N], squares: [0.0; N] };
        for values in runs {
            moments.runs += 1.0;
            for (at, value) in values.into_iter().enumerate() {
                moments.sum[at] += value;
                moments.squares[at] += value * value;
            }
        }
        moments
    }
}

impl<const N: usize> Moments<N> {
    pub fn mean(&self, at: usize) -> f64 {
        self.sum[at] / self.runs
    }

    pub fn variance(&self, at: usize) -> f64 {
        (self.squares[at] / self.runs - self.mean(at).powi(2)).max(0.0)
    }

    /// The standard error of the mean.
    pub fn noise(&self, at: usize) -> f64 {
        (self.variance(at) / self.runs).sqrt()
    }

    /// How far the mean is from `truth`, in standard errors.
    pub fn off(&self, at: usize, truth: f64) -> f64 {
        (self.mean(at) - truth) / self.noise(at).max(1e-9)
    }

    /// The root of the mean square of the error, as a part of `truth`.
    pub fn error(&self, at: usize, truth: f64) -> f64 {
        (self.variance(at) + (self.mean(at) - truth).powi(2)).sqrt() / truth
    }
}
