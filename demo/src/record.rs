//! The data of one run: the injected faults, and all verdicts and measurements of uview. [`crate::judge`] evaluates it.
//!
//! All times are on the demo's clock, from its start. The time of an event is that of its *arrival*, so that delays
//! include the path from the NIC agent to the operator.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use wire::time::Nanos;

use crate::fault::Kind;
use crate::graph::{Service, Target};
use crate::load::LoadReport;
use crate::reason::Reason;
use crate::talkers::Talkers;
use crate::traces::{SpanLedger, Trace, TraceId, Visit};

/// An injected fault.
#[derive(Clone, Debug, PartialEq)]
pub struct InjectedFault {
    /// The service, or the link, that had it.
    pub service: Target,
    /// The kind of fault.
    pub kind: Kind,
    /// Its start: just before the request to inject it.
    pub started: Nanos,
    /// When it ended.
    pub ended: Nanos,
    /// For a leak: when the resident set had doubled.
    pub doubled: Option<Nanos>,
}

/// State of an alarm at one verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Episode {
    /// There is no alarm.
    Quiet,
    /// An alarm begins with this sample.
    Began,
    /// The alarm is still active.
    On,
    /// The alarm has ended.
    Ended,
}

/// One verdict on a service.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Time of its arrival.
    pub at: Nanos,
    /// The service, or the link.
    pub service: Target,
    /// The anomaly score of the sample.
    pub score: f64,
    /// The threshold γ: scores from γ on are anomalies; 0 while learning.
    pub gamma: f64,
    /// Whether the heartbeat has stopped.
    pub silent: bool,
    /// State of the alarm.
    pub episode: Episode,
    /// The metrics with the largest shares of the score, the largest first.
    pub reasons: Vec<Reason>,
}

impl Event {
    /// The score as a multiple of γ; 0 while there is no γ.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        if self.gamma > 0.0 { self.score / self.gamma } else { 0.0 }
    }
}

/// A score from the summaries of a status reply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Time of the fetch.
    pub at: Nanos,
    /// The anomaly score.
    pub score: f64,
    /// γ at that time.
    pub gamma: f64,
}

/// Processor time, as shares of one core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// Of the host agent.
    pub host_agent: f64,
    /// Of the NIC agent.
    pub nic_agent: f64,
    /// Of all five services together.
    pub shop: f64,
    /// Of the load generator.
    pub load: f64,
    /// Of the link's relay; 0 without one.
    pub relay: f64,
    /// Part of the shop: the uview client's threads, plus the metric writes of all requests.
    pub instrumentation: f64,
    /// Part of the shop: the threads of OpenTelemetry's SDK, which encode and send spans. Creating spans takes place in
    /// the services' own threads and is not included.
    pub sdk_threads: f64,
    /// Time of the metric writes for one request at one service, in nanoseconds.
    pub writes_per_request_ns: f64,
}

/// The data of one run.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Seed of the order of the faults, the load and the work.
    pub seed: u64,
    /// Wall-clock time of the demo's start, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// Scrape interval of the NIC agent.
    pub interval: Nanos,
    /// Whether the link between two services was monitored.
    pub link: bool,
    /// Why the fault on the link was skipped, if it was planned.
    pub skipped: Option<String>,
    /// When each service's LMAP was armed.
    pub armed: BTreeMap<Target, Nanos>,
    /// The faults in the order in which they happened.
    pub faults: Vec<InjectedFault>,
    /// All verdicts in the order of their arrival.
    pub events: Vec<Event>,
    /// Scores of each target over time.
    pub scores: BTreeMap<Target, Vec<Point>>,
    /// End of the run.
    pub ended: Nanos,
    /// Ticks of the NIC agent's workers.
    pub ticks: u64,
    /// Missed ticks of these workers.
    pub missed_ticks: u64,
    /// Verdicts that did not arrive because a queue was full.
    pub lost_verdicts: u64,
    /// The highest [threshold noise](wire::control::NOISY_THRESHOLD) of each LMAP while it was armed.
    pub noise: BTreeMap<Target, f64>,
    /// Number of columns of each LMAP.
    pub columns: BTreeMap<Target, u32>,
    /// Processor time of all processes during the faults.
    pub cost: Cost,
    /// Summary of the load, if it wrote its log.
    pub load: Option<LoadReport>,
    /// Each request of the load.
    pub visits: Vec<Visit>,
    /// The kept traces.
    pub traces: HashMap<TraceId, Trace>,
    /// Counts of spans seen, kept and lost.
    pub ledger: SpanLedger,
    /// Who visited the frontend, where packets were captured.
    pub talkers: Talkers,
}

impl Record {
    /// All monitored targets: the services, and the link if there was one.
    pub fn targets(&self) -> impl Iterator<Item = Target> {
        let link = self.link.then_some(Target::Link);
        Service::ALL.into_iter().map(Target::Service).chain(link)
    }
}
