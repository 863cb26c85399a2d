//! Longer rows beside those that come: a row of 100 ms has ten requests, whose mean duration says little.
//!
//! What a fault adds to each of them drowns in what ten requests differ. Over a second it would not. So the deviations
//! of each column are also averaged over a few rows, and the averages of each group of columns are compared with a
//! limit of their own, found as that of the group is ([`Groups`]): a group at it counts as much as a row at γ. So a
//! small deviation that lasts is found whatever γ is, which restless columns of other groups set.
//!
//! Judged are states, durations and the increments of levels. Not what is counted in a row, which follows the load:
//! twice the requests for a second are no fault; nor how much a pool holds ([`pools`](crate::pools)); nor estimates,
//! whose error lasts as long as what they count, so that it is as large in an average. In an average one row counts for
//! [`MOST`] deviations at most, so that one wild row is none. Tried without success: averages of residuals in their
//! deviations, whose limit the most restless group sets. A [`Model`](crate::Model) has the limits, and no averages.
//!
//! Means stand still after the last fit. A service that drifts by a deviation would be over its limit for good, and
//! learn nothing. So what lasts is at home in the end, as a gauge is that rests ([`latch`](crate::latch)): each column
//! has a slow average, too, of [`HOME`] times as many rows, in alarms as outside of them. Of the other average counts
//! what is beyond it, and beyond the mean of training, which stays at home: a plain difference would make the end of a
//! long fault another one. A gap keeps slow averages; after a fit, which has other means, they begin anew at 0, as they
//! do with a model. Limits are found without them, so that they are a little larger.
//!
//! O(m) a row; 12 B for each column that is judged.

use crate::column::{Column, ColumnKind};
use crate::groups::{Groups, MAX_GROUPS};

/// Most rows that make a longer one.
pub(crate) const MAX_ROWS: usize = 1_000;
/// What a row counts for in an average, at most, in deviations.
const MOST: f64 = 8.0;
/// The time constant of slow averages, in longer rows: two minutes where such a row is a second. With half of it, of 20
/// faults that ten requests of a row hide one would be found 45 rows later, and one not at all (computed).
const HOME: f64 = 120.0;

/// The averages of columns over the last rows, and the limits of their groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct LongRows {
    /// Rows that make a longer one.
    rows: u16,
    columns: Vec<AveragedColumn>,
    /// The limit of each group. Empty: none is judged.
    limits: Vec<f64>,
}

/// The averages of one column.
#[derive(Clone, Copy, Debug)]
struct AveragedColumn {
    column: u16,
    group: u8,
    mean: f32,
    /// The slow average: what is at home by now.
    home: f32,
}

/// Weights of a new row in the averages of a column.
#[derive(Clone, Copy, Debug)]
struct Weights {
    mean: f64,
    home: f64,
}

impl AveragedColumn {
    /// Its averages with a further row of `z` deviations, the slow one last.
    fn with(self, z: f64, weights: Weights) -> (f64, f64) {
        let z = z.clamp(-MOST, MOST);
        let moved = |from: f32, weight: f64| f64::from(from) + weight * (z - f64::from(from));
        (moved(self.mean, weights.mean), moved(self.home, weights.home))
    }

    /// What of its average counts.
    fn beyond(self) -> f64 {
        beyond(f64::from(self.mean), f64::from(self.home))
    }
}

/// What an average says beyond what is at home, which is from 0 to `home`.
fn beyond(mean: f64, home: f64) -> f64 {
    (mean - home.max(0.0)).max(0.0) + (mean - home.min(0.0)).min(0.0)
}

/// Sums by group, in the order of the columns. Columns of a group are neighbours, mostly: their sum stays in a register
/// until another group comes.
#[inline]
fn by_group(squares: impl Iterator<Item = (u8, f64)>) -> [f64; MAX_GROUPS] {
    let (mut sums, mut known, mut sum) = ([0.0; MAX_GROUPS], 0, 0.0);
    for (group, square) in squares {
        let group = usize::from(group);
        if group != known {
            sums[known] = sum;
            (known, sum) = (group, sums[group]);
        }
        sum += square;
    }
    sums[known] = sum;
    sums
}

