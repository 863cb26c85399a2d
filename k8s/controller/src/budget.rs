//! What the controller may keep in memory (`--budget`, docs/bounds.md).

use agent_runtime::budget::{Bound, Budget, CONNECTION_BYTES, MIB};

use crate::serving::{METRICS_LIMITS, UNREAD_BYTES};
use crate::{agents, bounded, known, metrics_api, questions, run};

/// The program, its threads, and what the allocator keeps of memory that is free.
const PROGRAM: u64 = 48 * MIB;
/// Bytes per byte of an answer while it is decoded; a test counts them.
pub const DECODED: u64 = 10;
/// Kinds that are watched.
const WATCHED: u64 = 5;
/// Most bytes of one object in the API server's store.
const OBJECT_BYTES: u64 = 3 * MIB / 2;
/// What refers to what nodes say, while statuses are computed: one reference for 128 B of what they say.
const REFERENCES: u64 = 8 * MIB;
/// An answer to a request for metrics: 5,000 pods.
const REPLY_BYTES: u64 = 2 * MIB;
/// An agent that is known: its connection, with its buffers.
const AGENT_BYTES: u64 = 16 << 10;
/// Most agents that are known.
const AGENTS: u64 = 5_000;

/// What the controller keeps at most, with metrics for autoscalers or without.
#[must_use]
pub fn budget(with_metrics: bool) -> Budget {
    let mut bounds = Vec::from(cluster());
    if with_metrics {
        bounds.extend(metrics());
    }
    Budget { agent: "controller", prefix: "uview_controller", load: None, bounds, on_disk: Vec::new() }
}

/// What is known of the cluster.
fn cluster() -> [Bound; 6] {
    let bound = |what, bytes, from, full, metric| Bound { what, bytes, from, payer: "cluster", full, metric };
    [
        bound("program, threads, free memory that the allocator keeps", PROGRAM, "fixed", "–", "resident_bytes"),
        bound(
            "Lmaps, policies, reports and nodes",
            known::MAX_BYTES as u64,
            "3 × 12 + 32 + 8 MiB, twice while they are listed anew; 10,000 of each",
            "further ones have no status",
            "refused_objects",
        ),
        bound(
            "answers of the API server to lists",
            WATCHED * (1 + DECODED) * bounded::MAX_BYTES as u64,
            "5 lists × 5 MiB × (1 + 10 decoded)",
            "the list is an error, and begins anew",
            "(the log says)",
        ),
        bound(
            "events of watches, and statuses that are written",
            (WATCHED + 1) * OBJECT_BYTES + REFERENCES,
            "(5 + 1) × 1.5 MiB, as the API server's store has it, + 8 MiB",
            "others wait",
            "(nothing is lost)",
        ),
        bound(
            "connections to `/metrics`",
            run::HEALTH_LIMITS.connections as u64 * CONNECTION_BYTES,
            "32 × 64 KiB",
            "refused",
            "(the caller knows)",
        ),
        bound(
            "pages of metrics that have been asked for and not read",
            run::PAGE_BYTES,
            "fixed",
            "the request is refused",
            "(the caller knows)",
        ),
    ]
}

/// What requests for metrics take.
fn metrics() -> [Bound; 6] {
    let bound = |what, bytes, from, full, metric| Bound { what, bytes, from, payer: "cluster", full, metric };
    [
        bound(
            "connections of API servers that ask for metrics",
            METRICS_LIMITS.connections as u64 * CONNECTION_BYTES,
            "64 × 64 KiB",
            "refused",
            "(the caller knows)",
        ),
        bound(
            "answers to API servers that they have not read",
            UNREAD_BYTES,
            "fixed",
            "the request is refused",
            "(the caller knows)",
        ),
        bound(
            "requests for metrics: pods of each, and its answer",
            metrics_api::AT_A_TIME as u64 * (questions::MAX_KEPT_BYTES as u64 + REPLY_BYTES),
            "16 at a time × (2 MiB + 2 MiB)",
            "the request is refused, with the reason",
            "(the caller knows)",
        ),
        bound(
            "answers of the API server to questions about pods",
            questions::AT_A_TIME as u64 * (1 + DECODED) * bounded::MAX_BYTES as u64,
            "2 at a time × 5 MiB × (1 + 10 decoded)",
            "others wait; a longer answer is an error",
            "(the caller knows)",
        ),
        bound(
            "pages of host agents that are fresh",
            agents::MAX_PAGE_BYTES as u64,
            "fixed",
            "further nodes count as unread, with the reason",
            "failed_agent_reads",
        ),
        bound(
            "host agents that are known, and pages that are being read",
            AGENTS * AGENT_BYTES + agents::AT_A_TIME as u64 * 2 * agents::MAX_BYTES as u64,
            "5,000 × 16 KiB + 16 at a time × 2 × 1 MiB",
            "others wait",
            "(nothing is lost)",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_cost_only_where_they_are_served() {
        let (plain, served) = (budget(false), budget(true));

        assert_eq!((plain.bounds.len(), served.bounds.len()), (6, 12));
        assert!(plain.total() < 512 * MIB && served.total() > plain.total(), "{served}");
    }
}
