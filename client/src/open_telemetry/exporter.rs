//! The SDK's exporter: writes what was collected into the region.

use std::future::{Future, ready};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::metrics::data::{
    AggregatedMetrics, ExponentialHistogram, Gauge, Histogram, Metric, MetricData, ResourceMetrics, Sum,
};
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::{PeriodicReader, Temporality};

use super::INTERVAL;
use super::histogram::{Buckets, Sums, explicit, exponential, sides, spread};
use super::series::{KnownSeries, Series, SeriesKind, SeriesName};
use crate::client::Client;
use crate::problem::Cause;

/// Writes the metrics of OpenTelemetry's SDK through a [`Client`] ([`Client::metric_exporter`]).
#[derive(Debug)]
pub struct Exporter {
    client: Client,
    known: Mutex<KnownSeries>,
    shut_down: AtomicBool,
}

impl Client {
    /// An exporter for OpenTelemetry's SDK, to be given to a `PeriodicReader`: what it exports becomes metrics of this
    /// service. It keeps the client connected.
    #[must_use]
    pub fn metric_exporter(&self) -> Exporter {
        Exporter::new(self.clone(), self.limits().series)
    }

    /// A reader for OpenTelemetry's `SdkMeterProvider`: collects its metrics every
    /// [`INTERVAL`](crate::open_telemetry::INTERVAL), on a thread of the SDK's, until the provider is shut down.
    #[must_use]
    pub fn metric_reader(&self) -> PeriodicReader<Exporter> {
        PeriodicReader::builder(self.metric_exporter()).with_interval(INTERVAL).build()
    }
}

impl Exporter {
    fn new(client: Client, most: usize) -> Self {
        Self { client, known: Mutex::new(KnownSeries::new(most)), shut_down: AtomicBool::new(false) }
    }

    fn write(&self, metrics: &ResourceMetrics) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut writer = Writer { client: &self.client, known: &mut known };
        for metric in metrics.scope_metrics().flat_map(opentelemetry_sdk::metrics::data::ScopeMetrics::metrics) {
            match metric.data() {
                AggregatedMetrics::F64(data) => writer.write(metric, data),
                AggregatedMetrics::U64(data) => writer.write(metric, data),
                AggregatedMetrics::I64(data) => writer.write(metric, data),
            }
        }
    }
}

impl PushMetricExporter for Exporter {
    fn export(&self, metrics: &ResourceMetrics) -> impl Future<Output = OTelSdkResult> + Send {
        if self.shut_down.load(Relaxed) {
            return ready(Err(OTelSdkError::AlreadyShutdown));
        }
        self.write(metrics);
        self.client.changed();
        ready(Ok(()))
    }

    /// Nothing is held back: what was exported is in the region.
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        if self.shut_down.swap(true, Relaxed) { Err(OTelSdkError::AlreadyShutdown) } else { Ok(()) }
    }

    fn temporality(&self) -> Temporality {
        Temporality::Delta
    }
}

/// A number of the SDK.
pub(super) trait Number: Copy {
    /// Whether only integers occur.
    const IS_WHOLE: bool;
    /// The number as a float.
    fn float(self) -> f64;
    /// The number as an integer, rounded to the nearest.
    fn integer(self) -> i64;
}

impl Number for f64 {
    const IS_WHOLE: bool = false;

    fn float(self) -> f64 {
        self
    }

    fn integer(self) -> i64 {
        self.round() as i64
    }
}

impl Number for u64 {
    const IS_WHOLE: bool = true;

    fn float(self) -> f64 {
        self as f64
    }

    fn integer(self) -> i64 {
        i64::try_from(self).unwrap_or(i64::MAX)
    }
}

impl Number for i64 {
    const IS_WHOLE: bool = true;

    fn float(self) -> f64 {
        self as f64
    }

    fn integer(self) -> i64 {
        self
    }
}

/// Writes one collection.
struct Writer<'a> {
    client: &'a Client,
    known: &'a mut KnownSeries,
}

