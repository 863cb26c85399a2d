//! Delimited messages, written by a library from a description of their fields.

use exposition::{Format, FormatError};
use prost::Message;

use super::{SlotValue, after, below_zero, target};

#[derive(Clone, PartialEq, Message)]
struct MetricFamily {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    help: String,
    #[prost(int32, tag = "3")]
    kind: i32,
    #[prost(message, repeated, tag = "4")]
    metric: Vec<Metric>,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Value>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Value>,
    #[prost(message, optional, tag = "4")]
    summary: Option<Summary>,
    #[prost(int64, tag = "6")]
    timestamp_ms: i64,
    #[prost(message, optional, tag = "7")]
    histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(double, tag = "1")]
    value: f64,
}

#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(uint64, tag = "1")]
    count: u64,
    #[prost(double, tag = "2")]
    sum: f64,
    #[prost(message, repeated, tag = "3")]
    quantile: Vec<Quantile>,
}

#[derive(Clone, PartialEq, Message)]
struct Quantile {
    #[prost(double, tag = "1")]
    quantile: f64,
    #[prost(double, tag = "2")]
    value: f64,
}

#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(uint64, tag = "1")]
    count: u64,
    #[prost(double, tag = "2")]
    sum: f64,
    #[prost(message, repeated, tag = "3")]
    bucket: Vec<Bucket>,
    #[prost(sint32, tag = "5")]
    schema: i32,
    #[prost(uint64, tag = "7")]
    zero_count: u64,
    #[prost(message, repeated, tag = "9")]
    negative_span: Vec<Span>,
    #[prost(sint64, repeated, packed = "false", tag = "10")]
    negative_delta: Vec<i64>,
    #[prost(message, repeated, tag = "12")]
    positive_span: Vec<Span>,
    #[prost(sint64, repeated, packed = "false", tag = "13")]
    positive_delta: Vec<i64>,
    #[prost(double, repeated, packed = "true", tag = "14")]
    positive_count: Vec<f64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Span {
    #[prost(sint32, tag = "1")]
    offset: i32,
    #[prost(uint32, tag = "2")]
    length: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Bucket {
    #[prost(uint64, tag = "1")]
    below: u64,
    #[prost(double, tag = "2")]
    bound: f64,
}

fn family(name: &str, kind: i32, metric: Metric) -> MetricFamily {
    MetricFamily { name: name.to_owned(), help: "Help.".to_owned(), kind, metric: vec![metric] }
}

fn page(n: u64) -> Vec<u8> {
    let of = n as f64;
    let label = vec![LabelPair { name: "path".to_owned(), value: "/pay".to_owned() }];
    let quantile = vec![Quantile { quantile: 0.5, value: 0.25 * of }];
    let bucket = vec![Bucket { below: 8 * n, bound: 0.1 }, Bucket { below: 10 * n, bound: 1.0 }];
    let all = [
        family("requests_total", 0, Metric { label, counter: Some(Value { value: 7.0 * of }), ..Metric::default() }),
        family("depth", 1, Metric { gauge: Some(Value { value: of }), timestamp_ms: 5, ..Metric::default() }),
        family("gc", 2, Metric { summary: Some(Summary { count: n, sum: of, quantile }), ..Metric::default() }),
        family(
            "duration_seconds",
            4,
            Metric {
                histogram: Some(Histogram { count: 10 * n, sum: 2.0 * of, bucket, ..Histogram::default() }),
                ..Metric::default()
            },
        ),
        family(
            "native_seconds",
            4,
            Metric {
                histogram: Some(Histogram { count: 10 * n, sum: 2.0 * of, ..Histogram::default() }),
                ..Metric::default()
            },
        ),
    ];
    all.iter().flat_map(Message::encode_length_delimited_to_vec).collect()
}

#[test]
fn messages_become_what_text_becomes() {
    let held = after(&[page(1), page(2), page(3)], Format::Protobuf);

    assert_eq!(held[r#"requests_total{path="/pay"}"#], SlotValue::Counter(7));
    assert_eq!(held["depth"], SlotValue::Gauge(3.0));
    assert_eq!(held[r#"gc{quantile="0.5"}"#], SlotValue::Gauge(0.75));
    assert_eq!((&held["gc_count"], &held["gc_sum"]), (&SlotValue::Counter(1), &SlotValue::Counter(1)));
    let SlotValue::Histogram(count, sum, p99) = held["duration_seconds"] else { panic!("{held:?}") };
    assert_eq!((count, sum), (10, 2_000));
    assert!((0.4..1.0).contains(&p99), "{p99}");
    // Without buckets, all values are taken for their mean.
    let SlotValue::Histogram(count, sum, p99) = held["native_seconds"] else { panic!("{held:?}") };
    assert_eq!(count, 10);
    assert!(sum > 0 && (0.18..0.26).contains(&p99), "{sum} {p99}");
}

#[test]
fn a_message_that_is_cut_is_refused_with_its_number() {
    let whole = page(1);
    let first = family("a", 1, Metric::default()).encode_length_delimited_to_vec().len();
    assert!(first < whole.len());

    for length in 1..whole.len() {
        match target().take(&whole[..length], Format::Protobuf) {
            // At the border of two messages.
            Ok(_) => {}
            Err(FormatError::Message { message, .. }) => assert!((1..=5).contains(&message), "{message}"),
            Err(other) => panic!("{other:?}"),
        }
    }
    let error = target().take(&[0xff; 3], Format::Protobuf).unwrap_err();
    assert!(matches!(error, FormatError::Message { message: 1, .. }), "{error}");
}

/// Count, sum in parts, and 99th percentile after three scrapes, of which the first has one part of everything.
fn native(histogram: impl Fn(u64) -> Histogram) -> (u64, u64, f64) {
    let page = |n| {
        let metric = Metric { histogram: Some(histogram(n)), ..Metric::default() };
        family("native_seconds", 4, metric).encode_length_delimited_to_vec()
    };
    let held = after(&[page(1), page(2), page(3)], Format::Protobuf);
    let SlotValue::Histogram(count, sum, p99) = held["native_seconds"] else { unreachable!("{held:?}") };
    (count, sum, p99)
}

/// Spans of one bucket each, at these numbers.
fn spans(numbers: &[i32]) -> Vec<Span> {
    let next = numbers.iter().map(|number| number + 1);
    let gaps = numbers.iter().zip(std::iter::once(0).chain(next)).map(|(number, next)| number - next);
    gaps.map(|offset| Span { offset, length: 1 }).collect()
}

#[test]
fn a_native_histogram_has_its_quantiles() {
    // 9 in (1/16, 1/8], 1 in (1/2, 1], and 2 at 0, in each scrape.
    let (count, sum, p99) = native(|n| Histogram {
        count: 12 * n,
        sum: 1.65 * n as f64,
        zero_count: 2 * n,
        positive_span: spans(&[-3, 0]),
        positive_delta: vec![9 * n as i64, -8 * n as i64],
        // As of a server that is asked for both.
        bucket: vec![Bucket { below: 12 * n, bound: 100.0 }],
        ..Histogram::default()
    });

    assert_eq!((count, sum), (12, 1_650));
    assert!((0.5..=1.0).contains(&p99), "{p99}");
}

#[test]
fn fine_buckets_far_apart_are_merged_and_floats_are_counted() {
    // From 1 ms to 8 s, 256 buckets for each power of two.
    let (count, _, p99) = native(|n| Histogram {
        count: 10 * n,
        sum: 20.0 * n as f64,
        schema: 8,
        zero_count: n,
        positive_span: spans(&[-2_551, 768]),
        positive_count: vec![5.0 * n as f64, 4.0 * n as f64],
        ..Histogram::default()
    });

    assert_eq!(count, 10);
    assert!((6.7..=8.0).contains(&p99), "{p99}");
}

#[test]
fn a_native_histogram_has_its_values_below_0_beside_it() {
    // 8 in [-8, -4), 3 in (1, 2], and one at 0.
    let page = |n: u64| {
        let histogram = Histogram {
            count: 12 * n,
            sum: -43.5 * n as f64,
            zero_count: n,
            negative_span: spans(&[3]),
            negative_delta: vec![8 * n as i64],
            positive_span: spans(&[1]),
            positive_delta: vec![3 * n as i64],
            ..Histogram::default()
        };
        let metric = Metric { histogram: Some(histogram), ..Metric::default() };
        family("drift_seconds", 4, metric).encode_length_delimited_to_vec()
    };
    let mut target = target();
    for n in 1..=3 {
        if target.take(&page(n), Format::Protobuf).unwrap() {
            target.choose();
        }
    }

    // The share of the buckets' width that makes the sum is the middle: 8 × -6 + 3 × 1.5.
    assert_eq!(below_zero::sides(&target, "drift_seconds"), [Some((4, 4.5)), Some((8, 48.0))]);
}

#[test]
fn negative_buckets_that_make_no_sense_are_refused() {
    let of = |negative_delta: Vec<i64>| {
        let histogram = Histogram { count: 3, negative_span: spans(&[1, 2]), negative_delta, ..Histogram::default() };
        let metric = Metric { histogram: Some(histogram), ..Metric::default() };
        target().take(&family("a", 4, metric).encode_length_delimited_to_vec(), Format::Protobuf)
    };

    assert!(of(vec![1, 1]).is_ok());
    for deltas in [vec![1], vec![1, -2], vec![1, 1, 1]] {
        let error = of(deltas).unwrap_err();
        assert!(matches!(error, FormatError::Message { message: 1, .. }), "{error}");
    }
}

#[test]
fn a_native_histogram_of_other_bounds_has_a_count_and_a_mean() {
    // Bounds of its own (-53), and buckets beyond all that are kept.
    for (schema, numbers) in [(-53, [1, 2]), (2, [-4_000, 4_000]), (0, [0, -5])] {
        let (count, _, p99) = native(|n| Histogram {
            count: 2 * n,
            sum: 0.4 * n as f64,
            schema,
            positive_span: spans(&numbers),
            positive_delta: vec![n as i64, 0],
            ..Histogram::default()
        });

        assert_eq!(count, 2, "schema {schema}");
        assert!((0.18..0.26).contains(&p99), "schema {schema}: {p99}");
    }
}

#[test]
fn native_buckets_that_make_no_sense_are_refused() {
    let of = |positive_span: Vec<Span>, positive_delta: Vec<i64>| {
        let histogram = Histogram { count: 3, positive_span, positive_delta, ..Histogram::default() };
        let metric = Metric { histogram: Some(histogram), ..Metric::default() };
        target().take(&family("a", 4, metric).encode_length_delimited_to_vec(), Format::Protobuf)
    };
    assert!(of(spans(&[1, 2]), vec![1, 1]).is_ok());

    for (spans, deltas) in [
        (spans(&[1, 2]), vec![1]),
        (spans(&[1]), vec![1, 1]),
        (spans(&[1, 2]), vec![1, -2]),
        (vec![Span { offset: 0, length: u32::MAX }], vec![1]),
        (vec![Span { offset: 0, length: 3_000 }], vec![0; 3_000]),
    ] {
        let error = of(spans, deltas).unwrap_err();
        assert!(matches!(error, FormatError::Message { message: 1, .. }), "{error}");
        assert!(error.to_string().contains("a native histogram has"), "{error}");
    }
}
