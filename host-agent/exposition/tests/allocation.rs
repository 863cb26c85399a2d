//! A scrape whose samples are all known allocates nothing per sample: asserted by an allocator that counts, alone in
//! its process.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

use std::fmt::Write as _;
use std::hint::black_box;

use exposition::choice::ChoiceSettings;
use exposition::{Discard, Format, RefusedSamples, Target, TargetSettings};
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
    // docs/bounds.md, without requests that wait, and what a replica has beside its series.
    let stated = (SERIES * (1_900 + 4 * WINDOW)) as isize;
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
