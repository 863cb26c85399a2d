//! Checked messages between a NIC worker and the host agent. See `proto/control.proto`.
//!
//! Summaries and rows are used as they are in [`crate::proto::control`]: plain numbers without invariants.

mod detector;
mod lmap;
mod state;
mod verdict;

pub use detector::{DetectorSpec, DetectorSpecError, ScoreForm};
pub use lmap::{LmapError, LmapSpec, MetricPlace, MetricSpec, RegionSpec, ReplicaSpec};
pub use state::State;
pub use verdict::{Episode, Features, GroupShare, MetricShare, Reason, RowScore, Verdict};

/// The newest version of the protocol that this release speaks.
pub const PROTOCOL: u32 = 1;
/// The oldest one. A release drops a version two releases after its successor came, so that the agents of a node can be
/// upgraded one after the other, and back.
pub const OLDEST_PROTOCOL: u32 = 1;

/// The newest protocol that both ends speak, this release and a peer that speaks `oldest..=newest`; `None` if there is
/// none. A peer that names no oldest one (0) speaks `newest` only.
#[must_use]
pub const fn common_protocol(newest: u32, oldest: u32) -> Option<u32> {
    let oldest = if oldest == 0 { newest } else { oldest };
    let common = if newest < PROTOCOL { newest } else { PROTOCOL };
    if common >= OLDEST_PROTOCOL && common >= oldest { Some(common) } else { None }
}

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
/// Largest number of streams of packets that a worker is asked for.
pub const MAX_STREAMS: usize = 64;
/// Largest number of addresses of one of them.
pub const MAX_STREAM_ADDRESSES: usize = 256;
/// Largest message of the control stream, in either direction: 16 MiB. The default of gRPC libraries is 4 MiB.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_whose_protocols_overlap_speak_the_newest_that_both_know() {
        assert_eq!(common_protocol(PROTOCOL, OLDEST_PROTOCOL), Some(PROTOCOL));
        assert_eq!(common_protocol(PROTOCOL + 1, PROTOCOL), Some(PROTOCOL));
        assert_eq!(common_protocol(PROTOCOL, 0), Some(PROTOCOL));

        assert_eq!(common_protocol(PROTOCOL + 1, 0), None, "it names none but its own");
        assert_eq!(common_protocol(PROTOCOL + 2, PROTOCOL + 1), None);
        assert_eq!(common_protocol(OLDEST_PROTOCOL - 1, 0), None);
    }
}
