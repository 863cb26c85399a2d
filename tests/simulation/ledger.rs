//! Independent ledgers of ticks and messages, computed from the messages between the agents and from the time. The
//! agents' counters must agree with them.

use std::collections::{BTreeMap, VecDeque};

use host_agent::control_plane::{Counters, Event};
use nic_agent::WorkerStatus;
use wire::id::WorkerId;
use wire::name::ServiceName;
use wire::proto::control::host_message::Message as ToWorker;
use wire::proto::control::worker_message::Message as ToHost;
use wire::proto::control::{HostMessage, WorkerMessage};
use wire::time::Nanos;

/// The ticks that are due on a worker: whole multiples of each interval, from the first configuration with that
/// interval.
#[derive(Debug, Default)]
pub struct TickLedger {
    /// The interval of each LMAP, in microseconds.
    lmaps: BTreeMap<u32, u64>,
    /// The next multiple of each interval in use.
    next: BTreeMap<u64, u64>,
    due: u64,
    taken: u64,
}

impl TickLedger {
    /// The worker has accepted `message`.
    pub fn on_host_message(&mut self, now: Nanos, message: &HostMessage) {
        match &message.message {
            Some(ToWorker::SetLmap(lmap)) => {
                let interval = lmap.interval_us;
                self.lmaps.insert(lmap.lmap, interval);
                self.next.entry(interval).or_insert(now.0.div_ceil(1000 * interval));
            }
            Some(ToWorker::RemoveLmap(remove)) => _ = self.lmaps.remove(&remove.lmap),
            _ => {}
        }
        self.end_unused(now);
    }

    /// Ends the ticks of intervals that no LMAP has any more. Those that were skipped before the one that is due are
    /// late.
    fn end_unused(&mut self, now: Nanos) {
        let Self { lmaps, next, due, .. } = self;
        next.retain(|interval, next| {
            let is_used = lmaps.values().any(|used| used == interval);
            if !is_used {
                *due += (now.0 / (1000 * interval)).saturating_sub(*next);
            }
            is_used
        });
    }

    /// The intervals, in microseconds, that have a tick due.
    pub fn due(&self, now: Nanos) -> Vec<u64> {
        self.next
            .iter()
            .filter(|(interval, next)| now.0 / (1000 * **interval) >= **next)
            .map(|(interval, _)| *interval)
            .collect()
    }

    /// The worker was polled at `now`.
    pub fn polled(&mut self, now: Nanos) {
        for (interval, next) in &mut self.next {
            let reached = now.0 / (1000 * interval) + 1;
            if reached > *next {
                self.due += reached - *next;
                self.taken += 1;
                *next = reached;
            }
        }
    }

    /// Compares with the worker's counters and number of LMAPs.
    pub fn check(&mut self, status: &WorkerStatus) {
        let counted = (status.counters.ticks, status.counters.late_ticks);
        assert_eq!(counted, (self.taken, self.due - self.taken), "a tick that is due is taken or late");
        assert_eq!(status.lmaps.iter().sum::<usize>(), self.lmaps.len(), "a worker has exactly its configured LMAPs");
    }

    /// The worker has dropped all LMAPs. It does so at once when it is welcomed, refused, or without a host agent for
    /// too long.
    pub fn clear(&mut self, now: Nanos) {
        self.lmaps.clear();
        self.end_unused(now);
    }
}

/// Verdicts and rows in a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    verdicts: u64,
    rows: u64,
}

impl Count {
    fn of(message: &WorkerMessage) -> Self {
        match &message.message {
            Some(ToHost::Verdicts(verdicts)) => Self { verdicts: verdicts.verdicts.len() as u64, rows: 0 },
            Some(ToHost::Rows(rows)) => Self { verdicts: 0, rows: rows.rows.len() as u64 },
            _ => Self::default(),
        }
    }

    /// Verdicts and rows that the host agent has accepted, or dropped and counted.
    fn counted(counters: &Counters) -> Self {
        let dropped = counters.stale_verdicts + counters.unexpected_verdicts + counters.malformed_verdicts;
        Self { verdicts: counters.verdicts + dropped, rows: counters.rows + counters.stale_rows }
    }

    fn add(&mut self, more: Self) {
        self.verdicts += more.verdicts;
        self.rows += more.rows;
    }
}

/// Identifies a verdict: its worker's wall-clock time, LMAP and epoch.
type VerdictKey = (u64, u32, u64);

