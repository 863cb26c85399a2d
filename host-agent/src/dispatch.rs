//! Bounded queues for hooks and watchers (decision D8). A slow hook loses its own oldest verdicts, which is counted,
//! and delays no other. Pure: an edge takes items from here and sends them.

mod owners;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use wire::id::{HookId, LmapId};
use wire::name::InstanceName;
use wire::proto::control::Row;
use wire::time::Nanos;

use crate::control_plane::{Event, NamedReason, RowBatch};

/// Which verdicts a hook gets.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// LMAPs to include; empty means all, also future ones.
    pub lmaps: BTreeSet<LmapId>,
    /// Lowest score, as a share of γ; 0 includes all. Before there is a γ, only 0 matches.
    pub min_share: f64,
}

impl Filter {
    /// Whether `event` passes. Beginning and end of an alarm always pass, and so do silent replicas.
    #[must_use]
    pub fn matches_event(&self, event: &Event) -> bool {
        let verdict = &event.verdict;
        if !(self.lmaps.is_empty() || self.lmaps.contains(&verdict.lmap)) {
            return false;
        }
        let turning = matches!(verdict.episode, wire::control::Episode::Began | wire::control::Episode::Ended);
        let high = match verdict.gamma {
            Some(gamma) => verdict.score >= self.min_share * gamma,
            None => self.min_share <= 0.0,
        };
        high || turning || !verdict.silent.is_empty()
    }
}

/// A bounded queue for one receiver; when it is full, the oldest item is dropped.
#[derive(Debug)]
pub struct Queue<T> {
    items: VecDeque<(u64, T)>,
    limit: usize,
    offered: u64,
    /// Dropped since the last item was taken.
    lost: u64,
}

/// One item taken from a queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery<T> {
    /// Counts all items offered, from 1.
    pub sequence: u64,
    /// Items dropped right before this one.
    pub lost: u64,
    /// The item itself.
    pub item: T,
}

impl<T> Queue<T> {
    /// An empty queue for at least one item.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { items: VecDeque::new(), limit: limit.max(1), offered: 0, lost: 0 }
    }

    /// Appends `item`. Returns how many items were dropped for it: 0 or 1.
    pub fn offer(&mut self, item: T) -> u64 {
        let lost = u64::from(self.items.len() >= self.limit && self.items.pop_front().is_some());
        self.lost += lost;
        self.offered += 1;
        self.items.push_back((self.offered, item));
        lost
    }

    /// Takes the oldest item.
    pub fn take(&mut self) -> Option<Delivery<T>> {
        let (sequence, item) = self.items.pop_front()?;
        Some(Delivery { sequence, lost: core::mem::take(&mut self.lost), item })
    }
}

/// Memory of a row.
fn row_bytes(row: &Row) -> usize {
    size_of::<WatchedRow>() + size_of::<f64>() * row.values.len()
}

/// Memory of a verdict, with its texts and its place in a queue.
fn event_bytes(event: &Event) -> usize {
    let Event { verdict, reasons, breakdown, silent, .. } = event;
    let texts = |reason: &NamedReason| size_of::<NamedReason>() + reason.column.len() + reason.unit.len();
    let shares = verdict.row.as_ref().map_or(0, |row| size_of_val(&row.shares[..]));
    let listed =
        size_of_val(&verdict.reasons[..]) + size_of_val(&verdict.groups[..]) + size_of_val(&verdict.silent[..]);
    let operations = breakdown.iter().flat_map(|parts| parts.operations.keys());
    size_of::<(u64, Arc<Event>)>()
        + size_of::<Event>()
        + event.service.as_str().len()
        + shares
        + listed
        + reasons.iter().map(texts).sum::<usize>()
        + operations.map(|name| 48 + name.len()).sum::<usize>()
        + silent.iter().map(|name| size_of::<InstanceName>() + name.as_str().len()).sum::<usize>()
}

/// How long a hook without a stream is kept.
const DETACHED_HOOK_TTL: Nanos = Nanos::from_secs(60);

#[derive(Debug)]
struct Hook {
    filter: Filter,
    queue: Queue<Arc<Event>>,
    /// Taken, but possibly not received; at most as many as the queue's limit.
    unconfirmed: VecDeque<(u64, Arc<Event>)>,
    /// Memory of all these verdicts, as if no other hook had them.
    bytes: usize,
    /// Number of the current stream; every resume increments it.
    stream: u32,
    /// When its stream broke; `None` while a stream is attached.
    detached_at: Option<Nanos>,
}

