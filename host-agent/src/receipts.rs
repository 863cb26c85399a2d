//! What the receipt says beside spans: alarms, bytes sent, losses and processor time, day by day, put together with the books of the OTLP
//! endpoint when somebody asks; and, where there is a folder for them, written so often that a restart goes on with them.

mod store;
mod stored;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hooks::receipt::{BookLimits, Books, Line, Page, head_share};
use hooks::time::UnixNanos;
use hooks::tracing::{Dropped, Gone, Loss, Policy};
use otlp::counts::Lost;
use otlp::{Edge, Signal};
use tokio::time::MissedTickBehavior;
use wire::control::Episode;
use wire::id::HookId;
use wire::name::ServiceName;
use wire::proto::operators as proto;
use wire::time::Nanos;

use self::store::{Found, Store, with_run};
pub use self::stored::{Run, Stored, StoredError};
use crate::clock;
use crate::config::ReceiptConfig;
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
    /// Nothing is known of before.
    since: UnixNanos,
    /// The last ones, this one last.
    runs: Vec<Run>,
    /// Services in an alarm, which is booked until then.
    alarms: BTreeMap<ServiceName, UnixNanos>,
}

/// The books of this agent.
#[derive(Debug)]
pub(crate) struct Receipts {
    own: Mutex<Own>,
    edge: Option<Arc<Edge>>,
    node: String,
    store: Option<Mutex<Writer>>,
    write_every: Duration,
    /// This run ends in order, and nothing comes any more.
    closing: AtomicBool,
}

#[derive(Debug)]
struct Writer {
    store: Store,
    /// It could not be written the last time.
    fails: bool,
}

