//! What looked lost and was only on its way: final one interval later.

use alloc::vec::Vec;

use super::reconcile::{Estimate, Reconciliation};
use super::table::Table;

/// Packets of an interval that did not arrive in it.
#[derive(Clone, Debug)]
pub struct Unsettled {
    /// Id and time of sending.
    lost: Vec<(u64, u64)>,
    sent: u64,
    complete: bool,
}

/// Loss of an interval after the next one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settled {
    /// Packets that the sender saw in the interval.
    pub sent: u64,
    /// Arrived in neither interval.
    pub lost: u64,
    /// Arrived in the next one.
    pub late: u64,
    /// Arrived in the next one without having been sent in either: changed on the way, put there by somebody, or sent an interval earlier still.
    pub odd: u64,
    /// Lost ones as a share of those sent.
    pub loss: Option<f64>,
    /// Every difference of both intervals was found; otherwise these are not all.
    pub complete: bool,
    /// The delays in all, in nanoseconds, of those late packets whose time of arrival is known, and how many they are.
    pub late_delays_ns: (i128, u64),
}

impl Unsettled {
    /// What this interval leaves open.
    #[must_use]
    pub fn of(interval: &Reconciliation) -> Self {
        let found = interval.estimate(crate::moments::Deviation::PerBucket);
        Self::new(interval.lost().collect(), found.sent, found.complete)
    }

    /// An interval of `sent` packets of which those of these ids and times of sending did not arrive in it; all of them, if `complete`. For an
    /// interval whose packets were compared one by one.
    #[must_use]
    pub const fn new(lost: Vec<(u64, u64)>, sent: u64, complete: bool) -> Self {
        Self { lost, sent, complete }
    }

    /// From now on its packets have the ids that `next` says: those by which the next interval knows them, if its packets are named with another key.
    pub fn rename(&mut self, next: impl Fn(u64) -> u64) {
        for (id, _) in &mut self.lost {
            *id = next(*id);
        }
    }

    /// What became of its packets, by what arrived in the `next` interval without having been sent in it.
    #[must_use]
    pub fn settle(&self, next: &Reconciliation) -> Settled {
        self.settle_with(next.reordered(), next.difference().residual == 0)
    }

    /// The same, by ids and, where known, times of what arrived in the next interval without having been sent in it; all of it, if `complete`.
    #[must_use]
    pub fn settle_with(&self, arrived: impl Iterator<Item = (u64, Option<u64>)>, complete: bool) -> Settled {
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
        Settled {
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

impl Settled {
    /// The mean delay of an interval with its late packets, whose delays are known one by one.
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
