//! Connections of workers, operators, viewers, peers and clients, what they ask for, and what they do not read.

use agent_runtime::budget::{Bound, CONNECTION_BYTES};
use agent_runtime::server::Limits;

use super::tenants;
use crate::config::Config;
use crate::run::{CALL_BYTES, METRICS_LIMITS, OPERATOR_LIMITS, WORKER_LIMITS, page_bytes};
use crate::{coherence, live_page, regions_socket, token_access};

/// Connections of OTLP clients of a tenant, and of head sampling.
const OPEN_CONNECTIONS: u64 = 1_024;
/// A reader of regions: its task, and a request.
const READER_BYTES: u64 = 16 << 10;

/// Connections of all other listeners, and what is asked for over them.
pub(super) fn bounds(config: &Config) -> [Bound; 6] {
    let all = |limits: Limits| limits.connections as u64;
    let peers = if config.coherence.peers.is_empty() { 0 } else { all(coherence::LIMITS) };
    let page = if config.page.enabled { all(live_page::LIMITS) } else { 0 };
    let api = all(WORKER_LIMITS) + all(OPERATOR_LIMITS) + all(METRICS_LIMITS) + page + peers;
    let sampling = if config.head_sampling.listen.is_some() { OPEN_CONNECTIONS } else { 0 };
    [
        Bound {
            what: "connections of workers, operators, viewers, peers, to `/metrics` and to the page",
            bytes: api * CONNECTION_BYTES,
            from: "256 + 512 + 128, with `page` 256, with `coherence.peers` 2,048, × 64 KiB",
            payer: "user or address",
            full: "refused",
            metric: "refused_api_connections",
        },
        Bound {
            what: "what the API server has said of tokens",
            bytes: if config.kubernetes.tokens { token_access::BYTES as u64 } else { 0 },
            from: "with `kubernetes.tokens`: 2 MiB + 8 questions at a time × 64 KiB",
            payer: "who shows a token: bad ones and good ones have a half each",
            full: "the oldest are forgotten, and asked about again",
            metric: "denied_calls",
        },
        Bound {
            what: "requests of operators and viewers, and replies that they have not read",
            bytes: CALL_BYTES,
            from: "fixed",
            payer: "operator or viewer: three times what is free",
            full: "the call is refused",
            metric: "refused_replies",
        },
        Bound {
            what: "pages of metrics that have been asked for and not read",
            bytes: page_bytes(config),
            from: "32 MiB, or `otlp.derived.services` × `otlp.derived.operations` × 8 KiB if that is more",
            payer: "user or address: three times what is free",
            full: "the request is refused",
            metric: "refused_pages",
        },
        Bound {
            what: "readers of regions: connections, requests",
            bytes: regions_socket::READERS as u64 * READER_BYTES,
            from: "256 × 16 KiB",
            payer: "the NIC agents' user",
            full: "refused",
            metric: "refused_readers",
        },
        Bound {
            what: "connections of OTLP clients and for head sampling",
            bytes: (tenants(config) + sampling / OPEN_CONNECTIONS) * OPEN_CONNECTIONS * CONNECTION_BYTES,
            from: "1,024 for each tenant, and with `head_sampling.listen`, × 64 KiB",
            payer: "tenant; user or address: three times what is free",
            full: "refused",
            metric: "refused_otlp_connections",
        },
    ]
}
