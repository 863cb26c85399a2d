//! Ids for names of services and operations, bounded: a service that puts an order number into its span names gets one
//! operation more, not a million.

use wire::printable::is_printable;
use wire::time::Nanos;

use crate::id::{OperationId, ServiceId};
use crate::seeded_map::SeededMap;

/// Replaces all names that are too many, too long, empty or not printable.
pub const OTHER: &str = "_other";

/// Limits of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameLimits {
    /// Number of services. 1,000 by default.
    pub services: usize,
    /// Number of operations of one service. 200 by default.
    pub operations_per_service: usize,
    /// Length of a name in bytes: longer ones are [`OTHER`]. 128 by default, as for services in `wire`.
    pub name_bytes: usize,
    /// A name that was not seen for so long is forgotten. 1 h by default.
    pub age: Nanos,
}

impl Default for NameLimits {
    fn default() -> Self {
        Self { services: 1_000, operations_per_service: 200, name_bytes: 128, age: Nanos::from_secs(3600) }
    }
}

#[derive(Debug)]
struct Service {
    name: Box<str>,
    seen: Nanos,
    has_spans: bool,
    operations: SeededMap<Box<str>, OperationId>,
}

#[derive(Debug)]
struct Operation {
    service: ServiceId,
    name: Box<str>,
    seen: Nanos,
    has_spans: bool,
}

/// Names ↔ ids. Ids are never reused: state about a forgotten operation can harm no other.
#[derive(Debug)]
pub struct Names {
    limits: NameLimits,
    services: SeededMap<Box<str>, ServiceId>,
    by_id: SeededMap<ServiceId, Service>,
    operations: SeededMap<OperationId, Operation>,
    last: u32,
    others: u64,
}

/// Forgotten ids, so that callers can drop their state, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForgottenNames {
    /// Services, with all of their operations.
    pub services: Vec<ServiceId>,
    /// Operations of any service.
    pub operations: Vec<OperationId>,
}

impl Names {
    /// An empty set of names.
    #[must_use]
    pub fn new(limits: NameLimits) -> Self {
        let (services, by_id, operations) = (SeededMap::default(), SeededMap::default(), SeededMap::default());
        Self { limits, services, by_id, operations, last: 0, others: 0 }
    }

    /// The id of the service `name`, seen at `now`.
    pub fn service(&mut self, name: &str, now: Nanos) -> ServiceId {
        let name = self.usable(name);
        if let Some(&id) = self.services.get(name) {
            if let Some(service) = self.by_id.get_mut(&id) {
                service.seen = service.seen.max(now);
            }
            return id;
        }
        if name != OTHER && self.services.len() >= self.limits.services {
            self.others += 1;
            return self.service(OTHER, now);
        }
        let id = ServiceId(self.next());
        self.services.insert(name.into(), id);
        let operations = SeededMap::default();
        self.by_id.insert(id, Service { name: name.into(), seen: now, has_spans: false, operations });
        id
    }

    /// Whether the service `name` has an id.
    #[must_use]
    pub fn has_service(&self, name: &str) -> bool {
        self.services.contains_key(name)
    }

    /// Whether a span of this node has had the name of this service, and that of its `operation` if one is given, since
    /// they are known. What only verdicts, configurations and other nodes name has none.
    #[must_use]
    pub fn has_spans(&self, service: &str, operation: Option<&str>) -> bool {
        let Some(known) = self.services.get(service).and_then(|id| self.by_id.get(id)) else { return false };
        let Some(operation) = operation else { return known.has_spans };
        let operation = known.operations.get(operation).and_then(|id| self.operations.get(id));
        operation.is_some_and(|operation| operation.has_spans)
    }

    /// Number of services, with [`OTHER`].
    #[must_use]
    pub fn services(&self) -> usize {
        self.services.len()
    }

    /// The id of [`OTHER`], seen at `now`, in place of a new service whose sender has no room for it.
    pub fn other_service(&mut self, now: Nanos) -> ServiceId {
        self.others += 1;
        self.service(OTHER, now)
    }

    /// Like [`service`](Self::service), for a name that another node says. Such names are added as long as half of the
    /// places are free; the others are for services of this node.
    pub fn heard_service(&mut self, name: &str, now: Nanos) -> ServiceId {
        let name = self.usable(name);
        if 2 * self.services.len() >= self.limits.services && !self.services.contains_key(name) {
            self.others += 1;
            return self.service(OTHER, now);
        }
        self.service(name, now)
    }

