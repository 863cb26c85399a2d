//! What verdicts keep, and what they do not.

use proptest::prelude::*;

use super::*;
use crate::paths::{Latencies, LatencyRule, NameLimits, Names, PathLimits};
use crate::tracing::{Metric, PathStep};

const PAY: OperationId = OperationId(1);
const LIST: OperationId = OperationId(2);

/// What is known of requests through 1 and 2, and 1 and 3.
struct Fixture {
    names: Names,
    paths: Paths,
    latencies: Latencies,
}

impl Fixture {
    fn new() -> Self {
        let mut paths = Paths::new(PathLimits::default());
        for (operation, service) in [(PAY, 1), (PAY, 2), (LIST, 1), (LIST, 3)] {
            paths.learn(operation, ServiceId(service), Nanos(0));
        }
        let (names, latencies) = (Names::new(NameLimits::default()), Latencies::new(LatencyRule::default()));
        Self { names, paths, latencies }
    }

    fn catalog(&self) -> ServiceCatalog<'_> {
        ServiceCatalog { names: &self.names, paths: &self.paths, latencies: &self.latencies }
    }
}

fn verdict(service: u32, second: u64, weight: f64) -> Verdict {
    let reason = Arc::new(Reason::Trigger { text: format!("{service} at {second}").into() });
    let at = UnixNanos::from_secs(second);
    let (service, origin, author) = (ServiceId(service), Origin::Here, None);
    Verdict { service, origin, author, from: at, at, breakdown: None, weight, reason }
}

fn secs(second: u64) -> UnixNanos {
    UnixNanos::from_secs(second)
}

#[test]
fn a_verdict_counts_for_the_operations_through_its_service_in_its_seconds() {
    let (learnt, mut triggers) = (Fixture::new(), Triggers::new(TriggerRule::default()));

    assert!(triggers.take(&verdict(2, 1_000, 1.5), secs(1_001)));
    assert!(!triggers.take(&verdict(2, 1_000, 1.2), secs(1_001)));

    assert!(triggers.is_on(&learnt.catalog(), PAY, secs(1_000)));
    assert!(triggers.is_on(&learnt.catalog(), PAY, secs(999)));
    assert!(!triggers.is_on(&learnt.catalog(), PAY, secs(998)));
    assert!(!triggers.is_on(&learnt.catalog(), PAY, secs(1_001)));
    assert!(!triggers.is_on(&learnt.catalog(), LIST, secs(1_000)));
    assert!(triggers.wanted(&learnt.catalog(), PAY, (secs(990), secs(1_005)), |_| false).is_some());
    assert!(triggers.wanted(&learnt.catalog(), PAY, (secs(990), secs(998)), |_| false).is_none());
}

#[test]
fn the_furthest_verdict_on_the_path_is_the_reason() {
    let (learnt, mut triggers) = (
        Fixture::new(),
        Triggers::new(TriggerRule { lead: Nanos::ZERO, window: Nanos::ZERO, ..TriggerRule::default() }),
    );
    for verdict in [verdict(1, 1_000, 1.1), verdict(2, 1_001, 3.0), verdict(3, 1_000, 9.0), verdict(1, 1_000, 1.3)] {
        let _ = triggers.take(&verdict, secs(1_001));
    }

    let mut why = |from, to| {
        triggers.wanted(&learnt.catalog(), PAY, (secs(from), secs(to)), |_| false).map(|(reason, _)| reason.to_string())
    };

    assert_eq!(why(1_000, 1_001).unwrap(), "asked for: 2 at 1001");
    assert_eq!(why(1_000, 1_000).unwrap(), "asked for: 1 at 1000");
    assert_eq!(why(1_002, 1_003), None);
}

/// About that metric, and one that is as usual.
fn lmap(service: u32, second: u64, weight: f64, (title, seen, expected): (&str, f64, f64)) -> Verdict {
    let unit = if title == "count" { "" } else { "s" };
    let of_distribution = title == "duration.p99";
    let metric = Metric { title: title.into(), unit: unit.into(), seen, expected, of_distribution, replica: "".into() };
    let usual = Metric {
        title: "usual".into(),
        unit: "".into(),
        seen: 1.0,
        expected: 1.0,
        of_distribution: false,
        replica: "".into(),
    };
    let service_name = service.to_string().into();
    let reason = Reason::Lmap {
        service: service_name,
        score: weight,
        gamma: 1.0,
        metrics: [metric, usual].into(),
        incident: "".into(),
    };
    Verdict { reason: Arc::new(reason), ..verdict(service, second, weight) }
}

