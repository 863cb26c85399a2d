//! Series of one slot, which are counters and gauges and nearly all series. They are read run by run.
//!
//! A *run* is all series of one region that are read in the same way and were new in the same observations. State that
//! they share (the time of the last observation, the writes of the region) is stored once for each run. State of each
//! series is in flat arrays, 16 to 20 bytes for a counter. A run is *exact* if each of its series was new at its last
//! observation. Then the next observation is a loop over slots without branches, unless one of the slots is unusual.
//! All other cases are in cold functions: a counter that was reset, a gauge that is not finite, an observation without
//! values, a late observation.
//!
//! Values are stored in *cells*: first the row, in which each column with one series has its own cell; then one cell
//! for each series that is aggregated with others.

use std::collections::BTreeMap;

use lmap::prefetch;
use transport::RegionBuffer;
use wire::id::{MetricId, ReplicaId};
use wire::metric::TickDivider;
use wire::time::Nanos;

use super::kernels;
use crate::observation::{Observation, ObservationTime, SeriesLocation, ValueTime, is_due};

/// The age of a series that was never read, or whose value was discarded.
const NEVER: u32 = u32::MAX;

/// The kind of a slot, which decides how it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SlotKind {
    Counter,
    UpDownCounter,
    Gauge,
}

/// The state of a series between two observations.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeriesState {
    /// Time and value of a counter at its last observation.
    seen: Option<(Nanos, u64)>,
    /// Heartbeat word of its region at the last observation, if the region is sampled.
    written: Option<u64>,
    last: f64,
    /// Observations since `last` was read, or [`NEVER`].
    age: u32,
}

impl SeriesState {
    pub(super) const EMPTY: Self = Self { seen: None, written: None, last: f64::NAN, age: NEVER };
}

/// One series in one replica.
#[derive(Clone, Copy, Debug)]
pub(super) struct Series {
    pub(super) metric: MetricId,
    pub(super) location: SeriesLocation,
    /// Index of its region.
    pub(super) region: usize,
    /// Its place in the region's buffer.
    pub(super) word: u32,
    pub(super) kind: SlotKind,
    pub(super) every: TickDivider,
    /// Its column, if the column has no other series; `None` if its value is aggregated with others.
    pub(super) column: Option<usize>,
    pub(super) state: SeriesState,
}

impl Series {
    /// The key by which series are grouped into runs.
    fn alike(&self) -> impl Ord + use<> {
        let seen = self.state.seen.map(|(at, _)| at);
        (self.kind, self.column.is_none(), self.region, self.every, self.state.written, seen)
    }

    fn key(&self) -> SeriesKey {
        (self.metric, self.location, self.kind)
    }
}

/// Identity of a series: its metric, its location and its kind.
pub(super) type SeriesKey = (MetricId, SeriesLocation, SlotKind);

#[derive(Clone, Debug)]
struct Run {
    region: usize,
    kind: SlotKind,
    every: TickDivider,
    /// Observations for which old values stay in their cells.
    max_age: u32,
    /// Shared state of its series, as in [`SeriesState`].
    written: Option<u64>,
    seen: Option<Nanos>,
    /// Fewest words that the region has to have.
    words: usize,
    first: usize,
    end: usize,
    stretches: core::ops::Range<usize>,
    /// Whether every age is 0; then the last values are in the cells, not in `held`.
    exact: bool,
}

/// Series that are neighbours both in the region and among the cells.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    word: u32,
    cell: u32,
    series: u32,
    count: u32,
}

impl Stretch {
    fn words(self, words: &[u64]) -> &[u64] {
        &words[self.word as usize..][..self.count as usize]
    }

    fn series(self) -> core::ops::Range<usize> {
        self.series as usize..(self.series + self.count) as usize
    }

    fn cells(self) -> core::ops::Range<usize> {
        self.cell as usize..(self.cell + self.count) as usize
    }
}

/// All series of one slot of an LMAP.
#[derive(Clone, Debug)]
pub(super) struct Scalars {
    runs: Vec<Run>,
    stretches: Vec<Stretch>,
    states: SeriesStates,
    keys: Vec<SeriesKey>,
    cells: Vec<f64>,
    columns: usize,
}

