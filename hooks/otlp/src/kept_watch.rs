//! Kept spans and log records on their way to the upstream, for whoever watches them: the newest requests, within a
//! bound of bytes. What nobody takes in time makes room, and is sent on all the same.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

/// Bookkeeping bytes per request, beside its own.
const COST: usize = 64;

#[derive(Debug, Default)]
struct InboxState {
    requests: VecDeque<Bytes>,
    bytes: usize,
}

/// Requests with kept spans, or kept log records, that wait to be watched.
#[derive(Debug)]
pub(crate) struct KeptInbox {
    waiting: Mutex<InboxState>,
    limit: usize,
}

impl KeptInbox {
    /// An empty inbox for `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { waiting: Mutex::default(), limit }
    }

    /// Appends `request`; the oldest make room.
    pub(crate) fn offer(&self, request: Bytes) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.bytes += request.len() + COST;
        waiting.requests.push_back(request);
        while waiting.bytes > self.limit
            && let Some(oldest) = waiting.requests.pop_front()
        {
            waiting.bytes -= oldest.len() + COST;
        }
    }

    /// Takes all that wait, oldest first.
    pub(crate) fn take(&self) -> VecDeque<Bytes> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        core::mem::take(&mut *waiting).requests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_wait_and_are_taken_once() {
        let inbox = KeptInbox::new(2 * (100 + COST));

        (1..=3).for_each(|number| inbox.offer(vec![number; 100].into()));

        assert_eq!(inbox.take().iter().map(|request| request[0]).collect::<Vec<_>>(), [2, 3]);
        assert!(inbox.take().is_empty());
        inbox.offer(vec![0; 1_000].into());
        assert!(inbox.take().is_empty(), "longer than all that may wait");
    }
}
