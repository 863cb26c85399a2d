//! Where calls of an operation go: learnt from those that were answered, for those that nobody answers.
//!
//! A call's own span names its operation, such as `GET /stock`, and not the callee. If one service answered all that
//! were answered, the others were meant for it, too. If several did, nobody knows.

use std::collections::BTreeMap;

use wire::time::Nanos;

use crate::id::{OperationId, ServiceId};

/// Who answers calls of an operation, and when one was last seen.
#[derive(Clone, Copy, Debug)]
struct Target {
    /// `None`: several services do.
    callee: Option<ServiceId>,
    seen: Nanos,
}

/// Operations of CLIENT spans with those who answer.
#[derive(Debug)]
pub(super) struct Targets(BTreeMap<OperationId, Target>);

impl Targets {
    /// None is known.
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Number of operations.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether something is known of `operation`.
    pub(super) fn knows(&self, operation: OperationId) -> bool {
        self.0.contains_key(&operation)
    }

    /// `callee` answered a call of `operation` at `now`.
    pub(super) fn learn(&mut self, operation: OperationId, callee: ServiceId, now: Nanos) {
        let target = self.0.entry(operation).or_insert(Target { callee: Some(callee), seen: now });
        target.callee = target.callee.filter(|known| *known == callee);
        target.seen = target.seen.max(now);
    }

    /// The only service that answers calls of `operation`, of which one was seen at `now`.
    pub(super) fn of(&mut self, operation: OperationId, now: Nanos) -> Option<ServiceId> {
        let target = self.0.get_mut(&operation)?;
        target.seen = target.seen.max(now);
        target.callee
    }

    /// Forgets operations of which no call was seen for `age` before `now`.
    pub(super) fn forget(&mut self, age: Nanos, now: Nanos) {
        self.0.retain(|_, target| now.since(target.seen).is_none_or(|unseen| unseen < age));
    }
}
