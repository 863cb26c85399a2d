//! Patience with load: an overload that passes is no alarm.
//!
//! More requests than usual let some of them wait. Scores rise with the load, and fall when it does, which says nothing
//! that the load does not say. So an episode that would begin while load is up waits for
//! [`Settings::load_rows`](crate::Settings::load_rows). It begins earlier if load has fallen and rows are over by
//! themselves, without longer ones: then load was not the cause. It begins at once if another one has waited within
//! [`FORGETS`] times as many rows. What is over by itself (an indicator, waiting for too long) waits for nothing.
//! Scores are what they were.
//!
//! # Load
//! The answers in a row: the sum of the columns with [`Column::load`], averaged over three rows, as scores are. With
//! the mean and the deviation of that average over the last [`FORGETS`] times the rows of patience, load is up if it is
//! above the mean by
//!
//! - [`RISES`] of it, and [`LEAST`] answers in a row;
//! - [`DEVIATIONS`] of its deviations: load that comes in bursts all the time explains nothing.
//!
//! It is not for as many rows as patience has after a gap, or after answers were less than [`RARE`] of the usual ones:
//! what stood still and catches up is no load. Where answers are few, noise alone makes them less for a moment. So rows
//! have to be short of that by [`LEAST`] answers, too. With fewer, what a service that stood still catches up at once
//! does not make load up: fewer than twice as many answers have waited, of which the average takes half.
//!
//! Answers are what a service counts. Requests that are refused, or wait at its door, show in no column of it. A count
//! without a value in a row is the last one: of a sampler that writes less often than rows come, that is what is known.
//!
//! # Memory
//! 4 B for each column of load. O(their number) a row.

use crate::column::Column;
use crate::intake::Intake;
use crate::pools::{FORGETS, Patience};

/// Weight of a row in the average of answers: that of three rows.
const RECENT: f64 = 0.5;
/// Load is up from this share above what is usual on,
const RISES: f64 = 0.5;
/// from so many answers in a row,
const LEAST: f64 = 3.0;
/// and from so many deviations.
const DEVIATIONS: f64 = 3.0;
/// Answers have become rare below this share of what is usual.
const RARE: f64 = 0.5;
/// Load has fallen if it is less than this share above what is usual.
const FALLEN: f64 = 0.25;
/// More answers in a row count as so many, so that their squares stay finite.
const MOST: f64 = 1e12;

/// What a service has answered lately, and for how long an episode may wait.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// Columns that count answers; none without patience.
    columns: Vec<u32>,
    /// Rows of patience.
    rows: f64,
    patience: Patience,
    /// Rows that were taken.
    taken: f64,
    /// Answers in a row, averaged over three rows.
    recent: f64,
    /// Their mean, over many rows.
    usual: f64,
    /// The mean square of how far the former was from the latter.
    variance: f64,
    /// Rows since a gap, or since answers were rare.
    flowing: f64,
    /// By how many answers rows were short of [`RARE`] of the usual ones since they were not; at most [`LEAST`].
    short: f64,
}

impl Load {
    /// The load that `columns` count; `rows` are those of patience, and no episode waits if it is `None`.
    pub(crate) fn new(columns: &[Column], rows: Option<usize>) -> Self {
        let counts = (0..).zip(columns).filter(|(_, column)| rows.is_some() && column.load);
        let mut columns: Vec<u32> = counts.map(|(at, _)| at).collect();
        columns.shrink_to_fit();
        let rows = rows.unwrap_or(0);
        let (taken, recent, usual, variance, flowing, short) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
        let patience = Patience::new(rows);
        Self { columns, rows: rows as f64, patience, taken, recent, usual, variance, flowing, short }
    }

    /// Takes the newest row. Never allocates.
    pub(crate) fn take(&mut self, intake: &Intake) {
        if self.columns.is_empty() {
            return;
        }
        let answers = self.answers(intake.row());
        self.taken += 1.0;
        if self.taken <= 1.0 {
            self.usual = answers;
        }
        if intake.restarted() {
            (self.recent, self.flowing, self.short) = (self.usual, 0.0, 0.0);
            self.patience.end();
        }
        self.recent = self.recent_with(answers);
        let enough = RARE * self.usual;
        self.short = (self.short + enough - answers).clamp(0.0, LEAST);
        let is_rare = self.recent < enough && self.short >= LEAST;
        self.flowing = if is_rare { 0.0 } else { self.flowing + 1.0 };
        let weight = (1.0 / self.taken).max(1.0 / (f64::from(FORGETS) * self.rows));
        self.variance += weight * ((self.recent - self.usual).powi(2) - self.variance);
        self.usual += weight * (answers - self.usual);
    }