impl Hook {
    /// Queues `event`, which takes `bytes`. Returns how many verdicts it lost for that.
    fn offer(&mut self, event: &Arc<Event>, bytes: usize, all: &mut usize) -> u64 {
        let mut lost = 0;
        while self.queue.items.len() >= self.queue.limit {
            lost += self.lose(all);
        }
        while self.bytes + bytes > Dispatch::HOOK_BYTES {
            let Some(is_lost) = self.drop_oldest(all) else { break };
            lost += is_lost;
        }
        (self.bytes, *all) = (self.bytes + bytes, *all + bytes);
        self.queue.offer(Arc::clone(event));
        lost
    }

    /// Drops its oldest verdict. Returns how many are lost by that: 0 if it was taken already, and `None` if there is
    /// none.
    fn drop_oldest(&mut self, all: &mut usize) -> Option<u64> {
        if let Some((_, event)) = self.unconfirmed.pop_front() {
            self.release(&event, all);
            return Some(0);
        }
        Some(self.lose(all)).filter(|lost| *lost > 0)
    }

    /// Loses the oldest verdict that was not taken. Returns how many: 0 if there is none.
    fn lose(&mut self, all: &mut usize) -> u64 {
        let Some((_, event)) = self.queue.items.pop_front() else { return 0 };
        self.queue.lost += 1;
        self.release(&event, all);
        1
    }

    fn release(&mut self, event: &Event, all: &mut usize) {
        let bytes = event_bytes(event);
        (self.bytes, *all) = (self.bytes - bytes, *all - bytes);
    }
}

/// Names one stream of a hook. Earlier streams get nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamId(u32);

/// The hook does not exist or has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("hook {0} does not exist or has expired: register a new one")]
pub struct UnknownHook(pub u32);

/// One raw row of an LMAP.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchedRow {
    /// Column titles; the same allocation until they change.
    pub columns: Arc<[String]>,
    /// The row itself.
    pub row: Row,
}

#[derive(Debug)]
struct Watcher {
    lmap: LmapId,
    every: u32,
    seen: u64,
    queue: Queue<WatchedRow>,
    /// Memory of the rows in the queue.
    bytes: usize,
}

impl Watcher {
    /// Queues `row`. Its oldest rows are dropped while it has too many, or all watchers have, whose bytes are `all`.
    /// Returns how many were dropped.
    fn offer(&mut self, row: WatchedRow, all: &mut usize) -> u64 {
        let (bytes, mut lost) = (row_bytes(&row.row), 0);
        while self.bytes + bytes > Dispatch::WATCHER_BYTES || *all + bytes > Dispatch::ALL_WATCHER_BYTES {
            if self.take(all).is_none() {
                break;
            }
            lost += 1;
        }
        if self.queue.items.len() >= self.queue.limit {
            lost += u64::from(self.take(all).is_some());
        }
        self.queue.lost += lost;
        (self.bytes, *all) = (self.bytes + bytes, *all + bytes);
        self.queue.offer(row);
        lost
    }

    /// Takes the oldest row out of the queue.
    fn take(&mut self, all: &mut usize) -> Option<(u64, WatchedRow)> {
        let (sequence, row) = self.queue.items.pop_front()?;
        let bytes = row_bytes(&row.row);
        (self.bytes, *all) = (self.bytes - bytes, *all - bytes);
        Some((sequence, row))
    }
}

/// Counters of delivered and lost items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryCounts {
    /// Verdicts that hooks took.
    pub verdicts: u64,
    /// Verdicts that slow hooks lost.
    pub lost_verdicts: u64,
    /// Rows that watchers took.
    pub rows: u64,
    /// Rows that slow watchers lost.
    pub lost_rows: u64,
}

/// All hooks and watchers, with their queues.
#[derive(Debug)]
pub struct Dispatch {
    hooks: BTreeMap<HookId, Hook>,
    watchers: BTreeMap<HookId, Watcher>,
    /// Memory of the rows that wait for them.
    row_bytes: usize,
    /// Memory of the verdicts of all hooks.
    event_bytes: usize,
    limit: usize,
    last: u32,
    delivered: DeliveryCounts,
    /// Who registered a hook or watcher; without those of the agent itself, perhaps with some that are gone.
    owners: BTreeMap<HookId, String>,
}

/// The limit of hooks and watchers is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit of {0} hooks and watchers is reached: raise operators.hooks")]
pub struct TooManyHooks(pub usize);

impl Dispatch {
    /// Longest queue that a hook may ask for.
    pub const MAX_QUEUE: usize = 8_192;
    /// Most bytes of verdicts of one hook, besides one verdict.
    pub const HOOK_BYTES: usize = 16 << 20;
    /// Most bytes of verdicts of all hooks, besides one verdict of each. The one with most loses its oldest.
    pub const ALL_HOOK_BYTES: usize = 128 << 20;
    /// Most bytes of rows that wait for one watcher.
    pub const WATCHER_BYTES: usize = 1 << 20;
    /// Most bytes of rows that wait for all watchers, besides one row of each.
    pub const ALL_WATCHER_BYTES: usize = 256 << 20;

