//! One tenant on one node: from spans and verdicts to kept traces.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hooks::id::{OperationId, OriginId, SenderId, ServiceId};
use hooks::paths::{Latencies, LatencyRule, NameLimits, Names, PathLimits, Paths};
use hooks::tracing::{
    Author, Budget, BudgetRule, Completeness, KeepOutcome, Keeper, KeptSpan, Limits, LossReason, Metric, OrderKey,
    Origin, PathStep, PeerLevels, Peers, Policies, Policy, Randomness, Rank, Reason, SeenCalls, ServiceCatalog, Span,
    SpanId, SpanIndex, SpanKind, Switches, TailBuffer, Threshold, TraceId, TriggerRule, Triggers, Verdict,
};
use wire::time::{Nanos, UnixNanos};

/// Midday of some day, in seconds.
const NOON: u64 = 1_700_000_000;

/// A frontend with two operations: `pay` goes through payment, `list` through catalog.
struct Shop {
    names: Names,
    paths: Paths,
    latencies: Latencies,
    keeper: Keeper,
    kept: BTreeMap<TraceId, (usize, String)>,
    frontend: ServiceId,
    payment: ServiceId,
    pay: OperationId,
    list: OperationId,
    charge: OperationId,
}

impl Shop {
    fn new(switches: Switches, budget: BudgetRule) -> Self {
        let mut names = Names::new(NameLimits::default());
        let [frontend, payment, catalog] = ["frontend", "payment", "catalog"].map(|n| names.service(n, Nanos::ZERO));
        let mut operation = |service, name| names.operation(service, name, Nanos::ZERO);
        let (pay, list) = (operation(frontend, "POST /pay"), operation(frontend, "GET /list"));
        let charge = operation(payment, "Charge");
        let mut paths = Paths::new(PathLimits::default());
        for (operation, service) in [(pay, frontend), (pay, payment), (list, frontend), (list, catalog)] {
            paths.learn(operation, service, Nanos::ZERO);
        }
        let limits = Limits { bytes: 64 << 20, ..Limits::default() };
        let buffer = TailBuffer::new(limits, OrderKey::new(1), Nanos::ZERO).expect("valid limits");
        let policies = Policies::new(switches, Budget::new(budget, Nanos::ZERO).expect("a valid rule"));
        let keeper = Keeper::new(buffer, Triggers::new(TriggerRule::default()), policies);
        let latencies = Latencies::new(LatencyRule::default());
        let kept = BTreeMap::new();
        Self { names, paths, latencies, keeper, kept, frontend, payment, pay, list, charge }
    }

    /// Runs `act` with the catalog and a sink that counts spans per trace and records the reason.
    fn act(&mut self, act: impl FnOnce(&mut Keeper, &ServiceCatalog<'_>, &mut dyn FnMut(KeptSpan<'_>))) {
        let catalog = ServiceCatalog { names: &self.names, paths: &self.paths, latencies: &self.latencies };
        let kept = &mut self.kept;
        act(&mut self.keeper, &catalog, &mut |given: KeptSpan<'_>| {
            let entry = kept.entry(given.trace).or_insert_with(|| (0, given.reason.to_string()));
            entry.0 += 1;
            assert_eq!(entry.1, given.reason.to_string());
        });
        assert!(self.keeper.buffer().account().balances());
    }

    /// The child's span comes first, the entry span last, as SDKs send them.
    fn request(&mut self, trace: TraceId, operation: OperationId, at: UnixNanos, now: Nanos) {
        let child = index(2, Some(1), SpanKind::Server, self.payment, self.charge, at);
        let entry = index(1, None, SpanKind::Server, self.frontend, operation, at);
        self.act(|keeper, catalog, sink| {
            keeper.span(&span(trace, child, false), catalog, now, &mut *sink);
            keeper.span(&span(trace, entry, true), catalog, now, sink);
        });
    }

    fn verdict(&mut self, service: ServiceId, second: u64) {
        self.verdict_of(None, service, second);
    }

    /// A verdict of another node, or of this one.
    fn verdict_of(&mut self, node: Option<&str>, service: ServiceId, second: u64) {
        let metric = Metric {
            title: "queue".into(),
            unit: "{job}".into(),
            seen: 40.0,
            expected: 2.0,
            of_distribution: false,
            replica: "".into(),
        };
        let service_name = self.names.service_name(service).into();
        let reason = Reason::Lmap {
            service: service_name,
            score: 9.0,
            gamma: 3.0,
            metrics: [metric].into(),
            incident: "".into(),
        };
        let at = UnixNanos::from_secs(second);
        let (reason, author) = (Arc::new(reason), node.map(Author::named));
        let origin = if node.is_some() { Origin::Elsewhere(Peers::one(0)) } else { Origin::Here };
        let verdict = Verdict { service, origin, author, from: at, at, breakdown: None, weight: 3.0, reason };
        self.keeper.verdict(&verdict, at);
    }

    fn tick(&mut self, now: Nanos) {
        self.act(|keeper, catalog, sink| keeper.tick(catalog, now, sink));
    }
}