impl LongRows {
    /// Of `rows` rows, for the columns that are judged; none if `rows` is `None`. `levels` are ascending.
    pub(crate) fn new(columns: &[Column], levels: &[u32], groups: &Groups, rows: Option<usize>) -> Self {
        let Some(rows) = rows else { return Self::default() };
        let is_judged = |at: usize, column: &Column| {
            let by_value = levels.binary_search(&(at as u32)).is_err();
            column.kind == ColumnKind::Gauge && !(by_value && (column.pool || column.estimated))
        };
        let judged = columns.iter().enumerate().filter(|(at, column)| is_judged(*at, column));
        let averaged =
            |(at, _)| AveragedColumn { column: at as u16, group: groups.index(at) as u8, mean: 0.0, home: 0.0 };
        let mut columns: Vec<_> = judged.map(averaged).filter(|of| usize::from(of.group) < MAX_GROUPS).collect();
        columns.shrink_to_fit();
        Self { rows: u16::try_from(rows).unwrap_or(u16::MAX), columns, limits: Vec::new() }
    }

    /// With a limit for each group; none is judged without a column that is averaged.
    pub(crate) fn limited(mut self, limits: Vec<f64>) -> Self {
        self.limits = if self.columns.is_empty() { Vec::new() } else { limits };
        self.begin_anew();
        self
    }

    /// By the limits of a model, one for each column of the detector; 0 is none. A group has the largest limit of its
    /// averaged columns, and one without any is not judged.
    pub(crate) fn restored(self, limits: &[f64]) -> Self {
        let mut of_groups = vec![0.0_f64; MAX_GROUPS];
        for of in &self.columns {
            let limit = limits.get(usize::from(of.column)).copied().unwrap_or(0.0);
            let most = &mut of_groups[usize::from(of.group)];
            *most = most.max(limit);
        }
        if of_groups.iter().all(|limit| *limit == 0.0) {
            return Self::default();
        }
        of_groups.iter_mut().filter(|limit| **limit == 0.0).for_each(|limit| *limit = f64::MAX);
        self.limited(of_groups)
    }

    /// Rows that make a longer one; `None`: no group is judged.
    pub(crate) fn rows(&self) -> Option<u16> {
        (!self.limits.is_empty()).then_some(self.rows)
    }

    /// Weights of a new row. Nothing is at home while limits are sought.
    fn weights(&self) -> Weights {
        let rows = f64::from(self.rows);
        let home = if self.limits.is_empty() { 0.0 } else { 1.0 / (HOME * rows) };
        Weights { mean: 2.0 / (rows + 1.0), home }
    }

    /// The limit of the group of `column`; 0: the column is not averaged, or its group not judged.
    pub(crate) fn limit(&self, column: usize) -> f64 {
        let group = self.averaged(column).map(|of| usize::from(of.group));
        let limit = group.and_then(|group| self.limits.get(group)).copied();
        limit.filter(|limit| *limit < f64::MAX).unwrap_or(0.0)
    }

    fn averaged(&self, column: usize) -> Option<&AveragedColumn> {
        let place = self.columns.binary_search_by_key(&column, |of| usize::from(of.column)).ok()?;
        self.columns.get(place)
    }

    /// No row counts any more.
    pub(crate) fn begin_anew(&mut self) {
        self.columns.iter_mut().for_each(|of| (of.mean, of.home) = (0.0, 0.0));
    }

    /// Averages begin again, where columns are at home.
    pub(crate) fn forget(&mut self) {
        self.columns.iter_mut().for_each(|of| of.mean = of.home);
    }

    /// Adds a row of deviations. Returns, per group, the sum of the squares of what counts of averages. O(m). Never
    /// allocates.
    pub(crate) fn push(&mut self, z: &[f64]) -> [f64; MAX_GROUPS] {
        let weights = self.weights();
        by_group(self.columns.iter_mut().map(|of| {
            let (mean, home) = of.with(z[usize::from(of.column)], weights);
            (of.mean, of.home) = (mean as f32, home as f32);
            (of.group, beyond(mean, home).powi(2))
        }))
    }

    /// What [`push`](Self::push) would return for a row that covers `part` of an interval, in (0, 1\]: as a whole one
    /// whose deviations are `part` times as large, as if the rest were as usual. Averages fall as they will with the
    /// next row; otherwise the row before would count in each part of it. O(m). Never allocates.
    pub(crate) fn squares_with(&self, z: &[f64], part: f64) -> [f64; MAX_GROUPS] {
        let weights = self.weights();
        by_group(self.columns.iter().map(|of| {
            let (mean, home) = of.with(part * z[usize::from(of.column)], weights);
            (of.group, beyond(mean, home).powi(2))
        }))
    }

