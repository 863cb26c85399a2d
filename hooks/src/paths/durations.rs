//! Classic histogram of durations, with the last kept trace of each bucket as an exemplar.

use core::num::NonZeroU32;

use wire::time::{Nanos, UnixNanos};

use crate::tracing::TraceId;

/// Number of buckets: one for each bound, and one for what is longer than all.
pub const CLASSES: usize = BOUNDS.len() + 1;

/// Inclusive upper bounds: from 100 µs to 10 s in steps of 2 to 2.5, as the clients of Prometheus have them from 5 ms
/// on.
pub const BOUNDS: [Nanos; 16] = [
    Nanos::from_micros(100),
    Nanos::from_micros(250),
    Nanos::from_micros(500),
    Nanos::from_millis(1),
    Nanos::from_micros(2_500),
    Nanos::from_millis(5),
    Nanos::from_millis(10),
    Nanos::from_millis(25),
    Nanos::from_millis(50),
    Nanos::from_millis(100),
    Nanos::from_millis(250),
    Nanos::from_millis(500),
    Nanos::from_secs(1),
    Nanos::from_millis(2_500),
    Nanos::from_secs(5),
    Nanos::from_secs(10),
];

/// A request whose trace was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exemplar {
    /// Id of the kept trace.
    pub trace: TraceId,
    /// Duration of the request.
    pub took: Nanos,
    /// When the request ended.
    pub at: UnixNanos,
    /// The incident for which the trace was kept, by a number that whoever counts has given it; `None`: there is none,
    /// or nobody has numbered it.
    pub incident: Option<NonZeroU32>,
}

/// Durations of one operation's requests. Cumulative; 160 bytes, and 680 more once a trace was kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    counts: [u64; CLASSES],
    sum: Nanos,
    kept: Option<Box<[Option<Exemplar>; CLASSES]>>,
}

/// The bucket of a duration: the first one whose bound is not less, 0 to [`BOUNDS`]`.len()`.
#[must_use]
pub fn class(took: Nanos) -> usize {
    BOUNDS.partition_point(|bound| *bound < took)
}

impl Durations {
    /// Counts a request of this duration.
    pub fn count(&mut self, took: Nanos) {
        self.counts[class(took)] += 1;
        self.sum = self.sum.plus(took);
    }

    /// Records a kept trace. Of each bucket the one that ended last is remembered.
    pub fn keep(&mut self, exemplar: Exemplar) {
        let place = &mut self.kept.get_or_insert_default()[class(exemplar.took)];
        if place.is_none_or(|known| known.at < exemplar.at) {
            *place = Some(exemplar);
        }
    }

    /// Requests in each bucket, not accumulated.
    #[must_use]
    pub const fn counts(&self) -> &[u64; CLASSES] {
        &self.counts
    }

    /// Sum of all durations.
    #[must_use]
    pub const fn sum(&self) -> Nanos {
        self.sum
    }

    /// The last kept trace of each bucket; none of an empty bucket, since a trace may be kept before it is counted.
    pub fn exemplars(&self) -> impl Iterator<Item = Option<Exemplar>> {
        let kept = |class: usize| self.kept.as_ref().and_then(|kept| kept[class]);
        (0..CLASSES).map(move |class| kept(class).filter(|_| self.counts[class] > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exemplar(trace: u8, took: Nanos, at: u64) -> Exemplar {
        Exemplar { trace: TraceId::new([trace; 16]).unwrap(), took, at: UnixNanos(at), incident: None }
    }

    #[test]
    fn a_bound_belongs_to_its_class() {
        assert!(BOUNDS.is_sorted());
        for (place, bound) in BOUNDS.into_iter().enumerate() {
            assert_eq!((class(bound), class(bound.plus(Nanos(1)))), (place, place + 1));
        }
        assert_eq!((class(Nanos::ZERO), class(Nanos::NEVER)), (0, BOUNDS.len()));

        let mut durations = Durations::default();
        for millis in [1, 5, 6, 20_000] {
            durations.count(Nanos::from_millis(millis));
        }
        let counts: Vec<_> = durations.counts().iter().enumerate().filter(|(_, count)| **count > 0).collect();
        assert_eq!(counts, [(3, &1), (5, &1), (6, &1), (16, &1)]);
        assert_eq!(durations.sum(), Nanos::from_millis(20_012));
    }

    #[test]
    fn each_class_has_the_trace_that_ended_last_once_it_is_counted() {
        let mut durations = Durations::default();
        let (fast, slow) = (Nanos::from_millis(1), Nanos::from_secs(1));
        for kept in [exemplar(1, fast, 10), exemplar(2, fast, 30), exemplar(3, fast, 20), exemplar(4, slow, 5)] {
            durations.keep(kept);
        }
        assert_eq!(durations.exemplars().flatten().count(), 0);

        durations.count(fast);

        assert_eq!(durations.exemplars().flatten().collect::<Vec<_>>(), [exemplar(2, fast, 30)]);
        assert_eq!(durations.exemplars().nth(3).flatten(), Some(exemplar(2, fast, 30)));
    }
}
