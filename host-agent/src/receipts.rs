//! The receipt's ledger: alarms, bytes sent, losses and CPU time per day, merged with the span ledger of the OTLP
//! endpoint on request. If a directory is configured, the ledger is written regularly and survives restarts.

mod file_format;
mod store;

pub(crate) use self::file_format::MAX_BYTES;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_runtime::ticks::ticks;
use hooks::receipt::{DailyLedger, LedgerLimits, Line, LogLine, Page, head_share};
use hooks::tracing::{DiscardReason, DropReason, LogPolicy, LossReason, Policy, Tally};
use otlp::counts::UpstreamLoss;
use otlp::{Edge, Signal};
use tokio::runtime::Handle;
use wire::control::Episode;
use wire::id::HookId;
use wire::name::ServiceName;
use wire::proto::operators as proto;
use wire::time::{Nanos, UnixNanos};

pub use self::file_format::{Run, StoredReceipt, StoredReceiptError};
use self::store::{LoadedReceipt, Store, with_run};
use crate::clock::{process_cpu, unix_now};
use crate::config::ReceiptConfig;
use crate::control_plane::Event;
use crate::dispatch::{Filter, TooManyHooks};
use crate::node::Node;

/// Verdicts queued until they are recorded.
const VERDICTS: usize = 1_024;
/// How often counters are recorded, so that each day gets its share.
const RECORD_INTERVAL: Duration = Duration::from_mins(1);

/// What this agent records besides spans.
#[derive(Debug)]
struct ReceiptLedger {
    ledger: DailyLedger,
    /// Begin of the record.
    since: UnixNanos,
    /// The latest runs, this one last.
    runs: Vec<Run>,
    /// Services in alarm, recorded up to this time.
    alarms: BTreeMap<ServiceName, UnixNanos>,
}

/// The ledger of this agent.
#[derive(Debug)]
pub(crate) struct Receipts {
    own: Mutex<ReceiptLedger>,
    edge: Option<Arc<Edge>>,
    node: String,
    store: Option<Mutex<Store>>,
    write_every: Duration,
    /// The run ends in order; nothing follows.
    closing: AtomicBool,
    /// Why the last write failed; `None` if it did not.
    failure: Mutex<Option<String>>,
}

impl Receipts {
    /// The ledger of `node`: the one stored by an earlier run, if `config` names a directory, and that of this run,
    /// which started at `began`.
    ///
    /// # Errors
    ///
    /// The directory cannot be created.
    pub(crate) fn new(
        config: &ReceiptConfig,
        edge: Option<Arc<Edge>>,
        node: String,
        began: UnixNanos,
    ) -> io::Result<Self> {
        let store = config.dir.as_deref().map(Store::open).transpose()?;
        let own = ReceiptLedger::after(store.as_ref().map(Store::read), began);
        if let (Some(dir), Some(last)) = (&config.dir, own.runs.iter().rev().nth(1)) {
            let (runs, ended) = (own.runs.len(), last.ended);
            tracing::info!(dir = %dir.display(), runs, ended_in_order = ended, "continuing the receipt's ledger");
        }
        let (own, store, closing) = (Mutex::new(own), store.map(Mutex::new), AtomicBool::new(false));
        let (failure, write_every) = (Mutex::new(None), config.write_every());
        Ok(Self { own, edge, node, store, write_every, closing, failure })
    }

