//! Bytes → everything that is whole.

use core::fmt;
use std::collections::HashMap;

use thiserror::Error;

use crate::block::{self, Found, Kind, START, VERSION};
use crate::bytes::{Malformed, Reader};
use crate::column;
use crate::encoder::MOST_ROWS;
use crate::head::{Column, Head, MOST_COLUMNS};
use crate::labels::{self, Span};

/// Values of a recording: 512 MiB in memory, twice that while it is read.
const MOST_VALUES: usize = 1 << 26;
/// Spans of a recording.
const MOST_SPANS: usize = 1 << 16;
/// Columns of all heads together: as often as they change.
const MOST_WIDTHS: usize = 1 << 22;

/// Why bytes are no recording that can be read at all. What is merely cut or damaged is in [`Recording::damage`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// Something else.
    #[error("not a recording")]
    Magic,
    /// Written by another release. That release reads it.
    #[error("the recording is of version {found}, this release reads version {VERSION}")]
    Version {
        /// In the file.
        found: u32,
    },
    /// Nothing says what the columns are: the file ends, or is damaged, before its first head.
    #[error("the recording is cut before it says what its columns are: {bytes} bytes are there")]
    NoHead {
        /// Bytes there.
        bytes: usize,
    },
    /// A block of a kind that this release does not know.
    #[error("the block at byte {at} is of kind {kind}, which this release does not know")]
    Kind {
        /// Where.
        at: usize,
        /// In the file.
        kind: u8,
    },
    /// A block that is whole and cannot be: nothing wrote it, or a release with a mistake.
    #[error("the block at byte {at} is whole and says what cannot be: {what}")]
    Block {
        /// Where.
        at: usize,
        /// What.
        what: &'static str,
    },
    /// More than can be held.
    #[error("the recording has more than {MOST_VALUES} values")]
    TooLarge,
}

/// Why a part of a recording could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamageReason {
    /// The file ends inside of a block.
    Cut,
    /// A checksum is wrong.
    Checksum,
    /// The block is whole, but the head before it is not.
    NoHead,
}

/// A part of a recording that could not be read, and was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where it begins, in bytes.
    pub at: usize,
    /// How long it is.
    pub bytes: usize,
    /// Why.
    pub reason: DamageReason,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, bytes, reason } = self;
        match reason {
            DamageReason::Cut => {
                write!(f, "the file is cut inside of its last block: {bytes} bytes from byte {at} on are lost")
            }
            DamageReason::Checksum => {
                write!(f, "{bytes} bytes from byte {at} on have a wrong checksum and are left out")
            }
            DamageReason::NoHead => {
                write!(f, "{bytes} bytes from byte {at} on are rows whose columns are lost, and are left out")
            }
        }
    }
}

/// A recording in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// Whose rows.
    pub service: String,
    /// Nanoseconds between two rows.
    pub interval_ns: u64,
    /// All columns that there ever were, in the order in which they came; a column is the last one of its title.
    pub columns: Vec<Column>,
    /// Nanoseconds since 1970, one per row.
    pub times_unix_ns: Vec<u64>,
    /// What is known about spans of time, in the order in which it was told.
    pub spans: Vec<Span>,
    /// Rows that did not arrive at whoever recorded.
    pub lost_rows: u64,
    /// The end is there: nothing was cut off.
    pub complete: bool,
    /// What could not be read, in order.
    pub damage: Vec<Damage>,
    values: Vec<f64>,
}

impl Recording {
    /// The rows in order, one value per column each; NaN is a missing value.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f64]> {
        self.values.chunks_exact(self.columns.len())
    }

    /// The values of all rows, one row after the other.
    #[must_use]
    pub fn into_values(self) -> Vec<f64> {
        self.values
    }
}

/// Rows of one head.
struct Section {
    /// For each of its columns, the place among all.
    places: Vec<usize>,
    values: Vec<f64>,
}

/// What has been read so far.
struct Reading {
    head: Head,
    /// What rows name their head by.
    head_checksum: u32,
    columns: Vec<Column>,
    places: HashMap<String, usize>,
    sections: Vec<Section>,
    /// Columns of all sections together.
    widths: usize,
    out: Recording,
}

/// Reads `bytes`. Whole blocks are kept, what is damaged or cut is left out and told.
///
/// # Errors
///
/// [`RecordingError`] if the bytes are something else, of another release, or nothing of them can be read.
pub fn decode(bytes: &[u8]) -> Result<Recording, RecordingError> {
    let found = block::version(bytes).ok_or(RecordingError::Magic)?;
    if found != VERSION {
        return Err(RecordingError::Version { found });
    }
    let mut reading: Option<Reading> = None;
    let mut damage = Vec::new();
    let mut at = START;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let (length, reason) = match block::first(rest) {
            Found::Whole(kind, payload, length) => {
                let taken = take(&mut reading, kind, &payload).map_err(|error| error.at(at))?;
                (length, if taken { None } else { Some(DamageReason::NoHead) })
            }
            Found::Unknown(kind) => return Err(RecordingError::Kind { at, kind }),
            Found::NotDeflated => return Err(RecordingError::Block { at, what: "it cannot be unpacked" }),
            Found::Damaged(length) => (length, Some(DamageReason::Checksum)),
            Found::Cut => (rest.len(), Some(DamageReason::Cut)),
        };
        damage.extend(reason.map(|reason| Damage { at, bytes: length, reason }));
        at += length;
    }
    let reading = reading.ok_or(RecordingError::NoHead { bytes: bytes.len() })?;
    Ok(reading.finish(damage))
}

