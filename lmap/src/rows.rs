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
#[derive(Debug)]
pub(crate) struct KeptRows {
    values: Vec<f64>,
    marks: Vec<Mark>,
    columns: usize,
    capacity: usize,
    /// Index of the next row.
    next: usize,
}

impl Clone for KeptRows {
    /// A ring of the same capacity, so that it does not allocate later.
    fn clone(&self) -> Self {
        let mut out = Self::new(self.columns, self.capacity);
        out.values.extend_from_slice(&self.values);
        out.marks.extend_from_slice(&self.marks);
        out.next = self.next;
        out
    }
}

impl KeptRows {
    /// A ring of `capacity` rows. The memory is reserved and not touched before rows arrive: an allocator that has to
    /// return zeros writes them into memory that was used before, all of it.
    pub(crate) fn new(columns: usize, capacity: usize) -> Self {
        let values = Vec::with_capacity(columns * capacity);
        Self { values, marks: Vec::with_capacity(capacity), columns, capacity, next: 0 }
    }

    /// Keeps `row`; replaces the oldest if the ring is full. Never allocates.
    pub(crate) fn push(&mut self, row: &[f64], mark: Mark) {
        if self.capacity == 0 {
            return;
        }
        let (row, start) = (&row[..self.columns], self.next * self.columns);
        if self.marks.len() < self.capacity {
            self.values.extend_from_slice(row);
            self.marks.push(mark);
        } else {
            self.values[start..start + self.columns].copy_from_slice(row);
            self.marks[self.next] = mark;
        }
        self.next = (self.next + 1) % self.capacity;
    }

    pub(crate) fn len(&self) -> usize {
        self.marks.len()
    }

    /// Marks all rows kept as normal.
    pub(crate) fn accept_all(&mut self) {
        self.marks.iter_mut().for_each(|mark| mark.verdict = RowVerdict::Normal);
    }

    /// The rows and their marks, oldest first. O(n m).
    pub(crate) fn ordered(&self) -> (Vec<f64>, Vec<Mark>) {
        let oldest = if self.len() < self.capacity { 0 } else { self.next };
        let (later, earlier) = self.values.split_at(oldest * self.columns);
        let (later_marks, earlier_marks) = self.marks.split_at(oldest);
        ([earlier, later].concat(), [earlier_marks, later_marks].concat())
    }

    /// The latest `capacity` rows in a ring of that size. Allocates.
    pub(crate) fn resized(&self, capacity: usize) -> Self {
        let (values, marks) = self.ordered();
        let mut out = Self::new(self.columns, capacity);
        let skip = self.len().saturating_sub(capacity);
        for (row, mark) in values.chunks_exact(self.columns).zip(marks).skip(skip) {
            out.push(row, mark);
        }
        out
    }

    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes that are reserved.
    pub(crate) const fn bytes(&self) -> usize {
        self.capacity * (size_of::<f64>() * self.columns + size_of::<Mark>())
    }

    /// Bytes of the rows that have arrived.
    pub(crate) const fn filled_bytes(&self) -> usize {
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
    fn rows_that_have_not_come_are_reserved_and_not_filled() {
        let mut rows = KeptRows::new(10, 100);
        rows.push(&[1.0; 10], NORMAL);
        let (copy, reserved) = (rows.clone(), rows.values.as_ptr());

        (0..99).for_each(|_| rows.push(&[2.0; 10], NORMAL));

        assert_eq!((copy.filled_bytes(), copy.values.capacity()), (82, 1_000));
        assert_eq!((rows.filled_bytes(), rows.bytes()), (8_200, 8_200));
        assert_eq!(rows.values.as_ptr(), reserved, "it has not grown");
    }

    #[test]
    fn a_ring_without_room_keeps_nothing() {
        let mut rows = KeptRows::new(2, 0);

        rows.push(&[1.0, 2.0], NORMAL);

        assert_eq!((rows.len(), rows.ordered().0.len()), (0, 0));
    }
}
