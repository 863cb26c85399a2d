//! A bounded queue for one receiver, which loses its oldest items.

use std::collections::VecDeque;

/// A bounded queue for one receiver; when it is full, the oldest item is dropped.
#[derive(Debug)]
pub struct Queue<T> {
    pub(super) items: VecDeque<(u64, T)>,
    pub(super) limit: usize,
    pub(super) offered: u64,
    /// Dropped since the last item was taken.
    pub(super) lost: u64,
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
