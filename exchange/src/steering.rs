//! How many flows are looked at: fewer where an end had no room for all packets, more again where both had for long.

use crate::Sampling;
use crate::message::Seen;

/// A share of flows is doubled again after so many intervals for which there was room.
const CALM_INTERVALS: u32 = 60;
/// Of the packets for which there was room, so many are wanted next time.
const SPARE: f64 = 0.9;

/// The sender's decisions about the share of flows.
#[derive(Debug)]
pub(crate) struct Steering {
    share: u32,
    /// What the receiver has not confirmed yet.
    untold: Option<Sampling>,
    calm: u32,
}

impl Default for Steering {
    fn default() -> Self {
        Self { share: u32::MAX, untold: None, calm: 0 }
    }
}

impl Steering {
    /// An interval is over, of which so many packets found no room.
    pub(crate) const fn gathered(&mut self, refused: u64) {
        self.calm = if refused > 0 { 0 } else { self.calm.saturating_add(1) };
    }

    /// What the receiver is to be told.
    pub(crate) const fn untold(&self) -> Option<Sampling> {
        self.untold
    }

    /// The receiver has heard this.
    pub(crate) fn told(&mut self, sampling: Option<Sampling>) {
        self.untold = self.untold.filter(|untold| Some(*untold) != sampling);
    }

    /// What follows from what both ends saw of an interval; `last` is the last one that is over.
    pub(crate) fn steer(&mut self, ours: &Seen, theirs: &Seen, last: u64) -> Option<Sampling> {
        // Another share was already asked for, and has not come into effect.
        if self.untold.is_some() || ours.sampled != self.share {
            return None;
        }
        let room = |seen: &Seen| seen.packets as f64 / (seen.packets + seen.refused).max(1) as f64;
        let share = f64::from(self.share);
        let next = if ours.refused > 0 || theirs.refused > 0 {
            share * SPARE * room(ours).min(room(theirs))
        } else if self.calm > CALM_INTERVALS && self.share < u32::MAX {
            2.0 * share
        } else {
            return None;
        };
        self.calm = 0;
        // `as` saturates.
        self.share = next as u32;
        // Both ends can keep to it if the receiver hears of it within an interval.
        self.untold = Some(Sampling { from: last + 3, share: self.share });
        self.untold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(packets: u64, refused: u64, sampled: u32) -> Seen {
        Seen { packets, refused, sampled, ..Seen::default() }
    }

    #[test]
    fn the_end_with_less_room_decides_and_some_is_spared() {
        for (ours, theirs) in [((100, 0), (50, 50)), ((50, 50), (100, 0)), ((50, 50), (80, 20))] {
            let mut steering = Steering::default();
            let asked = steering.steer(&seen(ours.0, ours.1, u32::MAX), &seen(theirs.0, theirs.1, u32::MAX), 7);
            let Some(Sampling { from: 10, share }) = asked else { panic!("{asked:?}") };
            assert!((f64::from(share) / f64::from(u32::MAX) - 0.45).abs() < 1e-6, "{share}");
        }
    }

    #[test]
    fn nothing_is_asked_for_before_the_last_wish_was_heard_and_came_into_effect() {
        let mut steering = Steering::default();
        let (full, none) = (seen(50, 50, u32::MAX), seen(100, 0, u32::MAX));
        let asked = steering.steer(&full, &none, 7);
        assert!(asked.is_some() && steering.untold() == asked && steering.steer(&full, &none, 8).is_none());
        steering.told(None);
        steering.told(Some(Sampling { from: 1, share: 1 }));
        assert_eq!(steering.untold(), asked, "that was said before it was asked for");
        steering.told(asked);
        assert!(steering.untold().is_none() && steering.steer(&full, &none, 9).is_none(), "of the share before");
        let share = asked.map_or(0, |asked| asked.share);
        assert!(steering.steer(&seen(50, 50, share), &none, 10).is_some());
    }

    #[test]
    fn after_many_intervals_with_room_there_are_twice_as_many_flows_up_to_all() {
        let mut steering = Steering::default();
        let asked = steering.steer(&seen(60, 40, u32::MAX), &seen(100, 0, u32::MAX), 0);
        steering.told(asked);
        let mut share = asked.map_or(0, |asked| asked.share);
        let mut rises = Vec::new();
        for interval in 1..200 {
            steering.gathered(u64::from(interval == 30));
            let both = seen(100, 0, share);
            if let Some(asked) = steering.steer(&both, &both, interval) {
                rises.push((interval, f64::from(asked.share) / f64::from(share)));
                share = asked.share;
                steering.told(Some(asked));
            }
        }
        // Sixty after the one that had no room; 0.54 doubled is all.
        assert!(matches!(rises[..], [(91, rise)] if (rise - 1.0 / 0.54).abs() < 0.01), "{rises:?}");
    }
}
