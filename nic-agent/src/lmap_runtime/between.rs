//! Fetches between two rows, while something seems wrong: alarms begin and end earlier by what they show.
//!
//! By rows, an alarm begins when 2 of 3 rows are over γ, and ends with the fifth quiet one. Between rows, it begins if
//! a row is over γ and the next one would be by all partial rows of half an interval in succession: a burst of a moment
//! is in one row, and must not be an alarm since it was looked at twice. It ends when every sliding row has been quiet
//! for three intervals.
//!
//! Rows, their scores, what is learnt and what subscribers get stay as they are.

use core::num::NonZeroU32;

use lmap::{BetweenRow, InterimBuffer};
use wire::control::{Episode, State};
use wire::proto::control as proto;
use wire::time::{Interval, Nanos};

use super::{LmapRuntime, SharedState, Tick};
use crate::pace::{ExtraReads, Signs};
use crate::regions::CheckOutcome;
use crate::sliding_rows::SlidingRows;

/// Intervals of quiet sliding rows that end one.
const END_INTERVALS: u32 = 3;

/// The rows between rows of an LMAP that is fetched faster.
#[derive(Debug)]
pub(crate) struct FastRows {
    rows: SlidingRows,
    buffer: InterimBuffer,
    /// Partial rows over γ in succession.
    over: u32,
    /// Quiet sliding rows in succession.
    quiet: u32,
    /// What it adds to the worker's READs.
    pub(crate) extra: ExtraReads,
}

/// Partial rows in succession that begin an alarm, of so many parts of an interval: those of half of it, two at least.
fn begin_looks(parts: u32) -> u32 {
    (parts / 2).max(2)
}

/// What a fetch between rows has shown.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Finding {
    Nothing,
    Begins(f64),
    Ends,
}

impl FastRows {
    fn restart(&mut self) {
        self.rows.restart();
        (self.over, self.quiet) = (0, 0);
    }
}

/// What of an LMAP is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// A row, with the number of intervals that were skipped before.
    pub(crate) row: Option<u64>,
    /// A row at the interval that is learnt.
    pub(crate) successor: Option<u64>,
    /// A fetch between two rows.
    pub(crate) between: bool,
}

impl Due {
    /// Whether its regions have to be fetched.
    pub(crate) fn is_any(self) -> bool {
        self.between || self.row.is_some() || self.successor.is_some()
    }
}

impl LmapRuntime {
    /// What is due at `now`; `due` has the intervals that tick.
    pub(crate) fn due(&self, due: &[(Interval, u64)], now: Nanos) -> Due {
        let missed = |of: Interval| due.iter().find(|(interval, _)| *interval == of).map(|(_, missed)| *missed);
        let row = missed(self.interval);
        let between = self
            .fast
            .as_ref()
            .filter(|_| row.is_none())
            .is_some_and(|fast| missed(fast.rows.fetch_interval()).is_some() && fast.rows.is_between(now));
        Due { row, successor: self.successor.as_ref().and_then(|of| missed(of.interval)), between }
    }

    /// The intervals at which it ticks: of its rows, of those that are learnt, of its fetches between rows.
    pub(crate) fn intervals(&self) -> [Option<Interval>; 3] {
        let successor = self.successor.as_ref().map(|successor| successor.interval);
        [Some(self.interval), successor, self.fast.as_ref().map(|fast| fast.rows.fetch_interval())]
    }

    /// How much it would add to the worker's READs if it were fetched faster; `None` if it should not be.
    pub(crate) fn wanted_extra(&self) -> Option<(NonZeroU32, ExtraReads)> {
        let fastest = self.fastest.filter(|_| self.pace.is_fast() && self.successor.is_none())?;
        let is_worth = self.regions.may_change_between_rows();
        let parts = self.interval.parts(fastest).filter(|_| is_worth)?;
        let fetches = f64::from(parts.get() - 1) / self.interval.length().as_secs_f64();
        let bytes = SlidingRows::memory_bytes(&self.columns, parts);
        Some((parts, ExtraReads { lmaps: 1, per_s: fetches * self.regions.buffers.len() as f64, bytes }))
    }

    /// Whether it is fetched between rows.
    pub(crate) fn is_fast(&self) -> bool {
        self.fast.is_some()
    }