/// State of each series, in the order of runs.
#[derive(Clone, Debug)]
struct SeriesStates {
    /// Values of counters at the last observation. Counters come first; other series have no entry.
    before: Vec<u64>,
    /// Last values, unless the run is exact.
    held: Vec<f64>,
    /// Observations since then.
    ages: Vec<u32>,
}

impl Scalars {
    /// Series for a row of `columns`. A value that is aggregated with others counts for `observations_held`
    /// observations after its own.
    pub(super) fn new(mut all: Vec<Series>, columns: usize, observations_held: u32) -> Self {
        all.sort_by_key(|series| (series.alike(), series.location.first, series.metric));
        let counters = all.partition_point(|series| series.kind == SlotKind::Counter);
        let mut scalars = Self {
            runs: Vec::new(),
            stretches: Vec::new(),
            states: SeriesStates {
                before: all[..counters].iter().map(|s| s.state.seen.map_or(0, |(_, before)| before)).collect(),
                held: all.iter().map(|series| series.state.last).collect(),
                ages: all.iter().map(|series| series.state.age).collect(),
            },
            keys: all.iter().map(|series| (series.metric, series.location, series.kind)).collect(),
            cells: vec![f64::NAN; columns],
            columns,
        };
        for run in all.chunk_by(|a, b| a.alike() == b.alike()) {
            scalars.add_run(run, observations_held);
        }
        scalars
    }

    fn add_run(&mut self, run: &[Series], observations_held: u32) {
        let Some(head) = run.first() else { return };
        let first = self.runs.last().map_or(0, |run| run.end);
        let before = self.stretches.len();
        for (at, series) in (first..).zip(run) {
            let cell = series.column.unwrap_or(self.cells.len());
            if series.column.is_none() {
                self.cells.push(f64::NAN);
            }
            let one = Stretch { word: series.word, cell: cell as u32, series: at as u32, count: 1 };
            match self.stretches[before..].last_mut() {
                Some(last) if last.word + last.count == one.word && last.cell + last.count == one.cell => {
                    last.count += 1;
                }
                _ => self.stretches.push(one),
            }
        }
        self.runs.push(Run {
            region: head.region,
            kind: head.kind,
            every: head.every,
            max_age: if head.column.is_some() { 0 } else { observations_held.min(NEVER - 1) },
            written: head.state.written,
            seen: head.state.seen.map(|(at, _)| at),
            words: run.last().map_or(0, |last| last.word as usize + 1),
            first,
            end: first + run.len(),
            stretches: before..self.stretches.len(),
            exact: false,
        });
    }

    /// Reads everything that is due in tick number `ticks`. Returns whether every series has a new value. Never
    /// allocates.
    pub(super) fn observe(
        &mut self,
        buffers: &[RegionBuffer],
        observations: &[Observation],
        time: ObservationTime,
        ticks: u64,
    ) -> bool {
        let Self { runs, stretches, states, cells, .. } = self;
        let mut all_new = true;
        for run in runs.iter_mut().filter(|run| is_due(run.every, ticks)) {
            let observation = observations.get(run.region).copied().unwrap_or(Observation::Unread);
            let words = buffers.get(run.region).map_or(&[][..], |buffer| &buffer.words);
            let new = match observation {
                Observation::Fresh => true,
                Observation::Sampled(written) | Observation::Timed(written) => {
                    run.written.replace(written) != Some(written)
                }
                Observation::Unsampled | Observation::Unread | Observation::Discarded | Observation::Silent => false,
            };
            let (stretches, time) = (&stretches[run.stretches.clone()], ValueTime::of(observation, time));
            if !(new && run.words <= words.len()) {
                run.pass(observation, stretches, states, cells);
            } else if !run.is_usual(words, stretches, states, time) {
                run.observe_each(words, stretches, states, cells, time);
            } else {
                run.observe(words, stretches, states, cells);
                run.seen = Some(time.at());
            }
            all_new &= run.exact;
        }
        all_new
    }

    /// Asks for the memory of the next tick: where the first series are read, and what they were.
    pub(super) fn prefetch(&self) {
        const LINES: usize = 8;
        prefetch(&self.runs, LINES);
        prefetch(&self.stretches, LINES);
        prefetch(&self.states.before, LINES);
        prefetch(&self.cells, LINES);
    }

