//! What services declare about their metrics, and what operators make of it.

use wire::control::LmapSpec;
use wire::metric::{Aggregation, Declaration, TickDivider};
use wire::name::{Formula, MetricName};
use wire::registration::PlacedSeries;

use super::super::testing::{counter, gauge, histogram, labelled, placed};
use super::super::{AggregationRule, Choice};
use super::*;

fn interval(millis: u64) -> Interval {
    Interval::new(Nanos::from_millis(millis)).unwrap()
}

/// LMAPs at 100 ms, which services may have at 50 ms to 10 s.
fn bounded() -> Settings {
    let mut settings = settings();
    settings.interval = interval(100);
    settings.interval_bounds = (interval(50), interval(10_000));
    settings
}

impl Node {
    /// A replica with these series, on slots 0, 1, …, and what it declares about each.
    fn declares(&mut self, connection: u64, series: &[(Series, &str, u32)]) {
        self.replica(connection, "cart", &[]);
        let placed = |(slot, (series, aggregation, millis)): (u32, &(Series, &str, u32))| {
            let declared = Declaration::from_message(aggregation, *millis);
            Ok(PlacedSeries { declared, ..placed(series.clone(), 0, slot) })
        };
        self.service_sends(connection, ServiceMessage::AddSeries((0..).zip(series).map(placed).collect()));
    }

    /// Aggregation, stride and who decided, of the metric as it is listed; and as the worker was told.
    fn watches(&mut self, name: &str) -> (String, u32, String) {
        let metric = self.plane.list().lmaps[0].metrics.iter().find(|metric| metric.name == name).unwrap().clone();
        (metric.aggregation, metric.every, metric.decided_by)
    }

    fn last_spec(&mut self) -> LmapSpec {
        self.settle();
        LmapSpec::decode(&self.set(50).pop().unwrap().1).unwrap()
    }
}

fn choice(name: &str, aggregation: Option<Aggregation>) -> Choice {
    Choice { metric: MetricName::new(name).unwrap(), aggregation, every: None, unit: None }
}

fn derived(name: &str, formula: &str) -> Choice {
    choice(name, Some(Aggregation::Derived(Formula::new(formula).unwrap())))
}

fn listed(aggregation: &str, every: u32, decided_by: &str) -> (String, u32, String) {
    (aggregation.to_owned(), every, decided_by.to_owned())
}

#[test]
fn an_operator_comes_before_the_configuration_before_the_service_before_the_kind() {
    let mut settings = bounded();
    settings.aggregations.push(AggregationRule {
        services: "c*".to_owned(),
        metrics: "queue.*".to_owned(),
        aggregation: Aggregation::parse("max - min").unwrap(),
    });
    let mut node = Node::new(settings);
    node.worker(50, 0, 1);
    let (queue, age) = (gauge("queue.length"), gauge("age"));
    node.declares(1, &[(queue, "min", 0), (age, "p90", 300), (counter("requests"), "", 0)]);
    let id = node.only_lmap();

    assert_eq!(node.watches("queue.length"), listed("max - min", 1, "configuration"));
    assert_eq!(node.watches("age"), listed("p90", 3, "service"));
    assert_eq!(node.watches("requests"), listed("sum", 1, "kind"));

    let every = TickDivider::new(2);
    let metric = Choice { every, ..choice("queue.length", Some(Aggregation::Mean)) };
    node.plane.add_metric(node.now, id, metric, None).unwrap();
    node.plane.add_metric(node.now, id, Choice { every, ..choice("age", None) }, None).unwrap();
    assert_eq!(node.watches("queue.length"), listed("mean", 2, "operator"));
    assert_eq!(node.watches("age"), listed("p90", 2, "service"));
    let spec = node.last_spec();
    let told: Vec<_> = spec.metrics.iter().map(|metric| (metric.aggregation.to_string(), metric.every.get())).collect();
    assert_eq!(told, [("mean".to_owned(), 2), ("p90".to_owned(), 2), ("sum".to_owned(), 1)]);

    node.plane.add_metric(node.now, id, choice("age", None), None).unwrap();
    assert_eq!(node.watches("age"), listed("p90", 3, "service"));
}

