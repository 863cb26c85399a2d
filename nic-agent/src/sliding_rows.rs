//! Rows of the learnt length from faster fetches.
//!
//! An LMAP judges rows of one interval. While it is fetched `parts` times per interval, each fetch between two rows
//! gives a row of its own, which is made by the same code as any other: one set of columns for each of the `parts` − 1
//! places between two rows, all of which observe once per interval. So such a row covers a whole interval and *slides*
//! by a part of it: counters sum up exactly, histograms merge, a gauge is what it is at the fetch, expressions and
//! quantiles are of the sums, and what is missing, reset or late is handled as always.
//!
//! A set that is not there yet goes on from the last row. Its first row is *partial*: it covers what has passed since.
//!
//! Pure: time is a parameter.

use core::num::NonZeroU32;

use transport::RegionBuffer;
use wire::time::{Interval, Nanos};

use crate::columns::Columns;
use crate::observation::{Observation, ObservationTime};

/// A row between two others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SlidingRow<'a> {
    /// One value per column, per interval; NaN if it is missing.
    pub(crate) values: &'a [f64],
    /// The row at the beginning of what it covers.
    pub(crate) before: &'a [f64],
    /// The part of the interval that it covers; 1 if it is as long as any other row.
    pub(crate) part: f64,
}

/// The columns between two rows of one LMAP.
#[derive(Debug)]
pub(crate) struct SlidingRows {
    interval: Interval,
    parts: NonZeroU32,
    /// By the number of parts since the last row, from 1 on.
    columns: Vec<Option<Columns>>,
    before: Vec<f64>,
}

impl SlidingRows {
    /// For `parts` fetches per `interval`. Nothing is known yet.
    pub(crate) fn new(interval: Interval, parts: NonZeroU32) -> Self {
        let places = parts.get() as usize - 1;
        Self { interval, parts, columns: (0..places).map(|_| None).collect(), before: Vec::new() }
    }

    /// Time between two fetches.
    pub(crate) fn fetch_interval(&self) -> Interval {
        self.interval.part(self.parts)
    }

    /// Fetches per interval.
    pub(crate) fn parts(&self) -> u32 {
        self.parts.get()
    }

    /// Whether a fetch at `now` is between two rows: rows are due at multiples of the interval.
    pub(crate) fn is_between(&self, now: Nanos) -> bool {
        self.place(now) > 0
    }

    /// Parts of the interval that have passed at `now`.
    fn place(&self, now: Nanos) -> usize {
        let whole = self.interval.nanos().get();
        ((now.0 % whole) * u64::from(self.parts.get()) / whole) as usize
    }

    /// The next rows are partial: they cover only what comes after the last row.
    pub(crate) fn restart(&mut self) {
        self.columns.fill_with(|| None);
    }

    /// The row of the fetch at `now`. `rows` are the columns of the LMAP's own rows, whose last one was at `last_row`;
    /// `observations` has the state of each region, in the order of `buffers`. `None` if a partial row would be longer
    /// than an interval. O(slots); allocates for the first row after a restart only.
    pub(crate) fn read(
        &mut self,
        rows: &Columns,
        last_row: Nanos,
        buffers: &[RegionBuffer],
        observations: &[Observation],
        now: Nanos,
    ) -> Option<SlidingRow<'_>> {
        let Self { interval, parts, .. } = *self;
        let place = self.place(now).checked_sub(1)?;
        let columns = self.columns.get_mut(place)?;
        let row = ObservationTime::of_row(now, interval);
        let partial = ObservationTime { parts: parts.get(), ..row };
        let (part, time) = if columns.is_some() {
            (1.0, row)
        } else {
            let covers = partial.intervals_since(last_row)?;
            (covers, ObservationTime { covers, ..partial })
        };
        if part > 1.0 {
            return None;
        }
        let columns = columns.get_or_insert_with(|| rows.clone());
        self.before.clear();
        self.before.extend_from_slice(columns.row());
        Some(SlidingRow { values: columns.read(buffers, observations, time), before: &self.before, part })
    }

    /// Memory in bytes for an LMAP with these columns, once all places are filled.
    pub(crate) fn memory_bytes(rows: &Columns, parts: NonZeroU32) -> u64 {
        (rows.memory_bytes() as u64).saturating_mul(u64::from(parts.get() - 1))
    }
}

#[cfg(test)]
mod tests;
