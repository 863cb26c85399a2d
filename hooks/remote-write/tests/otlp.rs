//! Samples as OTLP metrics, decoded with OpenTelemetry's own messages.
#![expect(clippy::unwrap_used, clippy::panic, reason = "what a test prepares has to work, or the test fails")]

use core::num::NonZeroU64;
use std::collections::BTreeMap;

use hooks::sampling::{Row, SampleLossReason, SamplingPolicy, SamplingRule, Series as Resolution};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint, exemplar, number_data_point};
use prost::Message as _;
use remote_write::encoding::Version;
use remote_write::feed::Column;
use remote_write::queue::QueueLimits;
use remote_write::reading::{Histogram, Reading};
use remote_write::reply::Reply;
use remote_write::series::{Exemplar, ServiceNumber};
use remote_write::shipper::{Delivery, Shipper, ShipperSettings, Step, Timestamp, VersionPolicy};
use wire::backoff::RetryRule;
use wire::histogram::Scale;
use wire::metric::{Group, Kind, Series};
use wire::name::{Labels, MetricName, Unit};
use wire::time::{Interval, Nanos, UnixNanos};

const BEGIN: u64 = 1_700_000_000;

fn at(seconds: u64) -> Timestamp {
    Timestamp { monotonic: Nanos::from_secs(seconds), wall: UnixNanos::from_secs(BEGIN + seconds) }
}

fn second() -> Interval {
    Interval::new(Nanos::from_secs(1)).unwrap()
}

fn columns() -> Vec<Column> {
    let of = |name: &str, kind: Kind, unit: &str| {
        let series = Series {
            name: MetricName::new(name).unwrap(),
            labels: Labels::new([("http.route", "/pay")]).unwrap(),
            kind,
            unit: Some(Unit::new(unit).unwrap()),
            group: Group::Service,
            parts_per_unit: NonZeroU64::MIN,
        };
        kind.statistics().iter().map(move |&statistic| Column { series: series.clone(), statistic })
    };
    let duration = of("http.server.request.duration", Kind::Histogram(Scale::DEFAULT), "s");
    of("shop.requests", Kind::Counter, "{request}")
        .chain(of("shop.queue", Kind::Gauge, "{item}"))
        .chain(duration)
        .collect()
}

fn shipper() -> (Shipper, ServiceNumber) {
    let mut shipper = Shipper::new(ShipperSettings {
        instance: "node-1".into(),
        labels: vec![("cluster".into(), "c".into())],
        rule: SamplingRule { policy: SamplingPolicy::Score { theta: 1.0 }, budget: None, ..SamplingRule::default() },
        queue: QueueLimits { linger: Nanos::ZERO, ..QueueLimits::default() },
        version: VersionPolicy::Only(Version::Otlp),
        retry: RetryRule::default(),
        began: at(0).wall,
    })
    .unwrap();
    let cart = shipper.service("cart", second());
    shipper.set_columns(cart, &columns(), second(), at(0));
    (shipper, cart)
}

const INCIDENT: &str = "node-3/20261127-064215-123";

fn reading(counts: [u64; 3]) -> Reading {
    let trace = "000102030405060708090a0b0c0d0e0f";
    let histogram = Histogram {
        name: "traces.span.metrics.duration",
        unit: "s",
        help: "how long",
        labels: vec![("span.name".into(), "POST /pay".into())],
        bounds: [0.005, 1.0].into(),
        counts: counts.to_vec(),
        sum: 2.5,
        exemplars: vec![None, Some(Exemplar::new(trace, 0.5, 1_700_000_000_250).with_incident(INCIDENT)), None],
    };
    Reading { up: Some(true), histograms: vec![histogram] }
}

fn body(shipper: &mut Shipper, now: Timestamp) -> ExportMetricsServiceRequest {
    let Step::Send(request) = shipper.poll(now.monotonic) else { panic!("nothing is due") };
    assert_eq!(request.version, Version::Otlp);
    ExportMetricsServiceRequest::decode(request.body).unwrap()
}

fn balances(shipper: &Shipper) {
    for series in [Resolution::Baseline, Resolution::Dense] {
        assert!(shipper.totals(series).balances(), "{:?}", shipper.totals(series));
    }
}

