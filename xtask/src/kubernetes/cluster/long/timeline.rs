//! What was seen while the load grew: a row every few seconds, and what follows from them. Pure.

use core::fmt;
use std::time::Duration;

use super::visitors::Window;

/// Latency that is so many times the usual one is that of an overload.
const OVERLOADED: u32 = 5;
/// Up to so many times the usual one, it is as usual.
const NEAR: u32 = 3;
/// For so many rows in a row.
const ROWS: usize = 3;

/// What was seen in some seconds.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Since the begin, at the end of these seconds.
    pub at: Duration,
    /// Visitors a second who came.
    pub per_second: f64,
    /// Those who left.
    pub window: Window,
    /// Frontends that were ready.
    pub frontends: usize,
    /// The last score over γ; none: it is not known.
    pub ratio: Option<f64>,
    /// Whether there was an alarm.
    pub is_in_alarm: bool,
}

/// Rows in the order of time. The load is the usual one in the first `usual` of them.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    rows: Vec<Row>,
    usual: usize,
}

impl Timeline {
    /// Adds a row of the usual load, from which the usual latency is known.
    pub fn usual(&mut self, row: Row) {
        self.rows.push(row);
        self.usual = self.rows.len();
    }

    /// Adds a row after that.
    pub fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// What 95 % of visits took less than, usually: the middle one of the rows.
    pub fn usual_p95(&self) -> Duration {
        let mut all: Vec<_> = self.rows.iter().take(self.usual).map(|row| row.window.p95).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or_default()
    }

    /// When the latency was first far above the usual one, or visits failed, as in the next row: a single one is this
    /// machine's.
    pub fn overloaded_at(&self) -> Option<Duration> {
        let far = self.usual_p95() * OVERLOADED;
        let is_far = |row: &Row| row.window.p95 > far || row.window.failed > 0;
        let after = self.rows.get(self.usual..)?;
        after.windows(2).find(|pair| pair.iter().all(is_far)).and_then(|pair| pair.first()).map(|row| row.at)
    }

    /// From when on at least so many visitors a second were served as usual by at least so many frontends: with a
    /// latency near the usual one, for some rows in a row without a failed visit.
    pub fn served_at(&self, per_second: f64, frontends: usize) -> Option<Duration> {
        let near = self.usual_p95() * NEAR;
        let is_fine = |window: &Window| window.p95 <= near && window.failed == 0 && window.ended > 0;
        let is_served = |row: &Row| row.per_second >= per_second && row.frontends >= frontends && is_fine(&row.window);
        let after = self.rows.get(self.usual..)?;
        after.windows(ROWS).find(|rows| rows.iter().all(is_served)).and_then(|rows| rows.first()).map(|row| row.at)
    }

    /// When there first were more frontends than in the first row.
    pub fn scaled_at(&self) -> Option<Duration> {
        let first = self.rows.first()?.frontends;
        self.rows.iter().find(|row| row.frontends > first).map(|row| row.at)
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "     s  visits/s  ended  failed  median ms  p95 ms  frontends  score/γ  alarm")?;
        for Row { at, per_second, window, frontends, ratio, is_in_alarm } in &self.rows {
            let ms = |time: Duration| time.as_secs_f64() * 1e3;
            let ratio = ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
            let alarm = if *is_in_alarm { "yes" } else { "" };
            let (seconds, ended, failed) = (at.as_secs_f64(), window.ended, window.failed);
            let (median, p95) = (ms(window.median), ms(window.p95));
            write!(f, "{seconds:6.0}  {per_second:8.1}  {ended:5}  {failed:6}  {median:9.1}  {p95:6.1}  ")?;
            writeln!(f, "{frontends:9}  {ratio:>7}  {alarm}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(second: u64, per_second: f64, p95_ms: u64, frontends: usize) -> Row {
        let p95 = Duration::from_millis(p95_ms);
        let window = Window { ended: 10, failed: 0, median: p95 / 2, p95 };
        Row { at: Duration::from_secs(second), per_second, window, frontends, ratio: Some(1.5), is_in_alarm: false }
    }

    /// Usual rows with 40 ms, then those with these figures.
    fn timeline(after: &[(f64, u64, usize)]) -> Timeline {
        let mut all = Timeline::default();
        for (at, p95) in [(1, 41), (2, 40), (3, 39)] {
            all.usual(row(at, 20.0, p95, 1));
        }
        (4..).zip(after).for_each(|(at, (load, p95, frontends))| all.push(row(at, *load, *p95, *frontends)));
        all
    }

    #[test]
    fn visitors_are_served_once_latency_stays_near_the_usual_one() {
        let all = timeline(&[
            (40.0, 90, 1),
            (60.0, 900, 1),
            (60.0, 3_000, 2),
            (60.0, 100, 3),
            (60.0, 400, 3),
            (60.0, 90, 3),
            (60.0, 80, 3),
            (60.0, 70, 3),
        ]);

        let second = |s| Some(Duration::from_secs(s));
        assert_eq!(all.usual_p95(), Duration::from_millis(40));
        assert_eq!((all.overloaded_at(), all.scaled_at(), all.served_at(60.0, 2)), (second(5), second(6), second(9)));
    }

    #[test]
    fn visitors_are_not_served_because_fewer_come_or_they_fail() {
        let fewer = timeline(&[(60.0, 900, 1), (60.0, 900, 1), (20.0, 40, 1), (20.0, 40, 1), (20.0, 40, 1)]);
        assert_eq!((fewer.scaled_at(), fewer.served_at(60.0, 1)), (None, None));
        assert!(fewer.overloaded_at().is_some() && fewer.served_at(20.0, 1).is_some());

        let mut failing = timeline(&[(60.0, 900, 1), (60.0, 900, 1)]);
        for at in 6..10 {
            let mut row = row(at, 60.0, 40, 2);
            row.window.failed = 1;
            failing.push(row);
        }
        assert_eq!(failing.served_at(60.0, 2), None);
    }

    #[test]
    fn who_is_served_by_one_frontend_is_not_served_by_more() {
        let all = timeline(&[(60.0, 90, 1), (60.0, 90, 1), (60.0, 80, 1), (60.0, 90, 2), (60.0, 80, 2)]);

        let second = |s| Some(Duration::from_secs(s));
        assert_eq!((all.served_at(60.0, 1), all.scaled_at(), all.served_at(60.0, 2)), (second(4), second(7), None));
    }

    #[test]
    fn where_more_frontends_are_ready_in_time_there_is_no_overload() {
        let all = timeline(&[(40.0, 90, 1), (60.0, 900, 1), (60.0, 90, 2), (60.0, 90, 3), (60.0, 80, 3)]);

        let second = |s| Some(Duration::from_secs(s));
        assert_eq!((all.overloaded_at(), all.scaled_at(), all.served_at(60.0, 2)), (None, second(6), second(6)));
        assert_eq!(all.to_string().lines().count(), 9);
    }
}
