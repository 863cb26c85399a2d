//! Encoding of fridges and histograms. Empty slots and buckets are left out.

use alloc::vec::Vec;

use super::combination::MAX_FRIDGES;
use super::distribution::Sums;
use super::histogram::{Histogram, HistogramShape, WEIGHTS};
use super::multi::{FridgeSpec, Fridges, PendingRequest, Settings as FridgesSettings, Stamp};
use super::settings::{Coin, Counter, Duplicates, Settings};
use super::single::Fridge;
use super::slot::Slot;
use super::tally::Tally;
use crate::encoding::{DecodeError, Kind, Reader, open, put_number, seal};

/// Tolerance for rounding: Σ w² is at most (Σ w)².
const ROUNDING: f64 = 1.0 + 1e-9;

impl Fridge {
    /// Encodes the whole fridge, with 12 to 16 bytes for each pending request. Contains the seed: keep it secret if
    /// packets may be crafted.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_number(&mut out, self.settings.slots as u64);
        out.extend(self.settings.probability.to_le_bytes());
        out.extend([self.settings.counter as u8, duplicates_code(self.settings.duplicates), self.settings.coin as u8]);
        out.push(self.settings.tick_shift as u8);
        for word in [self.settings.seed, self.insertions, self.coins] {
            out.extend(word.to_le_bytes());
        }
        put_tally(&mut out, self.tally);
        let pending = self.slots.iter().enumerate().filter(|(_, slot)| slot.print != 0);
        put_number(&mut out, pending.clone().count() as u64);
        let mut next = 0;
        for (place, slot) in pending {
            put_number(&mut out, (place - next) as u64);
            for word in [slot.print, slot.tick, slot.stamp] {
                out.extend(word.to_le_bytes());
            }
            next = place + 1;
        }
        seal(Kind::Fridge, &out)
    }

    /// Decodes a fridge of at most `most_slots` slots, a bound for its memory.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are invalid.
    pub fn decode(bytes: &[u8], most_slots: usize) -> Result<Self, DecodeError> {
        let mut reader = open(Kind::Fridge, bytes)?;
        let settings = Settings {
            slots: reader.size(most_slots, "slots")?,
            probability: reader.amount("a probability")?,
            counter: match reader.byte()? {
                0 => Counter::Accepted,
                1 => Counter::Arrivals,
                _ => return Err(DecodeError::Field("a counter")),
            },
            duplicates: duplicates(reader.byte()?)?,
            coin: match reader.byte()? {
                0 => Coin::HashSplit,
                1 => Coin::Random,
                _ => return Err(DecodeError::Field("a coin")),
            },
            tick_shift: u32::from(reader.byte()?),
            seed: reader.word64()?,
        };
        let mut fridge = Self::new(settings).map_err(|_| DecodeError::Field("a fridge's settings"))?;
        fridge.insertions = reader.word64()?;
        fridge.coins = reader.word64()?;
        // Counts go on from here.
        if fridge.insertions.max(fridge.coins) > 1 << 62 {
            return Err(DecodeError::Field("a counter"));
        }
        fridge.tally = tally(&mut reader)?;
        let mut last = None;
        for _ in 0..reader.size(settings.slots, "pending requests")? {
            let place = reader.place(last, settings.slots)?;
            let [print, tick, stamp] = [reader.word32()?, reader.word32()?, reader.word32()?];
            if print == 0 {
                return Err(DecodeError::Field("a fingerprint"));
            }
            fridge.slots[place] = Slot { print, tick, stamp };
            last = Some(place);
        }
        reader.end()?;
        Ok(fridge)
    }
}

