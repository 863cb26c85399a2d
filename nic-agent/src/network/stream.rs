//! A stream of requests and responses: its packets, its synopsis, its metrics. If the interface has several rings, the
//! stream has a shard for each.

use std::sync::Arc;

use packets::{Delays, DelaysError, DelaysSettings, Packet, Pair, ParseError, Transport, View};
use synopses::fridge::{HistogramShape, Settings};
use wire::time::{Nanos, UnixNanos};

use super::frame_info::FrameInfo;
use super::interval::{Ending, WallInterval};
use super::pending_change::PendingChange;
use super::shards::{ShardReport, ShardedStream};
use crate::config::StreamConfig;

/// Delays are stored in ticks of 2^10 ns, up to 37 minutes.
const TICK_SHIFT: u32 = 10;

/// One stream, or a shard of one.
#[derive(Debug)]
pub(super) struct Stream {
    delays: Delays,
    view: View,
    interval: WallInterval,
    refused: u64,
    /// Merged frames of this interval that bias its delays.
    oversized: u64,
    sharded: Arc<ShardedStream>,
    /// What becomes of it at the end of its interval.
    pub(super) pending: PendingChange,
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
            interval: WallInterval::new(Nanos::from_millis(config.interval_ms.get().into())),
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

    /// Whether an interval has ended at `now`. Intervals end at multiples of their length, so they are the same on all
    /// NICs, and at once if the clock was set back.
    pub(super) fn is_due(&self, now: UnixNanos) -> bool {
        self.interval.is_due(now)
    }

    /// Adds frames of the interface that the kernel dropped.
    pub(super) fn add_dropped(&self, frames: u64) {
        self.sharded.metrics.dropped.add(frames);
    }

    /// Ends the interval if it is due, and submits it.
    pub(super) fn end_interval(&mut self, now: UnixNanos) {
        let Some(ending) = self.interval.end(now) else { return };
        let delays = self.delays.end_shard(now.0);
        let oversized = core::mem::take(&mut self.oversized);
        let report = ShardReport { delays, oversized };
        match ending {
            // Its length is unknown.
            Ending::First => {}
            Ending::Cut(_) => {
                self.delays.set_back();
                self.sharded.submit_cut(self.interval.ends(), &report);
            }
            Ending::Whole(ended) => self.sharded.submit(ended, report),
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
        let [p50, p95, p99] = metrics.quantiles.each_ref().map(client::Gauge::get);
        [p50, p95, p99, metrics.unanswered.get()]
    }

    /// The metric of frames that the kernel dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.sharded.metrics.dropped.get()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use client::Gauge;
    use packets::delays::BOUNDS_NS;
    use packets::generator::{Traffic, TrafficSettings};
    use packets::{Frame, parse};

    use super::*;
    use crate::config::Config;

    const NS: f64 = 1e9;
    const START: UnixNanos = UnixNanos::from_secs(1_700_000_000);

    /// So many seconds after the start.
    fn after(seconds: u64) -> UnixNanos {
        START.plus(Nanos::from_secs(seconds))
    }

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
        let traffic = Traffic::new(&TrafficSettings {
            connections,
            segments: 1,
            queries: 0,
            loss: 0.0,
            spurious: 0.0,
            late: 0.0,
            span_ns: 900_000_000,
            start_ns: START.0,
            ..TrafficSettings::default()
        });
        stream.end_interval(START);
        let ends = after(1);
        assert!(!stream.is_due(ends.minus(Nanos(1))) && stream.is_due(ends));
        traffic.frames().filter(|frame| frame.time_ns < ends.0).for_each(|frame| insert(stream, &frame));
        stream.end_interval(ends);
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
        stream.end_interval(stream.interval.ends());
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
        stream.end_interval(stream.interval.ends());

        let metrics = &stream.sharded.metrics;
        assert_eq!((metrics.packets.get(), metrics.refused.get(), metrics.dropped.get()), (0, 1, 3));
    }

    #[test]
    fn merged_segments_flag_the_delays_of_data_and_no_others() {
        for (pair, flagged) in [("data", 1), ("handshake", 0), ("flow", 0)] {
            let text =
                format!("network:\n  streams:\n    - {{name: a, interface: lo, pair: {pair}, filter: port 80}}\n");
            let [mut stream] = shards(&Config::parse(&text).unwrap().network.streams[0]);
            stream.end_interval(START);
            let bytes = packets::generator::segment(&[7; 1_460]);
            let frame = Frame { bytes: &bytes, length: 1_514, time_ns: START.0, link: packets::Link::Ethernet };
            // A frame of the MTU's length, and a longer one.
            insert(&mut stream, &frame);
            insert(&mut stream, &Frame { length: 2_974, ..frame });
            stream.end_interval(after(1));

            let metrics = &stream.sharded.metrics;
            assert_eq!((metrics.merged_flag.get(), metrics.oversized.get()), (f64::from(flagged), flagged as u64));
            assert_eq!(metrics.packets.get(), 2);
            // The next interval has none.
            stream.end_interval(after(2));
            assert_eq!(
                (stream.sharded.metrics.merged_flag.get(), stream.sharded.metrics.oversized.get()),
                (0.0, flagged as u64)
            );
        }
    }

