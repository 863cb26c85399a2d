//! Raw rows kept for fits: the latest ones, in a ring.

/// The verdict on a kept row, which decides whether a later fit uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowVerdict {
    /// The detector was not armed yet.
    Unjudged,
    /// Not far above γ: a later fit takes it.
    Normal,
    /// So far above γ that a later fit leaves it out.
    Above,
}

/// A kept row's tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) verdict: RowVerdict,
    /// The row does not follow the one kept before it, so it has no increments.
    pub(crate) restarted: bool,
}

/// The latest raw rows, at most `capacity` of them.
#[derive(Clone, Debug)]
pub(crate) struct KeptRows {
    values: Vec<f64>,
    marks: Vec<Mark>,
    columns: usize,
    /// Index of the next row.
    next: usize,
    used: usize,
}

impl KeptRows {
    /// A ring of `capacity` rows. The memory is not touched before rows arrive.
    pub(crate) fn new(columns: usize, capacity: usize) -> Self {
        let mark = Mark { verdict: RowVerdict::Unjudged, restarted: true };
        Self { values: vec![0.0; columns * capacity], marks: vec![mark; capacity], columns, next: 0, used: 0 }
    }

    /// Keeps `row`; replaces the oldest if the ring is full. Never allocates.
    pub(crate) fn push(&mut self, row: &[f64], mark: Mark) {
        let Some(slot) = self.marks.get_mut(self.next) else { return };
        *slot = mark;
        let start = self.next * self.columns;
        self.values[start..start + self.columns].copy_from_slice(&row[..self.columns]);
        self.next = (self.next + 1) % self.marks.len();
        self.used = (self.used + 1).min(self.marks.len());
    }

    pub(crate) fn len(&self) -> usize {
        self.used
    }

    /// Marks all rows kept as normal.
    pub(crate) fn accept_all(&mut self) {
        self.marks.iter_mut().for_each(|mark| mark.verdict = RowVerdict::Normal);
    }

    /// The rows and their marks, oldest first. O(n m).
    pub(crate) fn ordered(&self) -> (Vec<f64>, Vec<Mark>) {
        let first = (self.next + self.marks.len() - self.used).checked_rem(self.marks.len()).unwrap_or(0);
        let order = (0..self.used).map(|row| (first + row) % self.marks.len());
        let (mut values, mut marks) = (Vec::with_capacity(self.used * self.columns), Vec::with_capacity(self.used));
        for row in order {
            values.extend_from_slice(&self.values[row * self.columns..(row + 1) * self.columns]);
            marks.push(self.marks[row]);
        }
        (values, marks)
    }

    /// The latest `capacity` rows in a ring of that size. Allocates.
    pub(crate) fn resized(&self, capacity: usize) -> Self {
        let (values, marks) = self.ordered();
        let mut out = Self::new(self.columns, capacity);
        let skip = self.used.saturating_sub(capacity);
        for (row, mark) in values.chunks_exact(self.columns).zip(marks).skip(skip) {
            out.push(row, mark);
        }
        out
    }

    pub(crate) fn capacity(&self) -> usize {
        self.marks.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of::<f64>() * self.values.len() + size_of::<Mark>() * self.marks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NORMAL: Mark = Mark { verdict: RowVerdict::Normal, restarted: false };

    #[test]
    fn the_latest_rows_are_kept_in_order() {
        let mut rows = KeptRows::new(1, 3);

        (0..5).for_each(|row| rows.push(&[f64::from(row)], NORMAL));

        assert_eq!(rows.ordered().0, [2.0, 3.0, 4.0]);
        assert_eq!(rows.resized(2).ordered().0, [3.0, 4.0]);
        assert_eq!(rows.resized(4).ordered().0, [2.0, 3.0, 4.0]);
    }

    #[test]
    fn a_ring_without_room_keeps_nothing() {
        let mut rows = KeptRows::new(2, 0);

        rows.push(&[1.0, 2.0], NORMAL);

        assert_eq!((rows.len(), rows.ordered().0.len()), (0, 0));
    }
}