fn index(
    id: u64,
    parent: Option<u64>,
    kind: SpanKind,
    service: ServiceId,
    operation: OperationId,
    start: UnixNanos,
) -> SpanIndex {
    let span_id = |id: u64| SpanId::new(id.to_be_bytes());
    SpanIndex {
        id: span_id(id).expect("not zero"),
        parent: parent.and_then(span_id),
        kind,
        service,
        operation,
        origin: OriginId(0),
        start,
        end: start.plus(Nanos::from_millis(20)),
        error: false,
    }
}

fn span(trace: TraceId, index: SpanIndex, entry: bool) -> Span<'static> {
    let (sender, trigger, randomness, threshold) = (SenderId::default(), None, None, None);
    Span { trace, index, sender, entry, trigger, randomness, threshold, encoded: &[7; 200] }
}

/// Ids whose lower 56 bits are small: a floor of less than a half keeps none of them.
fn trace(number: u64) -> TraceId {
    TraceId::new(u128::from(number + 1).to_be_bytes()).expect("not zero")
}

fn at(second: u64, millis: u64) -> UnixNanos {
    UnixNanos::from_secs(NOON + second).plus(Nanos::from_millis(millis))
}

#[test]
fn a_verdict_keeps_what_overlapped_it_on_its_path_and_nothing_else() {
    let mut shop = Shop::new(Switches::default(), BudgetRule::default());
    for second in 0..20 {
        let now = Nanos::from_secs(second);
        shop.request(trace(second * 2), shop.pay, at(second, 500), now);
        shop.request(trace(second * 2 + 1), shop.list, at(second, 500), now);
    }

    shop.verdict(shop.payment, NOON + 10);
    shop.tick(Nanos::from_secs(20));

    // The verdict's second, and the one before it.
    let expected = [trace(18), trace(20)];
    assert_eq!(shop.kept.keys().copied().collect::<Vec<_>>(), expected);
    let (spans, reason) = &shop.kept[&trace(20)];
    assert_eq!((*spans, reason.as_str()), (2, "payment: score 9.0, threshold 3.0; queue 40, expected 2"));
    let decided: Vec<_> = shop.keeper.decided().into_iter().map(|(trace, _)| trace).collect();
    assert_eq!(decided.len(), 2);
    assert!(shop.keeper.decided().is_empty());
}

#[test]
fn while_a_second_is_on_requests_are_kept_as_their_entry_comes() {
    let mut shop = Shop::new(Switches::default(), BudgetRule::default());
    shop.verdict(shop.payment, NOON + 10);

    shop.request(trace(1), shop.pay, at(10, 100), Nanos::from_secs(11));
    shop.request(trace(2), shop.pay, at(12, 100), Nanos::from_secs(12));

    assert_eq!(shop.kept.keys().copied().collect::<Vec<_>>(), [trace(1)]);
    assert_eq!(shop.kept[&trace(1)].0, 2);
}

