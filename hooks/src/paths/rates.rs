//! Rate, errors and duration of every operation of every service, from its SERVER and CONSUMER spans, before sampling.
//! An LMAP can watch them if a service exposes nothing else.

use std::collections::BTreeMap;

use wire::histogram::Scale;
use wire::time::Nanos;

use crate::id::OperationId;
use crate::paths::durations::{Durations, Exemplar};
use crate::tracing::SpanIndex;

/// Metrics of one operation. Cumulative, laid out as the slots of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Number of requests that ended.
    pub requests: u64,
    /// Number of requests that ended in an error.
    pub errors: u64,
    /// Slots of a histogram ([`Scale::slots`]) of durations in µs: buckets, one for larger values, and the sum.
    pub duration: Box<[u64]>,
    /// The same durations in fewer buckets, with exemplars.
    pub classes: Durations,
}

/// Metrics of all operations. Bounded by the number of operation ids.
#[derive(Debug)]
pub struct Rates {
    scale: Scale,
    operations: BTreeMap<OperationId, Rate>,
}

impl Rates {
    /// Nothing counted; durations in buckets of `scale`.
    #[must_use]
    pub const fn new(scale: Scale) -> Self {
        Self { scale, operations: BTreeMap::new() }
    }

    /// Counts `span`, if a request entered a service with it. A request is counted when it has ended; retries and
    /// copies of spans count twice.
    pub fn observe(&mut self, span: &SpanIndex) {
        if span.kind.enters() {
            self.count(span.operation, span.duration(), span.error);
        }
    }

    /// Counts a request of `operation` that took `took`.
    pub fn count(&mut self, operation: OperationId, took: Nanos, error: bool) {
        let scale = self.scale;
        let rate = self.entry(operation);
        let micros = micros(took);
        rate.requests += 1;
        rate.errors += u64::from(error);
        rate.duration[scale.bucket(micros) as usize] += 1;
        let sum = &mut rate.duration[scale.sum_slot() as usize];
        *sum = sum.wrapping_add(micros);
        rate.classes.count(took);
    }

    /// Records a kept trace with a request of `operation`, if the operation is known.
    pub fn keep(&mut self, operation: OperationId, exemplar: Exemplar) {
        if let Some(rate) = self.operations.get_mut(&operation) {
            rate.classes.keep(exemplar);
        }
    }

    /// The metrics of `operation`; zero if it is new.
    pub fn entry(&mut self, operation: OperationId) -> &mut Rate {
        let slots = self.scale.slots() as usize;
        let nothing =
            || Rate { requests: 0, errors: 0, duration: vec![0; slots].into(), classes: Durations::default() };
        self.operations.entry(operation).or_insert_with(nothing)
    }

    /// The metrics of `operation`, if it is known.
    #[must_use]
    pub fn get(&self, operation: OperationId) -> Option<&Rate> {
        self.operations.get(&operation)
    }

    /// All operations with their metrics.
    pub fn iter(&self) -> impl Iterator<Item = (OperationId, &Rate)> {
        self.operations.iter().map(|(&operation, rate)| (operation, rate))
    }

    /// Drops the state of `operation`, whose name was forgotten.
    pub fn forget(&mut self, operation: OperationId) {
        self.operations.remove(&operation);
    }
}

pub(super) const fn micros(length: Nanos) -> u64 {
    length.0 / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{OriginId, ServiceId};
    use crate::tracing::{SpanId, SpanKind};
    use wire::time::UnixNanos;

    #[test]
    fn requests_are_counted_once_by_the_service_that_answers() {
        let mut rates = Rates::new(Scale::DEFAULT);
        let server = SpanIndex {
            id: SpanId::new([1; 8]).unwrap(),
            parent: None,
            kind: SpanKind::Server,
            service: ServiceId(0),
            operation: OperationId(3),
            origin: OriginId(0),
            start: UnixNanos(5_000_000),
            end: UnixNanos(6_500_000),
            error: false,
        };

        rates.observe(&server);
        rates.observe(&SpanIndex { error: true, start: UnixNanos(7_000_000), ..server });
        rates.observe(&SpanIndex { kind: SpanKind::Client, ..server });

        let rate = rates.get(OperationId(3)).unwrap();
        assert_eq!((rate.requests, rate.errors), (2, 1));
        assert_eq!(rate.duration[Scale::DEFAULT.bucket(1_500) as usize], 1);
        assert_eq!(rate.duration[0], 1); // it ended before it began
        assert_eq!(rate.duration[Scale::DEFAULT.sum_slot() as usize], 1_500);
        assert_eq!(rate.duration.iter().sum::<u64>(), 2 + 1_500);
        assert_eq!(rates.iter().count(), 1);

        rates.forget(OperationId(3));
        assert!(rates.get(OperationId(3)).is_none());
    }
}
