//! TCP traffic of prefixes, some of which are reordered.

use std::f64::consts::TAU;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use synopses::digest::{Digest, DigestKey};
use synopses::reordering::{Control, Definition, Event, Prefix, Segment};

/// Bytes of each packet.
const PAYLOAD: u32 = 1_000;

/// Parameters of the traffic.
#[derive(Clone, Copy)]
pub struct Profile {
    pub name: &'static str,
    pub prefixes: u32,
    pub flows: u32,
    /// Shape and least value of Pareto's law of a flow's packets.
    pub packets: (f64, f64),
    pub seconds: f64,
    /// Mean distance of the packets of a window, in nanoseconds.
    pub gap_ns: f64,
    /// Share of bad prefixes, and the range of their rates of events.
    pub bad: f64,
    pub bad_rates: (f64, f64),
    pub good_rates: (f64, f64),
    /// Shape of the Gamma law by which flows of a prefix differ.
    pub spread: f64,
    /// Share of the events that are neighbours swapped; the others are losses, sent again after a round trip.
    pub swapped: f64,
}

impl Profile {
    pub const R1: Self = Self {
        name: "R1",
        prefixes: 1_024,
        flows: 32_768,
        packets: (0.7, 2.0),
        seconds: 4.0,
        gap_ns: 40_000.0,
        bad: 0.12,
        bad_rates: (0.011, 0.04),
        good_rates: (1e-5, 1e-3),
        spread: 0.05,
        swapped: 0.85,
    };
    /// Events after long gaps.
    pub const R2: Self = Self { name: "R2", swapped: 0.1, ..Self::R1 };
    /// For sweeps of parameters.
    pub const R3: Self = Self {
        name: "R3",
        prefixes: 2_048,
        flows: 65_536,
        packets: (0.75, 2.0),
        bad: 0.2,
        bad_rates: (0.011, 0.05),
        spread: 0.1,
        ..Self::R1
    };
    /// More prefixes, and bursts that are denser than T.
    pub const R1L: Self = Self { name: "R1L", prefixes: 4_096, flows: 131_072, gap_ns: 10_000.0, ..Self::R1 };
}

/// A packet: time, flow and number in the flow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Packet {
    at_ns: u64,
    flow: u32,
    number: u32,
}

/// A flow: its prefix and the digest of its addresses.
struct Flow {
    prefix: Prefix,
    digest: Digest,
}

/// Packets in the order of time.
pub struct Traffic {
    pub profile: Profile,
    packets: Vec<Packet>,
    flows: Vec<Flow>,
}

impl Traffic {
    pub fn new(profile: Profile, seed: u64) -> Self {
        let mut source = Source { random: ChaCha8Rng::seed_from_u64(seed), packets: Vec::new() };
        let rates: Vec<f64> = (0..profile.prefixes)
            .map(|_| {
                let bad = source.uniform() < profile.bad;
                source.log_uniform(if bad { profile.bad_rates } else { profile.good_rates })
            })
            .collect();
        let mut sums: Vec<f64> = (1..=profile.prefixes).map(|rank| 1.0 / f64::from(rank)).collect();
        (1..sums.len()).for_each(|at| sums[at] += sums[at - 1]);
        let key = DigestKey::new(u128::from(seed) + 1);
        let flows = (0..profile.flows).map(|flow| {
            let drawn = source.uniform() * sums[sums.len() - 1];
            let prefix = sums.partition_point(|sum| *sum <= drawn).min(sums.len() - 1);
            let rate = (rates[prefix] * source.gamma(profile.spread) / profile.spread).min(0.5);
            source.flow(&profile, flow, rate);
            Flow { prefix: Prefix(prefix as u64), digest: key.digest(&flow.to_le_bytes()) }
        });
        let flows = flows.collect();
        source.packets.sort_unstable();
        Self { profile, packets: source.packets, flows }
    }

    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Segments with their times.
    pub fn segments(&self) -> impl Iterator<Item = (Segment, u64)> {
        self.packets.iter().map(|packet| {
            let Flow { prefix, digest } = self.flows[packet.flow as usize];
            let sequence = packet.number.wrapping_mul(PAYLOAD).wrapping_add(digest.0 as u32);
            let segment = Segment { prefix, flow: digest, sequence, payload: PAYLOAD, control: Control::None };
            (segment, packet.at_ns)
        })
    }