/// What is kept of an alarm's second: four requests that look as usual, one of them that every share keeps, one that is
/// slow as its last span says, and one with an error. `learnt`: as many requests that took 30 ms came before.
fn kept_in_alarm(unremarkable: Option<Threshold>, learnt: u32) -> BTreeSet<TraceId> {
    let switches = Switches { floor: None, error: false, latency: false, unremarkable, ..Switches::default() };
    let mut shop = Shop::new(switches, BudgetRule::default());
    for _ in 0..learnt {
        shop.latencies.learn(shop.pay, Nanos::from_millis(30), false, Nanos::ZERO);
    }
    let (now, start) = (Nanos::from_secs(11), at(10, 100));
    shop.verdict(shop.payment, NOON + 10);
    for usual in [trace(1), trace(2), trace(3), chosen_by_all()] {
        shop.request(usual, shop.pay, start, now);
    }
    let child = index(2, Some(1), SpanKind::Server, shop.payment, shop.charge, start);
    let entry = index(1, None, SpanKind::Server, shop.frontend, shop.pay, start);
    let slow = SpanIndex { end: start.plus(Nanos::from_millis(200)), ..entry };
    let failed = SpanIndex { error: true, ..entry };
    shop.act(|keeper, catalog, sink| {
        keeper.span(&span(trace(4), child, false), catalog, now, &mut *sink);
        keeper.span(&span(trace(4), slow, true), catalog, now, &mut *sink);
        keeper.span(&span(trace(5), failed, true), catalog, now, sink);
    });
    shop.tick(Nanos::from_secs(12));
    assert!(shop.kept.get(&trace(4)).is_none_or(|(spans, _)| *spans == 2), "whole");
    shop.kept.into_keys().collect()
}

/// A trace that any share has.
fn chosen_by_all() -> TraceId {
    TraceId::new(u128::from(u64::MAX).to_be_bytes()).expect("not zero")
}

#[test]
fn of_what_looks_as_usual_in_an_alarm_a_share_is_kept_and_of_the_rest_everything() {
    let all = BTreeSet::from([trace(1), trace(2), trace(3), trace(4), trace(5), chosen_by_all()]);
    let remarkable = BTreeSet::from([trace(4), trace(5)]);
    let with_share = BTreeSet::from([trace(4), trace(5), chosen_by_all()]);

    assert_eq!(kept_in_alarm(Some(Threshold::ALL), 1_000), all);
    assert_eq!(kept_in_alarm(None, 1_000), remarkable);
    assert_eq!(kept_in_alarm(Threshold::keeping(0.1).ok(), 1_000), with_share);
    assert_eq!(kept_in_alarm(None, 999), all, "what is usual is not known yet");
}

#[test]
fn late_spans_follow_and_are_paid_for() {
    let mut shop = Shop::new(Switches::default(), BudgetRule::default());
    shop.verdict(shop.payment, NOON + 10);
    shop.request(trace(1), shop.pay, at(10, 100), Nanos::from_secs(11));
    let left = shop.keeper.policies().budget().left();

    shop.request(trace(1), shop.pay, at(10, 100), Nanos::from_secs(11));

    assert_eq!(shop.kept[&trace(1)].0, 4);
    assert!(shop.keeper.policies().budget().left() < left);
}

#[test]
fn errors_and_what_services_ask_for_are_kept_and_switched_off() {
    for on in [true, false] {
        let switches = Switches { error: on, trigger: on, ..Switches::default() };
        let mut shop = Shop::new(switches, BudgetRule::default());
        let entry = index(1, None, SpanKind::Server, shop.frontend, shop.pay, at(1, 0));
        let failed = SpanIndex { error: true, service: shop.payment, operation: shop.charge, ..entry };

        shop.act(|keeper, catalog, sink| {
            keeper.span(&span(trace(1), failed, false), catalog, Nanos::ZERO, &mut *sink);
            let requested = Span { trigger: Some("refund"), ..span(trace(2), entry, true) };
            keeper.span(&requested, catalog, Nanos::ZERO, &mut *sink);
            keeper.span(&span(trace(3), entry, true), catalog, Nanos::ZERO, sink);
        });

        let reasons: Vec<_> = shop.kept.values().map(|(_, reason)| reason.as_str()).collect();
        let expected: &[&str] = if on { &["payment: Charge ended in an error", "asked for: refund"] } else { &[] };
        assert_eq!(reasons, expected);
    }
}

#[test]
fn a_request_above_the_learnt_quantile_is_kept_once_enough_was_learnt() {
    let mut shop = Shop::new(Switches::default(), BudgetRule::default());
    let slow = |shop: &Shop| SpanIndex {
        end: at(2, 0),
        ..index(1, None, SpanKind::Server, shop.frontend, shop.pay, at(1, 0))
    };

    let entry = slow(&shop);
    shop.act(|keeper, catalog, sink| keeper.span(&span(trace(1), entry, true), catalog, Nanos::ZERO, sink));
    assert!(shop.kept.is_empty());
    (0..1_000).for_each(|_| shop.latencies.learn(shop.pay, Nanos::from_millis(20), false, Nanos::ZERO));
    shop.act(|keeper, catalog, sink| keeper.span(&span(trace(2), entry, true), catalog, Nanos::ZERO, sink));

    let reason = &shop.kept[&trace(2)].1;
    assert!(reason.starts_with("POST /pay took 1 s, 99 % take less than 2"), "{reason}");
}