    /// Whether an episode waits that would begin with the row taken last (`begins`). `alone`: that row is over without
    /// longer rows. Call it once for each row.
    pub(crate) fn holds(&mut self, begins: bool, alone: bool) -> bool {
        if self.columns.is_empty() {
            return false;
        }
        if alone && self.has_fallen(self.recent) {
            self.patience.end();
        }
        self.patience.step(begins && (self.patience.is_on() || self.is_up(self.recent)))
    }

    /// Whether an episode would wait that begins between two rows, with a row of these values that covers `part` of the
    /// interval, in (0, 1\]. `alone`: that row is over without longer rows.
    pub(crate) fn would_hold(&self, values: &[f64], part: f64, alone: bool) -> bool {
        if self.columns.is_empty() || !self.patience.would_wait() {
            return false;
        }
        let with_row = self.recent_with(self.answers(values));
        if !self.patience.is_on() {
            return self.is_up(with_row);
        }
        // Few answers of a part are noise: it counts as much as it covers.
        !(alone && self.has_fallen(self.recent + part * (with_row - self.recent)))
    }

    /// The answers in a row; those of columns without a value so far are none.
    fn answers(&self, row: &[f64]) -> f64 {
        let counts = self.columns.iter().map(|column| row[*column as usize]);
        counts.filter(|count| !count.is_nan()).sum::<f64>().clamp(0.0, MOST)
    }

    /// The average of answers with a further row.
    fn recent_with(&self, answers: f64) -> f64 {
        self.recent + RECENT * (answers - self.recent)
    }

    /// Whether load is up with this average.
    fn is_up(&self, recent: f64) -> bool {
        let above = recent - self.usual;
        self.flowing > self.rows
            && above >= LEAST.max(RISES * self.usual)
            && above * above >= DEVIATIONS * DEVIATIONS * self.variance
    }

