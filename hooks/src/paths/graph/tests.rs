//! What is learnt, what is forgotten, and limits.

use proptest::prelude::*;

use super::*;

const PAY: OperationId = OperationId(1);
const LIST: OperationId = OperationId(2);

#[test]
fn a_service_that_is_not_passed_any_more_falls_off_the_path() {
    let mut paths = Paths::new(PathLimits::default());
    paths.learn(PAY, ServiceId(1), Nanos(0));
    paths.learn(PAY, ServiceId(2), Nanos(0));
    paths.learn(LIST, ServiceId(2), Nanos(0));
    let version = paths.version();

    paths.learn(PAY, ServiceId(1), Nanos::from_secs(1_000));
    assert_eq!(paths.version(), version);
    paths.forget(Nanos::from_secs(1_800));

    assert_eq!(paths.services(PAY).collect::<Vec<_>>(), [ServiceId(1)]);
    assert_eq!(paths.seen(PAY, ServiceId(1)), Some(Nanos::from_secs(1_000)));
    assert_eq!(paths.seen(PAY, ServiceId(2)), None);
    assert_eq!(paths.operations().collect::<Vec<_>>(), [PAY]);
    assert_eq!(paths.through(ServiceId(2)).count(), 0);
    assert!(paths.version() > version);
}

#[test]
fn indirect_callees_are_below_until_the_calls_are_forgotten() {
    let mut paths = Paths::new(PathLimits::default());
    let (frontend, payment, bank) = (ServiceId(1), ServiceId(2), ServiceId(3));
    for (caller, callee) in [(frontend, payment), (payment, bank), (bank, payment)] {
        paths.learn_call(caller, callee, Nanos(0));
    }

    assert_eq!(paths.below(frontend), BTreeSet::from([payment, bank]));
    assert_eq!((paths.below(payment), paths.below(bank)), (BTreeSet::from([bank]), BTreeSet::from([payment])));
    let version = paths.calls_version();

    paths.learn_call(frontend, payment, Nanos::from_secs(1_000));
    assert_eq!(paths.calls_version(), version, "nothing new");
    paths.forget(Nanos::from_secs(1_800));
    assert_eq!(paths.below(frontend), BTreeSet::from([payment]));
    assert!(paths.calls_version() > version);
}

#[test]
fn calls_are_counted_by_pair() {
    let mut paths = Paths::new(PathLimits::default());
    let pair = (ServiceId(1), ServiceId(2));

    paths.count_calls(pair, CallCounts::one(Nanos(5), false), Nanos(0));
    paths.count_calls(pair, CallCounts::one(Nanos(7), true), Nanos(1));
    paths.learn_call(ServiceId(2), ServiceId(3), Nanos(1));

    let counted: Vec<_> = paths.counted_calls().collect();
    let both = CallCounts { calls: 2, failed: 1, took: Nanos(12), unanswered: 0 };
    assert_eq!(counted, [(pair.0, pair.1, both), (ServiceId(2), ServiceId(3), CallCounts::default())]);
}

#[test]
fn calls_that_nobody_answered_are_of_the_callee_that_answers_the_others_of_their_operation() {
    let (shop, store, cart) = (ServiceId(1), ServiceId(2), ServiceId(3));
    let [stock, get, never] = [21, 22, 23].map(OperationId);
    let mut paths = Paths::new(PathLimits::default());
    let one = CallCounts::one(Nanos(5), false);
    let answered = [((shop, store), one), ((shop, cart), one)].into();
    let targets = [(stock, store), (get, store), (get, cart)].into();
    paths.take_calls(SeenCalls { answered, targets, ..SeenCalls::new() }, Nanos(0));
    let missed = || SeenCalls {
        unanswered: [((shop, stock), 3), ((shop, get), 5), ((shop, never), 7)].into(),
        ..SeenCalls::new()
    };

    paths.take_calls(missed(), Nanos::from_secs(1_000));

    let known = |paths: &Paths| paths.counted_calls().map(|(_, callee, of)| (callee, of)).collect::<Vec<_>>();
    let failing = CallCounts { unanswered: 3, ..one };
    assert_eq!(known(&paths), [(store, failing), (cart, one)], "several services answer the second one");
    // Whoever calls in vain still calls.
    paths.forget(Nanos::from_secs(1_800));
    paths.take_calls(missed(), Nanos::from_secs(1_801));
    assert_eq!(known(&paths), [(store, CallCounts { unanswered: 6, ..failing })]);
    assert_eq!(paths.pairs, 3, "the pair and two operations");
    paths.forget(Nanos::from_secs(3_601));
    assert_eq!((known(&paths).len(), paths.pairs), (0, 0));
}

