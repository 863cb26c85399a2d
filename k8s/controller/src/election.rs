//! Which replica acts, by a Lease. Pure: the lease and the time come as arguments.
//!
//! Clocks of two machines are never compared: a lease has expired when nobody has changed it for as long as it says,
//! by the clock of who looks.

use core::time::Duration;

use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// How long a lease is good without a renewal.
pub(crate) const LEASE: Duration = Duration::from_secs(15);
/// Who has it acts for so long after a renewal: less, since a request that is on its way may come later.
pub(crate) const ACT: Duration = Duration::from_secs(10);

/// What is to be done about the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is none: make one.
    Create,
    /// Nobody has it any more: take it.
    Take,
    /// It is ours: renew it.
    Renew,
    /// Somebody else has it.
    Wait,
}

/// What was seen of the lease, and since when.
#[derive(Debug, Default)]
pub(crate) struct Sighting {
    seen: Option<(Option<String>, Option<MicroTime>)>,
    since: Duration,
}

impl Sighting {
    /// What `me` does about `lease`, which was read at `now`.
    pub(crate) fn step(&mut self, lease: Option<&LeaseSpec>, me: &str, now: Duration) -> Step {
        let Some(lease) = lease else { return Step::Create };
        let seen = Some((lease.holder_identity.clone(), lease.renew_time.clone()));
        if self.seen != seen {
            *self = Self { seen, since: now };
        }
        let length = lease.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let length = length.map_or(LEASE, Duration::from_secs);
        match lease.holder_identity.as_deref() {
            None | Some("") => Step::Take,
            Some(holder) if holder == me => Step::Renew,
            Some(_) if now >= self.since + length => Step::Take,
            Some(_) => Step::Wait,
        }
    }
}

/// The lease as `me` has it from `now` on, after `before`.
pub(crate) fn held(before: Option<&LeaseSpec>, me: &str, now: &MicroTime) -> LeaseSpec {
    let is_ours = before.is_some_and(|lease| lease.holder_identity.as_deref() == Some(me));
    let transitions =
        before.map_or(0, |lease| lease.lease_transitions.unwrap_or(0).saturating_add(i32::from(!is_ours)));
    let acquired = before.filter(|_| is_ours).and_then(|lease| lease.acquire_time.clone());
    LeaseSpec {
        holder_identity: Some(me.to_owned()),
        lease_duration_seconds: Some(LEASE.as_secs() as i32),
        acquire_time: Some(acquired.unwrap_or_else(|| now.clone())),
        renew_time: Some(now.clone()),
        lease_transitions: Some(transitions),
        ..before.cloned().unwrap_or_default()
    }
}

/// The lease when its holder leaves: the other replica need not wait.
pub(crate) fn released(before: &LeaseSpec) -> LeaseSpec {
    LeaseSpec { holder_identity: Some(String::new()), lease_duration_seconds: Some(1), ..before.clone() }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn at(seconds: i64) -> MicroTime {
        MicroTime(Timestamp::from_second(seconds).unwrap())
    }

    #[test]
    fn a_lease_is_taken_when_it_is_free_or_was_not_renewed_for_its_length() {
        let seconds = Duration::from_secs;
        let mut sighting = Sighting::default();
        assert_eq!(sighting.step(None, "b", seconds(0)), Step::Create);
        // Renewed in the far future, by a clock that is wrong.
        let first = held(None, "a", &at(1_000_000_000));
        assert_eq!(sighting.step(Some(&first), "b", seconds(100)), Step::Wait);
        let renewed = held(Some(&first), "a", &at(1_000_000_001));
        assert_eq!(sighting.step(Some(&renewed), "b", seconds(110)), Step::Wait);
        assert_eq!(sighting.step(Some(&renewed), "b", seconds(124)), Step::Wait);
        assert_eq!(sighting.step(Some(&renewed), "b", seconds(125)), Step::Take);
        assert_eq!(sighting.step(Some(&renewed), "a", seconds(500)), Step::Renew, "its own is never expired");
        assert_eq!(sighting.step(Some(&released(&renewed)), "b", seconds(501)), Step::Take);
    }

    #[test]
    fn transitions_are_counted_and_the_time_of_taking_stays() {
        let first = held(None, "a", &at(10));
        let renewed = held(Some(&first), "a", &at(12));
        let taken = held(Some(&renewed), "b", &at(40));

        assert_eq!(
            (renewed.acquire_time, renewed.renew_time, renewed.lease_transitions),
            (Some(at(10)), Some(at(12)), Some(0))
        );
        assert_eq!((taken.acquire_time, taken.lease_transitions), (Some(at(40)), Some(1)));
        assert_eq!(taken.holder_identity.as_deref(), Some("b"));
    }

    #[test]
    fn who_has_the_lease_stops_to_act_before_it_expires() {
        assert!(ACT + crate::calls::WITHIN <= LEASE);
    }
}
