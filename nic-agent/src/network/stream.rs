//! One stream: its packets, its synopsis, its metrics. Of an interface with several rings each stream has a shard for each.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use client::{Client, Counter, Gauge, Group};
use packets::delays::Interval;
use packets::{Delays, DelaysError, DelaysSettings, Packet, Pair, Transport, Unusable, View};
use synopses::fridge::{HistogramShape, Quantile, Settings};

use super::Silence;
use super::interface::Seen;
use super::shards::{Handed, Together};
use crate::config::StreamConfig;

/// A tick of 1 µs: delays up to 37 minutes.
const TICK_SHIFT: u32 = 10;
const NS: f64 = 1e9;

/// What a stream is told by.
#[derive(Debug)]
pub(super) struct Metrics {
    quantiles: [Gauge; 3],
    effective: Gauge,
    trusted: Gauge,
    unanswered: Gauge,
    repeated: Gauge,
    silence: Silence,
    put_together: Gauge,
    packets: Counter,
    requests: Counter,
    refused: Counter,
    dropped: Counter,
    oversized: Counter,
    // Last: the values go away with it.
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
    /// In this interval, where they harm.
    oversized: u64,
    together: Arc<Together>,
}

impl Metrics {
    pub(super) fn new(service: &str, socket: &Path, interval_ms: NonZeroU32) -> Self {
        let client = client::connect(super::service(service, socket, interval_ms));
        let gauge = |name: &str, unit: &str| client.gauge(name).unit(unit).group(Group::Network).register();
        // What figures rest on, and how good they are: not judged.
        let beside = |name: &str, unit: &str| client.gauge(name).unit(unit).group(Group::Measurement).register();
        let counter = |name: &str, unit: &str| client.counter(name).unit(unit).group(Group::Measurement).register();
        Self {
            quantiles: ["network.delay.p50", "network.delay.p95", "network.delay.p99"].map(|name| gauge(name, "s")),
            effective: beside("network.samples.effective", "{sample}"),
            trusted: beside("network.delay.trusted", "1"),
            unanswered: gauge("network.requests.unanswered", "1"),
            repeated: gauge("network.requests.repeated", "1"),
            silence: Silence::new(gauge("network.answers.silence", "s"), interval_ms),
            put_together: beside("network.flag.oversized", "1"),
            packets: counter("network.packets", "{packet}"),
            requests: counter("network.requests", "{request}"),
            refused: counter("network.packets.refused", "{packet}"),
            dropped: counter("network.packets.dropped_by_kernel", "{packet}"),
            oversized: counter("network.packets.oversized", "{packet}"),
            client,
        }
    }

    /// One interval, in which so many packets were put together from several where that does its figures harm.
    pub(super) fn write(&self, interval: &Interval, oversized: u64) {
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
        self.silence.write(interval.tally.requests > 0 && interval.answered.is_none_or(|answered| answered == 0.0));
        self.put_together.set(f64::from(u8::from(oversized > 0)));
        self.count(interval, oversized);
    }

    /// One interval of which some shards said nothing: what is not a count is missing.
    pub(super) fn write_counts(&self, interval: &Interval, oversized: u64) {
        for gauge in self.quantiles.iter().chain([&self.unanswered, &self.repeated]) {
            gauge.set(f64::NAN);
        }
        self.effective.set(0.0);
        self.trusted.set(0.0);
        self.count(interval, oversized);
    }

    /// What adds up, only.
    pub(super) fn count(&self, interval: &Interval, oversized: u64) {
        self.packets.add(interval.packets);
        self.requests.add(interval.tally.requests);
        self.oversized.add(oversized);
        self.client.changed();
    }
}

/// The share of requests that nobody answered. Answers of an interval may be to requests before it: never below 0.
fn unanswered(interval: &Interval) -> Option<f64> {
    let asked = interval.tally.requests.checked_sub(interval.tally.duplicate_requests).filter(|asked| *asked > 0)?;
    Some((1.0 - interval.answered.unwrap_or(0.0) / asked as f64).max(0.0))
}

