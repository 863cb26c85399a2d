//! The order in which traces are evicted when memory is short: the same on every node, so that the surviving traces are
//! whole.

use crate::tracing::span::TraceId;
use crate::tracing::threshold::Randomness;

/// Secret from which the order is derived. All nodes of a cluster share it, services do not know it: with it, a client
/// could choose trace ids that are never evicted, or that all fall into one bucket.
#[derive(Clone, Copy)]
pub struct OrderKey(u64, u64);

impl core::fmt::Debug for OrderKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("OrderKey(…)")
    }
}

/// A trace's position in the order of eviction: the lowest is evicted first. Uniform over 64 bits, whatever the ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub(crate) u64);

impl Rank {
    /// The rank with this [`position`](Self::position).
    #[must_use]
    pub const fn at(position: u64) -> Self {
        Self(position)
    }

    /// The share of all traces that rank above.
    pub(crate) fn share_above(self) -> f64 {
        1.0 - self.0 as f64 / u64::MAX as f64
    }

    /// As a number: 0 is evicted first.
    #[must_use]
    pub const fn position(self) -> u64 {
        self.0
    }
}

impl OrderKey {
    /// The order of `secret`.
    #[must_use]
    pub const fn new(secret: u128) -> Self {
        Self((secret >> 64) as u64, secret as u64)
    }

    /// The rank of `trace`. A keyed mix, not a cryptographic one: services never see ranks. Nodes tell each other up to
    /// which rank they evicted.
    #[must_use]
    pub const fn rank(self, trace: TraceId) -> Rank {
        let (upper, lower) = trace.halves();
        Rank(mix(mix(mix(lower ^ self.0) ^ upper) ^ self.1))
    }

    /// By which consistent sampling decides about something without a trace id: a keyed mix of its `bytes`, the same on
    /// every node. O(bytes).
    #[must_use]
    pub fn randomness(self, bytes: &[u8]) -> Randomness {
        let (words, rest) = bytes.as_chunks();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let words = words.iter().copied().chain([last]).map(u64::from_le_bytes);
        let mixed = words.fold(mix(self.0 ^ bytes.len() as u64), |mixed, word| mix(mixed ^ word));
        Randomness::from_bits(mix(mixed ^ self.1))
    }
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection.
const fn mix(bits: u64) -> u64 {
    let bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(number: u64) -> TraceId {
        let mut bytes = [0; 16];
        bytes[8..].copy_from_slice(&number.to_be_bytes());
        TraceId::new(bytes).unwrap()
    }

    #[test]
    fn ids_that_count_upwards_are_spread_evenly() {
        let key = OrderKey::new(7);
        let mut counts = [0_u32; 64];

        (1..=64_000).for_each(|n| counts[(key.rank(counted(n)).0 >> 58) as usize] += 1);

        // 1,000 each, with a deviation of 31.
        assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
    }

    #[test]
    fn records_without_a_trace_are_spread_evenly_and_alike_on_all_nodes() {
        let half = crate::tracing::Threshold::keeping(0.5).unwrap();
        let key = OrderKey::new(7);
        let kept = |key: OrderKey, n: u32| half.keeps(key.randomness(format!("GET /{n} took {n} ms").as_bytes()));

        let count = (0..10_000).filter(|n| kept(key, *n)).count();

        assert!((4_750..5_250).contains(&count), "{count}");
        assert!((0..100).all(|n| kept(key, n) == kept(OrderKey::new(7), n)));
        assert!((0..100).any(|n| kept(key, n) != kept(OrderKey::new(8), n)));
        assert_ne!(key.randomness(b""), key.randomness(&[0]));
        assert_ne!(key.randomness(&[0; 8]), key.randomness(&[0; 9]));
    }

    #[test]
    fn another_key_is_another_order() {
        let (a, b) = (OrderKey::new(1), OrderKey::new(2));
        let pairs = (1..=1_000).map(|n| (counted(n), counted(n + 1)));

        let turned = pairs.filter(|&(x, y)| (a.rank(x) < a.rank(y)) != (b.rank(x) < b.rank(y))).count();

        assert!((350..650).contains(&turned), "{turned}");
        assert_eq!(a.rank(counted(5)), OrderKey::new(1).rank(counted(5)));
    }
}
