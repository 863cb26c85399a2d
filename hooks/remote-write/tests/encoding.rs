//! Bodies of requests, compared with bytes worked out by hand and with messages that prost decodes.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]
#![expect(dead_code, reason = "each test file uses a part of what they share")]

mod fixtures;

use std::sync::Arc;

use fixtures::{decoded, point, series};
use proptest::prelude::*;
use prost::Message as _;
use remote_write::encoding::{Encoder, Version};
use remote_write::message::{self, v2};
use remote_write::naming::MetricType;
use remote_write::series::{Attachment, Exemplar, Point, STALE_NAN, Series, SeriesMetadata};

/// A counter of two samples, one of them 0, and a gauge that ends.
fn points() -> Vec<Point> {
    let metadata = |kind, unit: &str, help: &str, start_ms| SeriesMetadata {
        kind,
        unit: unit.into(),
        help: help.into(),
        start_ms,
    };
    let labels = [("job", "a"), ("__name__", "up_total")];
    let counter = series(1, 1, &labels, metadata(MetricType::Counter, "", "h", 1000));
    let gauge = series(2, 1, &[("__name__", "g"), ("job", "a")], metadata(MetricType::Gauge, "bytes", "", 0));
    vec![point(&counter, 2000, 1.5), point(&counter, 3000, 0.0), Point::new(gauge, 4000, None)]
}

fn message(version: Version, points: &[Point]) -> Vec<u8> {
    let mut encoder = Encoder::new();
    let body = encoder.body(version, points).unwrap().to_vec();
    assert_eq!(snap::raw::Decoder::new().decompress_vec(&body).unwrap(), encoder.message());
    encoder.message().to_vec()
}

/// Parses lines of hexadecimal numbers, each with a remark.
fn bytes(text: &str) -> Vec<u8> {
    let numbers = text.lines().flat_map(|line| line.split('#').next().unwrap_or_default().split_whitespace());
    numbers.map(|number| u8::from_str_radix(number, 16).unwrap()).collect()
}

/// From the specification, 2.0-rc.4: `Request` has symbols (4) and timeseries (5); `TimeSeries` labels_refs (1,
/// packed), samples (2), metadata (5); `Sample` value (1, double), timestamp (2), start_timestamp (3); `Metadata` type
/// (1), help_ref (3), unit_ref (4). A field begins with its number · 8 + its wire type: 0 a number, 1 eight bytes, 2 a
/// length and so many bytes. A number has 7 bits in each byte, the lowest first.
const TWO: &str = "
22 00                               # symbols[0]: empty, as it has to be
22 08 5f 5f 6e 61 6d 65 5f 5f       # symbols[1]: __name__
22 08 75 70 5f 74 6f 74 61 6c       # symbols[2]: up_total
22 03 6a 6f 62                      # symbols[3]: job
22 01 61                            # symbols[4]: a
22 01 68                            # symbols[5]: h
22 01 67                            # symbols[6]: g
22 05 62 79 74 65 73                # symbols[7]: bytes
2a 25                               # a series of 37 bytes
0a 04 01 02 03 04                   #   its labels, sorted: __name__=up_total, job=a
12 0f 09 00 00 00 00 00 00 f8 3f    #   a sample of 15 bytes: 1.5
10 d0 0f 18 e8 07                   #     at 2000, since 1000
12 06 10 b8 17 18 e8 07             #   a sample: 0, which is not written, at 3000, since 1000
2a 04 08 01 18 05                   #   metadata: a counter, its help is symbols[5], no unit
2a 1a                               # a series of 26 bytes
0a 04 01 06 03 04                   #   __name__=g, job=a
12 0c 09 02 00 00 00 00 00 f0 7f    #   the stale marker, 0x7ff0000000000002
10 a0 1f                            #     at 4000; a gauge has no start
2a 04 08 02 20 07                   #   metadata: a gauge, no help, its unit is symbols[7]
";

/// From the specification, 1.0: `WriteRequest` has timeseries (1); `TimeSeries` labels (1) and samples (2); `Label`
/// name (1) and value (2); `Sample` value (1, double) and timestamp (2).
const ONE: &str = "
0a 33                               # a series of 51 bytes
0a 14                               #   a label of 20 bytes
0a 08 5f 5f 6e 61 6d 65 5f 5f       #     __name__
12 08 75 70 5f 74 6f 74 61 6c       #     up_total
0a 08 0a 03 6a 6f 62 12 01 61       #   job=a
12 0c 09 00 00 00 00 00 00 f8 3f    #   1.5
10 d0 0f                            #     at 2000
12 03 10 b8 17                      #   0 at 3000
0a 27                               # a series of 39 bytes
0a 0d                               #   a label of 13 bytes
0a 08 5f 5f 6e 61 6d 65 5f 5f       #     __name__
12 01 67                            #     g
0a 08 0a 03 6a 6f 62 12 01 61       #   job=a
12 0c 09 02 00 00 00 00 00 f0 7f    #   the stale marker
10 a0 1f                            #     at 4000
";

