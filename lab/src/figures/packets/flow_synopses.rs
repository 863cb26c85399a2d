//! The synopses of flows of one stream: the digest of a flow is computed once.

use anyhow::Result;
use packets::flows::{reordering_settings, segment};
use packets::{Packet, identity};
use synopses::cardinality::{
    Cardinality as _, Hash, Settings as Counted, StHll, StHllSettings, TsPcsa, TsPcsaSettings,
};
use synopses::digest::DigestKey;
use synopses::disaggregated::{Fragment, Settings as Counters};
use synopses::rap::{HeavyHitters as _, Rap, Settings as Entries};
use synopses::reordering::{Boundary, PrefixTally, Reordering};

/// Registers of a count of distinct flows.
const REGISTERS: usize = 1 << 10;
/// Counters of the fragment, in one row.
const COUNTERS: u32 = 1 << 14;
/// Prefixes that are kept of an interval.
const PREFIXES: usize = 256;
const SEED: u64 = 3;

/// Packets out of order by prefix, the heaviest flows, distinct flows twice, and sizes of flows.
#[derive(Debug)]
pub struct FlowSynopses {
    reordering: Reordering,
    tally: PrefixTally,
    heavy: Rap,
    staggered: StHll,
    stamped: TsPcsa,
    fragment: Fragment,
}

impl FlowSynopses {
    /// Allocates all memory. Distinct flows are those of the last `window_ns` nanoseconds.
    pub fn new(start_ns: u64, window_ns: u64) -> Result<Self> {
        let common = Counted { registers: REGISTERS, window_ns, start_ns, hash: Hash::Seeded(SEED) };
        Ok(Self {
            reordering: Reordering::new(reordering_settings(SEED))?,
            tally: PrefixTally::new(PREFIXES, SEED)?,
            heavy: Rap::new(Entries { seed: SEED, ..Entries::default() })?,
            staggered: StHll::new(StHllSettings::plus(common))?,
            stamped: TsPcsa::new(TsPcsaSettings::plus(common))?,
            fragment: Fragment::new(Counters { id: 0, counters: COUNTERS, rows: 1, seed: SEED })?,
        })
    }

    /// Inserts one packet into all of them.
    #[inline]
    pub fn insert(&mut self, packet: &Packet<'_>, key: &DigestKey) {
        let segment = segment(packet, key);
        let flow = segment.map_or_else(|| identity::flow(packet, key), |segment| segment.flow);
        if let Some(report) = segment.and_then(|segment| self.reordering.insert(&segment, packet.time_ns)) {
            self.tally.insert(report);
        }
        self.heavy.insert(flow);
        self.staggered.insert(flow, packet.time_ns);
        self.stamped.insert(flow, packet.time_ns);
        self.fragment.insert(flow, 1);
    }

    /// Ends an interval; what it holds is not estimated, which happens elsewhere.
    pub fn end_interval(&mut self) {
        let Self { reordering, tally, .. } = self;
        reordering.close(Boundary::KeepFlows, |report| tally.insert(report));
        tally.reset();
        self.heavy.reset();
        self.fragment.rotate(self.fragment.epoch() + 1);
    }

    /// Bytes that are allocated, whatever was inserted.
    pub fn memory_bytes(&self) -> usize {
        self.reordering.memory_bytes()
            + self.tally.memory_bytes()
            + self.heavy.memory_bytes()
            + self.staggered.memory_bytes()
            + self.stamped.memory_bytes()
            + self.fragment.memory_bytes()
    }

    /// Number of packets.
    pub fn packets(&self) -> u64 {
        self.staggered.tally().inserted.min(self.stamped.tally().inserted)
    }
}
