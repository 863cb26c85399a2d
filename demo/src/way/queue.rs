//! Packets that are held, each direction in its order. Pure: times are given.

use std::collections::VecDeque;

use wire::time::Nanos;

/// In each direction no more packets wait than this; what comes then is lost, as at any queue.
const MOST: usize = 4096;

/// Packets of one direction.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<(Nanos, Vec<u8>)>,
}

impl Queue {
    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes a packet that came at `now` and is held for `held`, or for as long as one before it. False if there is no room.
    pub(super) fn push(&mut self, packet: &[u8], now: Nanos, held: Nanos) -> bool {
        if self.waiting.len() >= MOST {
            return false;
        }
        let before = self.waiting.back().map_or(Nanos::ZERO, |(due, _)| *due);
        self.waiting.push_back((now.plus(held).max(before), packet.to_vec()));
        true
    }

    /// When the next one is due; `None` if nobody waits.
    pub(super) fn next_due(&self) -> Option<Nanos> {
        self.waiting.front().map(|(due, _)| *due)
    }

    /// The next one that is due at `now`.
    pub(super) fn pop(&mut self, now: Nanos) -> Option<Vec<u8>> {
        if self.next_due()? > now {
            return None;
        }
        self.waiting.pop_front().map(|(_, packet)| packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_due_in_their_order_and_not_before_they_were_held() {
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
        for _ in 0..MOST {
            assert!(queue.push(b"", Nanos::ZERO, Nanos(1)));
        }

        assert!(!queue.push(b"", Nanos::ZERO, Nanos(1)));
        assert!(queue.pop(Nanos(1)).is_some() && queue.push(b"", Nanos::ZERO, Nanos(1)));
    }
}