impl Fridges {
    /// Encodes all fridges, with pending requests and the seed.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_number(&mut out, self.settings.fridges.len() as u64);
        for spec in &self.settings.fridges {
            put_number(&mut out, spec.slots as u64);
            out.extend(spec.probability.to_le_bytes());
        }
        out.extend([self.settings.stamp as u8, duplicates_code(self.settings.duplicates)]);
        out.push(self.settings.tick_shift as u8);
        out.extend(self.settings.seed.to_le_bytes());
        out.extend(self.counters.iter().flat_map(|counter| counter.to_le_bytes()));
        put_tally(&mut out, self.tally);
        let pending = self.pending.iter().enumerate().filter(|(_, request)| request.print != 0);
        put_number(&mut out, pending.clone().count() as u64);
        let mut next = 0;
        for (place, request) in pending {
            put_number(&mut out, (place - next) as u64);
            out.extend(request.print.to_le_bytes());
            out.extend(request.tick.to_le_bytes());
            let stamps = self.stamps.iter().skip(place * self.counters.len()).take(self.counters.len());
            out.extend(stamps.flat_map(|stamp| stamp.to_le_bytes()));
            next = place + 1;
        }
        seal(Kind::Fridges, &out)
    }

    /// Decodes fridges of at most `most_slots` slots in all.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are invalid.
    pub fn decode(bytes: &[u8], most_slots: usize) -> Result<Self, DecodeError> {
        let mut reader = open(Kind::Fridges, bytes)?;
        let mut specs = Vec::new();
        let mut left = most_slots;
        for _ in 0..reader.size(MAX_FRIDGES, "fridges")? {
            let slots = reader.size(left, "slots")?;
            left -= slots;
            specs.push(FridgeSpec { slots, probability: reader.amount("a probability")? });
        }
        let stamp = match reader.byte()? {
            0 => Stamp::Arrivals,
            1 => Stamp::Accepted,
            _ => return Err(DecodeError::Field("a stamp")),
        };
        let duplicates = duplicates(reader.byte()?)?;
        let tick_shift = u32::from(reader.byte()?);
        let settings = FridgesSettings { fridges: specs, stamp, duplicates, tick_shift, seed: reader.word64()? };
        let mut fridges = Self::new(settings).map_err(|_| DecodeError::Field("the fridges' settings"))?;
        for counter in &mut fridges.counters {
            *counter = reader.word32()?;
        }
        fridges.tally = tally(&mut reader)?;
        let (slots, counters) = (fridges.pending.len(), fridges.counters.len());
        let mut last = None;
        for _ in 0..reader.size(slots, "pending requests")? {
            let place = reader.place(last, slots)?;
            let [print, tick] = [reader.word32()?, reader.word32()?];
            if print == 0 {
                return Err(DecodeError::Field("a fingerprint"));
            }
            fridges.pending[place] = PendingRequest { print, tick };
            for stamp in fridges.stamps.iter_mut().skip(place * counters).take(counters) {
                *stamp = reader.word32()?;
            }
            last = Some(place);
        }
        reader.end()?;
        Ok(fridges)
    }
}

impl Histogram {
    /// Encodes the histogram, about 18 bytes for each bucket that is not empty.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::from([self.shape.tick_shift as u8, self.shape.fineness as u8]);
        put_number(&mut out, self.samples);
        let filled = self.buckets.iter().enumerate().filter(|(_, sums)| sums.weight > 0.0);
        put_number(&mut out, filled.clone().count() as u64);
        let mut next = 0;
        for (place, sums) in filled {
            put_number(&mut out, (place - next) as u64);
            out.extend(sums.weight.to_le_bytes());
            out.extend(sums.squares.to_le_bytes());
            next = place + 1;
        }
        seal(Kind::Histogram, &out)
    }

    /// Decodes a histogram of at most 32 KiB.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are invalid.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = open(Kind::Histogram, bytes)?;
        let [tick_shift, fineness] = reader.array::<2>()?.map(u32::from);
        let shape = HistogramShape { tick_shift, fineness };
        let mut histogram = Self::new(shape).map_err(|_| DecodeError::Field("a histogram's shape"))?;
        histogram.samples = reader.number()?;
        let buckets = histogram.buckets.len();
        let filled = reader.size(buckets, "buckets")?;
        if filled as u64 > histogram.samples {
            return Err(DecodeError::Field("a number of samples"));
        }
        let mut last = None;
        for _ in 0..filled {
            let place = reader.place(last, buckets)?;
            let sums = Sums { weight: reader.amount("a weight")?, squares: reader.amount("a sum of squares")? };
            if !(WEIGHTS.contains(&sums.weight)
                && sums.squares > 0.0
                && sums.squares <= sums.weight * sums.weight * ROUNDING)
            {
                return Err(DecodeError::Field("a sum of squares"));
            }
            histogram.buckets[place] = sums;
            last = Some(place);
        }
        reader.end()?;
        Ok(histogram)
    }
}

const fn duplicates_code(duplicates: Duplicates) -> u8 {
    duplicates as u8
}

fn duplicates(code: u8) -> Result<Duplicates, DecodeError> {
    match code {
        0 => Ok(Duplicates::Overwrite),
        1 => Ok(Duplicates::KeepFirst),
        2 => Ok(Duplicates::Discard),
        _ => Err(DecodeError::Field("the handling of duplicates")),
    }
}

fn put_tally(out: &mut Vec<u8>, mut tally: Tally) {
    tally.words().into_iter().for_each(|word| put_number(out, *word));
}

