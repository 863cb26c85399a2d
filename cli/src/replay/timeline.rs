//! Runs a table through a detector, row by row. Learning jobs run in place. Pure.

use lmap::{Detector, Episode, Increments, Reason, RowError};

use evaluation::columns::Columns;
use evaluation::table::{Table, follows};

/// The most top metrics kept per episode.
const TOP: usize = 5;

/// One episode: consecutive rows of one alarm. Rows are counted from 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Alarm {
    /// The first row of the episode.
    pub first: usize,
    /// The last row at or over γ.
    pub last: usize,
    /// Whether the episode had not ended at the end of the file.
    pub open: bool,
    /// Whether it began within another one, which it ended: its first row says what is new, and is its peak.
    pub within: bool,
    /// The row with the largest score.
    pub peak: usize,
    /// The largest score.
    pub score: f64,
    /// γ at the peak.
    pub gamma: f64,
    /// The metrics that contribute most to the peak, largest share first.
    pub reasons: Vec<Reason>,
    /// Shares of the groups in the peak as (index into [`Columns::groups`], share), largest first.
    pub groups: Vec<(u16, f64)>,
}

/// Scores, thresholds and episodes of all rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// The smoothed score of each row; NaN while learning.
    pub scores: Vec<f64>,
    /// The threshold γ at each row; NaN while learning.
    pub gammas: Vec<f64>,
    /// The first row that was judged by an armed detector; `None` if it never armed.
    pub armed: Option<usize>,
    /// Rows after which a new fit was installed.
    pub fits: Vec<usize>,
    /// Number of gaps in time.
    pub gaps: usize,
    /// Number of counter resets: values below the previous one.
    pub resets: u64,
    /// Rows at or over γ after arming.
    pub over: usize,
    /// The episodes in order.
    pub alarms: Vec<Alarm>,
}

/// Runs every row of `table` through `detector`. `progress` gets the number of the row, every 256 rows.
///
/// # Errors
///
/// [`RowError`] if the detector and the table have different numbers of columns.
pub fn run(
    table: &Table,
    columns: &Columns,
    interval: f64,
    detector: &mut Detector,
    mut progress: impl FnMut(usize),
) -> Result<Timeline, RowError> {
    let mut timeline = Timeline::default();
    let mut increments = Increments::<f64>::new(columns.counters.len());
    let mut counters = vec![0.0; columns.counters.len()];
    let mut added = counters.clone();
    let mut row = vec![0.0; table.metrics.len()];
    for (number, values) in table.rows().enumerate() {
        if is_gap(table, number, interval) {
            timeline.gaps += 1;
            increments.gap();
            detector.gap();
        }
        row.copy_from_slice(values);
        for (counter, &place) in counters.iter_mut().zip(&columns.counters) {
            *counter = values[place];
        }
        increments.step(&counters, &mut added)?;
        for (&place, &added) in columns.counters.iter().zip(&added) {
            row[place] = added;
        }
        timeline.step(number, &row, detector)?;
        if number % 256 == 0 {
            progress(number);
        }
    }
    timeline.resets = increments.resets();
    Ok(timeline)
}

fn is_gap(table: &Table, number: usize, interval: f64) -> bool {
    let Some(times) = &table.times else { return false };
    let Some(before) = number.checked_sub(1) else { return false };
    !follows(times[number] - times[before], interval)
}

impl Timeline {
    fn step(&mut self, number: usize, row: &[f64], detector: &mut Detector) -> Result<(), RowError> {
        let verdict = detector.score(row)?;
        let learning = verdict.gamma.is_none();
        self.scores.push(if learning { f64::NAN } else { verdict.score });
        self.gammas.push(verdict.gamma.unwrap_or(f64::NAN));
        if verdict.state.judges() {
            self.armed.get_or_insert(number);
            self.over += usize::from(verdict.over);
        }
        match verdict.episode {
            Episode::Quiet | Episode::On => {}
            Episode::Began => {
                let within = self.end_alarm();
                self.alarms.push(Alarm {
                    first: number,
                    last: number,
                    open: true,
                    within,
                    peak: number,
                    score: f64::NEG_INFINITY,
                    gamma: f64::NAN,
                    reasons: Vec::new(),
                    groups: Vec::new(),
                });
            }
            Episode::Ended => _ = self.end_alarm(),
        }
        if let Some(alarm) = self.alarms.last_mut().filter(|alarm| alarm.open && verdict.over) {
            alarm.last = number;
            if verdict.score > alarm.score && !(alarm.within && alarm.first < number) {
                (alarm.peak, alarm.score, alarm.gamma) = (number, verdict.score, verdict.gamma.unwrap_or(f64::NAN));
                detector.explain(TOP, &mut alarm.reasons);
                detector.group_shares(&mut alarm.groups);
                alarm.groups.sort_by(|a, b| b.1.total_cmp(&a.1));
            }
        }
        if let Some(job) = detector.learn() {
            let fits = detector.counts().fits;
            let _ = detector.install(job.run()); // runs in place, so that it is never stale; the counts include refused fits
            if detector.counts().fits > fits {
                self.fits.push(number);
            }
        }
        Ok(())
    }

    /// Ends the alarm that is on. Returns whether one was.
    fn end_alarm(&mut self) -> bool {
        self.alarms.last_mut().is_some_and(|alarm| core::mem::take(&mut alarm.open))
    }
}
