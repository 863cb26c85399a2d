//! Bounded queues for hooks and watchers (decision D8). A slow hook loses its own oldest verdicts, which is counted,
//! and delays no other. Pure: an edge takes items from here and sends them.

mod lmap_changes;
mod owners;
mod queue;
mod watchers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use wire::id::{HookId, LmapId};
use wire::name::{InstanceName, ServiceName};
use wire::time::Nanos;

pub use self::lmap_changes::{HookItem, LmapChange};
pub use self::queue::{Delivery, Queue};
use self::watchers::Watcher;
pub use self::watchers::{RowItem, WatchedRow};
use crate::control_plane::{Event, NamedReason, RowBatch};

/// Which verdicts a hook gets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// LMAPs to include; empty means all, also future ones.
    pub lmaps: BTreeSet<LmapId>,
    /// Lowest score, as a share of γ; 0 includes all. Before there is a γ, only 0 matches.
    pub min_share: f64,
    /// Whether verdicts carry the row that was judged.
    pub features: bool,
    /// Whether it goes on with the next LMAP of the same service when one of its own is deleted.
    pub follow: bool,
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

/// Memory of a verdict, with its texts and its place in a queue.
fn event_bytes(event: &Event) -> usize {
    let Event { verdict, reasons, breakdown, silent, concerned, .. } = event;
    let shares = verdict.row.as_ref().map_or(0, |row| size_of_val(&row.shares[..]));
    let features = verdict.features.as_ref().map_or(0, wire::control::Features::bytes);
    let listed =
        size_of_val(&verdict.reasons[..]) + size_of_val(&verdict.groups[..]) + size_of_val(&verdict.silent[..]);
    let operations = breakdown.iter().flat_map(|parts| parts.operations.keys());
    size_of::<(u64, HookItem)>()
        + size_of::<Event>()
        + event.service.as_str().len()
        + shares
        + features
        + listed
        + reasons.iter().map(NamedReason::bytes).sum::<usize>()
        + operations.map(|name| 48 + name.len()).sum::<usize>()
        + concerned.iter().map(|name| size_of::<ServiceName>() + name.as_str().len()).sum::<usize>()
        + silent.iter().map(|name| size_of::<InstanceName>() + name.as_str().len()).sum::<usize>()
}

/// `event` without the row that was judged.
fn without_features(event: &Event) -> Event {
    let mut event = event.clone();
    (event.verdict.features, event.columns) = (None, None);
    event
}

/// How long a hook without a stream is kept.
const DETACHED_HOOK_TTL: Nanos = Nanos::from_secs(60);

#[derive(Debug)]
struct Hook {
    filter: Filter,
    queue: Queue<HookItem>,
    /// Taken, but possibly not received; at most as many as the queue's limit.
    unconfirmed: VecDeque<(u64, HookItem)>,
    /// Memory of all these verdicts, as if no other hook had them.
    bytes: usize,
    /// Those of its LMAPs that were deleted, without a successor so far, and their services.
    deleted: BTreeMap<LmapId, ServiceName>,
    /// Number of the current stream; every resume increments it.
    stream: u32,
    /// When its stream broke; `None` while a stream is attached.
    detached_at: Option<Nanos>,
}

