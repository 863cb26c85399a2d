//! A stream of requests and responses: its packets, its synopsis, its metrics. If the interface has several rings, the
//! stream has a shard for each.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use client::{Client, Counter, Gauge, Group};
use packets::delays::{BOUNDS_NS, CLASSES, Interval};
use packets::{Delays, DelaysError, DelaysSettings, Packet, Pair, ParseError, Transport, View};
use synopses::fridge::{HistogramShape, Quantile, Settings};

use super::Silence;
use super::frame_info::FrameInfo;
use super::pending_change::PendingChange;
use super::shards::{ShardReport, ShardedStream};
use crate::config::StreamConfig;

/// Delays are stored in ticks of 2^10 ns, up to 37 minutes.
const TICK_SHIFT: u32 = 10;
const NS: f64 = 1e9;

/// The metrics of a stream.
#[derive(Debug)]
pub(super) struct Metrics {
    service: String,
    quantiles: [Gauge; 3],
    classes: [Gauge; CLASSES],
    effective: Gauge,
    trusted: Gauge,
    unanswered: Gauge,
    repeated: Gauge,
    silence: Silence,
    merged_flag: Gauge,
    packets: Counter,
    requests: Counter,
    refused: Counter,
    dropped: Counter,
    oversized: Counter,
    // Last: dropping it unregisters the metrics.
    client: Client,
}

/// One stream, or a shard of one.
#[derive(Debug)]
pub(super) struct Stream {
    delays: Delays,
    view: View,
    interval_ns: u64,
    ends_ns: u64,
    refused: u64,
    /// Merged frames of this interval that bias its delays.
    oversized: u64,
    sharded: Arc<ShardedStream>,
    /// What becomes of it at the end of its interval.
    pub(super) pending: PendingChange,
}

impl Metrics {
    pub(super) fn new(service: &str, socket: &Path, interval_ms: NonZeroU32) -> Self {
        let client = client::connect(super::service(service, socket, interval_ms));
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

    /// Counts frames that could not be parsed.
    pub(super) fn count_refused(&self, frames: u64) {
        self.refused.add(frames);
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

impl Stream {
    /// One of `shards` empty shards of a stream. The shards share its memory evenly.
    ///
    /// # Errors
    ///
    /// [`DelaysError`], which does not occur with a checked configuration.
    pub(super) fn new(
        config: &StreamConfig,
        shards: usize,
        sharded: Arc<ShardedStream>,
        secret: u128,
    ) -> Result<Self, DelaysError> {
        let slots = config.slots(shards);
        let fridge = Settings { slots, tick_shift: TICK_SHIFT, seed: secret as u64, ..Settings::default() };
        let delays = Delays::new(DelaysSettings {
            // A checked configuration has a pair.
            pair: config.pair.map_or(Pair::Handshake, Into::into),
            // The filter was checked with the configuration.
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
            oversized: 0,
            sharded,
            pending: PendingChange::of(&config.name),
        })
    }

    /// Whether the stream is about the outer or the inner packets of tunnels.
    pub(super) const fn view(&self) -> View {
        self.view
    }

    /// Takes a packet of the interface, parsed for this stream's view. It may belong to another stream.
    #[inline]
    pub(super) fn insert(&mut self, packet: &Result<Packet<'_>, ParseError>, info: FrameInfo) {
        match packet {
            Ok(packet) => {
                if info.merged {
                    self.count_merged(packet);
                }
                let _ = self.delays.insert(packet);
            }
            Err(reason) => self.refused += u64::from(!reason.is_harmless()),
        }
    }

    /// Counts a merged frame if it is of this stream and biases its delays.
    #[cold]
    fn count_merged(&mut self, packet: &Packet<'_>) {
        let settings = self.delays.settings();
        let is_tcp = matches!(packet.transport, Transport::Tcp(_));
        let is_biased = is_tcp && settings.pair.is_affected_by_offloads() && settings.filter.matches(packet);
        self.oversized += u64::from(is_biased);
    }

    /// Whether an interval has ended at `now_ns`. Intervals end at multiples of their length, so they are the same on
    /// all NICs.
    pub(super) const fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.ends_ns
    }

    /// Adds frames of the interface that the kernel dropped.
    pub(super) fn add_dropped(&self, frames: u64) {
        self.sharded.metrics.dropped.add(frames);
    }

    /// Ends the interval if it is due, and submits it.
    pub(super) fn end_interval(&mut self, now_ns: u64) {
        if !self.is_due(now_ns) {
            return;
        }
        // The length of the first interval is unknown.
        let is_first = self.ends_ns == 0;
        let ended_ns = core::mem::replace(&mut self.ends_ns, (now_ns / self.interval_ns + 1) * self.interval_ns);
        let delays = self.delays.end_shard(now_ns);
        let oversized = core::mem::take(&mut self.oversized);
        if !is_first {
            self.sharded.submit(ended_ns, ShardReport { delays, oversized });
        }
        self.sharded.metrics.refused.add(core::mem::take(&mut self.refused));
        if let Some(filter) = self.pending.interval_ended() {
            self.delays.set_filter(filter);
        }
    }
}

#[cfg(test)]
impl Stream {
    /// Packets of all intervals that were written.
    pub(super) fn packets(&self) -> u64 {
        self.sharded.metrics.packets.get()
    }

    /// What was written of the last interval: quantiles, and the share without an answer.
    pub(super) fn figures(&self) -> [f64; 4] {
        let metrics = &self.sharded.metrics;
        let [p50, p95, p99] = metrics.quantiles.each_ref().map(Gauge::get);
        [p50, p95, p99, metrics.unanswered.get()]
    }

    /// The metric of frames that the kernel dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.sharded.metrics.dropped.get()
    }
}

#[cfg(test)]
mod tests {
    use packets::generator::{Traffic, TrafficSettings};
    use packets::{Frame, parse};

