//! What happened in one run: the injected faults and everything that uview said, as data. The [`crate::judge`] makes a finding of it.
//!
//! All times are those of the demo's own clock, from its start. An event's time is when it *arrived*, so that delays include the
//! way from the NIC agent to the operator.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use wire::time::Nanos;

use crate::fault::Kind;
use crate::graph::{Service, Watched};
use crate::load::LoadReport;
use crate::traces::{Books, Trace, TraceId, Visit};

/// A fault that was injected.
#[derive(Clone, Debug, PartialEq)]
pub struct Injected {
    /// Who had it.
    pub service: Watched,
    /// What.
    pub kind: Kind,
    /// When it was ordered, just before the order was sent.
    pub started: Nanos,
    /// When it was over.
    pub ended: Nanos,
    /// A leak: when the resident set was twice what it was at the start.
    pub doubled: Option<Nanos>,
}

/// Where a service is in relation to an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Episode {
    /// No alarm.
    Quiet,
    /// An alarm begins with this sample.
    Began,
    /// It goes on.
    On,
    /// It is over.
    Ended,
}

/// One metric of an explanation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reason {
    /// Metric, statistic and labels.
    pub column: String,
    /// Its group: service, cpu, memory, io, network.
    pub group: String,
    /// Its unit; may be empty.
    pub unit: String,
    /// Its part of the squared score, 0 to 1.
    pub share: f64,
    /// What was measured.
    pub seen: f64,
    /// What the other metrics let expect.
    pub expected: f64,
}

/// One verdict on a service.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When it arrived.
    pub at: Nanos,
    /// On whom.
    pub service: Watched,
    /// How unusual.
    pub score: f64,
    /// From which score on it is an anomaly; 0 while learning.
    pub gamma: f64,
    /// The replica's heartbeat stands still.
    pub silent: bool,
    /// Where this is in relation to an alarm.
    pub episode: Episode,
    /// The metrics that make most of the score, the largest first.
    pub reasons: Vec<Reason>,
}

impl Event {
    /// The score as a multiple of γ; 0 while there is no γ.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        if self.gamma > 0.0 { self.score / self.gamma } else { 0.0 }
    }
}

/// A score that was summarised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// When the sample was fetched.
    pub at: Nanos,
    /// The score.
    pub score: f64,
    /// γ at that time.
    pub gamma: f64,
}

/// Processor time, as shares of one core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// The host agent.
    pub host_agent: f64,
    /// The NIC agent.
    pub nic_agent: f64,
    /// All five services.
    pub shop: f64,
    /// The load.
    pub load: f64,
    /// The relay between two services, where there is one.
    pub relay: f64,
    /// Of the shop: the client's threads, and the writes of metrics at the cost of one request's writes.
    pub instrumentation: f64,
    /// Of the shop: the threads on which OpenTelemetry's SDK packs and sends spans. Making them is in the services' own threads.
    pub sdk_threads: f64,
    /// What the writes of one request at one service cost, in nanoseconds.
    pub writes_per_request_ns: f64,
}

/// One run.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Made the order of the faults, the load and the work.
    pub seed: u64,
    /// When the demo's clock was zero, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// The local scraping interval.
    pub interval: Nanos,
    /// Whether the way between two services was watched.
    pub way: bool,
    /// Why the fault on the way is left out, if it was to happen.
    pub skipped: Option<String>,
    /// When each service's LMAP was armed.
    pub armed: BTreeMap<Watched, Nanos>,
    /// The faults in the order in which they happened.
    pub faults: Vec<Injected>,
    /// What arrived, in that order.
    pub events: Vec<Event>,
    /// Scores over time.
    pub scores: BTreeMap<Watched, Vec<Point>>,
    /// When the run was over.
    pub ended: Nanos,
    /// Ticks of the NIC agent's workers.
    pub ticks: u64,
    /// Ticks that were missed.
    pub missed_ticks: u64,
    /// Verdicts that did not arrive, because a queue was full.
    pub lost_verdicts: u64,
    /// Columns that each LMAP watches.
    pub columns: BTreeMap<Watched, u32>,
    /// Processor time.
    pub cost: Cost,
    /// What became of the load, if it said so.
    pub load: Option<LoadReport>,
    /// Each request of the load.
    pub visits: Vec<Visit>,
    /// Traces that were kept.
    pub traces: HashMap<TraceId, Trace>,
    /// What was counted of spans.
    pub books: Books,
}

impl Record {
    /// What was watched: the services, and the way between two of them if there was one.
    pub fn watched(&self) -> impl Iterator<Item = Watched> {
        let way = self.way.then_some(Watched::Way);
        Service::ALL.into_iter().map(Watched::Service).chain(way)
    }
}
