//! Random traffic that tries what parsers and synopses get wrong: repeated and late requests, clocks that jump, tags,
//! options, both versions of IP, padding, fragments, and frames with flipped, missing and additional bytes. A seed
//! determines all of it.

mod streams;

pub use streams::Streams;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::begun::SYNC;
use crate::frames::Captured;

/// When traffic begins unless it is said, in nanoseconds since 1970.
pub const START_NS: u64 = 1_700_000_000_000_000_000;
/// At its multiples all numbers of times begin anew: ticks of 2¹⁰ ns with 32 bits, slots of 2¹⁸ ns with 31, and laps of
/// slots of 2²⁰ ns with 32.
pub const WRAP_NS: u64 = 1 << 52;
/// More than half of what slots of 2¹⁸ ns with 31 bits can tell apart, and not all of it.
const SILENCE_NS: u64 = 3 << 47;
/// Connections that there are at a time.
const CONNECTIONS: usize = 300;
/// Flags of TCP.
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const FIN: u8 = 0x01;

/// Traffic without an end.
#[derive(Clone, Debug)]
pub struct Traffic {
    random: ChaCha8Rng,
    connections: Vec<Connection>,
    time_ns: u64,
    /// Number of the interval.
    interval: u32,
    /// Share of frames that are damaged.
    damaged: f64,
}

#[derive(Clone, Copy, Debug)]
struct Connection {
    ends: [[u8; 16]; 2],
    ports: [u16; 2],
    v6: bool,
    sequence: u32,
    identification: u16,
}

/// The parts of a frame that its kind does not determine.
struct Segment<'a> {
    connection: &'a Connection,
    from_server: bool,
    flags: u8,
    numbers: [u32; 2],
    udp: bool,
}

impl Traffic {
    /// Traffic in which a share of `damaged` frames is damaged.
    #[must_use]
    pub fn new(seed: u64, damaged: f64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let connections = (0..CONNECTIONS).map(|_| connection(&mut random)).collect();
        Self { random, connections, time_ns: START_NS, interval: 0, damaged }
    }

    /// The same that begins at another time.
    #[must_use]
    pub fn beginning_at(self, time_ns: u64) -> Self {
        Self { time_ns, ..self }
    }

    /// The next frame's time. Clocks jump now and then, by more than half of what 32 bits of ticks can tell apart.
    fn pass_time(&mut self) -> u64 {
        self.time_ns += match self.random.random_range(0..1_000) {
            0 => 1 << 41,
            1 => 1 << 33,
            _ => self.random.random_range(0..200_000),
        };
        let back = if self.random.random_bool(0.01) { self.random.random_range(0..5_000_000) } else { 0 };
        self.time_ns.saturating_sub(back)
    }

    fn segment(&mut self) -> Vec<u8> {
        let place = self.random.random_range(0..CONNECTIONS);
        let kind = self.random.random_range(0..100);
        if kind < 30 {
            // Another request, or the last one again.
            self.connections[place].sequence = match self.random.random_range(0..10) {
                0..3 => self.connections[place].sequence,
                3 => u32::MAX,
                _ => self.random.random(),
            };
        }
        self.connections[place].identification = self.random.random();
        let connection = self.connections[place];
        let sequence = connection.sequence;
        let (flags, numbers, from_server) = match kind {
            0..45 => (SYN | self.random.random_range(0..4) << 6, [sequence, 0], false),
            45..80 => (SYN | ACK, [self.random.random(), sequence.wrapping_add(1)], true),
            80..85 => (FIN | ACK, [sequence, 9], self.random.random()),
            _ => (ACK, [sequence, self.random.random()], self.random.random()),
        };
        let udp = kind >= 90;
        self.frame(&Segment { connection: &connection, from_server, flags, numbers, udp })
    }

