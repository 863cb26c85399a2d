//! Saturation: columns that say how long a service waited for something, and what of it is too long.
//!
//! A processor that others take away shows in one column of a hundred. By the score of a whole row such a fault has to
//! exceed γ, which the most restless columns set. A time of waiting needs no model of the others: more of it is worse,
//! whatever else the service does. So each such column is compared with the most that it was before for as long.
//!
//! # Rule
//! The *lasting* value is what two thirds of the last n rows reach ([`Saturation::rows`]; of three rows the median). It
//! is too much from `max(least, 1.5 mean, mean + 5 σ, mean + 1.5 (L − mean))` on, where mean and σ are those of all
//! rows so far. L is the largest lasting value; from there it falls towards the mean, half of the way in 231 rows: what
//! a service waited once, while others had a flood, is not normal for ever. Rows that are too much are not learnt, nor
//! are those before them that made them so, nor those of an episode, whatever began it ([`HELD`]).
//!
//! # Memory
//! About 240 B for each of the first [`MAX_COLUMNS`] columns with the rule; others are not judged by it. What is learnt
//! is in no [`Model`](crate::Model): after a restart it is learnt anew.

use crate::column::Column;

/// The most columns that are judged.
pub(crate) const MAX_COLUMNS: usize = 12;
/// The most rows of a lasting value.
const MAX_ROWS: usize = 32;
/// How many times as far from the mean as the largest lasting value.
const TIMES: f64 = 1.5;
/// Share of its distance from the mean by which the largest lasting value falls with each row.
const FALLS: f64 = 0.003;
/// Deviations from the mean, at least.
const DEVIATIONS: f64 = 5.0;
/// Share of the mean by which it is exceeded, at least.
const SHARE: f64 = 0.5;
/// Rows of an episode that are not learnt. What goes on for longer is, so that its end is no alarm of its own.
const HELD: u64 = 60;
/// Rows after which a mean follows like the mean of so many rows.
const AVERAGED: f64 = 2_000.0;

/// When a column that says how long something waited is too much by itself, whatever the score of its row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Saturation {
    /// Values below are never too much, in the column's unit.
    pub least: f64,
    /// Rows for which it has to last, two thirds of them; from 1, and as 32 above that.
    pub rows: u32,
}

/// The columns of a detector that have the rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Saturations {
    columns: Vec<WatchedColumn>,
    /// Rows that a column needs before it is judged.
    learn: u64,
    /// Whether one of them was too much in the newest row.
    any: bool,
    /// Whether rows are not learnt.
    held: bool,
}

/// One column with the rule.
#[derive(Clone, Debug)]
struct WatchedColumn {
    column: usize,
    rule: Saturation,
    /// The last values; a ring. A value is learnt when it leaves it.
    recent: Vec<f32>,
    next: usize,
    rows: u64,
    mean: f64,
    variance: f64,
    /// The largest lasting value, falling.
    lasted: f64,
    over: bool,
}

impl Saturations {
    /// The most memory of any number of columns.
    pub(crate) const MAX_BYTES: usize = MAX_COLUMNS * (size_of::<WatchedColumn>() + MAX_ROWS * size_of::<f32>());

    /// Of `columns`; each is judged after `learn` rows.
    pub(crate) fn new(columns: &[Column], learn: usize) -> Self {
        let with_rule = columns.iter().enumerate().filter_map(|(at, column)| Some((at, column.saturation?)));
        let watched = with_rule.take(MAX_COLUMNS).map(|(column, rule)| WatchedColumn::new(column, rule));
        let mut columns: Vec<_> = watched.collect();
        columns.shrink_to_fit();
        Self { columns, learn: learn as u64, any: false, held: false }
    }

    /// Processes the newest row, as it came: NaN is no value. `restarted`: it does not follow the row before. Unless
    /// `judged`, nothing is too much. `alarmed`: rows since an episode began, 0 outside. Never allocates.
    pub(crate) fn step(&mut self, row: &[f64], restarted: bool, judged: bool, alarmed: u64) {
        self.any = false;
        let was_held = core::mem::replace(&mut self.held, (1..=HELD).contains(&alarmed));
        for watched in &mut self.columns {
            watched.start_again(restarted || (was_held && !self.held));
            let value = row.get(watched.column).copied().unwrap_or(f64::NAN);
            watched.step(value, judged && watched.rows >= self.learn, self.held);
            self.any |= watched.over;
        }
    }

    /// Whether a column was too much in the newest row.
    pub(crate) fn any(&self) -> bool {
        self.any
    }

