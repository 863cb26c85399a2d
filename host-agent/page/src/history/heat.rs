//! What made scores above γ, second by second: the service view's heat map, as far as nobody was looking.
//!
//! *Memory*: [`MAX_ROWS`] columns of a service, 8 bytes for each of their seconds. [`Heat::bytes`] counts them.

use std::collections::VecDeque;

/// Seconds that are remembered: ten minutes.
pub(super) const REACH: u32 = 600;
/// Metrics of one row of the service: those with the largest parts.
const METRICS: usize = 5;
/// Columns of one service: those that were above γ most recently.
const MAX_ROWS: usize = 32;
/// A part below this one, in units of γ², is hardly seen (`heat.js`).
pub(super) const FAINTEST: f32 = 0.1;

/// A metric's part of the squared score in one second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeatCell {
    /// A steady second.
    pub second: u32,
    /// The largest part in it, in units of γ².
    pub part: f32,
}

/// What one metric made of scores above γ.
#[derive(Clone, Debug)]
pub struct HeatRow {
    /// Title of the column.
    pub title: Box<str>,
    /// Seconds in which it made something, oldest first.
    pub cells: VecDeque<HeatCell>,
}

impl HeatRow {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.title.len() + self.cells.len() * size_of::<HeatCell>()
    }

    /// Adds a part. What is older than the newest cell is added to that one; steady seconds are not.
    fn add(&mut self, second: u32, part: f32) {
        match self.cells.back_mut() {
            Some(last) if last.second >= second => last.part = last.part.max(part),
            _ => self.cells.push_back(HeatCell { second, part }),
        }
    }
}

/// What made scores of one service above γ.
#[derive(Clone, Debug, Default)]
pub(super) struct Heat(Vec<HeatRow>);

impl Heat {
    /// Adds titles of columns with their parts of one squared score, the largest first.
    pub(super) fn add<'a>(&mut self, second: u32, parts: impl Iterator<Item = (&'a str, f32)>) {
        for (title, part) in parts.filter(|(_, part)| *part >= FAINTEST).take(METRICS) {
            let known = self.0.iter().position(|row| *row.title == *title);
            let place = known.unwrap_or_else(|| self.begin(title));
            if let Some(row) = self.0.get_mut(place) {
                row.add(second, part.min(f32::MAX));
            }
        }
    }

    /// Begins a row, in the place of that which has been quiet for longest if there are many. Returns where it is.
    fn begin(&mut self, title: &str) -> usize {
        if self.0.len() >= MAX_ROWS {
            let rows = self.0.iter().enumerate();
            let quiet = rows.min_by_key(|(_, row)| row.cells.back().map(|cell| cell.second)).map(|(place, _)| place);
            if let Some(place) = quiet {
                self.0.remove(place);
            }
        }
        self.0.push(HeatRow { title: title.into(), cells: VecDeque::new() });
        self.0.len() - 1
    }

    /// Forgets what was before a second.
    pub(super) fn forget(&mut self, before: u32) {
        for HeatRow { cells, .. } in &mut self.0 {
            let gone = cells.partition_point(|cell| cell.second < before);
            cells.drain(..gone);
            if cells.len() < cells.capacity() / 4 {
                cells.shrink_to_fit();
            }
        }
        self.0.retain(|row| !row.cells.is_empty());
    }

    /// The first second of which something is remembered.
    pub(super) fn oldest(&self) -> Option<u32> {
        self.0.iter().filter_map(|row| row.cells.front()).map(|cell| cell.second).min()
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &HeatRow> {
        self.0.iter()
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(HeatRow::bytes).sum()
    }
}