#[test]
fn the_floor_keeps_the_share_that_it_says_and_only_it_says_one() {
    let floor = Threshold::keeping(0.1).unwrap();
    let switches = Switches { floor: Some(floor), ..Switches::default() };
    // A budget that is nothing beside the floor: it is kept all the same.
    let budget = BudgetRule { bytes_per_s: 1, ..BudgetRule::default() };
    let mut shop = Shop::new(switches, budget);
    let mut expected = 0;
    for number in 0..5_000_u64 {
        let spread = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        let trace = TraceId::new((spread | 1 << 127).to_be_bytes()).unwrap();
        expected += usize::from(floor.keeps(Randomness::of(trace)));

        shop.request(trace, shop.pay, at(number, 0), Nanos::from_millis(number));
    }

    assert_eq!(shop.kept.len(), expected);
    assert!((400..600).contains(&expected), "{expected}");
    assert!(shop.kept.values().all(|(spans, reason)| *spans == 2 && reason == "one of 10 %"));
    // Every node finds them by itself: there is nothing to announce.
    assert!(shop.keeper.decided().is_empty());
    assert_eq!(shop.keeper.policies().granted(Policy::Floor).spans, 2 * expected as u64);
    assert!(shop.keeper.policies().budget().forgiven() > 0.0);
}

#[test]
fn endless_triggers_spend_the_tenants_budget_and_no_more() {
    let budget = BudgetRule { bytes_per_s: 10_000, ..BudgetRule::default() };
    let mut shop = Shop::new(Switches { floor: None, ..Switches::default() }, budget);
    for number in 0..20_000_u64 {
        let entry = index(1, None, SpanKind::Server, shop.frontend, shop.pay, at(0, 0));
        let requested = Span { trigger: Some("me"), ..span(trace(number), entry, true) };
        let now = Nanos::from_millis(number);
        shop.act(|keeper, catalog, sink| keeper.span(&requested, catalog, now, sink));
    }

    let policies = shop.keeper.policies();
    let bytes = policies.granted(Policy::Trigger).bytes;
    // 20 s at 10 kB/s and a burst of ten seconds' worth.
    assert!((100_000..=301_000).contains(&bytes), "{bytes}");
    assert!(policies.yielded(Policy::Trigger) > 18_000);
    assert_eq!(shop.keeper.buffer().account().kept.bytes, bytes);
}

/// A tenth of each trace has arrived when a policy selects it; the rest comes at once, or with the next tick.
#[test]
fn traces_that_are_selected_early_are_paid_for_with_all_of_their_spans() {
    const SECONDS: u64 = 60;
    let budget = BudgetRule { bytes_per_s: 10_000, ..BudgetRule::default() };
    for (policy, is_member) in [Policy::Lmap, Policy::Trigger].into_iter().flat_map(|p| [(p, false), (p, true)]) {
        let mut shop = Shop::new(Switches { floor: None, ..Switches::default() }, budget);
        if is_member {
            shop.keeper.join(None, Nanos::ZERO);
        }
        for tick in 0..SECONDS * 10 {
            let (now, wall) = (Nanos::from_millis(tick * 100), at(tick / 10, 0));
            if policy == Policy::Lmap && tick % 10 == 0 {
                shop.verdict(shop.payment, NOON + tick / 10);
            }
            let entry = index(1, None, SpanKind::Server, shop.frontend, shop.pay, wall);
            let child = index(2, Some(1), SpanKind::Server, shop.payment, shop.charge, wall);
            for number in tick * 5..tick * 5 + 5 {
                let trigger = (policy == Policy::Trigger).then_some("me");
                let first = Span { trigger, ..span(trace(number), entry, true) };
                shop.act(|keeper, catalog, sink| {
                    keeper.span(&first, catalog, now, &mut *sink);
                    (0..9).for_each(|_| keeper.span(&span(trace(number), child, false), catalog, now, &mut *sink));
                });
            }
            shop.tick(now);
            // No other node is alive.
            shop.act(|keeper, _, sink| {
                for (trace, reason) in keeper.decided().into_iter().filter(|_| is_member) {
                    let released = keeper.release(trace, &reason, now, &mut *sink);
                    assert!(matches!(released, KeepOutcome::Released { .. }));
                }
            });
        }

        let kept = shop.keeper.buffer().account().kept.bytes;
        let allowed = budget.bytes_per_s * (SECONDS + 10);
        // Of 6 MB, and with a trace that was begun on the last tokens.
        let bounds = allowed / 2..=allowed + 2_000;
        assert!(bounds.contains(&kept), "{policy:?}, member: {is_member}: {kept} bytes, {allowed} allowed");
    }
}

