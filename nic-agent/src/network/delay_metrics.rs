//! The metrics of the delays of a stream of requests and responses.

use std::num::NonZeroU32;
use std::path::Path;

use client::{Client, Counter, Gauge, Group};
use packets::delays::{BOUNDS_NS, CLASSES, Interval};
use synopses::fridge::Quantile;

use super::silence::Silence;
use super::stream_service::stream_service;

const NS: f64 = 1e9;

/// The metrics of one stream.
#[derive(Debug)]
pub(super) struct DelayMetrics {
    service: String,
    pub(super) quantiles: [Gauge; 3],
    pub(super) classes: [Gauge; CLASSES],
    pub(super) effective: Gauge,
    pub(super) trusted: Gauge,
    pub(super) unanswered: Gauge,
    pub(super) repeated: Gauge,
    silence: Silence,
    pub(super) merged_flag: Gauge,
    pub(super) packets: Counter,
    pub(super) requests: Counter,
    pub(super) refused: Counter,
    pub(super) dropped: Counter,
    pub(super) oversized: Counter,
    pub(super) clock_steps: Counter,
    // Last: dropping it unregisters the metrics.
    client: Client,
}

impl DelayMetrics {
    pub(super) fn new(service: &str, socket: &Path, interval_ms: NonZeroU32) -> Self {
        let client = client::connect(stream_service(service, socket, interval_ms));
        let gauge = |name: &str, unit: &str| client.gauge(name).unit(unit).group(Group::Network).register();
        // How good the figures are. No detector watches them.
        let measurement = |name: &str, unit: &str| client.gauge(name).unit(unit).group(Group::Measurement).register();
        let counter = |name: &str, unit: &str| client.counter(name).unit(unit).group(Group::Measurement).register();
        Self {
            service: service.to_owned(),
            quantiles: ["network.delay.p50", "network.delay.p95", "network.delay.p99"].map(|name| gauge(name, "s")),
            classes: core::array::from_fn(|class| {
                let bound =
                    BOUNDS_NS.get(class).map_or_else(|| "+Inf".to_owned(), |bound| (*bound as f64 / NS).to_string());
                let share = client.gauge("network.delay.share").unit("1").label("le", &bound);
                share.group(Group::Measurement).register()
            }),
            effective: measurement("network.samples.effective", "{sample}"),
            trusted: measurement("network.delay.trusted", "1"),
            unanswered: gauge("network.requests.unanswered", "1"),
            repeated: gauge("network.requests.repeated", "1"),
            silence: Silence::new(gauge("network.answers.silence", "s"), interval_ms),
            merged_flag: measurement("network.flag.oversized", "1"),
            packets: counter("network.packets", "{packet}"),
            requests: counter("network.requests", "{request}"),
            refused: counter("network.packets.refused", "{packet}"),
            dropped: counter("network.packets.dropped_by_kernel", "{packet}"),
            oversized: counter("network.packets.oversized", "{packet}"),
            clock_steps: counter("network.clock.steps", "{step}"),
            client,
        }
    }

    /// Writes one interval, with the number of merged frames that bias its delays.
    pub(super) fn write(&self, interval: &Interval, oversized: u64) {
        let trusted = |quantile: &Quantile| if quantile.low_confidence { f64::NAN } else { quantile.delay_ns / NS };
        let quantiles = interval.quantiles.map(|quantiles| quantiles.map(|quantile| trusted(&quantile)));
        for (gauge, value) in self.quantiles.iter().zip(quantiles.unwrap_or([f64::NAN; 3])) {
            gauge.set(value);
        }
        self.effective.set(interval.effective);
        let is_trusted = interval.quantiles.is_some_and(|[median, ..]| !median.low_confidence);
        self.trusted.set(f64::from(u8::from(is_trusted)));
        let classes = interval.classes.filter(|_| is_trusted).unwrap_or([f64::NAN; CLASSES]);
        self.classes.iter().zip(classes).for_each(|(gauge, share)| gauge.set(share));
        self.unanswered.set(unanswered(interval).unwrap_or(f64::NAN));
        self.repeated.set(interval.repeated.unwrap_or(f64::NAN));
        self.silence.write(interval.tally.requests > 0 && interval.answered.is_none_or(|answered| answered == 0.0));
        self.merged_flag.set(f64::from(u8::from(oversized > 0)));
        self.count(interval, oversized);
        tracing::debug!(
            service = self.service,
            packets = interval.packets,
            requests = interval.tally.requests,
            p50_s = self.quantiles[0].get(),
            unanswered = self.unanswered.get(),
            repeated = self.repeated.get(),
            "an interval was measured"
        );
    }

    /// Writes an interval without the reports of some shards: its counts, and missing values for the gauges.
    pub(super) fn write_counts(&self, interval: &Interval, oversized: u64) {
        self.set_missing();
        self.count(interval, oversized);
    }

    /// Writes an interval of which nothing is known.
    pub(super) fn write_missing(&self) {
        self.set_missing();
        self.client.changed();
    }

    fn set_missing(&self) {
        for gauge in self.quantiles.iter().chain(&self.classes).chain([&self.unanswered, &self.repeated]) {
            gauge.set(f64::NAN);
        }
        self.effective.set(0.0);
        self.trusted.set(0.0);
    }

    /// A gauge beside the figures that says how good they are. No detector watches it.
    pub(super) fn flag(&self, name: &str) -> Gauge {
        self.client.gauge(name).unit("1").group(Group::Measurement).register()
    }

    /// Adds the counts of an interval.
    pub(super) fn count(&self, interval: &Interval, oversized: u64) {
        self.packets.add(interval.packets);
        self.requests.add(interval.tally.requests);
        self.oversized.add(oversized);
        self.client.changed();
    }
}

/// The share of requests without a response. Responses may be to requests of the interval before, so the share is
/// clamped to 0.
fn unanswered(interval: &Interval) -> Option<f64> {
    let requests = interval.tally.requests.checked_sub(interval.tally.duplicate_requests).filter(|count| *count > 0)?;
    Some((1.0 - interval.answered.unwrap_or(0.0) / requests as f64).max(0.0))
}
