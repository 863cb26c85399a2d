//! OTLP exports, good and bad ones.

use opentelemetry_proto::tonic::common::v1::ArrayValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, Summary, SummaryDataPoint, number_data_point,
};
use prost::Message as _;
use support::otlp::{attribute, text};

use exposition::{Discard, Target};

use super::{SlotValue, below_zero, held, target};

const DELTA: i32 = 1;
const CUMULATIVE: i32 = 2;
/// Flag: no recorded value.
const STALE: u32 = 1;

/// A point at `time` seconds that counts from second 1 on.
fn number(time: u64, value: f64) -> NumberDataPoint {
    NumberDataPoint {
        start_time_unix_nano: 1_000_000_000,
        time_unix_nano: time * 1_000_000_000,
        value: Some(number_data_point::Value::AsDouble(value)),
        ..NumberDataPoint::default()
    }
}

fn labelled(point: NumberDataPoint, attributes: &[(&str, &str)]) -> NumberDataPoint {
    let attributes = attributes.iter().map(|(key, value)| text(key, value)).collect();
    NumberDataPoint { attributes, ..point }
}

fn metric(name: &str, unit: &str, data: Data) -> Metric {
    Metric { name: name.to_owned(), unit: unit.to_owned(), data: Some(data), ..Metric::default() }
}

fn counter(name: &str, temporality: i32, data_points: Vec<NumberDataPoint>) -> Metric {
    metric(name, "{thing}", Data::Sum(Sum { data_points, aggregation_temporality: temporality, is_monotonic: true }))
}

fn gauge(name: &str, data_points: Vec<NumberDataPoint>) -> Metric {
    metric(name, "", Data::Gauge(Gauge { data_points }))
}

fn histogram(time: u64, bounds: &[f64], counts: &[u64], sum: f64) -> HistogramDataPoint {
    HistogramDataPoint {
        start_time_unix_nano: 1_000_000_000,
        time_unix_nano: time * 1_000_000_000,
        count: counts.iter().sum(),
        sum: Some(sum),
        bucket_counts: counts.to_vec(),
        explicit_bounds: bounds.to_vec(),
        ..HistogramDataPoint::default()
    }
}

fn histograms(name: &str, temporality: i32, data_points: Vec<HistogramDataPoint>) -> Metric {
    metric(name, "s", Data::Histogram(Histogram { data_points, aggregation_temporality: temporality }))
}

fn exponential(time: u64, scale: i32, offset: i32, counts: &[u64], sum: f64) -> Metric {
    let point = ExponentialHistogramDataPoint {
        time_unix_nano: time * 1_000_000_000,
        count: counts.iter().sum(),
        sum: Some(sum),
        scale,
        positive: Some(Buckets { offset, bucket_counts: counts.to_vec() }),
        ..ExponentialHistogramDataPoint::default()
    };
    let data = ExponentialHistogram { data_points: vec![point], aggregation_temporality: DELTA };
    metric("size", "By", Data::ExponentialHistogram(data))
}

fn encoded(metrics: Vec<Metric>) -> Vec<u8> {
    let scope = ScopeMetrics { metrics, ..ScopeMetrics::default() };
    ResourceMetrics { scope_metrics: vec![scope], ..ResourceMetrics::default() }.encode_to_vec()
}

fn export(target: &mut Target, metrics: Vec<Metric>) {
    target.begin();
    target.take_part(&encoded(metrics), 1_000);
    if target.end() {
        target.choose();
    }
}

/// Takes exports, the first two of which are learnt.
fn after(exports: impl IntoIterator<Item = Vec<Metric>>) -> Target {
    let mut target = target();
    exports.into_iter().for_each(|metrics| export(&mut target, metrics));
    target
}

/// The value of a series by its title.
fn value(target: &Target, title: &str) -> Option<SlotValue> {
    held(target).remove(title)
}

fn discarded(target: &mut Target) -> Vec<(Discard, u64)> {
    let discards = target.take_discards();
    Discard::ALL.into_iter().map(|why| (why, discards.of(why))).filter(|(_, count)| *count > 0).collect()
}

