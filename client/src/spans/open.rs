//! Spans that have begun and not ended, by the id that the subscriber gave them.
//!
//! Not in the subscriber's own extensions, since each value there is a box of its own. Here a span's place is used again by the next one, so
//! that nothing is allocated once there were as many at a time as there will be.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use wire::span_record::{Head, Notes, Status};

use crate::spans::context::{SpanId, TraceContext, TraceId};

/// Locks, so that threads seldom meet: a power of two.
const SHELVES: usize = 256;
/// Places on a shelf from the start. Memory that is not used is not taken from the system.
const PLACES: usize = 4;
/// Spans that are open at one time.
const MOST: usize = 16_384;

/// A span that has begun.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    pub(crate) context: TraceContext,
    pub(crate) parent: Option<SpanId>,
    pub(crate) kind: u8,
    pub(crate) status: Status,
    pub(crate) start: u64,
    pub(crate) notes: Notes,
}

impl Open {
    /// Its fixed part, if it ends at `end`.
    pub(crate) fn head(&self, end: u64) -> Head {
        Head {
            trace: self.context.trace.0,
            span: self.context.span.0,
            parent: self.parent.map(|parent| parent.0),
            kind: self.kind,
            status: self.status,
            start: self.start,
            end,
        }
    }
}

/// A span's place; free without a name.
#[derive(Debug, Default)]
struct Place {
    name: Option<NonZeroU64>,
    open: Option<Open>,
}

/// All open spans of a process. Each is behind the lock of its shelf, which another thread asks for one time in 256.
#[derive(Debug)]
pub(crate) struct OpenSpans {
    shelves: Box<[Mutex<Vec<Place>>]>,
    open: AtomicUsize,
}

impl OpenSpans {
    pub(crate) fn new() -> Self {
        let shelf = || Mutex::new((0..PLACES).map(|_| Place::default()).collect());
        Self { shelves: (0..SHELVES).map(|_| shelf()).collect(), open: AtomicUsize::new(0) }
    }

    /// A span begins; `false` if too many are open.
    pub(crate) fn begin(&self, name: NonZeroU64, open: impl FnOnce() -> Open) -> bool {
        if self.open.fetch_add(1, Relaxed) >= MOST {
            self.open.fetch_sub(1, Relaxed);
            return false;
        }
        let open = Some(open());
        let mut shelf = self.shelf(name);
        match shelf.iter_mut().find(|place| place.name.is_none()) {
            Some(place) => *place = Place { name: Some(name), open },
            None => shelf.push(Place { name: Some(name), open }),
        }
        true
    }

    /// Something is done with a span that is open; `None` if it is not.
    pub(crate) fn with<R>(&self, name: NonZeroU64, change: impl FnOnce(&mut Open) -> R) -> Option<R> {
        let mut shelf = self.shelf(name);
        let place = shelf.iter_mut().find(|place| place.name == Some(name))?;
        place.open.as_mut().map(change)
    }

    /// A span ends: a last look at it.
    pub(crate) fn end(&self, name: NonZeroU64, look: impl FnOnce(&mut Open)) {
        let mut shelf = self.shelf(name);
        let Some(place) = shelf.iter_mut().find(|place| place.name == Some(name)) else { return };
        if let Some(open) = &mut place.open {
            look(open);
        }
        place.name = None;
        drop(shelf);
        self.open.fetch_sub(1, Relaxed);
    }

    fn shelf(&self, name: NonZeroU64) -> MutexGuard<'_, Vec<Place>> {
        // The upper bits of a product depend on all bits of the name.
        let at = name.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SHELVES.trailing_zeros());
        // Whoever panicked left a span in there, whole or with a note less.
        self.shelves[at as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ids for a span under `parent`, drawn from `ids`.
pub(crate) fn placed(parent: Option<TraceContext>, (trace, span): (TraceId, SpanId)) -> TraceContext {
    parent.map_or_else(|| TraceContext::new(trace, span), |parent| TraceContext { span, ..parent })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(start: u64) -> Open {
        let ids = (TraceId::from_bytes([1; 16]).unwrap(), SpanId(NonZeroU64::MIN));
        Open {
            context: placed(None, ids),
            parent: None,
            kind: 1,
            status: Status::Unset,
            start,
            notes: Notes::default(),
        }
    }

    fn name(n: u64) -> NonZeroU64 {
        NonZeroU64::new(n).unwrap()
    }

    #[test]
    fn a_span_is_found_until_it_ends() {
        let spans = OpenSpans::new();
        (1..2_000).for_each(|n| assert!(spans.begin(name(n), || open(n))));

        assert_eq!(spans.with(name(7), |open| open.start), Some(7));
        let mut ended = None;
        spans.end(name(7), |open| ended = Some(open.start));
        assert_eq!(ended, Some(7));
        assert_eq!(spans.with(name(7), |open| open.start), None);
        spans.end(name(7), |_| panic!("it has ended"));
        assert_eq!(spans.with(name(8), |open| open.start), Some(8));
    }

    #[test]
    fn too_many_open_spans_are_refused_and_their_places_are_used_again() {
        let spans = OpenSpans::new();
        let most = MOST as u64;
        (1..=most).for_each(|n| assert!(spans.begin(name(n), || open(n))));

        assert!(!spans.begin(name(most + 1), || open(0)));
        spans.end(name(1), |_| ());
        assert!(spans.begin(name(most + 1), || open(5)));
        assert_eq!(spans.with(name(most + 1), |open| open.start), Some(5));
    }
}