    use super::*;
    use crate::config::Config;

    /// An empty stream of handshakes. Metrics are written without a host agent, too.
    fn stream(more: &str) -> Stream {
        let text = format!("network:\n  streams:\n    - {{name: a, interface: lo, pair: handshake{more}}}\n");
        let config = Config::parse(&text).unwrap();
        let [stream] = shards(&config.network.streams[0]);
        stream
    }

    fn shards<const N: usize>(config: &StreamConfig) -> [Stream; N] {
        let sharded = Arc::new(ShardedStream::new(config, Path::new("/nowhere/services.sock"), N));
        std::array::from_fn(|_| Stream::new(config, N, Arc::clone(&sharded), 7).unwrap())
    }

    fn insert(stream: &mut Stream, frame: &Frame<'_>) {
        let info = FrameInfo { merged: frame.is_merged(1_500) };
        stream.insert(&parse(frame, stream.view()), info);
    }

    /// Sends it one interval of traffic, of one second.
    fn send_traffic(stream: &mut Stream, connections: u32) -> Traffic {
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
            .for_each(|frame| insert(stream, &frame));
        stream.end_interval(start_ns + 1_000_000_000);
        traffic
    }

    #[test]
    fn the_figures_of_an_interval_are_written_into_metrics() {
        let mut stream = stream("");
        let traffic = send_traffic(&mut stream, 2_000);
        let mut truth = traffic.handshakes_ns().to_vec();
        truth.sort_unstable();

        let metrics = &stream.sharded.metrics;
        let [median, p95, _] = metrics.quantiles.each_ref().map(Gauge::get);
        assert!((median * NS / truth[1_000] as f64 - 1.0).abs() < 0.07, "{median}, {}", truth[1_000]);
        assert!((p95 * NS / truth[1_900] as f64 - 1.0).abs() < 0.07, "{p95}, {}", truth[1_900]);
        // Each class has the share of requests that took so long, to a few percent.
        let classes = metrics.classes.each_ref().map(Gauge::get);
        assert!((classes.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{classes:?}");
        let mut from = 0;
        for (share, bound) in classes.iter().zip(BOUNDS_NS) {
            let until = truth.partition_point(|delay| *delay <= bound);
            let expected = (until - from) as f64 / truth.len() as f64;
            assert!((share - expected).abs() < 0.05, "{share} until {bound} ns, in truth {expected}");
            from = until;
        }
        assert_eq!((metrics.trusted.get(), metrics.requests.get(), metrics.repeated.get()), (1.0, 2_000, 0.0));
        assert!(metrics.unanswered.get() < 0.03 && metrics.effective.get() > 500.0);
        assert!(metrics.packets.get() > 4_000);
    }

    #[test]
    fn a_figure_that_is_not_trusted_is_missing_and_never_a_number() {
        let mut stream = stream("");
        let _ = send_traffic(&mut stream, 20);

        let metrics = &stream.sharded.metrics;
        assert!(metrics.quantiles.iter().chain(&metrics.classes).all(|gauge| gauge.get().is_nan()));
        assert_eq!((metrics.trusted.get(), metrics.requests.get()), (0.0, 20));
        // An interval without requests.
        stream.end_interval(stream.ends_ns);
        assert!(stream.sharded.metrics.unanswered.get().is_nan() && stream.sharded.metrics.repeated.get().is_nan());
        assert_eq!(stream.sharded.metrics.requests.get(), 20);
    }

    #[test]
    fn packets_of_other_streams_are_ignored_and_broken_ones_are_counted() {
        let mut stream = stream(", filter: port 444");
        let traffic = send_traffic(&mut stream, 50);
        let first = traffic.frames().next().unwrap();
        insert(&mut stream, &Frame { bytes: &first.bytes[..30], ..first });
        insert(&mut stream, &Frame { bytes: &[0; 14], ..first });
        stream.add_dropped(3);
        stream.end_interval(stream.ends_ns);

        let metrics = &stream.sharded.metrics;
        assert_eq!((metrics.packets.get(), metrics.refused.get(), metrics.dropped.get()), (0, 1, 3));
    }

    const SECOND: u64 = 1_000_000_000;
    const START: u64 = 1_700_000_000 * SECOND;

    #[test]
    fn merged_segments_flag_the_delays_of_data_and_no_others() {
        for (pair, flagged) in [("data", 1), ("handshake", 0), ("flow", 0)] {
            let text =
                format!("network:\n  streams:\n    - {{name: a, interface: lo, pair: {pair}, filter: port 80}}\n");
            let [mut stream] = shards(&Config::parse(&text).unwrap().network.streams[0]);
            stream.end_interval(START);
            let bytes = packets::generator::segment(&[7; 1_460]);
            let frame = Frame { bytes: &bytes, length: 1_514, time_ns: START, link: packets::Link::Ethernet };
            // A frame of the MTU's length, and a longer one.
            insert(&mut stream, &frame);
            insert(&mut stream, &Frame { length: 2_974, ..frame });
            stream.end_interval(START + SECOND);

            let metrics = &stream.sharded.metrics;
            assert_eq!((metrics.merged_flag.get(), metrics.oversized.get()), (f64::from(flagged), flagged as u64));
            assert_eq!(metrics.packets.get(), 2);
            // The next interval has none.
            stream.end_interval(START + 2 * SECOND);
            assert_eq!(
                (stream.sharded.metrics.merged_flag.get(), stream.sharded.metrics.oversized.get()),
                (0.0, flagged as u64)
            );
        }
    }

    fn end_all(shards: &mut [Stream], now_ns: u64) {
        for shard in shards {
            shard.end_interval(now_ns);
        }
    }

    /// Distributes one second of traffic over the shards by flow.
    fn split(shards: &mut [Stream], traffic: &Traffic) {
        for frame in traffic.frames().filter(|frame| frame.time_ns < START + SECOND) {
            let packet = parse(&frame, View::Outer);
            // One port is 443; the other is the connection's.
            let port = packet.as_ref().map_or(0, |packet| packet.source.port.max(packet.destination.port));
            let shard = usize::from(port) % shards.len();
            shards[shard].insert(&packet, FrameInfo { merged: false });
        }
    }

    #[test]
    fn two_shards_write_one_interval_when_both_have_ended_it() {
        let text = "network:\n  streams:\n    - {name: a, interface: lo, pair: handshake}\n";
        let mut shards = shards::<2>(&Config::parse(text).unwrap().network.streams[0]);
        let settings = TrafficSettings {
            connections: 2_000,
            segments: 1,
            queries: 0,
            loss: 0.0,
            spurious: 0.0,
            late: 0.0,
            ..TrafficSettings::default()
        };
        let traffic = Traffic::new(&TrafficSettings { span_ns: 900_000_000, start_ns: START, ..settings });
        let mut truth = traffic.handshakes_ns().to_vec();
        truth.sort_unstable();
        end_all(&mut shards, START);
        split(&mut shards, &traffic);

        shards[0].end_interval(START + SECOND);
        let sharded = Arc::clone(&shards[0].sharded);
        assert_eq!((sharded.metrics.requests.get(), sharded.metrics.trusted.get()), (0, 0.0), "one is missing");
        shards[1].end_interval(START + SECOND + 20_000_000);
        assert_eq!((sharded.metrics.requests.get(), sharded.metrics.trusted.get()), (2_000, 1.0));
        let median = sharded.metrics.quantiles[0].get();
        assert!((median * NS / truth[1_000] as f64 - 1.0).abs() < 0.07, "{median}, {}", truth[1_000]);
    }

    #[test]
    fn without_a_shard_that_hangs_gauges_are_missing_and_counts_are_not() {
        let text = "network:\n  streams:\n    - {name: a, interface: lo, pair: handshake}\n";
        let mut shards = shards::<2>(&Config::parse(text).unwrap().network.streams[0]);
        let traffic = Traffic::new(&TrafficSettings {
            span_ns: 900_000_000,
            start_ns: START,
            queries: 0,
            ..TrafficSettings::default()
        });
        end_all(&mut shards, START);
        split(&mut shards, &traffic);
        let sharded = Arc::clone(&shards[0].sharded);
        for second in 1..=4 {
            shards[0].end_interval(START + second * SECOND);
        }
        let first = sharded.metrics.packets.get();
        assert!(first > 0 && sharded.metrics.quantiles[0].get().is_nan() && sharded.metrics.trusted.get() == 0.0);

        // It comes back: its first interval, which is long over, is counted. From the next one on, gauges are written.
        shards[1].end_interval(START + 4 * SECOND);
        end_all(&mut shards, START + 5 * SECOND);
        assert!(sharded.metrics.packets.get() > first);
        assert_eq!((sharded.pending(), sharded.metrics.unanswered.get().is_nan()), (0, true));
    }
}