#[test]
fn what_another_node_decided_is_kept_whatever_the_budget() {
    let budget = BudgetRule { bytes_per_s: 1, ..BudgetRule::default() };
    let mut shop = Shop::new(Switches { floor: None, ..Switches::default() }, budget);
    shop.request(trace(1), shop.list, at(0, 0), Nanos::ZERO);
    let reason = Arc::new(Reason::Error { service: "cart".into(), operation: "AddItem".into() });

    let mut outcomes = Vec::new();
    shop.act(|keeper, _, sink| {
        outcomes.extend([1, 2].map(|number| keeper.keep(trace(number), &reason, Nanos::ZERO, &mut *sink)));
    });

    assert!(matches!(outcomes[..], [KeepOutcome::Released { .. }, KeepOutcome::Unseen(_)]));
    // Late spans of both.
    for number in [1, 2] {
        shop.request(trace(number), shop.list, at(0, 0), Nanos::ZERO);
    }
    assert_eq!(shop.kept[&trace(1)], (4, "cart: AddItem ended in an error".to_owned()));
    assert_eq!(shop.kept[&trace(2)].0, 2);
    let budget = shop.keeper.policies().budget();
    assert!((budget.left() - 0.5).abs() < 1e-9 && budget.forgiven() > 0.0, "half is for this node's own policies");
    assert!(shop.keeper.decided().is_empty());
}

#[test]
fn what_a_peer_has_evicted_is_not_kept_for_it_and_is_for_everybody_else() {
    let everything: PeerLevels = [(Author::named("b"), Rank::at(u64::MAX))].into_iter().collect();
    for (who, kept, passed_over) in [(None, 2, 0), (Some("c"), 2, 0), (Some("b"), 0, 2)] {
        let mut shop = Shop::new(Switches::default(), BudgetRule::default());
        shop.keeper.set_peer_eviction_levels(everything.clone(), Nanos::ZERO);

        shop.request(trace(1), shop.pay, at(10, 100), Nanos::from_secs(11));
        shop.verdict_of(who, shop.payment, NOON + 10);
        shop.tick(Nanos::from_secs(12));
        shop.request(trace(2), shop.pay, at(10, 200), Nanos::from_secs(12));

        let found = (shop.kept.len(), shop.keeper.policies().passed_over());
        assert_eq!(found, (kept, passed_over), "a verdict of {who:?}");
    }

    let mut shop = Shop::new(Switches::default(), BudgetRule::default());
    shop.keeper.set_peer_eviction_levels(everything, Nanos::ZERO);
    (0..1_000).for_each(|_| shop.latencies.learn(shop.pay, Nanos::from_millis(20), false, Nanos::ZERO));
    let entry = SpanIndex { end: at(2, 0), ..index(1, None, SpanKind::Server, shop.frontend, shop.pay, at(1, 0)) };
    shop.act(|keeper, catalog, sink| keeper.span(&span(trace(3), entry, true), catalog, Nanos::ZERO, sink));
    assert!(shop.kept.contains_key(&trace(3)), "a slow request is this node's own finding");
}

#[test]
fn paths_are_learnt_from_traces_that_leave() {
    let mut shop = Shop::new(Switches { floor: None, ..Switches::default() }, BudgetRule::default());
    for number in 0..200 {
        shop.request(trace(number), shop.pay, at(0, 0), Nanos::ZERO);
    }

    shop.tick(Nanos::from_secs(60));

    let passed = shop.keeper.path_steps();
    let steps = [(shop.frontend, shop.pay), (shop.payment, shop.charge)];
    let steps = steps.map(|(service, requested)| PathStep { operation: shop.pay, service, requested: Some(requested) });
    assert_eq!(passed, BTreeSet::from(steps));
    assert!(shop.keeper.path_steps().is_empty());
    assert!(shop.keeper.buffer().is_empty());
}