fn pairs(attributes: &[KeyValue]) -> BTreeMap<&str, &str> {
    let pair = |pair: &'_ KeyValue| pair.value.as_ref().unwrap().value.clone().unwrap();
    let texts = attributes.iter().map(|one| (&*one.key, pair(one)));
    let text = |value: Value| if let Value::StringValue(text) = value { text.leak() } else { panic!("{value:?}") };
    texts.map(|(key, value)| (key, &*text(value))).collect()
}

/// The metrics of the only service in the request.
fn metrics(request: &ExportMetricsServiceRequest) -> BTreeMap<&str, &Metric> {
    let [service] = &request.resource_metrics[..] else { panic!("{request:?}") };
    let resource = pairs(&service.resource.as_ref().unwrap().attributes);
    assert_eq!(resource, [("service.name", "cart"), ("host.name", "node-1"), ("cluster", "c")].into());
    let [scope] = &service.scope_metrics[..] else { panic!("{service:?}") };
    assert_eq!(scope.scope.as_ref().unwrap().name, "uview");
    scope.metrics.iter().map(|metric| (&*metric.name, metric)).collect()
}

/// Resolution, seconds since the beginning, and value.
fn numbers(points: &[NumberDataPoint]) -> Vec<(String, u64, Option<f64>)> {
    let of = |point: &NumberDataPoint| {
        let value = point.value.as_ref().map(|value| match value {
            number_data_point::Value::AsDouble(value) => *value,
            number_data_point::Value::AsInt(value) => panic!("{value}"),
        });
        assert_eq!(value.is_none(), point.flags == 1);
        let resolution = pairs(&point.attributes)["uview.resolution"].to_owned();
        (resolution, point.time_unix_nano / 1_000_000_000 - BEGIN, value)
    };
    points.iter().map(of).collect()
}

fn gauge(metric: &Metric) -> Vec<(String, u64, Option<f64>)> {
    let Some(Data::Gauge(gauge)) = &metric.data else { panic!("{metric:?}") };
    numbers(&gauge.data_points)
}

#[test]
fn rows_are_sums_and_gauges_with_both_resolutions_and_histograms_are_whole() {
    let (mut shipper, cart) = shipper();
    shipper.read(cart, &reading([2, 3, 1]), at(1));
    for n in 1..4 {
        let score = if n == 3 { 2.0 } else { 0.1 };
        shipper.row(
            cart,
            &Row { at: at(n).wall, values: &[10.0, n as f64, 10.0, 0.02, 0.08], score: Some(score) },
            at(n),
        );
    }
    let request = body(&mut shipper, at(3));
    let metrics = metrics(&request);
    let baseline = |n, value| ("baseline".to_owned(), n, Some(value));
    let dense = |n, value| ("dense".to_owned(), n, Some(value));

    let names: Vec<_> = metrics.keys().copied().collect();
    let duration = "http.server.request.duration";
    let of_rows = ["count", "mean", "p99"].map(|what| format!("{duration}.{what}"));
    assert_eq!(names[..3], of_rows);
    assert_eq!(names[3..], ["shop.queue", "shop.requests", "traces.span.metrics.duration", "up"]);
    assert_eq!((&*metrics["shop.queue"].unit, &*metrics[&*of_rows[1]].unit), ("{item}", "s"));
    let expected = vec![baseline(1, 1.0), dense(1, 1.0), dense(2, 2.0), dense(3, 3.0)];
    assert_eq!(gauge(metrics["shop.queue"]), expected);
    assert_eq!(gauge(metrics["up"]), [baseline(1, 1.0)]);
    let Some(Data::Sum(sum)) = &metrics["shop.requests"].data else { panic!("{metrics:?}") };
    assert!(sum.is_monotonic && sum.aggregation_temporality == 2);
    assert_eq!(numbers(&sum.data_points), [baseline(1, 10.0), dense(1, 10.0), dense(2, 20.0), dense(3, 30.0)]);
    assert!(sum.data_points.iter().all(|point| point.start_time_unix_nano == at(0).wall.0));
    assert_eq!(pairs(&sum.data_points[0].attributes)["http.route"], "/pay");

    let Some(Data::Histogram(histogram)) = &metrics["traces.span.metrics.duration"].data else { panic!("{metrics:?}") };
    assert_eq!((histogram.aggregation_temporality, histogram.data_points.len()), (2, 1));
    let point = &histogram.data_points[0];
    assert_eq!((point.count, point.sum, &point.bucket_counts[..]), (6, Some(2.5), &[2, 3, 1][..]));
    assert_eq!((&point.explicit_bounds[..], point.start_time_unix_nano), (&[0.005, 1.0][..], at(0).wall.0));
    assert_eq!(pairs(&point.attributes), [("span.name", "POST /pay"), ("uview.resolution", "baseline")].into());
    let shown = &point.exemplars[0];
    assert_eq!((shown.trace_id.clone(), shown.time_unix_nano), ((0..16).collect(), 1_700_000_000_250_000_000));
    assert_eq!(shown.value, Some(exemplar::Value::AsDouble(0.5)));
    assert_eq!(pairs(&shown.filtered_attributes), [("uview.incident", INCIDENT)].into());
}

