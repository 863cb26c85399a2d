//! How a run begins: what is asked for, and what follows from the answer.

use super::{Flight, Phase, Sender, Told};
use crate::Effect;
use crate::clock::ClockOffset;
use crate::message::{Answer, Refusal, Say};
use crate::plan::{Plan, Synopsis};
use crate::steering::Steering;

/// A receiver whose clock is ahead by more is not followed.
const MOST_AHEAD_NS: u64 = 3_600_000_000_000;

impl Sender {
    /// What this end wants, to begin later than both clocks show.
    pub(super) fn plan(&self, now_ns: u64, random: &mut dyn FnMut() -> u64) -> Plan {
        // The same instants whoever begins.
        let length_ns = self.settings.length_ns.max(1);
        let soonest = now_ns.saturating_add(self.ahead_ns).saturating_add(self.settings.margin_ns);
        Plan {
            begins_ns: soonest.div_ceil(length_ns).saturating_mul(length_ns),
            length_ns,
            key: u128::from(random()) << 64 | u128::from(random()),
            seed: random(),
            synopsis: self.settings.synopsis.clone(),
            rotates: self.settings.rotates,
        }
    }

    /// What came of a start.
    pub(super) fn started(&mut self, answer: &Answer, clock: ClockOffset, now_ns: u64) {
        let Phase::Starting(plan) = &self.phase else { return };
        let flight = Flight { call: 0, interval: None, sent_ns: now_ns, told: Told::default() };
        self.ahead_ns = clock.ahead_ns.max(0).unsigned_abs().min(MOST_AHEAD_NS);
        match &answer.say {
            // One of an earlier release has one key for a run.
            Say::Started(0) if plan.rotates > 0 => {
                self.settings.rotates = 0;
                self.later(flight, now_ns, None);
            }
            Say::Started(rotates) if *rotates == plan.rotates && now_ns < plan.begins_ns => {
                let plan = plan.clone();
                self.effects.push_back(Effect::Gather(plan.clone()));
                self.phase = Phase::Running(plan);
                (self.pause_ns, self.last, self.steering) = (0, None, Steering::default());
                self.last_refusal = None;
            }
            // It took too long: at the next try there is more time.
            Say::Started(rotates) if *rotates == plan.rotates => self.later(flight, now_ns, None),
            Say::Refused(Refusal::TooLate) => self.later(flight, now_ns, None),
            Say::Refused(refusal) => {
                self.refused(refusal);
                self.later(flight, now_ns, None);
            }
            _ => {
                self.counts.broken += 1;
                self.later(flight, now_ns, None);
            }
        }
    }

    /// Why the receiver does not do what was asked: somebody is told, once, unless there is something else to try.
    pub(super) fn refused(&mut self, refusal: &Refusal) {
        let why = match refusal {
            // The receiver knows of a later run: this end's clock was ahead before it started anew.
            Refusal::Epoch(epoch) => {
                self.epoch = self.epoch.max(*epoch);
                return;
            }
            Refusal::Parameters { most_buckets: Some(most), .. } if self.fits(*most) => return,
            Refusal::Parameters { why, .. } | Refusal::Stream(why) | Refusal::Broken(why) => why.clone(),
            Refusal::TooLate => return,
        };
        if self.last_refusal.as_ref() != Some(&why) {
            self.effects.push_back(Effect::Refused(why.clone()));
            self.last_refusal = Some(why);
        }
    }

    /// Takes as many buckets as the receiver has room for, if that is fewer.
    const fn fits(&mut self, most: u64) -> bool {
        match &mut self.settings.synopsis {
            Synopsis::Comb { buckets, .. } if most > 0 && most < *buckets as u64 => {
                *buckets = most as usize;
                true
            }
            _ => false,
        }
    }
}