fn tally(reader: &mut Reader<'_>) -> Result<Tally, DecodeError> {
    let mut tally = Tally::default();
    for word in tally.words() {
        *word = reader.number()?;
        if *word > 1 << 62 {
            return Err(DecodeError::Field("a count"));
        }
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;
    use crate::fridge::Sample;

    fn used_fridge(settings: Settings) -> Fridge {
        let mut fridge = Fridge::new(settings).expect("possible");
        for number in 0..500 {
            fridge.insert(Digest(number), number << 10);
            let _ = fridge.match_response(Digest(number / 2), number << 10);
        }
        fridge
    }

    fn used_fridges(stamp: Stamp) -> Fridges {
        let specs =
            Vec::from([FridgeSpec { slots: 64, probability: 0.5 }, FridgeSpec { slots: 32, probability: 0.25 }]);
        let mut fridges =
            Fridges::new(FridgesSettings { fridges: specs, stamp, ..FridgesSettings::default() }).expect("possible");
        for number in 0..500 {
            fridges.insert(Digest(number), number << 10);
            let _ = fridges.match_response(Digest(number / 2), number << 10);
        }
        fridges
    }

    #[test]
    fn a_decoded_fridge_continues_like_the_original() {
        for coin in [Coin::HashSplit, Coin::Random] {
            let duplicates = Duplicates::Discard;
            let settings = Settings { slots: 64, probability: 0.5, coin, duplicates, ..Settings::default() };
            let mut fridge = used_fridge(settings);
            let mut again = Fridge::decode(&fridge.encode(), 64).expect("what was encoded");

            assert_eq!((again.settings, again.tally, &again.slots), (fridge.settings, fridge.tally, &fridge.slots));
            for number in 250..1_000 {
                again.insert(Digest(number), number << 10);
                fridge.insert(Digest(number), number << 10);
                assert_eq!(
                    again.match_response(Digest(number - 9), number << 10),
                    fridge.match_response(Digest(number - 9), number << 10)
                );
            }
            assert_eq!(again.tally, fridge.tally);
        }
    }

    #[test]
    fn decoded_fridges_continue_like_the_original() {
        for stamp in [Stamp::Arrivals, Stamp::Accepted] {
            let mut fridges = used_fridges(stamp);
            let mut again = Fridges::decode(&fridges.encode(), 96).expect("what was encoded");

            assert_eq!((&again.settings, again.tally), (&fridges.settings, fridges.tally));
            for number in 250..1_000 {
                again.insert(Digest(number), number << 10);
                fridges.insert(Digest(number), number << 10);
                assert_eq!(
                    again.match_response(Digest(number - 9), number << 10),
                    fridges.match_response(Digest(number - 9), number << 10)
                );
            }
            assert_eq!(again.tally, fridges.tally);
        }
    }

    #[test]
    fn a_histogram_survives_encoding() {
        let mut histogram = Histogram::new(HistogramShape::default()).expect("possible");
        (1..200_u32).for_each(|n| histogram.insert(Sample { delay_ns: 1 << (n % 40), weight: f64::from(n) + 0.1 }));

        assert_eq!(Histogram::decode(&histogram.encode()), Ok(histogram));
    }

    #[test]
    fn truncated_bytes_are_refused() {
        let settings = Settings { slots: 64, ..Settings::default() };
        let (fridge, fridges) = (used_fridge(settings).encode(), used_fridges(Stamp::Accepted).encode());
        for cut in 0..fridge.len() {
            assert!(Fridge::decode(&fridge[..cut], 64).is_err());
        }
        for cut in 0..fridges.len() {
            assert!(Fridges::decode(&fridges[..cut], 96).is_err());
        }
    }

    #[test]
    fn few_bytes_cannot_exceed_the_memory_limit() {
        let large = Fridge::new(Settings { slots: 1 << 20, ..Settings::default() }).expect("possible").encode();
        let several = used_fridges(Stamp::Arrivals).encode();

        assert!(large.len() < 100);
        let refused = DecodeError::TooLarge { what: "slots", found: 1 << 20, most: 1 << 10 };
        assert_eq!(Fridge::decode(&large, 1 << 10).err(), Some(refused));
        assert_eq!(
            Fridges::decode(&several, 95).err(),
            Some(DecodeError::TooLarge { what: "slots", found: 32, most: 31 })
        );
    }

    #[test]
    fn impossible_values_are_refused_even_with_a_good_checksum() {
        let histogram = |weight: f64, squares: f64, samples: u8, place: u8| {
            let mut payload = Vec::from([10, 3, samples, 1, place]);
            payload.extend(weight.to_le_bytes());
            payload.extend(squares.to_le_bytes());
            Histogram::decode(&seal(Kind::Histogram, &payload))
        };

        assert!(histogram(2.0, 4.0, 1, 9).is_ok());
        assert!(histogram(2.0, 4.1, 1, 9).is_err(), "squares above the square");
        assert!(histogram(f64::NAN, 4.0, 1, 9).is_err());
        assert!(histogram(-2.0, 4.0, 1, 9).is_err());
        assert!(histogram(2.0, 4.0, 0, 9).is_err(), "no sample");
        assert!(Histogram::decode(&seal(Kind::Histogram, &[10, 7, 0, 0])).is_err(), "too fine");
        assert!(Histogram::decode(&seal(Kind::Histogram, &[10, 3, 0, 0, 0])).is_err(), "a byte too many");
    }
}
