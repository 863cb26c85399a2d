//! Joins paths by trace where one node has the entry span and others have the services.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use wire::time::Nanos;

use crate::coherence::item::OperationRef;
use crate::id::{OperationId, ServiceId};
use crate::tracing::TraceId;

/// Recent traces, at most `most`; the oldest are forgotten.
#[derive(Debug)]
struct Recent<T> {
    most: usize,
    by_trace: BTreeMap<TraceId, T>,
    order: VecDeque<TraceId>,
}

impl<T: Default> Recent<T> {
    const fn new(most: usize) -> Self {
        Self { most, by_trace: BTreeMap::new(), order: VecDeque::new() }
    }

    fn at(&mut self, trace: TraceId) -> &mut T {
        if !self.by_trace.contains_key(&trace) {
            self.order.push_back(trace);
            if self.order.len() > self.most
                && let Some(oldest) = self.order.pop_front()
            {
                self.by_trace.remove(&oldest);
            }
        }
        self.by_trace.entry(trace).or_default()
    }
}

/// A path that is in use is announced at this interval.
const ANNOUNCE_EVERY: Nanos = Nanos::from_secs(60);

/// Names that are remembered of one trace take about so many bytes at most.
const HALF_BYTES: usize = 4 << 10;
/// Bytes of a name beside its text.
const NAME_BYTES: usize = 32;

/// A service on a path, and the operation that was requested of it.
pub type Step = (ServiceId, Option<OperationId>);

/// What other nodes saw in a trace, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathServices {
    /// Names of services.
    pub services: Vec<Arc<str>>,
    /// Operations that were requested of them.
    pub requested: Vec<OperationRef>,
}

impl PathServices {
    fn bytes(&self) -> usize {
        let services = self.services.iter().map(|name| NAME_BYTES + name.len());
        let requested = self.requested.iter().map(|(a, b)| 2 * NAME_BYTES + a.len() + b.len());
        services.chain(requested).sum()
    }
}

/// Traces of which only the entry or only the services are known, and paths to announce. Memory: about 100 bytes for
/// each of `most` traces of either kind, 5 KiB if a peer fills them, and 20 for each service on a path that was seen in
/// the last minutes.
#[derive(Debug)]
pub struct PathJoin {
    operations: Recent<Option<OperationId>>,
    halves: Recent<PathServices>,
    /// Seen since the last announcement.
    seen: BTreeMap<OperationId, BTreeSet<Step>>,
    announced: BTreeMap<(OperationId, Step), Nanos>,
}

impl PathJoin {
    /// Empty; keeps at most `most` entries and as many services of traces.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self {
            operations: Recent::new(most),
            halves: Recent::new(most),
            seen: BTreeMap::new(),
            announced: BTreeMap::new(),
        }
    }

    /// A request of `operation` took `step`, as this node saw itself. What other nodes announced does not count: else a
    /// path that is no longer in use would be announced for ever.
    pub fn observe(&mut self, operation: OperationId, step: Step) {
        self.seen.entry(operation).or_default().insert(step);
    }

    /// Takes the paths to announce: new steps, and those seen again and not announced for a minute.
    #[must_use]
    pub fn to_announce(&mut self, now: Nanos) -> Vec<(OperationId, BTreeSet<Step>)> {
        let mut to_announce = Vec::new();
        for (operation, mut steps) in core::mem::take(&mut self.seen) {
            steps.retain(|step| {
                let announced = self.announced.get(&(operation, *step));
                announced.is_none_or(|announced| now.since(*announced).is_some_and(|age| age >= ANNOUNCE_EVERY))
            });
            if steps.is_empty() {
                continue;
            }
            self.announced.extend(steps.iter().map(|step| ((operation, *step), now)));
            to_announce.push((operation, steps));
        }
        if !to_announce.is_empty() {
            self.announced.retain(|_, announced| {
                now.since(*announced).is_none_or(|age| age < ANNOUNCE_EVERY.plus(ANNOUNCE_EVERY))
            });
        }
        to_announce
    }

    /// The entry span of `trace` arrived here, and requested `operation`. Returns what other nodes saw in the trace.
    #[must_use]
    pub fn entered(&mut self, trace: TraceId, operation: OperationId) -> Option<&PathServices> {
        *self.operations.at(trace) = Some(operation);
        self.halves.by_trace.get(&trace)
    }

    /// Another node saw `half` in `trace`. Returns the requested operation, if the entry span arrived here.
    #[must_use]
    pub fn passed(&mut self, trace: TraceId, half: &PathServices) -> Option<OperationId> {
        if let Some(operation) = self.operations.by_trace.get(&trace).copied().flatten() {
            return Some(operation);
        }
        let known = self.halves.at(trace);
        // Whoever repeats its words adds nothing.
        for service in &half.services {
            if known.bytes() < HALF_BYTES && !known.services.contains(service) {
                known.services.push(Arc::clone(service));
            }
        }
        for requested in &half.requested {
            if known.bytes() < HALF_BYTES && !known.requested.contains(requested) {
                known.requested.push(requested.clone());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(number: u64) -> TraceId {
        TraceId::new(u128::from(number + 1).to_be_bytes()).unwrap()
    }

    #[test]
    fn a_path_is_announced_when_it_is_new_and_once_a_minute_while_it_is_in_use() {
        let (mut pieces, at) = (PathJoin::new(2), Nanos::from_secs);
        let (pay, payment) = (OperationId(1), ServiceId(2));
        let mut announced = |second, saw: bool| {
            if saw {
                pieces.observe(pay, (payment, None));
            }
            pieces.to_announce(at(second)).len()
        };

        assert_eq!([announced(1, true), announced(2, true), announced(61, true), announced(62, true)], [1, 0, 1, 0]);
        assert_eq!([announced(500, false), announced(501, true)], [0, 1]);
    }

    #[test]
    fn entry_and_services_are_joined_in_either_order_and_the_oldest_are_forgotten() {
        let charge = (Arc::from("payment"), Arc::from("Charge"));
        let payment = PathServices { services: vec![Arc::from("payment")], requested: vec![charge] };
        let mut pieces = PathJoin::new(2);

        assert_eq!(pieces.passed(trace(1), &payment), None);
        assert_eq!(pieces.entered(trace(1), OperationId(7)), Some(&payment));
        assert!(pieces.entered(trace(2), OperationId(8)).is_none());
        assert_eq!(pieces.passed(trace(2), &payment), Some(OperationId(8)));

        let long = |number: u32| PathServices { services: vec![format!("{number:500}").into()], requested: Vec::new() };
        for number in 0..100 {
            assert_eq!(pieces.passed(trace(7), &long(number)), None);
        }
        assert_eq!(pieces.entered(trace(7), OperationId(7)).map(|half| half.services.len()), Some(8));

        for number in 3..5 {
            assert!(pieces.entered(trace(number), OperationId(9)).is_none());
        }
        assert_eq!(pieces.passed(trace(2), &payment), None);
        assert_eq!(pieces.passed(trace(4), &payment), Some(OperationId(9)));
    }
}
