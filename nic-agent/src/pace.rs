//! When an LMAP is fetched faster than its rows are due, and when no longer. Pure.
//!
//! | what a row says | fetched |
//! | --- | --- |
//! | it is above γ, or a heartbeat is late by half of its period | faster |
//! | an alarm is on | faster, for 60 rows; then again once rows are below γ: its end may be near |
//! | nothing any more, after a suspicion that was none | for rows only, at once |
//! | nothing any more, after an alarm | for rows only, after 5 such rows |

/// Rows of an alarm for which it is fetched faster from its beginning.
const ALARM_ROWS: u32 = 60;
/// Calm rows after an alarm before it is fetched for its rows only.
const CALM_ROWS: u32 = 5;

/// Most memory of the columns between rows of all LMAPs of a worker.
pub(crate) const FAST_BYTES: u64 = 16 << 20;

/// What a row says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Signs {
    /// Whether its score is above γ; `None` if it was not judged.
    pub(crate) over: Option<bool>,
    /// Whether an alarm is on, of its detector or because a replica is silent.
    pub(crate) alarm: bool,
    /// Whether a heartbeat of a replica is overdue, and it is not called silent yet.
    pub(crate) missed_heartbeat: bool,
}

/// The pace of one LMAP.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    is_fast: bool,
    /// Rows of the alarm.
    alarm_rows: u32,
    /// Rows without signs that are left before it slows down.
    calm_left: u32,
}

impl Pace {
    /// Takes the signs of the next row.
    pub(crate) fn row(&mut self, signs: Signs) {
        self.alarm_rows = if signs.alarm { self.alarm_rows.saturating_add(1) } else { 0 };
        let is_long = self.alarm_rows > ALARM_ROWS;
        let suspicious = if signs.alarm {
            !is_long || signs.over == Some(false)
        } else {
            signs.over == Some(true) || signs.missed_heartbeat
        };
        if suspicious {
            self.is_fast = true;
            self.calm_left = if signs.alarm { CALM_ROWS } else { self.calm_left.max(1) };
        } else {
            self.calm_left = if is_long { 0 } else { self.calm_left.saturating_sub(1) };
            self.is_fast = self.calm_left > 0;
        }
    }

    /// Whether it is worth to be fetched faster.
    pub(crate) fn is_fast(self) -> bool {
        self.is_fast
    }
}

/// Extra READs of all LMAPs of a worker that are fetched faster, and the memory of their columns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExtraReads {
    /// Number of LMAPs.
    pub(crate) lmaps: usize,
    /// READs per second beyond those for rows.
    pub(crate) per_s: f64,
    pub(crate) bytes: u64,
}

impl ExtraReads {
    /// Whether `more` fit within `reads_per_s` and `bytes`. Then they count.
    pub(crate) fn admit(&mut self, more: Self, reads_per_s: f64, bytes: u64) -> bool {
        let sum = Self {
            lmaps: self.lmaps + more.lmaps,
            per_s: self.per_s + more.per_s,
            bytes: self.bytes.saturating_add(more.bytes),
        };
        let fits = sum.per_s <= reads_per_s && sum.bytes <= bytes;
        if fits {
            *self = sum;
        }
        fits
    }

    /// These do not count any more.
    pub(crate) fn release(&mut self, less: Self) {
        self.lmaps = self.lmaps.saturating_sub(less.lmaps);
        self.per_s = if self.lmaps == 0 { 0.0 } else { (self.per_s - less.per_s).max(0.0) };
        self.bytes = self.bytes.saturating_sub(less.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Signs = Signs { over: Some(false), alarm: false, missed_heartbeat: false };
    const OVER: Signs = Signs { over: Some(true), ..CALM };
    const ALARM: Signs = Signs { alarm: true, ..OVER };

    fn run(pace: &mut Pace, signs: &[Signs]) -> Vec<bool> {
        let step = |signs: &Signs| {
            pace.row(*signs);
            pace.is_fast()
        };
        signs.iter().map(step).collect()
    }

    #[test]
    fn a_suspicion_that_was_none_costs_one_interval() {
        assert_eq!(run(&mut Pace::default(), &[CALM, OVER, CALM, CALM]), [false, true, false, false]);
        let missed = Signs { missed_heartbeat: true, ..CALM };
        assert_eq!(run(&mut Pace::default(), &[missed, CALM]), [true, false]);
    }

    #[test]
    fn after_an_alarm_it_stays_fast_for_five_calm_rows_and_a_flicker_does_not_switch() {
        let mut pace = Pace::default();
        assert_eq!(run(&mut pace, &[OVER, ALARM, ALARM]), [true; 3]);

        assert_eq!(run(&mut pace, &[CALM, CALM, OVER, CALM]), [true; 4]);
        assert_eq!(run(&mut pace, &[CALM, CALM, CALM]), [true, false, false]);
    }

    #[test]
    fn of_a_long_alarm_only_beginning_and_end_are_fetched_faster() {
        let mut pace = Pace::default();
        assert_eq!(run(&mut pace, &[ALARM; ALARM_ROWS as usize]), [true; ALARM_ROWS as usize]);

        assert_eq!(run(&mut pace, &[ALARM, ALARM]), [false, false]);
        let silent = Signs { over: None, ..ALARM };
        assert_eq!(run(&mut pace, &[silent, silent]), [false, false]);
        let quiet = Signs { over: Some(false), ..ALARM };
        assert_eq!(run(&mut pace, &[quiet, ALARM, quiet]), [true, false, true]);
        assert_eq!(run(&mut pace, &[CALM; 5]), [true, true, true, true, false]);
    }

    #[test]
    fn extra_reads_stay_within_both_bounds() {
        let one = ExtraReads { lmaps: 1, per_s: 9.0, bytes: 100 };
        let mut all = ExtraReads::default();

        assert!(all.admit(one, 20.0, 1_000) && all.admit(one, 20.0, 1_000));
        assert!(!all.admit(one, 20.0, 1_000) && !all.admit(one, 100.0, 250));
        assert_eq!((all.lmaps, all.bytes), (2, 200));

        all.release(one);
        all.release(one);
        assert!(all.per_s == 0.0 && all.bytes == 0);
    }
}