    /// The columns that were too much in the newest row, each with the mean that it had before and the deviation.
    pub(crate) fn over(&self) -> impl Iterator<Item = (usize, f64, f64)> {
        let columns = if self.any { &*self.columns } else { &[] };
        columns.iter().filter(|of| of.over).map(|of| (of.column, of.mean, of.variance.sqrt()))
    }

    /// The mean and deviation of `column`, if it was too much in the newest row.
    pub(crate) fn usual(&self, column: usize) -> Option<(f64, f64)> {
        self.over().find(|(over, ..)| *over == column).map(|(_, mean, deviation)| (mean, deviation))
    }

    pub(crate) fn bytes(&self) -> usize {
        let each = |of: &WatchedColumn| size_of::<WatchedColumn>() + size_of::<f32>() * of.recent.capacity();
        self.columns.iter().map(each).sum()
    }

    /// Learns anew what is normal. Never allocates.
    pub(crate) fn forget(&mut self) {
        (self.any, self.held) = (false, false);
        for watched in &mut self.columns {
            watched.start_again(true);
            (watched.rows, watched.mean, watched.variance, watched.lasted, watched.over) = (0, 0.0, 0.0, 0.0, false);
        }
    }
}

impl WatchedColumn {
    fn new(column: usize, rule: Saturation) -> Self {
        let rows = (rule.rows as usize).clamp(1, MAX_ROWS);
        let recent = Vec::with_capacity(rows);
        Self { column, rule, recent, next: 0, rows: 0, mean: 0.0, variance: 0.0, lasted: 0.0, over: false }
    }

    fn step(&mut self, value: f64, judged: bool, held: bool) {
        let rows = (self.rule.rows as usize).clamp(1, MAX_ROWS);
        let was_over = core::mem::take(&mut self.over);
        if !value.is_finite() {
            self.start_again(was_over);
            return;
        }
        let left = (self.recent.len() == rows).then(|| f64::from(self.recent[self.next]));
        match left {
            Some(_) => self.recent[self.next] = value as f32,
            None => self.recent.push(value as f32),
        }
        self.next = (self.next + 1) % rows;
        if self.recent.len() < rows {
            return;
        }
        let lasting = self.lasting();
        self.over = judged && lasting >= self.limit();
        if !held && !was_over && !self.over {
            self.learn(left, lasting);
        }
        self.start_again(was_over && !self.over);
    }

    /// Drops the last rows `if_so`: they do not belong to the next one, or are not to be learnt.
    fn start_again(&mut self, if_so: bool) {
        if if_so {
            self.recent.clear();
            self.next = 0;
        }
    }

    /// What two thirds of the last rows reach.
    fn lasting(&self) -> f64 {
        let mut sorted = [f32::INFINITY; MAX_ROWS];
        sorted[..self.recent.len()].copy_from_slice(&self.recent);
        let (_, lasting, _) = sorted.select_nth_unstable_by(self.recent.len() / 3, f32::total_cmp);
        f64::from(*lasting)
    }

    fn limit(&self) -> f64 {
        let far = (TIMES * (self.lasted - self.mean)).max(DEVIATIONS * self.variance.sqrt()).max(SHARE * self.mean);
        self.rule.least.max(self.mean + far)
    }