#[test]
fn what_a_service_is_asked_for_is_known_when_it_was_seen_often_and_forgotten_like_paths() {
    let limits = PathLimits { requested: 2, ..PathLimits::default() };
    let (mut paths, payment) = (Paths::new(limits), ServiceId(2));
    let [charge, history, refund] = [11, 12, 13].map(OperationId);
    let passed = |requested| PathStep { operation: PAY, service: payment, requested: Some(requested) };
    let known = |paths: &Paths| paths.requested(PAY, payment).map(Iterator::collect::<Vec<_>>);

    for moment in 1..=31 {
        paths.take(&passed(charge), Nanos::from_secs(moment));
        paths.take(&passed(charge), Nanos::from_secs(moment));
    }
    assert_eq!(known(&paths), None, "31 moments");
    assert_eq!(paths.seen_requested(PAY, payment).collect::<Vec<_>>(), [charge]);
    paths.take(&passed(history), Nanos::from_secs(32));
    assert_eq!(known(&paths), Some(vec![charge, history]));
    assert!(paths.requested(PAY, ServiceId(3)).is_none() && paths.requested(LIST, payment).is_none());

    paths.take(&passed(refund), Nanos::from_secs(33));
    assert_eq!(known(&paths), None, "it is asked for more than is learnt");
    paths.forget(Nanos::from_secs(1_831));
    assert_eq!(known(&paths), Some(vec![history]));
    paths.take(&PathStep { requested: None, ..passed(charge) }, Nanos::from_secs(2_000));
    paths.forget(Nanos::from_secs(1_832));
    assert_eq!(known(&paths), None, "passed without a requested operation");
}

#[test]
fn calls_keep_to_the_limits() {
    let mut paths = Paths::new(PathLimits { operations: 2, services: 2, ..PathLimits::default() });
    for caller in 0..4 {
        (10..14).for_each(|callee| paths.learn_call(ServiceId(caller), ServiceId(callee), Nanos(0)));
    }

    let known = |caller| paths.below(ServiceId(caller)).len();
    assert_eq!((0..4).map(known).collect::<Vec<_>>(), [2, 2, 0, 0]);
    assert_eq!(paths.refused(), 2 + 2 + 4 + 4);
}

#[test]
fn all_pairs_together_keep_to_their_limit_and_those_that_are_forgotten_make_room() {
    let limits = PathLimits { pairs: 5, ..PathLimits::default() };
    let mut paths = Paths::new(limits);
    for operation in 1..=3 {
        let requested = Some(OperationId(operation + 10));
        paths.take(&PathStep { operation: OperationId(operation), service: ServiceId(1), requested }, Nanos(0));
    }
    paths.learn_call(ServiceId(1), ServiceId(2), Nanos(0));

    assert_eq!((paths.pairs, paths.calls().count(), paths.operations().count()), (5, 0, 3));
    assert_eq!(paths.refused(), 2, "the third requested operation, and the call");
    paths.learn(OperationId(1), ServiceId(1), Nanos::from_secs(1_000));
    paths.forget(Nanos::from_secs(1_800));
    assert_eq!(paths.pairs, 1);
    paths.learn_call(ServiceId(1), ServiceId(2), Nanos::from_secs(1_800));
    assert_eq!(paths.calls().count(), 1);
}

proptest! {
    #[test]
    fn both_directions_agree_and_limits_hold(pairs in proptest::collection::vec((0..12_u32, 0..12_u32, 0..50_u64), 1..300)) {
        let mut paths = Paths::new(PathLimits { operations: 8, services: 6, requested: 3, age: Nanos(20), ..PathLimits::default() });
        for (operation, service, now) in pairs {
            paths.learn(OperationId(operation), ServiceId(service), Nanos(now));
            paths.forget(Nanos(now));
            for operation in paths.operations() {
                prop_assert!(paths.services(operation).all(|service| paths.through(service).any(|o| o == operation)));
                prop_assert!((1..=6).contains(&paths.services(operation).count()));
            }
            let there: usize = paths.operations().map(|operation| paths.services(operation).count()).sum();
            let back: usize = (0..12).map(|service| paths.through(ServiceId(service)).count()).sum();
            prop_assert_eq!(there, back);
            prop_assert!(paths.operations().count() <= 8);
        }
    }
}
