//! Pools: what a process takes as it needs it, and keeps. A burst lets memory, threads, descriptors and connections
//! grow.
//!
//! That growth is over in a moment, and what was taken stays; a leak goes on. So growth of such a column says nothing
//! for the first rows ([`Settings::pool_rows`](crate::Settings::pool_rows)): it is replaced by what the other columns
//! let expect. If it has come to rest by then, it is at home there ([`Latches::settle`]). If not, it counts from then
//! on, and so does more growth in the next [`FORGETS`] times as many rows: a leak in steps is seen with its second.
//! What holds more than twice what it did in training counts at once, and so does everything that shrinks.
//!
//! A fit is no new beginning: what was watched before, and is judged in the same way, goes on with its patience and
//! with where it is at home. Of constants it is one: they hardly grew in the rows of the fit.
//!
//! 12 B for each column; a row in which one grows is scored three times.

use crate::column::{Column, ColumnKind};
use crate::intake::Intake;
use crate::latch::Latches;
use crate::standard::{Role, Standard};

/// A column grows if it is so many deviations above what is usual.
const GROWS: f64 = 3.0;
/// Growth is another one after so many times the rows for which it says nothing, without any.
pub(crate) const FORGETS: u16 = 15;
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

    /// Whether growth has begun, and would say nothing in the next row.
    pub(crate) fn is_on(self) -> bool {
        self.age > 0 && self.would_wait()
    }

    /// If growth says nothing yet, it does from the next row on.
    pub(crate) fn end(&mut self) {
        self.age = if self.is_on() { self.rows } else { self.age };
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

    /// Goes on where `before` was with each column that both watch, and judge in the same way; a gauge also with where
    /// it was at home, of which `latches` know, and `latches_before` did. O(m log m).
    pub(crate) fn go_on_from(&mut self, before: &Self, latches: &mut Latches, latches_before: &Latches) {
        for pool in &mut self.pools {
            let place = before.pools.binary_search_by_key(&pool.column, |of| of.column).ok();
            let Some(known) = place.and_then(|place| before.pools.get(place)) else { continue };
            if known.rests == pool.rests {
                pool.patience = known.patience;
                latches.go_on_from(latches_before, pool.column);
            }
        }
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
    use crate::counts::Counts;
    use crate::standard::StandardRule;

    const ROWS: usize = 10;

    /// A pipeline's part for one pool: it was 99, 100 or 101 in training.
    struct PoolFixture {
        pools: Pools,
        latches: Latches,
        standard: Standard,
        intake: Intake,
    }

    impl PoolFixture {
        fn new(levels: &[u32]) -> Self {
            let column = Column { pool: true, ..Column::new(ColumnKind::Gauge, 0) };
            let rows: Vec<f64> = (0..90).map(|row| 99.0 + f64::from(row % 3)).collect();
            let rule = StandardRule { clip: 50.0, deviation_floor: 0.05, constant_below: 0.0, watch_constants: false };
            let standard = Standard::fit(&rows, 1, rule);
            let pools = Pools::new(&[column], &standard.roles, levels, Some(ROWS));
            let latches = Latches::new(&[column], &standard.roles, levels, Some(60));
            Self { pools, latches, standard, intake: Intake::new(1) }
        }

        /// As it is after another fit.
        fn fitted_again(&self, levels: &[u32]) -> Self {
            let mut after = Self { intake: self.intake.clone(), ..Self::new(levels) };
            after.pools.go_on_from(&self.pools, &mut after.latches, &self.latches);
            after
        }

        fn z(&mut self, value: f64) -> f64 {
            self.intake.take(&[value], None, &mut Counts::default()).unwrap();
            let mut z = [0.0; 8];
            self.standard.row(&[value], &mut z);
            self.latches.step(&self.intake, &self.standard, &mut z);
            self.pools.step(&self.intake, &self.standard, &mut self.latches, &mut z);
            z[0]
        }
    }

    /// How it grows without end: by 5 of its deviations a row.
    fn leak(row: usize) -> f64 {
        110.0 + 4.0 * row as f64
    }

    #[test]
    fn a_leak_counts_after_a_fit_as_it_did_before() {
        let mut before = PoolFixture::new(&[]);

        let z: Vec<f64> = (0..15).map(|row| before.z(leak(row))).collect();
        let mut after = before.fitted_again(&[]);

        assert!(z[..ROWS].iter().all(|z| *z == KEPT) && z[ROWS..].iter().all(|z| *z > 20.0), "{z:?}");
        assert!(after.z(leak(15)) > 20.0);
        assert_eq!(PoolFixture::new(&[]).z(leak(15)), KEPT, "a new one would wait");
    }

    #[test]
    fn a_burst_in_a_fit_is_over_after_as_many_rows_as_without_and_at_home_where_it_rests() {
        let mut before = PoolFixture::new(&[]);
        (0..4).for_each(|row| assert_eq!(before.z(130.0 + f64::from(row % 3)), KEPT));

        let mut after = before.fitted_again(&[]);
        let z: Vec<f64> = (0..20).map(|row| after.z(130.0 + f64::from(row % 3))).collect();
        let mut again = after.fitted_again(&[]);

        assert!(z[..ROWS - 4].iter().all(|z| *z == KEPT) && z[ROWS - 4..].iter().all(|z| z.abs() < 4.0), "{z:?}");
        assert!(!again.pools.pools[0].patience.would_wait());
        assert!(again.z(131.0).abs() < 4.0, "it is at home there");
    }

    #[test]
    fn what_is_judged_in_another_way_begins_anew() {
        let mut before = PoolFixture::new(&[]);
        (0..15).for_each(|row| _ = before.z(leak(row)));

        let after = before.fitted_again(&[0]);

        assert!(after.pools.pools[0].patience.would_wait() && !before.pools.pools[0].patience.would_wait());
    }

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
