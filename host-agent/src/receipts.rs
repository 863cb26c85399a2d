//! What the receipt says beside spans: alarms, bytes sent, losses and processor time, day by day, put together with the books of the OTLP
//! endpoint when somebody asks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hooks::receipt::{BookLimits, Books, Line, Page, head_share};
use hooks::time::UnixNanos;
use hooks::tracing::{Dropped, Loss, Policy};
use otlp::counts::Lost;
use otlp::{Edge, Signal};
use wire::control::Episode;
use wire::id::HookId;
use wire::name::ServiceName;
use wire::proto::operators as proto;
use wire::time::Nanos;

use crate::clock;
use crate::control_plane::Event;
use crate::dispatch::{Filter, TooManyHooks};
use crate::node::Node;

/// Verdicts that wait to be booked.
const VERDICTS: usize = 1_024;
/// How often what only grows is booked, so that each day gets its own.
const BOOKED_EVERY: Duration = Duration::from_mins(1);

/// What this agent books by itself.
#[derive(Debug)]
struct Own {
    books: Books,
    /// Services in an alarm, which is booked until then.
    alarms: BTreeMap<ServiceName, UnixNanos>,
}

/// The books of this agent.
#[derive(Debug)]
pub(crate) struct Receipts {
    own: Mutex<Own>,
    edge: Option<Arc<Edge>>,
    since: UnixNanos,
    node: String,
}

impl Receipts {
    /// Empty books of the node that is called so.
    pub(crate) fn new(edge: Option<Arc<Edge>>, node: String) -> Self {
        let own = Mutex::new(Own { books: Books::new(BookLimits::default()), alarms: BTreeMap::new() });
        Self { own, edge, since: unix_now(), node }
    }

    /// Books alarms of `node` from now on, and what only grows, until it drains.
    ///
    /// # Errors
    ///
    /// [`TooManyHooks`] if there is no room for one more.
    pub(crate) fn start(self: &Arc<Self>, node: &Arc<Node>) -> Result<(), TooManyHooks> {
        // Beginnings and ends: no score is that high.
        let turns = Filter { lmaps: [].into(), min_share: f64::INFINITY };
        let (id, notified) = node.register_hook(turns, VERDICTS)?;
        let (receipts, node) = (Arc::clone(self), Arc::clone(node));
        tokio::spawn(async move {
            let mut booked = tokio::time::interval(BOOKED_EVERY);
            loop {
                receipts.take_alarms(&node, id);
                tokio::select! {
                    () = notified.notified() => {}
                    _ = booked.tick() => receipts.book(&node),
                    () = node.drained() => break,
                }
            }
            node.unregister(id);
        });
        Ok(())
    }

    fn take_alarms(&self, node: &Node, id: HookId) {
        while let Some(taken) = node.next_event(id) {
            self.lock().turn(&taken.item, unix_now());
        }
    }

    /// Books what has grown.
    fn book(&self, node: &Node) {
        let mut grown = vec![("cpu_ms".to_owned(), clock::processor_time().as_millis())];
        grown.extend(node.counts.iter().map(|(name, _, value)| (name.to_owned(), value)));
        let delivered = node.look(|_, dispatch| dispatch.delivered());
        grown.push(("lost_verdicts".to_owned(), delivered.lost_verdicts));
        if let Some(edge) = &self.edge {
            grown.extend(of_edge(edge));
        }
        let status = node.look(|plane, _| plane.status());
        let on = status.lmaps.into_iter().filter(|lmap| lmap.alarm).map(|lmap| lmap.service).collect();
        let mut own = self.lock();
        own.go_on(&on, unix_now());
        for (name, value) in grown {
            own.books.grew(&name, value);
        }
    }