    /// Packets of each flow, and those out of order.
    fn of_flows(&self, definition: Definition) -> Vec<(u64, u64)> {
        let mut states: Vec<Option<u32>> = vec![None; self.flows.len()];
        let mut counts = vec![(0, 0); self.flows.len()];
        for (packet, (segment, _)) in self.packets.iter().zip(self.segments()) {
            let event = match &mut states[packet.flow as usize] {
                Some(state) => definition.advance(state, &segment),
                new => {
                    *new = Some(definition.first(&segment));
                    Event::InOrder
                }
            };
            let count = &mut counts[packet.flow as usize];
            count.0 += 1;
            count.1 += u64::from(event == Event::OutOfOrder);
        }
        counts
    }

    fn of_prefixes(&self, flows: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let mut counts = vec![(0, 0); self.profile.prefixes as usize];
        for (flow, (packets, events)) in self.flows.iter().zip(flows) {
            let count = &mut counts[flow.prefix.0 as usize];
            count.0 += packets;
            count.1 += events;
        }
        counts
    }

    /// Packets of each prefix, and those out of order.
    pub fn truth(&self, definition: Definition) -> Vec<(u64, u64)> {
        self.of_prefixes(&self.of_flows(definition))
    }

    /// The share out of order of each flow, and of the other flows of its prefix, of prefixes with more than this many
    /// packets.
    pub fn flows_beside_their_prefix(&self, definition: Definition, more_than: u64) -> Vec<(f64, f64)> {
        let flows = self.of_flows(definition);
        let prefixes = self.of_prefixes(&flows);
        let pair = |(flow, (packets, events)): (&Flow, &(u64, u64))| {
            let (all, all_events) = prefixes[flow.prefix.0 as usize];
            let rest = all - packets;
            (*packets > 0 && rest > 0 && all > more_than)
                .then(|| (*events as f64 / *packets as f64, (all_events - events) as f64 / rest as f64))
        };
        self.flows.iter().zip(&flows).filter_map(pair).collect()
    }
}

struct Source {
    random: ChaCha8Rng,
    packets: Vec<Packet>,
}

impl Source {
    fn uniform(&mut self) -> f64 {
        self.random.random()
    }

    fn exponential(&mut self) -> f64 {
        -(1.0 - self.uniform()).ln()
    }

    fn log_uniform(&mut self, (least, most): (f64, f64)) -> f64 {
        least * (most / least).powf(self.uniform())
    }

    fn normal(&mut self) -> f64 {
        (2.0 * self.exponential()).sqrt() * (TAU * self.uniform()).cos()
    }

    /// Gamma's law of this shape, below 1, and scale 1 (Marsaglia and Tsang, with their reduction to shapes above 1).
    fn gamma(&mut self, shape: f64) -> f64 {
        let d = shape + 1.0 - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let normal = self.normal();
            let v = (1.0 + c * normal).powi(3);
            let accepted = v > 0.0 && self.uniform().ln() < normal * normal / 2.0 + d - d * v + d * v.ln();
            if accepted {
                return d * v * self.uniform().powf(1.0 / shape);
            }
        }
    }

    /// The packets of a flow: a window in each round trip, until the end of the traffic.
    fn flow(&mut self, profile: &Profile, flow: u32, rate: f64) {
        let (shape, least) = profile.packets;
        let length = (least * (1.0 - self.uniform()).powf(-1.0 / shape)).min(1e7) as u32;
        let end = profile.seconds * 1e9;
        let mut begins = self.uniform() * 0.8 * end;
        let trip = 30e6 * (0.8 * self.normal()).exp();
        let (mut window, mut sent, mut lost) = (10.0_f64, 0, Vec::new());
        while (sent < length || !lost.is_empty()) && begins < end {
            let mut order = std::mem::take(&mut lost);
            let new = (window as u32).min(length - sent);
            self.window(profile, rate, sent..sent + new, &mut order, &mut lost);
            sent += new;
            let mut at = begins;
            for number in order {
                if at < end {
                    self.packets.push(Packet { at_ns: at as u64, flow, number });
                }
                at += profile.gap_ns * self.exponential();
            }
            begins = (begins + trip).max(at);
            window = (window * 1.5).min(64.0);
        }
    }

    /// The new packets of a window in the order of arrival, and those that are lost.
    fn window(
        &mut self,
        profile: &Profile,
        rate: f64,
        new: std::ops::Range<u32>,
        order: &mut Vec<u32>,
        lost: &mut Vec<u32>,
    ) {
        let mut number = new.start;
        while number < new.end {
            if self.uniform() >= rate {
                order.push(number);
            } else if self.uniform() >= profile.swapped {
                lost.push(number);
            } else if number + 1 < new.end {
                order.extend([number + 1, number]);
                number += 1;
            } else {
                order.push(number);
            }
            number += 1;
        }
    }
}
