//! What a worker can be told before it starts.

use wire::id::WorkerId;
use wire::time::Nanos;

use crate::aggregation::Aggregations;
use crate::claims::RegionLimits;

/// How regions are fetched, as far as it makes a difference to the worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fetching {
    /// From memory that this process has: there is nothing to be connected.
    #[default]
    Memory,
    /// By RDMA READs over a queue pair.
    Verbs,
}

/// Settings of one worker. The defaults are those of the product; nothing here is checked but by its type, and every value works.
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// Which worker this is, as configured by whoever deploys it. 0.
    pub worker: WorkerId,
    /// The release, as said in the hello. That of this crate.
    pub version: String,
    /// How the runner can fetch, what it likes best first, as said in the hello. "shm".
    pub transports: Vec<String>,
    /// How long regions are fetched on without a host agent. 60 s.
    pub alone: Nanos,
    /// How long the detector of a service is kept when its configuration is gone, for a host agent that comes back. 10 min.
    pub remembered: Nanos,
    /// How long what was learnt of a service that is gone is kept, as a model, for its next start. 1 day.
    pub known: Nanos,
    /// Of how many such services at the most, the oldest ones being forgotten. 256.
    pub most_known: usize,
    /// Alarms a day and service that γ is steered to; `None`: γ stays where training has put it. None.
    pub alarms_per_day: Option<f64>,
    /// Between two summaries; a third of the lease if that is less. 1 s.
    pub summary: Nanos,
    /// Verdicts with a score below this share of γ are only summarised, until the host agent says otherwise. 0.5.
    pub lowest_share: f64,
    /// Columns that a verdict names as reasons. 3.
    pub reasons: usize,
    /// Rows of each LMAP kept for whoever subscribes later. 100.
    pub rows_kept: usize,
    /// Messages other than rows that wait for the host agent; the oldest are lost, counted. 1,024.
    pub outbox_messages: usize,
    /// Messages of rows that wait for the host agent; the newest are lost, counted. 256.
    pub outbox_rows: usize,
    /// A replica that could not be read stands in an aggregate with its last value for so many looks. 5.
    pub looks_held: u32,
    /// A replica is silent when its heartbeat has not changed for so many of its periods (and two ticks). 3.
    pub silent_heartbeats: u32,
    /// The first and the longest pause before a region is tried again. 100 ms, 10 s.
    pub attach_pause: (Nanos, Nanos),
    /// How many regions are taken from the host agent, and of which size together. 65,536, 1 GiB.
    pub regions: RegionLimits,
    /// Aggregations over replicas beside the four that every worker knows. None.
    pub aggregations: Aggregations,
    /// Settings of every detector; each has the margin for its own interval beside them. [`lmap::Settings::live`].
    pub detector: lmap::Settings,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self {
            worker: WorkerId(0),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            transports: vec!["shm".to_owned()],
            alone: Nanos::from_secs(60),
            remembered: Nanos::from_secs(600),
            known: Nanos::from_secs(86_400),
            most_known: 256,
            alarms_per_day: None,
            summary: Nanos::from_secs(1),
            lowest_share: 0.5,
            reasons: 3,
            rows_kept: 100,
            outbox_messages: 1024,
            outbox_rows: 256,
            looks_held: 5,
            silent_heartbeats: 3,
            attach_pause: (Nanos::from_millis(100), Nanos::from_secs(10)),
            regions: RegionLimits { regions: 1 << 16, bytes: 1 << 30 },
            aggregations: Aggregations::default(),
            // Kinds are known here, so that a gauge is a state, and services are seen from their start.
            detector: lmap::Settings::live(1.0),
        }
    }
}
