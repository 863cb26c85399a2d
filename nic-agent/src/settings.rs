//! Settings of a worker.

use wire::id::WorkerId;
use wire::time::Nanos;

use crate::aggregation::Aggregations;
use crate::region_limits::RegionLimits;

/// The kind of transport for regions, as far as the worker behaves differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fetching {
    /// Memory of this process: no connection is needed.
    #[default]
    Memory,
    /// RDMA READs over a queue pair.
    Verbs,
}

/// Settings of one worker. The defaults are those of the product. Values are checked by their types only; every value
/// works.
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// Number of this worker on its node. Default: 0.
    pub worker: WorkerId,
    /// The release that the hello names. Default: the version of this crate.
    pub version: String,
    /// Transports that the hello offers, the preferred one first. Default: "shm".
    pub transports: Vec<String>,
    /// How long regions are still fetched without a host agent. Default: 60 s.
    pub without_host_agent: Nanos,
    /// How long the detectors of a service without a configuration are retained, for a host agent that comes back.
    /// Default: 10 min.
    pub detector_retention: Nanos,
    /// Most bytes of such detectors. The oldest of the owner with most bytes are dropped first; their models are
    /// retained. Default: 1 GiB.
    pub max_retained_detector_bytes: u64,
    /// How long the model of a service that is gone is retained, for its next start. Default: 1 day.
    pub model_retention: Nanos,
    /// Most such models. The oldest of the owner with most of them are dropped first. Default: 256.
    pub max_retained_models: usize,
    /// Most bytes of such models. The oldest of the owner with most bytes are dropped first. Default: 128 MiB.
    pub max_retained_model_bytes: u64,
    /// Target number of alarms per day and service, by which γ is adjusted; `None`: γ does not move after training.
    /// Default: `None`.
    pub alarms_per_day: Option<f64>,
    /// Period of summaries; a third of the lease if that is less. Default: 1 s.
    pub summary: Nanos,
    /// Verdicts with a score below this share of γ are summarised only, unless the host agent sets another share.
    /// Default: 0.5.
    pub lowest_share: f64,
    /// Columns that a verdict names as reasons. Default: 3.
    pub reasons: usize,
    /// Rows of each LMAP that a new subscriber gets first. Default: 100.
    pub row_history: usize,
    /// Most messages, other than rows, queued for the host agent. When the queue is full, the oldest are lost and
    /// counted. Default: 1,024.
    pub outbox_messages: usize,
    /// Most messages with rows queued for the host agent. When the queue is full, the newest are lost and counted.
    /// Default: 256.
    pub outbox_rows: usize,
    /// Observations for which a replica that cannot be read counts in an aggregate with its last value. Default: 5.
    pub observations_held: u32,
    /// A replica is silent after so many heartbeat periods without a heartbeat, and at least two ticks. Default: 3.
    pub silent_heartbeats: u32,
    /// The first and the longest pause before attaching a region is tried again. Default: 100 ms, 10 s.
    pub attach_pause: (Nanos, Nanos),
    /// Most regions that the host agent may announce, and their total size. Default: 65,536, 1 GiB.
    pub regions: RegionLimits,
    /// Most READs per second between rows, of all LMAPs that are fetched faster since something seems wrong; 0: none
    /// is. Default: 1,000.
    pub extra_reads_per_s: f64,
    /// Interfaces that are read at most for streams of packets which the host agent asks for; 0: the runner refuses all
    /// of them. Default: 0.
    pub stream_interfaces: u32,
    /// What the configuration leaves open, in words, for the host agent's status. Default: nothing.
    pub warnings: Vec<String>,
    /// Aggregations over replicas besides the four that every worker has. Default: none.
    pub aggregations: Aggregations,
    /// Settings of every detector. Each adds what follows from its own interval: the alarm margin, the stride, and what
    /// lasts. Default: [`lmap::Settings::live`].
    pub detector: lmap::Settings,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self {
            worker: WorkerId(0),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            transports: vec!["shm".to_owned()],
            without_host_agent: Nanos::from_secs(60),
            detector_retention: Nanos::from_secs(600),
            max_retained_detector_bytes: 1 << 30,
            model_retention: Nanos::from_secs(86_400),
            max_retained_models: 256,
            max_retained_model_bytes: 128 << 20,
            alarms_per_day: None,
            summary: Nanos::from_secs(1),
            lowest_share: 0.5,
            reasons: 3,
            row_history: 100,
            outbox_messages: 1024,
            outbox_rows: 256,
            observations_held: 5,
            silent_heartbeats: 3,
            attach_pause: (Nanos::from_millis(100), Nanos::from_secs(10)),
            regions: RegionLimits { regions: 1 << 16, bytes: 1 << 30 },
            extra_reads_per_s: 1000.0,
            stream_interfaces: 0,
            warnings: Vec::new(),
            aggregations: Aggregations::default(),
            // The kinds of columns are known here: a gauge is a state. And services are monitored from their start.
            detector: lmap::Settings::live(1.0),
        }
    }
}
