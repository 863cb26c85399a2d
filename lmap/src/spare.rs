//! A few rows that wait while a job is out.

use crate::lanes::padded;
use crate::rows::Mark;

/// Room for rows that came while a job was out: standardised ones for the sketch, or raw ones for the next fit.
#[derive(Clone, Debug)]
pub(crate) struct Spare {
    values: Vec<f64>,
    marks: Vec<Mark>,
    width: usize,
    capacity: usize,
}

impl Spare {
    pub(crate) fn new(columns: usize, capacity: usize) -> Self {
        let width = padded(columns);
        Self { values: Vec::with_capacity(width * capacity), marks: Vec::with_capacity(capacity), width, capacity }
    }

    /// Keeps `row`, filled up with zeros; `false` if there is no room. Never allocates.
    pub(crate) fn push(&mut self, row: &[f64], mark: Mark) -> bool {
        if self.marks.len() == self.capacity {
            return false;
        }
        self.values.extend_from_slice(row);
        self.marks.push(mark);
        self.values.resize(self.width * self.marks.len(), 0.0);
        true
    }

    /// The rows that wait, oldest first.
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
