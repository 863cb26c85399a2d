//! Services where requests enter the system: configured, or detected. A service whose SERVER or CONSUMER spans have no
//! parent is called by no service of the system.

use std::collections::{BTreeMap, BTreeSet};

use wire::time::Nanos;

use crate::id::ServiceId;
use crate::tracing::SpanIndex;

/// When a service is detected as a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrontendRule {
    /// Requests without a parent that make a frontend. 10 by default: a single odd trace does not.
    pub requests: u32,
    /// A service without such a request for so long is no frontend any more. 1 h by default.
    pub age: Nanos,
}

impl Default for FrontendRule {
    fn default() -> Self {
        Self { requests: 10, age: Nanos::from_secs(3600) }
    }
}

#[derive(Clone, Copy, Debug)]
struct Roots {
    count: u32,
    seen: Nanos,
}

/// The set of frontends. Bounded by the number of services.
#[derive(Debug)]
pub struct Frontends {
    rule: FrontendRule,
    configured: BTreeSet<ServiceId>,
    roots: BTreeMap<ServiceId, Roots>,
}

impl Frontends {
    /// Empty. Once one is [configured](Self::configure), none is detected any more.
    #[must_use]
    pub const fn new(rule: FrontendRule) -> Self {
        Self { rule, configured: BTreeSet::new(), roots: BTreeMap::new() }
    }

    /// Adds `service`, as an operator configured.
    pub fn configure(&mut self, service: ServiceId) {
        self.configured.insert(service);
    }

    /// Whether a request enters the system with this span; learns from it.
    pub fn enters(&mut self, span: &SpanIndex, now: Nanos) -> bool {
        if !span.kind.enters() {
            return false;
        }
        if !self.configured.is_empty() {
            return self.configured.contains(&span.service);
        }
        if span.parent.is_none() {
            let roots = self.roots.entry(span.service).or_insert(Roots { count: 0, seen: now });
            roots.count = roots.count.saturating_add(1);
            roots.seen = roots.seen.max(now);
        }
        self.roots.get(&span.service).is_some_and(|roots| roots.count >= self.rule.requests)
    }

    /// All frontends, configured or detected.
    pub fn iter(&self) -> impl Iterator<Item = ServiceId> {
        let recognised = self.roots.iter().filter(|(_, roots)| roots.count >= self.rule.requests).map(|(id, _)| *id);
        let recognised = recognised.filter(|_| self.configured.is_empty());
        self.configured.iter().copied().chain(recognised)
    }

    /// Forgets services without a request without a parent for [`FrontendRule::age`] before `now`.
    pub fn forget(&mut self, now: Nanos) {
        let age = self.rule.age;
        self.roots.retain(|_, roots| now.since(roots.seen).is_none_or(|unseen| unseen < age));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{OperationId, OriginId};
    use crate::tracing::{SpanId, SpanKind};
    use wire::time::UnixNanos;

    fn span(service: u32, kind: SpanKind, root: bool) -> SpanIndex {
        let id = SpanId::new([1; 8]).unwrap();
        SpanIndex {
            id,
            parent: (!root).then_some(id),
            kind,
            service: ServiceId(service),
            operation: OperationId(0),
            origin: OriginId(0),
            start: UnixNanos(0),
            end: UnixNanos(0),
            error: false,
        }
    }

    #[test]
    fn a_service_without_callers_is_detected_and_forgotten() {
        let mut frontends = Frontends::new(FrontendRule::default());

        let mut entered = |span: SpanIndex| frontends.enters(&span, Nanos(0));
        assert_eq!((0..12).filter(|_| entered(span(1, SpanKind::Server, true))).count(), 3);
        assert!(entered(span(1, SpanKind::Consumer, false)));
        assert!(!(0..12).any(|_| entered(span(2, SpanKind::Server, false))));
        assert!(!(0..12).any(|_| entered(span(3, SpanKind::Internal, true))));

        assert_eq!(frontends.iter().collect::<Vec<_>>(), [ServiceId(1)]);
        frontends.forget(Nanos::from_secs(3600));
        assert_eq!(frontends.iter().count(), 0);
    }

    #[test]
    fn what_is_configured_is_not_guessed() {
        let mut frontends = Frontends::new(FrontendRule::default());
        frontends.configure(ServiceId(2));

        assert!((0..12).all(|_| !frontends.enters(&span(1, SpanKind::Server, true), Nanos(0))));
        assert!(frontends.enters(&span(2, SpanKind::Server, false), Nanos(0)));
        assert_eq!(frontends.iter().collect::<Vec<_>>(), [ServiceId(2)]);
    }
}