impl Stream {
    /// One of `shards` shards of a stream, of which nothing has been seen. They share its memory evenly.
    ///
    /// # Errors
    ///
    /// [`DelaysError`], which a checked configuration does not bring.
    pub(super) fn new(
        config: &StreamConfig,
        shards: usize,
        together: Arc<Together>,
        secret: u128,
    ) -> Result<Self, DelaysError> {
        let slots = config.slots(shards);
        let fridge = Settings { slots, tick_shift: TICK_SHIFT, seed: secret as u64, ..Settings::default() };
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
            oversized: 0,
            together,
        })
    }

    /// Which packet of a tunnel it is about.
    pub(super) const fn view(&self) -> View {
        self.view
    }

    /// A frame of the interface, of whatever stream, as its view has it.
    #[inline]
    pub(super) fn insert(&mut self, packet: &Result<Packet<'_>, Unusable>, seen: Seen) {
        match packet {
            Ok(packet) => {
                if seen.put_together {
                    self.put_together(packet);
                }
                let _ = self.delays.insert(packet);
            }
            Err(reason) => self.refused += u64::from(!reason.is_harmless()),
        }
    }

    /// A packet of several, of whatever stream: counted if the figures are harmed by it.
    #[cold]
    fn put_together(&mut self, packet: &Packet<'_>) {
        let settings = self.delays.settings();
        let is_tcp = matches!(packet.transport, Transport::Tcp(_));
        let harms = is_tcp && settings.pair.is_harmed_by_offloads() && settings.filter.meets(packet);
        self.oversized += u64::from(harms);
    }

    /// Whether an interval has ended at `now_ns`. They end at multiples of their length, so that those of all NICs are the same.
    pub(super) const fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.ends_ns
    }

    /// So many frames of the interface were dropped by the kernel.
    pub(super) fn lost(&self, frames: u64) {
        self.together.metrics.dropped.add(frames);
    }

    /// Ends the interval if it is due, and writes what it was like.
    pub(super) fn end_interval(&mut self, now_ns: u64) {
        if !self.is_due(now_ns) {
            return;
        }
        // The first one is of no known length.
        let is_first = self.ends_ns == 0;
        let ended_ns = core::mem::replace(&mut self.ends_ns, (now_ns / self.interval_ns + 1) * self.interval_ns);
        let part = self.delays.end_part(now_ns);
        let oversized = core::mem::take(&mut self.oversized);
        if !is_first {
            self.together.hand_in(ended_ns, Handed { part, oversized });
        }
        self.together.metrics.refused.add(core::mem::take(&mut self.refused));
    }
}

#[cfg(test)]
impl Stream {
    /// Frames that the kernel dropped, as its metric says.
    pub(super) fn dropped(&self) -> u64 {
        self.together.metrics.dropped.get()
    }
}

#[cfg(test)]
mod tests {
    use packets::generator::{Traffic, TrafficSettings};
    use packets::{Frame, parse};

    use super::*;
    use crate::config::Config;

    /// A stream of handshakes on which nothing has been seen; where no host agent is, values are written all the same.
    fn stream(more: &str) -> Stream {
        let text = format!("network:\n  streams:\n    - {{name: a, interface: lo, pair: handshake{more}}}\n");
        let config = Config::parse(&text).unwrap();
        let [stream] = shards(&config.network.streams[0]);
        stream
    }

    fn shards<const N: usize>(config: &StreamConfig) -> [Stream; N] {
        let together = Arc::new(Together::new(config, Path::new("/nowhere/services.sock"), N));
        std::array::from_fn(|_| Stream::new(config, N, Arc::clone(&together), 7).unwrap())
    }

    fn insert(stream: &mut Stream, frame: &Frame<'_>) {
        let seen = Seen { put_together: frame.is_put_together(1_500) };
        stream.insert(&parse(frame, stream.view()), seen);
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
            .for_each(|frame| insert(stream, &frame));
        stream.end_interval(start_ns + 1_000_000_000);
        traffic
    }

    #[test]
    fn what_is_known_of_an_interval_is_written_into_metrics() {
        let mut stream = stream("");
        let traffic = watch(&mut stream, 2_000);
        let mut truth = traffic.handshakes_ns().to_vec();
        truth.sort_unstable();

        let metrics = &stream.together.metrics;
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

        let metrics = &stream.together.metrics;
        assert!(metrics.quantiles.iter().all(|gauge| gauge.get().is_nan()));
        assert_eq!((metrics.trusted.get(), metrics.requests.get()), (0.0, 20));
        // An interval in which nothing was asked.
        stream.end_interval(stream.ends_ns);
        assert!(stream.together.metrics.unanswered.get().is_nan() && stream.together.metrics.repeated.get().is_nan());
        assert_eq!(stream.together.metrics.requests.get(), 20);
    }