#[test]
fn sums_of_both_temporalities_are_counters_and_resets_count_from_zero() {
    let at = |time: u64, cumulative: f64, start: u64| {
        let total = NumberDataPoint { start_time_unix_nano: start, ..number(time, cumulative) };
        vec![counter("total", CUMULATIVE, vec![total]), counter("delta", DELTA, vec![number(time, 3.0)])]
    };

    // Growth of 5; a reset by value to 4; one by start time, to more than before.
    let exports = [at(2, 10.0, 1), at(3, 20.0, 1), at(4, 25.0, 1), at(5, 4.0, 1), at(6, 50.0, 5_500_000_000)];
    let target = after(exports);

    assert_eq!(value(&target, "total"), Some(SlotValue::Counter(5 + 4 + 50)));
    assert_eq!(value(&target, "delta"), Some(SlotValue::Counter(9)));
    let placed = target.placed();
    assert_eq!(placed[0].series.unit.as_ref().map(ToString::to_string).as_deref(), Some("{thing}"));
}

#[test]
fn sums_that_fall_are_gauges_and_gauges_are_held_until_they_are_stale() {
    let rising = |time: u64, delta: f64, depth: Option<NumberDataPoint>| {
        let active =
            Sum { data_points: vec![number(time, delta)], aggregation_temporality: DELTA, is_monotonic: false };
        vec![metric("active", "", Data::Sum(active)), gauge("depth", depth.into_iter().collect())]
    };
    let mut target = after([rising(2, 5.0, Some(number(2, 7.0))), rising(3, -2.0, Some(number(3, 8.0)))]);
    export(&mut target, rising(4, 4.0, None));
    assert_eq!(value(&target, "active"), Some(SlotValue::Gauge(7.0)));
    // A target of endpoints holds nothing.
    assert!(matches!(value(&target, "depth"), Some(SlotValue::Gauge(depth)) if depth.is_nan()));

    export(&mut target, rising(5, 0.0, Some(number(5, 9.0))));
    assert_eq!(value(&target, "depth"), Some(SlotValue::Gauge(9.0)));
    export(&mut target, rising(6, 0.0, Some(NumberDataPoint { flags: STALE, value: None, ..number(6, 0.0) })));
    assert!(matches!(value(&target, "depth"), Some(SlotValue::Gauge(depth)) if depth.is_nan()));
    assert_eq!(discarded(&mut target), []);
}

#[test]
fn histograms_have_count_sum_and_tail_whatever_their_temporality_and_buckets() {
    const BOUNDS: [f64; 3] = [0.1, 0.2, 1.0];
    let at = |time: u64, cumulative: &[u64], sum: f64, sizes: &[u64]| {
        let total = histograms("total", CUMULATIVE, vec![histogram(time, &BOUNDS, cumulative, sum)]);
        let delta = histograms("delta", DELTA, vec![histogram(time, &BOUNDS, &[0, 0, 10, 0], 5.0)]);
        vec![total, delta, exponential(time, 1, 18, sizes, 600.0 * sizes[0] as f64)]
    };

    let target =
        after([at(2, &[5, 0, 0, 0], 0.25, &[1]), at(3, &[9, 0, 0, 0], 0.5, &[1]), at(4, &[9, 4, 0, 0], 1.1, &[2])]);

    let Some(SlotValue::Histogram(count, sum, p99)) = value(&target, "total") else { panic!("{target:?}") };
    assert_eq!((count, sum), (4, 600), "thousandths");
    assert!((0.1..0.2).contains(&p99), "{p99}");
    let Some(SlotValue::Histogram(count, _, p99)) = value(&target, "delta") else { panic!("{target:?}") };
    assert!(count == 10 && (0.4..0.6).contains(&p99), "{count} {p99}");
    // Scale 1, bucket 18: 512 to 724, of which the mean says where.
    let Some(SlotValue::Histogram(count, _, p99)) = value(&target, "size") else { panic!("{target:?}") };
    assert!(count == 2 && (512.0..640.0).contains(&p99), "{count} {p99}");
}

