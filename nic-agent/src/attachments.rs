//! Which regions the reader has to know, which of them it does, and when to try again.

use std::collections::BTreeMap;

use wire::control::RegionSpec;
use wire::id::{Incarnation, RegionId};
use wire::layout::RegionSize;
use wire::time::Nanos;

use crate::backoff::{Backoff, Seeds};
use crate::claims::{Claims, RegionLimits, RegionsError};
use crate::queue_pair::QueuePairEffect;
use crate::settings::Fetching;

/// A region that the reader shall attach. What came of it is told to [`Worker::attached`](crate::Worker::attached).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachRequest {
    /// The run of the host agent that named the region.
    pub host: Incarnation,
    /// The region.
    pub region: RegionId,
    /// Its size.
    pub size: RegionSize,
    /// The address for RDMA; 0 without.
    pub address: u64,
    /// The remote key for RDMA; 0 without.
    pub rkey: u32,
}

/// What the runner shall do for a worker, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the worker counts on it"]
pub enum Effect {
    /// Fetch like this from now on. No region is attached.
    Use(Fetching),
    /// Let the reader attach a region.
    Attach(AttachRequest),
    /// Let the reader forget a region.
    Detach(RegionId),
    /// Reset or connect the queue pair.
    QueuePair(QueuePairEffect),
    /// Close the control connection, tell [`Worker::disconnected`](crate::Worker::disconnected), and come back after a pause.
    Disconnect {
        /// Why, for the log.
        reason: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asked,
    Attached,
    Failed { again: Nanos },
}

#[derive(Debug)]
struct Attachment {
    users: usize,
    request: AttachRequest,
    state: State,
    backoff: Backoff,
}

/// All regions in use.
#[derive(Debug)]
pub(crate) struct Attachments {
    regions: BTreeMap<RegionId, Attachment>,
    claims: Claims,
    effects: Vec<Effect>,
    pause: (Nanos, Nanos),
    next_try: Nanos,
}

impl Attachments {
    pub(crate) fn new(pause: (Nanos, Nanos), limits: RegionLimits) -> Self {
        let claims = Claims::new(limits);
        Self { regions: BTreeMap::new(), claims, effects: Vec::new(), pause, next_try: Nanos::NEVER }
    }

    /// Whether the regions of one LMAP can be taken, beside those in use but not `replaced`.
    ///
    /// # Errors
    ///
    /// [`RegionsError`].
    pub(crate) fn check<'a>(
        &self,
        specs: impl Iterator<Item = &'a RegionSpec>,
        replaced: impl Iterator<Item = &'a RegionSpec>,
    ) -> Result<(), RegionsError> {
        self.claims.check(specs, replaced)
    }

    /// One more user of a region of `host`. Returns whether it is attached.
    pub(crate) fn acquire(&mut self, host: Incarnation, spec: &RegionSpec) -> bool {
        let request = AttachRequest { host, region: spec.id, size: spec.size, address: spec.address, rkey: spec.rkey };
        if let Some(known) = self.regions.get_mut(&spec.id) {
            known.users += 1;
            self.claims.free(spec.id, known.request.address);
            self.claims.add(spec);
            if known.request != request {
                (known.request, known.state) = (request, State::Asked);
                self.effects.extend([Effect::Detach(spec.id), Effect::Attach(request)]);
            }
            return known.state == State::Attached;
        }
        self.claims.add(spec);
        let backoff = Backoff::new(self.pause.0, self.pause.1);
        self.regions.insert(spec.id, Attachment { users: 1, request, state: State::Asked, backoff });
        self.effects.push(Effect::Attach(request));
        false
    }

    /// One user less of a region that was acquired as `spec`. The last one lets it go.
    pub(crate) fn release(&mut self, spec: &RegionSpec) {
        let Some(known) = self.regions.get_mut(&spec.id) else { return };
        self.claims.remove(spec);
        known.users -= 1;
        if known.users == 0 {
            self.claims.free(spec.id, known.request.address);
            self.regions.remove(&spec.id);
            self.effects.push(Effect::Detach(spec.id));
        }
    }

    /// The right to read a region is gone. It is left alone until its configuration changes, or the longest pause is over: each try with a
    /// right that is none costs all other regions a tick.
    pub(crate) fn revoked(&mut self, now: Nanos, region: RegionId, seeds: &mut Seeds) {
        let Some(known) = self.regions.get_mut(&region).filter(|known| known.state == State::Attached) else { return };
        let again = now.plus(Backoff::new(self.pause.1, self.pause.1).pause(seeds.draw()));
        known.state = State::Failed { again };
        self.next_try = self.next_try.min(again);
        self.effects.push(Effect::Detach(region));
    }

    /// Whether the outcome of `request` is still waited for.
    pub(crate) fn expects(&self, request: &AttachRequest) -> bool {
        self.regions.get(&request.region).is_some_and(|known| known.request == *request && known.state == State::Asked)
    }

