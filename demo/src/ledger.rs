//! At the end of a run: collects the counts and requests of the shop, the host agent and the receiver, for the
//! evaluation of traces.

use std::time::Duration;

use axum::http::Method;
use tokio::time::sleep;
use wire::proto::operators::ReceiptReply;
use wire::time::{Nanos, UnixNanos};

use crate::clock::Clock;
use crate::graph::Service;
use crate::host_agent::{HostAgentClient, HostAgentError};
use crate::http::HttpClient;
use crate::load::{LoadLog, RequestRecord};
use crate::testbed::Testbed;
use crate::traces::route::{Route, WAIT};
use crate::traces::{SpanLedger, Visit};

/// Limit for an SDK to send its pending batch, or to give up.
const FLUSHED_WITHIN: Duration = Duration::from_secs(20);
/// The agent evaluates buffered traces twice a second. What it has not kept after a little more, it does not keep.
const DECIDES_EVERY: Duration = Duration::from_millis(700);
/// Limit for waiting until the agent keeps no more: during an alarm it keeps new traces all the time.
const DECIDED_WITHIN: Nanos = Nanos::from_secs(5);
/// Limit for kept traces to reach the receiver; those that have not by then are missing.
const ARRIVES_WITHIN: Nanos = Nanos::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Asks the services to send pending spans. If one does not, its traces are incomplete.
async fn flush(testbed: &Testbed) {
    let http = HttpClient::new(FLUSHED_WITHIN);
    for service in Service::ALL {
        if let Some(ready) = testbed.shop(service) {
            let _ = http.request(Method::POST, ready.admin, "/flush").await;
        }
    }
}

/// Waits until the agent has all spans of the run, has decided on them, and the kept ones have arrived. Returns what it
/// counted. The load continues in the meantime, since its end would be an alarm.
///
/// # Errors
///
/// The agent does not respond.
pub(crate) async fn collect(testbed: &Testbed, agent: &mut HostAgentClient) -> Result<SpanLedger, HostAgentError> {
    flush(testbed).await;
    let mut ledger = decided(agent).await?;
    let come = |route: &Route| route.receiver.look(|store| (store.spans() as u64, store.rejected_spans()));
    let Some(route) = &testbed.route else { return Ok(ledger) };
    let clock = Clock::start();
    while clock.now() < ARRIVES_WITHIN {
        let (spans, rejected_spans) = come(route);
        if spans + rejected_spans >= ledger.kept_spans {
            break;
        }
        sleep(LOOK_EVERY).await;
    }
    ledger.rejected_spans = come(route).1;
    Ok(ledger)
}

/// Waits until the agent keeps nothing more except its fixed share of all traces.
async fn decided(agent: &mut HostAgentClient) -> Result<SpanLedger, HostAgentError> {
    let clock = Clock::start();
    let mut ledger = counted(&agent.receipt().await?);
    while clock.now() < DECIDED_WITHIN {
        sleep(DECIDES_EVERY).await;
        let before = core::mem::replace(&mut ledger, counted(&agent.receipt().await?));
        if chosen(&before) == chosen(&ledger) {
            break;
        }
    }
    Ok(ledger)
}

/// Bytes that a policy selected: all kept bytes except the floor, the fixed share of all traces.
fn chosen(ledger: &SpanLedger) -> u64 {
    ledger.kept_bytes_by_policy.iter().filter(|(policy, _)| *policy != "floor").map(|(_, bytes)| *bytes).sum()
}

/// Sums all days of a receipt: a run may cross midnight.
fn counted(receipt: &ReceiptReply) -> SpanLedger {
    let mut ledger = SpanLedger { wait: WAIT, ..SpanLedger::default() };
    for line in receipt.days.iter().flat_map(|day| &day.services) {
        ledger.seen_spans += line.seen_spans;
        ledger.seen_bytes += line.seen_bytes;
        ledger.kept_spans += line.kept_spans;
        ledger.kept_bytes += line.kept_bytes;
        for (policy, bytes) in &line.kept_bytes_by_policy {
            *ledger.kept_bytes_by_policy.entry(policy.clone()).or_default() += bytes;
        }
    }
    for (name, by) in receipt.days.iter().flat_map(|day| &day.grown) {
        let lost = name.starts_with("lost_spans.") || name == "lost_kept_spans";
        ledger.lost_spans += if lost { *by } else { 0 };
        ledger.over_budget += if name.starts_with("over_budget.") { *by } else { 0 };
    }
    ledger
}

/// The load's requests, with times of `clock`.
pub(crate) fn visits(log: &LoadLog, clock: &Clock) -> Vec<Visit> {
    let visit = |request: &RequestRecord| Visit {
        trace: request.trace,
        errand: request.errand,
        started: clock.at_wall(UnixNanos(request.at_unix_ns)),
        took: Nanos::from_micros(request.took_us.into()),
        failed: request.failed,
    };
    log.requests.iter().map(visit).collect()
}

#[cfg(test)]
mod tests {
    use wire::proto::operators::{ReceiptDay, ReceiptLine};

    use super::*;

    #[test]
    fn all_days_and_services_of_a_receipt_are_counted_together() {
        let line = |seen_bytes, kept_bytes| ReceiptLine {
            seen_bytes,
            kept_bytes,
            kept_spans: 2,
            kept_bytes_by_policy: [("lmap".to_owned(), kept_bytes)].into(),
            ..ReceiptLine::default()
        };
        let grown = [("over_budget.trigger", 3), ("lost_spans.evicted", 4), ("lost_kept_spans", 5), ("cpu_ms", 6)];
        let grown = grown.map(|(name, by)| (name.to_owned(), by)).into();
        let days = vec![
            ReceiptDay { day: 1, services: vec![line(100, 10), line(50, 0)], grown },
            ReceiptDay { day: 2, services: vec![line(200, 5)], ..ReceiptDay::default() },
        ];

        let ledger = counted(&ReceiptReply { days, ..ReceiptReply::default() });

        assert_eq!((ledger.seen_bytes, ledger.kept_bytes, ledger.kept_spans), (350, 15, 6));
        assert_eq!((ledger.over_budget, ledger.lost_spans), (3, 9));
        assert_eq!(ledger.kept_bytes_by_policy["lmap"], 15);
    }
}