    /// Like [`operation`](Self::operation), for a name that another node says, as in
    /// [`heard_service`](Self::heard_service).
    pub fn heard_operation(&mut self, service: ServiceId, name: &str, now: Nanos) -> OperationId {
        let name = self.usable(name);
        let limit = self.limits.operations_per_service;
        let is_new = |known: &Service| 2 * known.operations.len() >= limit && !known.operations.contains_key(name);
        if self.by_id.get(&service).is_some_and(is_new) {
            self.others += 1;
            return self.operation_id(service, OTHER, false, now);
        }
        self.operation_id(service, name, false, now)
    }

    /// The id of the operation `name` of `service`, of which a span came at `now`. An unknown or forgotten service is
    /// [`OTHER`].
    pub fn operation(&mut self, service: ServiceId, name: &str, now: Nanos) -> OperationId {
        self.operation_id(service, name, true, now)
    }

    /// The id of the operation `name` of `service`, because a span of this node has it or for another reason.
    fn operation_id(&mut self, service: ServiceId, name: &str, has_span: bool, now: Nanos) -> OperationId {
        let Some(known) = self.by_id.get_mut(&service) else {
            let other = self.service(OTHER, now);
            return self.operation_id(other, name, has_span, now);
        };
        known.has_spans |= has_span;
        // What is there can be used: of most spans the name is not looked at again.
        if let Some(&id) = known.operations.get(name) {
            if let Some(operation) = self.operations.get_mut(&id) {
                operation.seen = operation.seen.max(now);
                operation.has_spans |= has_span;
            }
            return id;
        }
        let is_full = known.operations.len() >= self.limits.operations_per_service;
        if name != OTHER && (is_full || !self.is_usable(name)) {
            self.others += 1;
            return self.operation_id(service, OTHER, has_span, now);
        }
        let id = OperationId(self.next());
        self.operations.insert(id, Operation { service, name: name.into(), seen: now, has_spans: has_span });
        if let Some(known) = self.by_id.get_mut(&service) {
            known.operations.insert(name.into(), id);
        }
        id
    }

    /// The id of the operation `name` of `service`, or of its [`OTHER`]; `None` if there is neither. Does not add a
    /// name.
    #[must_use]
    pub fn known_operation(&self, service: &str, name: &str) -> Option<OperationId> {
        let known = self.by_id.get(self.services.get(service)?)?;
        known.operations.get(name).or_else(|| known.operations.get(OTHER)).copied()
    }

    /// The name of `service`; [`OTHER`] if it is forgotten.
    #[must_use]
    pub fn service_name(&self, service: ServiceId) -> &str {
        self.by_id.get(&service).map_or(OTHER, |service| &service.name)
    }

    /// The name of `operation`; [`OTHER`] if it is forgotten.
    #[must_use]
    pub fn operation_name(&self, operation: OperationId) -> &str {
        self.operations.get(&operation).map_or(OTHER, |operation| &operation.name)
    }

    /// The service of `operation`; `None` if it is forgotten.
    #[must_use]
    pub fn service_of(&self, operation: OperationId) -> Option<ServiceId> {
        self.operations.get(&operation).map(|operation| operation.service)
    }

    /// How many times a name was replaced by [`OTHER`].
    #[must_use]
    pub const fn others(&self) -> u64 {
        self.others
    }

    /// Forgets names that were not seen for [`NameLimits::age`] before `now`. O(all names): to be called about once a
    /// minute.
    pub fn forget(&mut self, now: Nanos) -> ForgottenNames {
        let age = self.limits.age;
        let old = |seen: Nanos| now.since(seen).is_some_and(|unseen| unseen >= age);
        let mut forgotten = ForgottenNames::default();
        forgotten.services.extend(self.by_id.iter().filter(|(_, service)| old(service.seen)).map(|(id, _)| *id));
        for id in &forgotten.services {
            if let Some(service) = self.by_id.remove(id) {
                self.services.remove(&service.name);
            }
        }
        let by_id = &self.by_id;
        let gone = |operation: &Operation| old(operation.seen) || !by_id.contains_key(&operation.service);
        forgotten.operations.extend(self.operations.iter().filter(|(_, op)| gone(op)).map(|(id, _)| *id));
        for id in &forgotten.operations {
            let Some(operation) = self.operations.remove(id) else { continue };
            if let Some(service) = self.by_id.get_mut(&operation.service) {
                service.operations.remove(&operation.name);
            }
        }
        forgotten.services.sort_unstable();
        forgotten.operations.sort_unstable();
        forgotten
    }

