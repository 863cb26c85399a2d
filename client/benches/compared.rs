//! What writing costs beside what else a Rust service counts with, in one run:
//! `cargo bench -p uview --all-features --bench compared`. Handles are kept where a library has them.
//!
//! A time is that of one operation on each of the threads, which write to the same metric.

#![expect(clippy::unwrap_used, reason = "what a benchmark prepares has to work, or it fails")]

use divan::{Bencher, black_box};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Meter, MeterProvider as _};
use opentelemetry_sdk::metrics::SdkMeterProvider;
use uview::{Client, Service};

/// Operations of a sample: enough for threads to get into each other's way.
const OPERATIONS: u32 = 50_000;

fn main() {
    divan::main();
}

fn client() -> Client {
    uview::connect(Service::new("bench").socket("/nonexistent/services.sock"))
}

/// The SDK's hot path does not depend on who reads it.
fn meter() -> (SdkMeterProvider, Meter) {
    let provider = SdkMeterProvider::builder().with_reader(client().metric_reader()).build();
    let meter = provider.meter("bench");
    (provider, meter)
}

/// The facade's exporter, with the handle that `register` makes.
fn exporter<H>(register: impl FnOnce() -> H) -> (metrics_exporter_prometheus::PrometheusRecorder, H) {
    let builder = metrics_exporter_prometheus::PrometheusBuilder::new();
    let recorder = builder.set_buckets(&BOUNDS).unwrap().build_recorder();
    let handle = metrics::with_local_recorder(&recorder, register);
    (recorder, handle)
}

/// The default bounds of Prometheus' clients, in seconds.
const BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

#[divan::bench_group(threads = [1, 2], sample_size = OPERATIONS, sample_count = 40)]
mod counter {
    use super::{Bencher, KeyValue, black_box, client, exporter, meter};

    #[divan::bench]
    fn uview(bencher: Bencher<'_, '_>) {
        let client = client();
        let counter = client.counter("requests").register();
        bencher.bench(|| black_box(&counter).add(black_box(1)));
    }

    #[divan::bench]
    fn uview_sharded(bencher: Bencher<'_, '_>) {
        let client = client();
        let counter = client.sharded_counter("requests").register();
        bencher.bench(|| black_box(&counter).add(black_box(1)));
    }

    #[divan::bench]
    fn uview_by_facade(bencher: Bencher<'_, '_>) {
        let recorder = client().recorder();
        let counter = metrics::with_local_recorder(&recorder, || metrics::counter!("requests"));
        bencher.bench(|| black_box(&counter).increment(black_box(1)));
    }

    #[divan::bench]
    fn prometheus(bencher: Bencher<'_, '_>) {
        let counter = prometheus::IntCounter::new("requests", "of the benchmark").unwrap();
        bencher.bench(|| black_box(&counter).inc_by(black_box(1)));
    }

    #[divan::bench]
    fn metrics_exporter_prometheus(bencher: Bencher<'_, '_>) {
        let (_recorder, counter) = exporter(|| metrics::counter!("requests"));
        bencher.bench(|| black_box(&counter).increment(black_box(1)));
    }

    #[divan::bench]
    fn opentelemetry(bencher: Bencher<'_, '_>) {
        let (_provider, meter) = meter();
        let counter = meter.u64_counter("requests").build();
        bencher.bench(|| black_box(&counter).add(black_box(1), &[]));
    }

    #[divan::bench]
    fn opentelemetry_with_an_attribute(bencher: Bencher<'_, '_>) {
        let (_provider, meter) = meter();
        let counter = meter.u64_counter("requests").build();
        let route = [KeyValue::new("route", "/pay")];
        bencher.bench(|| black_box(&counter).add(black_box(1), black_box(&route)));
    }
}

#[divan::bench_group(threads = [1, 2], sample_size = OPERATIONS, sample_count = 40)]
mod gauge {
    use super::{Bencher, black_box, client, exporter, meter};

    #[divan::bench]
    fn uview(bencher: Bencher<'_, '_>) {
        let client = client();
        let gauge = client.gauge("depth").register();
        bencher.bench(|| black_box(&gauge).set(black_box(1.5)));
    }

    #[divan::bench]
    fn prometheus(bencher: Bencher<'_, '_>) {
        let gauge = prometheus::Gauge::new("depth", "of the benchmark").unwrap();
        bencher.bench(|| black_box(&gauge).set(black_box(1.5)));
    }

    #[divan::bench]
    fn metrics_exporter_prometheus(bencher: Bencher<'_, '_>) {
        let (_recorder, gauge) = exporter(|| metrics::gauge!("depth"));
        bencher.bench(|| black_box(&gauge).set(black_box(1.5)));
    }

    #[divan::bench]
    fn opentelemetry(bencher: Bencher<'_, '_>) {
        let (_provider, meter) = meter();
        let gauge = meter.f64_gauge("depth").build();
        bencher.bench(|| black_box(&gauge).record(black_box(1.5), &[]));
    }
}

#[divan::bench_group(threads = [1, 2], sample_size = OPERATIONS, sample_count = 40)]
mod histogram {
    use super::{BOUNDS, Bencher, black_box, client, exporter, meter};

    #[divan::bench]
    fn uview(bencher: Bencher<'_, '_>) {
        let client = client();
        let histogram = client.histogram("duration").unit("s").parts_per_unit(1_000_000).register();
        bencher.bench(|| black_box(&histogram).observe(black_box(18_000)));
    }

    #[divan::bench]
    fn prometheus(bencher: Bencher<'_, '_>) {
        let options = prometheus::HistogramOpts::new("duration", "of the benchmark").buckets(BOUNDS.to_vec());
        let histogram = prometheus::Histogram::with_opts(options).unwrap();
        bencher.bench(|| black_box(&histogram).observe(black_box(0.018)));
    }

    /// It keeps every value until somebody scrapes it, which nobody does here.
    #[divan::bench]
    fn metrics_exporter_prometheus(bencher: Bencher<'_, '_>) {
        let (_recorder, histogram) = exporter(|| metrics::histogram!("duration"));
        bencher.bench(|| black_box(&histogram).record(black_box(0.018)));
    }

    #[divan::bench]
    fn opentelemetry(bencher: Bencher<'_, '_>) {
        let (_provider, meter) = meter();
        let histogram = meter.f64_histogram("duration").with_boundaries(BOUNDS.to_vec()).build();
        bencher.bench(|| black_box(&histogram).record(black_box(0.018), &[]));
    }
}
