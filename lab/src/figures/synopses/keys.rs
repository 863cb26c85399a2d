//! Keys of Zipf's law.

use synopses::digest::{Digest, DigestKey};

/// Number of different keys.
pub const KEYS: u32 = 100_000;

/// This many keys of Zipf's law with skew 1, by rank from 0. The same on every machine.
pub fn zipf(updates: u64) -> Vec<u32> {
    let sums: Vec<f64> = (1..=KEYS)
        .scan(0.0, |sum, rank| {
            *sum += 1.0 / f64::from(rank);
            Some(*sum)
        })
        .collect();
    let (all, random) = (sums.last().copied().unwrap_or_default(), DigestKey::new(1));
    // 53 random bits of a digest are a number from 0 to 1.
    let uniform = |number: u64| (random.digest(&number.to_le_bytes()).0 >> 11) as f64 / (1_u64 << 53) as f64;
    let rank = |at: f64| sums.partition_point(|below| *below <= at) as u32;
    (0..updates).map(|number| rank(uniform(number) * all).min(KEYS - 1)).collect()
}

/// The digest of the key of this rank.
pub fn digest(rank: u32) -> Digest {
    DigestKey::new(2).digest(&rank.to_le_bytes())
}

/// The digests of all keys, by rank.
pub fn digests() -> Vec<Digest> {
    (0..KEYS).map(digest).collect()
}

/// The digests of as many keys of Zipf's law.
pub fn zipf_digests(updates: u64) -> Vec<Digest> {
    let digests = digests();
    zipf(updates).into_iter().map(|rank| digests[rank as usize]).collect()
}
