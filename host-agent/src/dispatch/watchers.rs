//! Watchers of raw rows, and what is queued for them.

use std::sync::Arc;

use wire::id::LmapId;
use wire::name::ServiceName;
use wire::proto::control::Row;

use super::Dispatch;
use super::lmap_changes::LmapChange;
use super::queue::Queue;

/// Memory of a row.
pub(super) fn row_bytes(item: &RowItem) -> usize {
    let own = match item {
        RowItem::Row(row) => size_of_val(&row.row.values[..]),
        RowItem::Change(change) => change.service.as_str().len(),
    };
    size_of::<(u64, RowItem)>() + own
}

/// One raw row of an LMAP.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchedRow {
    /// The LMAP that it is of.
    pub lmap: LmapId,
    /// Column titles; the same allocation until they change.
    pub columns: Arc<[String]>,
    /// The row itself.
    pub row: Row,
}

/// What a watcher gets.
#[derive(Clone, Debug, PartialEq)]
pub enum RowItem {
    /// A row of its LMAP.
    Row(WatchedRow),
    /// Its LMAP was deleted, or has a successor.
    Change(LmapChange),
}

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
    /// Queues `row`. Its oldest rows are dropped while it has too many, or all watchers have, whose bytes are `all`.
    /// Returns how many were dropped.
    pub(super) fn offer(&mut self, row: RowItem, all: &mut usize) -> u64 {
        let (bytes, mut lost) = (row_bytes(&row), 0);
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
    pub(super) fn take(&mut self, all: &mut usize) -> Option<(u64, RowItem)> {
        let (sequence, row) = self.queue.items.pop_front()?;
        let bytes = row_bytes(&row);
        (self.bytes, *all) = (self.bytes - bytes, *all - bytes);
        Some((sequence, row))
    }
}