impl Hook {
    /// Queues `item`, which takes `bytes`. Returns how many verdicts it lost for that.
    fn offer(&mut self, item: HookItem, bytes: usize, all: &mut usize) -> u64 {
        let mut lost = 0;
        while self.queue.items.len() >= self.queue.limit {
            lost += self.lose(all);
        }
        while self.bytes + bytes > Dispatch::HOOK_BYTES {
            let Some(is_lost) = self.drop_oldest(all) else { break };
            lost += is_lost;
        }
        (self.bytes, *all) = (self.bytes + bytes, *all + bytes);
        self.queue.offer(item);
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

    fn release(&mut self, item: &HookItem, all: &mut usize) {
        let bytes = item.bytes();
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
        let (unconfirmed, deleted) = (VecDeque::new(), BTreeMap::new());
        self.hooks.insert(id, Hook { filter, queue, unconfirmed, bytes: 0, deleted, stream: 0, detached_at: None });
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
        self.watchers
            .insert(id, Watcher { lmap, every: every.max(1), follow: false, deleted: None, seen: 0, queue, bytes: 0 });
        Ok(id)
    }

    /// Watcher `id` goes on with the next LMAP of the same service when its own is deleted.
    pub fn follow(&mut self, id: HookId) {
        if let Some(watcher) = self.watchers.get_mut(&id) {
            watcher.follow = true;
        }
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
        let with = Arc::new(event);
        // Hooks that do not ask for the row neither get it nor pay for it.
        let without = match with.verdict.features {
            Some(_) => Arc::new(without_features(&with)),
            None => Arc::clone(&with),
        };
        let (long, short) = (event_bytes(&with), event_bytes(&without));
        let mut woken = Vec::new();
        for (&id, hook) in self.hooks.iter_mut().filter(|(_, hook)| hook.filter.matches_event(&with)) {
            let (event, bytes) = if hook.filter.features { (&with, long) } else { (&without, short) };
            let item = HookItem::Verdict(Arc::clone(event));
            self.delivered.lost_verdicts += hook.offer(item, bytes, &mut self.event_bytes);
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
                    let (lmap, columns) = (batch.lmap, Arc::clone(&batch.columns));
                    let item = RowItem::Row(WatchedRow { lmap, columns, row: row.clone() });
                    self.delivered.lost_rows += watcher.offer(item, &mut self.row_bytes);
                }
            }
            woken.push(id);
        }
        woken
    }

    /// Takes the oldest queued verdict of `hook`, one of all LMAPs: what became of LMAPs is left out.
    pub fn take(&mut self, hook: HookId) -> Option<Delivery<Arc<Event>>> {
        while let Some(Delivery { sequence, lost, item }) = self.take_item(hook) {
            if let HookItem::Verdict(item) = item {
                return Some(Delivery { sequence, lost, item });
            }
        }
        None
    }

    /// Takes what is oldest in the queue of `hook`.
    fn take_item(&mut self, hook: HookId) -> Option<Delivery<HookItem>> {
        let hook = self.hooks.get_mut(&hook)?;
        let taken = hook.queue.take()?;
        if hook.unconfirmed.len() >= hook.queue.limit
            && let Some((_, item)) = hook.unconfirmed.pop_front()
        {
            hook.release(&item, &mut self.event_bytes);
        }
        self.delivered.verdicts += u64::from(matches!(taken.item, HookItem::Verdict(_)));
        hook.unconfirmed.push_back((taken.sequence, taken.item.clone()));
        Some(taken)
    }

    /// What is oldest in the queue of `hook`, on behalf of `stream`.
    ///
    /// # Errors
    ///
    /// [`UnknownHook`] once another stream has taken over.
    pub fn take_for(&mut self, hook: HookId, stream: StreamId) -> Result<Option<Delivery<HookItem>>, UnknownHook> {
        if self.stream(hook) == Some(stream) { Ok(self.take_item(hook)) } else { Err(UnknownHook(hook.0)) }
    }

    /// Takes the oldest queued item of `watcher`.
    pub fn take_row(&mut self, watcher: HookId) -> Option<Delivery<RowItem>> {
        let watcher = self.watchers.get_mut(&watcher)?;
        let (sequence, item) = watcher.take(&mut self.row_bytes)?;
        self.delivered.rows += u64::from(matches!(item, RowItem::Row(_)));
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

    /// Bytes of the verdicts of all hooks, and of the rows that wait for all watchers.
    #[must_use]
    pub const fn bytes(&self) -> (usize, usize) {
        (self.event_bytes, self.row_bytes)
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