    #[test]
    fn packets_of_other_streams_and_broken_ones_are_told_apart() {
        let mut stream = stream(", filter: port 444");
        let traffic = watch(&mut stream, 50);
        let first = traffic.frames().next().unwrap();
        insert(&mut stream, &Frame { bytes: &first.bytes[..30], ..first });
        insert(&mut stream, &Frame { bytes: &[0; 14], ..first });
        stream.lost(3);
        stream.end_interval(stream.ends_ns);

        let metrics = &stream.together.metrics;
        assert_eq!((metrics.packets.get(), metrics.refused.get(), metrics.dropped.get()), (0, 1, 3));
    }

    const SECOND: u64 = 1_000_000_000;
    const START: u64 = 1_700_000_000 * SECOND;

    #[test]
    fn segments_that_were_put_together_flag_the_delays_of_data_and_no_others() {
        for (pair, flagged) in [("data", 1), ("handshake", 0), ("flow", 0)] {
            let text =
                format!("network:\n  streams:\n    - {{name: a, interface: lo, pair: {pair}, filter: port 80}}\n");
            let [mut stream] = shards(&Config::parse(&text).unwrap().network.streams[0]);
            stream.end_interval(START);
            let bytes = packets::generator::segment(&[7; 1_460]);
            let frame = Frame { bytes: &bytes, length: 1_514, time_ns: START, link: packets::Link::Ethernet };
            // As long as the wire carries it, and longer.
            insert(&mut stream, &frame);
            insert(&mut stream, &Frame { length: 2_974, ..frame });
            stream.end_interval(START + SECOND);

            let metrics = &stream.together.metrics;
            assert_eq!((metrics.put_together.get(), metrics.oversized.get()), (f64::from(flagged), flagged as u64));
            assert_eq!(metrics.packets.get(), 2);
            // The next interval has none.
            stream.end_interval(START + 2 * SECOND);
            assert_eq!(
                (stream.together.metrics.put_together.get(), stream.together.metrics.oversized.get()),
                (0.0, flagged as u64)
            );
        }
    }

    fn end_all(shards: &mut [Stream], now_ns: u64) {
        for shard in shards {
            shard.end_interval(now_ns);
        }
    }

    /// Gives one second of traffic to shards by flow.
    fn split(shards: &mut [Stream], traffic: &Traffic) {
        for frame in traffic.frames().filter(|frame| frame.time_ns < START + SECOND) {
            let packet = parse(&frame, View::Outer);
            // One port is 443; the other is the connection's.
            let port = packet.as_ref().map_or(0, |packet| packet.source.port.max(packet.destination.port));
            let shard = usize::from(port) % shards.len();
            shards[shard].insert(&packet, Seen { put_together: false });
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
        let together = Arc::clone(&shards[0].together);
        assert_eq!((together.metrics.requests.get(), together.metrics.trusted.get()), (0, 0.0), "one is missing");
        shards[1].end_interval(START + SECOND + 20_000_000);
        assert_eq!((together.metrics.requests.get(), together.metrics.trusted.get()), (2_000, 1.0));
        let median = together.metrics.quantiles[0].get();
        assert!((median * NS / truth[1_000] as f64 - 1.0).abs() < 0.07, "{median}, {}", truth[1_000]);
    }

    #[test]
    fn a_shard_that_hangs_takes_the_figures_with_it_but_no_counts() {
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
        let together = Arc::clone(&shards[0].together);
        for second in 1..=4 {
            shards[0].end_interval(START + second * SECOND);
        }
        let first = together.metrics.packets.get();
        assert!(first > 0 && together.metrics.quantiles[0].get().is_nan() && together.metrics.trusted.get() == 0.0);

        // It comes back: its first interval, long over, is counted, and from the next one on figures are there.
        shards[1].end_interval(START + 4 * SECOND);
        end_all(&mut shards, START + 5 * SECOND);
        assert!(together.metrics.packets.get() > first);
        assert_eq!((together.waiting(), together.metrics.unanswered.get().is_nan()), (0, true));
    }
}
