//! Encoding of the sender's buckets. The receiver knows the settings: they are only compared, and bound the size.

use alloc::vec::Vec;

use super::aggregator::{Bucket, FineComb};
use super::settings::{Sampling, Settings};
use crate::digest::{Digest, Mixer};
use crate::encoding::{DecodeError, Kind, open, put_number, seal};

/// The most packets of an interval: far above any, and differences fit into signed numbers.
const MAX_PACKETS: u64 = 1 << 48;
const PACKETS: DecodeError = DecodeError::Field("a number of packets");
const COUNT: DecodeError = DecodeError::Field("a bank's count of packets");

impl FineComb {
    /// Encodes the buckets, about 20 bytes each. Instead of the seed it has 32 bits that detect another seed.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + 20 * self.buckets.len());
        put_settings(&mut out, &self.settings);
        put_number(&mut out, self.packets);
        for bucket in &self.buckets {
            put_number(&mut out, bucket.count);
            if bucket.count > 0 {
                out.extend(bucket.sum.to_le_bytes());
                out.extend(bucket.digest.to_le_bytes());
            }
        }
        seal(Kind::FineComb, &out)
    }

    /// Decodes the sender's buckets, which must have these settings.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Parameters`] if they have others, otherwise another [`DecodeError`] for invalid bytes.
    pub fn decode(bytes: &[u8], settings: &Settings) -> Result<Self, DecodeError> {
        let mut reader = open(Kind::FineComb, bytes)?;
        let mut ours = Vec::new();
        put_settings(&mut ours, settings);
        if !reader.skip(&ours) {
            return Err(DecodeError::Parameters);
        }
        let mut finecomb = Self::new(settings).map_err(|_| DecodeError::Parameters)?;
        finecomb.packets = reader.number()?;
        if finecomb.packets > MAX_PACKETS {
            return Err(PACKETS);
        }
        for bank in finecomb.buckets.chunks_mut(settings.buckets) {
            let mut left = finecomb.packets;
            for bucket in bank {
                let count = reader.number()?;
                left = left.checked_sub(count).ok_or(COUNT)?;
                if count > 0 {
                    *bucket = Bucket { count, sum: reader.word64()?, digest: reader.word64()? };
                }
            }
        }
        reader.end()?;
        Ok(finecomb)
    }

    /// The buckets of a data plane that did the same (`p4/`), bank after bank, of an interval with so many packets.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Parameters`] if the settings are invalid, [`DecodeError::Field`] if a number of packets is
    /// impossible, or the number of buckets is another one.
    pub fn of_buckets(settings: &Settings, packets: u64, buckets: &[Bucket]) -> Result<Self, DecodeError> {
        let mut finecomb = Self::new(settings).map_err(|_| DecodeError::Parameters)?;
        if packets > MAX_PACKETS {
            return Err(PACKETS);
        }
        if buckets.len() != finecomb.buckets.len() {
            return Err(DecodeError::Field("a number of buckets"));
        }
        for bank in buckets.chunks(settings.buckets) {
            let counted = bank.iter().fold(0, |sum: u64, bucket| sum.saturating_add(bucket.count));
            if counted > packets {
                return Err(COUNT);
            }
        }
        finecomb.packets = packets;
        finecomb.buckets.copy_from_slice(buckets);
        Ok(finecomb)
    }
}

fn put_settings(out: &mut Vec<u8>, settings: &Settings) {
    put_number(out, settings.buckets as u64);
    out.push(u8::from(settings.sampling == Sampling::Disjoint));
    put_number(out, settings.banks.len() as u64);
    for bank in &settings.banks {
        out.extend(bank.probability.to_le_bytes());
        put_number(out, bank.stash as u64);
        out.extend(bank.loss.to_le_bytes());
    }
    out.extend((Mixer::new(settings.seed, 8).mix(Digest(0)) as u32).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_survive_encoding_and_truncated_bytes_are_refused() {
        let settings = Settings { seed: 5, ..Settings::one_bank(32, 0.5, 3, 5) };
        let mut finecomb = FineComb::new(&settings).expect("possible");
        (0..40).for_each(|number| finecomb.insert(Digest(number), number << 50));
        let bytes = finecomb.encode();

        let again = FineComb::decode(&bytes, &settings).expect("what was encoded");
        assert_eq!((again.packets, &again.buckets), (finecomb.packets, &finecomb.buckets));
        for cut in 0..bytes.len() {
            assert!(FineComb::decode(&bytes[..cut], &settings).is_err());
        }
    }

    #[test]
    fn other_settings_and_impossible_counts_are_refused() {
        let settings = Settings::one_bank(2, 0.5, 3, 5);
        let bytes = FineComb::new(&settings).expect("possible").encode();
        for other in
            [Settings::one_bank(3, 0.5, 3, 5), Settings::one_bank(2, 0.25, 3, 5), Settings::one_bank(2, 0.5, 3, 6)]
        {
            assert_eq!(FineComb::decode(&bytes, &other).err(), Some(DecodeError::Parameters));
        }

        let mut payload = Vec::new();
        put_settings(&mut payload, &settings);
        payload.extend([3, 4]);
        payload.extend([0; 17]);
        let refused = FineComb::decode(&seal(Kind::FineComb, &payload), &settings).err();
        assert_eq!(refused, Some(COUNT));
    }

    #[test]
    fn buckets_of_a_data_plane_are_those_of_the_library_or_refused() {
        let settings = Settings::one_bank(32, 0.5, 3, 5);
        let mut finecomb = FineComb::new(&settings).expect("possible");
        (0..40).for_each(|number| finecomb.insert(Digest(number), number << 50));

        let loaded = FineComb::of_buckets(&settings, 40, &finecomb.buckets).expect("the same buckets");
        assert_eq!(loaded.encode(), finecomb.encode());
        let refused = |packets, buckets: &[Bucket]| FineComb::of_buckets(&settings, packets, buckets).err();
        assert_eq!(refused(3, &finecomb.buckets), Some(COUNT));
        assert_eq!(refused(1 << 49, &finecomb.buckets), Some(PACKETS));
        assert_eq!(refused(40, &finecomb.buckets[1..]), Some(DecodeError::Field("a number of buckets")));
        let none = Settings { buckets: 0, ..settings.clone() };
        assert_eq!(FineComb::of_buckets(&none, 0, &[]).err(), Some(DecodeError::Parameters));
    }
}
