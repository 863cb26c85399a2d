//! Reads the packets of an interface: its rings, one thread each, and the streams on it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use agent_runtime::clock::unix_now;
use packets::ring::{Ring, RingSettings, TimestampSource};
use packets::{Source as _, SourceCounts, SourceError};
use wire::time::{Nanos, UnixNanos};

use super::fragment::FragmentStream;
use super::interface_stats::InterfaceStats;
use super::one_way_stream::OneWayStream;
use super::part::{PartError, StreamPart};
use super::ring_link::RingLink;
use super::ring_streams::Streams;
use crate::config::{InterfaceConfig, StreamConfig, Timestamps};
use crate::error::chain;

/// How long a ring waits for a frame, which bounds how late an interval ends.
const WAIT: Duration = Duration::from_millis(20);
/// Pause between two attempts to open an interface.
const PAUSE: Duration = Duration::from_secs(1);
/// An interface that cannot be opened is logged at the first attempt and every so many attempts.
const WARN_EVERY: u32 = 60;
/// Interval between two polls of the kernel's counters.
const POLL: Nanos = Nanos::from_millis(250);
/// Difference between the card's clock and the system's that is logged, and up to which the card's is believed.
const FAR: Nanos = Nanos::from_secs(1);

/// A stream of an interface, by its kind.
pub(super) enum MonitoredStream {
    /// Measured here alone.
    Alone(Box<StreamConfig>),
    /// One-way delay and loss, measured with another agent.
    OneWay(Box<OneWayStream>),
    /// The fragment, counted together with other agents.
    Fragment(Box<FragmentStream>),
}

/// Set when an interface is not to be read any more.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop {
    /// The agent ends.
    pub(super) agent: Arc<AtomicBool>,
    /// Nothing on this interface is measured.
    pub(super) interface: Arc<AtomicBool>,
}

impl Stop {
    pub(super) fn is_set(&self) -> bool {
        self.agent.load(Ordering::Acquire) || self.interface.load(Ordering::Acquire)
    }
}

/// Reads the packets of one interface.
#[derive(Debug)]
pub(super) struct InterfaceReader {
    pub(super) config: InterfaceConfig,
    /// Socket on which the host agent registers services.
    pub(super) socket: PathBuf,
    pub(super) stats: Arc<InterfaceStats>,
}

impl InterfaceReader {
    /// The streams of each ring. `links` are the queues through which those of each ring change; none: they do not.
    ///
    /// # Errors
    ///
    /// [`PartError`], which does not occur with a checked configuration.
    fn streams(&self, monitored: Vec<MonitoredStream>, links: Vec<RingLink>) -> Result<Vec<Streams>, PartError> {
        let rings = self.config.rings as usize;
        let mut links = links.into_iter();
        let mut all: Vec<_> = (0..rings).map(|_| Streams::new(links.next())).collect();
        for stream in monitored {
            match stream {
                MonitoredStream::Alone(config) => {
                    for (ring, parts) in all.iter_mut().zip(StreamPart::of(&config, &self.socket, rings)?) {
                        for part in parts {
                            ring.add(part);
                        }
                    }
                }
                // A checked configuration has one ring if there is such a stream.
                MonitoredStream::OneWay(stream) => {
                    if let Some(ring) = all.first_mut() {
                        ring.add_one_way(*stream);
                    }
                }
                MonitoredStream::Fragment(stream) => {
                    if let Some(ring) = all.first_mut() {
                        ring.set_fragment(*stream);
                    }
                }
            }
        }
        Ok(all)
    }

