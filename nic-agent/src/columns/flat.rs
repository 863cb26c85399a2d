//! Series of one slot each, counters and gauges, which nearly all are: read run by run.
//!
//! A *run* is all series of one region that are read alike, and have been new with the same looks. What is remembered of it as a whole (when
//! it was looked at, how often its region had been written) is remembered once, and what is remembered of each series lies in flat arrays, 16
//! to 20 bytes for a counter. A run is *exact* when every series of it was new at its last look: then the next look is a loop over slots
//! without a branch, unless one of the slots is unusual. Whatever else may be is in cold functions: a counter that was reset, a gauge that is
//! no number, a look that brought nothing, one that comes later than it should.
//!
//! Values lie in *cells*: first the row, where every column that has one series has its own, then one for each series that others are put
//! together with.

use std::collections::BTreeMap;

use transport::RegionBuffer;
use wire::id::MetricId;
use wire::metric::Every;
use wire::time::Nanos;

use super::kernels;
use crate::reading::{Look, Moment, Place, is_due};

/// An age: nothing was ever read, or it is forgotten.
const NEVER: u32 = u32::MAX;

/// How a slot is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Slots {
    Counter,
    UpDownCounter,
    Gauge,
}

/// What is remembered of a series from one look to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// When a counter was looked at, and what it was then.
    seen: Option<(Nanos, u64)>,
    /// How often its region had been written at the last look, if it is sampled.
    written: Option<u64>,
    last: f64,
    /// Looks since `last` was read, or [`NEVER`].
    age: u32,
}

impl Memory {
    pub(super) const NOTHING: Self = Self { seen: None, written: None, last: f64::NAN, age: NEVER };
}

/// One series in one replica.
#[derive(Clone, Copy, Debug)]
pub(super) struct Series {
    pub(super) metric: MetricId,
    pub(super) place: Place,
    /// Which of the LMAP's regions.
    pub(super) region: usize,
    pub(super) slots: Slots,
    pub(super) every: Every,
    /// Its column, if that has no other series; else its value is put together with others'.
    pub(super) column: Option<usize>,
    pub(super) memory: Memory,
}

impl Series {
    /// Series with the same are read in one run.
    fn alike(&self) -> impl Ord + use<> {
        let seen = self.memory.seen.map(|(at, _)| at);
        (self.slots, self.column.is_none(), self.region, self.every, self.memory.written, seen)
    }

    fn name(&self) -> Name {
        (self.metric, self.place, self.slots)
    }
}

/// Where a series is found by its metric and its place.
pub(super) type Name = (MetricId, Place, Slots);

#[derive(Debug)]
struct Run {
    region: usize,
    slots: Slots,
    every: Every,
    /// Old values stand in their cells for so many looks.
    patience: u32,
    /// What all of its series have in [`Memory`].
    written: Option<u64>,
    seen: Option<Nanos>,
    /// So many words the region has to have.
    words: usize,
    first: usize,
    end: usize,
    stretches: core::ops::Range<usize>,
    /// Every age is 0, and the last values are in their cells, not in `held`.
    exact: bool,
}

/// Neighbours: in the region, and among cells.
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

/// All of an LMAP's series of one slot.
#[derive(Debug)]
pub(super) struct Flat {
    runs: Vec<Run>,
    stretches: Vec<Stretch>,
    memories: Memories,
    names: Vec<Name>,
    cells: Vec<f64>,
    columns: usize,
}

/// By series, in the order of runs.
#[derive(Debug)]
struct Memories {
    /// What counters were at the last look. They come before all others, which have none.
    before: Vec<u64>,
    /// Last values, unless the run is exact.
    held: Vec<f64>,
    /// Looks since then.
    ages: Vec<u32>,
}

impl Flat {
    /// Series under a row of `columns`; a value that is put together with others' counts for `looks_held` looks after its own.
    pub(super) fn new(mut all: Vec<Series>, columns: usize, looks_held: u32) -> Self {
        all.sort_by_key(|series| (series.alike(), series.place.first, series.metric));
        let counters = all.partition_point(|series| series.slots == Slots::Counter);
        let mut flat = Self {
            runs: Vec::new(),
            stretches: Vec::new(),
            memories: Memories {
                before: all[..counters].iter().map(|s| s.memory.seen.map_or(0, |(_, before)| before)).collect(),
                held: all.iter().map(|series| series.memory.last).collect(),
                ages: all.iter().map(|series| series.memory.age).collect(),
            },
            names: all.iter().map(|series| (series.metric, series.place, series.slots)).collect(),
            cells: vec![f64::NAN; columns],
            columns,
        };
        for run in all.chunk_by(|a, b| a.alike() == b.alike()) {
            flat.add_run(run, looks_held);
        }
        flat
    }