    /// Allows `limit` hooks and watchers.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let (hooks, watchers, owners) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let delivered = DeliveryCounts::default();
        Self { hooks, watchers, row_bytes: 0, event_bytes: 0, limit, last: 0, delivered, owners }
    }

    /// `registerHook`: queues verdicts that match `filter`, at most `queue` of them.
    ///
    /// # Errors
    ///
    /// [`TooManyHooks`] at the limit.
    pub fn register(&mut self, filter: Filter, queue: usize) -> Result<HookId, TooManyHooks> {
        let id = self.next_id()?;
        let queue = Queue::new(queue.min(Self::MAX_QUEUE));
        let unconfirmed = VecDeque::new();
        self.hooks.insert(id, Hook { filter, queue, unconfirmed, bytes: 0, stream: 0, detached_at: None });
        Ok(id)
    }

    /// The current stream of `hook`.
    #[must_use]
    pub fn stream(&self, hook: HookId) -> Option<StreamId> {
        self.hooks.get(&hook).map(|hook| StreamId(hook.stream))
    }

    /// The stream of `hook` ended at `now`. Does nothing if another stream has taken over. The hook is kept for a
    /// minute.
    pub fn detach(&mut self, hook: HookId, stream: StreamId, now: Nanos) {
        if let Some(hook) = self.hooks.get_mut(&hook).filter(|hook| hook.stream == stream.0) {
            hook.detached_at = Some(now);
        }
    }

    /// Removes hooks without a stream for a minute. O(hooks).
    pub fn expire_detached(&mut self, now: Nanos) -> Vec<HookId> {
        let gone = |hook: &Hook| {
            hook.detached_at.is_some_and(|left| now.since(left).is_some_and(|away| away >= DETACHED_HOOK_TTL))
        };
        let forgotten: Vec<_> = self.hooks.iter().filter(|(_, hook)| gone(hook)).map(|(id, _)| *id).collect();
        for id in &forgotten {
            self.forget_hook(*id);
        }
        forgotten
    }

    fn forget_hook(&mut self, id: HookId) {
        if let Some(hook) = self.hooks.remove(&id) {
            self.event_bytes -= hook.bytes;
        }
    }

    /// A new stream takes over `hook`, starting after the verdict of sequence `after`.
    ///
    /// # Errors
    ///
    /// [`UnknownHook`] if it has expired.
    pub fn resume(&mut self, id: HookId, after: u64) -> Result<StreamId, UnknownHook> {
        let hook = self.hooks.get_mut(&id).ok_or(UnknownHook(id.0))?;
        hook.stream += 1;
        hook.detached_at = None;
        while let Some((sequence, event)) = hook.unconfirmed.pop_back() {
            if sequence > after {
                hook.queue.items.push_front((sequence, event));
            } else {
                hook.release(&event, &mut self.event_bytes);
            }
        }
        // Sequence numbers before the first queued item are gone: they were lost.
        let first = hook.queue.items.front().map_or(hook.queue.offered + 1, |(sequence, _)| *sequence);
        hook.queue.lost = first.saturating_sub(after.saturating_add(1));
        Ok(StreamId(hook.stream))
    }

    /// Lowest share of γ that any hook wants; infinite without hooks.
    #[must_use]
    pub fn least_share(&self) -> f64 {
        self.hooks.values().map(|hook| hook.filter.min_share).fold(f64::INFINITY, f64::min)
    }

    /// Queues every `every`-th row of `lmap` for a new watcher, at most `queue` of them.
    ///
    /// # Errors
    ///
    /// [`TooManyHooks`] at the limit.
    pub fn watch(&mut self, lmap: LmapId, every: u32, queue: usize) -> Result<HookId, TooManyHooks> {
        let id = self.next_id()?;
        let queue = Queue::new(queue.min(Self::MAX_QUEUE));
        self.watchers.insert(id, Watcher { lmap, every: every.max(1), seen: 0, queue, bytes: 0 });
        Ok(id)
    }

    /// Removes a hook or watcher. Returns the LMAP that it watched, whose row subscription may have changed.
    pub fn unregister(&mut self, id: HookId) -> Option<LmapId> {
        self.forget_hook(id);
        let watcher = self.watchers.remove(&id)?;
        self.row_bytes -= watcher.bytes;
        Some(watcher.lmap)
    }

    /// The smallest stride of all watchers of `lmap`; 0 without watchers.
    #[must_use]
    pub fn rows_every(&self, lmap: LmapId) -> u32 {
        self.watchers.values().filter(|watcher| watcher.lmap == lmap).map(|watcher| watcher.every).min().unwrap_or(0)
    }

    /// Queues `event` for all matching hooks. Returns them.
    pub fn dispatch(&mut self, event: Event) -> Vec<HookId> {
        let bytes = event_bytes(&event);
        let event = Arc::new(event);
        let mut woken = Vec::new();
        for (&id, hook) in self.hooks.iter_mut().filter(|(_, hook)| hook.filter.matches_event(&event)) {
            self.delivered.lost_verdicts += hook.offer(&event, bytes, &mut self.event_bytes);
            woken.push(id);
        }
        while self.event_bytes > Self::ALL_HOOK_BYTES
            && let Some(largest) = self.hooks.values_mut().max_by_key(|hook| hook.bytes)
            && largest.queue.items.len() + largest.unconfirmed.len() > 1
            && let Some(lost) = largest.drop_oldest(&mut self.event_bytes)
        {
            self.delivered.lost_verdicts += lost;
        }
        woken
    }

    /// Queues `batch` for all watchers of its LMAP, thinned to each one's stride. Returns them.
    pub fn rows(&mut self, batch: &RowBatch) -> Vec<HookId> {
        let comes_every = u64::from(self.rows_every(batch.lmap).max(1));
        let mut woken = Vec::new();
        for (&id, watcher) in self.watchers.iter_mut().filter(|(_, watcher)| watcher.lmap == batch.lmap) {
            let stride = (u64::from(watcher.every) / comes_every).max(1);
            for row in &batch.rows {
                watcher.seen += 1;
                if watcher.seen.is_multiple_of(stride) {
                    let item = WatchedRow { columns: Arc::clone(&batch.columns), row: row.clone() };
                    self.delivered.lost_rows += watcher.offer(item, &mut self.row_bytes);
                }
            }
            woken.push(id);
        }
        woken
    }

    /// Takes the oldest queued verdict of `hook`.
    pub fn take(&mut self, hook: HookId) -> Option<Delivery<Arc<Event>>> {
        let hook = self.hooks.get_mut(&hook)?;
        let taken = hook.queue.take()?;
        if hook.unconfirmed.len() >= hook.queue.limit
            && let Some((_, event)) = hook.unconfirmed.pop_front()
        {
            hook.release(&event, &mut self.event_bytes);
        }
        hook.unconfirmed.push_back((taken.sequence, Arc::clone(&taken.item)));
        self.delivered.verdicts += 1;
        Some(taken)
    }

    /// As [`Self::take`], on behalf of `stream`.
    ///
    /// # Errors
    ///
    /// [`UnknownHook`] once another stream has taken over.
    pub fn take_for(&mut self, hook: HookId, stream: StreamId) -> Result<Option<Delivery<Arc<Event>>>, UnknownHook> {
        if self.stream(hook) == Some(stream) { Ok(self.take(hook)) } else { Err(UnknownHook(hook.0)) }
    }

    /// Takes the oldest queued row of `watcher`.
    pub fn take_row(&mut self, watcher: HookId) -> Option<Delivery<WatchedRow>> {
        let watcher = self.watchers.get_mut(&watcher)?;
        let (sequence, item) = watcher.take(&mut self.row_bytes)?;
        self.delivered.rows += 1;
        Some(Delivery { sequence, lost: core::mem::take(&mut watcher.queue.lost), item })
    }

    /// Number of watchers, and of hooks with a stream.
    #[must_use]
    pub fn open(&self) -> usize {
        self.hooks.values().filter(|hook| hook.detached_at.is_none()).count() + self.watchers.len()
    }

    /// Number of hooks and watchers, including hooks whose stream broke less than a minute ago.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hooks.len() + self.watchers.len()
    }

    /// Whether there are no hooks and watchers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counters of delivered and lost items.
    #[must_use]
    pub fn delivered(&self) -> DeliveryCounts {
        self.delivered
    }

    fn next_id(&mut self) -> Result<HookId, TooManyHooks> {
        if self.len() >= self.limit {
            // A hook without a stream makes room, the longest detached first.
            let left = self.hooks.iter().filter_map(|(id, hook)| Some((hook.detached_at?, *id)));
            if let Some((_, id)) = left.min() {
                self.forget_hook(id);
            }
        }
        if self.len() >= self.limit {
            return Err(TooManyHooks(self.limit));
        }
        self.last += 1;
        Ok(HookId(self.last))
    }
}

#[cfg(test)]
mod tests;
