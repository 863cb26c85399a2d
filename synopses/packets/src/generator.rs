//! Synthetic traffic with known delays: TCP connections with losses, retransmissions, reordering and wrapping sequence
//! numbers; DNS and NTP.
//!
//! The capture point is between clients and servers. A packet that is lost behind it is captured, and its
//! retransmission, too. The seed determines all traffic, on every machine.

use etherparse::{PacketBuilder, TcpHeader};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::frame::{Frame, Link};
use crate::source::{Progress, Source, SourceCounts, SourceError};

/// Maximum payload of a segment in bytes.
const SEGMENT: u32 = 1_400;
/// Retransmission timeout of the generated TCP connections.
const TIMEOUT_NS: u64 = 200_000_000;

/// Parameters of synthetic traffic.
#[derive(Clone, Copy, Debug)]
pub struct TrafficSettings {
    /// Number of TCP connections.
    pub connections: u32,
    /// Segments with payload per connection.
    pub segments: u32,
    /// Number of DNS queries, and of NTP queries.
    pub queries: u32,
    /// Share of packets that are lost behind the capture point.
    pub loss: f64,
    /// Share of segments that are retransmitted without a loss.
    pub spurious: f64,
    /// Share of packets that are late by up to 30 ms, so that they may be reordered.
    pub late: f64,
    /// Median delay in nanoseconds. Delays are lognormal with σ = 0.5.
    pub median_ns: u64,
    /// Connections and queries begin within this many nanoseconds.
    pub span_ns: u64,
    /// Start of the traffic in nanoseconds since 1970.
    pub start_ns: u64,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for TrafficSettings {
    fn default() -> Self {
        Self {
            connections: 100,
            segments: 50,
            queries: 100,
            loss: 0.02,
            spurious: 0.005,
            late: 0.01,
            median_ns: 20_000_000,
            span_ns: 2_000_000_000,
            start_ns: 1_700_000_000_000_000_000,
            seed: 1,
        }
    }
}

/// Synthetic traffic in the order of its timestamps.
#[derive(Clone, Debug)]
pub struct Traffic {
    frames: Vec<(u64, Vec<u8>)>,
    handshakes_ns: Vec<u64>,
    next: usize,
}

impl Traffic {
    /// Generates all traffic in memory.
    #[must_use]
    pub fn new(settings: &TrafficSettings) -> Self {
        let mut generator =
            Generator { settings: *settings, random: ChaCha8Rng::seed_from_u64(settings.seed), frames: Vec::new() };
        let handshakes_ns = (0..settings.connections).map(|number| generator.connection(number)).collect();
        for number in 0..settings.queries {
            generator.query(number, 53);
            generator.query(number, 123);
        }
        // A stable sort: frames with the same timestamp stay in the order of generation.
        generator.frames.sort_by_key(|frame| frame.0);
        Self { frames: generator.frames, handshakes_ns, next: 0 }
    }

    /// All frames in order.
    pub fn frames(&self) -> impl Iterator<Item = Frame<'_>> {
        self.frames.iter().map(|(time_ns, bytes)| frame(*time_ns, bytes))
    }

    /// Delay from SYN to SYN+ACK of each connection, in nanoseconds.
    #[must_use]
    pub fn handshakes_ns(&self) -> &[u64] {
        &self.handshakes_ns
    }
}

fn frame(time_ns: u64, bytes: &[u8]) -> Frame<'_> {
    Frame { bytes, length: bytes.len() as u32, time_ns, link: Link::Ethernet }
}

