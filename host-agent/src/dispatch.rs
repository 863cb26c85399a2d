//! Bounded queues for hooks and watchers (decision D8). A slow hook loses its own oldest verdicts, which is counted,
//! and delays no other. Pure: an edge takes items from here and sends them.

mod hook;
mod items;
mod lmap_changes;
mod owners;
mod queue;
mod watchers;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use wire::id::{HookId, LmapId};
use wire::time::Nanos;

pub use self::hook::Filter;
use self::hook::Hook;
use self::items::event_bytes;
pub use self::items::{HookItem, LmapChange, RowItem, WatchedRow};
pub use self::queue::{Delivery, Queue};
use self::watchers::Watcher;
use crate::control_plane::{Event, RowBatch};

/// `event` without the row that was judged.
fn without_features(event: &Event) -> Event {
    let mut event = event.clone();
    (event.verdict.features, event.columns) = (None, None);
    event
}

/// How long a hook without a stream is kept.
const DETACHED_HOOK_TTL: Nanos = Nanos::from_secs(60);

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
    pub const HOOK_BYTES: usize = Hook::BYTES;
    /// Most bytes of verdicts of all hooks, besides one verdict of each. The one with most loses its oldest.
    pub const ALL_HOOK_BYTES: usize = 128 << 20;
    /// Most bytes of rows that wait for one watcher.
    pub const WATCHER_BYTES: usize = Watcher::BYTES;
    /// Most bytes of rows that wait for all watchers, besides one row of each.
    pub const ALL_WATCHER_BYTES: usize = Watcher::ALL_BYTES;

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
        self.add_hook(id, filter, queue);
        Ok(id)
    }

    /// As [`register`](Self::register), for the agent itself: a place is made beside those of others, until
    /// [`unregister_own`](Self::unregister_own).
    pub fn register_own(&mut self, filter: Filter, queue: usize) -> HookId {
        self.limit += 1;
        let id = self.new_id();
        self.add_hook(id, filter, queue);
        id
    }

    /// Removes a hook of the agent itself, with its place.
    pub fn unregister_own(&mut self, id: HookId) {
        self.limit -= usize::from(self.hooks.contains_key(&id));
        self.forget_hook(id);
    }

    fn add_hook(&mut self, id: HookId, filter: Filter, queue: usize) {
        let queue = Queue::new(queue.min(Self::MAX_QUEUE));
        let (unconfirmed, deleted) = (VecDeque::new(), BTreeMap::new());
        self.hooks.insert(id, Hook { filter, queue, unconfirmed, bytes: 0, deleted, stream: 0, detached_at: None });
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
        Ok(self.new_id())
    }

    const fn new_id(&mut self) -> HookId {
        self.last += 1;
        HookId(self.last)
    }
}

#[cfg(test)]
mod tests;