    /// A fetch at which no row is due.
    pub(super) fn pass(&mut self, observations: &[Observation]) {
        let Self { runs, stretches, states, cells, .. } = self;
        for run in runs {
            let observation = observations.get(run.region).copied().unwrap_or(Observation::Unread);
            if observation.forgets() {
                run.pass(observation, &stretches[run.stretches.clone()], states, cells);
            }
        }
    }

    /// Memory in bytes, about.
    pub(super) fn memory_bytes(&self) -> usize {
        let SeriesStates { before, held, ages } = &self.states;
        let states = size_of_val(&before[..]) + size_of_val(&held[..]) + size_of_val(&ages[..]);
        let places = size_of_val(&self.runs[..]) + size_of_val(&self.stretches[..]) + size_of_val(&self.keys[..]);
        states + places + size_of_val(&self.cells[..])
    }

    /// The row of the last tick.
    pub(super) fn row(&self) -> &[f64] {
        &self.cells[..self.columns]
    }

    pub(super) fn row_mut(&mut self) -> &mut [f64] {
        &mut self.cells[..self.columns]
    }

    /// The value in a cell; NaN if it is too old.
    pub(super) fn cell(&self, cell: u32) -> f64 {
        self.cells[cell as usize]
    }

    /// The replica of a series.
    pub(super) fn replica(&self, series: u32) -> ReplicaId {
        let (_, location, _) = self.keys[series as usize];
        location.replica
    }

    /// The replica of a column that has one series only.
    pub(super) fn replica_of_column(&self, column: usize) -> Option<ReplicaId> {
        let of_column = self.all().find(|(_, _, cell)| *cell as usize == column);
        of_column.map(|((_, location, _), ..)| location.replica)
    }

    /// Whether the last observation of a series brought a new value.
    pub(super) fn is_new(&self, series: u32) -> bool {
        self.states.ages[series as usize] == 0
    }

    /// Every series, with its index and its cell.
    pub(super) fn all(&self) -> impl Iterator<Item = (SeriesKey, u32, u32)> {
        let of = |stretch: Stretch| (0..stretch.count).map(move |at| (stretch.series + at, stretch.cell + at));
        let all = self.stretches.iter().flat_map(move |stretch| of(*stretch));
        all.map(|(series, cell)| (self.keys[series as usize], series, cell))
    }

    /// The number of exact runs, and the number of all runs.
    #[cfg(test)]
    pub(super) fn exact_runs(&self) -> (usize, usize) {
        (self.runs.iter().filter(|run| run.exact).count(), self.runs.len())
    }

    /// Continues where `old` was, with the series whose location has not changed.
    pub(super) fn taking_over(&self, old: &Self, observations_held: u32) -> Self {
        let known: BTreeMap<_, _> = old.series().map(|series| (series.key(), series.state)).collect();
        let remembered =
            |series: Series| Series { state: *known.get(&series.key()).unwrap_or(&series.state), ..series };
        Self::new(self.series().map(remembered).collect(), self.columns, observations_held)
    }

    /// Every series, with its current state.
    fn series(&self) -> impl Iterator<Item = Series> {
        let runs = self.runs.iter().flat_map(|run| self.stretches[run.stretches.clone()].iter().map(move |s| (run, s)));
        let each = runs.flat_map(|(run, stretch)| {
            stretch.series().zip(stretch.cells()).zip(stretch.word..).map(move |at| (run, at))
        });
        each.map(|(run, ((series, cell), word))| {
            let (metric, location, kind) = self.keys[series];
            let before = self.states.before.get(series).copied();
            let last = if run.exact { self.cells[cell] } else { self.states.held[series] };
            let (seen, written, age) = (run.seen.zip(before), run.written, self.states.ages[series]);
            let state = SeriesState { seen, written, last, age };
            let column = Some(cell).filter(|cell| *cell < self.columns);
            Series { metric, location, region: run.region, word, kind, every: run.every, column, state }
        })
    }
}

