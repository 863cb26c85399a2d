//! Rows buffered while a job is in flight.

use crate::lanes::padded;
use crate::rows::Mark;

/// Buffer for rows that arrive while a job is in flight: standardised rows for the sketch, or raw rows for the next
/// fit.
#[derive(Clone, Debug)]
pub(crate) struct SpareRows {
    values: Vec<f64>,
    marks: Vec<Mark>,
    width: usize,
    capacity: usize,
}

impl SpareRows {
    pub(crate) fn new(columns: usize, capacity: usize) -> Self {
        let width = padded(columns);
        Self { values: Vec::with_capacity(width * capacity), marks: Vec::with_capacity(capacity), width, capacity }
    }

    /// Buffers `row`, padded with zeros; `false` if the buffer is full. Never allocates.
    pub(crate) fn push(&mut self, row: &[f64], mark: Mark) -> bool {
        if self.marks.len() == self.capacity {
            return false;
        }
        self.values.extend_from_slice(row);
        self.marks.push(mark);
        self.values.resize(self.width * self.marks.len(), 0.0);
        true
    }

    /// The buffered rows, oldest first.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&[f64], Mark)> {
        self.values.chunks_exact(self.width).zip(self.marks.iter().copied())
    }

    pub(crate) fn clear(&mut self) {
        self.values.clear();
        self.marks.clear();
    }

    pub(crate) fn bytes(&self) -> usize {
        self.capacity * (size_of::<f64>() * self.width + size_of::<Mark>())
    }
}