    fn usable<'a>(&mut self, name: &'a str) -> &'a str {
        if self.is_usable(name) {
            return name;
        }
        self.others += 1;
        OTHER
    }

    fn is_usable(&self, name: &str) -> bool {
        !name.is_empty() && name.len() <= self.limits.name_bytes && name.chars().all(is_printable)
    }

    fn next(&mut self) -> u32 {
        self.last = self.last.saturating_add(1);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_keeps_its_id_until_it_is_forgotten() {
        let mut names = Names::new(NameLimits::default());
        let cart = names.service("cart", Nanos(0));
        let add = names.operation(cart, "AddItem", Nanos(0));

        assert_eq!(names.service("cart", Nanos(5)), cart);
        assert_eq!(names.operation(cart, "AddItem", Nanos::from_secs(1_800)), add);
        assert_eq!((names.service_name(cart), names.operation_name(add)), ("cart", "AddItem"));
        assert_eq!(names.service_of(add), Some(cart));

        let forgotten = names.forget(Nanos::from_secs(3_600).plus(Nanos(5)));
        assert_eq!(forgotten, ForgottenNames { services: vec![cart], operations: vec![add] });
        assert_eq!(names.operation_name(add), OTHER);
        assert_ne!(names.service("cart", Nanos::from_secs(4_000)), cart);
    }

    #[test]
    fn a_name_has_spans_once_a_span_of_this_node_had_it_and_until_it_is_forgotten() {
        let mut names = Names::new(NameLimits::default());
        // A verdict, a configured frontend, and what another node says.
        let cart = names.service("cart", Nanos(0));
        let heard = names.heard_service("payment", Nanos(0));
        names.heard_operation(heard, "Charge", Nanos(0));
        names.heard_operation(cart, "AddItem", Nanos(0));
        let known = [("cart", None), ("cart", Some("AddItem")), ("payment", None), ("payment", Some("Charge"))];
        let has_spans = |names: &Names| known.map(|(service, operation)| names.has_spans(service, operation));
        assert_eq!(has_spans(&names), [false; 4]);

        names.operation(cart, "AddItem", Nanos(1));
        names.operation(heard, "Refund", Nanos(1));

        assert_eq!(has_spans(&names), [true, true, true, false]);
        assert!(!names.has_spans("stock", None) && !names.has_spans("cart", Some("Refund")));
        names.forget(Nanos::from_secs(3_700));
        names.service("cart", Nanos::from_secs(3_700));
        assert!(!names.has_spans("cart", None));
    }

    #[test]
    fn what_would_break_a_metric_system_is_other() {
        let mut names = Names::new(NameLimits::default());
        let service = names.service("cart", Nanos(0));

        for name in ["", "a\nb", "a\u{202e}b", "a\u{200b}b", &"x".repeat(129)] {
            let operation = names.operation(service, name, Nanos(0));
            assert_eq!(names.operation_name(operation), OTHER);
        }
        assert_eq!(names.others(), 5);
        assert_eq!(names.operation(ServiceId(77), "x", Nanos(0)), names.operation(ServiceId(78), "x", Nanos(0)));
    }

    #[test]
    fn a_name_is_replaced_and_counted_once_whatever_is_wrong_with_it() {
        let mut names = Names::new(NameLimits { operations_per_service: 1, ..NameLimits::default() });
        let cart = names.service("cart", Nanos(0));
        let add = names.operation(cart, "AddItem", Nanos(0));
        let other = names.operation(cart, "a\nb", Nanos(0));

        // One too many, and one that could not be used anyway.
        assert_eq!(["Refund", "c\nd"].map(|name| names.operation(cart, name, Nanos(0))), [other; 2]);
        assert_eq!(["AddItem", OTHER].map(|name| names.operation(cart, name, Nanos(0))), [add, other]);
        assert_eq!((names.operation_name(other), names.others()), (OTHER, 3));
        // Of a service that is not known.
        let lost = names.operation(ServiceId(77), "e\nf", Nanos(0));
        assert_eq!((names.operation_name(lost), names.others()), (OTHER, 4));
    }

    proptest! {
        #[test]
        fn a_million_names_are_as_many_as_the_limits_say(spans in proptest::collection::vec((0..40_u32, 0..40_u32), 1..500)) {
            let limits = NameLimits { services: 5, operations_per_service: 7, ..NameLimits::default() };
            let mut names = Names::new(limits);
            let (mut services, mut operations) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());

            for (service, operation) in spans {
                let service = names.service(&format!("s{service}"), Nanos(0));
                let operation = names.operation(service, &format!("o{operation}"), Nanos(0));
                prop_assert_eq!(names.service_of(operation), Some(service));
                services.insert(service);
                operations.insert(operation);
            }

            // One more of each is `_other`.
            prop_assert!(services.len() <= 6);
            prop_assert!(operations.len() <= services.len() * 8);
        }
    }
}