    /// Learns the value that `left` the ring, and what lasts.
    fn learn(&mut self, left: Option<f64>, lasting: f64) {
        let fallen = self.lasted - FALLS * (self.lasted - self.mean);
        self.lasted = fallen.max(lasting);
        let Some(value) = left else { return };
        self.rows += 1;
        let weight = 1.0 / (self.rows as f64).min(AVERAGED);
        let far = value - self.mean;
        self.mean += weight * far;
        self.variance = (1.0 - weight) * (self.variance + weight * far * far);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column::ColumnKind;
    use crate::random::Random;

    const LEARN: usize = 120;
    const RULE: Saturation = Saturation { least: 50.0, rows: 3 };

    /// After rows of 0 to 10 that were learnt.
    fn learnt() -> Saturations {
        let column = Column { saturation: Some(RULE), ..Column::new(ColumnKind::Increment, 0) };
        let mut of = Saturations::new(&[column], LEARN);
        let mut random = Random::new(1);
        for _ in 0..LEARN + 3 {
            of.step(&[10.0 * random.unit()], false, true, 0);
            assert!(!of.any());
        }
        of
    }

    /// Whether each of `rows` is too much.
    fn over(of: &mut Saturations, rows: &[f64]) -> Vec<bool> {
        let each = rows.iter().map(|value| {
            of.step(&[*value], false, true, 0);
            of.any()
        });
        each.collect()
    }

    #[test]
    fn two_rows_of_three_are_too_much_and_one_is_not() {
        assert_eq!(
            over(&mut learnt(), &[5.0, 90.0, 5.0, 5.0, 90.0, 90.0, 90.0]),
            [false, false, false, false, false, true, true]
        );
    }

    #[test]
    fn what_is_below_the_least_is_never_too_much() {
        assert_eq!(over(&mut learnt(), &[49.0; 9]), [false; 9]);
    }

    #[test]
    fn what_lasted_before_is_normal_up_to_half_as_far_again() {
        let mut of = learnt();
        for _ in 0..10 {
            of.step(&[300.0], false, false, 0);
        }
        let usual = of.columns[0].mean;

        assert_eq!(over(&mut of, &[usual + 1.4 * (300.0 - usual); 2]), [false; 2]);
        let mean = of.columns[0].mean;
        assert!(over(&mut of, &[mean + 10.0 * (560.0 - mean); 3])[2]);
    }

    #[test]
    fn what_lasted_long_ago_is_not_normal_any_more() {
        let lasting = |rows_since: usize| {
            let mut of = learnt();
            over(&mut of, &[1.0; 2_000]);
            of.step(&[300.0], false, false, 0);
            of.step(&[300.0], false, false, 0);
            over(&mut of, &vec![1.0; rows_since]);
            over(&mut of, &[250.0; 3])[2]
        };

        assert!(!lasting(10) && lasting(500));
    }

    #[test]
    fn what_was_too_much_is_not_learnt() {
        let mut of = learnt();

        let rows = over(&mut of, &[90.0; 2_000]);

        assert!(rows[1..].iter().all(|over| *over));
        let (usual, deviation) = of.usual(0).expect("it is over");
        assert!(usual < 7.0 && deviation < 10.0, "{usual} ± {deviation}");
    }

    #[test]
    fn rows_of_an_episode_are_not_learnt_but_what_goes_on_is() {
        let mut of = learnt();
        let usual = of.columns[0].mean;

        // Not too much by itself: something else is in alarm.
        (1..=HELD).for_each(|row| of.step(&[49.0], false, true, row));
        assert_eq!((of.columns[0].mean, of.columns[0].lasted < 11.0), (usual, true));

        (HELD + 1..HELD + 10).for_each(|row| of.step(&[49.0], false, true, row));
        assert!(of.columns[0].mean > usual && of.columns[0].lasted > 48.0);
    }

    #[test]
    fn the_last_rows_of_an_episode_are_not_learnt_after_it() {
        let mut of = learnt();
        let usual = of.columns[0].mean;

        (1..=5).for_each(|row| of.step(&[49.0], false, true, row));
        over(&mut of, &[usual; 3]);

        assert!((of.columns[0].mean - usual).abs() < 1e-6 && of.columns[0].lasted < 11.0);
    }

    #[test]
    fn rows_before_a_gap_and_rows_without_a_value_do_not_count() {
        let mut of = learnt();
        of.step(&[90.0], false, true, 0);
        of.step(&[f64::NAN], false, true, 0);
        assert!(!of.any());

        of.step(&[90.0], true, true, 0);
        of.step(&[90.0], false, true, 0);
        assert!(!of.any(), "two rows since the gap are no three");
        of.step(&[90.0], false, true, 0);
        assert!(of.any());
    }

    #[test]
    fn nothing_is_too_much_while_it_learns_anew() {
        let mut of = learnt();
        assert!(over(&mut of, &[90.0; 3])[2]);

        of.forget();

        assert_eq!(over(&mut of, &[90.0; LEARN + 3]), [false; LEARN + 3]);
        assert_eq!(over(&mut of, &[130.0; 3]), [false; 3], "that is half as much again");
        assert!(over(&mut of, &[200.0; 3])[2]);
    }

    #[test]
    fn of_twenty_rows_fourteen_have_to_be_too_much() {
        let rule = Saturation { least: 50.0, rows: 20 };
        let column = Column { saturation: Some(rule), ..Column::new(ColumnKind::Increment, 0) };
        let mut of = Saturations::new(&[column], LEARN);
        over(&mut of, &[1.0; LEARN + 20]);

        let rows = over(&mut of, &[90.0; 20]);

        assert_eq!(rows.iter().position(|over| *over), Some(13));
    }
}
