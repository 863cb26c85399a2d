//! Controls the sampled share of flows: lowers it when an end's packets exceed its memory budget, and doubles it after
//! a calm period.

use crate::Sampling;
use crate::end_counters::EndCounters;

/// The share is doubled after this many intervals within the memory budget.
const CALM_INTERVALS: u32 = 60;
/// Target load: the share of the memory budget to use after a reduction.
const TARGET_LOAD: f64 = 0.9;

/// The sender's control of the sampled share of flows, for both ends.
#[derive(Debug)]
pub(crate) struct SamplingController {
    share: u32,
    /// A change that the receiver has not acknowledged yet.
    unacknowledged: Option<Sampling>,
    calm: u32,
}

impl Default for SamplingController {
    fn default() -> Self {
        Self { share: u32::MAX, unacknowledged: None, calm: 0 }
    }
}

impl SamplingController {
    /// An interval has ended, with this many packets over this end's memory budget.
    pub(crate) const fn interval_ended(&mut self, overflowed: u64) {
        self.calm = if overflowed > 0 { 0 } else { self.calm.saturating_add(1) };
    }

    /// The change to send to the receiver.
    pub(crate) const fn unacknowledged(&self) -> Option<Sampling> {
        self.unacknowledged
    }

    /// The receiver has acknowledged this change.
    pub(crate) fn acknowledge(&mut self, sampling: Option<Sampling>) {
        self.unacknowledged = self.unacknowledged.filter(|pending| Some(*pending) != sampling);
    }

    /// Decides from both ends' counters of an interval. `last` is the last interval that has ended.
    pub(crate) fn update(&mut self, ours: &EndCounters, theirs: &EndCounters, last: u64) -> Option<Sampling> {
        // An earlier change is not in effect yet.
        if self.unacknowledged.is_some() || ours.sampled != self.share {
            return None;
        }
        let accepted =
            |counters: &EndCounters| counters.packets as f64 / (counters.packets + counters.overflowed).max(1) as f64;
        let share = f64::from(self.share);
        let next = if ours.overflowed > 0 || theirs.overflowed > 0 {
            share * TARGET_LOAD * accepted(ours).min(accepted(theirs))
        } else if self.calm > CALM_INTERVALS && self.share < u32::MAX {
            2.0 * share
        } else {
            return None;
        };
        self.calm = 0;
        // `as` saturates.
        self.share = next as u32;
        // In time for both ends if the message arrives within an interval.
        self.unacknowledged = Some(Sampling { from: last + 3, share: self.share });
        self.unacknowledged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(packets: u64, overflowed: u64, sampled: u32) -> EndCounters {
        EndCounters { packets, overflowed, sampled, ..EndCounters::default() }
    }

    #[test]
    fn the_end_with_less_memory_sets_the_share_with_a_margin() {
        for (ours, theirs) in [((100, 0), (50, 50)), ((50, 50), (100, 0)), ((50, 50), (80, 20))] {
            let mut controller = SamplingController::default();
            let change =
                controller.update(&counters(ours.0, ours.1, u32::MAX), &counters(theirs.0, theirs.1, u32::MAX), 7);
            let Some(Sampling { from: 10, share }) = change else { panic!("{change:?}") };
            assert!((f64::from(share) / f64::from(u32::MAX) - 0.45).abs() < 1e-6, "{share}");
        }
    }

    #[test]
    fn a_change_waits_until_the_previous_one_is_acknowledged_and_in_effect() {
        let mut controller = SamplingController::default();
        let (full, none) = (counters(50, 50, u32::MAX), counters(100, 0, u32::MAX));
        let change = controller.update(&full, &none, 7);
        assert!(
            change.is_some() && controller.unacknowledged() == change && controller.update(&full, &none, 8).is_none()
        );
        controller.acknowledge(None);
        controller.acknowledge(Some(Sampling { from: 1, share: 1 }));
        assert_eq!(controller.unacknowledged(), change, "that is another change");
        controller.acknowledge(change);
        assert!(
            controller.unacknowledged().is_none() && controller.update(&full, &none, 9).is_none(),
            "counters with the previous share"
        );
        let share = change.map_or(0, |change| change.share);
        assert!(controller.update(&counters(50, 50, share), &none, 10).is_some());
    }

    #[test]
    fn the_share_doubles_after_many_intervals_within_the_budget_up_to_all_flows() {
        let mut controller = SamplingController::default();
        let change = controller.update(&counters(60, 40, u32::MAX), &counters(100, 0, u32::MAX), 0);
        controller.acknowledge(change);
        let mut share = change.map_or(0, |change| change.share);
        let mut rises = Vec::new();
        for interval in 1..200 {
            controller.interval_ended(u64::from(interval == 30));
            let both = counters(100, 0, share);
            if let Some(change) = controller.update(&both, &both, interval) {
                rises.push((interval, f64::from(change.share) / f64::from(share)));
                share = change.share;
                controller.acknowledge(Some(change));
            }
        }
        // Sixty intervals after the one over budget. Twice 0.54 is above 1: all flows.
        assert!(matches!(rises[..], [(91, rise)] if (rise - 1.0 / 0.54).abs() < 0.01), "{rises:?}");
    }
}