/// Whose verdict keeps a trace of PAY in this second.
fn blamed(triggers: &mut Triggers, learnt: &Fixture, second: u64) -> Option<String> {
    let (reason, _) = triggers.wanted(&learnt.catalog(), PAY, (secs(second), secs(second)), |_| false)?;
    Some(reason.to_string().chars().next().unwrap().to_string())
}

#[test]
fn of_services_that_call_each_other_the_called_one_is_blamed_unless_it_has_less_to_do() {
    let (slow, idle) = (("duration.p99", 0.18, 0.02), ("count", 1.0, 5.0));
    let blamed = |calls: &[(u32, u32)], verdicts: &[(u32, f64, (&str, f64, f64))]| {
        let (mut learnt, mut triggers) = (
            Fixture::new(),
            Triggers::new(TriggerRule { lead: Nanos::ZERO, window: Nanos::ZERO, ..TriggerRule::default() }),
        );
        for (one, other) in calls {
            learnt.paths.learn_call(ServiceId(*one), ServiceId(*other), Nanos(0));
        }
        for (service, weight, metric) in verdicts {
            let _ = triggers.take(&lmap(*service, 1_000, *weight, *metric), secs(1_000));
        }
        blamed(&mut triggers, &learnt, 1_000).unwrap()
    };

    assert_eq!(blamed(&[(1, 2)], &[(1, 17.0, slow), (2, 5.0, slow)]), "2");
    assert_eq!(blamed(&[(1, 9), (9, 2)], &[(1, 17.0, slow), (2, 5.0, slow)]), "2", "called through another");
    assert_eq!(blamed(&[], &[(1, 17.0, slow), (2, 5.0, slow)]), "1", "as long as it is not known who calls whom");
    assert_eq!(blamed(&[(1, 2)], &[(1, 3.0, slow), (2, 5.0, idle)]), "1", "the called one only misses calls");
    let (hardly, busy) = (("duration.p99", 0.0216, 0.02), ("cpu.time", 0.009, 0.001));
    assert_eq!(blamed(&[(1, 2)], &[(1, 7.0, slow), (2, 9.0, hardly)]), "1", "1.6 ms are not why it took 160 more");
    assert_eq!(blamed(&[(1, 2)], &[(1, 7.0, hardly), (2, 5.0, slow)]), "2");
    assert_eq!(blamed(&[(1, 2)], &[(1, 7.0, slow), (2, 5.0, busy)]), "2", "8 ms of a processor may be all of a row");
    assert_eq!(blamed(&[(1, 2)], &[(2, 5.0, idle)]), "2", "nobody else has said anything");
    assert_eq!(blamed(&[(1, 2), (2, 1)], &[(1, 7.0, slow), (2, 5.0, slow)]), "1", "they call each other");
    assert_eq!(blamed(&[(1, 3)], &[(1, 7.0, slow), (3, 9.0, slow)]), "1", "3 is not on the path");
}

/// `pay` and `list` pass a frontend and a payment service, which is asked for a charge by the one, for a history by the
/// other.
fn two_operations() -> (Fixture, [OperationId; 2], [ServiceId; 2]) {
    let mut learnt = Fixture::new();
    let [frontend, payment] = ["frontend", "payment"].map(|name| learnt.names.service(name, Nanos(0)));
    let mut operation = |service, name| learnt.names.operation(service, name, Nanos(0));
    let (pay, list) = (operation(frontend, "POST /pay"), operation(frontend, "GET /list"));
    let (charge, history) = (operation(payment, "Charge"), operation(payment, "History"));
    for moment in 0..40 {
        for (operation, requested) in [(pay, charge), (list, history)] {
            for (service, requested) in [(frontend, operation), (payment, requested)] {
                learnt.paths.take(&PathStep { operation, service, requested: Some(requested) }, Nanos(moment));
            }
        }
    }
    (learnt, [pay, list], [frontend, payment])
}

fn about(service: ServiceId, second: u64, service_wide: f64, operations: &[(&str, f64)]) -> Verdict {
    let operations = operations.iter().map(|(name, part)| ((*name).into(), *part)).collect();
    Verdict {
        breakdown: Some(Arc::new(ScoreBreakdown { service_wide, operations })),
        ..verdict(service.0, second, 3.0)
    }
}

