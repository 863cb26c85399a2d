//! The regions that the reader has to attach: which are attached, and when to try again.

use std::collections::BTreeMap;

use wire::backoff::{Backoff, Pauses};
use wire::id::{Incarnation, RegionId};
use wire::layout::RegionSize;
use wire::proto::control::SetStreams;
use wire::time::Nanos;

use crate::queue_pair::QueuePairEffect;
use crate::region_claim::RegionClaim;
use crate::region_limits::{RegionLimits, RegionUsage, RegionsError};
use crate::seeds::Seeds;
use crate::settings::Fetching;

/// A request to attach a region. Report its outcome to [`Worker::attached`](crate::Worker::attached).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachRequest {
    /// The run of the host agent that named the region.
    pub host: Incarnation,
    /// The region to attach.
    pub region: RegionId,
    /// Size of the region.
    pub size: RegionSize,
    /// Address for RDMA; 0 without.
    pub address: u64,
    /// Remote key for RDMA; 0 without.
    pub rkey: u32,
}

/// What the runner has to do for a worker, in order.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "the worker counts on it"]
pub enum Effect {
    /// Use this transport from now on. No region is attached yet.
    Use(Fetching),
    /// Let the reader attach a region.
    Attach(AttachRequest),
    /// Let the reader detach a region.
    Detach(RegionId),
    /// Reset or connect the queue pair.
    QueuePair(QueuePairEffect),
    /// Measure these streams of packets beside those of the configuration, and no others. Report what came of it to
    /// [`Worker::streams_changed`](crate::Worker::streams_changed).
    SetStreams(SetStreams),
    /// Close the control connection, call [`Worker::disconnected`](crate::Worker::disconnected), and reconnect after a
    /// pause.
    Disconnect {
        /// The reason, for the log.
        reason: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Requested,
    Attached,
    Failed { again: Nanos },
}

#[derive(Debug)]
struct Attachment {
    users: usize,
    request: AttachRequest,
    state: State,
    backoff: Backoff,
    /// Whether an attempt has failed, which the host agent was told.
    has_failed: bool,
}

/// All regions in use.
#[derive(Debug)]
pub(crate) struct Attachments {
    regions: BTreeMap<RegionId, Attachment>,
    usage: RegionUsage,
    effects: Vec<Effect>,
    pause: (Nanos, Nanos),
    next_try: Nanos,
}

impl Attachments {
    pub(crate) fn new(pause: (Nanos, Nanos), limits: RegionLimits) -> Self {
        let usage = RegionUsage::new(limits);
        Self { regions: BTreeMap::new(), usage, effects: Vec::new(), pause, next_try: Nanos::NEVER }
    }

    /// Checks whether the regions of one LMAP fit into the limits, next to those in use and without those `replaced`.
    ///
    /// # Errors
    ///
    /// [`RegionsError`] if they do not.
    pub(crate) fn check<'a>(
        &self,
        claims: impl Iterator<Item = &'a RegionClaim>,
        replaced: impl Iterator<Item = &'a RegionClaim>,
    ) -> Result<(), RegionsError> {
        self.usage.check(claims, replaced)
    }

    /// Adds a user of a region of `host`. Returns whether it is attached.
    pub(crate) fn acquire(&mut self, host: Incarnation, claim: &RegionClaim) -> bool {
        let spec = &claim.spec;
        let request = AttachRequest { host, region: spec.id, size: spec.size, address: spec.address, rkey: spec.rkey };
        if let Some(attachment) = self.regions.get_mut(&spec.id) {
            attachment.users += 1;
            self.usage.free(spec.id, attachment.request.address);
            self.usage.add(claim);
            if attachment.request != request {
                (attachment.request, attachment.state) = (request, State::Requested);
                attachment.has_failed = false;
                self.effects.extend([Effect::Detach(spec.id), Effect::Attach(request)]);
            }
            return attachment.state == State::Attached;
        }
        self.usage.add(claim);
        let backoff = Backoff::new(self.pause.0, self.pause.1);
        self.regions
            .insert(spec.id, Attachment { users: 1, request, state: State::Requested, backoff, has_failed: false });
        self.effects.push(Effect::Attach(request));
        false
    }