    /// Records alarms and counters of `node` until it drains, in the runtime of `threads`: it waits for the OTLP
    /// endpoint's locks.
    ///
    /// # Errors
    ///
    /// [`TooManyHooks`] at the limit.
    pub(crate) fn start(self: &Arc<Self>, node: &Arc<Node>, threads: &Handle) -> Result<(), TooManyHooks> {
        // Begins and ends of alarms only: no score is infinite.
        let turns = Filter { lmaps: [].into(), min_share: f64::INFINITY, ..Filter::default() };
        let (id, notified) = node.register_hook(turns, VERDICTS)?;
        let (receipts, node) = (Arc::clone(self), Arc::clone(node));
        threads.spawn(async move {
            let (mut recorded, mut written) = (ticks(RECORD_INTERVAL), ticks(receipts.write_every));
            loop {
                receipts.take_alarms(&node, id);
                tokio::select! {
                    () = notified.notified() => {}
                    _ = recorded.tick() => receipts.record(&node),
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
            self.lock().record_alarm(&taken.item, unix_now());
        }
    }

    /// Records what counters have grown by.
    fn record(&self, node: &Node) {
        let mut counters = vec![("cpu_ms".to_owned(), process_cpu().as_millis())];
        counters.extend(node.counts.iter().map(|(name, _, value)| (name.to_owned(), value)));
        let delivered = node.inspect(|_, dispatch| dispatch.delivered());
        counters.push(("lost_verdicts".to_owned(), delivered.lost_verdicts));
        if let Some(edge) = &self.edge {
            counters.extend(of_edge(edge));
        }
        let status = node.inspect(|plane, _| plane.status());
        let on = status.lmaps.into_iter().filter(|lmap| lmap.alarm).map(|lmap| lmap.service).collect();
        let mut own = self.lock();
        own.continue_alarms(&on, unix_now());
        for (name, value) in counters {
            own.ledger.grew(&name, value);
        }
    }

    /// The ledger up to now, to be stored.
    fn stored(&self, node: &Node) -> StoredReceipt {
        self.record(node);
        let (mut pages, since, mut runs) = {
            let own = self.lock();
            (own.ledger.pages().cloned().collect::<Vec<_>>(), own.since, own.runs.clone())
        };
        // Read at one instant: each buffered span is counted once, and no later span is included.
        let ledger = |ledger: &DailyLedger| {
            (ledger.pages().cloned().collect::<Vec<_>>(), ledger.waiting(), ledger.waiting_logs())
        };
        let of_tail =
            self.edge.as_ref().and_then(|edge| edge.with_tail(|tail, moment| (ledger(tail.ledger()), moment.wall)));
        let ((of_tail, waiting, waiting_logs), now) = of_tail.unwrap_or_else(|| (Default::default(), unix_now()));
        pages.extend(of_tail);
        if let Some(run) = runs.last_mut() {
            run.ended = self.closing.load(Ordering::Acquire);
            run.written = now.0.max(run.began);
        }
        let mut pages = DailyLedger::merge(&pages);
        let days = LedgerLimits::default().days;
        pages.drain(..pages.len().saturating_sub(days));
        StoredReceipt { since, runs, waiting, waiting_logs, pages }
    }

    /// Writes the ledger, if it is stored. Skipped while another write is in progress, unless `must`.
    fn write(&self, node: &Node, must: bool) {
        let Some(store) = &self.store else { return };
        let store = match store.try_lock() {
            Ok(store) => store,
            Err(_) if must => store.lock().unwrap_or_else(PoisonError::into_inner),
            Err(_) => return,
        };
        // Under the lock, so that the last write is the newest.
        let stored = self.stored(node);
        match store.write(&stored) {
            Ok(()) => {
                self.lock_failure().take();
                let mut own = self.lock();
                if let (Some(run), Some(written)) = (own.runs.last_mut(), stored.runs.last()) {
                    run.written = written.written;
                }
            }
            Err(error) => {
                node.counts.failed_receipt_writes.one_more();
                if self.lock_failure().replace(error.to_string()).is_none() {
                    tracing::warn!(%error, "cannot write the receipt's ledger; retrying. A restart loses what is not written");
                }
            }
        }
    }

    /// What is wrong now, in words: the ledger cannot be written.
    pub(crate) fn problem(&self) -> Option<String> {
        let error = self.lock_failure().clone()?;
        Some(format!("receipt: the ledger cannot be written, and a restart loses what is not written: {error}"))
    }

    fn lock_failure(&self) -> MutexGuard<'_, Option<String>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the ledger for the last time.
    pub(crate) fn close(&self, node: &Node) {
        self.closing.store(true, Ordering::Release);
        self.write(node, true);
    }

    /// The receipt as of now.
    pub(crate) fn reply(&self, node: &Node) -> proto::ReceiptReply {
        let StoredReceipt { since, waiting, waiting_logs, pages, .. } = self.stored(node);
        let items = |waiting: BTreeMap<Arc<str>, Tally>| {
            waiting.into_iter().map(|(name, tally)| (name.to_string(), tally.spans)).collect()
        };
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
            waiting_spans: items(waiting),
            in_memory,
            waiting_logs: items(waiting_logs),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ReceiptLedger> {
        // No code under this lock panics. If one did, the state would still be usable.
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReceiptLedger {
    /// The ledger of a run that starts `now`, continuing `found`. Spans buffered by the earlier run are lost.
    fn after(found: Option<LoadedReceipt>, now: UnixNanos) -> Self {
        let LoadedReceipt { stored: StoredReceipt { since, runs, waiting, waiting_logs, pages }, set_aside } =
            found.unwrap_or_default();
        let mut ledger = DailyLedger::new(LedgerLimits::default());
        let before = runs.last().copied();
        let killed = before.is_some_and(|run| !run.ended);
        let why = if killed { LossReason::Killed } else { LossReason::Ended };
        ledger.resume(pages, &waiting, why);
        ledger.resume_logs(&waiting_logs, why);
        ledger.turn(now);
        for (name, counts) in [("starts", true), ("kills", killed), ("ledgers_set_aside", set_aside)] {
            ledger.grew(name, u64::from(counts));
        }
        let since = if before.is_some() { since } else { now };
        Self { ledger, since, runs: with_run(runs, now), alarms: BTreeMap::new() }
    }

    /// An alarm began or ended.
    fn record_alarm(&mut self, event: &Event, now: UnixNanos) {
        self.ledger.turn(now);
        let (service, at) = (&event.service, event.at);
        match event.verdict.episode {
            Episode::Began => {
                // Another one may have been on.
                let on = self.alarms.insert(service.clone(), at).map_or(Nanos::ZERO, |since| at.since(since));
                self.ledger.alarm(service.as_str(), true, on);
            }
            Episode::Ended => {
                let on = self.alarms.remove(service).map_or(Nanos::ZERO, |since| at.since(since));
                self.ledger.alarm(service.as_str(), false, on);
            }
            Episode::Quiet | Episode::On => {}
        }
    }

    /// Services `on` are in alarm at `now`. For any other service the end was lost, or the service is gone.
    fn continue_alarms(&mut self, on: &BTreeSet<String>, now: UnixNanos) {
        self.ledger.turn(now);
        for (service, since) in &mut self.alarms {
            if on.contains(service.as_str()) {
                self.ledger.alarm(service.as_str(), false, now.since(*since));
                *since = now;
            }
        }
        self.alarms.retain(|service, _| on.contains(service.as_str()));
    }
}

/// Counters of the OTLP endpoint.
fn of_edge(edge: &Edge) -> Vec<(String, u64)> {
    let mut counters = vec![
        ("lost_kept_spans".to_owned(), edge.counts.lost_spans.get()),
        ("lost_kept_logs".to_owned(), edge.counts.lost_logs.get()),
    ];
    for signal in Signal::ALL {
        let counts = edge.counts.of(signal);
        counters.push((format!("sent_bytes.{}", signal.name()), counts.sent_bytes.get()));
        counters.push((format!("unforwarded_items.{}", signal.name()), counts.unforwarded.get()));
        let lost =
            |why: UpstreamLoss| (format!("lost_requests.{}.{}", signal.name(), why.name()), counts.lost(why).get());
        counters.extend(UpstreamLoss::ALL.into_iter().map(lost));
    }
    let of_tail = edge.with_tail(|tail, _| {
        let (account, policies) = (tail.account(), tail.policies());
        let dropped = DropReason::ALL
            .into_iter()
            .map(|why| (format!("dropped_spans.{}", why.name()), account.dropped(why).spans));
        let lost =
            LossReason::ALL.into_iter().map(|why| (format!("lost_spans.{}", why.name()), account.lost(why).spans));
        let over_budget =
            Policy::ALL.into_iter().map(|policy| (format!("over_budget.{}", policy.name()), policies.yielded(policy)));
        dropped.chain(lost).chain(over_budget).collect::<Vec<_>>()
    });
    counters.extend(of_tail.unwrap_or_default());
    counters
}

fn day(page: Page) -> proto::ReceiptDay {
    let counters = page.grown.into_iter().filter(|(_, by)| *by > 0).map(|(name, by)| (name.to_string(), by)).collect();
    let services = page.services.iter().map(|(name, found)| line(name, found)).collect();
    proto::ReceiptDay { day: page.day, services, grown: counters }
}

fn line(name: &str, found: &Line) -> proto::ReceiptLine {
    let kept = found.kept();
    let (dropped_spans, lost_spans) = gone(&found.gone);
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
        dropped_spans,
        lost_spans,
        logs: (found.logs != LogLine::default()).then(|| logs(&found.logs)),
    }
}

fn logs(found: &LogLine) -> proto::ReceiptLogs {
    let kept = found.kept();
    let by_policy = LogPolicy::ALL.into_iter();
    let by_policy = by_policy.map(|policy| (policy.name().to_owned(), found.kept[policy as usize].bytes));
    let (dropped, lost) = gone(&found.gone);
    proto::ReceiptLogs {
        seen: found.seen.spans,
        seen_bytes: found.seen.bytes,
        kept: kept.spans,
        kept_bytes: kept.bytes,
        kept_bytes_by_policy: by_policy.filter(|(_, bytes)| *bytes > 0).collect(),
        dropped,
        lost,
    }
}

/// Items that were dropped and lost, by reason.
fn gone(found: &[Tally; DiscardReason::COUNT]) -> (HashMap<String, u64>, HashMap<String, u64>) {
    let of = |why: DiscardReason, name: &str| (name.to_owned(), found[why.place()].spans);
    let dropped = DropReason::ALL.into_iter().map(|why| of(DiscardReason::Dropped(why), why.name()));
    let lost = LossReason::ALL.into_iter().map(|why| of(DiscardReason::Lost(why), why.name()));
    (dropped.filter(|(_, items)| *items > 0).collect(), lost.filter(|(_, items)| *items > 0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control_plane::testing;

    fn event(episode: Episode, second: u64) -> Event {
        testing::event("payment", episode, UnixNanos::from_secs(second))
    }

    #[test]
    fn a_restart_is_counted_and_buffered_spans_are_recorded_as_lost() {
        let waiting: BTreeMap<Arc<str>, Tally> = [("payment".into(), Tally { spans: 3, bytes: 30 })].into();
        for (ended, why) in [(false, LossReason::Killed), (true, LossReason::Ended)] {
            let line = Line { seen: Tally { spans: 3, bytes: 30 }, ..Line::default() };
            let page = Page { day: 0, services: [("payment".into(), line)].into(), ..Page::default() };
            let run = Run { began: 5, written: 9, ended };
            let stored = StoredReceipt {
                since: UnixNanos(5),
                runs: vec![run],
                waiting: waiting.clone(),
                waiting_logs: waiting.clone(),
                pages: vec![page],
            };

            let own =
                ReceiptLedger::after(Some(LoadedReceipt { stored, set_aside: false }), UnixNanos::from_secs(86_400));

            let pages: Vec<_> = own.ledger.pages().collect();
            assert_eq!(
                pages[0].services["payment"].gone[DiscardReason::Lost(why).place()],
                Tally { spans: 3, bytes: 30 }
            );
            assert_eq!((pages[1].grown["starts"], pages[1].grown["kills"]), (1, u64::from(!ended)));
            assert_eq!((own.since.0, own.runs[0], own.runs.len()), (5, run, 2));
        }
        let fresh = ReceiptLedger::after(
            Some(LoadedReceipt { stored: StoredReceipt::default(), set_aside: true }),
            UnixNanos(7),
        );
        let page = fresh.ledger.pages().next().unwrap();
        assert_eq!(
            (fresh.since.0, page.grown["starts"], page.grown["kills"], page.grown["ledgers_set_aside"]),
            (7, 1, 0, 1)
        );
    }

    #[test]
    fn alarms_are_recorded_with_their_duration() {
        let mut own = ReceiptLedger::after(None, UnixNanos::from_secs(1));
        let mut say = |episode, second| own.record_alarm(&event(episode, second), UnixNanos::from_secs(second));
        say(Episode::Began, 10);
        say(Episode::On, 11);
        say(Episode::Ended, 13);
        // This alarm lasts over midnight, and its end is lost.
        say(Episode::Began, 86_398);
        own.continue_alarms(&["payment".to_owned()].into(), UnixNanos::from_secs(86_399));
        own.continue_alarms(&["payment".to_owned()].into(), UnixNanos::from_secs(86_401));
        own.continue_alarms(&BTreeSet::new(), UnixNanos::from_secs(90_000));
        own.record_alarm(&event(Episode::Ended, 90_001), UnixNanos::from_secs(90_001));

        let lines: Vec<_> = own.ledger.pages().map(|page| page.services["payment"]).collect();

        assert_eq!(lines.iter().map(|line| line.alarms).collect::<Vec<_>>(), [2, 0]);
        assert_eq!(lines.iter().map(|line| line.alarm_time.as_millis()).collect::<Vec<_>>(), [4_000, 2_000]);
    }

    #[test]
    fn an_alarm_that_begins_while_one_is_on_is_counted_and_no_time_is_lost() {
        let mut own = ReceiptLedger::after(None, UnixNanos::from_secs(1));
        let mut say = |episode, second| own.record_alarm(&event(episode, second), UnixNanos::from_secs(second));
        say(Episode::Began, 10);
        say(Episode::Began, 14);
        say(Episode::Ended, 17);

        let lines: Vec<_> = own.ledger.pages().map(|page| page.services["payment"]).collect();

        assert_eq!((lines[0].alarms, lines[0].alarm_time.as_millis()), (2, 7_000));
    }
}
