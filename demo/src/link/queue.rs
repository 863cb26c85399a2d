//! A queue of delayed packets of one direction, in order. Pure: times are parameters.

use std::collections::VecDeque;

use wire::time::Nanos;

/// Maximal length; further packets are lost.
const CAPACITY: usize = 4096;

/// Packets of one direction.
#[derive(Debug, Default)]
pub(super) struct Queue {
    queued: VecDeque<(Nanos, Vec<u8>)>,
}

impl Queue {
    /// Whether no packet is queued.
    pub(super) fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    /// Queues a packet that arrived at `now` for `delay`, or longer if one before it is due later. False if the queue
    /// is full.
    pub(super) fn push(&mut self, packet: &[u8], now: Nanos, delay: Nanos) -> bool {
        if self.queued.len() >= CAPACITY {
            return false;
        }
        let before = self.queued.back().map_or(Nanos::ZERO, |(due, _)| *due);
        self.queued.push_back((now.plus(delay).max(before), packet.to_vec()));
        true
    }

    /// When the next packet is due; `None` if the queue is empty.
    pub(super) fn next_due(&self) -> Option<Nanos> {
        self.queued.front().map(|(due, _)| *due)
    }

    /// Removes the next packet that is due at `now`.
    pub(super) fn pop(&mut self, now: Nanos) -> Option<Vec<u8>> {
        if self.next_due()? > now {
            return None;
        }
        self.queued.pop_front().map(|(_, packet)| packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_due_in_their_order_and_not_before_their_delay_is_over() {
        let mut queue = Queue::default();
        assert!(queue.is_empty() && queue.next_due().is_none());
        assert!(queue.push(b"slow", Nanos(100), Nanos(50)));
        assert!(queue.push(b"quick", Nanos(110), Nanos(10)));

        assert_eq!((queue.pop(Nanos(149)), queue.next_due()), (None, Some(Nanos(150))));
        assert_eq!(queue.pop(Nanos(150)).as_deref(), Some(&b"slow"[..]));
        assert_eq!(queue.next_due(), Some(Nanos(150)), "it does not overtake");
        assert_eq!(queue.pop(Nanos(150)).as_deref(), Some(&b"quick"[..]));
        assert!(queue.is_empty());
    }

    #[test]
    fn a_full_queue_loses_what_comes() {
        let mut queue = Queue::default();
        for _ in 0..CAPACITY {
            assert!(queue.push(b"", Nanos::ZERO, Nanos(1)));
        }

        assert!(!queue.push(b"", Nanos::ZERO, Nanos(1)));
        assert!(queue.pop(Nanos(1)).is_some() && queue.push(b"", Nanos::ZERO, Nanos(1)));
    }
}
