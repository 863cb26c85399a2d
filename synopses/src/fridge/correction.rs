//! Weights as a table of ranges of x, for a switch without division and powers.

use alloc::vec::Vec;

use thiserror::Error;

/// Largest weight in a table. Larger weights are clamped.
const LARGEST: f64 = (1 << 24) as f64;
/// Maximum number of ranges, far above the capacity of a switch.
const MAX_RANGES: usize = 1 << 16;

/// Invalid shape of a table.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum TableError {
    /// The probability is out of range.
    #[error("a probability of {0}, above 2⁻²⁴ and at most 1 are possible")]
    Probability(f64),
    /// The chance of eviction is out of range.
    #[error("a chance of {0} to be evicted by one insertion, above 0 and below 1 are possible")]
    Evicting(f64),
    /// The step is out of range. Weights would not grow, or there would be more than 65,536 ranges.
    #[error("steps of {0}, from 1.001 to 16 are possible")]
    Step(f64),
    /// Too many bits of fraction for weights of 32 bits.
    #[error("{0} bits of fraction, at most 8 are possible")]
    Fraction(u32),
}

/// Parameters of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableShape {
    /// p, the admission probability.
    pub probability: f64,
    /// Chance that one counted insertion evicts a request: 1/M, or p/M with a counter of arrivals.
    pub evicting: f64,
    /// Factor between the weights of successive ranges.
    pub step: f64,
    /// Weights are multiples of 2^−`fraction_bits`.
    pub fraction_bits: u32,
    /// Significant bits of the ranges' boundaries, 0 for exact ones. Few bits need few prefixes. Above 2 M one step of
    /// a 4-bit boundary is a factor of e, so use at least 6 bits there.
    pub significant_bits: u32,
}

impl TableShape {
    /// As published: integer weights, each about 10 % above the one before. The error is up to 4 % at p = 1.
    #[must_use]
    pub const fn published(probability: f64, evicting: f64) -> Self {
        Self { probability, evicting, step: 1.1, fraction_bits: 0, significant_bits: 0 }
    }

    /// Weights with 8 bits of fraction, each 2 % above the one before. The error is less than 0.1 % at any p.
    #[must_use]
    pub const fn precise(probability: f64, evicting: f64) -> Self {
        Self { probability, evicting, step: 1.02, fraction_bits: 8, significant_bits: 0 }
    }

    fn checked(self) -> Result<Self, TableError> {
        if !(self.probability > 1.0 / LARGEST && self.probability <= 1.0) {
            return Err(TableError::Probability(self.probability));
        }
        if !(self.evicting > 0.0 && self.evicting < 1.0) {
            return Err(TableError::Evicting(self.evicting));
        }
        if !(1.001..=16.0).contains(&self.step) {
            return Err(TableError::Step(self.step));
        }
        if self.fraction_bits > 8 { Err(TableError::Fraction(self.fraction_bits)) } else { Ok(self) }
    }
}

/// A range of x with one weight. It ends where the next range begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first x of the range.
    pub from: u32,
    /// Weight in units of 2^−`fraction_bits`.
    pub weight: u32,
}

/// Weights by x. The first range begins at 0 and has the weight 1/p, the last one has no end.
#[derive(Clone, Debug, PartialEq)]
pub struct CorrectionTable {
    shape: TableShape,
    ranges: Vec<Range>,
}

impl CorrectionTable {
    /// Computes the table.
    ///
    /// # Errors
    ///
    /// [`TableError`] if a parameter is invalid.
    pub fn new(shape: TableShape) -> Result<Self, TableError> {
        let shape = shape.checked()?;
        let scale = f64::from(1_u32 << shape.fraction_bits);
        let per_count = -libm::log1p(-shape.evicting);
        let first = libm::round(scale / shape.probability);
        let mut ranges: Vec<Range> = Vec::from([Range { from: 0, weight: first as u32 }]);
        let (mut exact, mut last) = (scale / shape.probability, first);
        while ranges.len() < MAX_RANGES {
            exact *= shape.step;
            let weight = libm::round(exact);
            if weight > LARGEST * scale || weight > f64::from(u32::MAX) {
                break;
            }
            if weight <= last {
                continue; // many steps are below one unit
            }
            let boundary = libm::log((weight - 0.5) / scale * shape.probability) / per_count;
            let from = significant(boundary, shape.significant_bits);
            if from >= f64::from(u32::MAX) {
                break;
            }
            let from = from.max(0.0) as u32;
            match ranges.last_mut() {
                // Of several weights that begin at one x, the last one applies.
                Some(range) if range.from >= from => {
                    range.weight = if range.from == 0 { range.weight } else { weight as u32 }
                }
                _ => ranges.push(Range { from, weight: weight as u32 }),
            }
            last = weight;
        }
        Ok(Self { shape, ranges })
    }