    /// It is fetched `parts` times per interval from now on.
    pub(crate) fn go_fast(&mut self, parts: NonZeroU32, extra: ExtraReads) {
        let rows = SlidingRows::new(self.interval, parts);
        let fast = FastRows { rows, buffer: InterimBuffer::default(), over: 0, quiet: 0, extra };
        self.fast = Some(Box::new(fast));
    }

    /// It is fetched for its rows only. Returns what it had added.
    pub(crate) fn go_slow(&mut self) -> Option<ExtraReads> {
        self.fast.take().map(|fast| fast.extra)
    }

    /// After a row: what it says about the pace. A row over γ outside of an alarm begins a look at what follows it.
    pub(super) fn keep_pace(&mut self, scored: Option<lmap::Verdict>, changed: bool, alarm: bool) {
        let over = scored.map(|verdict| verdict.over);
        self.pace.row(Signs { over, alarm, missed_heartbeat: self.regions.misses_heartbeat() });
        let Some(fast) = &mut self.fast else { return };
        let threshold = self.detectors.as_ref().and_then(super::Detectors::episode_threshold);
        let is_quiet = scored.zip(threshold).is_some_and(|(verdict, threshold)| verdict.raw < threshold);
        if !is_quiet {
            fast.quiet = 0;
        }
        fast.over = 0;
        let forgets = self.regions.observations().iter().any(|observation| observation.forgets());
        if changed || forgets || (!self.in_episode && over != Some(false)) {
            fast.restart();
        }
    }

    /// A fetch between two rows. `usable`: there are values, and not all replicas are silent.
    pub(super) fn between(
        &mut self,
        tick: Tick,
        usable: bool,
        CheckOutcome { changed, news, .. }: CheckOutcome,
        shared: &mut SharedState,
    ) -> Option<f64> {
        let observations = self.regions.observations();
        self.columns.pass(observations);
        let forgets = observations.iter().any(|observation| observation.forgets());
        let fast = self.fast.as_deref_mut().filter(|_| tick.due.between)?;
        if forgets || changed || !usable || self.gap || self.last_row.is_none() {
            fast.restart();
            return None;
        }
        let detectors = self.detectors.as_mut()?;
        let row = fast.rows.read(&self.columns, self.last_row?, &self.regions.buffers, observations, tick.at)?;
        if !news {
            // Nobody has looked: that is no sign that all is well.
            return None;
        }
        let between = BetweenRow { values: row.values, before: row.before, part: row.part };
        let look = detectors.look(between, &mut fast.buffer)?;
        let finding = match (self.in_episode, row.part < 1.0) {
            (false, true) => {
                fast.over = if look.begins { fast.over + 1 } else { 0 };
                if fast.over >= begin_looks(fast.rows.parts()) { Finding::Begins(look.score) } else { Finding::Nothing }
            }
            (true, false) => {
                fast.quiet = if look.over { 0 } else { fast.quiet + 1 };
                let enough = END_INTERVALS * (fast.rows.parts() - 1);
                if fast.quiet >= enough { Finding::Ends } else { Finding::Nothing }
            }
            _ => Finding::Nothing,
        };
        match finding {
            Finding::Nothing => None,
            Finding::Begins(score) => {
                self.in_episode = detectors.begin_episode();
                (fast.over, fast.quiet) = (0, 0);
                shared.explain(detectors);
                shared.name_replicas(&self.columns);
                shared.early_alarms += u64::from(self.in_episode);
                self.in_episode.then_some(score)
            }
            Finding::Ends => {
                detectors.end_episode();
                (self.in_episode, fast.quiet) = (false, 0);
                shared.early_ends += 1;
                None
            }
        }
    }

    /// The verdict of a fetch between two rows, if there is something to say: the beginning or the end of an alarm, or
    /// another state. `began`: the score with which an alarm of the detector began.
    pub(super) fn verdict_between(
        &mut self,
        began: Option<f64>,
        (state, episode, changed): (State, Episode, bool),
        shared: &SharedState,
    ) -> Option<proto::Verdict> {
        let turns = matches!(episode, Episode::Began | Episode::Ended);
        if let Some(score) = began {
            self.score = score;
        }
        (turns || changed).then(|| self.verdict(state, episode, None, began.is_some(), shared))
    }
}
