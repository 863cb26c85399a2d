//! Exporters of a node: what becomes of their exports.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics};
use prost::Message as _;
use wire::id::{Incarnation, Owner, RegionId};
use wire::layout::{HeaderWord, sampled_at};
use wire::proto::operators::LmapInfo;
use wire::time::Interval;

use super::*;
use crate::clock::Clock;
use crate::control_plane::Settings;

fn node() -> Node {
    let interval = Interval::new(Nanos::from_millis(100)).unwrap();
    Node::new(Settings::new(Incarnation(1), interval), 4, Clock::start(), None)
}

fn exports(exporters: usize) -> Exports {
    let choice = ChoiceSettings { allow: Vec::new(), deny: Vec::new(), columns: 50, label_sets: 4 };
    let settings = ExportSettings {
        choice,
        window: 3,
        exporters,
        series: 100,
        all_series: 1_000,
        points: 500,
        expire: Nanos::from_secs(60),
        queue_bytes: 0,
    };
    Exports { settings, state: Mutex::default(), counts: ExportCounts::default() }
}

/// An export with two gauges at `second`, which move.
fn encoded(second: u64) -> Vec<u8> {
    let gauge = |name: &str, value: u64| {
        let value = Some(Value::AsInt((value * value % 7).cast_signed()));
        let point = NumberDataPoint { time_unix_nano: second * 1_000_000_000, value, ..NumberDataPoint::default() };
        let data = Some(Data::Gauge(Gauge { data_points: vec![point] }));
        Metric { name: name.to_owned(), data, ..Metric::default() }
    };
    let metrics = vec![gauge("queue.depth", second), gauge("threads", second + 3)];
    let scope = ScopeMetrics { metrics, ..ScopeMetrics::default() };
    ResourceMetrics { scope_metrics: vec![scope], ..ResourceMetrics::default() }.encode_to_vec()
}

const USER: Holder = Holder::Owner(Owner::User(7));
const OTHER_USER: Holder = Holder::Owner(Owner::User(8));

/// Exports of `instance` at seconds `from` to `to`, ten seconds apart on the agent's clock.
fn export(exports: &Exports, node: &Node, instance: &str, seconds: core::ops::Range<u64>) {
    export_by(&USER, exports, node, instance, seconds);
}

/// As [`export`], sent by `holder`.
fn export_by(holder: &Holder, exports: &Exports, node: &Node, instance: &str, seconds: core::ops::Range<u64>) {
    for second in seconds {
        let encoded = encoded(second);
        let (service, instance) = ("payment".into(), instance.into());
        let export = MetricExport { service, instance, holder, encoded: &encoded };
        exports.take_export(&export, 500, node, Nanos::from_secs(second * 10));
    }
}

/// Resources of which nothing is watched, by reason.
fn refused(exports: &Exports) -> Vec<(&'static str, u64)> {
    REFUSALS.into_iter().zip(exports.counts.refused.iter().map(Count::get)).collect()
}

fn lmaps(node: &Node) -> Vec<LmapInfo> {
    node.inspect(|plane, _| plane.list()).lmaps
}

#[test]
fn after_its_window_a_service_has_an_lmap_whose_rows_are_as_far_apart_as_its_exports() {
    let (node, exports) = (node(), exports(10));

    export(&exports, &node, "payment-1", 1..4);
    assert!(lmaps(&node).is_empty(), "the third export may not be complete");
    exports.tick(&node, Nanos::from_millis(30_600));

    let lmaps = lmaps(&node);
    let names: Vec<_> = lmaps[0].metrics.iter().map(|metric| metric.name.as_str()).collect();
    assert_eq!((lmaps[0].service.as_str(), names), ("payment", vec!["queue.depth", "threads"]));
    assert_eq!(lmaps[0].interval_us, 10_000_000);
    assert_eq!(lmaps[0].replicas[0].instance, "payment-1");
}

#[test]
fn an_export_that_came_late_is_of_the_time_at_which_it_was_due() {
    let (node, exports) = (node(), exports(10));
    // Made every ten seconds; the last one comes three seconds late.
    for (made, came) in [(10, 10), (20, 20), (30, 30), (40, 43)] {
        let encoded = encoded(made);
        let (service, instance) = ("payment".into(), "payment-1".into());
        let export = MetricExport { service, instance, holder: &USER, encoded: &encoded };
        exports.take_export(&export, 500, &node, Nanos::from_secs(came));
        exports.tick(&node, Nanos::from_secs(came + 1));
    }

    let (_, region) = node.regions_after(RegionId(0), 10).pop().unwrap();
    let mut word = [0; 8];
    let memory = File::from(region.reader_fd().unwrap());
    memory.read_exact_at(&mut word, 8 * HeaderWord::Heartbeat as u64).unwrap();
    // A twentieth of the three seconds stays.
    assert_eq!(sampled_at(u64::from_ne_bytes(word)), Nanos::from_millis(40_150));
}

