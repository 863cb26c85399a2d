//! A scrape whose samples are all known allocates nothing per sample: asserted by an allocator that counts, alone in
//! its process.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

use std::fmt::Write as _;
use std::hint::black_box;

use exposition::choice::ChoiceSettings;
use exposition::{Discard, Format, RefusedSamples, Target, TargetSettings};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, number_data_point,
};
use prost::Message as _;

/// A page with `series` counters and a histogram, in scrape number `scrape`.
fn page(series: usize, scrape: usize) -> String {
    let mut text = String::from("# TYPE requests_total counter\n");
    for at in 0..series {
        _ = writeln!(text, "requests_total{{path=\"/{at}\",code=\"200\"}} {}", scrape * (at + 1));
    }
    text.push_str("# TYPE duration_seconds histogram\n");
    for (bound, part) in [("0.1", 1), ("1", 2), ("+Inf", 3)] {
        _ = writeln!(text, "duration_seconds_bucket{{le=\"{bound}\"}} {}", scrape * part);
    }
    _ = writeln!(text, "duration_seconds_sum {}\nduration_seconds_count {}", scrape, scrape * 3);
    text
}

/// An OTLP export with `series` counters and as many histograms, number `export`.
fn exported(series: usize, export: usize) -> Vec<u8> {
    let time_unix_nano = export as u64 * 1_000_000_000;
    let attributes = |at: usize| vec![support::otlp::text("path", &format!("/{at}"))];
    let count = |at: usize| NumberDataPoint {
        time_unix_nano,
        attributes: attributes(at),
        value: Some(number_data_point::Value::AsInt((export * (at + 1)) as i64)),
        ..NumberDataPoint::default()
    };
    let took = |at: usize| HistogramDataPoint {
        time_unix_nano,
        attributes: attributes(at),
        count: export as u64,
        sum: Some(export as f64),
        explicit_bounds: vec![1.0, 2.0],
        bucket_counts: vec![export as u64, 0, 0],
        ..HistogramDataPoint::default()
    };
    let (aggregation_temporality, is_monotonic) = (2, true);
    let counts = Sum { data_points: (0..series).map(count).collect(), aggregation_temporality, is_monotonic };
    let took = Histogram { data_points: (0..series).map(took).collect(), aggregation_temporality };
    let metric = |name: &str, data| Metric { name: name.to_owned(), data: Some(data), ..Metric::default() };
    let metrics = vec![metric("requests", Data::Sum(counts)), metric("took", Data::Histogram(took))];
    let scope = ScopeMetrics { metrics, ..ScopeMetrics::default() };
    ResourceMetrics { scope_metrics: vec![scope], ..ResourceMetrics::default() }.encode_to_vec()
}

/// A target that has chosen among the series of [`page`], and its next scrape.
fn settled(series: usize) -> (Target, usize) {
    let choice = ChoiceSettings { allow: vec![], deny: vec![], columns: 100, label_sets: 8 };
    let settings = TargetSettings { choice, labels: vec![], window: 10, samples: 20_000, hold: 0 };
    let mut target = Target::new(settings);
    for scrape in 1..=10 {
        if target.take(page(series, scrape).as_bytes(), Format::Text).unwrap() {
            target.choose();
        }
    }
    assert!(target.is_chosen());
    (target, 11)
}

#[test]
fn a_scrape_of_known_series_allocates_nothing() {
    let before = allocations::calls().allocations;
    drop(black_box(Box::new(1)));
    assert!(allocations::calls().allocations > before, "the allocator counts");
    for series in [10, 5_000] {
        let (mut target, scrape) = settled(series);
        let page = page(series, scrape);
        let mut stored = 0_u64;

        let before = allocations::calls().allocations;
        assert_eq!(target.take(page.as_bytes(), Format::Text), Ok(false));
        target.store(|_, value| stored = stored.wrapping_add(value));

        assert_eq!(allocations::calls().allocations - before, 0, "{series} series");
        assert!(stored > 0 && target.last_scrape() == (series + 5, RefusedSamples::default()));
    }
}

/// A page of as many bytes as an answer may have, of label sets that no other scrape has.
fn endless(scrape: usize) -> String {
    let mut text = String::from("# TYPE requests_total counter\n");
    let mut at = 0;
    while text.len() < MAX_BYTES {
        _ = writeln!(text, "requests_total{{scrape=\"{scrape}\",id=\"{at:0128}\",path=\"/a/{scrape}/{at}\"}} {at}");
        at += 1;
    }
    text
}

/// The default `max_bytes`.
const MAX_BYTES: usize = 4 << 20;

