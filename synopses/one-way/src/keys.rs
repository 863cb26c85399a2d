//! Rotation of digest keys. Both ends derive the next key from the plan without a message, so a leaked key is of use
//! for an hour and not for a year.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use synopses::digest::{Digest, DigestKey};
use wire::time::UnixNanos;

use crate::plan::Plan;

/// Domain separation from any other key that may be derived from the plan's key.
const PURPOSE: [u8; 8] = *b"packetid";

impl Plan {
    /// Number of key rotations before the interval. 0 if the plan does not rotate keys.
    #[must_use]
    pub const fn rotation_of(&self, interval: u64) -> u64 {
        match interval.checked_div(self.intervals_per_key) {
            Some(rotation) => rotation,
            None => 0,
        }
    }

    /// The first interval with the next key; `u64::MAX` if there is none.
    pub(crate) const fn end_of_rotation(&self, rotation: u64) -> u64 {
        if self.intervals_per_key == 0 {
            u64::MAX
        } else {
            (rotation.saturating_add(1)).saturating_mul(self.intervals_per_key)
        }
    }

    /// The digest key of a rotation: ChaCha20 with the plan's key and seed, and the rotation as nonce. Neither the
    /// plan's key nor the next one can be derived from it. A plan without rotation uses its own key.
    #[must_use]
    pub fn key_of(&self, rotation: u64) -> DigestKey {
        if self.intervals_per_key == 0 {
            return DigestKey::new(self.key);
        }
        let mut secret = [0; 32];
        secret[..16].copy_from_slice(&self.key.to_le_bytes());
        secret[16..24].copy_from_slice(&self.seed.to_le_bytes());
        secret[24..].copy_from_slice(&PURPOSE);
        let mut stream = ChaCha20Rng::from_seed(secret);
        stream.set_stream(rotation);
        DigestKey::new(u128::from(stream.next_u64()) | u128::from(stream.next_u64()) << 64)
    }
}

/// The current digest key and the next one.
#[derive(Debug)]
pub(crate) struct KeySchedule {
    rotation: u64,
    current: DigestKey,
    next: DigestKey,
    /// The first interval with the next key.
    next_from: u64,
    /// When that interval begins.
    pub(crate) next_begins: UnixNanos,
}

impl KeySchedule {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self::of(plan, 0)
    }

    fn of(plan: &Plan, rotation: u64) -> Self {
        let next_from = plan.end_of_rotation(rotation);
        let (current, next) = (plan.key_of(rotation), plan.key_of(rotation.saturating_add(1)));
        Self { rotation, current, next, next_from, next_begins: plan.begin_of(next_from) }
    }

    /// Advances to the key of `interval`. True if that is another key.
    pub(crate) fn advance(&mut self, plan: &Plan, interval: u64) -> bool {
        let rotation = plan.rotation_of(interval);
        if rotation == self.rotation {
            return false;
        }
        *self = Self::of(plan, rotation);
        true
    }

    /// The digest of a packet that passed at `at`.
    #[inline]
    pub(crate) fn digest_at(&self, at: UnixNanos, digest: impl Fn(&DigestKey) -> Digest) -> Digest {
        digest(if at < self.next_begins { &self.current } else { &self.next })
    }

    /// The current key and the next one.
    pub(crate) const fn keys(&self) -> [&DigestKey; 2] {
        [&self.current, &self.next]
    }

    /// Number of intervals from `interval` to the first one with the next key.
    pub(crate) const fn until_rotation(&self, interval: u64) -> u64 {
        self.next_from.saturating_sub(interval)
    }
}

#[cfg(test)]
mod tests {
    use wire::time::Nanos;

    use super::*;
    use crate::plan::Synopsis;

    fn plan(intervals_per_key: u64) -> Plan {
        let (begins, length) = (UnixNanos(1_000), Nanos::from_millis(10));
        Plan { begins, length, key: 7, seed: 9, synopsis: Synopsis::RDA, intervals_per_key, fingerprint: None }
    }

    fn digest(key: &DigestKey) -> u64 {
        key.digest(b"a packet").0
    }

    #[test]
    fn keys_are_the_same_on_every_machine_and_in_every_release() {
        // By an independent implementation of ChaCha20: key 07 00… (16 bytes), 09 00… (8), "packetid"; nonce 3, from
        // block 0.
        let (low, high) = (0xab20_3227_5fa2_24dd_u64, 0x5c99_a296_9b49_da14_u64);
        assert_eq!(digest(&plan(8).key_of(3)), digest(&DigestKey::new(u128::from(low) | u128::from(high) << 64)));
    }

    #[test]
    fn each_rotation_has_its_own_key_and_none_is_the_plans() {
        let digests: Vec<u64> = (0..50).map(|rotation| digest(&plan(8).key_of(rotation))).collect();
        let mut others = digests.clone();
        others.extend([digest(&DigestKey::new(7)), digest(&Plan { seed: 10, ..plan(8) }.key_of(0))]);
        others.extend([digest(&Plan { key: 8, ..plan(8) }.key_of(0))]);
        others.sort_unstable();
        others.dedup();
        assert_eq!(others.len(), digests.len() + 3);
        assert_eq!(digest(&plan(0).key_of(0)), digest(&DigestKey::new(7)), "one that does not rotate has the plan's");
    }

    #[test]
    fn a_packets_digest_is_by_the_key_of_its_own_time() {
        let plan = plan(8);
        let mut keys = KeySchedule::new(&plan);
        let of = |rotation| Digest(digest(&plan.key_of(rotation)));
        let at = |keys: &KeySchedule, now| keys.digest_at(now, |key| Digest(digest(key)));
        let rotation = plan.begin_of(8);
        assert_eq!([at(&keys, rotation.minus(Nanos(1))), at(&keys, rotation)], [of(0), of(1)]);
        assert_eq!((keys.until_rotation(3), keys.advance(&plan, 7), keys.advance(&plan, 8)), (5, false, true));
        assert_eq!([at(&keys, rotation), at(&keys, plan.begin_of(16))], [of(1), of(2)]);
        assert!(keys.advance(&plan, 80) && at(&keys, plan.begin_of(87)) == of(10), "after a jump of the clock");
    }
}