#[test]
fn what_is_said_of_one_operation_keeps_no_trace_of_another() {
    let (learnt, [pay, list], [frontend, payment]) = two_operations();
    let wanted = |verdict: Verdict| {
        let mut triggers = Triggers::new(TriggerRule { lead: Nanos::ZERO, window: Nanos::ZERO, least: 0.75 });
        let _ = triggers.take(&verdict, secs(1_000));
        [pay, list].map(|operation| {
            let catalog = learnt.catalog();
            let wanted = triggers.wanted(&catalog, operation, (secs(1_000), secs(1_000)), |_| false).is_some();
            assert_eq!(triggers.is_on(&catalog, operation, secs(1_000)), wanted);
            wanted
        })
    };

    assert_eq!(wanted(about(frontend, 1_000, 0.0, &[("POST /pay", 3.0), ("GET /list", 0.4)])), [true, false]);
    assert_eq!(wanted(about(payment, 1_000, 0.0, &[("Charge", 0.5), ("History", 3.0)])), [false, true]);
    assert_eq!(wanted(about(payment, 1_000, 0.0, &[("Charge", 0.8), ("History", 3.0)])), [true, true]);
    assert_eq!(wanted(about(payment, 1_000, 1.0, &[("Charge", 3.0)])), [true, true], "about the whole service, too");
    assert_eq!(wanted(about(payment, 1_000, 0.0, &[("_other", 3.0)])), [true, true], "who knows which");
    assert_eq!(wanted(about(payment, 1_000, 0.2, &[("Charge", 0.3)])), [false, false], "the row is ordinary");
    assert_eq!(wanted(Verdict { breakdown: None, ..about(payment, 1_000, 0.0, &[]) }), [true, true]);
}

#[test]
fn nothing_is_spared_while_it_is_not_known_what_is_asked_for() {
    let (mut learnt, [pay, _], [_, payment]) = two_operations();
    let refund = learnt.names.operation(payment, "Refund", Nanos(0));
    let new = learnt.names.operation(learnt.names.service_of(pay).unwrap(), "POST /refund", Nanos(0));
    let mut triggers = Triggers::new(TriggerRule::default());
    let _ = triggers.take(&about(payment, 1_000, 0.0, &[("Charge", 3.0)]), secs(1_000));
    let mut wanted = |learnt: &Fixture| triggers.is_on(&learnt.catalog(), new, secs(1_000));

    for moment in 1..=40 {
        let passed = PathStep { operation: new, service: payment, requested: Some(refund) };
        learnt.paths.take(&passed, Nanos(moment));
        assert_eq!(wanted(&learnt), moment < 32, "after {moment} moments");
    }
}

#[test]
fn verdicts_of_one_second_count_each_for_what_it_is_about() {
    let (learnt, [pay, list], [_, payment]) = two_operations();
    let mut triggers = Triggers::new(TriggerRule::default());
    let mut take = |verdict: Verdict| triggers.take(&verdict, secs(1_000));

    assert!(take(about(payment, 1_000, 0.0, &[("Charge", 3.0)])));
    assert!(!take(about(payment, 1_000, 0.0, &[("Charge", 2.0)])), "nothing new");
    assert!(take(about(payment, 1_000, 0.0, &[("Charge", 0.1), ("History", 1.0)])));
    assert!([pay, list].iter().all(|operation| triggers.is_on(&learnt.catalog(), *operation, secs(1_000))));
}

#[test]
fn a_verdict_that_knows_when_its_row_was_counts_for_that_time_and_its_lead() {
    let (learnt, mut triggers) = (Fixture::new(), Triggers::new(TriggerRule::default()));
    let millis = |millis: u64| UnixNanos(millis * 1_000_000);
    let catalog = Verdict { from: millis(998_800), at: millis(1_001_300), ..verdict(2, 1_000, 3.0) };
    assert!(triggers.take(&catalog, secs(1_005)));

    let mut wanted =
        |from, to| triggers.wanted(&learnt.catalog(), PAY, (millis(from), millis(to)), |_| false).is_some();

    assert!(wanted(997_000, 997_800) && !wanted(997_000, 997_799), "a second before the row");
    assert!(wanted(1_001_300, 1_001_900) && !wanted(1_001_301, 1_001_900), "up to its end");
    let short = Verdict { from: millis(1_008_900), at: millis(1_009_000), ..verdict(2, 1_009, 3.0) };
    assert!(triggers.take(&short, secs(1_010)));
    let mut wanted =
        |from, to| triggers.wanted(&learnt.catalog(), PAY, (millis(from), millis(to)), |_| false).is_some();
    assert!(wanted(1_005_000, 1_006_000) && !wanted(1_005_000, 1_005_999), "three seconds of a short row");
}

