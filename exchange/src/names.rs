//! With which keys packets are named: another one every so many intervals of a run, which both ends derive without a message, so that a key that
//! somebody has found out is of use for an hour and not for a year.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use synopses::digest::{Digest, DigestKey};

use crate::plan::Plan;

/// What a derived key is for, so that nothing else that may ever be derived from a plan's key is the same.
const PURPOSE: [u8; 8] = *b"packetid";

impl Plan {
    /// How many turns of the key have come before the interval.
    #[must_use]
    pub const fn rotation_of(&self, interval: u64) -> u64 {
        match interval.checked_div(self.rotates) {
            Some(rotation) => rotation,
            None => 0,
        }
    }

    /// The first interval with the next key; `u64::MAX` if there is none.
    pub(crate) const fn turn_after(&self, rotation: u64) -> u64 {
        if self.rotates == 0 { u64::MAX } else { (rotation.saturating_add(1)).saturating_mul(self.rotates) }
    }

    /// With which packets of a rotation are named. ChaCha20 with the plan's key and seed, the rotation being its nonce: who has one key can derive neither
    /// the plan's nor the next. That of a plan which does not rotate is the plan's own.
    #[must_use]
    pub fn key_of(&self, rotation: u64) -> DigestKey {
        if self.rotates == 0 {
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

/// The key of the interval that ends next, and the one after.
#[derive(Debug)]
pub(crate) struct Names {
    rotation: u64,
    now: DigestKey,
    then: DigestKey,
    /// The first interval that has the second one.
    turn: u64,
    /// When it begins.
    pub(crate) turns_ns: u64,
}

impl Names {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self::of(plan, 0)
    }

    fn of(plan: &Plan, rotation: u64) -> Self {
        let turn = plan.turn_after(rotation);
        let (now, then) = (plan.key_of(rotation), plan.key_of(rotation.saturating_add(1)));
        Self { rotation, now, then, turn, turns_ns: plan.begin_of(turn) }
    }

    /// `next` is the interval that ends next. Whether its key is another one than before.
    pub(crate) fn go_on(&mut self, plan: &Plan, next: u64) -> bool {
        let rotation = plan.rotation_of(next);
        if rotation == self.rotation {
            return false;
        }
        *self = Self::of(plan, rotation);
        true
    }

    /// The name of a packet that passed at `now_ns`.
    #[inline]
    pub(crate) fn at(&self, now_ns: u64, name: impl Fn(&DigestKey) -> Digest) -> Digest {
        name(if now_ns < self.turns_ns { &self.now } else { &self.then })
    }

    /// The key of the interval that ends next, and the next key.
    pub(crate) const fn keys(&self) -> [&DigestKey; 2] {
        [&self.now, &self.then]
    }

    /// Intervals from this one to the first with another key.
    pub(crate) const fn until_turn(&self, next: u64) -> u64 {
        self.turn.saturating_sub(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Synopsis;

    fn plan(rotates: u64) -> Plan {
        Plan { begins_ns: 1_000, length_ns: 10_000_000, key: 7, seed: 9, synopsis: Synopsis::RDA, rotates }
    }

    fn name(key: &DigestKey) -> u64 {
        key.digest(b"a packet").0
    }

    #[test]
    fn keys_are_the_same_on_every_machine_and_in_every_release() {
        // By an independent implementation of ChaCha20: key 07 00… (16 bytes), 09 00… (8), "packetid"; nonce 3, from block 0.
        let (low, high) = (0xab20_3227_5fa2_24dd_u64, 0x5c99_a296_9b49_da14_u64);
        assert_eq!(name(&plan(8).key_of(3)), name(&DigestKey::new(u128::from(low) | u128::from(high) << 64)));
    }

    #[test]
    fn each_rotation_has_its_own_key_and_none_is_the_plans() {
        let names: Vec<u64> = (0..50).map(|rotation| name(&plan(8).key_of(rotation))).collect();
        let mut others = names.clone();
        others.extend([name(&DigestKey::new(7)), name(&Plan { seed: 10, ..plan(8) }.key_of(0))]);
        others.extend([name(&Plan { key: 8, ..plan(8) }.key_of(0))]);
        others.sort_unstable();
        others.dedup();
        assert_eq!(others.len(), names.len() + 3);
        assert_eq!(name(&plan(0).key_of(0)), name(&DigestKey::new(7)), "one that does not rotate has the plan's");
    }

    #[test]
    fn a_packet_is_named_by_its_own_time() {
        let plan = plan(8);
        let mut names = Names::new(&plan);
        let of = |rotation| Digest(name(&plan.key_of(rotation)));
        let at = |names: &Names, now_ns| names.at(now_ns, |key| Digest(name(key)));
        let turn = plan.begin_of(8);
        assert_eq!([at(&names, turn - 1), at(&names, turn)], [of(0), of(1)]);
        assert_eq!((names.until_turn(3), names.go_on(&plan, 7), names.go_on(&plan, 8)), (5, false, true));
        assert_eq!([at(&names, turn), at(&names, plan.begin_of(16))], [of(1), of(2)]);
        assert!(names.go_on(&plan, 80) && at(&names, plan.begin_of(87)) == of(10), "after a leap");
    }
}
