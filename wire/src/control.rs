//! What a NIC worker and the host agent say to each other, checked. See `proto/control.proto`.
//!
//! Summaries and rows travel as they are in [`crate::proto::control`]: plain numbers with nothing to hold.

mod detector;
mod lmap;
mod verdict;

pub use detector::{DetectorSpec, DetectorSpecError, ScoreForm};
pub use lmap::{LmapError, LmapSpec, MetricSpec, Place, RegionSpec, ReplicaSpec};
pub use verdict::{Episode, GroupShare, MetricShare, Reason, RowScore, State, Verdict};

/// The protocol that this code speaks. Both agents of a node must agree.
pub const PROTOCOL: u32 = 1;

/// The most LMAPs that a worker takes.
pub const MAX_LMAPS: usize = 4096;
/// The most series that one LMAP takes.
pub const MAX_METRICS: usize = 4096;
/// The most replicas that one LMAP takes.
pub const MAX_REPLICAS: usize = 1024;
/// The most regions that all replicas of one LMAP have together.
pub const MAX_REGIONS: usize = 1 << 16;
/// The largest message of the control stream, either way. gRPC libraries take 4 MiB unless told otherwise.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;
