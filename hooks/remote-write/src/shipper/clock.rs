//! What a step of the wall clock does to samples, in numbers.

use hooks::sampling::{SampleLossReason, Series as Resolution};
use wire::time::{Nanos, UnixNanos};

use super::{RESOLUTIONS, Shipper};
use crate::feed::MAX_AHEAD;
use crate::series::ServiceNumber;

/// The wall clock was set back, and has not yet reached the times of samples that were sent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockBehind {
    /// Until it has reached them.
    pub remaining: Nanos,
    /// Samples since then that were not sent, or that the receiver refused.
    pub lost: u64,
}

/// The last step back.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockStep {
    /// The latest time that was sent.
    until: UnixNanos,
    /// Losses before it.
    lost: u64,
}

impl Shipper {
    /// What a clock that was set back costs, at the wall-clock time `now`; `None` if it was not, or is over.
    #[must_use]
    pub fn clock_behind(&self, now: UnixNanos) -> Option<ClockBehind> {
        let step = self.clock_step.filter(|step| step.until > now)?;
        Some(ClockBehind { remaining: step.until.since(now), lost: self.lost_by_time().saturating_sub(step.lost) })
    }

    /// Follows the wall clock before something of `service` is handled.
    pub(super) fn follow_clock(&mut self, service: ServiceNumber, wall: UnixNanos) {
        let Some(entry) = self.feeds.get_mut(&service) else { return };
        if let Some(until) = entry.feed.follow_clock(wall) {
            self.ends.retain(|_, end| *end <= wall.plus(MAX_AHEAD));
            self.note_step(until, 0);
        }
    }

    /// A row of `service` with `lost` samples was lost for its time. If what was sent before is later than `wall`, the
    /// clock was set back.
    pub(super) fn note_loss(&mut self, service: ServiceNumber, wall: UnixNanos, lost: u64) {
        let last_ms = self.feeds.get(&service).map_or(0, |entry| entry.feed.last_ms());
        let last = UnixNanos(last_ms.saturating_mul(1_000_000));
        if last > wall {
            self.note_step(last, lost);
        }
    }

    /// The clock was set back from `until`; `lost` samples were lost since.
    fn note_step(&mut self, until: UnixNanos, lost: u64) {
        match &mut self.clock_step {
            Some(step) if step.until >= until => {}
            Some(step) => step.until = until,
            None => self.clock_step = Some(ClockStep { until, lost: self.lost_by_time().saturating_sub(lost) }),
        }
    }

    /// Forgets a step that is over, so that the next one counts its own losses.
    pub(super) fn forget_step(&mut self, wall: UnixNanos) {
        self.clock_step = self.clock_step.filter(|step| step.until > wall);
    }

    /// Samples lost for their time, or refused.
    fn lost_by_time(&self) -> u64 {
        let lost = |series: Resolution| {
            let totals = self.totals(series);
            [SampleLossReason::OutOfOrder, SampleLossReason::Refused]
                .map(|why| totals.lost[why as usize])
                .iter()
                .sum::<u64>()
        };
        RESOLUTIONS.into_iter().map(lost).sum()
    }
}
