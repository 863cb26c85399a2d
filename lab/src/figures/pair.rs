//! Measures two pieces of work in turns.

use std::time::Duration;

use crate::clock::processor_time;

/// Number of pairs of a figure that takes no longer than seconds.
const PAIRS: usize = 41;

/// Medians of the measured pairs, in nanoseconds per operation unless the figure says otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// The median of ours.
    pub ours: f64,
    /// The median of the peer's.
    pub peer: f64,
    /// The median of the ratios.
    pub ratio: f64,
    /// The number of pairs.
    pub pairs: usize,
}

impl Pair {
    /// A pair that is counted, or measured once.
    pub fn once(ours: f64, peer: f64) -> Self {
        Self { ours, peer, ratio: ours / peer, pairs: 1 }
    }

    /// The medians of pairs measured elsewhere, ours first; `None` without any.
    pub fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        (!pairs.is_empty()).then(|| Self {
            ours: median(pairs.iter().map(|pair| pair.0)),
            peer: median(pairs.iter().map(|pair| pair.1)),
            ratio: median(pairs.iter().map(|pair| pair.0 / pair.1)),
            pairs: pairs.len(),
        })
    }

    /// The same in units of `nanoseconds` each.
    pub fn in_units_of(self, nanoseconds: f64) -> Self {
        Self { ours: self.ours / nanoseconds, peer: self.peer / nanoseconds, ..self }
    }
}

/// Runs `ours` and `peer` in turns, each doing `operations` operations per turn, after one turn to warm up. Measures
/// processor time of this process: elapsed time on a busy machine would count what others do in the longer turns.
pub fn measure(operations: u64, mut ours: impl FnMut(u64), mut peer: impl FnMut(u64)) -> Pair {
    measure_times(operations, |count| processor_time(&mut || ours(count)), |count| processor_time(&mut || peer(count)))
}

/// The same of work that says how long it took.
pub fn measure_times(
    operations: u64,
    mut ours: impl FnMut(u64) -> Duration,
    mut peer: impl FnMut(u64) -> Duration,
) -> Pair {
    ours(operations);
    peer(operations);
    let mut turns = Vec::with_capacity(PAIRS);
    for turn in 0..PAIRS {
        // The order alternates, too.
        let (mine, theirs): (Duration, Duration);
        if turn % 2 == 0 {
            mine = ours(operations);
            theirs = peer(operations);
        } else {
            theirs = peer(operations);
            mine = ours(operations);
        }
        turns.push((mine.as_nanos() as f64 / operations as f64, theirs.as_nanos() as f64 / operations as f64));
    }
    Pair::of(&turns).expect("there is more than one turn")
}

/// The middle one of `values`, the later one of two; there must be one.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Operations per second, from nanoseconds per operation.
pub fn per_second(nanoseconds: f64) -> f64 {
    1e9 / nanoseconds
}