#[test]
fn values_below_zero_have_a_histogram_of_their_own_whatever_their_temporality_and_buckets() {
    let batches = [1, 2, 3].map(below_zero::values);
    let explicit = |values: &[f64], time: u64| {
        let mut counts = vec![0; below_zero::BOUNDS.len() + 1];
        for value in values {
            counts[below_zero::BOUNDS.partition_point(|bound| bound < value)] += 1;
        }
        histogram(time, &below_zero::BOUNDS, &counts, values.iter().sum())
    };
    let buckets = |values: &mut dyn Iterator<Item = f64>| {
        let numbers: Vec<i32> = values.map(|value| (value.log2() * 4.0).ceil() as i32 - 1).collect();
        let offset = *numbers.iter().min().unwrap();
        let mut bucket_counts = vec![0; (numbers.iter().max().unwrap() - offset) as usize + 1];
        for number in numbers {
            bucket_counts[(number - offset) as usize] += 1;
        }
        Some(Buckets { offset, bucket_counts })
    };
    let exports = (2..).zip(&batches).map(|(time, values)| {
        let so_far: Vec<f64> = batches.iter().take(time as usize - 1).flatten().copied().collect();
        let point = ExponentialHistogramDataPoint {
            time_unix_nano: time * 1_000_000_000,
            count: values.len() as u64,
            sum: Some(values.iter().sum()),
            scale: 2,
            positive: buckets(&mut values.iter().copied().filter(|value| *value > 0.0)),
            negative: buckets(&mut values.iter().copied().filter(|value| *value < 0.0).map(f64::abs)),
            ..ExponentialHistogramDataPoint::default()
        };
        let exponential = ExponentialHistogram { data_points: vec![point], aggregation_temporality: DELTA };
        vec![
            histograms("delta", DELTA, vec![explicit(values, time)]),
            histograms("total", CUMULATIVE, vec![explicit(&so_far, time)]),
            metric("fine", "s", Data::ExponentialHistogram(exponential)),
        ]
    });

    let target = after(exports);

    for (name, within) in [("delta", 2.0), ("total", 2.0), ("fine", 1.2)] {
        below_zero::check(&target, name, &batches[2], within);
    }
}

#[test]
fn values_below_zero_that_come_after_the_choice_count_as_zero() {
    let at = |time: u64, below: u64| {
        let point = ExponentialHistogramDataPoint {
            time_unix_nano: time * 1_000_000_000,
            count: 2 + below,
            sum: Some(6.0 - 3.0 * below as f64),
            positive: Some(Buckets { offset: 1, bucket_counts: vec![2] }),
            negative: Some(Buckets { offset: 1, bucket_counts: vec![below] }),
            ..ExponentialHistogramDataPoint::default()
        };
        let data = ExponentialHistogram { data_points: vec![point], aggregation_temporality: DELTA };
        vec![metric("size", "By", Data::ExponentialHistogram(data))]
    };

    let target = after([at(2, 0), at(3, 0), at(4, 1)]);

    assert_eq!(below_zero::sides(&target, "size"), [Some((3, 6.0)), None]);
}

#[test]
fn a_summary_is_its_count_and_its_sum() {
    let at = |time: u64, count: u64, sum: f64| {
        let point = SummaryDataPoint { time_unix_nano: time, count, sum, ..SummaryDataPoint::default() };
        vec![metric("rpc", "s", Data::Summary(Summary { data_points: vec![point] }))]
    };

    let target = after([at(2, 5, 1.0), at(3, 8, 2.0), at(4, 10, 2.5)]);

    assert_eq!(value(&target, "rpc_count"), Some(SlotValue::Counter(2)));
    assert_eq!(value(&target, "rpc_sum"), Some(SlotValue::Counter(500_000)), "in µs");
}

