//! Hooks: which verdicts each gets, and what is queued for it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use wire::id::LmapId;
use wire::name::ServiceName;
use wire::time::Nanos;

use super::items::HookItem;
use super::queue::Queue;
use crate::control_plane::Event;

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

/// One hook, and what is queued for it.
#[derive(Debug)]
pub(super) struct Hook {
    pub(super) filter: Filter,
    pub(super) queue: Queue<HookItem>,
    /// Taken, but possibly not received; at most as many as the queue's limit.
    pub(super) unconfirmed: VecDeque<(u64, HookItem)>,
    /// Memory of all these verdicts, as if no other hook had them.
    pub(super) bytes: usize,
    /// Those of its LMAPs that were deleted, without a successor so far, and their services.
    pub(super) deleted: BTreeMap<LmapId, ServiceName>,
    /// Number of the current stream; every resume increments it.
    pub(super) stream: u32,
    /// When its stream broke; `None` while a stream is attached.
    pub(super) detached_at: Option<Nanos>,
}

impl Hook {
    /// Most bytes of verdicts of one hook, besides one verdict.
    pub(super) const BYTES: usize = 16 << 20;

    /// Queues `item`, which takes `bytes`. Returns how many verdicts it lost for that.
    pub(super) fn offer(&mut self, item: HookItem, bytes: usize, all: &mut usize) -> u64 {
        let mut lost = 0;
        while self.queue.items.len() >= self.queue.limit {
            lost += self.lose(all);
        }
        while self.bytes + bytes > Self::BYTES {
            let Some(is_lost) = self.drop_oldest(all) else { break };
            lost += is_lost;
        }
        (self.bytes, *all) = (self.bytes + bytes, *all + bytes);
        self.queue.offer(item);
        lost
    }

    /// Drops its oldest verdict. Returns how many are lost by that: 0 if it was taken already, and `None` if there is
    /// none.
    pub(super) fn drop_oldest(&mut self, all: &mut usize) -> Option<u64> {
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

    /// Counts `item` as gone.
    pub(super) fn release(&mut self, item: &HookItem, all: &mut usize) {
        let bytes = item.bytes();
        (self.bytes, *all) = (self.bytes - bytes, *all - bytes);
    }

    /// Whether all of its LMAPs are deleted, and it follows none.
    pub(super) fn is_over(&self) -> bool {
        let filter = &self.filter;
        let listed = !filter.lmaps.is_empty();
        listed && !filter.follow && filter.lmaps.iter().all(|lmap| self.deleted.contains_key(lmap))
    }
}