    /// Removes a user of a region that was acquired as `claim`. The last one detaches it.
    pub(crate) fn release(&mut self, claim: &RegionClaim) {
        let spec = &claim.spec;
        let Some(attachment) = self.regions.get_mut(&spec.id) else { return };
        self.usage.remove(claim);
        attachment.users -= 1;
        if attachment.users == 0 {
            self.usage.free(spec.id, attachment.request.address);
            self.regions.remove(&spec.id);
            self.effects.push(Effect::Detach(spec.id));
        }
    }

    /// The key of a region was revoked. The region is not read again until its configuration changes or the longest
    /// pause is over: each READ with a revoked key costs all other regions a tick.
    pub(crate) fn revoked(&mut self, now: Nanos, region: RegionId, seeds: &mut Seeds) {
        let Some(attachment) = self.regions.get_mut(&region).filter(|attachment| attachment.state == State::Attached)
        else {
            return;
        };
        let again = now.plus(Pauses::new(self.pause.1, self.pause.1).after(1, seeds.fraction()));
        attachment.state = State::Failed { again };
        self.next_try = self.next_try.min(again);
        self.effects.push(Effect::Detach(region));
    }

    /// The service has punched a hole into a region. It is not read again until its configuration changes, which needs
    /// another region.
    pub(crate) fn punched(&mut self, region: RegionId) {
        if let Some(attachment) = self.regions.get_mut(&region).filter(|known| known.state == State::Attached) {
            attachment.state = State::Failed { again: Nanos::NEVER };
            self.effects.push(Effect::Detach(region));
        }
    }

    /// Whether the outcome of `request` is still expected.
    pub(crate) fn expects(&self, request: &AttachRequest) -> bool {
        self.regions
            .get(&request.region)
            .is_some_and(|attachment| attachment.request == *request && attachment.state == State::Requested)
    }

    /// Takes the outcome of a request. Returns false if it is not expected.
    pub(crate) fn completed(&mut self, now: Nanos, region: RegionId, attached: bool, seeds: &mut Seeds) -> bool {
        let Some(attachment) = self.regions.get_mut(&region).filter(|attachment| attachment.state == State::Requested)
        else {
            return false;
        };
        attachment.has_failed = !attached;
        if attached {
            attachment.state = State::Attached;
            attachment.backoff.reset();
        } else {
            let again = now.plus(attachment.backoff.pause(seeds.fraction()));
            attachment.state = State::Failed { again };
            self.next_try = self.next_try.min(again);
        }
        true
    }

    /// Tries again to attach regions whose pause is over.
    pub(crate) fn poll(&mut self, now: Nanos) {
        if now < self.next_try {
            return;
        }
        self.next_try = Nanos::NEVER;
        for attachment in self.regions.values_mut() {
            match attachment.state {
                State::Failed { again } if again <= now => {
                    attachment.state = State::Requested;
                    self.effects.push(Effect::Attach(attachment.request));
                }
                State::Failed { again } => self.next_try = self.next_try.min(again),
                State::Requested | State::Attached => {}
            }
        }
    }

    /// The time of the next [`Attachments::poll`] that does something.
    pub(crate) fn next(&self) -> Nanos {
        self.next_try
    }

    /// Appends an effect.
    pub(crate) fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        core::mem::take(&mut self.effects)
    }

    /// The number of regions of which neither success nor failure is known yet.
    pub(crate) fn pending(&self) -> usize {
        let is_pending = |attachment: &&Attachment| attachment.state == State::Requested && !attachment.has_failed;
        self.regions.values().filter(is_pending).count()
    }

    /// The numbers of attached regions and of regions in use.
    pub(crate) fn count(&self) -> (usize, usize) {
        (self.regions.values().filter(|attachment| attachment.state == State::Attached).count(), self.regions.len())
    }
}

#[cfg(test)]
mod tests {
    use wire::control::RegionSpec;
    use wire::id::Owner;

    use super::*;

    const HOST: Incarnation = Incarnation(1);