    /// The table's parameters.
    #[must_use]
    pub const fn shape(&self) -> TableShape {
        self.shape
    }

    /// The ranges in ascending order.
    #[must_use]
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// Weight of a sample with this x. Beyond the table it is the largest weight.
    #[must_use]
    pub fn weight(&self, insertions: u32) -> f64 {
        let after = self.ranges.partition_point(|range| range.from <= insertions);
        let weight = after.checked_sub(1).and_then(|at| self.ranges.get(at)).map_or(0, |range| range.weight);
        f64::from(weight) / f64::from(1_u32 << self.shape.fraction_bits)
    }

    /// Number of entries that the ranges need in a table of prefixes.
    #[must_use]
    pub fn prefixes(&self) -> usize {
        let ends = self.ranges.iter().skip(1).map(|range| u64::from(range.from)).chain([1 << 32]);
        self.ranges.iter().zip(ends).map(|(range, end)| prefixes(u64::from(range.from), end)).sum()
    }
}

/// Number of aligned powers of two that make up `from..end`.
fn prefixes(mut from: u64, end: u64) -> usize {
    let mut count = 0;
    while from < end {
        let aligned = if from == 0 { 1 << 32 } else { from & from.wrapping_neg() };
        let fits = 1 << (end - from).ilog2();
        from += aligned.min(fits);
        count += 1;
    }
    count
}

/// `boundary` rounded up to an integer, or rounded to `bits` significant bits.
fn significant(boundary: f64, bits: u32) -> f64 {
    if bits == 0 || boundary < 1.0 {
        return libm::ceil(boundary);
    }
    let unit = libm::ldexp(1.0, libm::ilogb(boundary) + 1 - bits.min(52) as i32);
    libm::round(boundary / unit) * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: f64 = 65_536.0;

    fn table(shape: TableShape) -> CorrectionTable {
        CorrectionTable::new(shape).expect("a table that can be")
    }

    #[test]
    fn the_published_example_comes_out() {
        let exact = table(TableShape::published(0.5, 1.0 / M));
        let rounded = table(TableShape { significant_bits: 4, ..TableShape::published(0.5, 1.0 / M) });

        assert_eq!(
            exact.ranges()[..3].iter().map(|range| (range.from, range.weight)).collect::<Vec<_>>(),
            [(0, 2), (14_624, 3), (36_675, 4)]
        );
        let rounded: Vec<_> = rounded.ranges()[..3].iter().map(|range| (range.from, range.weight)).collect();
        assert_eq!(rounded, [(0, 2), (7 << 11, 3), (9 << 12, 4)]);
    }

    #[test]
    fn every_x_has_a_weight_and_weights_rise() {
        for probability in [1.0, 0.5, 1.0 / 16.0, 1.0 / 1_351.0] {
            for shape in [TableShape::published(probability, 1.0 / M), TableShape::precise(probability, 1.0 / M)] {
                let table = table(shape);
                let unit = f64::from(1_u32 << shape.fraction_bits);

                assert_eq!(table.weight(0), libm::round(unit / probability) / unit);
                assert!(table.ranges().is_sorted_by(|one, next| one.from < next.from && one.weight < next.weight));
                assert!(table.weight(u32::MAX) > 1e6, "beyond the table the largest weight holds");
                assert!(table.prefixes() >= table.ranges().len());
            }
        }
    }

    #[test]
    fn a_precise_table_is_never_off_by_more_than_a_step() {
        let table = table(TableShape::precise(0.5, 1.0 / M));
        for x in (0..600_000).step_by(1_000) {
            let exact = 2.0 * libm::exp(f64::from(x) / M);
            let ratio = table.weight(x) / exact;
            assert!((1.0 / 1.025..=1.005).contains(&ratio), "{x}: {ratio}");
        }
    }

    #[test]
    fn ranges_are_counted_as_prefixes() {
        assert_eq!((prefixes(0, 1 << 32), prefixes(0, 5), prefixes(3, 8), prefixes(8, 16)), (1, 2, 2, 1));
    }

    #[test]
    fn impossible_tables_are_refused() {
        let good = TableShape::precise(0.5, 0.1);
        assert!(CorrectionTable::new(TableShape { probability: 0.0, ..good }).is_err());
        assert!(CorrectionTable::new(TableShape { probability: f64::NAN, ..good }).is_err());
        assert!(CorrectionTable::new(TableShape { evicting: 1.0, ..good }).is_err());
        assert_eq!(CorrectionTable::new(TableShape { step: 1.0, ..good }), Err(TableError::Step(1.0)));
        assert_eq!(CorrectionTable::new(TableShape { fraction_bits: 9, ..good }), Err(TableError::Fraction(9)));
    }
}
