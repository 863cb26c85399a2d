//! What the live page keeps.

use agent_runtime::budget::{Bound, Load};
use page::feed::MAX_EVENT_BYTES;
use page::{map, viewed};

use crate::config::Config;
use crate::kept_traces::KEPT_BYTES;
use crate::live_page::OLDER_BYTES;

/// An LMAP as it was sent last, with the metrics that explain its score.
const CARD_BYTES: u64 = 4 << 10;
/// Texts of an LMAP: snapshots that viewers who stall still hold, one for each eight events, and the one to come.
const SNAPSHOTS: u64 = 4;

/// The page's history, traces, and what it sends; connections are with others.
pub(super) fn bound(config: &Config, load: Load) -> Bound {
    let page = &config.page;
    // Traces are for incidents, too.
    let traces = page.trace_bytes as u64 + KEPT_BYTES as u64;
    let fixed = page.history_bytes as u64 + (MAX_EVENT_BYTES + map::MAX_BYTES + viewed::MAX_BYTES) as u64;
    let older = if page.prometheus.is_some() { OLDER_BYTES as u64 } else { 0 };
    let shown = if page.enabled { fixed + older + load.services * CARD_BYTES * (1 + SNAPSHOTS) } else { 0 };
    Bound {
        what: "the page: scores of a day, kept traces, what viewers are sent, map",
        bytes: traces + shown,
        from: "`page.trace_bytes` + 4 MiB; with `page.enabled` + `page.history_bytes` + 8 MiB + services × 5 × 4 KiB, and 6 MiB with `page.prometheus`",
        payer: "node; of the history, services alike",
        full: "it reaches back less; the oldest traces make room",
        metric: "slow_page_viewers",
    }
}
