//! Arithmetic on rows padded with zeros to whole groups of eight, written so that the compiler vectorises it.
//!
//! A padded row has no tail to treat apart. Eight accumulators per sum, because a float sum with one is a chain
//! that cannot be reordered.

/// Values per group.
pub(crate) const LANES: usize = 8;

/// The padded width of `columns` values.
pub(crate) const fn padded(columns: usize) -> usize {
    columns.next_multiple_of(LANES)
}

/// Values per group of what scores read, which are half as wide.
const NARROW_LANES: usize = 16;

/// The padded width of `columns` values as scores read them.
pub(crate) const fn padded_narrow(columns: usize) -> usize {
    columns.next_multiple_of(NARROW_LANES)
}

/// A padded copy of `row`.
pub(crate) fn padded_row(row: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; padded(row.len())];
    out[..row.len()].copy_from_slice(row);
    out
}

/// Σ aᵢ bᵢ over the shorter of two padded rows.
#[inline]
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; LANES];
    for (x, y) in a.as_chunks::<LANES>().0.iter().zip(b.as_chunks::<LANES>().0) {
        for lane in 0..LANES {
            sums[lane] += x[lane] * y[lane];
        }
    }
    total(&sums)
}

/// target += factor · source, element by element.
#[inline]
pub(crate) fn add_scaled(target: &mut [f64], factor: f64, source: &[f64]) {
    for (t, s) in target.iter_mut().zip(source) {
        *t += factor * s;
    }
}

#[inline]
fn total(sums: &[f64; LANES]) -> f64 {
    let [a, b, c, d, e, f, g, h] = *sums;
    // Even lanes, then odd ones: the order in which vectors of two add up, so that lanes need not be shuffled.
    ((a + c) + (e + g)) + ((b + d) + (f + h))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_over_padded_rows_are_those_of_the_rows() {
        let row: Vec<f64> = (1..=11).map(f64::from).collect();
        let padded = padded_row(&row);
        let ones = padded_row(&[1.0; 11]);

        assert_eq!(padded.len(), 16);
        assert_eq!(dot(&padded, &ones), 66.0);
    }
}