    /// What came of a request. False if nobody waits for it.
    pub(crate) fn reported(&mut self, now: Nanos, region: RegionId, attached: bool, seeds: &mut Seeds) -> bool {
        let Some(known) = self.regions.get_mut(&region).filter(|known| known.state == State::Asked) else {
            return false;
        };
        if attached {
            known.state = State::Attached;
            known.backoff.reset();
        } else {
            let again = now.plus(known.backoff.pause(seeds.draw()));
            known.state = State::Failed { again };
            self.next_try = self.next_try.min(again);
        }
        true
    }

    /// Asks again for what failed long enough ago.
    pub(crate) fn poll(&mut self, now: Nanos) {
        if now < self.next_try {
            return;
        }
        self.next_try = Nanos::NEVER;
        for known in self.regions.values_mut() {
            match known.state {
                State::Failed { again } if again <= now => {
                    known.state = State::Asked;
                    self.effects.push(Effect::Attach(known.request));
                }
                State::Failed { again } => self.next_try = self.next_try.min(again),
                State::Asked | State::Attached => {}
            }
        }
    }

    /// When [`Attachments::poll`] has something to do.
    pub(crate) fn next(&self) -> Nanos {
        self.next_try
    }

    /// Something that the runner shall do after what it was told before.
    pub(crate) fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        core::mem::take(&mut self.effects)
    }

    /// How many regions are attached, and how many are in use.
    pub(crate) fn count(&self) -> (usize, usize) {
        (self.regions.values().filter(|known| known.state == State::Attached).count(), self.regions.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Incarnation = Incarnation(1);

    fn region(id: u64) -> RegionSpec {
        RegionSpec { id: RegionId(id), size: RegionSize::ONE_PAGE, heartbeat: true, address: 0, rkey: 0 }
    }

    fn attachments() -> (Attachments, Seeds) {
        let limits = RegionLimits { regions: 10, bytes: 1 << 20 };
        (Attachments::new((Nanos::from_millis(100), Nanos::from_secs(10)), limits), Seeds::new(1))
    }

    #[test]
    fn a_region_is_attached_once_and_detached_after_its_last_user() {
        let (mut attachments, mut seeds) = attachments();

        assert!(!attachments.acquire(HOST, &region(1)));
        assert!(matches!(attachments.take_effects()[..], [Effect::Attach(_)]));
        assert!(attachments.reported(Nanos::ZERO, RegionId(1), true, &mut seeds));
        assert!(attachments.acquire(HOST, &region(1)));
        attachments.release(&region(1));
        assert!(attachments.take_effects().is_empty());

        attachments.release(&region(1));

        assert_eq!(attachments.take_effects(), [Effect::Detach(RegionId(1))]);
        assert_eq!(attachments.count(), (0, 0));
    }

    #[test]
    fn a_region_that_cannot_be_attached_is_asked_for_again_later() {
        let (mut attachments, mut seeds) = attachments();
        attachments.acquire(HOST, &region(1));
        let asked = attachments.take_effects();

        assert!(attachments.reported(Nanos::ZERO, RegionId(1), false, &mut seeds));
        attachments.poll(Nanos::from_millis(49));
        assert!(attachments.take_effects().is_empty());
        assert!(attachments.next() <= Nanos::from_millis(100));
        attachments.poll(Nanos::from_millis(100));

        assert_eq!(attachments.take_effects(), asked);
        assert_eq!(attachments.next(), Nanos::NEVER);
    }

    #[test]
    fn a_revoked_region_is_left_alone_for_long_or_until_it_is_configured_anew() {
        let (mut attachments, mut seeds) = attachments();
        attachments.acquire(HOST, &region(1));
        attachments.reported(Nanos::ZERO, RegionId(1), true, &mut seeds);
        attachments.take_effects();

        attachments.revoked(Nanos::ZERO, RegionId(1), &mut seeds);
        attachments.revoked(Nanos::ZERO, RegionId(1), &mut seeds);

        assert_eq!(attachments.take_effects(), [Effect::Detach(RegionId(1))]);
        let again = attachments.next();
        assert!(Nanos::from_secs(5) <= again && again <= Nanos::from_secs(10), "{again}");
        attachments.poll(again);
        assert!(matches!(attachments.take_effects()[..], [Effect::Attach(_)]));
        attachments.reported(again, RegionId(1), true, &mut seeds);
        attachments.revoked(again, RegionId(1), &mut seeds);
        attachments.take_effects();
        let anew = RegionSpec { rkey: 5, ..region(1) };
        assert!(!attachments.acquire(HOST, &anew));
        assert!(matches!(attachments.take_effects()[..], [Effect::Detach(_), Effect::Attach(_)]));
    }

    #[test]
    fn another_runs_region_of_the_same_number_is_another_region() {
        let (mut attachments, mut seeds) = attachments();
        attachments.acquire(HOST, &region(1));
        let Some(Effect::Attach(old)) = attachments.take_effects().pop() else { panic!("nothing was asked for") };
        attachments.reported(Nanos::ZERO, RegionId(1), true, &mut seeds);

        assert!(!attachments.acquire(Incarnation(2), &region(1)));

        let effects = attachments.take_effects();
        assert!(matches!(
            effects[..],
            [Effect::Detach(RegionId(1)), Effect::Attach(AttachRequest { host: Incarnation(2), .. })]
        ));
        assert!(!attachments.expects(&old));
    }
}
