//! An interface: its rings, one thread each, and the streams on it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use packets::ring::{Ring, RingSettings, Stamps};
use packets::{Frame, Progress, Source as _, SourceCounts, SourceError, View, parse};

use super::compared::Compared;
use super::shards::Together;
use super::standing::Standing;
use super::stream::Stream;
use crate::clock::unix_now;
use crate::config::{InterfaceConfig, StreamConfig, Timestamps};
use crate::error::told;

/// How long the ring waits for a frame: how late an interval may end.
const WAIT: Duration = Duration::from_millis(20);
/// Between two tries to open an interface, or to read one that failed.
const PAUSE: Duration = Duration::from_secs(1);
/// An interface that cannot be read is told so often.
const TOLD: u32 = 60;
/// Between two looks at what the kernel counts, in nanoseconds.
const LOOK_NS: u64 = 250_000_000;
/// A card's clock that is so far from the system's is told, in nanoseconds.
const FAR_NS: u64 = 1_000_000_000;

/// A stream of an interface.
pub(super) enum Watched {
    /// Requests and responses.
    Alone(StreamConfig),
    /// One-way delays, with another agent.
    Compared(Box<Compared>),
}

/// What is known of a frame beside its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// A card or the kernel put it together from several.
    pub(super) put_together: bool,
}

/// Where packets pass.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) config: InterfaceConfig,
    /// Where the host agent takes services.
    pub(super) socket: PathBuf,
    pub(super) standing: Arc<Standing>,
}

/// All streams of one ring, each whole or as a shard.
#[derive(Debug, Default)]
struct Streams {
    alone: Vec<Stream>,
    compared: Vec<Compared>,
    /// Whether any of them is about the outer, and the inner, packet of tunnels.
    views: [bool; 2],
    /// The interface's packets have at most so many bytes behind the link header.
    mtu: u32,
    /// Frames that were put together, of whatever stream, since the last look.
    oversized: u64,
    /// When the last frame passed; 0 if none did since the last look.
    last_ns: u64,
}

impl Streams {
    /// One for each of so many rings.
    fn of(watched: Vec<Watched>, place: &Place, rings: usize) -> Result<Vec<Self>, packets::DelaysError> {
        let mut all: Vec<_> = (0..rings).map(|_| Self { mtu: u32::MAX, ..Self::default() }).collect();
        for stream in watched {
            match stream {
                Watched::Alone(config) => {
                    let together = Arc::new(Together::new(&config, &place.socket, rings));
                    for ring in &mut all {
                        let shard = Stream::new(&config, rings, Arc::clone(&together), rand::random())?;
                        ring.views[shard.view() as usize] = true;
                        ring.alone.push(shard);
                    }
                }
                // A checked configuration has one ring where there is such a stream.
                Watched::Compared(stream) => {
                    if let Some(ring) = all.first_mut() {
                        ring.views[stream.view() as usize] = true;
                        ring.compared.push(*stream);
                    }
                }
            }
        }
        Ok(all)
    }

    /// One frame into all streams: taken apart once for those that are about the outer packet, once for those about the inner.
    #[inline]
    fn insert(&mut self, frame: &Frame<'_>) {
        let seen = Seen { put_together: frame.is_put_together(self.mtu) };
        self.oversized += u64::from(seen.put_together);
        let taken_apart = |view| self.views[view as usize].then(|| parse(frame, view));
        let packets = [View::Outer, View::Inner].map(taken_apart);
        for stream in &mut self.alone {
            packets[stream.view() as usize].iter().for_each(|packet| stream.insert(packet, seen));
        }
        for stream in &mut self.compared {
            packets[stream.view() as usize].iter().for_each(|packet| stream.insert(packet, seen));
        }
    }
}

