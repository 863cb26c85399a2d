//! Open spans (begun and not ended), by the id that the subscriber assigned.
//!
//! The subscriber's own extensions are not used, since each value there is a box. Here slots are reused: nothing is
//! allocated unless more spans are open than ever before.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Shards, each with a lock, so that threads seldom contend: a power of two.
const SHARDS: usize = 256;
/// Slots per shard at the start.
const SLOTS_PER_SHARD: usize = 4;
/// Maximum number of open spans.
const MAX_OPEN_SPANS: usize = 16_384;

/// Holds what is known of one open span; free if `id` is `None`.
#[derive(Debug)]
struct SpanSlot<S> {
    id: Option<NonZeroU64>,
    open: Option<S>,
}

impl<S> SpanSlot<S> {
    const FREE: Self = Self { id: None, open: None };
}

/// What a layer knows of each open span of a process, in 256 shards with a lock each.
#[derive(Debug)]
pub(crate) struct OpenSpans<S> {
    shards: Box<[Mutex<Vec<SpanSlot<S>>>]>,
    open: AtomicUsize,
}

impl<S> OpenSpans<S> {
    pub(crate) fn new() -> Self {
        let shard = || Mutex::new((0..SLOTS_PER_SHARD).map(|_| SpanSlot::FREE).collect());
        Self { shards: (0..SHARDS).map(|_| shard()).collect(), open: AtomicUsize::new(0) }
    }

    /// Adds a span; `false` if too many are open.
    pub(crate) fn begin(&self, id: NonZeroU64, open: impl FnOnce() -> S) -> bool {
        if self.open.fetch_add(1, Relaxed) >= MAX_OPEN_SPANS {
            self.open.fetch_sub(1, Relaxed);
            return false;
        }
        let open = Some(open());
        let mut shard = self.shard(id);
        match shard.iter_mut().find(|slot| slot.id.is_none()) {
            Some(slot) => *slot = SpanSlot { id: Some(id), open },
            None => shard.push(SpanSlot { id: Some(id), open }),
        }
        true
    }

    /// Applies `change` to an open span; `None` if it is not open.
    pub(crate) fn with<R>(&self, id: NonZeroU64, change: impl FnOnce(&mut S) -> R) -> Option<R> {
        let mut shard = self.shard(id);
        let slot = shard.iter_mut().find(|slot| slot.id == Some(id))?;
        slot.open.as_mut().map(change)
    }

    /// Removes a span, after `finish` has used it.
    pub(crate) fn end(&self, id: NonZeroU64, finish: impl FnOnce(&mut S)) {
        let mut shard = self.shard(id);
        let Some(slot) = shard.iter_mut().find(|slot| slot.id == Some(id)) else { return };
        if let Some(open) = &mut slot.open {
            finish(open);
        }
        slot.id = None;
        drop(shard);
        self.open.fetch_sub(1, Relaxed);
    }

    fn shard(&self, id: NonZeroU64) -> MutexGuard<'_, Vec<SpanSlot<S>>> {
        // Fibonacci hashing: the upper bits of the product depend on all bits of the id.
        let at = id.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SHARDS.trailing_zeros());
        // A thread that panicked while holding the lock left valid data: at most a note is missing.
        self.shards[at as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is kept of a span, in place of more.
    struct Begun {
        start: u64,
    }

    const fn open(start: u64) -> Begun {
        Begun { start }
    }

    fn id(n: u64) -> NonZeroU64 {
        NonZeroU64::new(n).unwrap()
    }

    #[test]
    fn a_span_is_found_until_it_ends() {
        let spans = OpenSpans::new();
        (1..2_000).for_each(|n| assert!(spans.begin(id(n), || open(n))));

        assert_eq!(spans.with(id(7), |open| open.start), Some(7));
        let mut ended = None;
        spans.end(id(7), |open| ended = Some(open.start));
        assert_eq!(ended, Some(7));
        assert_eq!(spans.with(id(7), |open| open.start), None);
        spans.end(id(7), |_| panic!("it has ended"));
        assert_eq!(spans.with(id(8), |open| open.start), Some(8));
    }

    #[test]
    fn too_many_open_spans_are_refused_and_their_places_are_used_again() {
        let spans = OpenSpans::new();
        let most = MAX_OPEN_SPANS as u64;
        (1..=most).for_each(|n| assert!(spans.begin(id(n), || open(n))));

        assert!(!spans.begin(id(most + 1), || open(0)));
        spans.end(id(1), |_| ());
        assert!(spans.begin(id(most + 1), || open(5)));
        assert_eq!(spans.with(id(most + 1), |open| open.start), Some(5));
    }
}