    /// Per group, the sum of the squares of what counts of averages.
    pub(crate) fn squares(&self) -> [f64; MAX_GROUPS] {
        by_group(self.columns.iter().map(|of| (of.group, of.beyond().powi(2))))
    }

    /// The same if a group is at its limit, so that its columns have a [`part`](Self::part); otherwise `None`.
    pub(crate) fn squares_at_limit(&self) -> Option<[f64; MAX_GROUPS]> {
        if self.limits.is_empty() {
            return None;
        }
        let squares = self.squares();
        let is_at_limit = squares.iter().zip(&self.limits).any(|(square, limit)| *square >= limit * limit);
        is_at_limit.then_some(squares)
    }

    /// The largest of these squares of groups in units of its limit: 1 is as much as a score of γ. 0 without limits.
    pub(crate) fn largest(&self, squares: &[f64; MAX_GROUPS]) -> f64 {
        squares.iter().zip(&self.limits).map(|(square, limit)| square / limit / limit).fold(0.0, f64::max)
    }

    /// The part of `column` in [`largest`](Self::largest), if its group is at its limit, otherwise 0: parts of a group
    /// add up to that of the group. `squares` are those of [`squares`](Self::squares).
    pub(crate) fn part(&self, column: usize, squares: &[f64; MAX_GROUPS]) -> f64 {
        let Some(of) = self.averaged(column) else { return 0.0 };
        let group = usize::from(of.group);
        let limit = self.limits.get(group).copied().unwrap_or(f64::MAX);
        if squares[group] < limit * limit { 0.0 } else { (of.beyond() / limit).powi(2) }
    }

    pub(crate) fn bytes(&self) -> usize {
        Self::COLUMN_BYTES * self.columns.len() + size_of::<f64>() * self.limits.len()
    }

    /// Bytes of a column that is judged.
    pub(crate) const COLUMN_BYTES: usize = size_of::<AveragedColumn>();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long_rows(kinds: &[Column], levels: &[u32]) -> LongRows {
        let groups = Groups::new(kinds);
        LongRows::new(kinds, levels, &groups, Some(10)).limited(vec![2.0; groups.len()])
    }

    #[test]
    fn what_lasts_reaches_a_limit_and_one_wild_row_does_not() {
        let mut rows = long_rows(&[Column::new(ColumnKind::Gauge, 0)], &[]);

        let wild = rows.push(&[1e6]);
        assert!(rows.largest(&wild) < 1.0 && rows.part(0, &wild) == 0.0);
        assert_eq!(rows.squares_at_limit(), None);
        rows.forget();
        (0..20).for_each(|_| _ = rows.push(&[3.0]));

        let lasting = rows.squares();
        assert!(rows.largest(&lasting) > 1.0);
        assert_eq!(rows.part(0, &lasting), rows.largest(&lasting));
        assert_eq!(rows.squares_at_limit(), Some(lasting));
    }

    #[test]
    fn sums_of_groups_are_those_of_their_columns_in_order_whoever_is_between() {
        let squares: [(u8, f64); 6] = [(1, 0.1), (0, 0.2), (1, 0.3), (2, 0.7), (1, 0.6), (0, 0.4)];
        let mut expected = [0.0; MAX_GROUPS];
        for (group, square) in squares {
            expected[usize::from(group)] += square;
        }

        assert_eq!(by_group(squares.into_iter()), expected);
        assert_eq!(by_group([].into_iter()), [0.0; MAX_GROUPS]);
    }

    /// The largest average that counts in a drift to one deviation over 2,000 rows, which then stays.
    fn largest_in_a_drift(mut rows: LongRows) -> f64 {
        let drift = (0..6_000).map(|row| (f64::from(row) / 2_000.0).min(1.0));
        drift.map(|z| rows.push(&[z])[0].sqrt()).fold(0.0, f64::max)
    }

    #[test]
    fn a_slow_drift_is_never_over_a_limit_that_it_would_stay_over_without_slow_averages() {
        const LIMIT: f64 = 0.8;
        let columns = [Column::new(ColumnKind::Gauge, 0)];
        let sought = LongRows::new(&columns, &[], &Groups::new(&columns), Some(10));

        let (without, with) = (largest_in_a_drift(sought.clone()), largest_in_a_drift(sought.limited(vec![LIMIT])));

        assert!(without > 0.99 && with < 0.75 * LIMIT, "{without} {with}");
    }

