//! One stream: its packets, its synopsis, its metrics.

use std::path::Path;

use client::{Client, Counter, Gauge, Group, Service};
use packets::delays::Interval;
use packets::{Delays, DelaysError, DelaysSettings, Frame, Pair, View, parse};
use synopses::fridge::{HistogramShape, Quantile, Settings};

use crate::config::StreamConfig;

/// A tick of 1 µs: delays up to 37 minutes.
const TICK_SHIFT: u32 = 10;
const NS: f64 = 1e9;

/// What a stream is told by.
#[derive(Debug)]
struct Metrics {
    quantiles: [Gauge; 3],
    effective: Gauge,
    trusted: Gauge,
    unanswered: Gauge,
    repeated: Gauge,
    packets: Counter,
    requests: Counter,
    refused: Counter,
    dropped: Counter,
    // Last: the values go away with it.
    _client: Client,
}

/// One stream.
#[derive(Debug)]
pub(super) struct Stream {
    delays: Delays,
    view: View,
    interval_ns: u64,
    ends_ns: u64,
    refused: u64,
    metrics: Metrics,
}

impl Metrics {
    fn new(service: &str, socket: &Path) -> Self {
        let client = client::connect(Service::new(service).socket(socket));
        let gauge = |name: &str, unit: &str| client.gauge(name).unit(unit).group(Group::Network).register();
        let counter = |name: &str, unit: &str| client.counter(name).unit(unit).group(Group::Network).register();
        Self {
            quantiles: ["network.delay.p50", "network.delay.p95", "network.delay.p99"].map(|name| gauge(name, "s")),
            effective: gauge("network.samples.effective", "{sample}"),
            trusted: gauge("network.delay.trusted", "1"),
            unanswered: gauge("network.requests.unanswered", "1"),
            repeated: gauge("network.requests.repeated", "1"),
            packets: counter("network.packets", "{packet}"),
            requests: counter("network.requests", "{request}"),
            refused: counter("network.packets.refused", "{packet}"),
            dropped: counter("network.packets.dropped_by_kernel", "{packet}"),
            _client: client,
        }
    }

    fn write(&self, interval: &Interval) {
        let trusted = |quantile: &Quantile| if quantile.low_confidence { f64::NAN } else { quantile.delay_ns / NS };
        let quantiles = interval.quantiles.map(|quantiles| quantiles.map(|quantile| trusted(&quantile)));
        for (gauge, value) in self.quantiles.iter().zip(quantiles.unwrap_or([f64::NAN; 3])) {
            gauge.set(value);
        }
        self.effective.set(interval.effective);
        let is_trusted = interval.quantiles.is_some_and(|[median, ..]| !median.low_confidence);
        self.trusted.set(f64::from(u8::from(is_trusted)));
        self.unanswered.set(unanswered(interval).unwrap_or(f64::NAN));
        self.repeated.set(interval.repeated.unwrap_or(f64::NAN));
        self.packets.add(interval.packets);
        self.requests.add(interval.tally.requests);
    }
}

/// The share of requests that nobody answered. Answers of an interval may be to requests before it: never below 0.
fn unanswered(interval: &Interval) -> Option<f64> {
    let asked = interval.tally.requests.checked_sub(interval.tally.duplicate_requests).filter(|asked| *asked > 0)?;
    Some((1.0 - interval.answered.unwrap_or(0.0) / asked as f64).max(0.0))
}

impl Stream {
    /// A stream of which nothing has been seen.
    ///
    /// # Errors
    ///
    /// [`DelaysError`], which a checked configuration does not bring.
    pub(super) fn new(config: &StreamConfig, socket: &Path, secret: u128) -> Result<Self, DelaysError> {
        let fridge =
            Settings { slots: config.slots(), tick_shift: TICK_SHIFT, seed: secret as u64, ..Settings::default() };
        let delays = Delays::new(DelaysSettings {
            // A checked configuration has one, too.
            pair: config.pair.map_or(Pair::Handshake, Into::into),
            // A checked configuration has filters that can be read.
            filter: config.filter.parse().unwrap_or_default(),
            fridge,
            histogram: HistogramShape { tick_shift: TICK_SHIFT, fineness: 3 },
            tuned: true,
            secret,
        })?;
        Ok(Self {
            delays,
            view: if config.inner { View::Inner } else { View::Outer },
            interval_ns: u64::from(config.interval_ms.get()) * 1_000_000,
            ends_ns: 0,
            refused: 0,
            metrics: Metrics::new(&config.service(), socket),
        })
    }

    /// A frame of the interface, of whatever stream.
    pub(super) fn insert(&mut self, frame: &Frame<'_>) {
        match parse(frame, self.view) {
            Ok(packet) => drop(self.delays.insert(&packet)),
            Err(reason) => self.refused += u64::from(!reason.is_harmless()),
        }
    }

