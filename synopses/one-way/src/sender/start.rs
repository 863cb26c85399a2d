//! Start of a run: the plan that is requested, the outcome of the response, another start after a step of the clock.

use wire::time::{Nanos, UnixNanos};

use super::{Phase, Sender};
use crate::Effect;
use crate::clock::ClockOffset;
use crate::message::{Refusal, Response, ResponseBody};
use crate::plan::{Plan, Synopsis};
use crate::sampling_controller::SamplingController;

/// Maximum clock offset of the receiver that a start time makes up for: by as much as that a run begins later.
const MAX_AHEAD: Nanos = Nanos::from_secs(60);

impl Sender {
    /// Begins another run if this end's clock was set back by more than an interval: the intervals of this one lie in
    /// the future, and none would end until the clock has caught up.
    pub(super) fn follow_clock(&mut self, now: UnixNanos) {
        if now.plus(self.settings.length) < self.latest {
            self.latest = now;
            self.restart(now);
        }
        self.latest = self.latest.max(now);
    }

    /// The plan to request. Its start lies in the future on both clocks.
    pub(super) fn plan(&self, now: UnixNanos, random: &mut dyn FnMut() -> u64) -> Plan {
        // Multiples of the length, so that all runs have the same interval boundaries.
        let length = self.settings.length.max(Nanos(1));
        let fingerprint = self.settings.fingerprint;
        let soonest = now.plus(self.ahead).plus(self.settings.start_margin);
        Plan {
            begins: UnixNanos(soonest.0.div_ceil(length.0).saturating_mul(length.0)),
            length,
            // Switches have one of their own.
            key: if fingerprint.is_some() { 0 } else { u128::from(random()) << 64 | u128::from(random()) },
            seed: random(),
            synopsis: self.settings.synopsis.clone(),
            intervals_per_key: self.settings.intervals_per_key,
            fingerprint,
        }
    }

    /// Acts on the response to a start.
    pub(super) fn started(&mut self, response: &Response, clock: ClockOffset, now: UnixNanos) {
        let Phase::Starting(plan) = &self.phase else { return };
        let ahead = Nanos(clock.ahead_ns.max(0).unsigned_abs());
        let is_far = ahead > MAX_AHEAD;
        self.ahead = if is_far { Nanos::ZERO } else { ahead };
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
            ResponseBody::Refused(Refusal::TooLate) => {
                if is_far {
                    self.tell(format!("its clock is more than {} s ahead", MAX_AHEAD.0 / 1_000_000_000));
                }
                self.retry(None, now, None);
            }
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
        self.tell(why);
    }

    /// Reports once why no run can be started.
    fn tell(&mut self, why: String) {
        if self.last_refusal.as_ref() != Some(&why) {
            self.effects.push_back(Effect::Refused(why.clone()));
            self.last_refusal = Some(why);
        }
    }

    /// Reduces the buckets to the receiver's memory budget. False if that is no reduction.
    const fn reduce_buckets(&mut self, most: u64) -> bool {
        // A switch has as many as it was compiled with.
        if self.settings.fingerprint.is_some() {
            return false;
        }
        match &mut self.settings.synopsis {
            Synopsis::FineComb { buckets, .. } if most > 0 && most < *buckets as u64 => {
                *buckets = most as usize;
                true
            }
            _ => false,
        }
    }
}