    fn frame(&mut self, segment: &Segment<'_>) -> Vec<u8> {
        let random = &mut self.random;
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        if random.random_bool(0.1) {
            for _ in 0..random.random_range(1..6) {
                let kind: [u8; 2] = [[0x81, 0], [0x88, 0xa8], [0x91, 0]][random.random_range(0..3)];
                bytes.extend(kind);
                bytes.extend(random.random::<[u8; 2]>());
            }
        }
        let transport = transport(random, segment);
        let Connection { v6, identification, ends, .. } = *segment.connection;
        let [from, to] = if segment.from_server { [ends[1], ends[0]] } else { ends };
        let protocol = if segment.udp { 17 } else { 6 };
        if v6 {
            let first =
                if random.random_bool(0.03) { [0, 43, 44, 51, 60][random.random_range(0..5)] } else { protocol };
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            bytes.extend((transport.len() as u16).to_be_bytes());
            bytes.extend([first, 64]);
            bytes.extend([from, to].concat());
        } else {
            let options = if random.random_bool(0.1) { random.random_range(0..=10) } else { 0 };
            let fragment = u16::from(random.random_bool(0.01)) * 185;
            bytes.extend([8, 0, 0x45 + options, 0]);
            bytes.extend((20 + 4 * u16::from(options) + transport.len() as u16).to_be_bytes());
            bytes.extend(identification.to_be_bytes());
            bytes.extend(fragment.to_be_bytes());
            bytes.extend([64, protocol, 0, 0]);
            bytes.extend([&from[12..], &to[12..]].concat());
            bytes.extend(vec![1; 4 * usize::from(options)]);
        }
        bytes.extend(transport);
        if bytes.len() < 60 {
            bytes.resize(60, 0);
        }
        bytes
    }

    /// Begins the next interval. Some come again, or late.
    fn sync(&mut self) -> Vec<u8> {
        let back = u32::from(self.random.random_bool(0.2)) * self.random.random_range(0..3);
        self.interval += u32::from(back == 0);
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        bytes.extend(SYNC);
        bytes.extend(self.interval.wrapping_sub(back).to_be_bytes());
        bytes.resize(60, 0);
        bytes
    }

    fn damage(&mut self, bytes: &mut Vec<u8>) {
        if self.random.random_bool(0.6) {
            self.damage_lengths(bytes);
            return;
        }
        let at = self.random.random_range(0..bytes.len());
        match self.random.random_range(0..5) {
            0 => bytes.truncate(at),
            1 => bytes.extend(vec![0xee; at]),
            // Most fields of interest are among the first bytes.
            2 => bytes[at.min(60)] = self.random.random(),
            3 => bytes.truncate(at.min(70)),
            _ => bytes[at] ^= 1 << self.random.random_range(0..8),
        }
    }
}

impl Traffic {
    /// Changes one or two of the lengths in the headers, or where the frame ends, near what is just possible.
    fn damage_lengths(&mut self, bytes: &mut Vec<u8>) {
        let ip = ip_header(bytes);
        let random = &mut self.random;
        let v6 = bytes.get(ip).is_some_and(|byte| byte >> 4 == 6);
        let options = bytes.get(ip).map_or(0, |byte| usize::from(byte & 15) * 4);
        let segment = ip + if v6 { 40 } else { options };
        for _ in 0..random.random_range(1..3) {
            let (at, value) = match random.random_range(0..6) {
                0 => (ip, (if v6 { 0x60 } else { 0x40 }) + random.random_range(0..8)),
                1 => (ip + if v6 { 5 } else { 3 }, random.random_range(0..90)),
                // Of TCP, and of UDP.
                2 => (segment + 12, random.random_range(0..16) << 4),
                3 => (segment + 5, random.random_range(0..60)),
                4 => (segment + 4, random.random_range(0..2)),
                _ => {
                    bytes.truncate((segment + random.random_range(0..64)).saturating_sub(22));
                    continue;
                }
            };
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
    }
}

/// Where the IP header begins.
fn ip_header(bytes: &[u8]) -> usize {
    let mut at = 12;
    while let Some([0x81 | 0x91, 0] | [0x88, 0xa8]) = bytes.get(at..at + 2) {
        at += 4;
    }
    at + 2
}

impl Iterator for Traffic {
    type Item = Captured;

