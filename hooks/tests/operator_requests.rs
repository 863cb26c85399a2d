//! What operators ask for on one node: from a request to kept traces.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

use std::collections::BTreeMap;

use hooks::id::{OperationId, OriginId, SenderId, ServiceId};
use hooks::paths::{Latencies, LatencyRule, NameLimits, Names, PathLimits, Paths};
use hooks::tracing::{
    Budget, BudgetRule, Keeper, KeptSpan, Limits, OperatorRequest, OperatorRequestError, OrderKey, Policies, Policy,
    ServiceCatalog, Span, SpanId, SpanIndex, SpanKind, Switches, TailBuffer, TraceId, TriggerRule, Triggers,
};
use wire::time::{Nanos, UnixNanos};

/// Bytes of each span.
const SPAN: usize = 200;
/// The reason of what [`Node::ask`] asks for.
const REASON: &str = "asked for: it is slow, by user 7";

/// A node on which payment does two things, and catalog one.
struct Node {
    names: Names,
    paths: Paths,
    latencies: Latencies,
    keeper: Keeper,
    /// Spans and reason of each kept trace.
    kept: BTreeMap<TraceId, (usize, String)>,
    payment: ServiceId,
    catalog: ServiceId,
    charge: OperationId,
    refund: OperationId,
    list: OperationId,
}

impl Node {
    /// Without a floor, with so many bytes to keep in a second.
    fn new(bytes_per_s: u64) -> Self {
        let mut names = Names::new(NameLimits::default());
        let [payment, catalog] = ["payment", "catalog"].map(|name| names.service(name, Nanos::ZERO));
        let mut operation = |service, name| names.operation(service, name, Nanos::ZERO);
        let (charge, refund) = (operation(payment, "Charge"), operation(payment, "Refund"));
        let list = operation(catalog, "List");
        let limits = Limits { bytes: 64 << 20, ..Limits::default() };
        let buffer = TailBuffer::new(limits, OrderKey::new(1), Nanos::ZERO).unwrap();
        let budget = BudgetRule { bytes_per_s, ..BudgetRule::default() };
        // What services ask for is off: that is about them.
        let switches = Switches { floor: None, trigger: false, ..Switches::default() };
        let policies = Policies::new(switches, Budget::new(budget, Nanos::ZERO).unwrap());
        Self {
            names,
            paths: Paths::new(PathLimits::default()),
            latencies: Latencies::new(LatencyRule::default()),
            keeper: Keeper::new(buffer, Triggers::new(TriggerRule::default()), policies),
            kept: BTreeMap::new(),
            payment,
            catalog,
            charge,
            refund,
            list,
        }
    }

    fn act(&mut self, act: impl FnOnce(&mut Keeper, &ServiceCatalog<'_>, &mut dyn FnMut(KeptSpan<'_>))) {
        let catalog = ServiceCatalog { names: &self.names, paths: &self.paths, latencies: &self.latencies };
        let kept = &mut self.kept;
        act(&mut self.keeper, &catalog, &mut |given: KeptSpan<'_>| {
            let entry = kept.entry(given.trace).or_insert_with(|| (0, given.reason.to_string()));
            entry.0 += 1;
        });
        assert!(self.keeper.buffer().account().balances());
    }

    /// One span, which has no parent and is no entry.
    fn span(&mut self, trace: TraceId, (service, operation): (ServiceId, OperationId), error: bool, now: Nanos) {
        let start = UnixNanos::from_secs(1_700_000_000);
        let index = SpanIndex {
            id: SpanId::new(now.0.to_be_bytes()).unwrap(),
            parent: None,
            kind: SpanKind::Server,
            service,
            operation,
            origin: OriginId(0),
            start,
            end: start.plus(Nanos::from_millis(20)),
            error,
        };
        let (sender, trigger, randomness, threshold) = (SenderId::default(), None, None, None);
        let encoded = &[7; SPAN];
        let span = Span { trace, index, sender, entry: false, trigger, randomness, threshold, encoded };
        self.act(|keeper, catalog, sink| keeper.span(&span, catalog, now, sink));
    }

    fn tick(&mut self, now: Nanos) {
        self.act(|keeper, catalog, sink| keeper.tick(catalog, now, sink));
    }

    /// Asks for traces through a service, for 30 s.
    fn ask(&mut self, service: &str, operation: Option<&str>, now: Nanos) -> Result<(), OperatorRequestError> {
        self.ask_for((service, operation), 30, now)
    }

    /// The same for so many seconds.
    fn ask_for(
        &mut self,
        (service, operation): (&str, Option<&str>),
        seconds: u64,
        now: Nanos,
    ) -> Result<(), OperatorRequestError> {
        let request = OperatorRequest {
            service: service.to_owned(),
            short_name: None,
            operation: operation.map(str::to_owned),
            length: Nanos::from_secs(seconds),
            why: "it is slow".to_owned(),
            by: "user 7".to_owned(),
        };
        self.keeper.ask(&request, &self.names, now)
    }

    fn kept(&self) -> Vec<TraceId> {
        self.kept.keys().copied().collect()
    }
}

