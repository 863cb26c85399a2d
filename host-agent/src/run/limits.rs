//! How much the servers of the agent take at a time.

use agent_runtime::server::{Limits, Traffic};

use crate::config::Config;

/// Connections of workers: of all, and of one user or address.
pub(crate) const WORKER_LIMITS: Limits =
    Limits { connections: 256, connections_per_peer: 128, traffic: Traffic::Streams };
/// Connections of operators, viewers and hooks.
pub(crate) const OPERATOR_LIMITS: Limits =
    Limits { connections: 512, connections_per_peer: 128, traffic: Traffic::Streams };
/// Bytes of requests of operators and viewers that are being read, and of replies that they have not read.
pub(crate) const CALL_BYTES: u64 = 64 << 20;
/// Connections to `/metrics`.
pub(crate) const METRICS_LIMITS: Limits =
    Limits { connections: 128, connections_per_peer: 64, traffic: Traffic::Pages };
/// Least bytes of pages of metrics that have been asked for and not read.
const PAGE_BYTES: u64 = 32 << 20;
/// Bytes of the page for each operation of which durations are on it, with room for two pages.
const OPERATION_BYTES: u64 = 8 << 10;

/// Bytes of pages of metrics that have been asked for and not read: one peer may hold three quarters.
pub(crate) fn page_bytes(config: &Config) -> u64 {
    let derived = &config.otlp.derived;
    let is_on = config.otlp.is_on() && derived.enabled;
    let operations = if is_on { derived.services as u64 * derived.operations as u64 } else { 0 };
    (operations * OPERATION_BYTES).max(PAGE_BYTES)
}
