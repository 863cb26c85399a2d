//! At the end of a run: brings together what the shop, the agent and the receiver know of traces.

use std::time::Duration;

use axum::http::Method;
use tokio::time::sleep;
use wire::proto::operators::ReceiptReply;
use wire::time::Nanos;

use crate::clock::Clock;
use crate::graph::Service;
use crate::http::Caller;
use crate::link::{Link, LinkError};
use crate::load::{Account, Noted};
use crate::stage::Stage;
use crate::traces::route::{Route, WAIT};
use crate::traces::{Books, Visit};

/// An SDK has sent what waits, or has given up, within so long.
const FLUSHED_WITHIN: Duration = Duration::from_secs(20);
/// The agent looks through what waits twice a second: what it has not kept in a little more it does not keep.
const DECIDES_EVERY: Duration = Duration::from_millis(700);
/// While an alarm is on there is always more.
const DECIDED_WITHIN: Nanos = Nanos::from_secs(5);
/// What the agent keeps is at the receiver within so long; what is not then is missing.
const ARRIVES_WITHIN: Nanos = Nanos::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Has the services send the spans that wait for a batch. Of a service that does not, traces are kept in part.
async fn flush(stage: &Stage) {
    let caller = Caller::new(FLUSHED_WITHIN);
    for service in Service::ALL {
        if let Some(ready) = stage.shop(service) {
            let _ = caller.ask(Method::POST, ready.admin, "/flush").await;
        }
    }
}

/// What the agent counted, once it has all spans of the run, has decided on them, and what it keeps has come. Visitors still come in the meantime, or
/// that there are none would be an alarm.
///
/// # Errors
///
/// The agent does not say.
pub(crate) async fn books(stage: &Stage, link: &mut Link) -> Result<Books, LinkError> {
    flush(stage).await;
    let mut books = decided(link).await?;
    let come = |route: &Route| route.receiver.look(|store| (store.spans() as u64, store.no_room()));
    let Some(route) = &stage.route else { return Ok(books) };
    let clock = Clock::start();
    while clock.now() < ARRIVES_WITHIN {
        let (spans, no_room) = come(route);
        if spans + no_room >= books.kept_spans {
            break;
        }
        sleep(LOOK_EVERY).await;
    }
    books.no_room = come(route).1;
    Ok(books)
}

/// Waits until the agent keeps nothing more but its share of all traces.
async fn decided(link: &mut Link) -> Result<Books, LinkError> {
    let clock = Clock::start();
    let mut books = counted(&link.receipt().await?);
    while clock.now() < DECIDED_WITHIN {
        sleep(DECIDES_EVERY).await;
        let before = core::mem::replace(&mut books, counted(&link.receipt().await?));
        if chosen(&before) == chosen(&books) {
            break;
        }
    }
    Ok(books)
}

/// Bytes that were kept for what they are.
fn chosen(books: &Books) -> u64 {
    books.kept_bytes_by_policy.iter().filter(|(policy, _)| *policy != "floor").map(|(_, bytes)| *bytes).sum()
}

/// All days of a receipt together: a run may go on past midnight.
fn counted(receipt: &ReceiptReply) -> Books {
    let mut books = Books { wait: WAIT, ..Books::default() };
    for line in receipt.days.iter().flat_map(|day| &day.services) {
        books.seen_spans += line.seen_spans;
        books.seen_bytes += line.seen_bytes;
        books.kept_spans += line.kept_spans;
        books.kept_bytes += line.kept_bytes;
        for (policy, bytes) in &line.kept_bytes_by_policy {
            *books.kept_bytes_by_policy.entry(policy.clone()).or_default() += bytes;
        }
    }
    for (name, by) in receipt.days.iter().flat_map(|day| &day.grown) {
        let lost = name.starts_with("lost_spans.") || name == "lost_kept_spans";
        books.lost_spans += if lost { *by } else { 0 };
        books.over_budget += if name.starts_with("yielded.") { *by } else { 0 };
    }
    books
}

/// The load's requests, at the times of `clock`.
pub(crate) fn visits(account: &Account, clock: &Clock) -> Vec<Visit> {
    let visit = |noted: &Noted| Visit {
        trace: noted.trace,
        errand: noted.errand,
        started: clock.at_unix(noted.at_unix_ns),
        took: Nanos::from_micros(noted.took_us.into()),
        failed: noted.failed,
    };
    account.requests.iter().map(visit).collect()
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
        let grown = [("yielded.code", 3), ("lost_spans.evicted", 4), ("lost_kept_spans", 5), ("cpu_ms", 6)];
        let grown = grown.map(|(name, by)| (name.to_owned(), by)).into();
        let days = vec![
            ReceiptDay { day: 1, services: vec![line(100, 10), line(50, 0)], grown },
            ReceiptDay { day: 2, services: vec![line(200, 5)], ..ReceiptDay::default() },
        ];

        let books = counted(&ReceiptReply { days, ..ReceiptReply::default() });

        assert_eq!((books.seen_bytes, books.kept_bytes, books.kept_spans), (350, 15, 6));
        assert_eq!((books.over_budget, books.lost_spans), (3, 9));
        assert_eq!(books.kept_bytes_by_policy["lmap"], 15);
    }
}
