//! Timing and limits of a member.

use wire::time::Nanos;

/// Timing and limits of the gossip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberSettings {
    /// How long entries are remembered and relayed: as long as decisions are. 120 s by default.
    pub remember: Nanos,
    /// Memory of the entries that are remembered, in bytes. 32 MiB by default: 2^18 decisions.
    pub memory: usize,
    /// Decisions of one peer that are taken at once, and in each [`remember`](Self::remember). An eighth of the
    /// decisions that fit into [`Limits::decisions`](crate::tracing::Limits): 2^16 by default.
    pub peer_decisions: u32,
    /// Longest time that a decision waits until another node has it. 2 s by default.
    pub patience: Nanos,
    /// A peer that has been silent for so long counts as dead: no decision waits for it. 3 s by default.
    pub lease: Nanos,
    /// A peer that has been silent for so long is forgotten: no trace is marked because of it any more. 15 min by
    /// default.
    pub forget: Nanos,
    /// An entry of another run is relayed after so long: that run sends it first. 1 s by default.
    pub relay_after: Nanos,
    /// Interval of messages while there is nothing to send. 1 s by default.
    pub idle: Nanos,
}

impl Default for MemberSettings {
    fn default() -> Self {
        Self {
            remember: Nanos::from_secs(120),
            memory: 32 << 20,
            peer_decisions: 1 << 16,
            patience: Nanos::from_secs(2),
            lease: Nanos::from_secs(3),
            forget: Nanos::from_secs(900),
            relay_after: Nanos::from_secs(1),
            idle: Nanos::from_secs(1),
        }
    }
}