    /// Reads the interface until `stop` is set. Tries again if the interface does not exist or fails. Streams come,
    /// change and go through `links`, one for each ring.
    pub(super) fn run(&self, streams: Vec<MonitoredStream>, links: Vec<RingLink>, stop: &Stop) {
        let (interface, number, rings) = (&*self.config.name, streams.len(), self.config.rings as usize);
        let mut shards = match self.streams(streams, links) {
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
        while !stop.is_set() {
            match Ring::open_group(&settings, rings) {
                Ok(open) => {
                    tracing::info!(interface, streams = number, rings, "reading packets");
                    tries = 0;
                    self.stats.set_problem("");
                    let opened = unix_now();
                    for streams in &mut shards {
                        streams.unread_until(opened);
                    }
                    self.read(open, &mut shards, stop);
                    self.stats.set_rings(0, false);
                }
                Err(error) => {
                    let why = chain(&error);
                    if tries.is_multiple_of(WARN_EVERY) {
                        tracing::warn!(interface, why, "cannot read packets: trying again");
                    }
                    self.stats.set_problem(&why);
                    tries = tries.wrapping_add(1);
                }
            }
            give_up(&mut shards);
            if !stop.is_set() {
                thread::sleep(PAUSE);
            }
        }
        // What came meanwhile is given back, so that whoever waits for its end learns of it.
        give_up(&mut shards);
    }

    /// Reads all rings, the first one on this thread, until `stop` is set or one fails.
    fn read(&self, rings: Vec<Ring>, shards: &mut [Streams], stop: &Stop) {
        let interface = &*self.config.name;
        let source = rings.first().map_or(TimestampSource::Kernel, |ring| ring.timestamp_source().clone());
        if let TimestampSource::Refused(why) = &source {
            tracing::warn!(interface, why, "the card has no hardware timestamps: kernel timestamps are used");
        }
        self.stats.set_rings(rings.len(), source == TimestampSource::Hardware);
        let failed = AtomicBool::new(false);
        let ends = || stop.is_set() || failed.load(Ordering::Acquire);
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
            streams.take_commands();
            let mut latest = None;
            // A ring has no end, and `latest` says whether there were frames.
            _ = ring.read(&mut |frame| {
                latest = Some(UnixNanos(frame.time_ns));
                streams.insert(frame);
            })?;
            let now = unix_now();
            let read = read_until(latest, now);
            streams.last = latest.or(streams.last);
            if streams.has_shared() {
                // When a frame was dropped is not known, but since when: the counter is read after each block, and
                // before an interval ends.
                let total = ring.counts().dropped;
                streams.add_dropped_to_shared(total - dropped_one_way, noticed_by(latest, unix_now()));
                dropped_one_way = total;
            }
            streams.poll_shared(read);
            if streams.end_is_due(now) {
                // A dropped frame may have been of any stream.
                let total = ring.counts().dropped;
                streams.end_intervals(now, total - dropped);
                dropped = total;
            }
        }
        Ok(())
    }
}

/// The interface cannot be read now.
fn give_up(shards: &mut [Streams]) {
    let now = unix_now();
    for streams in shards {
        streams.unreadable(now);
    }
}

/// The time up to which the interface has been read, if the last frame is of `latest`. After a pause of the thread,
/// older frames are still in the ring; their interval may not end before they are read.
fn read_until(latest: Option<UnixNanos>, now: UnixNanos) -> UnixNanos {
    latest.map_or(now, |latest| latest.min(now))
}

/// When dropped frames were noticed at the latest, if the last frame is of `latest`. A card's clock may be ahead, but
/// what a false timestamp says may not be believed: until then all intervals would have missed packets.
fn noticed_by(latest: Option<UnixNanos>, now: UnixNanos) -> UnixNanos {
    latest.map_or(now, |latest| latest.clamp(now, now.plus(FAR)))
}

/// Polls the kernel's counters a few times a second.
#[derive(Debug, Default)]
struct CounterPoll {
    next: UnixNanos,
    before: SourceCounts,
    /// Whether a difference between the card's clock and the system's has been logged.
    warned: bool,
}

impl CounterPoll {
    fn run(&mut self, reader: &InterfaceReader, ring: &mut Ring, streams: &mut Streams) {
        let now = unix_now();
        // A wall clock that was set back must not stop the polls.
        if now < self.next && self.next.since(now) <= POLL {
            return;
        }
        self.next = now.plus(POLL);
        let counts = ring.counts();
        reader.stats.add(counts, self.before, core::mem::take(&mut streams.oversized));
        self.before = counts;
        if let Ok(bytes) = ring.mtu() {
            streams.mtu = bytes;
        }
        let Some(last) = streams.last.take() else { return };
        let apart = now.since(last).max(last.since(now));
        if *ring.timestamp_source() == TimestampSource::Hardware && apart > FAR && !self.warned {
            self.warned = true;
            tracing::warn!(
                interface = reader.config.name,
                card_ns = last.0,
                system_ns = now.0,
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
        let monitored = network.streams.into_iter().map(Box::new).map(MonitoredStream::Alone).collect();
        let streams = reader.streams(monitored, Vec::new()).unwrap().remove(0);
        (reader, streams)
    }

    #[test]
    fn frames_that_the_kernel_drops_are_in_the_streams_metric_and_in_the_interfaces_counters() {
        if !rustix::process::geteuid().is_root() {
            return support::harness::not_run("reading an interface takes root");
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
    fn drops_are_noticed_by_the_clock_that_is_ahead_but_not_by_a_false_timestamp() {
        let now = UnixNanos::from_secs(1_000);
        let ahead = now.plus(Nanos::from_millis(300));

        assert_eq!(noticed_by(None, now), now);
        assert_eq!(noticed_by(Some(now.minus(FAR)), now), now);
        assert_eq!(noticed_by(Some(ahead), now), ahead);
        assert_eq!(noticed_by(Some(UnixNanos(u64::MAX)), now), now.plus(FAR));
    }

    #[test]
    fn no_interval_ends_while_frames_of_it_may_be_in_the_ring() {
        let [earlier, now, later] = [50, 100, 150].map(UnixNanos);
        assert_eq!(read_until(Some(earlier), now), earlier);
        assert_eq!(read_until(None, now), now);
        // A clock that was set back.
        assert_eq!(read_until(Some(later), now), now);
    }
}
