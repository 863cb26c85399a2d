//! Counts of a histogram in buckets of a region: of its values from 0 on and, where there may be some, of those below.

use wire::layout::Slot;

use crate::placement::{self, Increase, Shape};

/// A count per bucket of the region, and the sum in the histogram's unit.
#[derive(Clone, Debug)]
struct Side {
    counts: Vec<u64>,
    sum: f64,
}

impl Side {
    fn new(shape: Shape) -> Self {
        Self { counts: vec![0; shape.scale.buckets() as usize + 1], sum: 0.0 }
    }

    fn store(&self, shape: Shape, first: Slot, store: &mut impl FnMut(Slot, u64)) {
        for (slot, count) in (first.0..).zip(&self.counts) {
            store(Slot(slot), *count);
        }
        let sum = (self.sum * shape.parts.get() as f64).round() as u64;
        store(Slot(first.0 + shape.scale.sum_slot()), sum);
    }
}

/// What a histogram has counted, on one side of 0 or on both.
#[derive(Clone, Debug)]
pub struct Sides {
    shape: Shape,
    above: Side,
    /// Of values below 0, without their sign. `None`: they count as 0.
    below: Option<Side>,
}

impl Sides {
    /// Sides without any values.
    pub fn new(shape: Shape, are_both: bool) -> Self {
        Self { shape, above: Side::new(shape), below: are_both.then(|| Side::new(shape)) }
    }

    /// The same buckets, in which nothing was counted.
    pub fn emptied(&self) -> Self {
        Self::new(self.shape, self.below.is_some())
    }

    /// Whether values below 0 have buckets of their own.
    pub const fn are_both(&self) -> bool {
        self.below.is_some()
    }

    /// Adds `increases`, of which the values have the sum `sum`.
    pub fn add(&mut self, increases: impl Iterator<Item = Increase> + Clone, sum: Option<f64>) {
        let Self { shape, above, below } = self;
        let sums = placement::place(increases, sum, |value, count| {
            let (side, distance) = match below.as_mut() {
                Some(below) if value < 0.0 => (below, -value),
                _ => (&mut *above, value),
            };
            if let Some(counter) = side.counts.get_mut(shape.bucket(distance)) {
                // A target may say that it counted more than there can be.
                *counter = counter.wrapping_add(count);
            }
        });
        above.sum += sums.above;
        if let Some(below) = below {
            below.sum += sums.below;
        }
    }

    /// Writes it by `store`, from `first` on; what is below 0 follows what is above, if it `has_below`.
    pub fn store(&self, first: Slot, has_below: bool, store: &mut impl FnMut(Slot, u64)) {
        self.above.store(self.shape, first, store);
        if let Some(below) = self.below.as_ref().filter(|_| has_below) {
            below.store(self.shape, Slot(first.0 + self.shape.scale.slots()), store);
        }
    }
}