    /// Whether an interval has ended at `now_ns`. They end at multiples of their length, so that those of all NICs are the same.
    pub(super) const fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.ends_ns
    }

    /// So many frames of the interface were dropped by the kernel.
    pub(super) fn lost(&self, frames: u64) {
        self.metrics.dropped.add(frames);
    }

    /// Ends the interval if it is due, and writes what it was like.
    pub(super) fn end_interval(&mut self, now_ns: u64) {
        if !self.is_due(now_ns) {
            return;
        }
        // The first one is of no known length.
        let is_first = self.ends_ns == 0;
        self.ends_ns = (now_ns / self.interval_ns + 1) * self.interval_ns;
        let interval = self.delays.end_interval(now_ns);
        if !is_first {
            self.metrics.write(&interval);
        }
        self.metrics.refused.add(core::mem::take(&mut self.refused));
    }
}

#[cfg(test)]
mod tests {
    use packets::generator::{Traffic, TrafficSettings};

    use super::*;
    use crate::config::Config;

    /// A stream of handshakes on which nothing has been seen; where no host agent is, values are written all the same.
    fn stream(more: &str) -> Stream {
        let text = format!("network:\n  streams:\n    - {{name: a, interface: lo, pair: handshake{more}}}\n");
        let config = Config::parse(&text).unwrap();
        Stream::new(&config.network.streams[0], Path::new("/nowhere/services.sock"), 7).unwrap()
    }

    /// Gives it traffic, in intervals of a second.
    fn watch(stream: &mut Stream, connections: u32) -> Traffic {
        let start_ns = 1_700_000_000_000_000_000;
        let traffic = Traffic::new(&TrafficSettings {
            connections,
            segments: 1,
            queries: 0,
            loss: 0.0,
            spurious: 0.0,
            late: 0.0,
            span_ns: 900_000_000,
            start_ns,
            ..TrafficSettings::default()
        });
        stream.end_interval(start_ns);
        assert!(!stream.is_due(start_ns + 999_999_999) && stream.is_due(start_ns + 1_000_000_000));
        traffic
            .frames()
            .filter(|frame| frame.time_ns < start_ns + 1_000_000_000)
            .for_each(|frame| stream.insert(&frame));
        stream.end_interval(start_ns + 1_000_000_000);
        traffic
    }

    #[test]
    fn what_is_known_of_an_interval_is_written_into_metrics() {
        let mut stream = stream("");
        let traffic = watch(&mut stream, 2_000);
        let mut truth = traffic.handshakes_ns().to_vec();
        truth.sort_unstable();

        let metrics = &stream.metrics;
        let [median, p95, _] = metrics.quantiles.each_ref().map(Gauge::get);
        assert!((median * NS / truth[1_000] as f64 - 1.0).abs() < 0.07, "{median}, {}", truth[1_000]);
        assert!((p95 * NS / truth[1_900] as f64 - 1.0).abs() < 0.07, "{p95}, {}", truth[1_900]);
        assert_eq!((metrics.trusted.get(), metrics.requests.get(), metrics.repeated.get()), (1.0, 2_000, 0.0));
        assert!(metrics.unanswered.get() < 0.03 && metrics.effective.get() > 500.0);
        assert!(metrics.packets.get() > 4_000);
    }

    #[test]
    fn what_cannot_be_trusted_is_missing_and_never_a_number() {
        let mut stream = stream("");
        let _ = watch(&mut stream, 20);

        let metrics = &stream.metrics;
        assert!(metrics.quantiles.iter().all(|gauge| gauge.get().is_nan()));
        assert_eq!((metrics.trusted.get(), metrics.requests.get()), (0.0, 20));
        // An interval in which nothing was asked.
        stream.end_interval(stream.ends_ns);
        assert!(stream.metrics.unanswered.get().is_nan() && stream.metrics.repeated.get().is_nan());
        assert_eq!(stream.metrics.requests.get(), 20);
    }

    #[test]
    fn packets_of_other_streams_and_broken_ones_are_told_apart() {
        let mut stream = stream(", filter: port 444");
        let traffic = watch(&mut stream, 50);
        let first = traffic.frames().next().unwrap();
        stream.insert(&Frame { bytes: &first.bytes[..30], ..first });
        stream.insert(&Frame { bytes: &[0; 14], ..first });
        stream.lost(3);
        stream.end_interval(stream.ends_ns);

        let metrics = &stream.metrics;
        assert_eq!((metrics.packets.get(), metrics.refused.get(), metrics.dropped.get()), (0, 1, 3));
    }
}
