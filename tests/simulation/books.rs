//! Books that are kept outside the agents, from what passes between them and from the time: what the agents count must agree with them.

use std::collections::{BTreeMap, VecDeque};

use host_agent::control_plane::{Counters, Event};
use nic_agent::WorkerStatus;
use wire::id::WorkerId;
use wire::name::ServiceName;
use wire::proto::control::host_message::Message as ToWorker;
use wire::proto::control::worker_message::Message as ToHost;
use wire::proto::control::{HostMessage, WorkerMessage};
use wire::time::Nanos;

/// The ticks that fall due on a worker: whole multiples of each interval, from the configuration that brought it on.
#[derive(Debug, Default)]
pub struct Ticks {
    /// The interval of each LMAP, in microseconds.
    lmaps: BTreeMap<u32, u64>,
    /// Of each interval in use, which multiple comes next.
    next: BTreeMap<u64, u64>,
    due: u64,
    taken: u64,
}

impl Ticks {
    /// The worker has taken `message`.
    pub fn told(&mut self, now: Nanos, message: &HostMessage) {
        match &message.message {
            Some(ToWorker::SetLmap(lmap)) => {
                let interval = lmap.interval_us;
                self.lmaps.insert(lmap.lmap, interval);
                self.next.entry(interval).or_insert(now.0.div_ceil(1000 * interval));
            }
            Some(ToWorker::RemoveLmap(remove)) => _ = self.lmaps.remove(&remove.lmap),
            _ => {}
        }
        self.next.retain(|interval, _| self.lmaps.values().any(|used| used == interval));
    }

    /// The intervals, in microseconds, of which a tick has fallen due.
    pub fn due(&self, now: Nanos) -> Vec<u64> {
        self.next
            .iter()
            .filter(|(interval, next)| now.0 / (1000 * **interval) >= **next)
            .map(|(interval, _)| *interval)
            .collect()
    }

    /// The worker looked at the time.
    pub fn looked(&mut self, now: Nanos) {
        for (interval, next) in &mut self.next {
            let reached = now.0 / (1000 * interval) + 1;
            if reached > *next {
                self.due += reached - *next;
                self.taken += 1;
                *next = reached;
            }
        }
    }

    /// Compares with what the worker has and counts. It lets everything go at once when it is welcomed, refused or alone for too long.
    pub fn check(&mut self, status: &WorkerStatus) {
        let counted = (status.counters.ticks, status.counters.late_ticks);
        assert_eq!(counted, (self.taken, self.due - self.taken), "a tick that fell due is taken or late");
        assert_eq!(status.lmaps.iter().sum::<usize>(), self.lmaps.len(), "a worker watches what it was told");
    }

    /// The worker has let everything go.
    pub fn forget(&mut self) {
        self.lmaps.clear();
        self.next.clear();
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

    /// What the host agent has taken, or has dropped and counted.
    fn counted(counters: &Counters) -> Self {
        let dropped = counters.stale_verdicts + counters.foreign_verdicts + counters.malformed_verdicts;
        Self { verdicts: counters.verdicts + dropped, rows: counters.rows + counters.stale_rows }
    }

    fn add(&mut self, more: Self) {
        self.verdicts += more.verdicts;
        self.rows += more.rows;
    }
}

/// Which verdict: its worker's time of day, LMAP and epoch.
type Which = (u64, u32, u64);

/// What workers say to the host agent, from the moment it is sent.
#[derive(Debug, Default)]
pub struct Said {
    sent: Count,
    lost: Count,
    arrived: Count,
    /// Verdicts of each worker that may still be dispatched, in the order in which they were sent.
    order: BTreeMap<WorkerId, VecDeque<Which>>,
    /// The configuration of each LMAP that was sent last.
    configured: BTreeMap<u32, (WorkerId, u64, ServiceName)>,
    /// By this run of the host agent.
    dispatched: u64,
}

impl Said {
    /// `worker` sends `message`.
    pub fn sends(&mut self, worker: WorkerId, message: &WorkerMessage) {
        self.sent.add(Count::of(message));
        if let Some(ToHost::Verdicts(verdicts)) = &message.message {
            let at = verdicts.at_unix_ns;
            let which = verdicts.verdicts.iter().map(|verdict| (at, verdict.lmap, verdict.epoch));
            self.order.entry(worker).or_default().extend(which);
        }
    }

    /// `message` is lost with its connection.
    pub fn loses(&mut self, message: &WorkerMessage) {
        self.lost.add(Count::of(message));
    }

    /// `message` arrived, and the host agent's counters were `before` and are `after`. What comes over a connection that it has closed it
    /// drops: that is lost like what was under way.
    pub fn arrives(&mut self, message: &WorkerMessage, before: &Counters, after: &Counters) {
        let count = Count::of(message);
        let mut counted = Count::counted(before);
        if after.foreign_messages > before.foreign_messages {
            self.lost.add(count);
        } else {
            self.arrived.add(count);
            counted.add(count);
        }
        assert_eq!(Count::counted(after), counted, "every verdict and row that arrives is taken or counted");
    }

    /// The host agent tells `worker` something.
    pub fn told(&mut self, worker: WorkerId, message: &HostMessage) {
        match &message.message {
            Some(ToWorker::SetLmap(lmap)) => {
                let service = ServiceName::new(&lmap.service).expect("the host agent knows names");
                self.configured.insert(lmap.lmap, (worker, message.epoch, service));
            }
            Some(ToWorker::RemoveLmap(remove)) => {
                self.configured.retain(|lmap, (whose, ..)| *lmap != remove.lmap || *whose != worker);
            }
            _ => {}
        }
    }

    /// A verdict goes to the hooks: one that its worker has sent, after those that went before, about the service whose LMAP this is, in
    /// the epoch of its last configuration. With or without reasons.
    pub fn dispatched(&mut self, event: &Event) {
        self.dispatched += 1;
        let verdict = &event.verdict;
        let which = (event.at_unix_ns, verdict.lmap.0, verdict.epoch.0);
        let order = self.order.entry(event.worker).or_default();
        assert!(core::iter::from_fn(|| order.pop_front()).any(|sent| sent == which), "nobody sent this: {event:?}");
        let configured = self.configured.get(&verdict.lmap.0);
        let (worker, epoch, service) = configured.expect("a verdict is about an LMAP that there is");
        assert_eq!(
            (event.worker, verdict.epoch.0, &event.service),
            (*worker, *epoch, service),
            "a verdict is about another configuration: {event:?}"
        );
    }

    /// A run of the host agent ends.
    pub fn host_ends(&mut self, counters: &Counters) {
        assert_eq!(
            core::mem::take(&mut self.dispatched),
            counters.verdicts,
            "every verdict that is taken is dispatched"
        );
        self.configured.clear();
        // Nothing that was said to this run is dispatched by the next.
        self.order.clear();
    }

    /// `under_way` is all that neither arrived nor was lost. Returns how many verdicts and rows were lost.
    pub fn close<'a>(&self, under_way: impl Iterator<Item = &'a WorkerMessage>) -> u64 {
        let mut found = self.lost;
        found.add(self.arrived);
        under_way.for_each(|message| found.add(Count::of(message)));
        assert_eq!(found, self.sent, "what was sent arrived, was lost with its connection, or is under way");
        self.lost.verdicts + self.lost.rows
    }
}