#[test]
fn label_sets_that_change_with_every_scrape_take_the_memory_that_is_stated_and_are_counted() {
    const SAMPLES: usize = 20_000;
    const WINDOW: usize = 60;
    let choice = ChoiceSettings { allow: vec![], deny: vec![], columns: 150, label_sets: 8 };
    let settings = TargetSettings { choice, labels: vec![], window: WINDOW as u32, samples: SAMPLES, hold: 0 };
    // docs/bounds.md, without the two answers of max_bytes.
    let stated = (SAMPLES * (2_000 + 4 * WINDOW)) as isize;
    let mut target = Target::new(settings);
    let mut refused = 0;
    let before = allocations::live();
    let mut most = 0;

    for scrape in 0..WINDOW + 15 {
        let page = endless(scrape);
        allocations::take_peak();
        let page_bytes = page.capacity() as isize;
        if target.take(page.as_bytes(), Format::Text).unwrap() {
            target.choose();
        }
        most = most.max(allocations::take_peak() - before - page_bytes);
        refused += target.last_scrape().1.too_many;
    }

    assert!(most < stated, "{most} bytes of {stated}");
    assert!(most > stated / 20, "the allocator counts: {most} bytes");
    assert!(refused > 1_000_000, "{refused}");
    assert!(target.report().exposed <= SAMPLES);
}

#[test]
fn an_export_of_known_series_allocates_as_often_for_a_few_as_for_many() {
    let calls = [10, 2_000].map(|series| {
        let choice = ChoiceSettings { allow: vec![], deny: vec![], columns: 100, label_sets: 8 };
        let settings = TargetSettings { choice, labels: vec![], window: 10, samples: 20_000, hold: 2 };
        let mut target = Target::new(settings);
        for export in 1..=12 {
            target.begin();
            target.take_part(&exported(series, export), usize::MAX);
            if target.end() {
                target.choose();
            }
        }
        let (export, mut stored) = (exported(series, 13), 0_u64);

        let before = allocations::calls().allocations;
        target.begin();
        let read = target.take_part(&export, usize::MAX);
        assert!(!target.end());
        target.store(|_, value| stored = stored.wrapping_add(value));
        let calls = allocations::calls().allocations - before;

        assert!(stored > 0 && (read.points, read.taken) == (2 * series, 2 * series));
        calls
    });

    assert_eq!(calls[0], calls[1]);
    assert!(calls[0] < 12, "{calls:?}");
}

/// What `series` of a replica may take that learns for `window` exports: docs/bounds.md, without requests that wait,
/// and without what it has beside its series.
const fn stated(series: usize, window: usize) -> isize {
    (series * (1_900 + 4 * window)) as isize
}

/// An OTLP export of `series` label sets that no other export has: three counters to one histogram.
fn changing(series: usize, export: usize) -> Vec<u8> {
    let time_unix_nano = export as u64 * 1_000_000_000;
    let attributes = |at: usize| vec![support::otlp::text("path", &format!("/orders/{export:08}/{at:032}"))];
    let count = |at: usize| NumberDataPoint {
        time_unix_nano,
        attributes: attributes(at),
        value: Some(number_data_point::Value::AsInt(at as i64)),
        ..NumberDataPoint::default()
    };
    let took = |at: usize| HistogramDataPoint {
        time_unix_nano,
        attributes: attributes(at),
        count: 8,
        sum: Some(8.0),
        explicit_bounds: (1..8).map(f64::from).collect(),
        bucket_counts: vec![1; 8],
        ..HistogramDataPoint::default()
    };
    let (aggregation_temporality, is_monotonic) = (2, true);
    let is_histogram = |at: &usize| at.is_multiple_of(4);
    let counts = (0..series).filter(|at| !is_histogram(at)).map(count).collect();
    let counts = Sum { data_points: counts, aggregation_temporality, is_monotonic };
    let took = (0..series).filter(is_histogram).map(took).collect();
    let took = Histogram { data_points: took, aggregation_temporality };
    let metric = |name: &str, data| Metric { name: name.to_owned(), data: Some(data), ..Metric::default() };
    let metrics = vec![metric("took", Data::Histogram(took)), metric("requests", Data::Sum(counts))];
    let scope = ScopeMetrics { metrics, ..ScopeMetrics::default() };
    ResourceMetrics { scope_metrics: vec![scope], ..ResourceMetrics::default() }.encode_to_vec()
}

#[test]
fn label_sets_that_change_with_every_export_take_the_memory_that_is_stated_and_are_counted() {
    const SERIES: usize = 5_000;
    const WINDOW: usize = 20;
    let choice = ChoiceSettings { allow: vec![], deny: vec![], columns: 150, label_sets: 8 };
    let settings = TargetSettings { choice, labels: vec![], window: WINDOW as u32, samples: SERIES, hold: 2 };
    let stated = stated(SERIES, WINDOW);
    let mut target = Target::new(settings);
    let (mut refused, mut most) = (0, 0);
    let before = allocations::live();

    for export in 1..=WINDOW + 15 {
        let encoded = changing(SERIES + SERIES / 3, export);
        allocations::take_peak();
        let request_bytes = encoded.capacity() as isize;
        target.begin();
        target.take_part(&encoded, usize::MAX);
        if target.end() {
            target.choose();
        }
        most = most.max(allocations::take_peak() - before - request_bytes);
        refused += target.take_discards().of(Discard::NoRoom);
        assert!(target.known_samples() <= SERIES);
    }

    assert!(most < stated, "{most} bytes of {stated}");
    assert!(most > stated / 20, "the allocator counts: {most} bytes");
    assert!(refused > 100_000, "{refused}");
    assert!(target.is_chosen() && target.report().exposed <= SERIES);
}

