//! Runs tables on a trace, and computes the errors of their quantiles.

use synopses::digest::{Digest, DigestKey};
use synopses::fridge::{
    Combination, Distribution, Fridge, FridgeSpec, Fridges, FridgesSettings, NaiveExpiry, NaiveOverwrite, Report,
    Sample, Settings, combine,
};

use crate::sweep::each;
use crate::workload::{Event, Trace};

/// Number of runs that are combined, as in the publication.
pub const RUNS: u64 = 10;

/// Errors of estimated quantiles in log₂ of the delay.
#[derive(Clone, Copy, Debug, Default)]
pub struct Errors {
    pub most: f64,
    pub p99: f64,
}

impl Errors {
    /// Adds one of `count` values to their mean.
    fn add(&mut self, other: Self, count: f64) {
        self.most += other.most / count;
        self.p99 += other.p99 / count;
    }
}

/// Errors of combined runs, and the mean error of single runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Accuracy {
    pub combined: Errors,
    pub single: Errors,
}

pub fn unweighted(delays: &[u64]) -> Vec<Sample> {
    delays.iter().map(|&delay_ns| Sample { delay_ns, weight: 1.0 }).collect()
}

/// The errors of `samples`; infinite if there are none.
pub fn errors(truth: &Distribution, samples: &[Sample]) -> Errors {
    let Some(found) = Distribution::estimate(samples) else {
        return Errors { most: f64::INFINITY, p99: f64::INFINITY };
    };
    let off = |share: f64| {
        let (found, truth) = (found.quantile(share).delay_ns, truth.quantile(share).delay_ns);
        (found.max(1.0) / truth.max(1.0)).log2().abs()
    };
    let most = (10..=190).map(|step| off(f64::from(step) / 200.0)).fold(0.0, f64::max);
    Errors { most, p99: off(0.99) }
}

/// Mean errors of `runs` runs, one by one and in groups of [`RUNS`] (of all, if there are fewer). `run` returns the
/// samples for a seed.
pub fn accuracy(trace: &Trace, runs: u64, run: impl Fn(u64) -> Vec<Sample> + Sync) -> Accuracy {
    let [accuracy] = accuracies(trace, runs, |seed| [run(seed)]);
    accuracy
}

/// The same for `N` estimates from the same runs.
fn accuracies<const N: usize>(trace: &Trace, runs: u64, run: impl Fn(u64) -> [Vec<Sample>; N] + Sync) -> [Accuracy; N] {
    let truth = Distribution::estimate(&unweighted(&trace.delays)).expect("every workload has pairs");
    let mut accuracies = [Accuracy::default(); N];
    let (group_size, groups) = (runs.min(RUNS), runs.div_ceil(RUNS));
    for group in 0..groups {
        let mut combined = [const { Vec::new() }; N];
        for estimates in each(group_size, |seed| run(group * RUNS + seed)) {
            for ((accuracy, combined), samples) in accuracies.iter_mut().zip(&mut combined).zip(estimates) {
                accuracy.single.add(errors(&truth, &samples), (groups * group_size) as f64);
                combined.extend(samples);
            }
        }
        for (accuracy, combined) in accuracies.iter_mut().zip(&combined) {
            accuracy.combined.add(errors(&truth, combined), groups as f64);
        }
    }
    accuracies
}

/// Plays a trace: `insert` gets the requests, `match_response` the responses.
fn play<T>(
    trace: &Trace,
    mut insert: impl FnMut(Digest, u64),
    mut match_response: impl FnMut(Digest, u64) -> Option<T>,
) -> Vec<T> {
    let key = DigestKey::new(0x5eed);
    let mut found = Vec::new();
    for (at, event) in trace.events() {
        match event {
            Event::Request(id) => insert(key.digest(&id.to_le_bytes()), at),
            Event::Response(id) => found.extend(match_response(key.digest(&id.to_le_bytes()), at)),
        }
    }
    found
}

pub fn reports(trace: &Trace, settings: Settings) -> Vec<Report> {
    let fridge = std::cell::RefCell::new(Fridge::new(settings).expect("possible"));
    play(
        trace,
        |digest, at| fridge.borrow_mut().insert(digest, at),
        |digest, at| fridge.borrow_mut().match_response(digest, at),
    )
}

pub fn weighted(report: &Report) -> Sample {
    Sample { delay_ns: report.delay_ns, weight: report.weight() }
}

pub fn fridge(trace: &Trace, runs: u64, slots: usize, probability: f64) -> Accuracy {
    accuracy(trace, runs, |seed| {
        let settings = Settings { slots, probability, seed, ..Settings::default() };
        reports(trace, settings).iter().map(weighted).collect()
    })
}

/// Two fridges with half of the slots each, their samples combined in each of `ways`.
pub fn two_fridges(
    trace: &Trace,
    runs: u64,
    slots: usize,
    probabilities: [f64; 2],
    ways: [Combination; 2],
) -> [Accuracy; 2] {
    let fridges: Vec<_> =
        probabilities.iter().map(|&probability| FridgeSpec { slots: slots / 2, probability }).collect();
    accuracies(trace, runs, |seed| {
        let settings = FridgesSettings { fridges: fridges.clone(), seed, ..FridgesSettings::default() };
        let fridges = std::cell::RefCell::new(Fridges::new(settings).expect("possible"));
        let insert = |digest, at| fridges.borrow_mut().insert(digest, at);
        let reports = play(trace, insert, |digest, at| fridges.borrow_mut().match_response(digest, at));
        ways.map(|way| combine(&reports, 2, way))
    })
}

/// A table that overwrites, without correction.
pub fn overwrite(trace: &Trace, runs: u64, slots: usize) -> Accuracy {
    accuracy(trace, runs, |seed| {
        let table = std::cell::RefCell::new(NaiveOverwrite::new(slots, 10, seed).expect("possible"));
        let insert = |digest, at| table.borrow_mut().insert(digest, at);
        unweighted(&play(trace, insert, |digest, at| table.borrow_mut().match_response(digest, at)))
    })
}

/// Tables whose entries expire after `limit_ms`, without correction.
pub fn expiry(trace: &Trace, runs: u64, slots: usize, tables: usize, limit_ms: u64) -> Accuracy {
    accuracy(trace, runs, |seed| {
        let table = NaiveExpiry::new(slots, tables, limit_ms * 1_000_000, 10, seed).expect("possible");
        let table = std::cell::RefCell::new(table);
        let insert = |digest, at| {
            table.borrow_mut().insert(digest, at);
        };
        unweighted(&play(trace, insert, |digest, at| table.borrow_mut().match_response(digest, at)))
    })
}