impl Source for Traffic {
    fn read(&mut self, take: &mut dyn FnMut(&Frame<'_>)) -> Result<Progress, SourceError> {
        let Some((time_ns, bytes)) = self.frames.get(self.next) else { return Ok(Progress::End) };
        self.next += 1;
        take(&frame(*time_ns, bytes));
        Ok(Progress::Frames(1))
    }

    fn counts(&mut self) -> SourceCounts {
        SourceCounts { frames: self.next as u64, ..SourceCounts::default() }
    }
}

/// An Ethernet frame with a segment of the connection from 10.0.0.1:40000 to 10.1.0.1:80 and this payload.
#[must_use]
pub fn segment(payload: &[u8]) -> Vec<u8> {
    let connection = Connection { client: [10, 0, 0, 1], server: [10, 1, 0, 1], ports: (40_000, 80), tag: None };
    connection.frame(
        true,
        TcpHeader { sequence_number: 1, acknowledgment_number: 1, ack: true, ..TcpHeader::default() },
        payload,
    )
}

/// Addresses, ports and VLAN tag of a connection.
#[derive(Clone, Copy)]
struct Connection {
    client: [u8; 4],
    server: [u8; 4],
    ports: (u16, u16),
    tag: Option<u16>,
}

impl Connection {
    fn frame(&self, from_client: bool, mut header: TcpHeader, payload: &[u8]) -> Vec<u8> {
        let (from, to, ports) = if from_client {
            (self.client, self.server, self.ports)
        } else {
            (self.server, self.client, (self.ports.1, self.ports.0))
        };
        (header.source_port, header.destination_port, header.window_size) = (ports.0, ports.1, 65_000);
        let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let mut bytes = Vec::new();
        let written = match self.tag.and_then(|tag| etherparse::VlanId::try_new(tag).ok()) {
            Some(tag) => ethernet.single_vlan(tag).ipv4(from, to, 64).tcp_header(header).write(&mut bytes, payload),
            None => ethernet.ipv4(from, to, 64).tcp_header(header).write(&mut bytes, payload),
        };
        debug_assert!(written.is_ok(), "a segment fits into a packet");
        bytes
    }
}

struct Generator {
    settings: TrafficSettings,
    random: ChaCha8Rng,
    frames: Vec<(u64, Vec<u8>)>,
}

/// A segment from client to server.
struct SentSegment {
    at: u64,
    /// Range of bytes in the stream.
    bytes: (u32, u32),
    fin: bool,
    arrives: Option<u64>,
}

impl Generator {
    fn delay(&mut self) -> u64 {
        // The sum of twelve uniform numbers is about normal. It is exact on every machine, unlike a logarithm.
        let normal: f64 = (0..12).map(|_| self.random.random::<f64>()).sum::<f64>() - 6.0;
        let exponent = 0.5 * normal;
        let power = (0..24).rev().fold(1.0, |sum, term| 1.0 + sum * exponent / f64::from(term + 1));
        (self.settings.median_ns as f64 * power) as u64 + 1
    }

    fn begins(&mut self) -> u64 {
        self.settings.start_ns + self.random.random_range(0..self.settings.span_ns.max(1))
    }

    fn chance(&mut self, share: f64) -> bool {
        self.random.random::<f64>() < share
    }

    /// Generates one connection. Returns the delay of its handshake.
    fn connection(&mut self, number: u32) -> u64 {
        let [_, high, middle, low] = number.to_be_bytes();
        let connection = Connection {
            client: [10, high, middle, low],
            server: [172, 16, 0, (number % 7) as u8],
            ports: (32_768 + (number % 20_000) as u16, 443),
            tag: (number % 5 == 4).then_some(7),
        };
        // The sequence numbers of a third of the connections wrap.
        let near_end = |random: &mut ChaCha8Rng| u32::MAX - random.random_range(0..SEGMENT * 20);
        let first = if number.is_multiple_of(3) { near_end(&mut self.random) } else { self.random.random() };
        let theirs = if number % 3 == 1 { near_end(&mut self.random) } else { self.random.random() };
        let (begins, handshake) = (self.begins(), self.delay());
        let opened = begins + handshake;
        let header = |sequence_number, acknowledgment_number| TcpHeader {
            sequence_number,
            acknowledgment_number,
            ..TcpHeader::default()
        };
        self.frames.push((begins, connection.frame(true, TcpHeader { syn: true, ..header(first, 0) }, b"")));
        let answer = TcpHeader { syn: true, ack: true, ..header(theirs, first.wrapping_add(1)) };
        self.frames.push((opened, connection.frame(false, answer, b"")));
        let last = TcpHeader { ack: true, ..header(first.wrapping_add(1), theirs.wrapping_add(1)) };
        let sending = opened + 100_000;
        self.frames.push((sending, connection.frame(true, last, b"")));
        let sent = self.stream(sending);
        for segment in &sent {
            let sequence = first.wrapping_add(1).wrapping_add(segment.bytes.0);
            let header =
                TcpHeader { ack: true, psh: true, fin: segment.fin, ..header(sequence, theirs.wrapping_add(1)) };
            let payload = vec![b'x'; (segment.bytes.1 - segment.bytes.0) as usize];
            self.frames.push((segment.at, connection.frame(true, header, &payload)));
        }
        for (at, expected) in self.acknowledgements(&sent) {
            let number = first.wrapping_add(1).wrapping_add(expected);
            let header = TcpHeader { ack: true, ..header(theirs.wrapping_add(1), number) };
            self.frames.push((at, connection.frame(false, header, b"")));
        }
        handshake
    }