    #[test]
    fn what_has_lasted_and_the_mean_of_training_are_at_home_and_what_is_beyond_both_counts() {
        let largest_after = |z: f64| {
            let mut rows = long_rows(&[Column::new(ColumnKind::Gauge, 0)], &[]);
            (0..6_000).for_each(|_| _ = rows.push(&[3.0]));
            let each = (0..50).map(|_| {
                let squares = rows.push(&[z]);
                rows.largest(&squares)
            });
            each.fold(0.0, f64::max)
        };

        assert!(largest_after(3.0) < 0.01, "it is at home");
        assert!(largest_after(0.0) < 0.01, "its end is no other fault");
        assert!(largest_after(6.0) > 1.0 && largest_after(-3.0) > 1.0);
    }

    #[test]
    fn a_gap_keeps_what_is_at_home_and_a_new_beginning_does_not() {
        let mut rows = long_rows(&[Column::new(ColumnKind::Gauge, 0)], &[]);
        (0..6_000).for_each(|_| _ = rows.push(&[3.0]));

        rows.forget();
        assert_eq!(rows.squares()[0], 0.0);
        (0..30).for_each(|_| _ = rows.push(&[3.0]));
        assert!(rows.largest(&rows.squares()) < 0.01);

        rows.begin_anew();
        (0..30).for_each(|_| _ = rows.push(&[3.0]));
        assert!(rows.largest(&rows.squares()) > 1.0);
    }

    #[test]
    fn what_is_counted_in_a_row_is_not_judged_and_of_pools_how_fast_they_grow() {
        let pool = Column { pool: true, ..Column::new(ColumnKind::Gauge, 1) };
        let judge = |levels: &[u32]| {
            let mut rows = long_rows(&[Column::new(ColumnKind::Increment, 0), pool], levels);
            (0..50).for_each(|_| _ = rows.push(&[40.0, 3.0]));
            rows.largest(&rows.squares())
        };

        assert_eq!(judge(&[]), 0.0);
        assert!(judge(&[1]) > 1.0);
    }

    #[test]
    fn a_row_that_is_not_taken_counts_by_its_part_and_leaves_averages_as_they_were() {
        let mut rows = long_rows(&[Column::new(ColumnKind::Gauge, 0)], &[]);
        (0..5).for_each(|_| _ = rows.push(&[3.0]));
        let before = rows.squares();

        let [none, quarter, whole] = [1e-9, 0.25, 1.0].map(|part| rows.squares_with(&[3.0], part)[0]);

        assert_eq!(rows.squares(), before);
        assert!(none < 0.7 * before[0], "it falls as with a row at its mean: {none} of {}", before[0]);
        assert_eq!(quarter, rows.squares_with(&[0.75], 1.0)[0]);
        assert_eq!(rows.push(&[3.0])[0], whole);
    }

    #[test]
    fn limits_of_columns_are_those_of_their_groups_again() {
        let column = |group| Column { group, ..Column::new(ColumnKind::Gauge, 0) };
        let columns = [column(0), Column::new(ColumnKind::Increment, 0), column(1), column(1)];
        let groups = Groups::new(&columns);
        let rows = || LongRows::new(&columns, &[], &groups, Some(10));
        let limits = |of: &LongRows| (0..4).map(|at| of.limit(at)).collect::<Vec<_>>();
        let learnt = limits(&rows().limited(vec![2.0, 3.0]));
        assert_eq!(learnt, [2.0, 0.0, 3.0, 3.0], "an increment is not averaged");

        assert_eq!(limits(&rows().restored(&learnt)), learnt);
        assert_eq!(limits(&rows().restored(&[0.0, 0.0, 3.0, 4.0])), [0.0, 0.0, 4.0, 4.0]);
        assert_eq!((rows().restored(&learnt).rows(), rows().restored(&[0.0; 4]).rows()), (Some(10), None));
    }

    #[test]
    fn an_estimate_is_not_judged() {
        let of = |estimated| {
            let mut rows = long_rows(&[Column { estimated, ..Column::new(ColumnKind::Gauge, 0) }], &[]);
            (0..50).for_each(|_| _ = rows.push(&[3.0]));
            rows.largest(&rows.squares())
        };

        assert!(of(false) > 1.0 && of(true) == 0.0);
    }
}
