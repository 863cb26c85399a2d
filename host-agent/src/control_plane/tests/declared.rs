//! Settings that objects of Kubernetes declare.

use wire::control::DetectorSpec;
use wire::metric::Aggregation;
use wire::name::{Formula, MetricName};

use super::super::testing::{counter, gauge};
use super::*;

fn interval(millis: u64) -> Interval {
    Interval::new(Nanos::from_millis(millis)).unwrap()
}

fn choice(name: &str) -> Choice {
    Choice { metric: MetricName::new(name).unwrap(), aggregation: None, every: None, unit: None }
}

fn settings_of(millis: u64, choices: Vec<Choice>) -> DeclaredSettings {
    let change = IntervalChange {
        interval: Some(IntervalChoice::Of(interval(millis))),
        fastest: Some(FastestChoice::Never),
        by: "Lmap shop/a".to_owned(),
    };
    let detector = DetectorSpec { rank: Some(3), ..DetectorSpec::default() };
    DeclaredSettings { interval: change, detector, choices, members: Vec::new() }
}

fn defaults() -> DeclaredSettings {
    let change = IntervalChange {
        interval: Some(IntervalChoice::Default),
        fastest: Some(FastestChoice::Default),
        by: String::new(),
    };
    DeclaredSettings { interval: change, ..DeclaredSettings::default() }
}

fn running() -> (Node, LmapId) {
    let mut settings = settings();
    settings.operator_bounds = (interval(10), interval(60_000));
    settings.adaptive = Some(interval(20));
    let mut node = Node::new(settings);
    node.worker(50, 0, 1);
    node.replica(1, "cart", &[counter("requests"), gauge("depth")]);
    node.settle();
    node.set(50);
    let id = node.only_lmap();
    (node, id)
}

#[test]
fn what_is_declared_is_sent_and_goes_back_to_what_was_before() {
    let (mut node, id) = running();
    node.plane.set_declared(node.now, id, settings_of(50, vec![choice("depth")])).unwrap();
    node.settle();
    let sent = node.set(50).pop().unwrap().1;
    assert_eq!((sent.interval_us, sent.fastest_us, sent.metrics.len()), (50_000, 0, 1));
    assert_eq!(sent.detector.unwrap().rank, Some(3));
    assert_eq!(node.plane.status().lmaps[0].interval_by, "Lmap shop/a");

    node.plane.set_declared(node.now, id, defaults()).unwrap();
    node.settle();

    let sent = node.set(50).pop().unwrap().1;
    assert_eq!((sent.interval_us, sent.fastest_us, sent.metrics.len()), (100_000, 20_000, 2));
    assert!(sent.detector.is_none_or(|detector| detector.rank.is_none()));
}

#[test]
fn what_is_refused_leaves_all_as_it_was() {
    let (mut node, id) = running();
    node.plane.set_declared(node.now, id, settings_of(50, Vec::new())).unwrap();
    node.settle();
    node.set(50);
    let formula = Formula::new("depth / nothing").unwrap();
    let derived = Choice { aggregation: Some(Aggregation::Derived(formula)), ..choice("ratio") };

    let wrong = node.plane.set_declared(node.now, id, settings_of(200, vec![derived])).unwrap_err();
    assert!(matches!(wrong, OperatorError::Expression { .. }), "{wrong}");
    let wrong = node.plane.set_declared(node.now, id, settings_of(1, vec![choice("depth")])).unwrap_err();
    assert!(matches!(wrong, OperatorError::Interval { .. }), "{wrong}");
    node.settle();

    assert!(node.set(50).into_iter().all(|(_, sent)| (sent.interval_us, sent.metrics.len()) == (50_000, 2)));
    assert_eq!(node.plane.status().lmaps[0].interval_us, 50_000);
}

#[test]
fn it_does_not_outlive_the_last_replica_unless_an_operator_keeps_it() {
    let (mut node, id) = running();
    node.plane.set_declared(node.now, id, settings_of(50, Vec::new())).unwrap();
    assert_eq!(node.plane.lmap_of(&service("cart")), Some(id));

    node.gone(1);
    node.settle();

    assert_eq!(node.plane.lmap_of(&service("cart")), None);
}