#[test]
fn older_and_repeated_points_are_dropped_and_the_order_of_attributes_does_not_matter() {
    let pairs = [("a", "1"), ("b", "2")];
    let at = |time: u64, value: f64, attributes: &[(&str, &str)]| {
        vec![counter("jobs", DELTA, vec![labelled(number(time, value), attributes)])]
    };
    let mut target = after([at(2, 1.0, &pairs), at(3, 1.0, &pairs)]);

    export(&mut target, at(4, 10.0, &[("b", "2"), ("a", "1")]));
    export(&mut target, at(4, 100.0, &pairs));
    export(&mut target, at(1, 100.0, &pairs));

    assert_eq!(value(&target, r#"jobs{a="1",b="2"}"#), Some(SlotValue::Counter(10)));
    assert_eq!(discarded(&mut target), [(Discard::Older, 1), (Discard::Duplicate, 1)]);
}

#[test]
fn a_clock_that_was_ahead_stops_nothing_for_long() {
    let at = |time: u64, value: f64| vec![counter("jobs", CUMULATIVE, vec![number(time, value)])];
    let mut target = after([at(1_000_000, 1.0), at(1_000_001, 2.0)]);

    for (time, count) in (10..).zip([5.0, 6.0, 7.0, 8.0, 10.0]) {
        export(&mut target, at(time, count));
    }

    // What came until the third point is not known to be new.
    assert_eq!(value(&target, "jobs"), Some(SlotValue::Counter(3)));
    assert_eq!(discarded(&mut target), [(Discard::Older, 2)]);
}

#[test]
fn a_name_whose_type_changes_keeps_its_first_type() {
    let counters = |time| vec![counter("jobs", CUMULATIVE, vec![number(time, time as f64)])];
    let mut target = after([counters(2), counters(3)]);

    export(&mut target, vec![gauge("jobs", vec![number(4, 1_000.0)])]);
    export(&mut target, vec![histograms("jobs", DELTA, vec![histogram(5, &[1.0], &[9, 9], 3.0)])]);
    export(&mut target, counters(6));

    assert_eq!(value(&target, "jobs"), Some(SlotValue::Counter(3)));
    assert_eq!(discarded(&mut target), [(Discard::Type, 2)]);
}

#[test]
fn what_is_no_number_and_what_does_not_match_is_left_out_and_counted() {
    let good = |time: u64| {
        vec![
            gauge("depth", vec![number(time, time as f64)]),
            histograms("took", DELTA, vec![histogram(time, &[1.0], &[1, 1], 2.0)]),
            counter("jobs", DELTA, vec![number(time, 1.0)]),
        ]
    };
    let mut target = after([good(2), good(3)]);

    export(
        &mut target,
        vec![
            gauge("depth", vec![number(4, f64::NAN)]),
            histograms("took", DELTA, vec![histogram(4, &[1.0, 2.0], &[1, 1], 2.0)]),
            counter("jobs", DELTA, vec![number(4, f64::INFINITY), number(5, -3.0)]),
            counter("others", 0, vec![number(4, 3.0)]),
            exponential(4, i32::MIN, i32::MAX, &[1, 2], 1.0),
        ],
    );

    assert!(matches!(value(&target, "depth"), Some(SlotValue::Gauge(depth)) if depth.is_nan()));
    assert!(matches!(value(&target, "took"), Some(SlotValue::Histogram(0, ..))));
    assert_eq!(value(&target, "jobs"), Some(SlotValue::Counter(0)));
    let expected = [(Discard::Malformed, 2), (Discard::Value, 3), (Discard::Temporality, 1)];
    assert_eq!(discarded(&mut target), expected);
    target.begin();
    assert_eq!(target.take_part(&[0x12, 200, 1], 10).points, 0);
    assert_eq!(discarded(&mut target), [(Discard::Malformed, 1)]);
}

#[test]
fn a_histogram_whose_bounds_change_goes_on_from_the_next_export() {
    let at = |time: u64, bounds: &[f64], counts: &[u64]| {
        vec![histograms("took", CUMULATIVE, vec![histogram(time, bounds, counts, 1.0)])]
    };

    let exports = [at(2, &[1.0], &[5, 5]), at(3, &[1.0], &[6, 6]), at(4, &[2.0], &[9, 9]), at(5, &[2.0], &[10, 10])];
    let target = after(exports);

    assert!(matches!(value(&target, "took"), Some(SlotValue::Histogram(2, ..))), "{:?}", value(&target, "took"));
}

#[test]
fn label_values_without_an_end_take_no_more_room_than_there_is_and_are_counted_in_the_rest() {
    let mut target = target();
    target.leave_room(20);
    let mut sent = 0;
    for time in 2..200_u64 {
        let users: Vec<_> = (0..5).map(|user| format!("{time}-{user}")).collect();
        let points = users.iter().map(|user| labelled(number(time, 1.0), &[("user", user)])).collect();
        export(&mut target, vec![counter("jobs", DELTA, points)]);
        sent += 5;
        assert!(target.known_samples() <= 20, "{time}");
        target.leave_room(20 - target.known_samples());
    }

    let Some(SlotValue::Counter(rest)) = value(&target, r#"jobs{series="other"}"#) else { panic!("{target:?}") };
    // Room is made every ten exports: what comes in between is left out, and counted.
    let left_out: u64 = discarded(&mut target).iter().map(|(_, count)| count).sum();
    assert!(rest > 100 && rest + left_out <= sent && left_out > 0, "{rest} {left_out}");
}

#[test]
fn label_sets_that_came_once_while_it_learnt_get_no_column() {
    let mut target = target();
    for time in 2..8_u64 {
        let user = time.to_string();
        let once = labelled(number(time, 1.0), &[("user", &user)]);
        let always = labelled(number(time, 5.0), &[("user", "always")]);
        export(&mut target, vec![counter("logins", DELTA, vec![always, once])]);
    }

    let titles: Vec<_> = held(&target).into_keys().collect();
    // The last one is still there when series are chosen.
    let expected = [r#"logins{series="other"}"#, r#"logins{user="3"}"#, r#"logins{user="always"}"#];
    assert_eq!(titles, expected);
    assert_eq!(value(&target, expected[0]), Some(SlotValue::Counter(4)));
}

#[test]
fn of_a_request_only_so_many_points_are_looked_at() {
    let mut target = target();
    let points = (0..50).map(|at| labelled(number(2, 1.0), &[("a", &at.to_string())])).collect();

    target.begin();
    let read = target.take_part(&encoded(vec![gauge("depth", points)]), 10);

    assert_eq!((read.points, read.taken), (10, 10));
    assert_eq!(discarded(&mut target), [(Discard::OverLimit, 40)]);
}

#[test]
fn an_export_in_parts_is_one_and_the_next_one_is_told_by_a_later_point() {
    let part = |name: &str, time: u64| encoded(vec![gauge(name, vec![number(time, 1.0)])]);
    let mut target = target();

    target.begin();
    target.take_part(&part("a", 2), 9);
    assert!(!target.is_next(&part("b", 2)), "another part");
    target.take_part(&part("b", 2), 9);
    assert!(!target.is_next(&part("a", 2)), "a request that is repeated");
    assert!(target.is_next(&part("a", 3)));
    target.end();
    target.begin();

    assert!(!target.is_next(&part("a", 3)));
}

#[test]
fn another_replica_watches_the_same_series_from_its_first_export_on() {
    let at = |time: u64, value: f64| {
        let points = ["200", "500"].map(|code| labelled(number(time, value), &[("code", code)]));
        vec![counter("requests", CUMULATIVE, points.to_vec()), gauge("limit", vec![number(time, 4.0)])]
    };
    let first = after([at(2, 10.0), at(3, 20.0)]);

    let mut twin = first.twin();
    assert_eq!((twin.known_samples(), twin.weight()), (0, 1), "what it knows of names counts");
    export(&mut twin, at(4, 100.0));
    export(&mut twin, at(5, 103.0));

    assert_eq!((twin.slots(), twin.placed()), (first.slots(), first.placed()));
    assert_eq!(value(&twin, r#"requests{code="200"}"#), Some(SlotValue::Counter(3)));
    assert_eq!(value(&twin, "limit"), None, "a constant is not learnt again");
    // A label set that nobody has seen is in the rest.
    export(&mut twin, vec![counter("requests", CUMULATIVE, vec![labelled(number(6, 7.0), &[("code", "404")])])]);
    assert_eq!(value(&twin, r#"requests{series="other"}"#), Some(SlotValue::Counter(7)));
}

#[test]
fn attributes_that_are_no_text_tell_series_apart() {
    let of = |value: Value| {
        let attribute = attribute("my key", value);
        NumberDataPoint { attributes: vec![attribute], ..number(0, 0.0) }
    };
    let values = [
        Value::IntValue(-5),
        Value::BoolValue(true),
        Value::DoubleValue(0.5),
        Value::ArrayValue(ArrayValue::default()),
        Value::BytesValue(vec![1]),
    ];
    let at = |time: u64| {
        let value = Some(number_data_point::Value::AsInt(time.cast_signed()));
        let points =
            values.iter().cloned().map(|attribute| NumberDataPoint { time_unix_nano: time, value, ..of(attribute) });
        vec![gauge("depth", points.collect())]
    };

    let target = after([at(2), at(3), at(4)]);

    let titles: Vec<_> = held(&target).into_keys().collect();
    assert!(titles.contains(&r#"depth{my_key="-5"}"#.to_owned()), "{titles:?}");
    assert!(titles.len() == 1 || titles.len() == values.len(), "series that say the same are watched once: {titles:?}");
    assert_eq!(target.report().exposed, values.len());
}
