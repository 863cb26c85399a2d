//! Every sample of a target, by the bytes that name it: its value in this scrape and in the one before.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::discards::Discard;
use crate::distribution::{Counts, Distribution, HistogramPoint, Relation};

/// The number of a sample among those of its target.
pub type Line = u32;

/// A key longer than this is not kept.
pub const MAX_KEY: usize = 2_048;
/// Bytes that a line has for its key, for texts of its series and for its buckets, on average over all lines.
const LINE_BYTES: usize = 900;
/// Buckets of a point for which memory is kept until the next one comes.
const KEPT_SCRATCH: usize = 512;

/// Why a key is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// There are as many as are kept.
    Keys,
    /// It would be too long, or what is kept of all.
    Bytes,
}

/// All samples of a target. A known one costs a look-up and a store.
#[derive(Debug, Default)]
pub struct Lines {
    index: HashMap<Box<[u8]>, Line>,
    values: Vec<f64>,
    /// The last finite value before this scrape; NaN if there is none.
    before: Vec<f64>,
    /// The scrape in which it was last seen.
    seen: Vec<u32>,
    free: Vec<Line>,
    /// Bytes of all keys, of texts of series, and of distributions.
    bytes: usize,
    scrape: u32,
    /// Scrapes for which a line that is absent has its last value.
    hold: u32,
    /// Those lines that are counts of histograms with their buckets.
    distributions: HashMap<Line, Box<Distribution>>,
    scratch: Counts,
}

impl Lines {
    /// No lines. One that is absent for up to `hold` scrapes has its last value.
    pub fn holding(hold: u32) -> Self {
        Self { hold, ..Self::default() }
    }

    /// Begins a scrape.
    pub fn begin(&mut self) {
        self.scrape = self.scrape.saturating_add(1);
        self.distributions.values_mut().for_each(|known| known.begin());
    }

    /// The number of this scrape, from 1.
    pub const fn scrape(&self) -> u32 {
        self.scrape
    }

    /// How many keys are known.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// For how many lines it counts in a limit: all of them, or more if their names or buckets are longer than those of
    /// a line on average.
    pub fn weight(&self) -> usize {
        self.len().max(self.bytes.div_ceil(LINE_BYTES))
    }

    /// Bytes that are left for `limit` lines.
    pub const fn left(&self, limit: usize) -> usize {
        limit.saturating_mul(LINE_BYTES).saturating_sub(self.bytes)
    }

