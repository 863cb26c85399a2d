//! Rows → blocks.

use thiserror::Error;

use crate::block::{self, Kind, write};
use crate::bytes::{put_number, put_signed};
use crate::column;
use crate::head::{Head, HeadError};

/// Rows of a block: a file that is cut loses at most so many.
pub(crate) const MOST_ROWS: usize = 512;
/// Values of a block.
const MOST_BLOCK_VALUES: usize = 1 << 20;

/// A row of another width than the head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the row has {found} values, the head names {expected} columns")]
pub struct RowError {
    /// Values there.
    pub found: usize,
    /// Columns of the head.
    pub expected: usize,
}

/// Turns rows into the bytes of a recording, block by block. Whoever has it writes what it returns, in order.
#[derive(Debug)]
pub struct Encoder {
    head: Head,
    times: Vec<u64>,
    /// Column by column would be what blocks want; rows are what comes.
    values: Vec<f64>,
    /// Rows that are known to be lost and not told yet.
    lost: u64,
    rows: u64,
}

impl Encoder {
    /// An encoder, and what the file begins with.
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

    /// Takes a row of `at_unix_ns` nanoseconds since 1970; NaN is a missing value. Returns a block when one is full.
    ///
    /// # Errors
    ///
    /// [`RowError`] unless there is one value per column; nothing is taken then.
    pub fn push(&mut self, at_unix_ns: u64, values: &[f64]) -> Result<Option<Vec<u8>>, RowError> {
        let expected = self.head.columns.len();
        if values.len() != expected {
            return Err(RowError { found: values.len(), expected });
        }
        self.times.push(at_unix_ns);
        self.values.extend_from_slice(values);
        self.rows += 1;
        let most = (MOST_BLOCK_VALUES / expected).clamp(1, MOST_ROWS);
        Ok((self.times.len() >= most).then(|| self.flush()))
    }

    /// Takes down that `rows` rows before the next one did not arrive.
    pub fn lost(&mut self, rows: u64) {
        self.lost = self.lost.saturating_add(rows);
    }

    /// Goes on with other columns. Returns the rows that wait, and the new head.
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

    /// The rows that wait, as a block; nothing if there is none.
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
        put_times(&mut payload, &self.times, self.head.interval_ns);
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

    /// The rows that wait, and the end.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        let mut bytes = self.flush();
        let mut payload = Vec::new();
        put_number(&mut payload, self.rows);
        bytes.extend(write(Kind::End, &payload));
        bytes
    }

    /// Rows taken so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// What is recorded now.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }
}

/// The first time, then by how much each step differs from the one before; the first one from `interval`.
fn put_times(out: &mut Vec<u8>, times: &[u64], interval: u64) {
    let mut before = (0_u64, interval);
    for (place, &time) in times.iter().enumerate() {
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