#[test]
fn what_ends_has_a_point_without_a_value_and_a_histogram_counts_as_one_sample() {
    let (mut shipper, cart) = shipper();
    shipper.read(cart, &reading([2, 3, 1]), at(1));
    body(&mut shipper, at(1));
    assert_eq!(shipper.complete(&Reply::OtlpAccepted { rejected: 0 }, at(1), 0.0), Delivery::Accepted(2));
    let counters = shipper.counters();
    assert_eq!((counters.exemplars, counters.sent_exemplars, counters.lost_exemplars), (1, 1, 0));

    shipper.end(cart, at(2));
    let request = body(&mut shipper, at(2));

    let metrics = metrics(&request);
    assert_eq!(gauge(metrics["up"]), [("baseline".to_owned(), 2, None)]);
    let Some(Data::Histogram(histogram)) = &metrics["traces.span.metrics.duration"].data else { panic!("{metrics:?}") };
    assert_eq!((histogram.data_points[0].flags, histogram.data_points[0].count), (1, 0));
    let totals = shipper.totals(Resolution::Baseline);
    assert_eq!((totals.seen, totals.sent), (2, 2));
}

#[test]
fn a_receiver_takes_all_or_a_part_or_nothing_now_or_nothing_ever() {
    let (mut shipper, cart) = shipper();
    let mut now = at(1);
    let mut exchange = |shipper: &mut Shipper, row: Option<u64>, answer: Reply| {
        if let Some(n) = row {
            now = at(n);
            shipper.row(cart, &Row { at: now.wall, values: &[1.0; 5], score: Some(0.0) }, now);
        }
        body(shipper, now);
        let delivery = shipper.complete(&answer, now, 0.0);
        balances(shipper);
        if let Delivery::Retry(pause) = delivery {
            now = Timestamp { monotonic: now.monotonic.plus(pause), wall: now.wall.plus(pause) };
        }
        delivery
    };

    let later = Reply::OtlpFailed { retryable: true, retry_after: Some(Nanos::from_secs(7)) };
    assert_eq!(exchange(&mut shipper, Some(1), later), Delivery::Retry(Nanos::from_secs(7)));
    let soon = Reply::OtlpFailed { retryable: true, retry_after: None };
    assert_eq!(exchange(&mut shipper, None, soon), Delivery::Retry(Nanos::from_millis(200)));
    let partly = Reply::OtlpAccepted { rejected: 2 };
    assert_eq!(exchange(&mut shipper, None, partly), Delivery::Refused { written: 3, refused: 2 });
    let never = Reply::OtlpFailed { retryable: false, retry_after: None };
    assert_eq!(exchange(&mut shipper, Some(31), never), Delivery::Refused { written: 0, refused: 5 });
    assert_eq!(exchange(&mut shipper, Some(61), Reply::OtlpAccepted { rejected: 0 }), Delivery::Accepted(5));

    let totals = shipper.totals(Resolution::Baseline);
    assert_eq!((totals.seen, totals.sent, totals.lost[SampleLossReason::Refused as usize]), (15, 8, 7));
    let counters = shipper.counters();
    assert_eq!((counters.requests, counters.failed, counters.refused, counters.fallbacks), (5, 2, 2, 0));
    assert_eq!(shipper.version(), Version::Otlp);
}
