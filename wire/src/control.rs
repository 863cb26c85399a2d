//! Checked messages between a NIC worker and the host agent. See `proto/control.proto`.
//!
//! Summaries and rows are used as they are in [`crate::proto::control`]: plain numbers without invariants.

mod detector;
mod lmap;
mod verdict;

pub use detector::{DetectorSpec, DetectorSpecError, ScoreForm};
pub use lmap::{LmapError, LmapSpec, MetricPlace, MetricSpec, RegionSpec, ReplicaSpec};
pub use verdict::{Episode, GroupShare, MetricShare, Reason, RowScore, State, Verdict};

/// Version of the protocol. Both agents of a node must have the same.
pub const PROTOCOL: u32 = 1;

/// γ as a multiple of the usual score of its training rows, above which the threshold of an LMAP was learnt from
/// unusually noisy rows. The demo's armed services have 2.0 to 3.7 on an idle machine of two cores and up to 5.0 beside
/// two compilers; what learns again while faults come and go has up to 6.3.
pub const NOISY_THRESHOLD: f64 = 5.0;

/// Largest number of LMAPs of a worker.
pub const MAX_LMAPS: usize = 4096;
/// Largest number of series of one LMAP.
pub const MAX_METRICS: usize = 4096;
/// Largest number of replicas of one LMAP.
pub const MAX_REPLICAS: usize = 1024;
/// Largest number of regions of all replicas of one LMAP together.
pub const MAX_REGIONS: usize = 1 << 16;
/// Largest message of the control stream, in either direction: 16 MiB. The default of gRPC libraries is 4 MiB.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;