#[test]
fn two_is_what_the_specification_says_byte_by_byte() {
    assert_eq!(message(Version::V2, &points()), bytes(TWO));
}

#[test]
fn one_is_what_the_specification_says_byte_by_byte() {
    assert_eq!(message(Version::V1, &points()), bytes(ONE));
}

/// 1.0: `TimeSeries` exemplars (3); `Exemplar` labels (1), value (2, double), timestamp (3).
const ONE_WITH_A_TRACE: &str = "
0a 43                               # a series of 67 bytes
0a 0d                               #   a label of 13 bytes
0a 08 5f 5f 6e 61 6d 65 5f 5f       #     __name__
12 01 62                            #     b
12 0c 09 00 00 00 00 00 00 f8 3f    #   1.5
10 d0 0f                            #     at 2000
1a 24                               #   an exemplar of 36 bytes
0a 16                               #     a label of 22 bytes
0a 08 74 72 61 63 65 5f 69 64       #       trace_id
12 0a 30 31 32 33 34 35 36 37 38 39 #       0123456789
11 00 00 00 00 00 00 e0 3f          #     0.5
18 dc 0b                            #     at 1500
";

/// 2.0: `TimeSeries` exemplars (4); `Exemplar` labels_refs (1), value (2, double), timestamp (3).
const TWO_WITH_A_TRACE: &str = "
22 00                               # symbols[0]
22 08 5f 5f 6e 61 6d 65 5f 5f       # symbols[1]: __name__
22 01 62                            # symbols[2]: b
22 08 74 72 61 63 65 5f 69 64       # symbols[3]: trace_id
22 0a 30 31 32 33 34 35 36 37 38 39 # symbols[4]: 0123456789
2a 2b                               # a series of 43 bytes
0a 02 01 02                         #   __name__=b
12 0f 09 00 00 00 00 00 00 f8 3f    #   1.5
10 d0 0f 18 e8 07                   #     at 2000, since 1000
22 10                               #   an exemplar of 16 bytes
0a 02 03 04                         #     trace_id=0123456789
11 00 00 00 00 00 00 e0 3f          #     0.5
18 dc 0b                            #     at 1500
2a 02 08 03                         #   metadata: a histogram
";

#[test]
fn an_exemplar_stands_where_the_specifications_have_it_byte_by_byte() {
    let metadata =
        SeriesMetadata { kind: MetricType::Histogram, unit: String::new(), help: String::new(), start_ms: 1000 };
    let mut shown = point(&series(1, 1, &[("__name__", "b")], metadata), 2000, 1.5);
    shown.attachment = Some(Arc::new(Attachment::Exemplar(Exemplar::new("0123456789", 0.5, 1500))));

    assert_eq!(message(Version::V1, &[shown.clone()]), bytes(ONE_WITH_A_TRACE));
    assert_eq!(message(Version::V2, &[shown]), bytes(TWO_WITH_A_TRACE));
}

#[test]
fn an_exemplar_names_the_incident_of_its_trace_where_labels_may_be_so_long() {
    let metadata =
        SeriesMetadata { kind: MetricType::Histogram, unit: String::new(), help: String::new(), start_ms: 1000 };
    let trace = "ab".repeat(16);
    let shown = |incident: &str| {
        let mut shown = point(&series(1, 1, &[("__name__", "b")], metadata.clone()), 2000, 1.5);
        let exemplar = Exemplar::new(&trace, 0.5, 1500).with_incident(incident);
        shown.attachment = Some(Arc::new(Attachment::Exemplar(exemplar)));
        let one = message::WriteRequest::decode(&message(Version::V1, &[shown.clone()])[..]).unwrap();
        let two = v2::Request::decode(&message(Version::V2, &[shown])[..]).unwrap();
        let one: Vec<_> =
            one.timeseries[0].exemplars[0].labels.iter().map(|of| (of.name.clone(), of.value.clone())).collect();
        let refs = &two.timeseries[0].exemplars[0].labels_refs;
        let text = |place: u32| two.symbols[place as usize].clone();
        let two: Vec<_> = refs.chunks(2).map(|pair| (text(pair[0]), text(pair[1]))).collect();
        assert_eq!(one, two);
        one
    };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let traced = pair("trace_id", &trace);

    let address = "node-3/20261127-064215-123";
    assert_eq!(shown(address), [traced.clone(), pair("uview_incident", address)]);
    assert_eq!(shown(""), std::slice::from_ref(&traced));
    // 8 + 32 + 14 + 74 = 128 characters, and one more.
    let longest = "x".repeat(74);
    assert_eq!(shown(&longest), [traced.clone(), pair("uview_incident", &longest)]);
    assert_eq!(shown(&"x".repeat(75)), [traced]);
}