#[test]
fn a_score_that_falls_is_about_what_made_it_rise() {
    let (learnt, mut triggers) = (
        Fixture::new(),
        Triggers::new(TriggerRule { lead: Nanos::ZERO, window: Nanos::ZERO, ..TriggerRule::default() }),
    );
    for (second, weight) in [(1_000, 9.0), (1_001, 4.0), (1_001, 4.4), (1_002, 2.3), (1_005, 1.0)] {
        let _ = triggers.take(&verdict(1, second, weight), secs(second));
    }
    let mut why = |at| triggers.wanted(&learnt.catalog(), PAY, (secs(at), secs(at)), |_| false).unwrap().0.to_string();

    assert_eq!(why(1_001), "asked for: 1 at 1000");
    assert_eq!(why(1_002), "asked for: 1 at 1002", "more than half: it goes on for what is seen now");
    assert_eq!(why(1_005), "asked for: 1 at 1005", "another alarm");
}

#[test]
fn a_path_that_is_learnt_later_counts_for_verdicts_before() {
    let (mut learnt, mut triggers) = (Fixture::new(), Triggers::new(TriggerRule::default()));
    let _ = triggers.take(&verdict(3, 1_000, 1.5), secs(1_000));
    assert!(!triggers.is_on(&learnt.catalog(), PAY, secs(1_000)));

    learnt.paths.learn(PAY, ServiceId(3), Nanos(0));

    assert!(triggers.is_on(&learnt.catalog(), PAY, secs(1_000)));
}

#[test]
fn a_clock_that_is_wrong_turns_nothing_on_and_erases_nothing() {
    let (learnt, mut triggers) = (Fixture::new(), Triggers::new(TriggerRule::default()));
    let _ = triggers.take(&verdict(2, 1_000, 1.5), secs(1_000));

    assert!(!triggers.take(&verdict(2, 1_000_000, 1.5), secs(1_001)));
    assert!(!triggers.take(&verdict(1, 800, 1.5), secs(1_001)));

    assert_eq!(triggers.implausible(), 2);
    assert!(triggers.is_on(&learnt.catalog(), PAY, secs(1_000)));
    assert!(!triggers.is_on(&learnt.catalog(), LIST, secs(800)));
}

const LIAR: u8 = 4;

/// The node with this number.
fn node(number: u8) -> Author {
    Author::named(&number.to_string())
}

/// `verdict`, as the words of that peer.
fn of_peer(number: u8, verdict: Verdict) -> Verdict {
    Verdict { origin: Origin::Elsewhere(Peers::one(number)), author: Some(node(number)), ..verdict }
}

#[test]
fn what_a_node_lacks_is_not_wanted_for_it_and_is_for_others() {
    let (learnt, mut triggers) = (Fixture::new(), Triggers::new(TriggerRule::default()));
    let wanted = |triggers: &mut Triggers, lacking: &[u8]| {
        let lacks = |author: Author| lacking.iter().any(|number| node(*number) == author);
        let wanted = triggers.wanted(&learnt.catalog(), PAY, (secs(1_000), secs(1_000)), lacks);
        wanted.map(|(reason, origin)| (reason.to_string(), origin))
    };
    let found = |service: u8, origin| Some((format!("asked for: {service} at 1000"), origin));

    let _ = triggers.take(&of_peer(1, verdict(2, 1_000, 9.0)), secs(1_000));
    assert_eq!(wanted(&mut triggers, &[1]), None);
    assert_eq!(wanted(&mut triggers, &[2]), found(2, Origin::Elsewhere(Peers::one(1))));

    let _ = triggers.take(&of_peer(2, verdict(1, 1_000, 3.0)), secs(1_000));
    assert_eq!(wanted(&mut triggers, &[1]), found(1, Origin::Elsewhere(Peers::one(2))), "who asks, pays");
    assert_eq!(wanted(&mut triggers, &[1, 2]), None);

    let _ = triggers.take(&verdict(2, 1_000, 1.0), secs(1_000));
    assert_eq!(wanted(&mut triggers, &[1, 2]), found(2, Origin::Here));
}

