//! Distinct flows, sources and ports, and who has most of them.

use core::num::NonZeroU64;

use synopses::cardinality::{Cardinality as _, Hash, Settings, SettingsError, TsPcsa, TsPcsaSettings};
use synopses::digest::{Digest, DigestKey};
use synopses::rap::{NamedRap, Settings as RapSettings};

use super::FlowsError;
use super::party::Party;
use super::turnover::LastingCount;
use crate::identity;
use crate::packet::{End, Packet};

/// Registers of each count: a standard error of 3.4 %.
pub const REGISTERS: usize = 512;
/// Positions of a register: for up to 131,072 items in a window.
pub const POSITIONS: usize = 12;
/// Slots of the window, before one is added.
pub const SLOTS: u64 = 8;
/// Entries of the tables of those who have most.
const ENTRIES: usize = 128;
/// Bits that tell what was seen in an interval. With more items than that, new ones count less.
const BITS: usize = 1 << 16;

/// The counts, and who has most of what they count.
#[derive(Debug)]
pub(super) struct Distinct {
    window_ns: u64,
    /// Time of the latest packet, or that of the reset.
    latest_ns: u64,
    flows: TsPcsa,
    sources: TsPcsa,
    ports: TsPcsa,
    fan_out: Fan,
    fan_in: Fan,
    lasting: LastingCounts,
}

/// Counts that grow when clients change their addresses.
#[derive(Debug)]
struct LastingCounts {
    flows: LastingCount,
    sources: LastingCount,
    fan_in: LastingCount,
}

/// How many new items each party has in an interval.
#[derive(Debug)]
struct Fan {
    seen: Box<[u64]>,
    table: NamedRap<Party>,
}

/// Distinct items of the window at the end of one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DistinctInterval {
    /// Distinct flows: both addresses, both ports, and the protocol.
    pub flows: f64,
    /// Distinct source addresses.
    pub sources: f64,
    /// Distinct destination ports.
    pub ports: f64,
    /// The source with most destinations in the interval; `None` without packets.
    pub fan_out: Option<FanOut>,
    /// The destination with most flows in the interval; `None` without packets.
    pub fan_in: Option<FanIn>,
    /// The same without clients that only changed their addresses.
    pub lasting: LastingInterval,
}

/// Counts in which it does not show that all clients change their addresses at once: a rise to up to
/// [`MAX_TURNOVER`](super::MAX_TURNOVER) times what was before is left out until it has lasted for longer than
/// old addresses are counted beside new ones. Those of ports and [`FanOut`] do not change with the clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LastingInterval {
    /// How many distinct flows.
    pub flows: f64,
    /// Distinct source addresses.
    pub sources: f64,
    /// Flows of the destination with most of them; 0 without packets.
    pub fan_in: f64,
}

/// A source, and to how many addresses and ports it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FanOut {
    /// Its own address.
    pub source: Party,
    /// Pairs of destination address and port.
    pub destinations: u64,
}

/// An address with a port, and how many flows there are to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FanIn {
    /// Address and port.
    pub destination: Party,
    /// Number of its flows.
    pub flows: u64,
}

impl Fan {
    fn new(seed: u64) -> Result<Self, FlowsError> {
        let settings = RapSettings { entries: ENTRIES, seed, ..RapSettings::default() };
        Ok(Self { seen: vec![0; BITS / 64].into_boxed_slice(), table: NamedRap::new(settings)? })
    }

    /// Counts an item of a party if it was not seen in this interval.
    #[inline]
    fn insert(&mut self, item: Digest, party: Digest, name: Party) {
        let bit = item.0 as usize % BITS;
        let Some(word) = self.seen.get_mut(bit / 64) else { return };
        if *word >> (bit % 64) & 1 == 0 {
            *word |= 1 << (bit % 64);
            self.table.insert(party, name, NonZeroU64::MIN);
        }
    }

    /// The party with most items, and how many it has at least.
    fn end_interval(&mut self) -> Option<(Party, u64)> {
        let top = self.table.top(ENTRIES).into_iter().max_by_key(|named| named.hitter.since);
        self.table.reset();
        self.seen.fill(0);
        top.map(|named| (named.key, named.hitter.since))
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(&*self.seen) + self.table.memory_bytes()
    }
}