    /// Counts `bytes` that are kept of what the lines are of.
    pub const fn charge(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Counts `bytes` less: they are kept no longer.
    pub const fn release(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// The line of `key`, if it is known.
    pub fn find(&self, key: &[u8]) -> Option<Line> {
        self.index.get(key).copied()
    }

    /// Sets the value of `line` in this scrape.
    pub fn set(&mut self, line: Line, value: f64) {
        if let (Some(place), Some(seen)) = (self.values.get_mut(line as usize), self.seen.get_mut(line as usize)) {
            (*place, *seen) = (value, self.scrape);
        }
    }

    /// Adds `growth` to the value of `line`, from 0 on.
    pub fn grow(&mut self, line: Line, growth: f64) {
        let known = if self.is_here(line) { self.values.get(line as usize) } else { self.before.get(line as usize) };
        let known = known.copied().filter(|value| value.is_finite());
        self.set(line, known.unwrap_or(0.0) + growth);
    }

    /// Sets the value of a counter that relates so to its value before.
    pub fn count(&mut self, line: Line, value: f64, relation: Relation) {
        if let Some(before) = self.before.get_mut(line as usize) {
            match relation {
                Relation::Restart => *before = 0.0,
                Relation::Baseline => *before = value,
                Relation::Growth | Relation::Total => {}
            }
        }
        if relation == Relation::Growth { self.grow(line, value) } else { self.set(line, value) }
    }

    /// Takes a point of the distribution `line`, unless it is malformed, or its buckets are more than `limit` lines
    /// have room for: then what was known of them is forgotten.
    pub fn distribute(
        &mut self,
        line: Line,
        point: &HistogramPoint<'_>,
        relation: Relation,
        limit: usize,
    ) -> Result<(), Discard> {
        let left = self.left(limit);
        let is_first = self.before.get(line as usize).is_none_or(|before| before.is_nan());
        let of_buckets = match relation {
            // What it counted before it was first seen is growth, but in the first scrape.
            Relation::Total if is_first && self.scrape > 1 => Relation::Restart,
            Relation::Total if is_first => Relation::Baseline,
            relation => relation,
        };
        let (known, before) = match self.distributions.entry(line) {
            Entry::Occupied(known) => {
                let known = known.into_mut();
                let bytes = known.bytes();
                (known, bytes)
            }
            Entry::Vacant(place) => (place.insert(Box::new(Distribution::new())), 0),
        };
        let is_taken = known.take(point, of_buckets, &mut self.scratch);
        let now = known.bytes();
        if self.scratch.capacity() > KEPT_SCRATCH {
            self.scratch = Counts::new();
        }
        self.bytes = self.bytes - before + now;
        if now > before && now - before > left {
            self.distributions.remove(&line);
            self.bytes -= now;
            return Err(Discard::NoRoom);
        }
        if !is_taken {
            return Err(Discard::Malformed);
        }
        self.count(line, point.count as f64, relation);
        Ok(())
    }

    /// The buckets of `line`.
    pub fn distribution(&self, line: Line) -> Option<&Distribution> {
        self.distributions.get(&line).map(AsRef::as_ref)
    }

    /// A new line.
    pub fn add(&mut self) -> Line {
        if let Some(line) = self.free.pop() {
            let at = line as usize;
            (self.values[at], self.before[at], self.seen[at]) = (f64::NAN, f64::NAN, 0);
            return line;
        }
        let line = self.values.len() as Line;
        self.values.push(f64::NAN);
        self.before.push(f64::NAN);
        self.seen.push(0);
        line
    }

    /// Whether there is room for `key` among those of `limit` lines: returns the bytes that are left for what it names.
    pub fn room(&self, key: &[u8], limit: usize) -> Result<usize, NoRoom> {
        if self.index.len() >= limit {
            return Err(NoRoom::Keys);
        }
        let left = self.left(limit).checked_sub(key.len());
        left.filter(|_| key.len() <= MAX_KEY).ok_or(NoRoom::Bytes)
    }

    /// Names `line` by `key`, too.
    pub fn name(&mut self, key: &[u8], line: Line) {
        self.bytes += key.len();
        self.index.insert(key.into(), line);
    }

    /// Whether it was seen in this scrape.
    pub fn is_here(&self, line: Line) -> bool {
        self.age(line) == 0
    }

    /// Scrapes since it was seen.
    pub fn age(&self, line: Line) -> u32 {
        self.seen.get(line as usize).map_or(u32::MAX, |seen| self.scrape - seen)
    }

    /// Its value in this scrape, or one that is held; NaN if it is absent.
    pub fn value(&self, line: Line) -> f64 {
        let is_known = self.age(line) <= self.hold;
        if is_known { self.values.get(line as usize).copied().unwrap_or(f64::NAN) } else { f64::NAN }
    }

    /// By how much a counter has grown since it was last seen. A smaller value than before is a reset, so all of it is
    /// new; likewise one that appears after the first scrape. 0 if it is absent or no number.
    pub fn growth(&self, line: Line) -> f64 {
        let value = self.value(line);
        if !value.is_finite() {
            return 0.0;
        }
        let before = self.before.get(line as usize).copied().unwrap_or(f64::NAN);
        if before.is_nan() {
            return if self.scrape > 1 { value.max(0.0) } else { 0.0 };
        }
        if value >= before { value - before } else { value.max(0.0) }
    }

    /// By how much what may rise and fall has changed since it was last seen: all of it if it `is_reset`, or appears
    /// after the first scrape. 0 if it is absent or no number.
    pub fn change(&self, line: Line, is_reset: bool) -> f64 {
        let value = self.value(line);
        let before = self.before.get(line as usize).copied().unwrap_or(f64::NAN);
        let from = match (is_reset, before.is_nan()) {
            (false, false) => before,
            (false, true) if self.scrape <= 1 => value,
            _ => 0.0,
        };
        if value.is_finite() { value - from } else { 0.0 }
    }

    /// Whether a counter is below what it was when it was last seen: it began anew.
    pub fn has_fallen(&self, line: Line) -> bool {
        self.before.get(line as usize).is_some_and(|before| self.value(line) < *before)
    }

    /// Its value in this scrape and the one before, if both are there.
    pub fn pair(&self, line: Line) -> Option<(f64, f64)> {
        let (value, before) = (*self.values.get(line as usize)?, *self.before.get(line as usize)?);
        (self.is_here(line) && value.is_finite() && before.is_finite()).then_some((before, value))
    }

    /// Ends a scrape: values become those before.
    pub fn end(&mut self) {
        for ((before, value), seen) in self.before.iter_mut().zip(&self.values).zip(&self.seen) {
            if *seen == self.scrape && value.is_finite() {
                *before = *value;
            }
        }
    }

    /// Forgets the lines for which `is_dead` says so, with their keys.
    pub fn forget(&mut self, is_dead: impl Fn(Line) -> bool) {
        let mut dead = std::collections::BTreeSet::new();
        let bytes = &mut self.bytes;
        self.index.retain(|key, line| {
            let goes = is_dead(*line);
            if goes {
                *bytes -= key.len();
                dead.insert(*line);
            }
            !goes
        });
        self.distributions.retain(|line, known| {
            let goes = dead.contains(line);
            if goes {
                *bytes -= known.bytes();
            }
            !goes
        });
        self.free.extend(dead);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::PointBuckets;

    fn scrape(lines: &mut Lines, line: Line, value: Option<f64>) -> f64 {
        lines.begin();
        if let Some(value) = value {
            lines.set(line, value);
        }
        let growth = lines.growth(line);
        lines.end();
        growth
    }

    #[test]
    fn a_counter_grows_from_its_first_value_and_from_nothing_after_a_reset() {
        let mut lines = Lines::default();
        let line = lines.add();

        let values = [Some(1_000.0), Some(1_007.0), None, Some(1_010.0), Some(4.0), Some(f64::NAN), Some(5.0)];
        let growth = values.map(|value| scrape(&mut lines, line, value));

        assert_eq!(growth, [0.0, 7.0, 0.0, 3.0, 4.0, 0.0, 1.0]);
    }

    #[test]
    fn a_counter_that_appears_later_grows_by_all_of_its_value() {
        let mut lines = Lines::default();
        lines.begin();
        lines.end();
        let line = lines.add();

        assert_eq!(scrape(&mut lines, line, Some(3.0)), 3.0);
        assert_eq!(scrape(&mut lines, line, Some(3.0)), 0.0);
    }

    #[test]
    fn a_line_that_was_forgotten_is_given_to_another() {
        let mut lines = Lines::default();
        let (one, two) = (lines.add(), lines.add());
        lines.name(b"one", one);
        lines.name(b"two", two);

        lines.forget(|line| line == one);

        assert_eq!((lines.find(b"one"), lines.find(b"two"), lines.bytes), (None, Some(two), 3));
        assert_eq!(lines.add(), one);
    }

    #[test]
    fn keys_are_bounded_in_number_length_and_bytes() {
        let mut lines = Lines::default();
        let line = lines.add();
        assert_eq!(lines.room(&[b'k'; MAX_KEY], 3), Ok(3 * LINE_BYTES - MAX_KEY));
        assert_eq!(lines.room(&[b'k'; MAX_KEY + 1], 100), Err(NoRoom::Bytes));

        lines.name(&[b'k'; LINE_BYTES + 1], line);

        assert_eq!(lines.room(&[b'l'; LINE_BYTES - 1], 2), Ok(0));
        assert_eq!(lines.room(&[b'l'; LINE_BYTES], 2), Err(NoRoom::Bytes));
        assert_eq!(lines.room(b"l", 1), Err(NoRoom::Keys));
        assert_eq!((lines.len(), lines.weight()), (1, 2), "it counts for two");
    }

    /// Takes a histogram of 300 buckets in one, which is new, or grows; returns what is kept then.
    fn wide(lines: &mut Lines, line: Line, limit: usize) -> (Result<(), Discard>, usize) {
        let bounds: Vec<f64> = (1..300).map(f64::from).collect();
        let buckets = PointBuckets::Explicit { bounds: &bounds, counts: &[1; 300] };
        let point = HistogramPoint { count: 300, sum: None, buckets };
        lines.begin();
        let taken = lines.distribute(line, &point, Relation::Growth, limit);
        lines.end();
        (taken, lines.bytes)
    }

    #[test]
    fn buckets_have_what_lines_have_on_average_also_if_a_histogram_gets_more_of_them() {
        let mut lines = Lines::default();
        let line = lines.add();
        lines.name(b"took", line);
        let narrow = PointBuckets::Explicit { bounds: &[1.0], counts: &[1, 1] };
        let point = HistogramPoint { count: 2, sum: None, buckets: narrow };
        lines.begin();
        assert_eq!(lines.distribute(line, &point, Relation::Growth, 1), Ok(()));
        lines.end();
        let few = lines.bytes;

        // 299 bounds and 300 counts take at least 7,192 bytes, and 11,000 at most.
        let (refused, without) = wide(&mut lines, line, 5);
        let (taken, with) = wide(&mut lines, line, 13);

        assert_eq!((refused, taken), (Err(Discard::NoRoom), Ok(())));
        assert_eq!(without, 4, "the key alone");
        assert!(few > 150 && few < LINE_BYTES && (7_192..11_000).contains(&with), "{few} {with}");
        assert!((8..13).contains(&lines.weight()) && lines.scratch.capacity() <= KEPT_SCRATCH, "{}", lines.weight());
        lines.forget(|dead| dead == line);
        assert_eq!((lines.bytes, lines.weight()), (0, 0));
    }
}
