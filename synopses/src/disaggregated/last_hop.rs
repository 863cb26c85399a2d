//! The last hop: which flows are heavy, decided without a collector.

use alloc::boxed::Box;
use alloc::vec;

use super::header::{Estimate, Header, NoEstimate};
use super::path::Path;
use crate::digest::{Digest, Mixer, place};

/// What the last hop has seen in an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets with an estimate.
    pub estimated: u64,
    /// Packets on paths without fragments.
    pub unmonitored: u64,
    /// Packets that a chosen fragment did not count.
    pub skipped: u64,
    /// Packets from another epoch.
    pub epochs: u64,
    /// Heavy flows that were not reported for lack of room. They may come again.
    pub dropped: u64,
}

/// What the last hop decides about a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing to report.
    Pass(Estimate),
    /// The flow crossed the threshold for the first time in this epoch.
    Report(Estimate),
    /// The flow has no estimate.
    Unknown(NoEstimate),
}

/// Reports each flow once per epoch when its estimate reaches a threshold. Keeps 16 bytes for each of a fixed number of
/// flows.
#[derive(Clone, Debug)]
pub struct LastHop {
    threshold: u64,
    /// Twice as many slots as flows. Probed in order.
    reported: Box<[Option<Digest>]>,
    used: usize,
    mixer: Mixer,
    epoch: u32,
    tally: Tally,
}

impl LastHop {
    /// Reports from `threshold` packets, and at most `flows` of them per epoch.
    #[must_use]
    pub fn new(threshold: u64, flows: u32, seed: u64) -> Self {
        let slots = vec![None; 2 * flows as usize];
        Self {
            threshold,
            reported: slots.into(),
            used: 0,
            mixer: Mixer::new(seed, 0x6c61_7374),
            epoch: 0,
            tally: Tally::default(),
        }
    }

    /// Takes a packet's header. Strip it afterwards.
    pub fn insert(&mut self, header: &Header, path: &Path, flow: Digest) -> Decision {
        match header.estimate(path, self.epoch) {
            Ok(estimate) => {
                self.tally.estimated += 1;
                if estimate.count >= self.threshold && self.is_first(flow) {
                    Decision::Report(estimate)
                } else {
                    Decision::Pass(estimate)
                }
            }
            Err(why) => {
                *match why {
                    NoEstimate::Unmonitored => &mut self.tally.unmonitored,
                    NoEstimate::Epoch { .. } => &mut self.tally.epochs,
                    _ => &mut self.tally.skipped,
                } += 1;
                Decision::Unknown(why)
            }
        }
    }

    /// What was seen in this epoch.
    #[must_use]
    pub const fn tally(&self) -> Tally {
        self.tally
    }

    /// Begins an epoch: every flow may be reported again.
    pub fn rotate(&mut self, epoch: u32) {
        self.reported.fill(None);
        (self.used, self.epoch, self.tally) = (0, epoch, Tally::default());
    }

    /// Bytes that are allocated.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.reported)
    }

    /// Notes a flow. False if it is noted, or there is no room.
    fn is_first(&mut self, flow: Digest) -> bool {
        let slots = self.reported.len();
        let begin = place((self.mixer.mix(flow) >> 32) as u32, slots as u32) as usize;
        // Half of the slots stay empty, so that a search ends.
        let slot = (begin..slots).chain(0..begin).find(|at| self.reported[*at].is_none_or(|noted| noted == flow));
        match slot {
            Some(at) if self.reported[at].is_some() => false,
            Some(at) if 2 * self.used < slots => {
                self.reported[at] = Some(flow);
                self.used += 1;
                true
            }
            _ => {
                self.tally.dropped += 1;
                false
            }
        }
    }
}
