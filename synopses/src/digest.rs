//! Digest of a packet: 64 bits, computed once and used by every synopsis.
//!
//! The hash is XXH3 with a secret derived from the key. It is specified, the same on every machine, and not linear over
//! XOR, so that the XOR of many digests identifies the set of packets (with CRC, H3, Toeplitz or Rabin, XORs of
//! different sets would coincide). It is not a message authentication code: a secret key prevents crafted collisions,
//! and should change with each generation of a synopsis.
//!
//! A pipeline of hardware has no products of 64 bits. For programs that run there ([`DigestKind::Hardware`]) there is a
//! second digest, of CRCs, additions and a key: what it guarantees is in `digest/hardware.rs`. Both are not linear. A
//! bare CRC cannot be asked for.

use twox_hash::XxHash3_64;

mod hardware;

/// Length of a secret in bytes, XXH3's default.
const SECRET: usize = 192;
/// Distance of successive seeds: 2⁶⁴ divided by the golden ratio.
const APART: u64 = 0x9e37_79b9_7f4a_7c15;

/// In the upper half of a seed: values are derived from digests as a pipeline of hardware does it. Of other seeds one
/// in 2³² is taken for such a one, at all ends alike.
const HARDWARE: u32 = 0x7069_7065;

/// What digests, and values that are derived from them, are made of. It belongs to a key, and to a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestKind {
    /// XXH3-64, and products of 64 bits.
    Products,
    /// CRC-32 and additions of 32 bits: for one end in a pipeline of hardware, so for the other one too. A processor
    /// takes longer for it.
    Hardware,
}

impl DigestKind {
    /// The seed that the settings of a synopsis have, so that its values are derived in this way. For hardware it is 32
    /// bits that depend on `seed`, behind a mark.
    #[must_use]
    pub const fn seed(self, seed: u64) -> u64 {
        match self {
            Self::Products => seed,
            Self::Hardware => (HARDWARE as u64) << 32 | finalise(seed) >> 32,
        }
    }

    /// How a synopsis with this seed derives values.
    #[must_use]
    pub const fn of_seed(seed: u64) -> Self {
        if (seed >> 32) as u32 == HARDWARE { Self::Hardware } else { Self::Products }
    }
}

/// 64 bits that identify a packet, or a request and its response. Two packets share a digest with probability 2⁻⁶⁴.
///
/// Synopses need pseudo-random bits: use a [`DigestKey`] for anything that is not hashed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub u64);

/// Secret key of digests. Both points need the same key to compare digests.
#[derive(Clone)]
pub struct DigestKey {
    secret: [u8; SECRET],
    kind: DigestKind,
}

impl DigestKey {
    /// Derives the key from 128 secret bits. Digests are XXH3-64.
    #[must_use]
    pub fn new(secret_bits: u128) -> Self {
        Self::of_kind(DigestKind::Products, secret_bits)
    }

    /// Derives the key of such digests from 128 secret bits.
    #[must_use]
    pub fn of_kind(kind: DigestKind, secret_bits: u128) -> Self {
        let (low, high) = (secret_bits as u64, (secret_bits >> 64) as u64);
        let mut secret = [0; SECRET];
        for (place, word) in (1_u64..).zip(secret.as_chunks_mut::<8>().0) {
            let step = place.wrapping_mul(APART);
            *word = finalise(finalise(low.wrapping_add(step)) ^ high.wrapping_add(step.rotate_left(32))).to_le_bytes();
        }
        Self { secret, kind }
    }

    /// What its digests are.
    #[must_use]
    pub const fn kind(&self) -> DigestKind {
        self.kind
    }

    /// The digest of `bytes`: those parts of a packet that do not change on its path.
    #[must_use]
    pub fn digest(&self, bytes: &[u8]) -> Digest {
        if self.kind == DigestKind::Hardware {
            return Digest(hardware::digest(&self.secret_words(), bytes));
        }
        Digest(XxHash3_64::oneshot_with_secret(&self.secret, bytes).expect("192 bytes are a secret, 136 are enough"))
    }

    /// The secret as little-endian numbers, for a data plane that computes the same digests (`p4/`). Whoever has it can
    /// craft collisions.
    #[must_use]
    pub fn secret_words(&self) -> [u64; SECRET / 8] {
        let mut words = [0; SECRET / 8];
        for (word, bytes) in words.iter_mut().zip(self.secret.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        words
    }
}

impl core::fmt::Debug for DigestKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("DigestKey(secret)")
    }
}