/// Why a whole block was not taken.
enum Refused {
    Malformed(Malformed),
    TooLarge,
}

impl From<Malformed> for Refused {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl Refused {
    fn at(self, at: usize) -> RecordingError {
        match self {
            Self::Malformed(Malformed(what)) => RecordingError::Block { at, what },
            Self::TooLarge => RecordingError::TooLarge,
        }
    }
}

/// Takes a whole block; false if nothing says what its columns are.
fn take(reading: &mut Option<Reading>, kind: Kind, payload: &[u8]) -> Result<bool, Refused> {
    if kind == Kind::Head {
        let head = Head::decode(payload)?;
        match reading {
            None => *reading = Some(Reading::new(head)?),
            Some(reading) => reading.change(head)?,
        }
        return Ok(true);
    }
    let Some(reading) = reading else { return Ok(false) };
    match kind {
        Kind::Head => {}
        Kind::Rows => return reading.rows(payload),
        Kind::Labels => {
            reading.out.spans.extend(labels::decode(payload)?);
            if reading.out.spans.len() > MOST_SPANS {
                return Err(Malformed("the number of spans").into());
            }
        }
        Kind::End => {
            let mut reader = Reader::new(payload);
            let _ = reader.number()?; // rows that were written; what is missing of them is told by the damage
            reader.end()?;
            reading.out.complete = true;
        }
    }
    Ok(true)
}

impl Reading {
    fn new(head: Head) -> Result<Self, Refused> {
        let out = Recording {
            service: head.service.clone(),
            interval_ns: head.interval_ns,
            columns: Vec::new(),
            times_unix_ns: Vec::new(),
            spans: Vec::new(),
            lost_rows: 0,
            complete: false,
            damage: Vec::new(),
            values: Vec::new(),
        };
        let (columns, places, sections) = (Vec::new(), HashMap::new(), Vec::new());
        let mut reading = Self { head_checksum: head.checksum(), head, columns, places, sections, widths: 0, out };
        reading.begin_section()?;
        Ok(reading)
    }

    fn change(&mut self, head: Head) -> Result<(), Refused> {
        self.head.goes_on_with(&head).map_err(|_| Malformed("the service, or the time between rows"))?;
        self.head_checksum = head.checksum();
        self.head = head;
        self.begin_section()
    }

    fn begin_section(&mut self) -> Result<(), Refused> {
        self.widths += self.head.columns.len();
        if self.widths > MOST_WIDTHS {
            return Err(Malformed("how often columns change").into());
        }
        let mut places = Vec::new();
        for column in &self.head.columns {
            let next = self.columns.len();
            let place = *self.places.entry(column.title.clone()).or_insert(next);
            match self.columns.get_mut(place) {
                Some(known) => known.clone_from(column),
                None => self.columns.push(column.clone()),
            }
            places.push(place);
        }
        self.sections.push(Section { places, values: Vec::new() });
        if self.columns.len() > MOST_COLUMNS {
            return Err(Malformed("the number of columns").into());
        }
        self.fits(0)
    }

    /// Whether so many more rows can be held.
    fn fits(&self, rows: usize) -> Result<(), Refused> {
        let values = (self.out.times_unix_ns.len() + rows).saturating_mul(self.columns.len());
        if values <= MOST_VALUES { Ok(()) } else { Err(Refused::TooLarge) }
    }

    /// Takes rows; false if they are of another head, which is damaged then.
    fn rows(&mut self, payload: &[u8]) -> Result<bool, Refused> {
        let mut reader = Reader::new(payload);
        let columns = self.head.columns.len();
        if u32::from_le_bytes(reader.array()?) != self.head_checksum {
            return Ok(false);
        }
        let rows = reader.size(MOST_ROWS, "the number of rows")?;
        self.fits(rows)?;
        let lost = reader.number()?;
        let times = times(&mut reader, rows, self.head.interval_ns)?;
        let mut values = vec![f64::NAN; rows * columns];
        let mut before: Vec<f64> = Vec::new();
        for place in 0..columns {
            let column = column::decode(&mut reader, rows, &before)?;
            for (cell, value) in values.iter_mut().skip(place).step_by(columns).zip(&column) {
                *cell = *value;
            }
            before = column;
        }
        reader.end()?;
        self.out.lost_rows = self.out.lost_rows.saturating_add(lost);
        self.out.times_unix_ns.extend(times);
        if let Some(section) = self.sections.last_mut() {
            section.values.extend(values);
        }
        Ok(true)
    }

    /// Puts the sections together, each value in the place of its column.
    fn finish(self, damage: Vec<Damage>) -> Recording {
        let width = self.columns.len();
        let mut values = Vec::with_capacity(width * self.out.times_unix_ns.len());
        for section in self.sections {
            for row in section.values.chunks_exact(section.places.len()) {
                let start = values.len();
                values.resize(start + width, f64::NAN);
                for (place, value) in section.places.iter().zip(row) {
                    values[start + place] = *value;
                }
            }
        }
        Recording { columns: self.columns, values, damage, ..self.out }
    }
}

fn times(reader: &mut Reader<'_>, rows: usize, interval: u64) -> Result<Vec<u64>, Malformed> {
    let mut times = Vec::with_capacity(rows);
    let mut step = interval;
    for _ in 0..rows {
        let time = match times.last() {
            None => reader.number()?,
            Some(before) => {
                step = step.wrapping_add(reader.signed()? as u64);
                step.wrapping_add(*before)
            }
        };
        times.push(time);
    }
    Ok(times)
}
