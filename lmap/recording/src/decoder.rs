//! Decodes all whole blocks of a recording.

use core::fmt;
use std::collections::HashMap;

use thiserror::Error;
use wire::time::{Nanos, UnixNanos};

use crate::block::{self, BlockScan, Kind, START, VERSION};
use crate::bytes::{FormatError, Reader};
use crate::column;
use crate::encoder::MAX_ROWS;
use crate::head::{Column, Head, MAX_COLUMNS};
use crate::labels::{self, Span};

/// Maximum values of a recording: 512 MiB in memory, twice that while decoding.
const MAX_VALUES: usize = 1 << 26;
/// Maximum labelled spans of a recording.
const MAX_SPANS: usize = 1 << 16;
/// Maximum columns of all heads together.
const MAX_WIDTHS: usize = 1 << 22;

/// Why nothing of a recording can be read. Cuts and damage are not errors, see [`Recording::damage`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The bytes do not begin as a recording.
    #[error("not a recording")]
    Magic,
    /// Written by another release. Use that release to read it.
    #[error("the recording is of version {found}, this release reads version {VERSION}")]
    Version {
        /// The version in the file.
        found: u32,
    },
    /// There is no head: the file is cut or damaged before its first one.
    #[error("the recording is cut before it says what its columns are: {bytes} bytes are there")]
    NoHead {
        /// Length of the file.
        bytes: usize,
    },
    /// A block of a kind that this release does not know.
    #[error("the block at byte {at} is of kind {kind}, which this release does not know")]
    Kind {
        /// Byte offset of the block.
        at: usize,
        /// The kind in the file.
        kind: u8,
    },
    /// A block with a correct checksum and invalid content: written by a faulty program.
    #[error("the block at byte {at} has a valid checksum but invalid content: {what}")]
    Block {
        /// Byte offset of the block.
        at: usize,
        /// The invalid part.
        what: &'static str,
    },
    /// The recording does not fit into the memory limit.
    #[error("the recording has more than {MAX_VALUES} values")]
    TooLarge,
}

/// Why a part of a recording could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamageReason {
    /// The file ends inside a block.
    Cut,
    /// A checksum is wrong.
    Checksum,
    /// The block is whole, but the head before it is not.
    NoHead,
}

/// A part of a recording that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Byte offset of the part.
    pub at: usize,
    /// Length in bytes.
    pub bytes: usize,
    /// Why it could not be read.
    pub reason: DamageReason,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, bytes, reason } = self;
        match reason {
            DamageReason::Cut => {
                write!(f, "the file is cut inside its last block: {bytes} bytes from byte {at} on are lost")
            }
            DamageReason::Checksum => {
                write!(f, "{bytes} bytes from byte {at} on have a wrong checksum and are skipped")
            }
            DamageReason::NoHead => {
                write!(f, "{bytes} bytes from byte {at} on are rows whose head is lost, and are skipped")
            }
        }
    }
}

/// A recording in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// The name of the service.
    pub service: String,
    /// Time between two rows.
    pub interval: Nanos,
    /// All columns, in order of first appearance. If a title was described several times, the last description counts.
    pub columns: Vec<Column>,
    /// Time of each row.
    pub times: Vec<UnixNanos>,
    /// Labelled spans of time, in the order of the file.
    pub spans: Vec<Span>,
    /// Rows that were lost before they were recorded.
    pub lost_rows: u64,
    /// Whether the end block is present: nothing was cut off.
    pub complete: bool,
    /// Parts that could not be read, in the order of the file.
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

/// The rows of one head.
struct Section {
    /// For each column of the head its index among all columns.
    places: Vec<usize>,
    values: Vec<f64>,
}

/// The state while decoding.
struct DecodeState {
    head: Head,
    /// By which rows refer to their head.
    head_checksum: u32,
    columns: Vec<Column>,
    places: HashMap<String, usize>,
    sections: Vec<Section>,
    /// Columns of all sections together.
    widths: usize,
    out: Recording,
}

/// Decodes a recording. Reads all whole blocks, and reports damaged and cut parts in [`Recording::damage`].
///
/// # Errors
///
/// [`RecordingError`] if the bytes are not a recording, are of another version, or nothing can be read.
pub fn decode(bytes: &[u8]) -> Result<Recording, RecordingError> {
    let found = block::version(bytes).ok_or(RecordingError::Magic)?;
    if found != VERSION {
        return Err(RecordingError::Version { found });
    }
    let mut state: Option<DecodeState> = None;
    let mut damage = Vec::new();
    let mut at = START;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let (length, reason) = match block::first(rest) {
            BlockScan::Whole(kind, payload, length) => {
                let taken = take(&mut state, kind, &payload).map_err(|error| error.at(at))?;
                (length, if taken { None } else { Some(DamageReason::NoHead) })
            }
            BlockScan::Unknown(kind) => return Err(RecordingError::Kind { at, kind }),
            BlockScan::NotDeflated => return Err(RecordingError::Block { at, what: "it cannot be unpacked" }),
            BlockScan::Damaged(length) => (length, Some(DamageReason::Checksum)),
            BlockScan::Cut => (rest.len(), Some(DamageReason::Cut)),
        };
        damage.extend(reason.map(|reason| Damage { at, bytes: length, reason }));
        at += length;
    }
    let state = state.ok_or(RecordingError::NoHead { bytes: bytes.len() })?;
    Ok(state.finish(damage))
}