/// The digest of an address and a port, behind another address if there is one.
fn end_digest(before: Option<&[u8; 16]>, end: &End, key: &DigestKey) -> Digest {
    let mut bytes = [0; 34];
    if let Some(before) = before {
        bytes[..16].copy_from_slice(before);
    }
    bytes[16..32].copy_from_slice(&end.address);
    bytes[32..].copy_from_slice(&end.port.to_be_bytes());
    key.digest(&bytes)
}

impl Distinct {
    pub(super) fn new(window_ns: u64, seed: u64) -> Result<Self, FlowsError> {
        // Time stamps are as coarse as a slot: with one slot more, what came in the window counts for certain, and of
        // what came up to two slots before it a part.
        let slot_ns = window_ns / SLOTS;
        let window_ns = slot_ns * (SLOTS + 1);
        let count = |number: u64| -> Result<TsPcsa, SettingsError> {
            let hash = Hash::Seeded(seed.wrapping_add(number));
            let common = Settings { registers: REGISTERS, window_ns, start_ns: 0, hash };
            TsPcsa::new(TsPcsaSettings { positions: POSITIONS, slot_ns, ..TsPcsaSettings::plus(common) })
        };
        Ok(Self {
            window_ns,
            latest_ns: 0,
            flows: count(1)?,
            sources: count(2)?,
            ports: count(3)?,
            fan_out: Fan::new(seed.wrapping_add(4))?,
            fan_in: Fan::new(seed.wrapping_add(5))?,
            // Some of what came up to one slot before the window counts, too.
            lasting: LastingCounts {
                flows: LastingCount::new(window_ns + slot_ns),
                sources: LastingCount::new(window_ns + slot_ns),
                fan_in: LastingCount::new(0),
            },
        })
    }

    #[inline]
    pub(super) fn insert(&mut self, packet: &Packet<'_>, key: &DigestKey) {
        let (Packet { source, destination, time_ns, .. }, flow) = (packet, identity::flow(packet, key));
        // The counts would drop it, and all until the clock has caught up. A ring's packets are in order, but after a
        // step of the clock some from before it may be behind the reset.
        if self.latest_ns.saturating_sub(*time_ns) > self.window_ns {
            self.reset(*time_ns);
        }
        self.latest_ns = self.latest_ns.max(*time_ns);
        let sender = key.digest(&source.address);
        self.flows.insert(flow, *time_ns);
        self.sources.insert(sender, *time_ns);
        self.ports.insert(key.digest(&destination.port.to_be_bytes()), *time_ns);
        let item = end_digest(Some(&source.address), destination, key);
        self.fan_out.insert(item, sender, Party::Address(source.address));
        self.fan_in.insert(flow, end_digest(None, destination, key), Party::End(*destination));
    }

    /// Forgets the window, and begins one at `now_ns`.
    #[cold]
    pub(super) fn reset(&mut self, now_ns: u64) {
        self.latest_ns = now_ns;
        for count in [&mut self.flows, &mut self.sources, &mut self.ports] {
            count.reset(now_ns);
        }
        let LastingCounts { flows, sources, fan_in } = &mut self.lasting;
        for count in [flows, sources, fan_in] {
            count.reset();
        }
    }

    pub(super) fn end_interval(&mut self, now_ns: u64) -> DistinctInterval {
        // The window is the synopsis' own, so that it always answers.
        let count = |synopsis: &TsPcsa| synopsis.estimate(now_ns, self.window_ns).map_or(0.0, |found| found.count);
        let (flows, sources, ports) = (count(&self.flows), count(&self.sources), count(&self.ports));
        let fan_out = self.fan_out.end_interval().map(|(source, destinations)| FanOut { source, destinations });
        let fan_in = self.fan_in.end_interval().map(|(destination, flows)| FanIn { destination, flows });
        let into = fan_in.map_or(0.0, |of| of.flows as f64);
        let lasting = LastingInterval {
            flows: self.lasting.flows.end_interval(now_ns, flows),
            sources: self.lasting.sources.end_interval(now_ns, sources),
            fan_in: self.lasting.fan_in.end_interval(now_ns, into),
        };
        DistinctInterval { flows, sources, ports, fan_out, fan_in, lasting }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        [&self.flows, &self.sources, &self.ports].map(TsPcsa::memory_bytes).iter().sum::<usize>()
            + self.fan_out.memory_bytes()
            + self.fan_in.memory_bytes()
    }
}
