//! The buckets of one end for one interval.

use alloc::boxed::Box;
use alloc::vec;

use thiserror::Error;

use super::settings::{HashRange, Settings, SettingsError};
use crate::digest::{Digest, Mixer, place};

/// The packets of one row of one bank. 24 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Sum of their timestamps, modulo 2⁶⁴.
    pub sum: u64,
    /// Number of packets.
    pub count: u64,
    /// XOR of their digests.
    pub digest: u64,
}

impl Bucket {
    pub(super) const fn add(&mut self, time_ns: u64, digest: u64) {
        self.sum = self.sum.wrapping_add(time_ns);
        self.count = self.count.wrapping_add(1);
        self.digest ^= digest;
    }
}

/// Samples packets and assigns rows, in the same way at both ends.
#[derive(Clone, Debug)]
pub(super) struct Sampler {
    pub(super) shares: Box<[HashRange]>,
    buckets: u32,
    sample: Mixer,
    row: Mixer,
    digest: Mixer,
}

/// Row and XOR value of a sampled packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampledPacket {
    pub(super) row: u32,
    pub(super) digest: u64,
}

impl Sampler {
    pub(super) fn new(settings: &Settings) -> Result<Self, SettingsError> {
        settings.checked()?;
        Ok(Self {
            shares: settings.shares().into_boxed_slice(),
            buckets: settings.buckets as u32,
            sample: Mixer::new(settings.seed, 5),
            row: Mixer::new(settings.seed, 6),
            digest: Mixer::new(settings.seed, 7),
        })
    }

    /// The hash that [`HashRange::has`] tests.
    #[inline]
    pub(super) const fn hash(&self, digest: Digest) -> u64 {
        self.sample.mix(digest)
    }

    /// Row and XOR value of a packet, the same in every bank. Computed only for sampled packets, which most are not.
    #[inline]
    pub(super) const fn packet(&self, digest: Digest) -> SampledPacket {
        let row = place((self.row.mix(digest) >> 32) as u32, self.buckets);
        SampledPacket { row, digest: self.digest.mix(digest) }
    }
}

/// The buckets of one end of a stream for one interval. The sender's are sent to the receiver. Without digests in the
/// comparison ([`super::Rule::Lda`]) this is LDA.
#[derive(Clone, Debug)]
pub struct FineComb {
    pub(super) settings: Settings,
    pub(super) sampler: Sampler,
    /// Bank after bank.
    pub(super) buckets: Box<[Bucket]>,
    pub(super) packets: u64,
}

/// Numbers that follow from the settings, for a data plane that does the same (`p4/`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constants {
    /// The numbers that the seed became, from which sample, row and XOR value are derived.
    pub mixers: [u64; 3],
    /// The hashes that each bank samples: the first one, and how many follow it.
    pub samples: Box<[(u64, u64)]>,
}

/// Two instances with different settings.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("two ends or intervals with different settings cannot be combined")]
pub struct MergeError;

impl FineComb {
    /// Empty buckets.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if a setting is invalid.
    pub fn new(settings: &Settings) -> Result<Self, SettingsError> {
        let buckets = vec![Bucket::default(); settings.banks.len() * settings.buckets];
        let sampler = Sampler::new(settings)?;
        Ok(Self { settings: settings.clone(), sampler, buckets: buckets.into_boxed_slice(), packets: 0 })
    }

    /// Adds a packet with timestamp `now_ns`, of a clock that both ends share.
    #[inline]
    pub fn insert(&mut self, digest: Digest, now_ns: u64) {
        self.packets += 1;
        let hash = self.sampler.hash(digest);
        let mut sampled = None;
        for (bank, share) in self.sampler.shares.iter().enumerate() {
            if share.has(hash) {
                let packet = *sampled.get_or_insert_with(|| self.sampler.packet(digest));
                self.buckets[bank * self.settings.buckets + packet.row as usize].add(now_ns, packet.digest);
            }
        }
    }

    /// Adds another interval of the same end, or the buckets of another core.
    ///
    /// # Errors
    ///
    /// [`MergeError`] if its settings differ.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        if self.settings != other.settings {
            return Err(MergeError);
        }
        self.packets = self.packets.saturating_add(other.packets);
        for (bucket, more) in self.buckets.iter_mut().zip(&other.buckets) {
            bucket.sum = bucket.sum.wrapping_add(more.sum);
            bucket.count = bucket.count.saturating_add(more.count);
            bucket.digest ^= more.digest;
        }
        Ok(())
    }

    /// Empties all buckets, without freeing their memory.
    pub fn clear(&mut self) {
        self.packets = 0;
        self.buckets.fill(Bucket::default());
    }

    /// The settings, the same at both ends.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What a data plane needs beside the settings to do the same.
    #[must_use]
    pub fn constants(&self) -> Constants {
        let Sampler { shares, sample, row, digest, .. } = &self.sampler;
        Constants {
            mixers: [sample, row, digest].map(|mixer| mixer.constant()),
            samples: shares.iter().map(|share| share.ends()).collect(),
        }
    }

    /// Number of packets, sampled or not.
    #[must_use]
    pub const fn packets(&self) -> u64 {
        self.packets
    }

    /// Bytes of the buckets.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn memory_is_three_words_per_bucket() {
        let finecomb = FineComb::new(&Settings::one_bank(1_000, 1.0, 0, 0)).expect("possible");

        assert_eq!(finecomb.memory_bytes(), 24_000);
    }

    #[test]
    fn a_packet_is_in_each_bank_with_its_probability() {
        let bank = |probability| super::super::Bank { probability, stash: 0, loss: 0.0 };
        let banks = vec![bank(0.5), bank(0.125)];
        let settings = Settings { banks, ..Settings::one_bank(64, 1.0, 0, 9) };
        let mut finecomb = FineComb::new(&settings).expect("possible");
        (0..80_000).for_each(|number| finecomb.insert(Digest(number), number));

        let counts: alloc::vec::Vec<u64> =
            finecomb.buckets.chunks(64).map(|bank| bank.iter().map(|b| b.count).sum()).collect();

        assert!(counts[0].abs_diff(40_000) < 600 && counts[1].abs_diff(10_000) < 400, "{counts:?}");
        assert_eq!(finecomb.packets(), 80_000);
        // What the smaller bank samples, the larger one does too.
        assert!((0..64).all(|row| finecomb.buckets[64 + row].count <= finecomb.buckets[row].count));
    }

    proptest! {
        #[test]
        fn two_intervals_merged_are_one_long_one(packets in prop::collection::vec(any::<(u64, u64)>(), 0..100), at in 0_usize..100) {
            let settings = Settings::one_bank(8, 0.75, 0, 1);
            let fill = |packets: &[(u64, u64)]| {
                let mut finecomb = FineComb::new(&settings).expect("possible");
                for (digest, now) in packets {
                    finecomb.insert(Digest(*digest), *now);
                }
                finecomb
            };
            let (first, second) = packets.split_at(at.min(packets.len()));
            let (mut merged, all) = (fill(first), fill(&packets));
            merged.merge(&fill(second)).expect("one kind");

            prop_assert_eq!(&merged.buckets, &all.buckets);
            prop_assert_eq!(merged.packets, all.packets);
            prop_assert!(merged.merge(&FineComb::new(&Settings::one_bank(8, 0.75, 0, 2)).expect("possible")).is_err());
        }
    }
}
