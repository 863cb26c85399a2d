//! What is found in traffic, and how well.

use std::collections::BTreeSet;

use synopses::reordering::{
    Boundary, Decision, Definition, PrefixTally, Reordering, Reports, Settings, Split, Threshold,
};

use super::traffic::{Profile, Traffic};

/// ε, α and β of the publication.
const SHARE: f64 = 0.01;
const MIN_PACKETS: u64 = 16;
const HEAVY_PACKETS: u64 = 128;
/// T of the publication, 2⁻¹⁵ s.
pub const TIMEOUT_NS: u64 = 30_518;

/// The publication's settings.
pub const PUBLISHED: Settings = Settings {
    buckets: 1 << 8,
    split: Split::SamplingOnly,
    definition: Definition::BelowPredecessor,
    timeout_ns: TIMEOUT_NS,
    most_packets: 16,
    least_events: 1,
    stages: 2,
    heavy_share: 0.01,
    admission: synopses::rap::Admission::InverseOfNext,
    reports: Reports::Suspicious,
    tick_shift: 7,
    seed: 0,
};

/// Traffic with the truth about it.
pub struct Case {
    pub traffic: Traffic,
    truths: Vec<(Definition, Truth)>,
}

/// Prefixes that are to be found, and those that may be.
pub struct Truth {
    pub wanted: BTreeSet<u64>,
    allowed: BTreeSet<u64>,
}

impl Case {
    pub fn new(profile: Profile, seed: u64, definitions: &[Definition]) -> Self {
        let traffic = Traffic::new(profile, seed);
        let truths = definitions.iter().map(|definition| (*definition, Truth::new(&traffic.truth(*definition))));
        let truths = truths.collect();
        Self { traffic, truths }
    }

    pub fn truth(&self, definition: Definition) -> &Truth {
        &self.truths.iter().find(|(of, _)| *of == definition).expect("a definition of the case").1
    }
}

impl Truth {
    fn new(counts: &[(u64, u64)]) -> Self {
        let heavy = |least: u64| {
            let wanted = (0..)
                .zip(counts)
                .filter(move |(_, (packets, events))| *packets >= least && *events as f64 > SHARE * *packets as f64);
            wanted.map(|(prefix, _)| prefix).collect()
        };
        Self { wanted: heavy(HEAVY_PACKETS), allowed: heavy(MIN_PACKETS + 1) }
    }
}

/// Means over seeds of traffic and hashes.
#[derive(Clone, Copy, Default, Debug)]
pub struct Quality {
    /// Share of the prefixes to be found that are flagged.
    pub accuracy: f64,
    /// Flagged prefixes that are not heavy, per heavy one: it may exceed 1.
    pub false_positives: f64,
    /// Share of the flagged prefixes that are heavy.
    pub precision: f64,
    /// Reports per packet.
    pub reports: f64,
    /// Flows admitted per packet.
    pub admitted: f64,
}

impl Quality {
    fn add(&mut self, more: &Self, weight: f64) {
        self.accuracy += weight * more.accuracy;
        self.false_positives += weight * more.false_positives;
        self.precision += weight * more.precision;
        self.reports += weight * more.reports;
        self.admitted += weight * more.admitted;
    }
}

/// One run with one seed.
fn run(case: &Case, settings: Settings, threshold: Threshold) -> Quality {
    let mut reordering = Reordering::new(settings).expect("possible");
    let mut tally = PrefixTally::new(1 << 14, settings.seed).expect("possible");
    for (segment, now) in case.traffic.segments() {
        if let Some(report) = reordering.insert(&segment, now) {
            tally.insert(report);
        }
    }
    reordering.close(Boundary::KeepFlows, |report| tally.insert(report));
    let flagged = tally.flagged(&Decision { least_packets: MIN_PACKETS, threshold });
    let flagged: BTreeSet<u64> = flagged.iter().map(|estimate| estimate.prefix.0).collect();
    let (truth, packets) = (case.truth(settings.definition), case.traffic.len() as f64);
    let wrong = flagged.difference(&truth.allowed).count() as f64;
    let counters = reordering.counters();
    Quality {
        accuracy: flagged.intersection(&truth.wanted).count() as f64 / truth.wanted.len() as f64,
        false_positives: wrong / truth.allowed.len() as f64,
        precision: 1.0 - wrong / flagged.len().max(1) as f64,
        reports: counters.reports as f64 / packets,
        admitted: counters.admitted as f64 / packets,
    }
}

/// The mean over all cases and `seeds` seeds of hashes.
pub fn quality_with(cases: &[Case], settings: Settings, threshold: Threshold, seeds: u64) -> Quality {
    let mut mean = Quality::default();
    let weight = 1.0 / (cases.len() as f64 * seeds as f64);
    for case in cases {
        (1..=seeds).for_each(|seed| mean.add(&run(case, Settings { seed, ..settings }, threshold), weight));
    }
    mean
}