/// Histograms that take much memory, each of a name of its own.
struct LargeSeries {
    /// Bytes of a name.
    name: usize,
    /// Attributes of one of this number.
    attributes: fn(usize) -> Vec<KeyValue>,
    /// Buckets in the first exports, and later.
    buckets: (usize, usize),
}

impl LargeSeries {
    /// Export number `export` of `series` such histograms, half of whose buckets are below 0.
    fn exported(&self, series: usize, export: usize) -> Vec<u8> {
        let buckets = if export < 5 { self.buckets.0 } else { self.buckets.1 };
        let histogram = |at: usize| {
            let point = HistogramDataPoint {
                time_unix_nano: export as u64 * 1_000_000_000,
                attributes: (self.attributes)(at),
                count: (buckets * export) as u64,
                sum: Some(export as f64),
                explicit_bounds: (1..buckets).map(|bound| bound as f64 - buckets as f64 / 2.0).collect(),
                bucket_counts: vec![export as u64; buckets],
                ..HistogramDataPoint::default()
            };
            let data = Histogram { data_points: vec![point], aggregation_temporality: 2 };
            Metric {
                name: format!("m{at:0width$}", width = self.name - 1),
                unit: "u".repeat(63),
                data: Some(Data::Histogram(data)),
                ..Metric::default()
            }
        };
        let scope = ScopeMetrics { metrics: (0..series).map(histogram).collect(), ..ScopeMetrics::default() };
        ResourceMetrics { scope_metrics: vec![scope], ..ResourceMetrics::default() }.encode_to_vec()
    }
}

#[test]
fn histograms_with_the_longest_names_and_labels_take_the_memory_that_is_stated() {
    // One more than a table is grown for.
    const SERIES: usize = 2_049;
    const WINDOW: usize = 10;
    const COLUMNS: usize = 150;
    const NONE: fn(usize) -> Vec<KeyValue> = |_| Vec::new();
    const LABELLED: fn(usize) -> Vec<KeyValue> =
        |at| (0..16).map(|label| support::otlp::text(&format!("l{label}"), &format!("{at:020}"))).collect();
    // Their text is longer than their bytes.
    const TINY: fn(usize) -> Vec<KeyValue> =
        |at| vec![support::otlp::attribute("tiny", Value::DoubleValue(1e-300 / (at + 1) as f64)); 2];
    const EMPTY: fn(usize) -> Vec<KeyValue> = |_| vec![KeyValue::default(); 60];
    let of = |name, attributes, buckets| LargeSeries { name, attributes, buckets };
    // The first takes just what a series has on average, so that all of them are known.
    let all = [
        of(200, NONE, (5, 5)),
        of(255, NONE, (5, 120)),
        of(1_900, NONE, (5, 5)),
        of(40, LABELLED, (5, 5)),
        of(40, TINY, (5, 5)),
        of(40, EMPTY, (5, 5)),
        of(8, NONE, (60, 120)),
    ];
    for (number, large) in all.iter().enumerate() {
        let choice = ChoiceSettings { allow: vec![], deny: vec![], columns: COLUMNS, label_sets: 8 };
        let settings = TargetSettings { choice, labels: vec![], window: WINDOW as u32, samples: SERIES, hold: 2 };
        let before = allocations::live();
        let (mut target, mut most, mut refused) = (Target::new(settings), 0, 0);

        for export in 1..=WINDOW + 2 {
            let encoded = large.exported(SERIES, export);
            allocations::take_peak();
            let request_bytes = encoded.capacity() as isize;
            target.begin();
            target.take_part(&encoded, usize::MAX);
            if target.end() {
                target.choose();
            }
            most = most.max(allocations::take_peak() - before - request_bytes);
            refused += target.take_discards().of(Discard::NoRoom);
            assert!(target.weight() <= SERIES, "{number}: {}", target.weight());
        }

        // A replica's region and columns are stated by themselves.
        let stated = stated(SERIES, WINDOW) + ((96 << 10) + COLUMNS * 1_800) as isize;
        assert!(most < stated, "{number}: {most} bytes of {stated}");
        assert!(most > stated / 4, "{number}: the allocator counts: {most} bytes of {stated}");
        assert!(target.is_chosen());
        assert_eq!(refused > 0, number > 0, "{number}: {refused}");
    }
}