    fn next(&mut self) -> Option<Captured> {
        let time_ns = self.pass_time();
        let mut bytes = if self.random.random_range(0..150) == 0 { self.sync() } else { self.segment() };
        if self.random.random_bool(self.damaged) {
            self.damage(&mut bytes);
        }
        Some(Captured { time_ns, bytes })
    }
}

/// Frames at every edge of what parsers accept: whole ones, then each cut at every byte, and with every value of each
/// length in its headers that a few bits allow.
#[must_use]
pub fn edges() -> Vec<Captured> {
    let mut traffic = Traffic::new(4, 0.0);
    let connections = [(false, 0), (true, 1)].map(|(v6, place)| Connection { v6, ..traffic.connections[place] });
    let mut frames = Vec::new();
    for connection in &connections {
        for (flags, from_server, udp) in [(SYN, false, false), (SYN | ACK, true, false), (ACK, false, true)] {
            let numbers = [connection.sequence, connection.sequence.wrapping_add(1)];
            let segment = Segment { connection, from_server, flags, numbers, udp };
            let whole = core::iter::repeat_with(|| traffic.frame(&segment)).find(|bytes| bytes.len() < 110);
            frames.extend(whole.iter().flat_map(|whole| variants(whole)));
        }
    }
    (0..).zip(frames).map(|(at, bytes)| Captured { time_ns: START_NS + at * 5_000, bytes }).collect()
}

/// Frames before and behind times at which numbers begin anew; between the two the same ones once more, after a silence
/// of days.
#[must_use]
pub fn wraps() -> Vec<Captured> {
    let [first, second] = [378, 379].map(|wraps| wraps * WRAP_NS - 10_000_000);
    let requests = |time_ns| Traffic::new(6, 0.0).beginning_at(time_ns).take(300);
    let again = requests(first + SILENCE_NS);
    requests(first).chain(again).chain(Streams::new(7).beginning_at(second).take(900)).collect()
}

/// A frame, and all that it may become.
fn variants(whole: &[u8]) -> Vec<Vec<u8>> {
    let ip = ip_header(whole);
    let v6 = whole.get(ip).is_some_and(|byte| byte >> 4 == 6);
    let segment = ip + whole.get(ip).map_or(0, |byte| if v6 { 40 } else { usize::from(byte & 15) * 4 });
    let mut variants = vec![whole.to_vec()];
    variants.extend((0..whole.len()).map(|length| whole[..length].to_vec()));
    // Five tags, of which four are allowed, as far as they are there.
    let (addresses, behind) = whole.split_at(whole.len().min(12));
    for tags in 1..=5 {
        let tagged = [addresses, &[0x81, 0, 0, 5].repeat(tags), behind].concat();
        variants.extend((12..tagged.len().min(40)).map(|length| tagged[..length].to_vec()));
        variants.push(tagged);
    }
    // The IP header's version and length, the packet's length, the fragment's offset, then lengths of TCP and UDP.
    let length = ip + if v6 { 5 } else { 3 };
    for (at, values, shift) in [
        (ip, 3..8, 4),
        (ip, 0x40..0x50, 0),
        (length, 0..100, 0),
        (ip + 6, 0..64, 0),
        (segment + 12, 0..16, 4),
        (segment + 5, 0..64, 0),
    ] {
        variants.extend(values.map(|value: u8| {
            let mut other = whole.to_vec();
            if let Some(byte) = other.get_mut(at) {
                *byte = value << shift;
            }
            other
        }));
    }
    variants
}

fn connection(random: &mut ChaCha8Rng) -> Connection {
    Connection {
        ends: [random.random(), random.random()],
        ports: [random.random(), [80, 443, 53][random.random_range(0..3)]],
        v6: random.random_bool(0.3),
        sequence: random.random(),
        identification: 0,
    }
}

/// A TCP or UDP header and its payload.
fn transport(random: &mut ChaCha8Rng, segment: &Segment<'_>) -> Vec<u8> {
    let mut ports = segment.connection.ports;
    if segment.from_server {
        ports.reverse();
    }
    let mut bytes = ports.map(u16::to_be_bytes).concat();
    let payload = match random.random_range(0..4) {
        0 => 0,
        1 => random.random_range(0..40),
        _ => random.random_range(0..120),
    };
    if segment.udp {
        bytes.extend((8 + payload as u16).to_be_bytes());
        bytes.extend(random.random::<[u8; 2]>());
    } else {
        let options = if random.random_bool(0.5) { random.random_range(0..=10) } else { 0 };
        bytes.extend(segment.numbers.map(u32::to_be_bytes).concat());
        bytes.extend([0x50 + (options << 4), segment.flags, 0xff, 0xff]);
        bytes.extend(random.random::<[u8; 4]>());
        bytes.extend((0..4 * options).map(|_| random.random::<u8>()));
    }
    bytes.extend((0..payload).map(|_| random.random::<u8>()));
    bytes
}
