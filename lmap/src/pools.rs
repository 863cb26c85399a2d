//! Pools: what a process takes as it needs it, and keeps. A burst lets memory, threads, descriptors and connections
//! grow.
//!
//! That growth is over in a moment, and what was taken stays; a leak goes on. So growth of such a column says nothing
//! for the first rows ([`Settings::pool_rows`](crate::Settings::pool_rows)): it is replaced by what the other columns
//! let expect. If it has come to rest by then, it is at home there ([`Latches::settle`]). If not, it counts from then
//! on, and so does more growth in the next [`FORGETS`] times as many rows: a leak in steps is seen with its second.
//! What holds more than twice what it did in training counts at once, and so does everything that shrinks.
//!
//! 12 B for each column; a row in which one grows is scored three times.

use crate::column::{Column, ColumnKind};
use crate::intake::Intake;
use crate::latch::Latches;
use crate::standard::{Role, Standard};

/// A column grows if it is so many deviations above what is usual.
const GROWS: f64 = 3.0;
/// Growth is another one after so many times the rows for which it says nothing, without any.
const FORGETS: u16 = 15;
/// What holds more than so many times as much as in training counts at once.
pub(crate) const TIMES: f64 = 2.0;
/// A replaced column keeps so many deviations of its growth, for the other columns to say what is expected.
const KEPT: f64 = 1.0;

/// For how long growth has gone on, and whether it may still say nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    rows: u16,
    /// Rows since the growth began, 0 before.
    age: u16,
    /// Rows since it last grew.
    calm: u16,
}

impl Patience {
    /// Of so many rows.
    pub(crate) fn new(rows: usize) -> Self {
        Self { rows: u16::try_from(rows).unwrap_or(u16::MAX), age: 0, calm: 0 }
    }

    /// Processes a row in which it grows, or does not. Returns whether that says nothing yet.
    pub(crate) fn step(&mut self, grows: bool) -> bool {
        if self.age == 0 && !grows {
            return false;
        }
        self.calm = if grows { 0 } else { self.calm + 1 };
        if self.calm >= self.rows.saturating_mul(FORGETS) {
            (self.age, self.calm) = (0, 0);
            return false;
        }
        self.age = self.age.saturating_add(1);
        grows && self.age <= self.rows
    }

    /// Whether growth in the next row would say nothing.
    pub(crate) fn would_wait(self) -> bool {
        self.age < self.rows
    }

    /// Whether this is the last row in which it says nothing.
    fn ends(self) -> bool {
        self.age == self.rows
    }
}

/// A column that is watched.
#[derive(Clone, Copy, Debug)]
struct Pool {
    column: u32,
    patience: Patience,
    /// Whether it is judged by its value, so that it may be at home elsewhere.
    rests: bool,
    /// Whether its growth says nothing yet in the newest row.
    waits: bool,
}

/// The pools of a pipeline that are watched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pools {
    pools: Vec<Pool>,
    /// Rows at a place after which a gauge has come to rest.
    at_rest: usize,
}

impl Pools {
    /// Bytes of a column.
    pub(crate) const COLUMN_BYTES: usize = size_of::<Pool>();

    /// Every watched pool; none if `rows` is `None`.
    pub(crate) fn new(columns: &[Column], roles: &[Role], levels: &[u32], rows: Option<usize>) -> Self {
        let Some(rows) = rows else { return Self::default() };
        let pools = columns.iter().enumerate().filter(|(at, of)| of.pool && roles.get(*at) == Some(&Role::Watched));
        let pool = |(at, of): (usize, &Column)| {
            let column = at as u32;
            let rests = of.kind == ColumnKind::Gauge && levels.binary_search(&column).is_err();
            Pool { column, patience: Patience::new(rows), rests, waits: false }
        };
        let mut pools: Vec<_> = pools.map(pool).collect();
        pools.shrink_to_fit();
        Self { pools, at_rest: rows / 2 }
    }

    /// Reduces z of columns whose growth says nothing yet, and says whether there is any. Never allocates.
    pub(crate) fn step(&mut self, intake: &Intake, standard: &Standard, latches: &mut Latches, z: &mut [f64]) -> bool {
        let mut any = false;
        for pool in &mut self.pools {
            let column = pool.column as usize;
            let (value, mean) = (intake.value(column), standard.mean[column]);
            let grows = z[column] > GROWS;
            pool.waits = pool.patience.step(grows) && !(pool.rests && value > TIMES * mean.abs());
            if !pool.waits {
                continue;
            }
            if pool.rests && pool.patience.ends() {
                latches.settle(column, self.at_rest);
            }
            z[column] = KEPT;
            any = true;
        }
        any
    }

    /// The columns that were reduced in the newest row.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = usize> {
        self.pools.iter().filter(|pool| pool.waits).map(|pool| pool.column as usize)
    }

    /// The columns of a row between two whose growth would say nothing, of a row with these values and this z.
    pub(crate) fn would_wait<'a>(
        &'a self,
        standard: &'a Standard,
        values: &'a [f64],
        z: &'a [f64],
    ) -> impl Iterator<Item = u32> + 'a {
        let waits = |pool: &&Pool| {
            let column = pool.column as usize;
            let is_far = pool.rests && values[column] > TIMES * standard.mean[column].abs();
            z[column] > GROWS && pool.patience.would_wait() && !is_far
        };
        self.pools.iter().filter(waits).map(|pool| pool.column)
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of::<Pool>() * self.pools.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_says_nothing_for_so_many_rows_and_again_when_it_was_calm_for_long() {
        let mut patience = Patience::new(3);

        let rows = [true, false, true, true, true].map(|grows| patience.step(grows));
        assert_eq!(rows, [true, false, true, false, false]);
        let long = 3 * FORGETS;
        assert!((1..long).all(|_| !patience.step(false)) && !patience.step(true), "not for long enough");
        assert!((0..long).all(|_| !patience.step(false)) && patience.step(true));
    }
}
