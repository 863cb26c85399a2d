//! Encodes rows as blocks.

use thiserror::Error;
use wire::time::{Nanos, UnixNanos};

use crate::block::{self, Kind, write};
use crate::bytes::{put_number, put_signed};
use crate::column;
use crate::head::{Head, HeadError};

/// Maximum rows per block: a cut file loses at most this many.
pub(crate) const MAX_ROWS: usize = 512;
/// Maximum values per block.
const MAX_BLOCK_VALUES: usize = 1 << 20;

/// A row whose number of values is not the number of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the row has {found} values, the head names {expected} columns")]
pub struct RowError {
    /// Values in the row.
    pub found: usize,
    /// Columns in the head.
    pub expected: usize,
}

/// Encodes rows as the blocks of a recording. The caller writes the returned bytes to the file, in order.
#[derive(Debug)]
pub struct Encoder {
    head: Head,
    times: Vec<UnixNanos>,
    /// The buffered rows, one after the other.
    values: Vec<f64>,
    /// Lost rows not yet recorded.
    lost: u64,
    rows: u64,
}

impl Encoder {
    /// Creates an encoder, and returns it with the first bytes of the file.
    ///
    /// # Errors
    ///
    /// [`HeadError`] if `head` cannot be recorded.
    pub fn new(head: Head) -> Result<(Self, Vec<u8>), HeadError> {
        let head = head.checked()?;
        let mut bytes = block::start();
        bytes.extend(write(Kind::Head, &head.encode()));
        Ok((Self { head, times: Vec::new(), values: Vec::new(), lost: 0, rows: 0 }, bytes))
    }

    /// Adds a row that was taken `at` a time; NaN is a missing value. Returns a block when one is full.
    ///
    /// # Errors
    ///
    /// [`RowError`] unless there is one value per column; the row is not added then.
    pub fn push(&mut self, at: UnixNanos, values: &[f64]) -> Result<Option<Vec<u8>>, RowError> {
        let expected = self.head.columns.len();
        if values.len() != expected {
            return Err(RowError { found: values.len(), expected });
        }
        self.times.push(at);
        self.values.extend_from_slice(values);
        self.rows += 1;
        let most = (MAX_BLOCK_VALUES / expected).clamp(1, MAX_ROWS);
        Ok((self.times.len() >= most).then(|| self.flush()))
    }

    /// Records that `rows` rows before the next one were lost.
    pub fn lost(&mut self, rows: u64) {
        self.lost = self.lost.saturating_add(rows);
    }

    /// Continues with other columns. Returns the buffered rows, and the new head.
    ///
    /// # Errors
    ///
    /// [`HeadError`] if `head` cannot be recorded, or is of another service or interval; nothing is changed then.
    pub fn change(&mut self, head: Head) -> Result<Vec<u8>, HeadError> {
        let head = head.checked()?;
        self.head.goes_on_with(&head)?;
        let mut bytes = self.flush();
        bytes.extend(write(Kind::Head, &head.encode()));
        self.head = head;
        Ok(bytes)
    }

    /// The buffered rows as a block; empty if there are none.
    #[must_use]
    pub fn flush(&mut self) -> Vec<u8> {
        if self.times.is_empty() && self.lost == 0 {
            return Vec::new();
        }
        let columns = self.head.columns.len();
        let mut payload = Vec::new();
        payload.extend(self.head.checksum().to_le_bytes());
        put_number(&mut payload, self.times.len() as u64);
        put_number(&mut payload, std::mem::take(&mut self.lost));
        put_times(&mut payload, &self.times, self.head.interval);
        let mut before: Vec<f64> = Vec::new();
        for place in 0..columns {
            let values: Vec<f64> = self.values.iter().skip(place).step_by(columns).copied().collect();
            column::encode(&values, &before, &mut payload);
            before = values;
        }
        self.times.clear();
        self.values.clear();
        write(Kind::Rows, &payload)
    }

    /// The buffered rows, and the end block.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        let mut bytes = self.flush();
        let mut payload = Vec::new();
        put_number(&mut payload, self.rows);
        bytes.extend(write(Kind::End, &payload));
        bytes
    }

    /// Number of rows added so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Service, interval and current columns.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }
}

/// The first time, then the difference of each step from the previous step; of the first step from `interval`.
fn put_times(out: &mut Vec<u8>, times: &[UnixNanos], interval: Nanos) {
    let mut before = (0_u64, interval.0);
    for (place, &UnixNanos(time)) in times.iter().enumerate() {
        let step = time.wrapping_sub(before.0);
        if place == 0 {
            put_number(out, time);
            before.0 = time;
        } else {
            put_signed(out, step.wrapping_sub(before.1) as i64);
            before = (time, step);
        }
    }
}