    /// The receipt as of now.
    pub(crate) fn reply(&self, node: &Node) -> proto::ReceiptReply {
        self.book(node);
        let mut pages: Vec<Page> = self.lock().books.pages().cloned().collect();
        if let Some(edge) = &self.edge {
            pages.extend(edge.look(|tail, _| tail.books().pages().cloned().collect::<Vec<_>>()).unwrap_or_default());
        }
        let days = Books::together(&pages).into_iter().map(day).collect();
        proto::ReceiptReply { days, since_unix_ns: self.since.0, node: self.node.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Own> {
        // Nothing in here panics; if something did, the state is still the best there is.
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unix_now() -> UnixNanos {
    UnixNanos(clock::unix_now().0)
}

impl Own {
    /// An alarm began or ended, as `event` says.
    fn turn(&mut self, event: &Event, now: UnixNanos) {
        self.books.turn(now);
        let (service, at) = (&event.service, UnixNanos(event.at_unix_ns));
        match event.verdict.episode {
            Episode::Began => {
                self.books.alarm(service.as_str(), true, Nanos::ZERO);
                self.alarms.insert(service.clone(), at);
            }
            Episode::Ended => {
                let on = self.alarms.remove(service).map_or(Nanos::ZERO, |since| at.since(since));
                self.books.alarm(service.as_str(), false, on);
            }
            Episode::Quiet | Episode::On => {}
        }
    }

    /// It is `now`, and these services are in an alarm: of any other the end was lost, or it is gone.
    fn go_on(&mut self, on: &BTreeSet<String>, now: UnixNanos) {
        self.books.turn(now);
        for (service, since) in &mut self.alarms {
            if on.contains(service.as_str()) {
                self.books.alarm(service.as_str(), false, now.since(*since));
                *since = now;
            }
        }
        self.alarms.retain(|service, _| on.contains(service.as_str()));
    }
}

/// What of the OTLP endpoint only grows.
fn of_edge(edge: &Edge) -> Vec<(String, u64)> {
    let mut grown = vec![("lost_kept_spans".to_owned(), edge.counts.lost_spans.get())];
    for signal in Signal::ALL {
        let counts = edge.counts.of(signal);
        grown.push((format!("sent_bytes.{}", signal.name()), counts.sent_bytes.get()));
        let lost = |why: Lost| (format!("lost_requests.{}.{}", signal.name(), why.name()), counts.lost(why).get());
        grown.extend(Lost::ALL.into_iter().map(lost));
    }
    let of_tail = edge.look(|tail, _| {
        let (account, policies) = (tail.account(), tail.policies());
        let dropped =
            Dropped::ALL.into_iter().map(|why| (format!("dropped_spans.{}", why.name()), account.dropped(why).spans));
        let lost = Loss::ALL.into_iter().map(|why| (format!("lost_spans.{}", why.name()), account.lost(why).spans));
        let yielded =
            Policy::ALL.into_iter().map(|policy| (format!("yielded.{}", policy.name()), policies.yielded(policy)));
        let crowded = [("lost_spans.crowded".to_owned(), tail.crowded())];
        dropped.chain(lost).chain(yielded).chain(crowded).collect::<Vec<_>>()
    });
    grown.extend(of_tail.unwrap_or_default());
    grown
}

fn day(page: Page) -> proto::ReceiptDay {
    let grown = page.grown.into_iter().filter(|(_, by)| *by > 0).map(|(name, by)| (name.to_string(), by)).collect();
    let services = page.services.iter().map(|(name, found)| line(name, found)).collect();
    proto::ReceiptDay { day: page.day, services, grown }
}

fn line(name: &str, found: &Line) -> proto::ReceiptLine {
    let kept = found.kept();
    let by_policy = Policy::ALL.into_iter().map(|policy| (policy.name().to_owned(), found.kept[policy as usize].bytes));
    proto::ReceiptLine {
        service: name.to_owned(),
        seen_spans: found.seen.spans,
        seen_bytes: found.seen.bytes,
        kept_spans: kept.spans,
        kept_bytes: kept.bytes,
        kept_bytes_by_policy: by_policy.filter(|(_, bytes)| *bytes > 0).collect(),
        requests: found.requests.all,
        failed_requests: found.requests.failed,
        kept_requests: found.kept_requests.all,
        kept_failed_requests: found.kept_requests.failed,
        alarms: found.alarms,
        alarm_ms: found.alarm_time.as_millis(),
        head_share: head_share(found),
    }
}

#[cfg(test)]
mod tests {
    use wire::control::{State, Verdict};
    use wire::id::{Epoch, LmapId, WorkerId};

    use super::*;

    fn event(episode: Episode, second: u64) -> Event {
        let verdict = Verdict {
            lmap: LmapId(1),
            epoch: Epoch(1),
            score: 12.0,
            gamma: Some(4.0),
            state: State::Armed,
            episode,
            reasons: Vec::new(),
            groups: Vec::new(),
            row: None,
            silent: Vec::new(),
        };
        let service = ServiceName::new("payment").unwrap();
        let (at_unix_ns, reasons, silent) = (second * 1_000_000_000, Vec::new(), Vec::new());
        Event { worker: WorkerId(0), service, at_unix_ns, verdict, reasons, parts: None, silent, suspicion: None }
    }

    #[test]
    fn alarms_are_booked_with_how_long_they_were_on() {
        let mut own = Own { books: Books::new(BookLimits::default()), alarms: BTreeMap::new() };
        let mut say = |episode, second| own.turn(&event(episode, second), UnixNanos::from_secs(second));
        say(Episode::Began, 10);
        say(Episode::On, 11);
        say(Episode::Ended, 13);
        // This one is on over midnight, and its end is lost.
        say(Episode::Began, 86_398);
        own.go_on(&["payment".to_owned()].into(), UnixNanos::from_secs(86_399));
        own.go_on(&["payment".to_owned()].into(), UnixNanos::from_secs(86_401));
        own.go_on(&BTreeSet::new(), UnixNanos::from_secs(90_000));
        own.turn(&event(Episode::Ended, 90_001), UnixNanos::from_secs(90_001));

        let lines: Vec<_> = own.books.pages().map(|page| page.services["payment"]).collect();

        assert_eq!(lines.iter().map(|line| line.alarms).collect::<Vec<_>>(), [2, 0]);
        assert_eq!(lines.iter().map(|line| line.alarm_time.as_millis()).collect::<Vec<_>>(), [4_000, 2_000]);
    }
}
