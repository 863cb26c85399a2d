//! What spans take: buffered ones, what they taught, and gossip about them.

use agent_runtime::budget::{Bound, MIB};
use hooks::coherence::MemberSettings;
use hooks::paths::{LatencyRule, NameLimits, PathLimits};
use hooks::tracing::FOLLOWED_BYTES;

use super::{ORIGIN_BYTES, tenants};
use crate::config::{Config, KeepMode};
use crate::{kept_logs, receipts};

/// Two names of an operation, what its alarms were about when it was looked up last, and maps of both.
const NAME_BYTES: u64 = 450;
/// An operation's usual duration, besides two histograms.
const LATENCY_BYTES: u64 = 200;
/// What alarms were about, of one second and service.
const ALARM_BYTES: u64 = 512;
/// Seconds for which alarms are remembered.
const ALARM_SECONDS: u64 = 128;
/// A series from spans, counted for each operation.
const OPERATION_BYTES: u64 = 5 * 400;
/// Memory of a pair of an operation and a service on its path, or of caller and callee.
const PATH_BYTES: u64 = 100;
/// Requests that ended and are not counted yet.
const PENDING_BYTES: u64 = (1 << 18) * 24;
/// Spans of a tail sampler that keeps nothing.
const OBSERVER_BYTES: u64 = 16 * MIB;
/// Kept log records that wait for incidents, encoded and read.
const KEPT_LOGS: u64 = kept_logs::KEPT_BYTES as u64 + kept_logs::READ_BYTES as u64;
/// An operation whose probability is raised.
const RAISED_BYTES: u64 = 100 * 10_000;

/// Buffered spans, what they taught, and gossip about them.
pub(super) fn bounds(config: &Config) -> [Bound; 7] {
    let (otlp, tenants) = (&config.otlp, tenants(config));
    let tail = tenants > 0 && otlp.traces.keep == KeepMode::Tail;
    let observer = tenants > 0 && !tail && config.observes_spans();
    let memory = |tenant: Option<usize>| tenant.unwrap_or(otlp.traces.memory_bytes) as u64 + ORIGIN_BYTES;
    let buffered: u64 = memory(None) + otlp.tenants.iter().map(|tenant| memory(tenant.memory_bytes)).sum::<u64>();
    let when = |condition: bool, bytes: u64| if condition { bytes } else { 0 };
    let path = PathLimits::default().pairs as u64 * PATH_BYTES + FOLLOWED_BYTES as u64;
    let (names, latencies) = (NameLimits::default(), LatencyRule::default());
    let buckets = 2 * 8 * (u64::from(latencies.scale.buckets()) + 1);
    let learnt = names.services as u64
        * (names.operations_per_service as u64 * NAME_BYTES + ALARM_SECONDS * ALARM_BYTES)
        + latencies.operations as u64 * (buckets + LATENCY_BYTES);
    let derived = otlp.derived.services as u64 * otlp.derived.operations as u64 * OPERATION_BYTES + PENDING_BYTES;
    let gossips = tenants > 0 && !config.coherence.peers.is_empty();
    [
        Bound {
            what: "buffered spans and decisions",
            bytes: when(tail, buffered) + when(observer, OBSERVER_BYTES + ORIGIN_BYTES),
            from: "`otlp.traces.memory_bytes` + 16 MiB for each tenant, with `otlp.traces.keep: tail`; 32 MiB for head sampling or gossip without it",
            payer: "tenant; user, pod or address: with more than three quarters its own make room",
            full: "the traces that matter least are evicted, and the status says who has more than three quarters",
            metric: "lost_spans",
        },
        log_records(config, tail, tenants),
        Bound {
            what: "learnt paths",
            bytes: when(tail, tenants * path) + when(observer, path),
            from: "262,144 pairs of operation and service, or caller and callee, × 100 B, and 16,384 spans × 200 B, for each tenant",
            payer: "tenant",
            full: "further ones are not learnt",
            metric: "unlearnt_paths",
        },
        Bound {
            what: "names of services and operations, their usual durations, and alarms of two minutes",
            bytes: when(tail, tenants * learnt) + when(observer, learnt),
            from: "1,000 services × (200 operations × 450 B + 64 KiB) + 10,000 durations × 8.7 kB for each tenant",
            payer: "tenant; of services, user, pod or address: three times what is free",
            full: "`_other`, and the status says who has most; further durations are not learnt",
            metric: "other_names",
        },
        Bound {
            what: "metrics from spans",
            bytes: when(tenants > 0 && otlp.derived.enabled, derived),
            from: "`otlp.derived.services` × `otlp.derived.operations` × 2 kB + 6 MiB",
            payer: "user, pod or address: three times what is free of the services",
            full: "further services are not counted, and the status says who has most; operations count as `_other`; requests are counted at once",
            metric: "unwatched_requests",
        },
        Bound {
            what: "gossip",
            bytes: when(gossips, 2 * MemberSettings::default().memory as u64 + gossip::CALL_BYTES),
            from: "80 MiB with `coherence.peers`, of which 16 for messages that come and replies that were not read",
            payer: "peer: an eighth at once, of messages three times what is free",
            full: "the oldest entries are forgotten",
            metric: "refused_gossip",
        },
        Bound {
            what: "the receipt's ledger, and operations whose probability is raised",
            bytes: receipts::MAX_BYTES as u64 + when(config.head_sampling.listen.is_some(), RAISED_BYTES),
            from: "32 MiB + 1 MB with `head_sampling.listen`",
            payer: "node",
            full: "the oldest days are dropped",
            metric: "(the receipt says)",
        },
    ]
}

/// Log records that wait, where `tail` sampling is on for so many `tenants`.
fn log_records(config: &Config, tail: bool, tenants: u64) -> Bound {
    let logs = &config.otlp.logs;
    let is_on = tail && logs.keep == KeepMode::Tail;
    Bound {
        what: "log records that wait",
        bytes: if is_on { tenants * logs.memory_bytes as u64 + KEPT_LOGS } else { 0 },
        from: "`otlp.logs.memory_bytes` for each tenant + 4 MiB for incidents, with `otlp.logs.keep: tail`",
        payer: "tenant, service: whoever has most loses the oldest first",
        full: "the oldest of the service with most are lost",
        metric: "lost_logs",
    }
}
