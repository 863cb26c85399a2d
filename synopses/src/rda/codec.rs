//! Encoding of cells and of XOR counters. The reader knows the settings except for the number of cells, which it
//! bounds.

use alloc::vec::Vec;

use super::aggregator::{Cell, Rda};
use super::differences::{LEVELS, WORDS, XorCounters};
use super::settings::{Layout, Settings};
use crate::digest::{Digest, Mixer};
use crate::encoding::{DecodeError, Kind, Reader, open, put_number, seal};

/// Maximum number of packets in an interval. Differences of counts fit into signed numbers.
const MAX_PACKETS: u64 = 1 << 48;

impl Rda {
    /// Encodes the cells, about 20 bytes each, 28 in a flat layout. Instead of the seed it has 32 bits that detect
    /// another seed.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + 28 * self.cells.len());
        put_kind(&mut out, &self.settings);
        put_number(&mut out, self.settings.cells as u64);
        put_number(&mut out, self.packets);
        put_number(&mut out, self.duplicates);
        out.push(u8::from(self.truncated));
        for (place, cell) in self.cells.iter().enumerate() {
            put_number(&mut out, cell.count);
            if cell.count > 0 {
                out.extend(cell.id.to_le_bytes());
                out.extend(cell.sum.to_le_bytes());
                self.checks.get(place).iter().for_each(|check| out.extend(check.to_le_bytes()));
            }
        }
        seal(Kind::Rda, &out)
    }

    /// Decodes the other end's cells, which must have these settings except for the number of cells, at most
    /// `most_cells` in a bank.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Parameters`] if the settings differ, [`DecodeError::TooLarge`] if there are more cells, otherwise
    /// another [`DecodeError`] for invalid bytes.
    pub fn decode(bytes: &[u8], settings: &Settings, most_cells: usize) -> Result<Self, DecodeError> {
        let mut reader = open(Kind::Rda, bytes)?;
        let mut ours = Vec::new();
        put_kind(&mut ours, settings);
        if !reader.skip(&ours) {
            return Err(DecodeError::Parameters);
        }
        let cells = reader.size(most_cells, "cells in a bank")?;
        // A cell takes at least one byte, so memory is bounded by the number of bytes.
        if cells.saturating_mul(settings.banks) > bytes.len() {
            return Err(DecodeError::Length { found: bytes.len(), expected: cells.saturating_mul(settings.banks) });
        }
        let settings = Settings { cells, ..settings.clone() };
        let mut rda = Self::new(&settings).map_err(|_| DecodeError::Field("a number of cells"))?;
        rda.packets = reader.number()?;
        if rda.packets > MAX_PACKETS {
            return Err(DecodeError::Field("a number of packets"));
        }
        rda.duplicates = reader.number()?;
        rda.truncated = match reader.byte()? {
            0 => false,
            1 => true,
            _ => return Err(DecodeError::Field("the truncation flag")),
        };
        rda.read_cells(&mut reader)?;
        reader.end()?;
        Ok(rda)
    }

    fn read_cells(&mut self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        let flat = self.settings.layout == Layout::Flat;
        let mut counted = 0_u64;
        for place in 0..self.cells.len() {
            let count = reader.number()?;
            if count > self.packets {
                return Err(DecodeError::Field("a cell's count of packets"));
            }
            counted += count;
            if count > 0 {
                self.cells[place] = Cell { count, id: reader.word64()?, sum: reader.word64()? };
                if flat {
                    self.checks[place] = reader.word64()?;
                }
            }
            if !flat && (place + 1).is_multiple_of(self.settings.cells) {
                if counted != self.packets {
                    return Err(DecodeError::Field("a bank's count of packets"));
                }
                counted = 0;
            }
        }
        // In a flat layout a packet is in one cell at least.
        let most = self.packets.saturating_mul(self.settings.banks as u64);
        if flat && !(self.packets..=most).contains(&counted) {
            return Err(DecodeError::Field("the cells' count of packets"));
        }
        Ok(())
    }
}

fn put_kind(out: &mut Vec<u8>, settings: &Settings) {
    out.extend([settings.banks as u8, settings.layout as u8, settings.ids as u8]);
    out.extend((Mixer::new(settings.seed, 8).mix(Digest(0)) as u32).to_le_bytes());
}

impl XorCounters {
    /// Encodes the words: one byte for each, and eight more for a word other than 0.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + 9 * self.words.len());
        out.extend(seed_mark(self.seed));
        for word in &self.words {
            out.push(u8::from(*word != 0));
            if *word != 0 {
                out.extend(word.to_le_bytes());
            }
        }
        seal(Kind::XorCounters, &out)
    }

    /// Decodes the other end's counters, which must have the same seed.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Parameters`] if the seed differs, otherwise another [`DecodeError`] for invalid bytes.
    pub fn decode(bytes: &[u8], seed: u64) -> Result<Self, DecodeError> {
        let mut reader = open(Kind::XorCounters, bytes)?;
        if !reader.skip(&seed_mark(seed)) {
            return Err(DecodeError::Parameters);
        }
        let mut counters = Self::new(seed);
        debug_assert_eq!(counters.words.len(), LEVELS * WORDS);
        for word in &mut counters.words {
            *word = match reader.byte()? {
                0 => 0,
                1 => reader.word64()?,
                _ => return Err(DecodeError::Field("a word's flag")),
            };
        }
        reader.end()?;
        Ok(counters)
    }
}

