//! Delimited messages, written by a library from a description of their fields.

use exposition::{Format, FormatError};
use prost::Message;

use super::{SlotValue, after, target};

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
            Metric { histogram: Some(Histogram { count: 10 * n, sum: 2.0 * of, bucket }), ..Metric::default() },
        ),
        family(
            "native_seconds",
            4,
            Metric { histogram: Some(Histogram { count: 10 * n, sum: 2.0 * of, bucket: vec![] }), ..Metric::default() },
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
