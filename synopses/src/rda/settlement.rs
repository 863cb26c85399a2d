//! Final loss of an interval. Packets in flight at its end look lost until they arrive in the next interval.

use alloc::vec::Vec;

use super::reconcile::{Estimate, Reconciliation};
use super::table::Table;

/// Packets of an interval that have not arrived in it: lost or late.
#[derive(Clone, Debug)]
pub struct UnsettledLoss {
    /// Id and time of sending.
    lost: Vec<(u64, u64)>,
    sent: u64,
    complete: bool,
}

/// Loss of an interval, final after the next one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SettledLoss {
    /// Number of packets sent in the interval.
    pub sent: u64,
    /// Packets that arrived in neither interval.
    pub lost: u64,
    /// Packets that arrived in the next interval.
    pub late: u64,
    /// Packets that arrived in the next interval but were sent in neither: changed on the path, injected, or sent in a
    /// still earlier interval.
    pub odd: u64,
    /// Lost packets as a share of sent packets.
    pub loss: Option<f64>,
    /// Whether every difference of both intervals was identified. Otherwise the numbers are lower bounds.
    pub complete: bool,
    /// Sum of the delays in nanoseconds of late packets with a known arrival time, and their number.
    pub late_delays_ns: (i128, u64),
}

impl UnsettledLoss {
    /// The unsettled packets of an interval.
    #[must_use]
    pub fn of(interval: &Reconciliation) -> Self {
        let estimate = interval.estimate(crate::moments::Deviation::PerBucket);
        Self::new(interval.lost().collect(), estimate.sent, estimate.complete)
    }

    /// From an interval of `sent` packets whose packets were compared one by one. `lost` has ids and times of sending
    /// of those that did not arrive in it, all of them if `complete`.
    #[must_use]
    pub const fn new(lost: Vec<(u64, u64)>, sent: u64, complete: bool) -> Self {
        Self { lost, sent, complete }
    }

    /// Replaces each id by `next(id)`, its id under the next interval's digest key.
    pub fn rekey(&mut self, next: impl Fn(u64) -> u64) {
        for (id, _) in &mut self.lost {
            *id = next(*id);
        }
    }

    /// Settles the loss with the packets that arrived in the `next` interval but were not sent in it.
    #[must_use]
    pub fn settle(&self, next: &Reconciliation) -> SettledLoss {
        self.settle_with(next.reordered(), next.difference().residual == 0)
    }

    /// As [`Self::settle`], from ids and, where known, arrival times of packets that arrived in the next interval but
    /// were not sent in it, all of them if `complete`.
    #[must_use]
    pub fn settle_with(&self, arrived: impl Iterator<Item = (u64, Option<u64>)>, complete: bool) -> SettledLoss {
        let mut sent = Table::new(self.lost.len());
        for (id, time) in &self.lost {
            sent.insert(*id, *time);
        }
        let (mut late, mut odd, mut delays) = (0, 0, (0_i128, 0));
        for (id, arrived) in arrived {
            let Some(sent) = sent.get(id) else {
                odd += 1;
                continue;
            };
            late += 1;
            if let Some(arrived) = arrived {
                delays = (delays.0 + i128::from(arrived.wrapping_sub(sent).cast_signed()), delays.1 + 1);
            }
        }
        let lost = self.lost.len() as u64 - late;
        SettledLoss {
            sent: self.sent,
            lost,
            late,
            odd,
            loss: (self.sent > 0).then(|| lost as f64 / self.sent as f64),
            complete: self.complete && complete,
            late_delays_ns: delays,
        }
    }
}

impl SettledLoss {
    /// Mean delay of the interval including its late packets.
    #[must_use]
    pub fn mean_ns(&self, estimate: &Estimate) -> Option<f64> {
        let (delays, late) = (self.late_delays_ns.0 as f64, self.late_delays_ns.1 as f64);
        let packets = estimate.packets as f64;
        match estimate.mean_ns {
            Some(mean) => Some((mean * packets + delays) / (packets + late)),
            None => (late > 0.0).then(|| delays / late),
        }
    }
}
