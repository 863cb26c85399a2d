//! All synopses of one stream: each packet is parsed and identified once. Those of delay and loss, and with
//! [`AllSynopses::with_flows`] those of flows.

use anyhow::{Result, ensure};
use packets::{Delays, DelaysSettings, Filter, Frame, Pair, View, identity, parse};
use synopses::digest::DigestKey;
use synopses::finecomb::{FineComb, Receiver, Settings as CombSettings};
use synopses::fridge::{HistogramShape, Settings};
use synopses::rda::{Capture, Ids};

use super::flow_synopses::FlowSynopses;

/// Intervals of RDA, LDA and FineComb, in nanoseconds of the packets' own time.
const INTERVAL_NS: u64 = 250_000_000;
/// Packets of an interval that are remembered; the agent's default.
const PACKETS: usize = 32_768;
const GENERATIONS: usize = 6;
const BUCKETS: usize = 1_000;
const STASH: usize = 64;
const SLOTS: usize = 4_096;

/// A fridge for TCP data, with its histogram.
pub fn fridge() -> Result<Delays> {
    Ok(Delays::new(DelaysSettings {
        pair: Pair::Data,
        filter: Filter::default(),
        fridge: Settings { slots: SLOTS, ..Settings::default() },
        histogram: HistogramShape::default(),
        tuned: false,
        secret: 1,
    })?)
}

/// A fridge for TCP data, LDA, FineComb as the receiver, and RDA; and perhaps the synopses of flows.
#[derive(Debug)]
pub struct AllSynopses {
    key: DigestKey,
    delays: Delays,
    lda: FineComb,
    finecomb: Receiver,
    rda: Capture,
    flows: Option<FlowSynopses>,
    start_ns: u64,
    interval: u64,
    taken: u64,
    refused: u64,
}

impl AllSynopses {
    /// Allocates all memory. The first interval begins at `start_ns`.
    pub fn new(start_ns: u64) -> Result<Self> {
        let mut finecomb = Receiver::new(&CombSettings::one_bank(BUCKETS, 1.0, STASH, 1))?;
        let _ = finecomb.sync();
        Ok(Self {
            key: DigestKey::new(2),
            delays: fridge()?,
            lda: FineComb::new(&CombSettings::one_bank(BUCKETS, 1.0, 0, 1))?,
            finecomb,
            rda: Capture::new(start_ns, INTERVAL_NS, GENERATIONS, PACKETS, Ids::Checked8)?,
            flows: None,
            start_ns,
            interval: 0,
            taken: 0,
            refused: 0,
        })
    }

    /// The same with the synopses of flows.
    pub fn with_flows(self) -> Result<Self> {
        Ok(Self { flows: Some(FlowSynopses::new(self.start_ns, INTERVAL_NS)?), ..self })
    }

    /// Inserts one frame into all synopses.
    #[inline]
    pub fn insert(&mut self, frame: &Frame<'_>) {
        let Ok(packet) = parse(frame, View::Outer) else { return };
        self.taken += 1;
        if packet.time_ns >= self.start_ns + (self.interval + 1) * INTERVAL_NS {
            self.end_interval(packet.time_ns);
        }
        let _ = self.delays.insert(&packet);
        let digest = identity::digest(&packet, &self.key);
        self.lda.insert(digest, packet.time_ns);
        self.finecomb.insert(digest, packet.time_ns);
        self.rda.insert(digest, packet.time_ns);
        if let Some(flows) = &mut self.flows {
            flows.insert(&packet, &self.key);
        }
    }

    /// Ends all intervals before the one that `now_ns` is in; what they hold is not estimated, which happens elsewhere.
    #[cold]
    fn end_interval(&mut self, now_ns: u64) {
        let _ = self.delays.end_interval(now_ns);
        self.lda.clear();
        let _ = self.finecomb.sync();
        drop(self.finecomb.take());
        if let Some(cache) = self.rda.close(self.interval) {
            self.refused += cache.overflowed();
            self.rda.give_back(cache);
        }
        if let Some(flows) = &mut self.flows {
            flows.end_interval();
        }
        self.interval = self.rda.interval_of(now_ns).unwrap_or(self.interval);
    }

    /// Bytes that are allocated: the four of delay and loss, and all of flows.
    pub fn memory_bytes(&self) -> [usize; 2] {
        let four = self.delays.memory_bytes()
            + self.lda.memory_bytes()
            + self.finecomb.memory_bytes()
            + self.rda.memory_bytes();
        [four, self.flows.as_ref().map_or(0, FlowSynopses::memory_bytes)]
    }

    /// The number of packets, each of which all synopses must contain.
    ///
    /// # Errors
    ///
    /// Some were dropped: then the figure would be of less work.
    pub fn whole(&self) -> Result<u64> {
        let (outside, refused) = (self.rda.outside(), self.refused);
        ensure!(outside == 0 && refused == 0, "RDA took {outside} packets for late, and had no room for {refused}");
        let of_flows = self.flows.as_ref().map_or(self.taken, FlowSynopses::packets);
        ensure!(of_flows == self.taken, "the synopses of flows have {of_flows} of {} packets", self.taken);
        Ok(self.taken)
    }
}