    fn add_run(&mut self, run: &[Series], looks_held: u32) {
        let Some(head) = run.first() else { return };
        let first = self.runs.last().map_or(0, |run| run.end);
        let before = self.stretches.len();
        for (at, series) in (first..).zip(run) {
            let cell = series.column.unwrap_or(self.cells.len());
            if series.column.is_none() {
                self.cells.push(f64::NAN);
            }
            let one =
                Stretch { word: series.place.first.word() as u32, cell: cell as u32, series: at as u32, count: 1 };
            match self.stretches[before..].last_mut() {
                Some(last) if last.word + last.count == one.word && last.cell + last.count == one.cell => {
                    last.count += 1;
                }
                _ => self.stretches.push(one),
            }
        }
        self.runs.push(Run {
            region: head.region,
            slots: head.slots,
            every: head.every,
            patience: if head.column.is_some() { 0 } else { looks_held.min(NEVER - 1) },
            written: head.memory.written,
            seen: head.memory.seen.map(|(at, _)| at),
            words: run.last().map_or(0, |last| last.place.first.word() + 1),
            first,
            end: first + run.len(),
            stretches: before..self.stretches.len(),
            exact: false,
        });
    }

    /// One look at everything that is due in tick number `ticks`. Returns whether every series of it had a new value. Never allocates.
    pub(super) fn look(&mut self, buffers: &[RegionBuffer], looks: &[Look], moment: Moment, ticks: u64) -> bool {
        let Self { runs, stretches, memories, cells, .. } = self;
        let mut all_new = true;
        for run in runs.iter_mut().filter(|run| is_due(run.every, ticks)) {
            let look = looks.get(run.region).copied().unwrap_or(Look::Unread);
            let words = buffers.get(run.region).map_or(&[][..], |buffer| &buffer.words);
            let new = match look {
                Look::Fresh => true,
                Look::Sampled(written) => run.written.replace(written) != Some(written),
                Look::Unread | Look::Discarded | Look::Silent => false,
            };
            let stretches = &stretches[run.stretches.clone()];
            if !(new && run.words <= words.len()) {
                run.pass(look, stretches, memories, cells);
            } else if !run.is_usual(words, stretches, memories, moment) {
                run.look_closely(words, stretches, memories, cells, moment);
            } else {
                run.look(words, stretches, memories, cells);
                run.seen = Some(moment.at);
            }
            all_new &= run.exact;
        }
        all_new
    }

    /// The row.
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

    /// Whether the last look at a series brought a new value.
    pub(super) fn is_new(&self, series: u32) -> bool {
        self.memories.ages[series as usize] == 0
    }

    /// Every series, with its number and its cell.
    pub(super) fn all(&self) -> impl Iterator<Item = (Name, u32, u32)> {
        let of = |stretch: Stretch| (0..stretch.count).map(move |at| (stretch.series + at, stretch.cell + at));
        let all = self.stretches.iter().flat_map(move |stretch| of(*stretch));
        all.map(|(series, cell)| (self.names[series as usize], series, cell))
    }

    /// How many runs are exact, of how many.
    #[cfg(test)]
    pub(super) fn exact_runs(&self) -> (usize, usize) {
        (self.runs.iter().filter(|run| run.exact).count(), self.runs.len())
    }

    /// Goes on where `old` has been, with the series that are where they were.
    pub(super) fn taking_over(&self, old: &Self, looks_held: u32) -> Self {
        let known: BTreeMap<_, _> = old.series().map(|series| (series.name(), series.memory)).collect();
        let remembered =
            |series: Series| Series { memory: *known.get(&series.name()).unwrap_or(&series.memory), ..series };
        Self::new(self.series().map(remembered).collect(), self.columns, looks_held)
    }

    /// Every series, as it stands.
    fn series(&self) -> impl Iterator<Item = Series> {
        let runs = self.runs.iter().flat_map(|run| self.stretches[run.stretches.clone()].iter().map(move |s| (run, s)));
        let each = runs.flat_map(|(run, stretch)| stretch.series().zip(stretch.cells()).map(move |at| (run, at)));
        each.map(|(run, (series, cell))| {
            let (metric, place, slots) = self.names[series];
            let before = self.memories.before.get(series).copied();
            let last = if run.exact { self.cells[cell] } else { self.memories.held[series] };
            let (seen, written, age) = (run.seen.zip(before), run.written, self.memories.ages[series]);
            let memory = Memory { seen, written, last, age };
            let column = Some(cell).filter(|cell| *cell < self.columns);
            Series { metric, place, region: run.region, slots, every: run.every, column, memory }
        })
    }
}