/// Why a whole block was rejected.
enum BlockError {
    FormatError(FormatError),
    TooLarge,
}

impl From<FormatError> for BlockError {
    fn from(malformed: FormatError) -> Self {
        Self::FormatError(malformed)
    }
}

impl BlockError {
    fn at(self, at: usize) -> RecordingError {
        match self {
            Self::FormatError(FormatError(what)) => RecordingError::Block { at, what },
            Self::TooLarge => RecordingError::TooLarge,
        }
    }
}

/// Decodes a whole block; false if its head is missing.
fn take(state: &mut Option<DecodeState>, kind: Kind, payload: &[u8]) -> Result<bool, BlockError> {
    if kind == Kind::Head {
        let head = Head::decode(payload)?;
        match state {
            None => *state = Some(DecodeState::new(head)?),
            Some(state) => state.change(head)?,
        }
        return Ok(true);
    }
    let Some(state) = state else { return Ok(false) };
    match kind {
        Kind::Head => {}
        Kind::Rows => return state.rows(payload),
        Kind::Labels => {
            state.out.spans.extend(labels::decode(payload)?);
            if state.out.spans.len() > MAX_SPANS {
                return Err(FormatError("the number of spans").into());
            }
        }
        Kind::End => {
            let mut reader = Reader::new(payload);
            let _ = reader.number()?; // number of rows written; missing ones are in the damage
            reader.end()?;
            state.out.complete = true;
        }
    }
    Ok(true)
}

impl DecodeState {
    fn new(head: Head) -> Result<Self, BlockError> {
        let out = Recording {
            service: head.service.clone(),
            interval: head.interval,
            columns: Vec::new(),
            times: Vec::new(),
            spans: Vec::new(),
            lost_rows: 0,
            complete: false,
            damage: Vec::new(),
            values: Vec::new(),
        };
        let (columns, places, sections) = (Vec::new(), HashMap::new(), Vec::new());
        let mut state = Self { head_checksum: head.checksum(), head, columns, places, sections, widths: 0, out };
        state.begin_section()?;
        Ok(state)
    }

    fn change(&mut self, head: Head) -> Result<(), BlockError> {
        self.head.goes_on_with(&head).map_err(|_| FormatError("the service, or the time between rows"))?;
        self.head_checksum = head.checksum();
        self.head = head;
        self.begin_section()
    }

    fn begin_section(&mut self) -> Result<(), BlockError> {
        self.widths += self.head.columns.len();
        if self.widths > MAX_WIDTHS {
            return Err(FormatError("how often columns change").into());
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
        if self.columns.len() > MAX_COLUMNS {
            return Err(FormatError("the number of columns").into());
        }
        self.fits(0)
    }

    /// Checks that `rows` more rows are within the memory limit.
    fn fits(&self, rows: usize) -> Result<(), BlockError> {
        let values = (self.out.times.len() + rows).saturating_mul(self.columns.len());
        if values <= MAX_VALUES { Ok(()) } else { Err(BlockError::TooLarge) }
    }

    /// Decodes rows; false if they refer to another head, which is damaged then.
    fn rows(&mut self, payload: &[u8]) -> Result<bool, BlockError> {
        let mut reader = Reader::new(payload);
        let columns = self.head.columns.len();
        if u32::from_le_bytes(reader.array()?) != self.head_checksum {
            return Ok(false);
        }
        let rows = reader.size(MAX_ROWS, "the number of rows")?;
        self.fits(rows)?;
        let lost = reader.number()?;
        let times = times(&mut reader, rows, self.head.interval)?;
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
        self.out.times.extend(times);
        if let Some(section) = self.sections.last_mut() {
            section.values.extend(values);
        }
        Ok(true)
    }

    /// Combines the sections, with each value at the index of its column.
    fn finish(self, damage: Vec<Damage>) -> Recording {
        let width = self.columns.len();
        let mut values = Vec::with_capacity(width * self.out.times.len());
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

fn times(reader: &mut Reader<'_>, rows: usize, interval: Nanos) -> Result<Vec<UnixNanos>, FormatError> {
    let mut times: Vec<UnixNanos> = Vec::with_capacity(rows);
    let mut step = interval.0;
    for _ in 0..rows {
        let time = match times.last() {
            None => reader.number()?,
            Some(before) => {
                step = step.wrapping_add(reader.signed()? as u64);
                step.wrapping_add(before.0)
            }
        };
        times.push(UnixNanos(time));
    }
    Ok(times)
}