#[test]
fn words_of_several_nodes_that_are_not_told_apart_are_wanted_whatever_one_of_them_lacks() {
    let (learnt, mut triggers) = (Fixture::new(), Triggers::new(TriggerRule::default()));
    let news = [LIAR, LIAR, 1, 1].map(|author| {
        let relayed = Verdict { author: Some(node(author)), ..of_peer(LIAR, verdict(2, 1_000, 3.0)) };
        triggers.take(&relayed, secs(1_000))
    });

    let lacks = |author: Author| author == node(LIAR);

    assert_eq!(news, [true, false, true, false], "buffered traces are looked at again");
    assert!(triggers.wanted(&learnt.catalog(), PAY, (secs(1_000), secs(1_000)), lacks).is_some());
}

proptest! {
    /// One of four peers lies: about what is anomalous, in its own name and relaying others, and about what it lacks.
    #[test]
    fn whatever_a_peer_says_and_lacks_all_that_others_ask_for_is_wanted(
        verdicts in proptest::collection::vec((0..=LIAR, 1..4_u32, 0..60_u64, 1..=LIAR), 0..80),
        traces in proptest::collection::vec((0..60_u64, 0..30_u64), 1..10),
        lacking in proptest::collection::vec(proptest::bool::ANY, 3),
        liar_lacks in proptest::bool::ANY,
    ) {
        let (learnt, start) = (Fixture::new(), 10_000);
        let [mut alone, mut beside] = [(); 2].map(|()| Triggers::new(TriggerRule::default()));
        for (who, service, second, author) in verdicts {
            let found = verdict(service, start + second, 1.5);
            let said = match who {
                0 => found,
                LIAR => Verdict { author: Some(node(author)), ..of_peer(LIAR, found) },
                honest => of_peer(honest, found),
            };
            if who != LIAR {
                let _ = alone.take(&said, secs(start + 60));
            }
            let _ = beside.take(&said, secs(start + 60));
        }
        let honest_lacks = |author: Author| {
            lacking.iter().zip(1..).any(|(lacks, number)| *lacks && author == node(number))
        };
        for (from, length) in traces {
            let between = (secs(start + from), secs(start + from + length));
            for operation in [PAY, LIST] {
                let expected = alone.wanted(&learnt.catalog(), operation, between, honest_lacks);
                let wanted = beside.wanted(&learnt.catalog(), operation, between, |author| {
                    honest_lacks(author) || (liar_lacks && author == node(LIAR))
                });
                prop_assert!(expected.is_none() || wanted.is_some());
            }
        }
    }
}

proptest! {
    /// Against the definition: some verdict about a service on the path, within a second of the trace.
    #[test]
    fn a_trace_is_wanted_exactly_where_a_verdict_overlaps_it(
        verdicts in proptest::collection::vec((1..4_u32, 0..200_u64), 0..30),
        traces in proptest::collection::vec((0..200_u64, 0..150_u64), 1..20),
    ) {
        let (learnt, mut triggers) = (Fixture::new(), Triggers::new(TriggerRule { lead: Nanos::ZERO, window: Nanos::ZERO, ..TriggerRule::default() }));
        let (start, mut newest) = (10_000, 0);
        let mut taken = Vec::new();
        for (service, second) in verdicts {
            let verdict = verdict(service, start + second, 1.5);
            let old = start + second + SECONDS <= newest;
            let _ = triggers.take(&verdict, secs(start + second));
            if !old {
                newest = newest.max(start + second);
                taken.push((service, start + second));
            }
        }
        for (from, length) in traces {
            let (from, to) = (start + from, start + from + length);
            for (operation, through) in [(PAY, [1, 2]), (LIST, [1, 3])] {
                let expected = taken.iter().any(|(service, second)| {
                    through.contains(service) && (from..=to).contains(second) && second + SECONDS > newest
                });
                let wanted = triggers.wanted(&learnt.catalog(), operation, (secs(from), secs(to)), |_| false);
                prop_assert_eq!(wanted.is_some(), expected);
            }
        }
    }
}
