//! Encoding of heavy-hitter tables. Empty entries are left out.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::heavy_hitters::{HeavyHitter, HeavyHitters as _, Tally};
use super::settings::{Admission, Settings, WaySettings};
use super::single::Rap;
use super::space_saving::SpaceSaving;
use super::summary::StreamSummary;
use super::ways::{DWayRap, Layout, Precision, Ways};
use crate::digest::Digest;
use crate::encoding::{DecodeError, Kind, Reader, open, put_number, seal};

impl Rap {
    /// Encodes the table, 10 to 28 bytes per entry. Contains the seed: keep it secret.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_number(&mut out, self.settings.entries as u64);
        out.push(self.settings.admission as u8);
        put_words(&mut out, [self.settings.seed, self.coins.drawn]);
        put_tally(&mut out, self.tally);
        put_summary(&mut out, &self.summary);
        seal(Kind::Rap, &out)
    }

    /// Decodes a table of at most `most_entries` entries, a bound for its memory.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are invalid.
    pub fn decode(bytes: &[u8], most_entries: usize) -> Result<Self, DecodeError> {
        let mut reader = open(Kind::Rap, bytes)?;
        let entries = reader.size(most_entries, "entries")?;
        let admission = admission(reader.byte()?)?;
        let settings = Settings { entries, admission, seed: reader.word64()? };
        let mut rap = Self::new(settings).map_err(|_| DecodeError::Field("a number of entries"))?;
        rap.coins.drawn = reader.word64()?;
        rap.tally = tally(&mut reader)?;
        fill(&mut reader, &mut rap.summary)?;
        reader.end()?;
        Ok(rap)
    }
}

impl SpaceSaving {
    /// Encodes the table, 10 to 28 bytes per entry.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_number(&mut out, self.summary.capacity() as u64);
        put_words(&mut out, [self.seed]);
        put_tally(&mut out, self.tally);
        put_summary(&mut out, &self.summary);
        seal(Kind::SpaceSaving, &out)
    }

    /// Decodes a table of at most `most_entries` entries.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are invalid.
    pub fn decode(bytes: &[u8], most_entries: usize) -> Result<Self, DecodeError> {
        let mut reader = open(Kind::SpaceSaving, bytes)?;
        let entries = reader.size(most_entries, "entries")?;
        let table = Self::new(entries, reader.word64()?);
        let mut table = table.map_err(|_| DecodeError::Field("a number of entries"))?;
        table.tally = tally(&mut reader)?;
        fill(&mut reader, &mut table.summary)?;
        reader.end()?;
        Ok(table)
    }
}

impl Precision {
    /// Encodes the table, 11 to 30 bytes per entry in use. Contains the seed: keep it secret.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        seal(Kind::Precision, &payload(self))
    }

    /// Decodes a table of at most `most_entries` entries.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are invalid.
    pub fn decode(bytes: &[u8], most_entries: usize) -> Result<Self, DecodeError> {
        ways(open(Kind::Precision, bytes)?, most_entries)
    }
}

impl DWayRap {
    /// Encodes the table, 11 to 30 bytes per entry in use. Contains the seed: keep it secret.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        seal(Kind::DWayRap, &payload(self))
    }

    /// Decodes a table of at most `most_entries` entries.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are invalid.
    pub fn decode(bytes: &[u8], most_entries: usize) -> Result<Self, DecodeError> {
        ways(open(Kind::DWayRap, bytes)?, most_entries)
    }
}

fn payload<L: Layout>(table: &Ways<L>) -> Vec<u8> {
    let mut out = Vec::new();
    put_number(&mut out, table.settings.ways as u64);
    put_number(&mut out, table.settings.rows as u64);
    out.push(table.settings.admission as u8);
    put_words(&mut out, [table.settings.seed, table.coins.drawn]);
    put_tally(&mut out, table.tally);
    put_number(&mut out, table.entries().count() as u64);
    let mut next = 0;
    for (place, cell) in table.cells.iter().enumerate().filter(|(_, cell)| cell.count > 0) {
        put_number(&mut out, (place - next) as u64);
        put_entry(&mut out, *cell);
        next = place + 1;
    }
    out
}

fn ways<L: Layout>(mut reader: Reader<'_>, most_entries: usize) -> Result<Ways<L>, DecodeError> {
    let ways = reader.size(most_entries, "ways")?;
    let rows = reader.size(most_entries / ways.max(1), "rows")?;
    let admission = admission(reader.byte()?)?;
    let settings = WaySettings { ways, rows, admission, seed: reader.word64()? };
    let mut table = Ways::<L>::new(settings).map_err(|_| DecodeError::Field("a number of entries"))?;
    table.coins.drawn = reader.word64()?;
    table.tally = tally(&mut reader)?;
    let cells = table.cells.len();
    let mut last = None;
    for _ in 0..reader.size(cells, "entries in use")? {
        let place = reader.place(last, cells)?;
        let entry = entry(&mut reader)?;
        if !table.places(entry.digest).any(|at| at == place) {
            return Err(DecodeError::Field("the place of an entry"));
        }
        table.cells[place] = entry;
        last = Some(place);
    }
    reader.end()?;
    Ok(table)
}

fn put_words<const N: usize>(out: &mut Vec<u8>, words: [u64; N]) {
    out.extend(words.into_iter().flat_map(u64::to_le_bytes));
}

fn put_tally(out: &mut Vec<u8>, tally: Tally) {
    put_number(out, tally.inserted);
    put_number(out, tally.rejected);
}

fn tally(reader: &mut Reader<'_>) -> Result<Tally, DecodeError> {
    let tally = Tally { inserted: reader.number()?, rejected: reader.number()? };
    if tally.rejected <= tally.inserted { Ok(tally) } else { Err(DecodeError::Field("what was rejected")) }
}

fn admission(code: u8) -> Result<Admission, DecodeError> {
    Admission::of(code).ok_or(DecodeError::Field("a law of admission"))
}

fn put_entry(out: &mut Vec<u8>, entry: HeavyHitter) {
    put_words(out, [entry.digest.0]);
    put_number(out, entry.count);
    put_number(out, entry.since);
}

fn entry(reader: &mut Reader<'_>) -> Result<HeavyHitter, DecodeError> {
    let entry = HeavyHitter { digest: Digest(reader.word64()?), count: reader.number()?, since: reader.number()? };
    if entry.count > 0 && entry.since <= entry.count { Ok(entry) } else { Err(DecodeError::Field("a count")) }
}

/// Entries in ascending order of counts, of equal ones the oldest first.
fn put_summary(out: &mut Vec<u8>, summary: &StreamSummary) {
    put_number(out, summary.len() as u64);
    summary.iter().for_each(|entry| put_entry(out, entry));
}

fn fill(reader: &mut Reader<'_>, summary: &mut StreamSummary) -> Result<(), DecodeError> {
    let (mut entries, mut digests) = (Vec::new(), BTreeSet::new());
    for _ in 0..reader.size(summary.capacity(), "entries in use")? {
        let entry = entry(reader)?;
        let ascending = entries.last().is_none_or(|last: &HeavyHitter| last.count <= entry.count);
        if !(ascending && digests.insert(entry.digest)) {
            return Err(DecodeError::Field("the order of entries"));
        }
        entries.push(entry);
    }
    summary.refill(entries);
    Ok(())
}

#[cfg(test)]
mod tests;
