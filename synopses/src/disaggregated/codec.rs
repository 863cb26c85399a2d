//! Encoding of fragments, for a controller that collects them, and of the table that it publishes.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::ends::EpochTable;
use super::fragment::{Fragment, LIMIT};
use super::path::{MAX_PATH, Path};
use super::settings::Settings;
use super::table::PathTable;
use crate::encoding::{DecodeError, Kind, Reader, open, put_number, seal};

impl Fragment {
    /// Encodes the fragment, 1 to 5 bytes per counter that is not 0. Contains the seed: keep it secret.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let settings = self.settings();
        let mut out = Vec::new();
        for number in [settings.id, settings.counters, settings.rows, self.epoch()] {
            put_number(&mut out, number.into());
        }
        out.extend(settings.seed.to_le_bytes());
        put_number(&mut out, self.load());
        put_number(&mut out, self.counters.iter().filter(|count| **count > 0).count() as u64);
        let mut next = 0;
        for (place, count) in self.counters.iter().enumerate().filter(|(_, count)| **count > 0) {
            put_number(&mut out, (place - next) as u64);
            put_number(&mut out, (*count).into());
            next = place + 1;
        }
        seal(Kind::Fragment, &out)
    }

    /// Decodes a fragment of at most `most_counters` counters, a bound for its memory.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are invalid.
    pub fn decode(bytes: &[u8], most_counters: usize) -> Result<Self, DecodeError> {
        let mut reader = open(Kind::Fragment, bytes)?;
        let id = word(&mut reader, "an id")?;
        let counters = reader.size(most_counters.min(u32::MAX as usize), "counters")? as u32;
        let rows = reader.size(most_counters / (counters as usize).max(1), "rows")? as u32;
        let epoch = word(&mut reader, "an epoch")?;
        let settings = Settings { id, counters, rows, seed: reader.word64()? };
        let mut fragment = Self::new(settings).map_err(|_| DecodeError::Field("a number of counters"))?;
        (fragment.epoch, fragment.load) = (epoch, reader.number()?);
        let size = fragment.counters.len();
        let mut last = None;
        for _ in 0..reader.size(size, "counters in use")? {
            let place = reader.place(last, size)?;
            let count = word(&mut reader, "a count")?;
            // No counter has more than all updates together.
            if !((1..=LIMIT).contains(&count) && u64::from(count) <= fragment.load) {
                return Err(DecodeError::Field("a count"));
            }
            fragment.counters[place] = count;
            last = Some(place);
        }
        reader.end()?;
        Ok(fragment)
    }
}

impl PathTable {
    /// Encodes the table, about 13 bytes per fragment of a path. Contains seeds: keep it secret.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_number(&mut out, self.version.into());
        put_number(&mut out, self.paths.len() as u64);
        for (number, path) in &self.paths {
            put_number(&mut out, (*number).into());
            put_number(&mut out, path.count() as u64);
            out.extend(path.seed.to_le_bytes());
            put_number(&mut out, path.fragments.len() as u64);
            for (fragment, weight) in path.fragments.iter().zip(&path.weights) {
                put_number(&mut out, (*fragment).into());
                out.extend(weight.to_le_bytes());
            }
        }
        seal(Kind::PathTable, &out)
    }

    /// Decodes a table of at most `most_paths` paths. That seeds of fragments differ was checked by its maker.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are invalid.
    pub fn decode(bytes: &[u8], most_paths: usize) -> Result<Self, DecodeError> {
        let mut reader = open(Kind::PathTable, bytes)?;
        let mut table = Self { version: word(&mut reader, "a version")?, paths: BTreeMap::new() };
        for _ in 0..reader.size(most_paths, "paths")? {
            let number = word(&mut reader, "a path")?;
            if table.paths.last_key_value().is_some_and(|(last, _)| *last >= number) {
                return Err(DecodeError::Field("the order of paths"));
            }
            table.paths.insert(number, path(&mut reader)?);
        }
        reader.end()?;
        Ok(table)
    }
}

impl EpochTable {
    /// Encodes epoch and path as a [`PathTable`] of one path, without the run. Contains a seed: keep it secret.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        PathTable { version: self.epoch, paths: BTreeMap::from([(0, self.path.clone())]) }.encode()
    }

    /// Decodes a table of the owner's `run`.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are invalid.
    pub fn decode(run: u64, bytes: &[u8]) -> Result<Self, DecodeError> {
        let PathTable { version, mut paths } = PathTable::decode(bytes, 1)?;
        let path = paths.remove(&0).ok_or(DecodeError::Field("the number of paths"))?;
        Ok(Self { run, epoch: version, path })
    }
}

fn path(reader: &mut Reader<'_>) -> Result<Path, DecodeError> {
    let count = reader.size(MAX_PATH, "fragments to update")?;
    let seed = reader.word64()?;
    let (mut fragments, mut weights) = (Vec::new(), Vec::new());
    for _ in 0..reader.size(MAX_PATH, "fragments of a path")? {
        fragments.push(word(reader, "a fragment")?);
        weights.push(reader.amount("a weight")?);
    }
    // An empty path updates nothing, any other one at least one fragment, and no more than it has.
    if (count == 0) != fragments.is_empty() || count > fragments.len() {
        return Err(DecodeError::Field("a number of fragments to update"));
    }
    let path = Path::weighted(&fragments, count.max(1), &weights, seed);
    path.map_err(|_| DecodeError::Field("the fragments of a path"))
}

fn word(reader: &mut Reader<'_>, what: &'static str) -> Result<u32, DecodeError> {
    u32::try_from(reader.number()?).map_err(|_| DecodeError::Field(what))
}