    /// The segments that a client sends, with retransmissions and arrival times.
    fn stream(&mut self, begins: u64) -> Vec<SentSegment> {
        let mut sent = Vec::new();
        let (mut at, mut offset) = (begins, 0);
        for place in 0..self.settings.segments {
            at += self.random.random_range(10_000..4_000_000);
            let bytes = (offset, offset + self.random.random_range(1..=SEGMENT));
            offset = bytes.1;
            let fin = place + 1 == self.settings.segments;
            let mut sends = at;
            loop {
                // The last attempt always arrives, so that the connection ends.
                let lost = self.chance(self.settings.loss) && sends < at + 3 * TIMEOUT_NS;
                let arrives = sends + self.delay() / 2;
                // A packet that is late before the capture point passes it after later ones.
                let late = if self.chance(self.settings.late) { self.random.random_range(0..30_000_000) } else { 0 };
                sent.push(SentSegment { at: sends + late, bytes, fin, arrives: (!lost).then_some(arrives + late) });
                if !lost && !self.chance(self.settings.spurious) {
                    break;
                }
                sends += TIMEOUT_NS;
            }
        }
        sent
    }

    /// Acknowledgements of the server and their timestamps: for every second segment in order, and at once for a
    /// segment out of order.
    fn acknowledgements(&mut self, sent: &[SentSegment]) -> Vec<(u64, u32)> {
        let mut arrivals: Vec<_> =
            sent.iter().filter_map(|segment| Some((segment.arrives?, segment.bytes, segment.fin))).collect();
        arrivals.sort_unstable_by_key(|arrival| arrival.0);
        let (mut expected, mut ended, mut early, mut waiting) = (0, 0, Vec::new(), 0);
        let mut acknowledgements = Vec::new();
        for (at, bytes, fin) in arrivals {
            let in_order = bytes.0 == expected;
            early.push((bytes, fin));
            early.sort_unstable();
            for &((from, to), fin) in &early {
                if from == expected {
                    expected = to;
                    ended = u32::from(fin);
                }
            }
            early.retain(|((from, _), _)| *from > expected);
            waiting = if in_order && early.is_empty() && !fin { waiting + 1 } else { 2 };
            if waiting == 2 {
                waiting = 0;
                let back = self.delay() / 2;
                if !self.chance(self.settings.loss) {
                    acknowledgements.push((at + back, expected + ended));
                }
            }
        }
        acknowledgements
    }

    /// Generates a query to a DNS or NTP server. Some get no reply.
    fn query(&mut self, number: u32, port: u16) {
        let [_, _, high, low] = number.to_be_bytes();
        let (client, server, from) = ([10, 200, high, low], [9, 9, 9, 9], self.random.random_range(1_024..u16::MAX));
        let (at, delay) = (self.begins(), self.delay());
        let identifier: [u8; 8] = self.random.random();
        let (question, reply) = if port == 53 { dns(identifier) } else { ntp(identifier) };
        let mut datagram = |at, from: ([u8; 4], u16), to: ([u8; 4], u16), payload: &[u8]| {
            let mut bytes = Vec::new();
            let built = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]).ipv4(from.0, to.0, 64);
            let written = built.udp(from.1, to.1).write(&mut bytes, payload);
            debug_assert!(written.is_ok(), "a query fits into a packet");
            self.frames.push((at, bytes));
        };
        datagram(at, (client, from), (server, port), &question);
        if !number.is_multiple_of(10) {
            datagram(at + delay, (server, port), (client, from), &reply);
        }
    }
}

/// A DNS query for "example." and its reply.
fn dns(identifier: [u8; 8]) -> (Vec<u8>, Vec<u8>) {
    let question = |flags: [u8; 2]| {
        let mut message = vec![identifier[0], identifier[1], flags[0], flags[1], 0, 1, 0, 0, 0, 0, 0, 0];
        message.extend_from_slice(b"\x07example\0\0\x01\0\x01");
        message
    };
    (question([1, 0]), question([0x81, 0x80]))
}

/// An NTP request and its reply.
fn ntp(identifier: [u8; 8]) -> (Vec<u8>, Vec<u8>) {
    let (mut question, mut reply) = (vec![0; 48], vec![0; 48]);
    (question[0], reply[0]) = (0x23, 0x24);
    question[40..].copy_from_slice(&identifier);
    reply[24..32].copy_from_slice(&identifier);
    (question, reply)
}