/// A configuration as it was sent.
#[derive(Debug)]
struct Configured {
    epoch: u64,
    service: ServiceName,
    /// Place in the order of configurations.
    order: u64,
}

/// All messages from workers to the host agent, from the time they are sent.
#[derive(Debug, Default)]
pub struct MessageLedger {
    sent: Count,
    lost: Count,
    arrived: Count,
    /// Verdicts of each worker that may still be dispatched, in the order in which they were sent.
    order: BTreeMap<WorkerId, VecDeque<VerdictKey>>,
    /// The last configuration of each LMAP on each worker that has it: while it moves, two do.
    configured: BTreeMap<(u32, WorkerId), Configured>,
    configurations: u64,
    /// Verdicts dispatched by this run of the host agent.
    dispatched: u64,
}

impl MessageLedger {
    /// `worker` sends `message`.
    pub fn sent(&mut self, worker: WorkerId, message: &WorkerMessage) {
        self.sent.add(Count::of(message));
        if let Some(ToHost::Verdicts(verdicts)) = &message.message {
            let at = verdicts.at_unix_ns;
            let which = verdicts.verdicts.iter().map(|verdict| (at, verdict.lmap, verdict.epoch));
            self.order.entry(worker).or_default().extend(which);
        }
    }

    /// `message` is lost with its connection.
    pub fn lost(&mut self, message: &WorkerMessage) {
        self.lost.add(Count::of(message));
    }

    /// `message` arrived; the host agent's counters were `before` and are `after`. The host agent drops messages of a
    /// closed connection; they count as lost, like messages in flight.
    pub fn arrived(&mut self, message: &WorkerMessage, before: &Counters, after: &Counters) {
        let count = Count::of(message);
        let mut counted = Count::counted(before);
        if after.unexpected_messages > before.unexpected_messages {
            self.lost.add(count);
        } else {
            self.arrived.add(count);
            counted.add(count);
        }
        assert_eq!(Count::counted(after), counted, "every verdict and row that arrives is accepted or counted");
    }

    /// The host agent sends `message` to `worker`.
    pub fn on_host_message(&mut self, worker: WorkerId, message: &HostMessage) {
        match &message.message {
            Some(ToWorker::SetLmap(lmap)) => {
                let service = ServiceName::new(&lmap.service).expect("the host agent knows names");
                self.configurations += 1;
                let configured = Configured { epoch: message.epoch, service, order: self.configurations };
                self.configured.insert((lmap.lmap, worker), configured);
            }
            Some(ToWorker::RemoveLmap(remove)) => {
                self.configured.remove(&(remove.lmap, worker));
            }
            _ => {}
        }
    }

    /// A verdict goes to the hooks. Its worker must have sent it, in this order, for the service of this LMAP and in
    /// the epoch of its last configuration. After the first one of a worker, no other worker has the LMAP any more that
    /// had it before.
    pub fn dispatched(&mut self, event: &Event) {
        self.dispatched += 1;
        let verdict = &event.verdict;
        let which = (event.at.0, verdict.lmap.0, verdict.epoch.0);
        let order = self.order.entry(event.worker).or_default();
        assert!(core::iter::from_fn(|| order.pop_front()).any(|sent| sent == which), "no worker sent this: {event:?}");
        let configured = self.configured.get(&(verdict.lmap.0, event.worker));
        let &Configured { epoch, ref service, order } = configured.expect("its worker has the LMAP");
        assert_eq!(
            (verdict.epoch.0, &event.service),
            (epoch, service),
            "a verdict belongs to another configuration: {event:?}"
        );
        self.configured.retain(|(lmap, _), of| *lmap != verdict.lmap.0 || of.order >= order);
    }

    /// A run of the host agent ends.
    pub fn host_ends(&mut self, counters: &Counters) {
        assert_eq!(core::mem::take(&mut self.dispatched), counters.verdicts, "every accepted verdict is dispatched");
        self.configured.clear();
        // The next run dispatches no message of this one.
        self.order.clear();
    }

    /// `in_flight` is all that neither arrived nor was lost. Returns how many verdicts and rows were lost.
    pub fn close<'a>(&self, in_flight: impl Iterator<Item = &'a WorkerMessage>) -> u64 {
        let mut found = self.lost;
        found.add(self.arrived);
        in_flight.for_each(|message| found.add(Count::of(message)));
        assert_eq!(found, self.sent, "what was sent arrived, was lost with its connection, or is under way");
        self.lost.verdicts + self.lost.rows
    }
}