#[test]
fn rules_of_a_changed_configuration_hold_at_once_for_those_metrics_that_they_are_about() {
    let mut node = Node::new(bounded());
    node.worker(50, 0, 1);
    node.declares(1, &[(gauge("queue"), "max", 0), (counter("requests"), "", 0)]);
    let rule = |metrics: &str| AggregationRule {
        services: "*".to_owned(),
        metrics: metrics.to_owned(),
        aggregation: Aggregation::Min,
    };
    node.settle();
    let sent = node.plane.counters().sent_changes;

    node.plane.set_aggregations(node.now, vec![rule("age")]);
    node.settle();
    assert_eq!(node.plane.counters().sent_changes, sent, "no metric of it is concerned");

    node.plane.set_aggregations(node.now, vec![rule("queue")]);
    assert_eq!(node.watches("queue"), listed("min", 1, "configuration"));
    let spec = node.last_spec();
    let told: Vec<_> = spec.metrics.iter().map(|metric| metric.aggregation.to_string()).collect();
    assert_eq!(told, ["min", "sum"]);

    node.plane.set_aggregations(node.now, Vec::new());
    assert_eq!(node.last_spec().metrics[0].aggregation, Aggregation::Max, "as the service declares again");
}

#[test]
fn replicas_that_declare_different_things_are_named_until_they_agree() {
    let mut node = Node::new(bounded());
    node.declares(1, &[(gauge("queue"), "max", 0)]);
    node.declares(2, &[(gauge("queue"), "", 0)]);
    assert!(node.plane.status().problems.is_empty());

    node.declares(3, &[(gauge("queue"), "mean", 500)]);
    assert_eq!(node.watches("queue"), listed("max", 5, "service"), "one each: by order");
    assert_eq!(
        node.plane.status().problems,
        ["cart: replicas declare queue differently: aggregated by max (1); aggregated by mean, read every 500ms (1); \
          in effect: max (service), every 500ms"]
    );
    node.declares(4, &[(gauge("queue"), "mean", 500)]);
    assert_eq!(node.watches("queue"), listed("mean", 5, "service"), "two against one");

    node.gone(1);
    assert!(node.plane.status().problems.is_empty());
    node.retire(3, 0, 1);
    node.gone(4);
    assert_eq!(node.watches("queue"), listed("mean", 1, "kind"), "the one that is left declares nothing");
}

#[test]
fn a_stranger_with_many_replicas_does_not_outvote_those_of_a_service() {
    let mut node = Node::new(bounded());
    node.declares(1, &[(gauge("queue"), "max", 0)]);
    assert_eq!(node.watches("queue"), listed("max", 1, "service"));

    for connection in 2..12 {
        node.connect_as(2000, connection);
        node.hello(connection, "cart");
        node.region(connection, 0);
        let declared = Declaration::from_message("min", 0);
        let series = PlacedSeries { declared, ..placed(gauge("queue"), 0, 0) };
        node.service_sends(connection, ServiceMessage::AddSeries(vec![Ok(series)]));
    }

    assert_eq!(node.watches("queue"), listed("max", 1, "service"));
    let problems = node.plane.status().problems;
    assert!(problems[0].contains("aggregated by min (10 of 1 owner); in effect: max (service)"), "{problems:?}");
    node.gone(1);
    assert_eq!(node.watches("queue"), listed("min", 1, "service"), "nobody else is left");
}

#[test]
fn what_the_agent_does_not_know_is_refused_and_the_series_is_taken() {
    let mut node = Node::new(bounded());

    node.declares(1, &[(gauge("queue"), "of a later release", 0)]);

    let refused = node.refusals(1);
    assert!(refused[0].contains("of a later release cannot be declared by a service: sum, mean"), "{refused:?}");
    assert_eq!(node.watches("queue"), listed("mean", 1, "kind"));
}