impl Place {
    /// Reads the interface until the end. One that is not there, or goes away, is waited for.
    pub(super) fn watch(&self, streams: Vec<Watched>, stop: &AtomicBool) {
        let (interface, number, rings) = (&*self.config.name, streams.len(), self.config.rings as usize);
        let mut shards = match Streams::of(streams, self, rings) {
            Ok(shards) => shards,
            Err(error) => {
                tracing::error!(interface, why = told(&error), "nothing is measured on this interface");
                return;
            }
        };
        let hardware = self.config.timestamps == Timestamps::Hardware;
        let settings =
            RingSettings { interface: interface.to_owned(), wait: WAIT, hardware, ..RingSettings::default() };
        let mut tries = 0_u32;
        while !stop.load(Ordering::Acquire) {
            match Ring::open_some(&settings, rings) {
                Ok(open) => {
                    tracing::info!(interface, streams = number, rings, "packets are watched");
                    tries = 0;
                    self.read(open, &mut shards, stop);
                    self.standing.read_by(0, false);
                }
                Err(error) => {
                    if tries.is_multiple_of(TOLD) {
                        tracing::warn!(interface, why = told(&error), "packets are not watched, trying again");
                    }
                    tries = tries.wrapping_add(1);
                }
            }
            // What passed meanwhile nobody saw.
            shards.iter_mut().flat_map(|ring| &mut ring.compared).for_each(Compared::blind);
            if !stop.load(Ordering::Acquire) {
                thread::sleep(PAUSE);
            }
        }
    }

    /// Reads all rings, the first one on this thread, until the end or until one fails.
    fn read(&self, rings: Vec<Ring>, shards: &mut [Streams], stop: &AtomicBool) {
        let interface = &*self.config.name;
        let stamps = rings.first().map_or(Stamps::Kernel, |ring| ring.stamps().clone());
        if let Stamps::Refused(why) = &stamps {
            tracing::warn!(interface, why, "the card gives no times (timestamps: hardware): they are the kernel's");
        }
        self.standing.read_by(rings.len(), stamps == Stamps::Hardware);
        let failed = AtomicBool::new(false);
        let ends = || stop.load(Ordering::Acquire) || failed.load(Ordering::Acquire);
        let one = |mut ring: Ring, streams: &mut Streams| {
            if let Err(error) = self.pass(&mut ring, streams, ends) {
                tracing::warn!(interface, why = told(&error), "the interface cannot be read any more");
                failed.store(true, Ordering::Release);
            }
        };
        thread::scope(|scope| {
            let mut all = rings.into_iter().zip(shards);
            let first = all.next();
            for (ring, streams) in all {
                let thread = thread::Builder::new().name("packets".to_owned());
                if let Err(error) = thread.spawn_scoped(scope, || one(ring, streams)) {
                    tracing::warn!(interface, why = told(&error), "there is no thread for each ring");
                    failed.store(true, Ordering::Release);
                }
            }
            if let Some((ring, streams)) = first {
                one(ring, streams);
            }
        });
    }

    /// Gives a ring's packets to all its streams, and ends their intervals.
    fn pass(&self, ring: &mut Ring, streams: &mut Streams, ends: impl Fn() -> bool) -> Result<(), SourceError> {
        let (mut dropped, mut dropped_compared) = (0, 0);
        let mut look = Look::default();
        while !ends() {
            look.take(self, ring, streams);
            let mut latest_ns = 0;
            let progress = ring.read(&mut |frame| {
                latest_ns = frame.time_ns;
                streams.insert(frame);
            })?;
            let now_ns = unix_now();
            let read_ns = read_until(progress, latest_ns, now_ns);
            if latest_ns > 0 {
                streams.last_ns = latest_ns;
            }
            if streams.compared.iter().any(|stream| stream.is_due(read_ns)) {
                // Before the interval ends in which they were dropped.
                let in_all = ring.counts().dropped;
                streams.compared.iter_mut().for_each(|stream| stream.lost(in_all - dropped_compared));
                dropped_compared = in_all;
            }
            streams.compared.iter_mut().for_each(|stream| stream.poll(read_ns));
            if streams.alone.iter().any(|stream| stream.is_due(now_ns)) {
                // Frames that the kernel dropped are missing in all streams.
                let in_all = ring.counts().dropped;
                for stream in &mut streams.alone {
                    stream.lost(in_all - dropped);
                    stream.end_interval(now_ns);
                }
                dropped = in_all;
            }
        }
        Ok(())
    }
}

/// The time up to which the interface was read: a thread that did not get to run for some time finds frames of before, and until it has read them no
/// interval may end that they are of.
fn read_until(progress: Progress, latest_ns: u64, now_ns: u64) -> u64 {
    match progress {
        Progress::Frames(1..) => latest_ns.min(now_ns),
        _ => now_ns,
    }
}