#[test]
fn another_replica_joins_with_its_first_export_and_one_that_is_gone_leaves() {
    let (node, exports) = (node(), exports(10));
    export(&exports, &node, "payment-1", 1..5);

    export(&exports, &node, "payment-2", 5..6);
    exports.tick(&node, Nanos::from_millis(50_600));
    let instances =
        |lmaps: &[LmapInfo]| lmaps[0].replicas.iter().map(|replica| replica.instance.clone()).collect::<Vec<_>>();
    assert_eq!(instances(&lmaps(&node)), ["payment-1", "payment-2"]);

    export(&exports, &node, "payment-2", 6..11);
    exports.tick(&node, Nanos::from_millis(101_000));
    assert_eq!(instances(&lmaps(&node)), ["payment-2"]);
    exports.tick(&node, Nanos::from_secs(1_000));
    assert!(lmaps(&node).is_empty() && exports.state().services.is_empty());
}

#[test]
fn replicas_over_the_limit_are_counted_and_named_as_a_problem() {
    let (node, exports) = (node(), exports(2));

    for instance in ["a", "b", "c", "a"] {
        export(&exports, &node, instance, 1..2);
    }
    let nameless = MetricExport { service: "pay ment".into(), instance: "a".into(), holder: &USER, encoded: &[] };
    exports.take_export(&nameless, 500, &node, Nanos::from_secs(10));

    assert_eq!(sizes(&exports.state().services).0, 2);
    assert_eq!(refused(&exports), [("too_many", 1), ("name", 1)]);
    let problems = exports.problems(Nanos::from_secs(11));
    let [problem] = &problems[..] else { panic!("one problem: {problems:?}") };
    let why = "user 7 has most, 2: release some, or raise otlp.metrics.max_replicas";
    assert!(problem.contains("metrics of further replicas are not watched") && problem.ends_with(why), "{problem}");
    assert_eq!(exports.problems(Nanos::from_secs(611)), [""; 0]);
}

#[test]
fn whoever_invents_replicas_leaves_room_for_those_of_others() {
    let (node, exports) = (node(), exports(16));

    for number in 0..40 {
        export(&exports, &node, &format!("invented-{number}"), 1..2);
    }
    assert_eq!(sizes(&exports.state().services).0, 12, "three quarters");
    export_by(&OTHER_USER, &exports, &node, "payment-1", 1..2);

    assert_eq!(sizes(&exports.state().services).0, 13);
    assert_eq!(refused(&exports), [("too_many", 28), ("name", 0)]);
    // What is gone makes room again.
    exports.tick(&node, Nanos::from_secs(1_000));
    export(&exports, &node, "later", 101..102);
    assert_eq!(sizes(&exports.state().services).0, 1);
}

#[test]
fn a_request_that_is_repeated_is_no_export() {
    let (node, exports) = (node(), exports(10));
    export(&exports, &node, "a", 1..2);
    exports.tick(&node, Nanos::from_secs(11));

    for _ in 0..3 {
        export(&exports, &node, "a", 1..2);
        exports.tick(&node, Nanos::from_secs(12));
    }

    assert_eq!(exports.counts.exports.get(), 1);
    let duplicates = &exports.counts.discarded[exposition::Discard::Duplicate as usize];
    assert_eq!(duplicates.get(), 6);
}

#[test]
fn series_of_all_replicas_are_bounded_together() {
    let (node, mut exports) = (node(), exports(10));
    exports.settings.all_series = 4;

    export(&exports, &node, "a", 1..2);
    export(&exports, &node, "b", 1..3);

    assert_eq!(sizes(&exports.state().services), (2, 3), "one sender leaves room for another");
    let discarded = &exports.counts.discarded[exposition::Discard::NoRoom as usize];
    assert_eq!(discarded.get(), 2);
    let problems = exports.problems(Nanos::from_secs(21));
    let [problem] = &problems[..] else { panic!("one problem: {problems:?}") };
    let why = "user 7 has most, 3: release some, or raise otlp.metrics.max_all_series";
    assert!(problem.contains("further series of metrics are not watched") && problem.ends_with(why), "{problem}");

    export_by(&OTHER_USER, &exports, &node, "c", 3..4);
    assert_eq!(sizes(&exports.state().services), (3, 4));
}

#[test]
fn what_operators_see_says_where_an_exporter_stands() {
    let (node, exports) = (node(), exports(10));
    export(&exports, &node, "payment-1", 1..3);
    exports.tick(&node, Nanos::from_secs(21));

    let reply = exports.reply();

    let source = &reply[0];
    assert_eq!(
        (source.url.as_str(), source.state.as_str(), source.format.as_str()),
        ("otlp:payment-1", "learning", "OTLP")
    );
    assert_eq!((source.learned, source.needed, source.scrapes, source.interval_us), (2, 3, 2, 10_000_000));
    assert_eq!(source.families.len(), 2);
}

#[test]
fn a_replica_keeps_what_a_name_may_have_of_its_id() {
    let named = |id: &str| instance_name(id).map(|name| name.to_string());

    assert_eq!(named("payment-1").as_deref(), Some("payment-1"));
    assert_eq!(named("::1").as_deref(), Some("1"));
    assert_eq!(named("pod 7@höst").as_deref(), Some("pod-7-h-st"));
    assert_eq!(named("é"), None);
    assert_eq!(named(&"x".repeat(300)).map(|name| name.len()), Some(120));
}
