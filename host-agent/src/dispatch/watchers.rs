//! Watchers of raw rows, and what is queued for them.

use wire::id::LmapId;
use wire::name::ServiceName;

use super::items::RowItem;
use super::queue::Queue;

/// Memory of a row.
pub(super) fn row_bytes(item: &RowItem) -> usize {
    let own = match item {
        RowItem::Row(row) => size_of_val(&row.row.values[..]),
        RowItem::Change(change) => change.service.as_str().len(),
    };
    size_of::<(u64, RowItem)>() + own
}

/// One watcher, and what is queued for it.
#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) lmap: LmapId,
    pub(super) every: u32,
    pub(super) follow: bool,
    /// The service of its LMAP, once that is deleted.
    pub(super) deleted: Option<ServiceName>,
    pub(super) seen: u64,
    pub(super) queue: Queue<RowItem>,
    /// Memory of the rows in the queue.
    pub(super) bytes: usize,
}

impl Watcher {
    /// Most bytes of rows that wait for one watcher.
    pub(super) const BYTES: usize = 1 << 20;
    /// Most bytes of rows that wait for all watchers, besides one row of each.
    pub(super) const ALL_BYTES: usize = 256 << 20;

    /// Queues `row`. Its oldest rows are dropped while it has too many, or all watchers have, whose bytes are `all`.
    /// Returns how many were dropped.
    pub(super) fn offer(&mut self, row: RowItem, all: &mut usize) -> u64 {
        let (bytes, mut lost) = (row_bytes(&row), 0);
        while self.bytes + bytes > Self::BYTES || *all + bytes > Self::ALL_BYTES {
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
    pub(super) fn take(&mut self, all: &mut usize) -> Option<(u64, RowItem)> {
        let (sequence, row) = self.queue.items.pop_front()?;
        let bytes = row_bytes(&row);
        (self.bytes, *all) = (self.bytes - bytes, *all - bytes);
        Some((sequence, row))
    }
}
