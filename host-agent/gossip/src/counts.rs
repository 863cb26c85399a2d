//! Counters of gossip calls.

use agent_runtime::Count;

/// Counters of gossip calls.
#[derive(Debug, Default)]
pub struct Counts {
    /// Calls that this node made.
    pub sent: Count,
    /// Calls of this node without a usable reply.
    pub failed: Count,
    /// Messages received and applied.
    pub received: Count,
    /// Messages refused as a whole: of somebody who is no peer or has another name, malformed, or not applicable.
    pub refused: Count,
}