#[test]
fn paths_are_learnt_once_from_traces_that_have_waited_for_ten_seconds_and_wait_on() {
    let mut shop = Shop::new(Switches { floor: None, ..Switches::default() }, BudgetRule::default());
    for number in 0..200 {
        shop.request(trace(number), shop.pay, at(0, 0), Nanos::ZERO);
    }

    let both = [shop.frontend, shop.payment];
    for (millis, learnt) in [(9_999, &[][..]), (10_000, &both[..]), (11_000, &[][..])] {
        shop.tick(Nanos::from_millis(millis));
        let passed: Vec<_> = shop.keeper.path_steps().into_iter().map(|passed| passed.service).collect();
        assert_eq!(passed, learnt, "after {millis} ms");
    }
    assert_eq!(shop.keeper.buffer().len(), 200);
}

#[test]
fn nothing_is_learnt_before_it_leaves_from_a_trace_whose_first_span_is_to_come() {
    let mut shop = Shop::new(Switches { floor: None, ..Switches::default() }, BudgetRule::default());
    for number in 0..200 {
        let inner = index(2, Some(1), SpanKind::Server, shop.payment, shop.charge, at(0, 0));
        shop.act(|keeper, catalog, sink| keeper.span(&span(trace(number), inner, true), catalog, Nanos::ZERO, sink));
    }

    shop.tick(Nanos::from_secs(59));
    assert_eq!(shop.keeper.path_steps(), BTreeSet::new());
    shop.tick(Nanos::from_secs(60));
    assert_eq!(shop.keeper.path_steps().len(), 1);
}

#[test]
fn who_calls_whom_is_learnt_from_traces_that_leave_whether_they_are_kept_or_not() {
    for kept in [false, true] {
        let mut shop = Shop::new(Switches { floor: None, ..Switches::default() }, BudgetRule::default());
        for number in 0..200 {
            shop.request(trace(number), shop.pay, at(0, 0), Nanos::ZERO);
        }
        if kept {
            shop.verdict(shop.payment, NOON);
        }

        shop.tick(Nanos::from_secs(if kept { 1 } else { 60 }));
        assert_eq!(shop.kept.len(), if kept { 200 } else { 0 });
        let mut calls = shop.keeper.calls();
        assert_eq!(calls.answered.is_empty(), kept, "of a kept trace, spans may still come");
        if kept {
            shop.tick(Nanos::from_secs(11));
            calls = shop.keeper.calls();
        }

        assert_eq!(calls.answered.keys().collect::<Vec<_>>(), [&(shop.frontend, shop.payment)]);
        let counted = calls.answered[&(shop.frontend, shop.payment)];
        // One trace in sixteen, by its id.
        assert!(4 < counted.calls && counted.calls < 30, "{counted:?}");
        assert_eq!(shop.keeper.calls(), SeenCalls::new());
    }
}

#[test]
fn calls_that_nobody_answered_are_counted_of_traces_that_wait_and_of_kept_ones_ten_seconds_later() {
    for error in [true, false] {
        let switches = Switches { floor: None, error, ..Switches::default() };
        let mut shop = Shop::new(switches, BudgetRule::default());
        for number in 0..400 {
            let call = index(2, Some(1), SpanKind::Client, shop.frontend, shop.pay, at(0, 0));
            let call = SpanIndex { error: true, ..call };
            shop.act(|keeper, catalog, sink| {
                keeper.span(&span(trace(number), call, false), catalog, Nanos::ZERO, sink);
            });
        }
        assert_eq!(shop.kept.is_empty(), !error);

        shop.tick(Nanos::from_secs(9));
        assert_eq!(shop.keeper.calls(), SeenCalls::new(), "the callee's span may come");
        shop.tick(Nanos::from_secs(11));
        let unanswered = shop.keeper.calls().unanswered;
        shop.tick(Nanos::from_secs(60));

        let wanted = |number: &u64| shop.keeper.buffer().rank(trace(*number)).position().is_multiple_of(16);
        let taught = (0..400).filter(wanted).count() as u64;
        assert_eq!(unanswered, BTreeMap::from([((shop.frontend, shop.pay), taught)]), "{error}");
        assert!(taught > 0 && shop.keeper.calls().unanswered.is_empty(), "once");
    }
}