fn seed_mark(seed: u64) -> [u8; 4] {
    (Mixer::new(seed, 8).mix(Digest(1)) as u32).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::finalise;

    fn filled(settings: &Settings) -> Rda {
        let mut rda = Rda::new(settings).expect("possible");
        (0..40).for_each(|number| rda.insert(Digest(finalise(number)), number << 50));
        (rda.duplicates, rda.truncated) = (7, true);
        rda
    }

    #[test]
    fn cells_survive_encoding_and_truncated_bytes_are_refused() {
        for layout in [Layout::Banks, Layout::Flat] {
            let settings = Settings { cells: 16, layout, seed: 5, ..Settings::default() };
            let rda = filled(&settings);
            let bytes = rda.encode();

            // The reader asked for another number of cells.
            let again = Rda::decode(&bytes, &Settings { cells: 2, ..settings.clone() }, 16).expect("what was encoded");
            assert_eq!((&again.cells, &again.checks, &again.settings), (&rda.cells, &rda.checks, &rda.settings));
            assert_eq!((again.packets, again.duplicates, again.truncated), (40, 7, true));
            for cut in 0..bytes.len() {
                assert!(Rda::decode(&bytes[..cut], &settings, 16).is_err());
            }
        }
    }

    #[test]
    fn other_settings_and_too_many_cells_are_refused() {
        let settings = Settings { cells: 16, ..Settings::default() };
        let bytes = filled(&settings).encode();
        for other in [
            Settings { banks: 2, ..settings.clone() },
            Settings { layout: Layout::Flat, ..settings.clone() },
            Settings { ids: crate::rda::Ids::Plain, ..settings.clone() },
            Settings { seed: 1, ..settings.clone() },
        ] {
            assert_eq!(Rda::decode(&bytes, &other, 16).err(), Some(DecodeError::Parameters));
        }
        let refused = Rda::decode(&bytes, &settings, 15).err();
        assert_eq!(refused, Some(DecodeError::TooLarge { what: "cells in a bank", found: 16, most: 15 }));
    }

    /// A payload with these numbers of cells and packets, and these counts in cells that are otherwise empty.
    fn payload(settings: &Settings, cells: u64, packets: u64, counts: &[u64]) -> Vec<u8> {
        let mut payload = Vec::new();
        put_kind(&mut payload, settings);
        for number in [cells, packets, 0, 0] {
            put_number(&mut payload, number);
        }
        for count in counts {
            put_number(&mut payload, *count);
            let words = if settings.layout == Layout::Flat { 24 } else { 16 };
            payload.extend(core::iter::repeat_n(0, if *count > 0 { words } else { 0 }));
        }
        seal(Kind::Rda, &payload)
    }

    #[test]
    fn false_counts_of_a_peer_are_refused() {
        let settings = Settings { banks: 2, ..Settings::default() };
        let flat = Settings { layout: Layout::Flat, ..settings.clone() };
        let of = |settings: &Settings, cells, packets, counts: &[u64]| {
            Rda::decode(&payload(settings, cells, packets, counts), settings, 1 << 30).err()
        };
        let field = |what| Some(DecodeError::Field(what));

        assert_eq!(of(&settings, 2, 3, &[1, 2, 3, 0]), None);
        let bank = "a bank's count of packets";
        assert_eq!(of(&settings, 2, 3, &[1, 1, 3, 0]), field(bank));
        assert_eq!(of(&settings, 2, 3, &[1, 3, 3, 0]), field(bank));
        assert_eq!(of(&settings, 2, 3, &[4, 0, 3, 0]), field("a cell's count of packets"));
        assert_eq!(of(&flat, 2, 3, &[1, 1, 0, 0]), field("the cells' count of packets"));
        assert_eq!(of(&flat, 2, 3, &[3, 3, 1, 0]), field("the cells' count of packets"));
        assert_eq!(of(&flat, 2, 3, &[1, 1, 1, 0]), None);
        assert_eq!(of(&settings, 0, 0, &[]), field("a number of cells"));
        assert_eq!(of(&settings, 1, 1 << 50, &[0, 0]), field("a number of packets"));
        // A billion cells in a few bytes: refused before memory is allocated.
        assert!(matches!(of(&settings, 1 << 30, 0, &[0]), Some(DecodeError::Length { .. })));
    }

    #[test]
    fn counters_survive_encoding_and_truncated_bytes_are_refused() {
        let mut counters = XorCounters::new(3);
        (0..20).for_each(|number| counters.insert(finalise(number)));
        let bytes = counters.encode();

        assert_eq!(XorCounters::decode(&bytes, 3), Ok(counters));
        assert_eq!(XorCounters::decode(&bytes, 4), Err(DecodeError::Parameters));
        assert!((0..bytes.len()).all(|cut| XorCounters::decode(&bytes[..cut], 3).is_err()));
    }
}
