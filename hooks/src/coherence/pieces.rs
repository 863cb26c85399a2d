//! Paths whose entry span one node has and whose services another: put together by trace.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use wire::time::Nanos;

use crate::coherence::item::Asked;
use crate::id::{OperationId, ServiceId};
use crate::tracing::TraceId;

/// Traces of which one half is known, the oldest of which are forgotten.
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

/// A path is told so often while requests take it.
const TELL_EVERY: Nanos = Nanos::from_secs(60);

/// A service on a path, or what it was asked for there.
pub type Step = (ServiceId, Option<OperationId>);

/// What other nodes saw in a trace: services, and what they were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Half {
    /// Services by name.
    pub services: Vec<Arc<str>>,
    /// What they were asked for.
    pub asked: Vec<Asked>,
}

/// Halves of paths, and paths that are to be told. Memory: about 100 bytes for each of `most` traces of either half, 20 for each service on a
/// path that was seen in the last minutes.
#[derive(Debug)]
pub struct Pieces {
    operations: Recent<Option<OperationId>>,
    halves: Recent<Half>,
    /// Seen since they were told.
    seen: BTreeMap<OperationId, BTreeSet<Step>>,
    told: BTreeMap<(OperationId, Step), Nanos>,
}

impl Pieces {
    /// None; `most` of either half are kept.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self { operations: Recent::new(most), halves: Recent::new(most), seen: BTreeMap::new(), told: BTreeMap::new() }
    }

    /// A request of `operation` took `step`, by what this node knows itself and not from hearsay: else a path that nobody takes any more
    /// would go round for ever.
    pub fn saw(&mut self, operation: OperationId, step: Step) {
        self.seen.entry(operation).or_default().insert(step);
    }

    /// Takes paths that others should know of: what is new, and what was seen again and not told for a minute.
    #[must_use]
    pub fn to_tell(&mut self, now: Nanos) -> Vec<(OperationId, BTreeSet<Step>)> {
        let mut to_tell = Vec::new();
        for (operation, mut steps) in core::mem::take(&mut self.seen) {
            steps.retain(|step| {
                let told = self.told.get(&(operation, *step));
                told.is_none_or(|told| now.since(*told).is_some_and(|age| age >= TELL_EVERY))
            });
            if steps.is_empty() {
                continue;
            }
            self.told.extend(steps.iter().map(|step| ((operation, *step), now)));
            to_tell.push((operation, steps));
        }
        if !to_tell.is_empty() {
            self.told.retain(|_, told| now.since(*told).is_none_or(|age| age < TELL_EVERY.plus(TELL_EVERY)));
        }
        to_tell
    }

    /// The entry span of `trace` came here, and asked for `operation`. Returns what others said they saw in it.
    #[must_use]
    pub fn entered(&mut self, trace: TraceId, operation: OperationId) -> Option<&Half> {
        *self.operations.at(trace) = Some(operation);
        self.halves.by_trace.get(&trace)
    }

    /// Another node saw `half` in `trace`. Returns what was asked for, if the entry span came here.
    #[must_use]
    pub fn passed(&mut self, trace: TraceId, half: &Half) -> Option<OperationId> {
        if let Some(operation) = self.operations.by_trace.get(&trace).copied().flatten() {
            return Some(operation);
        }
        let known = self.halves.at(trace);
        known.services.extend_from_slice(&half.services);
        known.asked.extend_from_slice(&half.asked);
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
    fn a_path_is_told_when_it_is_new_and_once_a_minute_while_it_is_taken() {
        let (mut pieces, at) = (Pieces::new(2), Nanos::from_secs);
        let (pay, payment) = (OperationId(1), ServiceId(2));
        let mut told = |second, saw: bool| {
            if saw {
                pieces.saw(pay, (payment, None));
            }
            pieces.to_tell(at(second)).len()
        };

        assert_eq!([told(1, true), told(2, true), told(61, true), told(62, true)], [1, 0, 1, 0]);
        assert_eq!([told(500, false), told(501, true)], [0, 1]);
    }

    #[test]
    fn halves_meet_whichever_comes_first_and_the_oldest_are_forgotten() {
        let charge = (Arc::from("payment"), Arc::from("Charge"));
        let payment = Half { services: vec![Arc::from("payment")], asked: vec![charge] };
        let mut pieces = Pieces::new(2);

        assert_eq!(pieces.passed(trace(1), &payment), None);
        assert_eq!(pieces.entered(trace(1), OperationId(7)), Some(&payment));
        assert!(pieces.entered(trace(2), OperationId(8)).is_none());
        assert_eq!(pieces.passed(trace(2), &payment), Some(OperationId(8)));

        for number in 3..5 {
            assert!(pieces.entered(trace(number), OperationId(9)).is_none());
        }
        assert_eq!(pieces.passed(trace(2), &payment), None);
        assert_eq!(pieces.passed(trace(4), &payment), Some(OperationId(9)));
    }
}