#[test]
fn an_lmap_takes_rows_as_often_as_its_service_asks_and_becomes_no_slower_while_it_runs() {
    let mut node = Node::new(bounded());
    node.worker(50, 0, 1);
    node.declares(1, &[(gauge("queue"), "", 2000), (gauge("age"), "", 5000)]);
    let slow = node.last_spec();
    let strides = |spec: &LmapSpec| spec.metrics.iter().map(|metric| metric.every.get()).collect::<Vec<_>>();
    assert_eq!((slow.interval, strides(&slow)), (interval(2000), vec![1, 3]));

    // What declares nothing asks for the usual interval.
    node.series(1, counter("requests"), 2);
    let usual = node.last_spec();
    assert_eq!((usual.interval, strides(&usual)), (interval(100), vec![20, 50, 1]));

    node.declares(2, &[(gauge("queue"), "", 1)]);
    let fast = node.last_spec();
    assert_eq!((fast.interval, strides(&fast)), (interval(50), vec![1, 100, 1]));

    node.gone(2);
    assert_eq!(node.last_spec().interval, interval(50), "it would learn anew");
}

#[test]
fn an_operators_interval_is_not_changed_by_what_is_declared() {
    let mut node = Node::new(bounded());
    node.worker(50, 0, 1);
    let options = LmapOptions { interval: Some(interval(1000)), ..LmapOptions::default() };
    node.plane.new_lmap(node.now, &service("cart"), options).unwrap();

    node.declares(1, &[(gauge("queue"), "", 50), (gauge("age"), "", 5000)]);

    let spec = node.last_spec();
    assert_eq!((spec.interval, spec.metrics[0].every.get(), spec.metrics[1].every.get()), (interval(1000), 1, 5));
}

#[test]
fn a_derived_column_is_sent_with_its_expression_and_deleted_like_a_metric() {
    let mut node = Node::new(bounded());
    node.worker(50, 0, 1);
    node.replica(1, "cart", &[counter("requests"), labelled(counter("errors"), "route", "/"), histogram("duration")]);
    let id = node.only_lmap();

    for (formula, says) in [
        ("errors / request", "ratio: at 9: request is not known: columns of cart are"),
        ("errors / duration", "at 9: duration is not known"),
        ("errors / ratio", "at 9: ratio is not known"),
    ] {
        let refused = node.plane.add_metric(node.now, id, derived("ratio", formula), None).unwrap_err().to_string();
        assert!(refused.contains(says), "{formula}: {refused}");
    }
    let added = node.plane.add_metric(node.now, id, derived("ratio", "errors / duration.count"), None).unwrap();

    assert_eq!(added.len(), 1);
    assert_eq!(node.watches("ratio"), listed("errors / duration.count", 1, "operator"));
    let spec = node.last_spec();
    let metric = spec.metrics.last().unwrap();
    let formula = Formula::new("errors / duration.count").unwrap();
    assert_eq!((metric.id, &metric.aggregation), (added[0], &Aggregation::Derived(formula)));
    assert!(spec.replicas[0].places.iter().all(|place| place.metric != metric.id));

    // A series of that name does not get in its way, and is back when it is deleted.
    node.series(1, gauge("ratio"), 200);
    assert_eq!(node.last_spec().metrics.len(), 4);
    node.plane.delete_metric(node.now, id, added[0]).unwrap();
    assert_eq!(node.watches("ratio"), listed("mean", 1, "kind"));
}

#[test]
fn a_derived_column_alone_brings_the_metrics_that_it_names() {
    let mut node = Node::new(bounded());
    node.worker(50, 0, 1);
    node.replica(1, "cart", &[counter("requests"), counter("errors"), gauge("queue")]);
    let id = node.only_lmap();

    node.plane.config_lmap(node.now, id, vec![derived("ratio", "errors / requests")]).unwrap();

    let spec = node.last_spec();
    let names: Vec<_> = spec.metrics.iter().map(|metric| metric.series.name.as_str()).collect();
    assert_eq!(names, ["requests", "errors", "ratio"]);
}