impl Receipts {
    /// The books of the node that is called so: those that `config` says where to find, if there are any, and those of this run, which `began` then,
    /// before anything could come.
    ///
    /// # Errors
    ///
    /// If there is no folder for them and none can be made.
    pub(crate) fn new(
        config: &ReceiptConfig,
        edge: Option<Arc<Edge>>,
        node: String,
        began: UnixNanos,
    ) -> io::Result<Self> {
        let store = config.dir.as_deref().map(Store::open).transpose()?;
        let own = Own::after(store.as_ref().map(Store::read), began);
        if let (Some(dir), Some(last)) = (&config.dir, own.runs.iter().rev().nth(1)) {
            let (runs, ended) = (own.runs.len(), last.ended);
            tracing::info!(dir = %dir.display(), runs, ended_in_order = ended, "the receipt's books go on");
        }
        let store = store.map(|store| Mutex::new(Writer { store, fails: false }));
        let (own, closing) = (Mutex::new(own), AtomicBool::new(false));
        Ok(Self { own, edge, node, store, write_every: config.write_every(), closing })
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
            let mut written = tokio::time::interval(receipts.write_every);
            written.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                receipts.take_alarms(&node, id);
                tokio::select! {
                    () = notified.notified() => {}
                    _ = booked.tick() => receipts.book(&node),
                    _ = written.tick(), if receipts.store.is_some() => {
                        let (receipts, node) = (Arc::clone(&receipts), Arc::clone(&node));
                        tokio::task::spawn_blocking(move || receipts.write(&node, false));
                    }
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

    /// All that is booked, as it may be written: of everything that happened until now.
    fn stored(&self, node: &Node) -> Stored {
        self.book(node);
        let (mut pages, since, mut runs) = {
            let own = self.lock();
            (own.books.pages().cloned().collect::<Vec<_>>(), own.since, own.runs.clone())
        };
        // Of one moment: whatever waits is nowhere else, and no span that comes later is in it.
        let books = |books: &Books| (books.pages().cloned().collect::<Vec<_>>(), books.waiting());
        let of_tail = self.edge.as_ref().and_then(|edge| edge.look(|tail, moment| (books(tail.books()), moment.day)));
        let ((of_tail, waiting), now) = of_tail.unwrap_or_else(|| (Default::default(), unix_now()));
        pages.extend(of_tail);
        if let Some(run) = runs.last_mut() {
            run.ended = self.closing.load(Ordering::Acquire);
            run.written = now.0.max(run.began);
        }
        let mut pages = Books::together(&pages);
        let days = BookLimits::default().days;
        pages.drain(..pages.len().saturating_sub(days));
        Stored { since, runs, waiting, pages }
    }

    /// Writes the books, if they are to be kept; not, unless it `must` be, while somebody else does.
    fn write(&self, node: &Node, must: bool) {
        let Some(store) = &self.store else { return };
        let mut writer = match store.try_lock() {
            Ok(writer) => writer,
            Err(_) if must => store.lock().unwrap_or_else(PoisonError::into_inner),
            Err(_) => return,
        };
        // With the lock: what is written last is the newest.
        let stored = self.stored(node);
        match writer.store.write(&stored) {
            Ok(()) => {
                writer.fails = false;
                let mut own = self.lock();
                if let (Some(run), Some(written)) = (own.runs.last_mut(), stored.runs.last()) {
                    run.written = written.written;
                }
            }
            Err(error) if !writer.fails => {
                writer.fails = true;
                tracing::warn!(%error, "the receipt's books cannot be written: trying again, and a restart will lack what is not");
            }
            Err(_) => {}
        }
    }

    /// Writes the books for the last time, when nothing comes any more.
    pub(crate) fn close(&self, node: &Node) {
        self.closing.store(true, Ordering::Release);
        self.write(node, true);
    }

    /// The receipt as of now.
    pub(crate) fn reply(&self, node: &Node) -> proto::ReceiptReply {
        let Stored { since, waiting, pages, .. } = self.stored(node);
        let in_memory = self.store.is_none();
        let run = |run: &Run| proto::ReceiptRun {
            began_unix_ns: run.began,
            written_unix_ns: if in_memory { 0 } else { run.written },
            ended_in_order: run.ended,
        };
        proto::ReceiptReply {
            days: pages.into_iter().map(day).collect(),
            since_unix_ns: since.0,
            node: self.node.clone(),
            runs: self.lock().runs.iter().map(run).collect(),
            waiting_spans: waiting.into_iter().map(|(name, tally)| (name.to_string(), tally.spans)).collect(),
            in_memory,
        }
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
    /// Of a run that begins `now` with what its predecessor left. What waited then is lost with it.
    fn after(found: Option<Found>, now: UnixNanos) -> Self {
        let Found { stored: Stored { since, runs, waiting, pages }, set_aside } = found.unwrap_or_default();
        let mut books = Books::new(BookLimits::default());
        let before = runs.last().copied();
        let killed = before.is_some_and(|run| !run.ended);
        books.resume(pages, &waiting, if killed { Loss::Killed } else { Loss::Ended });
        books.turn(now);
        for (name, counts) in [("starts", true), ("kills", killed), ("books_set_aside", set_aside)] {
            books.grew(name, u64::from(counts));
        }
        let since = if before.is_some() { since } else { now };
        Self { books, since, runs: with_run(runs, now), alarms: BTreeMap::new() }
    }

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
        dropped.chain(lost).chain(yielded).collect::<Vec<_>>()
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
    let gone = |why: Gone, name: &str| (name.to_owned(), found.gone[why.place()].spans);
    let dropped = Dropped::ALL.into_iter().map(|why| gone(Gone::Dropped(why), why.name()));
    let lost = Loss::ALL.into_iter().map(|why| gone(Gone::Lost(why), why.name()));
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
        dropped_spans: dropped.filter(|(_, spans)| *spans > 0).collect(),
        lost_spans: lost.filter(|(_, spans)| *spans > 0).collect(),
    }
}

#[cfg(test)]
mod tests {
    use hooks::tracing::Tally;
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
    fn a_restart_is_counted_and_what_waited_is_booked_as_lost_by_how_the_run_ended() {
        let waiting: BTreeMap<Arc<str>, Tally> = [("payment".into(), Tally { spans: 3, bytes: 30 })].into();
        for (ended, why) in [(false, Loss::Killed), (true, Loss::Ended)] {
            let line = Line { seen: Tally { spans: 3, bytes: 30 }, ..Line::default() };
            let page = Page { day: 0, services: [("payment".into(), line)].into(), ..Page::default() };
            let run = Run { began: 5, written: 9, ended };
            let stored = Stored { since: UnixNanos(5), runs: vec![run], waiting: waiting.clone(), pages: vec![page] };

            let own = Own::after(Some(Found { stored, set_aside: false }), UnixNanos::from_secs(86_400));

            let pages: Vec<_> = own.books.pages().collect();
            assert_eq!(pages[0].services["payment"].gone[Gone::Lost(why).place()], Tally { spans: 3, bytes: 30 });
            assert_eq!((pages[1].grown["starts"], pages[1].grown["kills"]), (1, u64::from(!ended)));
            assert_eq!((own.since.0, own.runs[0], own.runs.len()), (5, run, 2));
        }
        let fresh = Own::after(Some(Found { stored: Stored::default(), set_aside: true }), UnixNanos(7));
        let page = fresh.books.pages().next().unwrap();
        assert_eq!(
            (fresh.since.0, page.grown["starts"], page.grown["kills"], page.grown["books_set_aside"]),
            (7, 1, 0, 1)
        );
    }

    #[test]
    fn alarms_are_booked_with_how_long_they_were_on() {
        let mut own = Own::after(None, UnixNanos::from_secs(1));
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