#[test]
fn of_calls_the_failed_ones_are_counted_though_their_traces_are_kept_before_the_caller_is_heard_of() {
    let mut shop = Shop::new(Switches { floor: None, ..Switches::default() }, BudgetRule::default());
    for number in 0..400 {
        let child = index(2, Some(1), SpanKind::Server, shop.payment, shop.charge, at(0, 0));
        let entry = index(1, None, SpanKind::Server, shop.frontend, shop.pay, at(0, 0));
        let child = SpanIndex { error: number % 2 == 0, ..child };
        for (arrives, sent) in [(Nanos::ZERO, child), (Nanos::from_secs(4), entry)] {
            shop.act(|keeper, catalog, sink| keeper.span(&span(trace(number), sent, true), catalog, arrives, sink));
        }
    }
    assert_eq!(shop.kept.len(), 200, "each that failed");

    let (mut calls, mut failed) = (0, 0);
    for second in [5, 10, 60] {
        shop.tick(Nanos::from_secs(second));
        for counted in shop.keeper.calls().answered.values() {
            (calls, failed) = (calls + counted.calls, failed + counted.failed);
        }
    }

    let wanted = |number: &u64| shop.keeper.buffer().rank(trace(*number)).position().is_multiple_of(16);
    let taught: Vec<u64> = (0..400).filter(wanted).collect();
    assert_eq!(calls, taught.len() as u64);
    assert_eq!(failed, taught.iter().filter(|number| *number % 2 == 0).count() as u64);
    assert!(0 < failed && failed < calls, "{failed} of {calls}");
}

/// A span of `trace` that ended in an error, or followed one.
fn piece(shop: &mut Shop, trace: TraceId, number: u64, error: bool, now: Nanos) {
    let index = index(number + 2, Some(1), SpanKind::Server, shop.payment, shop.charge, at(1, 0));
    shop.act(|keeper, catalog, sink| {
        keeper.span(&span(trace, SpanIndex { error, ..index }, false), catalog, now, sink);
    });
}

/// A kilobyte in a second, and as much saved: a burst of errors has nearly 2 kB and as much on credit.
fn with_a_small_budget() -> Shop {
    let budget = BudgetRule { bytes_per_s: 1_000, burst: Nanos::from_secs(1), ..BudgetRule::default() };
    Shop::new(Switches { floor: None, lmap: false, latency: false, ..Switches::default() }, budget)
}

#[test]
fn a_trace_ends_where_nobody_can_pay_for_what_follows_and_is_to_be_marked() {
    let (mut shop, now) = (with_a_small_budget(), Nanos::from_secs(1));

    (0..100).for_each(|number| piece(&mut shop, trace(1), number, number == 0, now));

    let kept = shop.kept[&trace(1)].0 as u64;
    assert!((5..=11).contains(&kept), "{kept} of 100 spans of 200 bytes");
    let account = *shop.keeper.buffer().account();
    assert_eq!((account.lost(LossReason::OverBudget).spans, account.lost(LossReason::Late).spans), (1, 99 - kept));
    let cut = shop.keeper.cut();
    assert_eq!(
        cut.iter().map(|(trace, reason)| (*trace, reason.policy())).collect::<Vec<_>>(),
        [(trace(1), Policy::Error)]
    );
    assert_eq!(shop.keeper.cut().len(), 0, "once");
    // Later, when there is a budget again, it does not go on.
    piece(&mut shop, trace(1), 100, false, Nanos::from_secs(9));
    assert_eq!(shop.kept[&trace(1)].0 as u64, kept);
    piece(&mut shop, trace(2), 0, true, Nanos::from_secs(9));
    assert_eq!(shop.kept[&trace(2)].0, 1, "others are kept");
}

#[test]
fn a_trace_that_waits_for_another_node_is_cut_and_marked_when_it_is_released() {
    let (mut shop, now) = (with_a_small_budget(), Nanos::from_secs(1));
    shop.keeper.join(None, Nanos::ZERO);

    (0..100).for_each(|number| piece(&mut shop, trace(1), number, number == 0, now));

    let over = shop.keeper.buffer().account().lost(LossReason::OverBudget).spans;
    assert!((89..=95).contains(&over), "{over} of 100 spans of 200 bytes");
    let decided = shop.keeper.decided();
    let mut released = None;
    shop.act(|keeper, _, sink| released = Some(keeper.release(trace(1), &decided[0].1, now, sink)));
    let Some(KeepOutcome::Released { tally, completeness }) = released else { panic!("{released:?}") };
    assert_eq!((tally.spans, completeness), (100 - over, Completeness::Missing { spans: over as u32 }));
    assert_eq!(shop.keeper.cut().len(), 0, "its root or a mark says it");
}