fn trace(number: u64) -> TraceId {
    TraceId::new(u128::from(number + 1).to_be_bytes()).unwrap()
}

fn at(second: u64) -> Nanos {
    Nanos::from_secs(second)
}

#[test]
fn what_is_buffered_and_what_comes_of_the_service_is_kept_with_the_reason_until_the_time_is_over() {
    let mut node = Node::new(1_000_000);
    let (charge, list) = ((node.payment, node.charge), (node.catalog, node.list));
    node.span(trace(1), charge, false, at(1));
    node.span(trace(2), list, false, at(1));
    // A trace through both.
    node.span(trace(3), list, false, at(1));
    node.span(trace(3), charge, false, at(2));

    node.ask("payment", None, at(10)).unwrap();
    assert!(node.kept.is_empty(), "the buffer is searched with the next tick");
    node.tick(at(11));
    assert_eq!(node.kept(), [trace(1), trace(3)]);
    node.span(trace(4), charge, false, at(12));
    node.span(trace(5), list, false, at(12));
    node.span(trace(1), list, false, at(39));
    node.span(trace(6), charge, false, at(39));
    node.span(trace(7), charge, false, at(40));
    node.tick(at(41));

    assert_eq!(node.kept(), [trace(1), trace(3), trace(4), trace(6)]);
    assert_eq!(node.kept[&trace(1)], (2, REASON.to_owned()), "late spans follow");
    assert_eq!(node.kept[&trace(3)].0, 2, "whole");
    assert!(node.kept.values().all(|(_, reason)| reason == REASON), "{:?}", node.kept);
    assert_eq!(node.keeper.policies().operator_traces(), 4);
    assert_eq!(node.keeper.policies().granted(Policy::Trigger).spans, 5, "at the moment of the decision");
}

#[test]
fn one_operation_of_a_service_may_be_asked_for() {
    let mut node = Node::new(1_000_000);
    let (charge, refund) = ((node.payment, node.charge), (node.payment, node.refund));
    node.span(trace(1), charge, false, at(1));
    node.span(trace(2), refund, false, at(1));

    node.ask("payment", Some("Refund"), at(2)).unwrap();
    node.tick(at(3));
    node.span(trace(3), charge, false, at(4));
    node.span(trace(4), refund, false, at(4));

    assert_eq!(node.kept(), [trace(2), trace(4)]);
    let unknown = node.ask("payment", Some("List"), at(5)).unwrap_err();
    assert!(matches!(unknown, OperatorRequestError::NoOperation { .. }), "{unknown}: it is another service's");
    assert!(matches!(node.ask("cart", None, at(5)), Err(OperatorRequestError::NoService(_))));
    // Known by a verdict, or as a frontend, is not known by a span.
    node.names.service("cart", at(5));
    assert!(matches!(node.ask("cart", None, at(5)), Err(OperatorRequestError::NoService(_))));
}

#[test]
fn a_large_buffer_is_searched_a_part_at_a_time() {
    const TRACES: u64 = 20_000;
    let mut node = Node::new(1_000_000_000);
    let charge = (node.payment, node.charge);
    (0..TRACES).for_each(|number| node.span(trace(number), charge, false, at(1)));
    node.ask("payment", None, at(2)).unwrap();

    let mut after_ticks = Vec::new();
    for tick in 0..4 {
        node.tick(at(3 + tick));
        after_ticks.push(node.kept.len() as u64);
    }

    // A place and a span for each trace: half of 16,384.
    assert_eq!(after_ticks, [8_192, 16_384, TRACES, TRACES]);
}