    /// Inserts so many handshakes that begin within 0.4 s from `begin` on, until `end`. Returns their median.
    fn send_handshakes(stream: &mut Stream, [begin, end]: [UnixNanos; 2], connections: u32) -> u64 {
        let traffic = Traffic::new(&TrafficSettings {
            connections,
            segments: 1,
            queries: 0,
            loss: 0.0,
            spurious: 0.0,
            late: 0.0,
            span_ns: 400_000_000,
            start_ns: begin.0,
            ..TrafficSettings::default()
        });
        traffic.frames().filter(|frame| frame.time_ns < end.0).for_each(|frame| insert(stream, &frame));
        let mut truth = traffic.handshakes_ns().to_vec();
        truth.sort_unstable();
        truth[truth.len() / 2]
    }

    #[test]
    fn after_a_step_of_the_clock_by_an_hour_the_next_interval_ends_in_time_and_has_what_came_since() {
        let (half, hour) = (Nanos::from_millis(500), Nanos::from_secs(3_600));
        for (stepped, steps) in [(START.minus(hour), 1), (START.plus(hour), 0)] {
            let mut stream = stream("");
            stream.end_interval(START);
            let _ = send_handshakes(&mut stream, [START, START.plus(half)], 40);
            let (now, ends) = (stepped.plus(half), stepped.plus(Nanos::from_secs(1)));
            assert!(!stream.is_due(START.plus(half)) && stream.is_due(now));
            stream.end_interval(now);
            let sharded = Arc::clone(&stream.sharded);
            assert_eq!((sharded.metrics.clock_steps.get(), sharded.metrics.requests.get()), (steps, 40));
            assert!(sharded.metrics.quantiles[0].get().is_nan() && sharded.metrics.trusted.get() == 0.0);

            let truth = send_handshakes(&mut stream, [now, ends], 2_000);
            assert!(!stream.is_due(now) && !stream.is_due(ends.minus(Nanos(1))) && stream.is_due(ends));
            stream.end_interval(ends);
            assert_eq!((sharded.metrics.clock_steps.get(), sharded.metrics.requests.get()), (steps, 2_040));
            let median = sharded.metrics.quantiles[0].get();
            assert!((median * NS / truth as f64 - 1.0).abs() < 0.07, "{median}, {truth}");

            // From then on, intervals are as long as ever: none is empty and over at once.
            let next = ends.plus(Nanos::from_secs(1));
            assert!(!stream.is_due(ends) && !stream.is_due(next.minus(Nanos(1))) && stream.is_due(next));
        }
    }

    #[test]
    fn what_waits_for_a_shard_when_the_clock_is_set_back_is_counted_and_never_taken_for_an_interval_of_later() {
        let text = "network:\n  streams:\n    - {name: a, interface: lo, pair: handshake}\n";
        let mut shards = shards::<2>(&Config::parse(text).unwrap().network.streams[0]);
        let sharded = Arc::clone(&shards[0].sharded);
        end_all(&mut shards, START);
        let _ = send_handshakes(&mut shards[0], [START, after(1)], 40);
        shards[0].end_interval(after(1));
        assert_eq!((sharded.pending(), sharded.metrics.requests.get()), (1, 0), "it waits for the other shard");

        let back = START.minus(Nanos::from_secs(3_600));
        end_all(&mut shards, back);
        assert_eq!((sharded.pending(), sharded.metrics.requests.get()), (0, 40));
        assert_eq!(sharded.metrics.clock_steps.get(), 2, "one for each ring");

        let ends = back.plus(Nanos::from_secs(1));
        let _ = send_handshakes(&mut shards[1], [back, ends], 2_000);
        end_all(&mut shards, ends);
        let metrics = &sharded.metrics;
        assert_eq!((sharded.pending(), metrics.requests.get(), metrics.trusted.get()), (0, 2_040, 1.0));
    }

    fn end_all(shards: &mut [Stream], now: UnixNanos) {
        for shard in shards {
            shard.end_interval(now);
        }
    }

    /// Distributes one second of traffic over the shards by flow.
    fn split(shards: &mut [Stream], traffic: &Traffic) {
        for frame in traffic.frames().filter(|frame| frame.time_ns < after(1).0) {
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
        let traffic = Traffic::new(&TrafficSettings { span_ns: 900_000_000, start_ns: START.0, ..settings });
        let mut truth = traffic.handshakes_ns().to_vec();
        truth.sort_unstable();
        end_all(&mut shards, START);
        split(&mut shards, &traffic);

        shards[0].end_interval(after(1));
        let sharded = Arc::clone(&shards[0].sharded);
        assert_eq!((sharded.metrics.requests.get(), sharded.metrics.trusted.get()), (0, 0.0), "one is missing");
        shards[1].end_interval(after(1).plus(Nanos::from_millis(20)));
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
            start_ns: START.0,
            queries: 0,
            ..TrafficSettings::default()
        });
        end_all(&mut shards, START);
        split(&mut shards, &traffic);
        let sharded = Arc::clone(&shards[0].sharded);
        for second in 1..=4 {
            shards[0].end_interval(after(second));
        }
        let first = sharded.metrics.packets.get();
        assert!(first > 0 && sharded.metrics.quantiles[0].get().is_nan() && sharded.metrics.trusted.get() == 0.0);

        // It comes back: its first interval, which is long over, is counted. From the next one on, gauges are written.
        shards[1].end_interval(after(4));
        end_all(&mut shards, after(5));
        assert!(sharded.metrics.packets.get() > first);
        assert_eq!((sharded.pending(), sharded.metrics.unanswered.get().is_nan()), (0, true));
    }
}