impl Writer<'_> {
    fn write<T: Number>(&mut self, metric: &Metric, data: &MetricData<T>) {
        match data {
            MetricData::Gauge(gauge) => self.gauge(metric, gauge),
            MetricData::Sum(sum) => self.sum(metric, sum),
            MetricData::Histogram(histogram) => self.explicit(metric, histogram),
            MetricData::ExponentialHistogram(histogram) => self.exponential(metric, histogram),
        }
    }

    fn gauge<T: Number>(&mut self, metric: &Metric, gauge: &Gauge<T>) {
        for point in gauge.data_points() {
            let name = SeriesName::new(metric, SeriesKind::Gauge, T::IS_WHOLE, point.attributes());
            if let Series::Gauge(gauge) = self.known.get(self.client, &name) {
                gauge.set(point.value().float());
            }
        }
    }

    fn sum<T: Number>(&mut self, metric: &Metric, sum: &Sum<T>) {
        let kind = match (sum.is_monotonic(), T::IS_WHOLE) {
            (true, _) => SeriesKind::Counter,
            (false, true) => SeriesKind::UpDownCounter,
            (false, false) => SeriesKind::Gauge,
        };
        let is_delta = sum.temporality() == Temporality::Delta;
        for point in sum.data_points() {
            let value = point.value();
            let name = SeriesName::new(metric, kind, T::IS_WHOLE, point.attributes());
            match self.known.get(self.client, &name) {
                Series::Counter(counter, parts) => {
                    let count =
                        if T::IS_WHOLE { value.integer().max(0) as u64 } else { in_parts(value.float(), *parts) };
                    if is_delta { counter.add(count) } else { counter.raise_to(count) }
                }
                // Nobody else writes it, so it can be read first.
                Series::UpDownCounter(counter) => {
                    let before = if is_delta { 0 } else { counter.get() };
                    counter.add(value.integer().wrapping_sub(before));
                }
                Series::Gauge(gauge) if is_delta => gauge.add(value.float()),
                Series::Gauge(gauge) => gauge.set(value.float()),
                Series::Histogram(..) => {}
            }
        }
    }

    fn explicit<T: Number>(&mut self, metric: &Metric, histogram: &Histogram<T>) {
        if self.is_cumulative(metric, histogram.temporality()) {
            return;
        }
        for point in histogram.data_points() {
            let range = (point.min().map(Number::float), point.max().map(Number::float));
            // A histogram without bounds has no buckets: all values are in one, from the least to the largest.
            let in_one = point.bucket_counts().next().is_none().then_some(point.count());
            let buckets = explicit(point.bounds(), point.bucket_counts().chain(in_one), range);
            let name = SeriesName::new(metric, SeriesKind::Histogram, T::IS_WHOLE, point.attributes());
            self.histogram(&name, buckets, point.sum().float());
        }
    }

    fn exponential<T: Number>(&mut self, metric: &Metric, histogram: &ExponentialHistogram<T>) {
        if self.is_cumulative(metric, histogram.temporality()) {
            return;
        }
        for point in histogram.data_points() {
            let range = (point.min().map(Number::float), point.max().map(Number::float));
            let [positive, negative] =
                [point.positive_bucket(), point.negative_bucket()].map(|side| (side.offset(), side.counts()));
            let buckets = exponential(point.scale(), positive, negative, point.zero_count(), range);
            let name = SeriesName::new(metric, SeriesKind::Histogram, T::IS_WHOLE, point.attributes());
            self.histogram(&name, buckets, point.sum().float());
        }
    }

    fn histogram(&mut self, name: &SeriesName<'_>, buckets: impl Buckets, sum: f64) {
        let Series::Histogram(histogram, parts) = self.known.get(self.client, name) else { return };
        let mut sums = Sums::default();
        for bucket in buckets.flat_map(sides) {
            let side = if bucket.is_below { histogram.below() } else { histogram.above() };
            let bounds = (bucket.near * parts, bucket.far * parts);
            spread(side.scale(), bounds, bucket.count, |bucket, count| side.add_to_bucket(bucket, count));
            sums.add(&bucket);
        }
        let (below, above) = sums.of(sum);
        histogram.above().add_to_sum(in_parts(above, *parts));
        if below > 0.0 {
            histogram.below().add_to_sum(in_parts(below, *parts));
        }
    }

    /// Whether a histogram cannot be taken, which the status then says.
    fn is_cumulative(&self, metric: &Metric, temporality: Temporality) -> bool {
        let cumulative = temporality != Temporality::Delta;
        if cumulative {
            self.client.note(Cause::Cumulative { metric: metric.name().to_owned() });
        }
        cumulative
    }
}

/// `value` in parts of the unit, to the nearest; 0 if it is negative or no number.
fn in_parts(value: f64, parts: f64) -> u64 {
    (value * parts).round() as u64
}
