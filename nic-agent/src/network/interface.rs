//! Reads the packets of an interface: its rings, one thread each, and the streams on it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use agent_runtime::clock::unix_now;
use packets::ring::{Ring, RingSettings, TimestampSource};
use packets::{Frame, Progress, Source as _, SourceCounts, SourceError, View, parse};

use super::flow_stream::FlowStream;
use super::frame_info::FrameInfo;
use super::interface_stats::InterfaceStats;
use super::one_way_stream::OneWayStream;
use super::shards::ShardedStream;
use super::stream::Stream;
use crate::config::{InterfaceConfig, StreamConfig, Timestamps};
use crate::error::chain;

/// How long a ring waits for a frame, which bounds how late an interval ends.
const WAIT: Duration = Duration::from_millis(20);
/// Pause between two attempts to open an interface.
const PAUSE: Duration = Duration::from_secs(1);
/// An interface that cannot be opened is logged at the first attempt and every so many attempts.
const WARN_EVERY: u32 = 60;
/// Interval between two polls of the kernel's counters, in nanoseconds.
const POLL_NS: u64 = 250_000_000;
/// Difference between the card's clock and the system's that is logged, in nanoseconds.
const FAR_NS: u64 = 1_000_000_000;

/// A stream of an interface, by its kind.
pub(super) enum MonitoredStream {
    /// Delays between requests and responses.
    RequestResponse(StreamConfig),
    /// Who is in it: packets out of order, heavy hitters, distinct items.
    Flows(StreamConfig),
    /// One-way delay and loss, measured with another agent.
    OneWay(Box<OneWayStream>),
}

