//! Bytes of what the sender saw. The receiver knows the settings: they are only compared, and say how much there can be.

use alloc::vec::Vec;

use super::comb::{Bucket, Comb};
use super::settings::{Sampling, Settings};
use crate::digest::{Digest, Mixer};
use crate::encoding::{DecodeError, Kind, open, put_number, seal};

impl Comb {
    /// About 20 bytes for each bucket. The seed is not in it, only 32 bits by which another one is noticed.
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
        seal(Kind::Comb, &out)
    }

    /// What the sender encoded, which has to have these settings.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Parameters`] if it has others, otherwise what is wrong with the bytes.
    pub fn decode(bytes: &[u8], settings: &Settings) -> Result<Self, DecodeError> {
        let mut reader = open(Kind::Comb, bytes)?;
        let mut ours = Vec::new();
        put_settings(&mut ours, settings);
        if !reader.skip(&ours) {
            return Err(DecodeError::Parameters);
        }
        let mut comb = Self::new(settings).map_err(|_| DecodeError::Parameters)?;
        comb.packets = reader.number()?;
        // Differences are of signed numbers, and nobody sends more than that.
        if comb.packets > 1 << 48 {
            return Err(DecodeError::Field("a number of packets"));
        }
        for bank in comb.buckets.chunks_mut(settings.buckets) {
            let mut left = comb.packets;
            for bucket in bank {
                let count = reader.number()?;
                left = left.checked_sub(count).ok_or(DecodeError::Field("a bank of more packets than there were"))?;
                if count > 0 {
                    *bucket = Bucket { count, sum: reader.word64()?, digest: reader.word64()? };
                }
            }
        }
        reader.end()?;
        Ok(comb)
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
    fn what_the_sender_saw_comes_back_and_no_cut_of_it() {
        let settings = Settings { seed: 5, ..Settings::one_bank(32, 0.5, 3, 5) };
        let mut comb = Comb::new(&settings).expect("possible");
        (0..40).for_each(|number| comb.insert(Digest(number), number << 50));
        let bytes = comb.encode();

        let again = Comb::decode(&bytes, &settings).expect("what was encoded");
        assert_eq!((again.packets, &again.buckets), (comb.packets, &comb.buckets));
        for cut in 0..bytes.len() {
            assert!(Comb::decode(&bytes[..cut], &settings).is_err());
        }
    }

    #[test]
    fn other_settings_and_impossible_counts_are_refused() {
        let settings = Settings::one_bank(2, 0.5, 3, 5);
        let bytes = Comb::new(&settings).expect("possible").encode();
        for other in
            [Settings::one_bank(3, 0.5, 3, 5), Settings::one_bank(2, 0.25, 3, 5), Settings::one_bank(2, 0.5, 3, 6)]
        {
            assert_eq!(Comb::decode(&bytes, &other).err(), Some(DecodeError::Parameters));
        }

        let mut payload = Vec::new();
        put_settings(&mut payload, &settings);
        payload.extend([3, 4]);
        payload.extend([0; 17]);
        let refused = Comb::decode(&seal(Kind::Comb, &payload), &settings).err();
        assert_eq!(refused, Some(DecodeError::Field("a bank of more packets than there were")));
    }
}