impl Run {
    /// Whether the run can be read by the fast path: every slot has a usual value.
    fn is_usual(&self, words: &[u64], stretches: &[Stretch], states: &SeriesStates, time: ValueTime) -> bool {
        let mut each = stretches.iter().map(|stretch| (stretch.words(words), stretch.series()));
        self.exact
            && match self.kind {
                SlotKind::Counter => {
                    let growth = |(words, series)| kernels::growth(words, &states.before[series]);
                    let in_time = self.seen.is_some_and(|then| time.intervals_since(then) == Some(1.0));
                    in_time && kernels::is_usual(each.map(growth).fold(0, core::ops::BitOr::bitor))
                }
                SlotKind::UpDownCounter => time.tells_moves(self.seen),
                SlotKind::Gauge => time.tells_moves(self.seen) && each.all(|(words, _)| kernels::are_finite(words)),
            }
    }

    /// The fast path: reads a run that is exact and [usual](Self::is_usual).
    fn observe(&self, words: &[u64], stretches: &[Stretch], states: &mut SeriesStates, cells: &mut [f64]) {
        for stretch in stretches {
            let (words, out) = (stretch.words(words), &mut cells[stretch.cells()]);
            match self.kind {
                SlotKind::Counter => kernels::increments(words, &mut states.before[stretch.series()], out),
                SlotKind::UpDownCounter => kernels::steps(words, out),
                SlotKind::Gauge => kernels::gauges(words, out),
            }
        }
    }

    /// The slow path: reads one series after the other.
    #[cold]
    fn observe_each(
        &mut self,
        words: &[u64],
        stretches: &[Stretch],
        states: &mut SeriesStates,
        cells: &mut [f64],
        time: ValueTime,
    ) {
        self.hold(stretches, states, cells);
        let then = self.seen.replace(time.at());
        let (intervals, moves) = (then.and_then(|then| time.intervals_since(then)), time.tells_moves(then));
        let mut exact = true;
        for stretch in stretches {
            for ((&word, series), cell) in stretch.words(words).iter().zip(stretch.series()).zip(stretch.cells()) {
                let value = match self.kind {
                    SlotKind::Gauge => Some(f64::from_bits(word)).filter(|value| moves && value.is_finite()),
                    SlotKind::UpDownCounter => Some(word.cast_signed() as f64).filter(|_| moves),
                    SlotKind::Counter => {
                        let before = core::mem::replace(&mut states.before[series], word);
                        let added = word.checked_sub(before);
                        intervals.zip(added).map(|(intervals, added)| added as f64 / intervals)
                    }
                };
                states.next(series, value);
                cells[cell] = states.value(series, self.max_age);
                exact &= value.is_some();
            }
        }
        self.exact = exact;
    }

    /// An observation without new values.
    #[cold]
    fn pass(&mut self, observation: Observation, stretches: &[Stretch], states: &mut SeriesStates, cells: &mut [f64]) {
        self.hold(stretches, states, cells);
        if observation.forgets() {
            self.seen = None;
        }
        if observation == Observation::Silent {
            states.ages[self.first..self.end].fill(NEVER);
        }
        for stretch in stretches {
            for (series, cell) in stretch.series().zip(stretch.cells()) {
                states.next(series, None);
                cells[cell] = states.value(series, self.max_age);
            }
        }
    }

    /// Copies the last values from the cells of an exact run, which may not be exact any more.
    fn hold(&mut self, stretches: &[Stretch], states: &mut SeriesStates, cells: &[f64]) {
        if core::mem::take(&mut self.exact) {
            for stretch in stretches {
                states.held[stretch.series()].copy_from_slice(&cells[stretch.cells()]);
            }
        }
    }
}

impl SeriesStates {
    /// Takes the observed `value` of a series.
    fn next(&mut self, series: usize, value: Option<f64>) {
        let age = &mut self.ages[series];
        match value {
            Some(value) => (*age, self.held[series]) = (0, value),
            None if *age == NEVER => {}
            None => *age = (*age + 1).min(NEVER - 1),
        }
    }

    /// The last value, if it is at most `observations` observations old.
    fn value(&self, series: usize, observations: u32) -> f64 {
        if self.ages[series] <= observations { self.held[series] } else { f64::NAN }
    }
}
