//! Rows before an anomaly. A value that is sent meanwhile is taken out; the others wait.

use std::collections::VecDeque;

/// At most `limit` rows. Memory: 8 bytes per value, once the ring was full.
#[derive(Debug)]
pub(super) struct Ring {
    rows: VecDeque<(u64, Box<[f64]>)>,
    spare: Vec<Box<[f64]>>,
    limit: usize,
}

fn waiting(values: &[f64]) -> u64 {
    values.iter().filter(|value| !value.is_nan()).count() as u64
}

impl Ring {
    pub(super) const fn new(limit: usize) -> Self {
        Self { rows: VecDeque::new(), spare: Vec::new(), limit }
    }

    /// Appends a row. Returns how many values were displaced: those of the oldest row, or its own if the limit is 0.
    pub(super) fn push(&mut self, at_ms: u64, values: &[f64]) -> u64 {
        if self.limit == 0 {
            return waiting(values);
        }
        let oldest = if self.rows.len() >= self.limit { self.rows.pop_front() } else { None };
        let gone = oldest.as_ref().map_or(0, |(_, values)| waiting(values));
        let reused = oldest.map(|(_, values)| values).or_else(|| self.spare.pop());
        let row = match reused.filter(|row| row.len() == values.len()) {
            Some(mut row) => {
                row.copy_from_slice(values);
                row
            }
            None => values.into(),
        };
        self.rows.push_back((at_ms, row));
        gone
    }

    /// Takes out all values of `column`. Returns how many there were.
    pub(super) fn settle(&mut self, column: usize) -> u64 {
        let values = self.rows.iter_mut().filter_map(|(_, values)| values.get_mut(column));
        values.map(|value| u64::from(!core::mem::replace(value, f64::NAN).is_nan())).sum()
    }

    /// Takes out all rows. The newest ones with no more than `affordable` values together go to `sink`, oldest first.
    /// Returns how many values went, and how many did not.
    pub(super) fn drain(&mut self, affordable: u64, mut sink: impl FnMut(u64, &[f64])) -> (u64, u64) {
        let all: u64 = self.rows.iter().map(|(_, values)| waiting(values)).sum();
        let (mut sum, mut first) = (0, self.rows.len());
        while first > 0 {
            let more = waiting(&self.rows[first - 1].1);
            if sum + more > affordable {
                break;
            }
            (sum, first) = (sum + more, first - 1);
        }
        for (place, (at_ms, values)) in self.rows.drain(..).enumerate() {
            if place >= first {
                sink(at_ms, &values);
            }
            self.spare.push(values);
        }
        (sum, all - sum)
    }

    /// Drops all rows. Returns how many values they had.
    pub(super) fn clear(&mut self) -> u64 {
        let all = self.rows.iter().map(|(_, values)| waiting(values)).sum();
        self.rows.clear();
        self.spare.clear();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_rows_that_are_affordable_come_out_in_order() {
        let mut ring = Ring::new(3);
        let gone: u64 = (0..4).map(|row| ring.push(row, &[row as f64, f64::NAN])).sum();
        assert_eq!(gone, 1);
        assert_eq!(ring.settle(1), 0);

        let mut out = Vec::new();
        let counts = ring.drain(2, |at, values| out.push((at, values[0])));

        assert_eq!(out, [(2, 2.0), (3, 3.0)]);
        assert_eq!(counts, (2, 1));
        assert_eq!(ring.clear(), 0);
    }

    #[test]
    fn a_settled_column_does_not_wait_any_more() {
        let mut ring = Ring::new(3);
        (0..3).for_each(|row| assert_eq!(ring.push(row, &[1.0, 2.0]), 0));

        assert_eq!(ring.settle(0), 3);
        assert_eq!(ring.settle(0), 0);
        assert_eq!(ring.clear(), 3);
        assert_eq!(Ring::new(0).push(0, &[1.0, f64::NAN]), 1);
    }
}