    fn region(id: u64) -> RegionClaim {
        let spec = RegionSpec {
            id: RegionId(id),
            size: RegionSize::ONE_PAGE,
            heartbeat: true,
            address: 0,
            rkey: 0,
            sample_times: false,
        };
        RegionClaim { spec, owner: Owner::Agent, bytes: 4096 }
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
        assert!(attachments.completed(Nanos::ZERO, RegionId(1), true, &mut seeds));
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

        assert!(attachments.completed(Nanos::ZERO, RegionId(1), false, &mut seeds));
        attachments.poll(Nanos::from_millis(49));
        assert!(attachments.take_effects().is_empty());
        assert!(attachments.next() <= Nanos::from_millis(100));
        attachments.poll(Nanos::from_millis(100));

        assert_eq!(attachments.take_effects(), asked);
        assert_eq!(attachments.next(), Nanos::NEVER);
    }

    #[test]
    fn a_region_is_pending_until_its_first_outcome() {
        let (mut attachments, mut seeds) = attachments();
        attachments.acquire(HOST, &region(1));
        assert_eq!(attachments.pending(), 1);

        attachments.completed(Nanos::ZERO, RegionId(1), false, &mut seeds);
        assert_eq!(attachments.pending(), 0);
        attachments.poll(Nanos::from_secs(10));
        assert_eq!(attachments.pending(), 0, "it was reported, and is tried again");
        attachments.acquire(Incarnation(2), &region(1));
        assert_eq!(attachments.pending(), 1, "it is another one");
    }

    #[test]
    fn a_revoked_region_is_left_alone_for_long_or_until_it_is_configured_anew() {
        let (mut attachments, mut seeds) = attachments();
        attachments.acquire(HOST, &region(1));
        attachments.completed(Nanos::ZERO, RegionId(1), true, &mut seeds);
        attachments.take_effects();

        attachments.revoked(Nanos::ZERO, RegionId(1), &mut seeds);
        attachments.revoked(Nanos::ZERO, RegionId(1), &mut seeds);

        assert_eq!(attachments.take_effects(), [Effect::Detach(RegionId(1))]);
        let again = attachments.next();
        assert!(Nanos::from_secs(5) <= again && again <= Nanos::from_secs(10), "{again}");
        attachments.poll(again);
        assert!(matches!(attachments.take_effects()[..], [Effect::Attach(_)]));
        attachments.completed(again, RegionId(1), true, &mut seeds);
        attachments.revoked(again, RegionId(1), &mut seeds);
        attachments.take_effects();
        let anew = RegionClaim { spec: RegionSpec { rkey: 5, ..region(1).spec }, ..region(1) };
        assert!(!attachments.acquire(HOST, &anew));
        assert!(matches!(attachments.take_effects()[..], [Effect::Detach(_), Effect::Attach(_)]));
    }

    #[test]
    fn a_punched_region_is_left_alone_until_it_is_another_one() {
        let (mut attachments, mut seeds) = attachments();
        attachments.acquire(HOST, &region(1));
        attachments.completed(Nanos::ZERO, RegionId(1), true, &mut seeds);
        attachments.take_effects();

        attachments.punched(RegionId(1));
        attachments.punched(RegionId(1));
        attachments.poll(Nanos::from_secs(1_000_000));

        assert_eq!((attachments.take_effects(), attachments.next()), (vec![Effect::Detach(RegionId(1))], Nanos::NEVER));
        assert!(!attachments.acquire(HOST, &region(1)), "the same configuration again");
        assert!(attachments.take_effects().is_empty());
    }

    #[test]
    fn another_runs_region_of_the_same_number_is_another_region() {
        let (mut attachments, mut seeds) = attachments();
        attachments.acquire(HOST, &region(1));
        let Some(Effect::Attach(old)) = attachments.take_effects().pop() else { panic!("nothing was asked for") };
        attachments.completed(Nanos::ZERO, RegionId(1), true, &mut seeds);

        assert!(!attachments.acquire(Incarnation(2), &region(1)));

        let effects = attachments.take_effects();
        assert!(matches!(
            effects[..],
            [Effect::Detach(RegionId(1)), Effect::Attach(AttachRequest { host: Incarnation(2), .. })]
        ));
        assert!(!attachments.expects(&old));
    }
}