/// Why the synopses of a stream cannot be made.
#[derive(Debug, thiserror::Error)]
enum StreamError {
    /// Those of delays.
    #[error(transparent)]
    Delays(#[from] packets::DelaysError),
    /// Those of flows.
    #[error(transparent)]
    Flows(#[from] packets::FlowsError),
}

/// Reads the packets of one interface.
#[derive(Debug)]
pub(super) struct InterfaceReader {
    pub(super) config: InterfaceConfig,
    /// Socket on which the host agent registers services.
    pub(super) socket: PathBuf,
    pub(super) stats: Arc<InterfaceStats>,
}

/// All streams of one ring, or their shards.
#[derive(Debug, Default)]
struct Streams {
    request_response: Vec<Stream>,
    one_way: Vec<OneWayStream>,
    flows: Vec<FlowStream>,
    /// Whether any of them is about the outer packets of tunnels, and about the inner ones.
    views: [bool; 2],
    /// MTU of the interface: most bytes of a packet behind the link header.
    mtu: u32,
    /// Merged frames since the last poll, of any stream.
    oversized: u64,
    /// Timestamp of the last frame; 0 if there was none since the last poll.
    last_ns: u64,
}

impl Streams {
    /// The streams of each of `rings` rings.
    fn of(monitored: Vec<MonitoredStream>, reader: &InterfaceReader, rings: usize) -> Result<Vec<Self>, StreamError> {
        let mut all: Vec<_> = (0..rings).map(|_| Self { mtu: u32::MAX, ..Self::default() }).collect();
        for stream in monitored {
            match stream {
                MonitoredStream::RequestResponse(config) => {
                    let sharded = Arc::new(ShardedStream::new(&config, &reader.socket, rings));
                    for ring in &mut all {
                        let shard = Stream::new(&config, rings, Arc::clone(&sharded), rand::random())?;
                        ring.views[shard.view() as usize] = true;
                        ring.request_response.push(shard);
                    }
                }
                // A checked configuration has one ring if there is such a stream, or one of the next kind.
                MonitoredStream::Flows(config) => {
                    if let (Some(ring), Some(synopses)) = (all.first_mut(), &config.synopses) {
                        let stream = FlowStream::new(&config, synopses, &reader.socket, rand::random())?;
                        ring.views[stream.view() as usize] = true;
                        ring.flows.push(stream);
                    }
                }
                MonitoredStream::OneWay(stream) => {
                    if let Some(ring) = all.first_mut() {
                        ring.views[stream.view() as usize] = true;
                        ring.one_way.push(*stream);
                    }
                }
            }
        }
        Ok(all)
    }

    /// Passes a frame to all streams. It is parsed at most once for each view.
    #[inline]
    fn insert(&mut self, frame: &Frame<'_>) {
        let info = FrameInfo { merged: frame.is_merged(self.mtu) };
        self.oversized += u64::from(info.merged);
        let parsed = |view| self.views[view as usize].then(|| parse(frame, view));
        let packets = [View::Outer, View::Inner].map(parsed);
        for stream in &mut self.request_response {
            packets[stream.view() as usize].iter().for_each(|packet| stream.insert(packet, info));
        }
        for stream in &mut self.one_way {
            packets[stream.view() as usize].iter().for_each(|packet| stream.insert(packet, info));
        }
        for stream in &mut self.flows {
            packets[stream.view() as usize].iter().for_each(|packet| stream.insert(packet));
        }
    }
}

impl Streams {
    /// Whether an interval of a stream that is measured here alone has ended.
    fn end_is_due(&self, now_ns: u64) -> bool {
        self.request_response.iter().any(|stream| stream.is_due(now_ns))
            || self.flows.iter().any(|stream| stream.is_due(now_ns))
    }

    /// Ends those intervals. `dropped`: frames of the interface that the kernel dropped since the last call.
    fn end_intervals(&mut self, now_ns: u64, dropped: u64) {
        for stream in &mut self.request_response {
            stream.add_dropped(dropped);
            stream.end_interval(now_ns);
        }
        for stream in &mut self.flows {
            stream.add_dropped(dropped);
            stream.end_interval(now_ns);
        }
    }
}

impl InterfaceReader {
    /// Reads the interface until `stop` is set. Tries again if the interface does not exist or fails.
    pub(super) fn run(&self, streams: Vec<MonitoredStream>, stop: &AtomicBool) {
        let (interface, number, rings) = (&*self.config.name, streams.len(), self.config.rings as usize);
        let mut shards = match Streams::of(streams, self, rings) {
            Ok(shards) => shards,
            Err(error) => {
                tracing::error!(interface, why = chain(&error), "the interface is not measured");
                return;
            }
        };
        let hardware = self.config.timestamps == Timestamps::Hardware;
        let settings =
            RingSettings { interface: interface.to_owned(), wait: WAIT, hardware, ..RingSettings::default() };
        let mut tries = 0_u32;
        while !stop.load(Ordering::Acquire) {
            match Ring::open_group(&settings, rings) {
                Ok(open) => {
                    tracing::info!(interface, streams = number, rings, "reading packets");
                    tries = 0;
                    self.read(open, &mut shards, stop);
                    self.stats.set_rings(0, false);
                }
                Err(error) => {
                    if tries.is_multiple_of(WARN_EVERY) {
                        tracing::warn!(interface, why = chain(&error), "cannot read packets: trying again");
                    }
                    tries = tries.wrapping_add(1);
                }
            }
            // Packets since then are missing.
            shards.iter_mut().flat_map(|ring| &mut ring.one_way).for_each(OneWayStream::unreadable);
            if !stop.load(Ordering::Acquire) {
                thread::sleep(PAUSE);
            }
        }
    }

    /// Reads all rings, the first one on this thread, until `stop` is set or one fails.
    fn read(&self, rings: Vec<Ring>, shards: &mut [Streams], stop: &AtomicBool) {
        let interface = &*self.config.name;
        let source = rings.first().map_or(TimestampSource::Kernel, |ring| ring.timestamp_source().clone());
        if let TimestampSource::Refused(why) = &source {
            tracing::warn!(interface, why, "the card has no hardware timestamps: kernel timestamps are used");
        }
        self.stats.set_rings(rings.len(), source == TimestampSource::Hardware);
        let failed = AtomicBool::new(false);
        let ends = || stop.load(Ordering::Acquire) || failed.load(Ordering::Acquire);
        let read_ring = |mut ring: Ring, streams: &mut Streams| {
            if let Err(error) = self.process(&mut ring, streams, ends) {
                tracing::warn!(interface, why = chain(&error), "reading packets failed");
                failed.store(true, Ordering::Release);
            }
        };
        thread::scope(|scope| {
            let mut all = rings.into_iter().zip(shards);
            let first = all.next();
            for (ring, streams) in all {
                let thread = thread::Builder::new().name("packets".to_owned());
                if let Err(error) = thread.spawn_scoped(scope, || read_ring(ring, streams)) {
                    tracing::warn!(interface, why = chain(&error), "cannot start a thread for each ring");
                    failed.store(true, Ordering::Release);
                }
            }
            if let Some((ring, streams)) = first {
                read_ring(ring, streams);
            }
        });
    }

    /// Passes a ring's packets to all its streams, and ends their intervals.
    fn process(&self, ring: &mut Ring, streams: &mut Streams, ends: impl Fn() -> bool) -> Result<(), SourceError> {
        let (mut dropped, mut dropped_one_way) = (0, 0);
        let mut poll = CounterPoll::default();
        while !ends() {
            poll.run(self, ring, streams);
            let mut latest_ns = 0;
            let progress = ring.read(&mut |frame| {
                latest_ns = frame.time_ns;
                streams.insert(frame);
            })?;
            let now_ns = unix_now().0;
            let read_ns = read_until(progress, latest_ns, now_ns);
            if latest_ns > 0 {
                streams.last_ns = latest_ns;
            }
            if streams.one_way.iter().any(|stream| stream.is_due(read_ns)) {
                // Dropped frames have to be added before their interval ends.
                let total = ring.counts().dropped;
                streams.one_way.iter_mut().for_each(|stream| stream.add_dropped(total - dropped_one_way));
                dropped_one_way = total;
            }
            streams.one_way.iter_mut().for_each(|stream| stream.poll(read_ns));
            if streams.end_is_due(now_ns) {
                // A dropped frame may have been of any stream.
                let total = ring.counts().dropped;
                streams.end_intervals(now_ns, total - dropped);
                dropped = total;
            }
        }
        Ok(())
    }
}

/// The time up to which the interface has been read. After a pause of the thread, older frames are still in the ring;
/// their interval may not end before they are read.
fn read_until(progress: Progress, latest_ns: u64, now_ns: u64) -> u64 {
    match progress {
        Progress::Frames(1..) => latest_ns.min(now_ns),
        _ => now_ns,
    }
}

/// Polls the kernel's counters a few times a second.
#[derive(Debug, Default)]
struct CounterPoll {
    next_ns: u64,
    before: SourceCounts,
    /// Whether a difference between the card's clock and the system's has been logged.
    warned: bool,
}

impl CounterPoll {
    fn run(&mut self, reader: &InterfaceReader, ring: &mut Ring, streams: &mut Streams) {
        let now_ns = unix_now().0;
        // A wall clock that was set back must not stop the polls.
        if now_ns < self.next_ns && self.next_ns - now_ns <= POLL_NS {
            return;
        }
        self.next_ns = now_ns + POLL_NS;
        let counts = ring.counts();
        reader.stats.add(counts, self.before, core::mem::take(&mut streams.oversized));
        self.before = counts;
        if let Ok(bytes) = ring.mtu() {
            streams.mtu = bytes;
        }
        let apart_ns = if streams.last_ns == 0 { 0 } else { streams.last_ns.abs_diff(now_ns) };
        let last_ns = core::mem::take(&mut streams.last_ns);
        if *ring.timestamp_source() == TimestampSource::Hardware && apart_ns > FAR_NS && !self.warned {
            self.warned = true;
            tracing::warn!(
                interface = reader.config.name,
                card_ns = last_ns,
                system_ns = now_ns,
                "the clocks of card and system differ: delays of requests are right, but packets are in wrong intervals and one-way measurement \
                 fails. Synchronise them, such as with phc2sys"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::UdpSocket;
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    /// The loopback interface with a stream of all DNS packets.
    fn reader() -> (InterfaceReader, Streams) {
        let text = "network:\n  streams: [{name: a, interface: lo, pair: dns, interval_ms: 100}]\n";
        let network = Config::parse(text).unwrap().network;
        let reader = InterfaceReader {
            config: network.interface("lo"),
            socket: Path::new("/nowhere/services.sock").to_owned(),
            stats: Arc::new(InterfaceStats::new("lo")),
        };
        let monitored = network.streams.into_iter().map(MonitoredStream::RequestResponse).collect();
        let streams = Streams::of(monitored, &reader, 1).unwrap().remove(0);
        (reader, streams)
    }

    #[test]
    fn frames_that_the_kernel_drops_are_in_the_streams_metric_and_in_the_interfaces_counters() {
        if !rustix::process::geteuid().is_root() {
            println!("NOT RUN: reading an interface takes root");
            return;
        }
        let (reader, mut streams) = reader();
        let settings = RingSettings {
            interface: "lo".to_owned(),
            block_bytes: 1 << 12,
            blocks: 4,
            wait: WAIT,
            ..RingSettings::default()
        };
        let mut ring = Ring::open(&settings).unwrap();
        let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..500 {
            sender.send_to(&[7; 1_000], sink.local_addr().unwrap()).unwrap();
        }

        // Until the first interval with drops has ended. A thousand polls are 20 s.
        let polls = Cell::new(0);
        let dropped = Cell::new(0);
        while dropped.get() == 0 {
            assert!(polls.get() < 1_000, "the drops are counted");
            let ends = || {
                polls.set(polls.get() + 1);
                polls.get() % 10 == 0
            };
            reader.process(&mut ring, &mut streams, ends).unwrap();
            dropped.set(streams.request_response[0].dropped());
        }
        let counts = ring.counts();
        println!("{counts:?}, {:?}", reader.stats.snapshot());
        assert!(counts.dropped >= 400, "four pages cannot hold 500 frames of 1,000 bytes");
        assert_eq!(dropped.get(), counts.dropped);
        assert!(reader.stats.snapshot().dropped > 0);
    }

    #[test]
    fn no_interval_ends_while_frames_of_it_may_be_in_the_ring() {
        assert_eq!(read_until(Progress::Frames(3), 50, 100), 50);
        assert_eq!(read_until(Progress::Frames(0), 50, 100), 100);
        // A clock that was set back.
        assert_eq!(read_until(Progress::Frames(3), 150, 100), 100);
    }

    #[test]
    fn a_frame_is_parsed_for_the_views_of_the_streams() {
        let (_, mut streams) = reader();
        assert_eq!((streams.views, streams.request_response.len(), streams.one_way.len()), ([true, false], 1, 0));
        streams.mtu = 1_500;
        let bytes = packets::generator::segment(&[7; 100]);
        let frame = Frame { bytes: &bytes, length: 1_522, time_ns: 5, link: packets::Link::Ethernet };
        streams.insert(&frame);
        streams.insert(&Frame { length: 1_523, ..frame });
        // For "cooked" frames the MTU of their interface is unknown.
        streams.insert(&Frame { length: 9_000, link: packets::Link::Cooked, ..frame });
        assert_eq!(streams.oversized, 1);
    }
}