impl Run {
    /// Whether nothing of what follows is anything but a value per slot.
    fn is_usual(&self, words: &[u64], stretches: &[Stretch], memories: &Memories, moment: Moment) -> bool {
        let mut each = stretches.iter().map(|stretch| (stretch.words(words), stretch.series()));
        self.exact
            && match self.slots {
                Slots::Counter => {
                    let growth = |(words, series)| kernels::growth(words, &memories.before[series]);
                    let in_time = self.seen.is_some_and(|then| moment.intervals_since(then) == Some(1.0));
                    in_time && kernels::is_usual(each.map(growth).fold(0, core::ops::BitOr::bitor))
                }
                Slots::UpDownCounter => true,
                Slots::Gauge => each.all(|(words, _)| kernels::are_finite(words)),
            }
    }

    /// A look at a run that is exact, and [usual](Self::is_usual).
    fn look(&self, words: &[u64], stretches: &[Stretch], memories: &mut Memories, cells: &mut [f64]) {
        for stretch in stretches {
            let (words, out) = (stretch.words(words), &mut cells[stretch.cells()]);
            match self.slots {
                Slots::Counter => kernels::increments(words, &mut memories.before[stretch.series()], out),
                Slots::UpDownCounter => kernels::steps(words, out),
                Slots::Gauge => kernels::gauges(words, out),
            }
        }
    }

    /// A look at one series after the other.
    #[cold]
    fn look_closely(
        &mut self,
        words: &[u64],
        stretches: &[Stretch],
        memories: &mut Memories,
        cells: &mut [f64],
        moment: Moment,
    ) {
        self.hold(stretches, memories, cells);
        let then = self.seen.replace(moment.at);
        let intervals = then.and_then(|then| moment.intervals_since(then));
        let mut exact = true;
        for stretch in stretches {
            for ((&word, series), cell) in stretch.words(words).iter().zip(stretch.series()).zip(stretch.cells()) {
                let value = match self.slots {
                    Slots::Gauge => Some(f64::from_bits(word)).filter(|value| value.is_finite()),
                    Slots::UpDownCounter => Some(word.cast_signed() as f64),
                    Slots::Counter => {
                        let before = core::mem::replace(&mut memories.before[series], word);
                        let added = word.checked_sub(before);
                        intervals.zip(added).map(|(intervals, added)| added as f64 / intervals)
                    }
                };
                memories.next(series, value);
                cells[cell] = memories.value(series, self.patience);
                exact &= value.is_some();
            }
        }
        self.exact = exact;
    }

    /// A look that brings nothing.
    #[cold]
    fn pass(&mut self, look: Look, stretches: &[Stretch], memories: &mut Memories, cells: &mut [f64]) {
        self.hold(stretches, memories, cells);
        if matches!(look, Look::Discarded | Look::Silent) {
            self.seen = None;
        }
        if look == Look::Silent {
            memories.ages[self.first..self.end].fill(NEVER);
        }
        for stretch in stretches {
            for (series, cell) in stretch.series().zip(stretch.cells()) {
                memories.next(series, None);
                cells[cell] = memories.value(series, self.patience);
            }
        }
    }

    /// It may be exact no longer: last values will have to be found elsewhere than in cells.
    fn hold(&mut self, stretches: &[Stretch], memories: &mut Memories, cells: &[f64]) {
        if core::mem::take(&mut self.exact) {
            for stretch in stretches {
                memories.held[stretch.series()].copy_from_slice(&cells[stretch.cells()]);
            }
        }
    }
}

impl Memories {
    /// A look at a series has brought `value`.
    fn next(&mut self, series: usize, value: Option<f64>) {
        let age = &mut self.ages[series];
        match value {
            Some(value) => (*age, self.held[series]) = (0, value),
            None if *age == NEVER => {}
            None => *age = (*age + 1).min(NEVER - 1),
        }
    }

    /// The last value, if it is at most so many looks old.
    fn value(&self, series: usize, looks: u32) -> f64 {
        if self.ages[series] <= looks { self.held[series] } else { f64::NAN }
    }
}