#[test]
fn all_of_the_buffer_is_searched_for_a_request_that_is_over_and_for_one_that_comes_meanwhile() {
    const TRACES: u64 = 20_000;
    let mut node = Node::new(1_000_000_000);
    let (charge, list) = ((node.payment, node.charge), (node.catalog, node.list));
    (0..TRACES).for_each(|number| node.span(trace(number), charge, false, at(1)));
    node.span(trace(TRACES), list, false, at(1));
    node.ask_for(("payment", None), 1, at(2)).unwrap();

    node.tick(at(2));
    // Who asks in each tick does not have the search begin anew.
    node.ask("catalog", None, at(2)).unwrap();
    node.tick(at(3));
    node.ask_for(("catalog", None), 40, at(3)).unwrap();
    node.tick(at(4));
    assert_eq!(node.kept.len() as u64, TRACES, "though the second is over");
    (0..3).for_each(|tick| node.tick(at(5 + tick)));

    assert_eq!(node.kept.len() as u64, TRACES + 1, "and the other one, which waited");
    node.span(trace(TRACES + 1), charge, false, at(8));
    assert_eq!(node.kept.len() as u64, TRACES + 1, "what comes later was not asked for");
}

#[test]
fn what_is_only_shortened_is_not_searched_for_again() {
    let mut node = Node::new(10_000);
    let charge = (node.payment, node.charge);
    // More than the budget has.
    (0..1_000).for_each(|number| node.span(trace(number), charge, false, at(1)));
    node.ask_for(("payment", None), 50, at(2)).unwrap();
    node.tick(at(2));
    let kept = node.kept.len();
    assert!((1..1_000).contains(&kept), "{kept}");

    node.ask_for(("payment", None), 1, at(20)).unwrap();
    node.tick(at(20));
    assert_eq!(node.kept.len(), kept);
    node.ask_for(("payment", None), 50, at(20)).unwrap();
    node.tick(at(20));
    assert!(node.kept.len() > kept, "what was saved meanwhile is spent");
}

#[test]
fn what_operators_ask_for_yields_to_errors_when_the_budget_is_short() {
    const SECONDS: u64 = 60;
    let mut node = Node::new(10_000);
    let charge = (node.payment, node.charge);
    node.ask("payment", None, Nanos::ZERO).unwrap();
    for second in 0..SECONDS {
        if second % 20 == 0 {
            node.ask("payment", None, at(second)).unwrap();
        }
        for number in 0..200 {
            node.span(trace(second * 1_000 + number), charge, false, at(second).plus(Nanos(number + 1)));
        }
        node.span(trace(second * 1_000 + 999), charge, true, at(second).plus(Nanos(1_000)));
    }

    let policies = node.keeper.policies();
    let (asked, errors) = (policies.granted(Policy::Trigger), policies.granted(Policy::Error));
    // Four times what the budget has was asked for: 60 s at 10 kB/s, and a burst of ten seconds.
    assert!((200_000..=700_000).contains(&asked.bytes), "{asked:?}");
    assert!(policies.yielded(Policy::Trigger) > 5_000);
    assert_eq!(errors.spans, SECONDS, "all of them");
}

#[test]
fn what_is_selected_is_announced_to_other_nodes_once() {
    let mut node = Node::new(1_000_000);
    node.keeper.join(None, Nanos::ZERO);
    let charge = (node.payment, node.charge);
    node.span(trace(1), charge, false, at(1));
    node.ask("payment", None, at(2)).unwrap();

    node.tick(at(3));
    let decided = node.keeper.decided();
    assert!(matches!(&decided[..], [(of, reason)] if *of == trace(1) && reason.to_string() == REASON), "{decided:?}");
    assert!(node.kept.is_empty(), "another node has to have the decision first");
    // The buffer is searched again: what is pending is selected once.
    node.ask("payment", None, at(4)).unwrap();
    node.tick(at(5));
    assert!(node.keeper.decided().is_empty());
}
