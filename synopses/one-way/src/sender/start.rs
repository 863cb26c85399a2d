//! Start of a run: the plan that is requested, and the outcome of the response.

use wire::time::{Nanos, UnixNanos};

use super::{Phase, Sender};
use crate::Effect;
use crate::clock::ClockOffset;
use crate::message::{Refusal, Response, ResponseBody};
use crate::plan::{Plan, Synopsis};
use crate::sampling_controller::SamplingController;

/// Maximum clock offset of the receiver that a start time makes up for: one hour.
const MAX_AHEAD: Nanos = Nanos::from_secs(3600);

impl Sender {
    /// The plan to request. Its start lies in the future on both clocks.
    pub(super) fn plan(&self, now: UnixNanos, random: &mut dyn FnMut() -> u64) -> Plan {
        // Multiples of the length, so that all runs have the same interval boundaries.
        let length = self.settings.length.max(Nanos(1));
        let soonest = now.plus(self.ahead).plus(self.settings.start_margin);
        Plan {
            begins: UnixNanos(soonest.0.div_ceil(length.0).saturating_mul(length.0)),
            length,
            key: u128::from(random()) << 64 | u128::from(random()),
            seed: random(),
            synopsis: self.settings.synopsis.clone(),
            intervals_per_key: self.settings.intervals_per_key,
        }
    }

    /// Acts on the response to a start.
    pub(super) fn started(&mut self, response: &Response, clock: ClockOffset, now: UnixNanos) {
        let Phase::Starting(plan) = &self.phase else { return };
        self.ahead = Nanos(clock.ahead_ns.max(0).unsigned_abs()).min(MAX_AHEAD);
        match &response.body {
            // A receiver of an earlier release cannot rotate keys.
            ResponseBody::Started(0) if plan.intervals_per_key > 0 => {
                self.settings.intervals_per_key = 0;
                self.retry(None, now, None);
            }
            ResponseBody::Started(intervals_per_key)
                if *intervals_per_key == plan.intervals_per_key && now < plan.begins =>
            {
                let plan = plan.clone();
                self.effects.push_back(Effect::Collect(plan.clone()));
                self.phase = Phase::Running(plan);
                (self.failures, self.last, self.sampling) = (0, None, SamplingController::default());
                self.last_refusal = None;
            }
            // The response came too late. The next attempt starts later.
            ResponseBody::Started(intervals_per_key) if *intervals_per_key == plan.intervals_per_key => {
                self.retry(None, now, None);
            }
            ResponseBody::Refused(Refusal::TooLate) => self.retry(None, now, None),
            ResponseBody::Refused(refusal) => {
                self.refused(refusal);
                self.retry(None, now, None);
            }
            _ => {
                self.counts.invalid += 1;
                self.retry(None, now, None);
            }
        }
    }

    /// Acts on a refusal: adapts the next attempt if possible, or reports the reason once.
    pub(super) fn refused(&mut self, refusal: &Refusal) {
        let why = match refusal {
            // The receiver has seen a later epoch: this end's clock was ahead before it restarted.
            Refusal::Epoch(epoch) => {
                self.epoch = self.epoch.max(*epoch);
                return;
            }
            Refusal::Parameters { most_buckets: Some(most), .. } if self.reduce_buckets(*most) => return,
            Refusal::Parameters { why, .. } | Refusal::UnknownStream(why) | Refusal::Invalid(why) => why.clone(),
            Refusal::TooLate => return,
        };
        if self.last_refusal.as_ref() != Some(&why) {
            self.effects.push_back(Effect::Refused(why.clone()));
            self.last_refusal = Some(why);
        }
    }

    /// Reduces the buckets to the receiver's memory budget. False if that is no reduction.
    const fn reduce_buckets(&mut self, most: u64) -> bool {
        match &mut self.settings.synopsis {
            Synopsis::FineComb { buckets, .. } if most > 0 && most < *buckets as u64 => {
                *buckets = most as usize;
                true
            }
            _ => false,
        }
    }
}
