//! Encoding of requests, compared with prost messages built from structs. `cargo bench -p remote-write` also prints
//! bytes per sample.

use std::sync::Arc;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use hooks::sampling;
use prost::Message as _;
use remote_write::encoding::{Encoder, Version};
use remote_write::message::{Label, Sample, TimeSeries, WriteRequest};
use remote_write::naming::MetricType;
use remote_write::series::{Owner, Point, Series, SeriesMetadata, ServiceNumber};

const SAMPLES: usize = 10_000;

fn main() {
    for (name, per_series) in [("one sample of each series", 1), ("30 samples of each series", 30)] {
        let points = points(per_series);
        for version in [Version::V1, Version::V2] {
            let mut encoder = Encoder::new();
            let body = encoder.body(version, &points).map_or(0, <[u8]>::len);
            let message = encoder.message().len();
            let per_sample = |bytes: usize| bytes as f64 / SAMPLES as f64;
            println!("{name}, {version:?}: {:.1} bytes, compressed {:.1}", per_sample(message), per_sample(body));
        }
    }
    divan::main();
}

/// Series as an agent has them: 125 per service, six labels.
fn points(per_series: usize) -> Vec<Point> {
    let one = |number: usize| {
        let (service, metric) = (number / 125, number % 125);
        let kind = if metric < 80 { MetricType::Counter } else { MetricType::Gauge };
        let name = format!("http_server_request_{}_seconds_total", metric / 5);
        let labels = [
            ("__name__", name.as_str()),
            ("http_request_method", "POST"),
            ("http_route", &format!("/api/v1/orders/{}", metric % 5)),
            ("instance", "node-17.example"),
            ("job", &format!("service-{service}")),
            ("uview_resolution", "dense"),
        ];
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let owner = Owner { service: ServiceNumber(service as u32), series: sampling::Series::Dense };
        let help = format!("http.server.request.{}: since this agent began to watch it", metric / 5);
        let start_ms = if kind == MetricType::Counter { 1_700_000_000_000 } else { 0 };
        Arc::new(Series::new(
            number as u64,
            owner,
            labels,
            SeriesMetadata { kind, unit: "seconds".into(), help, start_ms },
        ))
    };
    let sample = |series: &Arc<Series>, row: usize| {
        let value = (series.number as f64).sqrt() + (row as f64) * 0.137;
        Point::new(Arc::clone(series), 1_700_000_000_000 + 1000 * row as i64, Some(value))
    };
    let series: Vec<_> = (0..SAMPLES.div_ceil(per_series)).map(one).collect();
    series.iter().flat_map(|series| (0..per_series).map(move |row| sample(series, row))).take(SAMPLES).collect()
}

fn encode(bencher: Bencher<'_, '_>, version: Version, per_series: usize) {
    let points = points(per_series);
    let mut encoder = Encoder::new();
    bencher
        .counter(ItemsCount::new(SAMPLES))
        .bench_local(|| encoder.body(version, black_box(&points)).map(<[u8]>::len));
}

#[divan::bench(args = [1, 30])]
fn one(bencher: Bencher<'_, '_>, per_series: usize) {
    encode(bencher, Version::V1, per_series);
}

#[divan::bench(args = [1, 30])]
fn two(bencher: Bencher<'_, '_>, per_series: usize) {
    encode(bencher, Version::V2, per_series);
}

/// Cost of a message built from structs, in 1.0.
#[divan::bench(args = [1, 30])]
fn one_by_structs(bencher: Bencher<'_, '_>, per_series: usize) {
    let points = points(per_series);
    let mut snappy = snap::raw::Encoder::new();
    bencher.counter(ItemsCount::new(SAMPLES)).bench_local(|| {
        let series = black_box(&points).chunk_by(|one, next| one.series.number == next.series.number);
        let label = |(name, value): (&str, &str)| Label { name: name.to_owned(), value: value.to_owned() };
        let sample = |point: &Point| Sample { value: f64::from_bits(point.bits), timestamp: point.at_ms };
        let series = series.map(|points| TimeSeries {
            labels: points[0].series.labels().map(label).collect(),
            samples: points.iter().map(sample).collect(),
            exemplars: Vec::new(),
        });
        let message = WriteRequest { timeseries: series.collect() }.encode_to_vec();
        snappy.compress_vec(&message).map(|body| body.len())
    });
}