/// What is looked at a few times a second.
#[derive(Debug, Default)]
struct Look {
    next_ns: u64,
    before: SourceCounts,
    /// That the card's clock is far from the system's was told.
    told: bool,
}

impl Look {
    fn take(&mut self, place: &Place, ring: &mut Ring, streams: &mut Streams) {
        let now_ns = unix_now();
        // A clock that was set back would stop it.
        if now_ns < self.next_ns && self.next_ns - now_ns <= LOOK_NS {
            return;
        }
        self.next_ns = now_ns + LOOK_NS;
        let counts = ring.counts();
        place.standing.add(counts, self.before, core::mem::take(&mut streams.oversized));
        self.before = counts;
        if let Ok(bytes) = ring.mtu() {
            streams.mtu = bytes;
        }
        let apart_ns = if streams.last_ns == 0 { 0 } else { streams.last_ns.abs_diff(now_ns) };
        let last_ns = core::mem::take(&mut streams.last_ns);
        if *ring.stamps() == Stamps::Hardware && apart_ns > FAR_NS && !self.told {
            self.told = true;
            tracing::warn!(
                interface = place.config.name,
                card_ns = last_ns,
                system_ns = now_ns,
                "the card's clock is far from the system's: delays of requests are right all the same, but packets do not fall into the intervals in which \
                 they passed, and nothing can be compared. phc2sys sets one by the other"
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

    /// The loopback interface with a stream of all DNS.
    fn place() -> (Place, Streams) {
        let text = "network:\n  streams: [{name: a, interface: lo, pair: dns, interval_ms: 100}]\n";
        let network = Config::parse(text).unwrap().network;
        let place = Place {
            config: network.interface("lo"),
            socket: Path::new("/nowhere/services.sock").to_owned(),
            standing: Arc::new(Standing::new("lo")),
        };
        let watched = network.streams.into_iter().map(Watched::Alone).collect();
        let streams = Streams::of(watched, &place, 1).unwrap().remove(0);
        (place, streams)
    }

    #[test]
    fn what_the_kernel_drops_while_the_reader_is_held_is_in_the_streams_metric_and_on_the_page() {
        if !rustix::process::geteuid().is_root() {
            println!("NOT RUN: reading an interface takes root");
            return;
        }
        let (place, mut streams) = place();
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

        // Until the first interval has ended whose drops are told; a thousand looks are 20 s.
        let looks = Cell::new(0);
        let dropped = Cell::new(0);
        while dropped.get() == 0 {
            assert!(looks.get() < 1_000, "the drops are told");
            let ends = || {
                looks.set(looks.get() + 1);
                looks.get() % 10 == 0
            };
            place.pass(&mut ring, &mut streams, ends).unwrap();
            dropped.set(streams.alone[0].dropped());
        }
        let counts = ring.counts();
        println!("{counts:?}, {:?}", place.standing.stands());
        assert!(counts.dropped >= 400, "four pages have no room for 500 frames of 1,000 bytes");
        assert_eq!(dropped.get(), counts.dropped);
        assert!(place.standing.stands().dropped > 0);
    }

    #[test]
    fn no_interval_ends_while_frames_of_it_may_wait() {
        assert_eq!(read_until(Progress::Frames(3), 50, 100), 50);
        assert_eq!(read_until(Progress::Frames(0), 50, 100), 100);
        // A clock that was set back.
        assert_eq!(read_until(Progress::Frames(3), 150, 100), 100);
    }

    #[test]
    fn a_frame_is_taken_apart_for_the_streams_that_there_are() {
        let (_, mut streams) = place();
        assert_eq!((streams.views, streams.alone.len(), streams.compared.len()), ([true, false], 1, 0));
        streams.mtu = 1_500;
        let bytes = packets::generator::segment(&[7; 100]);
        let frame = Frame { bytes: &bytes, length: 1_522, time_ns: 5, link: packets::Link::Ethernet };
        streams.insert(&frame);
        streams.insert(&Frame { length: 1_523, ..frame });
        // Of "cooked" frames nobody knows what their interface carries.
        streams.insert(&Frame { length: 9_000, link: packets::Link::Cooked, ..frame });
        assert_eq!(streams.oversized, 1);
    }
}
