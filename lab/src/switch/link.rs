//! What the relay did with the packets that are measured, by its own log.

use std::time::Duration;

use serde::Serialize;
use support::relay::{RelayCounts, SegmentOrder};

/// What the relay did so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct RelayLog {
    pub counts: RelayCounts,
    /// The order in which segments with payload left it.
    pub order: SegmentOrder,
}

/// What the relay did while a condition was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LinkTruth {
    pub packets: u64,
    pub lost: u64,
    /// Mean of how long the others were held, as configured.
    pub held_ms: Option<f64>,
    /// The longest that one was held longer than that.
    pub late_ms: f64,
    /// Segments with payload that it sent.
    pub segments: u64,
    /// Those of them that were below the one before, of their flow.
    pub out_of_order: u64,
}

impl LinkTruth {
    /// What it did between two looks at its log.
    pub fn between(before: &RelayLog, after: &RelayLog, late: Duration) -> Self {
        let (first, last) = (&before.counts, &after.counts);
        let (packets, lost) = (last.packets - first.packets, last.lost - first.lost);
        let held_ms = (last.held_ns - first.held_ns) as f64 / 1e6;
        let sent = packets - lost;
        Self {
            packets,
            lost,
            held_ms: (sent > 0).then(|| held_ms / sent as f64),
            late_ms: late.as_secs_f64() * 1e3,
            segments: after.order.sent - before.order.sent,
            out_of_order: after.order.out_of_order - before.order.out_of_order,
        }
    }

    /// The share of segments out of order.
    pub fn reordered(&self) -> Option<f64> {
        (self.segments > 0).then(|| self.out_of_order as f64 / self.segments as f64)
    }
}
