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
/// So many spans may be open, whichever shards they are in.
const OPEN_SPANS: usize = 16_384;
/// Spans that a shard may begin, each time that it asks for more.
const SHARE: usize = 4;
/// A shard that may begin more than that gives a share back.
const MOST_SPARE: usize = 8;
/// Bits of an id that say where in the registry the span is: place and thread of the slab that it uses. Those above
/// count how often the place was used, and other subscribers count from 1 on.
const PLACE: u64 = (1 << 51) - 1;

/// Holds what is known of one open span; free if `id` is `None`. Then `open` is what was known of the one before it.
#[derive(Debug)]
struct SpanSlot<S> {
    id: Option<NonZeroU64>,
    open: Option<S>,
}

impl<S> SpanSlot<S> {
    const FREE: Self = Self { id: None, open: None };
}

#[derive(Debug)]
struct Slots<S> {
    slots: Vec<SpanSlot<S>>,
    /// Spans that this shard may begin without asking.
    spare: usize,
}

/// A line of its own: a thread that begins one span after the other stays in one shard.
#[derive(Debug)]
#[repr(align(64))]
struct Shard<S>(Mutex<Slots<S>>);

/// What a layer knows of each open span of a process, in 256 shards with a lock each.
///
/// Where in the registry a span is decides about its shard, so that a thread's next span finds slot and lock in the
/// cache. Shards take shares of the number of spans that may be open; not each span changes a word of all threads.
/// What shards have to spare comes on top, at most 2,048: nothing is refused with fewer than 16,384 open spans.
#[derive(Debug)]
pub(crate) struct OpenSpans<S> {
    shards: Box<[Shard<S>]>,
    /// Spans that no shard has a share of.
    left: AtomicUsize,
}

impl<S> OpenSpans<S> {
    pub(crate) fn new() -> Self {
        let slots = || (0..SLOTS_PER_SHARD).map(|_| SpanSlot::FREE).collect::<Vec<_>>();
        let shard = || Shard(Mutex::new(Slots { slots: slots(), spare: 0 }));
        let left = AtomicUsize::new(OPEN_SPANS + SHARDS * MOST_SPARE);
        Self { shards: (0..SHARDS).map(|_| shard()).collect(), left }
    }

    /// Adds a span; `false` if too many are open. `begin` finds what was known of an earlier span and says, in place of
    /// it, what is known of this one, while the shard is locked.
    pub(crate) fn begin(&self, id: NonZeroU64, begin: impl FnOnce(&mut Option<S>)) -> bool {
        let mut shard = self.shard(id);
        let Slots { slots, spare } = &mut *shard;
        if *spare == 0 {
            if !self.take_share() {
                return false;
            }
            *spare = SHARE;
        }
        *spare -= 1;
        let free = slots.iter().position(|slot| slot.id.is_none()).unwrap_or(slots.len());
        if free == slots.len() {
            slots.push(SpanSlot::FREE);
        }
        let slot = &mut slots[free];
        begin(&mut slot.open);
        slot.id = Some(id);
        true
    }

    #[cold]
    fn take_share(&self) -> bool {
        self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(SHARE)).is_ok()
    }

    /// Applies `change` to an open span; `None` if it is not open.
    pub(crate) fn with<R>(&self, id: NonZeroU64, change: impl FnOnce(&mut S) -> R) -> Option<R> {
        let mut shard = self.shard(id);
        let slot = shard.slots.iter_mut().find(|slot| slot.id == Some(id))?;
        slot.open.as_mut().map(change)
    }

    /// Removes a span, after `finish` has used it.
    pub(crate) fn end(&self, id: NonZeroU64, finish: impl FnOnce(&mut S)) {
        let mut shard = self.shard(id);
        let Slots { slots, spare } = &mut *shard;
        let Some(slot) = slots.iter_mut().find(|slot| slot.id == Some(id)) else { return };
        if let Some(open) = &mut slot.open {
            finish(open);
        }
        slot.id = None;
        *spare += 1;
        if *spare > MOST_SPARE {
            *spare -= SHARE;
            self.left.fetch_add(SHARE, Relaxed);
        }
    }

    fn shard(&self, id: NonZeroU64) -> MutexGuard<'_, Slots<S>> {
        // A thread that panicked while holding the lock left valid data: at most a note is missing.
        self.shards[shard_of(id)].0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fibonacci hashing: the upper bits of the product depend on all bits that say where the span is.
const fn shard_of(id: NonZeroU64) -> usize {
    ((id.get() & PLACE).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SHARDS.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// What is kept of a span, in place of more.
    struct Begun {
        start: u64,
    }

    fn id(n: u64) -> NonZeroU64 {
        NonZeroU64::new(n).unwrap()
    }

    fn begin(spans: &OpenSpans<Begun>, n: u64, start: u64) -> bool {
        spans.begin(id(n), |open| *open = Some(Begun { start }))
    }

    #[test]
    fn a_span_is_found_until_it_ends() {
        let spans = OpenSpans::new();
        (1..2_000).for_each(|n| assert!(begin(&spans, n, n)));

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
        let refused = (1..=20_000).find(|n| !begin(&spans, *n, *n)).expect("there is a limit");

        assert!((16_385..=18_433).contains(&refused), "{refused}");
        assert_eq!(spans.with(id(refused), |open| open.start), None);
        spans.end(id(1), |_| ());
        assert!(begin(&spans, 1, 5), "the shard has one to spare");
        assert_eq!(spans.with(id(1), |open| open.start), Some(5));

        // Other shards get what these have given back.
        (1..refused).for_each(|n| spans.end(id(n), |_| ()));
        (1..=16_384).for_each(|n| assert!(begin(&spans, n + 5_000, n), "{n}"));
    }

    #[test]
    fn what_shards_have_to_spare_is_bounded_and_nothing_gets_lost() {
        let spans = OpenSpans::new();
        for round in 0..3 {
            (1..=10_000).for_each(|n| assert!(begin(&spans, n + round, n)));
            (1..=10_000).for_each(|n| spans.end(id(n + round), |_| ()));
        }

        let spare: Vec<_> = spans.shards.iter().map(|shard| shard.0.lock().unwrap().spare).collect();

        assert!(spare.iter().all(|spare| *spare <= MOST_SPARE), "{spare:?}");
        assert_eq!(spare.iter().sum::<usize>() + spans.left.load(Relaxed), 18_432);
    }

    /// As the registry's slab makes them: place, thread, and how often the place was used.
    fn registry_id(place: u64, thread: u64, used: u64) -> NonZeroU64 {
        id(1 + place + (thread << 38) + (used << 51))
    }

    #[test]
    fn a_thread_stays_in_a_shard_of_its_own_and_finds_what_was_there_before() {
        let spans = OpenSpans::new();
        let mut before = Vec::new();
        for used in 0..3 {
            let id = registry_id(0, 7, used);
            let begin = |open: &mut Option<Begun>| {
                before.push(open.as_ref().map(|open| open.start));
                *open = Some(Begun { start: used });
            };
            assert!(spans.begin(id, begin));
            spans.end(id, |_| ());
        }
        assert_eq!(before, [None, Some(0), Some(1)]);

        let shards: HashSet<_> = (0..64).map(|thread| shard_of(registry_id(0, thread, 3))).collect();
        assert_eq!(shards.len(), 64);
        let shards: HashSet<_> = (0..64).map(|place| shard_of(registry_id(place, 7, 3))).collect();
        assert_eq!(shards.len(), 64);
    }
}