/// Derives values from a digest, independent for each seed and purpose. A bijection of 64 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mixer {
    constant: u64,
    kind: DigestKind,
}

impl Mixer {
    pub(crate) const fn new(seed: u64, purpose: u64) -> Self {
        let constant = finalise(finalise(seed.wrapping_add(APART)) ^ purpose.wrapping_mul(APART));
        Self { constant, kind: DigestKind::of_seed(seed) }
    }

    /// What a digest is combined with before it is mixed.
    pub(crate) const fn constant(self) -> u64 {
        self.constant
    }

    #[inline]
    pub(crate) const fn mix(self, digest: Digest) -> u64 {
        match self.kind {
            DigestKind::Products => finalise(digest.0 ^ self.constant),
            DigestKind::Hardware => hardware::mix(digest.0, self.constant),
        }
    }

    /// Likewise of a number that is no digest: a counter, an address. Most of its bits may be those of its neighbours.
    #[inline]
    pub(crate) const fn mix_number(self, number: u64) -> u64 {
        match self.kind {
            DigestKind::Products => finalise(number ^ self.constant),
            DigestKind::Hardware => hardware::mix_number(number, self.constant),
        }
    }

    /// A 32-bit fingerprint that costs one multiplication: the product's upper half, which depends on every bit of the
    /// digest. For hardware it is one round.
    #[inline]
    pub(crate) const fn fingerprint(self, digest: Digest) -> u32 {
        match self.kind {
            DigestKind::Products => ((digest.0 ^ self.constant.rotate_left(32)).wrapping_mul(APART) >> 32) as u32,
            DigestKind::Hardware => hardware::fingerprint(digest.0, self.constant),
        }
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014): bijective,
/// not linear.
pub(crate) const fn finalise(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// An index below `size`, uniform to 2⁻³²: the upper half of a product instead of a remainder.
pub(crate) const fn place(random: u32, size: u32) -> u32 {
    ((random as u64 * size as u64) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use std::collections::BTreeSet;

    #[test]
    fn a_digest_depends_on_every_bit_of_key_and_packet() {
        let packet = [7_u8; 96];
        let mut digests = BTreeSet::from([DigestKey::new(1).digest(&packet)]);
        for bit in 1..128 {
            digests.insert(DigestKey::new(1 | 1 << bit).digest(&packet));
        }
        for bit in 0..96 * 8 {
            let mut other = packet;
            other[bit / 8] ^= 1 << (bit % 8);
            digests.insert(DigestKey::new(1).digest(&other));
        }

        assert_eq!(digests.len(), 1 + 127 + 96 * 8);
    }

    #[test]
    fn digests_of_consecutive_numbers_do_not_cancel() {
        let key = DigestKey::new(3);
        let digest = |number: u64| key.digest(&number.to_le_bytes()).0;

        // For a linear hash, 4 ⊕ 5 = 8 ⊕ 9 would make these equal.
        assert_ne!(digest(4) ^ digest(5), digest(8) ^ digest(9));
        assert_eq!(digest(4), DigestKey::new(3).digest(&4_u64.to_le_bytes()).0);
    }

    #[test]
    fn whoever_has_the_words_of_the_secret_computes_the_same_digests() {
        let key = DigestKey::new(11);
        let secret: alloc::vec::Vec<u8> = key.secret_words().into_iter().flat_map(u64::to_le_bytes).collect();

        let digest = XxHash3_64::oneshot_with_secret(&secret, b"a packet").expect("192 bytes");
        assert_eq!(key.digest(b"a packet"), Digest(digest));
    }

    #[test]
    fn a_key_does_not_show_its_secret() {
        assert_eq!(format!("{:?}", DigestKey::new(9)), "DigestKey(secret)");
    }

    #[test]
    fn places_and_fingerprints_are_spread_evenly() {
        let (mixer, mut places, mut prints) = (Mixer::new(1, 2), [0_u32; 10], [0_u32; 16]);
        for number in 0..160_000 {
            places[place((mixer.mix(Digest(number)) >> 32) as u32, 10) as usize] += 1;
            prints[(mixer.fingerprint(Digest(number << 40)) >> 28) as usize] += 1;
        }

        assert!(places.iter().all(|count| count.abs_diff(16_000) < 600), "{places:?}");
        assert!(prints.iter().all(|count| count.abs_diff(10_000) < 500), "{prints:?}");
    }
}
