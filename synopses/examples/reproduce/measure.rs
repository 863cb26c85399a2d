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

/// Mean errors of `runs` runs, a multiple of [`RUNS`], one by one and in groups of [`RUNS`]. `run` returns the samples
/// for a seed.
pub fn accuracy(trace: &Trace, runs: u64, run: impl Fn(u64) -> Vec<Sample> + Sync) -> Accuracy {
    let truth = Distribution::estimate(&unweighted(&trace.delays)).expect("every workload has pairs");
    let mut accuracy = Accuracy::default();
    let groups: Vec<u64> = (0..runs / RUNS).collect();
    for group in &groups {
        let mut combined = Vec::new();
        for samples in each(RUNS, |seed| run(group * RUNS + seed)) {
            accuracy.single.add(errors(&truth, &samples), runs as f64);
            combined.extend(samples);
        }
        accuracy.combined.add(errors(&truth, &combined), groups.len() as f64);
    }
    accuracy
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

pub fn two_fridges(trace: &Trace, runs: u64, slots: usize, probabilities: [f64; 2]) -> Accuracy {
    let parts: Vec<_> = probabilities.iter().map(|&probability| FridgeSpec { slots: slots / 2, probability }).collect();
    accuracy(trace, runs, |seed| {
        let settings = FridgesSettings { fridges: parts.clone(), seed, ..FridgesSettings::default() };
        let fridges = std::cell::RefCell::new(Fridges::new(settings).expect("possible"));
        let insert = |digest, at| fridges.borrow_mut().insert(digest, at);
        let reports = play(trace, insert, |digest, at| fridges.borrow_mut().match_response(digest, at));
        combine(&reports, 2, Combination::HtTotal)
    })
}

pub fn overwrite(trace: &Trace, slots: usize) -> Accuracy {
    accuracy(trace, RUNS, |seed| {
        let table = std::cell::RefCell::new(NaiveOverwrite::new(slots, 10, seed).expect("possible"));
        let insert = |digest, at| table.borrow_mut().insert(digest, at);
        unweighted(&play(trace, insert, |digest, at| table.borrow_mut().match_response(digest, at)))
    })
}

pub fn expiry(trace: &Trace, slots: usize, tables: usize, limit_ms: u64) -> Accuracy {
    accuracy(trace, RUNS, |seed| {
        let table = NaiveExpiry::new(slots, tables, limit_ms * 1_000_000, 10, seed).expect("possible");
        let table = std::cell::RefCell::new(table);
        let insert = |digest, at| {
            table.borrow_mut().insert(digest, at);
        };
        unweighted(&play(trace, insert, |digest, at| table.borrow_mut().match_response(digest, at)))
    })
}