#[test]
fn two_read_as_one_is_empty_and_so_is_one_read_as_two() {
    let (one, two) = (message(Version::V1, &points()), message(Version::V2, &points()));

    assert!(message::WriteRequest::decode(&two[..]).unwrap().timeseries.is_empty());
    assert!(v2::Request::decode(&one[..]).unwrap().timeseries.is_empty());
}

#[test]
fn a_counter_says_since_when_and_every_series_what_it_is() {
    let request = v2::Request::decode(&message(Version::V2, &points())[..]).unwrap();

    let starts: Vec<_> = request.timeseries.iter().map(|series| series.samples[0].start_timestamp).collect();
    let kinds: Vec<_> = request.timeseries.iter().map(|series| series.metadata.unwrap().r#type()).collect();
    assert_eq!(starts, [1000, 0]);
    assert_eq!(kinds, [v2::MetricType::Counter, v2::MetricType::Gauge]);
}

type DecodedSeries = Vec<(Vec<(String, String)>, Vec<(i64, u64)>)>;

type GeneratedSeries = Vec<(Vec<(String, String)>, Vec<u64>)>;

/// Series with labels of any text, and samples of any bits.
fn anything() -> impl Strategy<Value = GeneratedSeries> {
    let labels = proptest::collection::vec(("\\PC{1,8}", "\\PC{1,300}"), 1..5);
    proptest::collection::vec((labels, proptest::collection::vec(any::<u64>(), 1..6)), 0..8)
}

proptest! {
    #[test]
    fn whatever_goes_in_comes_out_in_both_versions(input in anything(), begin in any::<i32>()) {
        let mut points = Vec::new();
        let mut decoded_series: DecodedSeries = Vec::new();
        for (number, (labels, values)) in (1_u64..).zip(input) {
            let metadata = SeriesMetadata { kind: MetricType::Gauge, unit: "x".into(), help: String::new(), start_ms: 0 };
            let labels: Vec<(&str, &str)> = labels.iter().map(|(name, value)| (&**name, &**value)).collect();
            let one: Arc<Series> = series(number, 1, &labels, metadata);
            let times = (i64::from(begin)..).take(values.len());
            let samples: Vec<(i64, u64)> = times.zip(values).collect();
            points.extend(samples.iter().map(|&(at_ms, bits)| Point { bits, ..point(&one, at_ms, 0.0) }));
            decoded_series.push((one.labels().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(), samples));
        }
        let mut encoder = Encoder::new();
        for version in [Version::V1, Version::V2] {
            let body = encoder.body(version, &points).unwrap().to_vec();
            prop_assert_eq!(&decoded(version, &body), &decoded_series);
        }
    }

    #[test]
    fn labels_are_sorted_whatever_the_order(pairs in proptest::collection::vec(("[a-c]{1,2}", "[x-z]{0,1}"), 0..8)) {
        let labels: Vec<(&str, &str)> = pairs.iter().map(|(name, value)| (&**name, &**value)).collect();
        let metadata = SeriesMetadata { kind: MetricType::Gauge, unit: String::new(), help: String::new(), start_ms: 0 };
        let series = series(1, 1, &labels, metadata);

        let names: Vec<_> = series.labels().map(|(name, _)| name).collect();
        prop_assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", names);
        prop_assert!(series.labels().all(|(_, value)| !value.is_empty()));
    }
}

#[test]
fn a_stale_marker_is_one_nan_and_no_other() {
    let end = &points()[2];
    assert!(end.is_stale_marker() && f64::from_bits(STALE_NAN).is_nan());
    assert!(!Point { bits: f64::NAN.to_bits(), ..end.clone() }.is_stale_marker());
}