    /// Whether load has fallen with this average.
    fn has_fallen(&self, recent: f64) -> bool {
        recent < (1.0 + FALLEN) * self.usual
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of::<u32>() * self.columns.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column::ColumnKind;
    use crate::counts::Counts;

    /// Rows of patience.
    const ROWS: usize = 20;
    /// Answers in a row of an overload.
    const OVERLOAD: f64 = 30.0;

    struct LoadFixture {
        load: Load,
        intake: Intake,
        rows: u32,
    }

    impl LoadFixture {
        /// A service that has answered 9, 10 or 11 requests in each of 100 rows.
        fn new() -> Self {
            let mut fixture = Self::unseen();
            fixture.ordinary(100);
            fixture
        }

        /// A service that has answered 4, 4, 0 and 0 requests in turn, in 100 rows.
        fn of_few_answers() -> Self {
            let mut fixture = Self::unseen();
            for row in 0..100 {
                let _ = fixture.step(if row % 4 < 2 { 4.0 } else { 0.0 }, false, false);
            }
            fixture
        }

        fn unseen() -> Self {
            let column = Column { load: true, ..Column::new(ColumnKind::Increment, 0) };
            Self { load: Load::new(&[column], Some(ROWS)), intake: Intake::new(1), rows: 0 }
        }

        /// Takes ordinary rows.
        fn ordinary(&mut self, rows: u32) {
            for _ in 0..rows {
                let answers = 9.0 + f64::from(self.rows % 3);
                let _ = self.step(answers, false, false);
            }
        }

        /// Whether an episode waits that would begin with a row, if it `begins`.
        fn step(&mut self, answers: f64, begins: bool, alone: bool) -> bool {
            self.rows += 1;
            self.intake.take(&[answers], None, &mut Counts::default()).unwrap();
            self.load.take(&self.intake);
            self.load.holds(begins, alone)
        }

        /// Of rows in each of which an episode would begin, whether it waits.
        fn held<const N: usize>(&mut self, rows: [f64; N]) -> [bool; N] {
            rows.map(|answers| self.step(answers, true, true))
        }
    }

    #[test]
    fn an_episode_waits_for_two_seconds_and_another_one_soon_afterwards_does_not() {
        let mut service = LoadFixture::new();

        assert_eq!(service.held([OVERLOAD; ROWS]), [true; ROWS]);
        assert_eq!(service.held([OVERLOAD]), [false]);
        service.ordinary(100);
        assert_eq!(service.held([OVERLOAD; 3]), [false; 3]);
        service.ordinary(300);
        assert!(service.held([OVERLOAD; 3])[2]);
    }

    #[test]
    fn an_episode_without_more_load_waits_for_nothing() {
        let mut service = LoadFixture::new();

        assert_eq!(service.held([10.0, 9.0, 11.0, 12.0]), [false; 4]);
        assert!(!LoadFixture::new().step(OVERLOAD, false, true), "nothing begins");
    }

    #[test]
    fn what_goes_on_alone_when_load_has_fallen_is_an_episode_and_what_longer_rows_remember_is_not() {
        let (mut alone, mut remembered) = (LoadFixture::new(), LoadFixture::new());

        assert_eq!(alone.held([OVERLOAD; 5]), [true; 5]);
        assert_eq!(alone.held([10.0; 4]), [true, true, false, false]);

        let held: Vec<bool> =
            (0..=ROWS).map(|row| remembered.step(if row < 5 { OVERLOAD } else { 10.0 }, true, false)).collect();
        assert_eq!(held, [[true; ROWS].as_slice(), &[false]].concat());
    }

    #[test]
    fn what_stood_still_or_was_not_seen_and_catches_up_is_no_load() {
        let (mut stood, mut unseen) = (LoadFixture::new(), LoadFixture::new());

        (0..5).for_each(|_| _ = stood.step(0.0, false, false));
        assert_eq!(stood.held([60.0, OVERLOAD]), [false; 2]);

        unseen.intake.gap();
        assert_eq!(unseen.held([60.0, OVERLOAD]), [false; 2]);
        unseen.ordinary(40);
        assert!(unseen.held([60.0, OVERLOAD])[1], "it was seen for long enough");
        unseen.intake.gap();
        assert_eq!(unseen.held([60.0, OVERLOAD]), [false; 2], "what waited waits no more");
    }

    #[test]
    fn few_answers_a_row_are_rare_only_if_rows_are_short_of_some() {
        let (mut busy, mut stood) = (LoadFixture::of_few_answers(), LoadFixture::of_few_answers());

        // In every fourth row the average is .8, of 2 that are usual: two rows without any are nothing unusual.
        assert_eq!(busy.held([10.0; 3]), [true; 3]);

        (0..3).for_each(|_| _ = stood.step(0.0, false, false));
        assert_eq!(stood.held([10.0; 3]), [false; 3]);
        (0..10).for_each(|_| _ = stood.step(2.0, false, false));
        assert_eq!(stood.held([10.0; 3]), [false; 3], "not for long enough");
    }

    #[test]
    fn load_that_comes_in_bursts_all_the_time_explains_nothing() {
        let mut service = LoadFixture::new();

        for row in 0..400 {
            let _ = service.step(if row % 10 < 3 { OVERLOAD } else { 10.0 }, false, false);
        }

        assert_eq!(service.held([OVERLOAD; 3]), [false; 3]);
    }

    #[test]
    fn between_two_rows_an_episode_waits_as_it_would_with_such_a_row() {
        let mut service = LoadFixture::new();

        let would_hold = |service: &LoadFixture, answers: f64| service.load.would_hold(&[answers], 1.0, true);
        assert_eq!([OVERLOAD, 10.0, f64::NAN].map(|answers| would_hold(&service, answers)), [true, false, false]);
        assert!(service.step(OVERLOAD, true, true));
        assert!(would_hold(&service, 10.0), "it has begun to wait");
        let _ = service.held([OVERLOAD; ROWS]);
        assert!(!would_hold(&service, OVERLOAD));
    }

    #[test]
    fn between_two_rows_load_has_fallen_by_as_much_as_such_a_row_covers() {
        let mut service = LoadFixture::new();
        assert_eq!(service.held([OVERLOAD, 10.0]), [true; 2]);

        // The average is 14.9. A whole row of 10 makes it 12.5, half of one 13.7; it has fallen below 12.7.
        let rows = [(0.5, true), (1.0, false), (1.0, true)];
        assert_eq!(rows.map(|(part, alone)| service.load.would_hold(&[10.0], part, alone)), [true, true, false]);
        assert!(!service.step(10.0, true, true), "as the row says then");
    }

    #[test]
    fn a_service_without_such_columns_or_patience_waits_for_nothing() {
        let plain = Column::new(ColumnKind::Increment, 0);
        for (column, rows) in [(plain, Some(ROWS)), (Column { load: true, ..plain }, None)] {
            let mut service = LoadFixture { load: Load::new(&[column], rows), ..LoadFixture::new() };

            service.ordinary(100);

            assert_eq!(service.held([OVERLOAD; 3]), [false; 3]);
            assert!(!service.load.would_hold(&[OVERLOAD], 1.0, true) && service.load.bytes() == 0);
        }
    }
}
