//! The learnt directions U.

use crate::aligned::{Aligned, Narrow};
use crate::lanes::{padded, padded_narrow};

/// k orthonormal directions in m columns, each a padded row; a direction that does not exist is a row of zeros.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Basis {
    directions: Aligned,
    rank: usize,
    width: usize,
}

impl Basis {
    /// `directions` holds `rank` padded rows for `columns` columns.
    pub(crate) fn new(directions: Aligned, rank: usize, columns: usize) -> Self {
        debug_assert_eq!(directions.len(), rank * padded(columns));
        Self { directions, rank, width: padded(columns) }
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    pub(crate) fn direction(&self, index: usize) -> &[f64] {
        &self.directions[index * self.width..(index + 1) * self.width]
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of::<f64>() * self.directions.len()
    }
}

/// The basis in single precision, as scores read it: half as many bytes per row.
///
/// Directions are rounded to one part in 10⁷, and scores differ by one part in 10⁶ (lmap/README.md). Everything that is
/// learnt stays in double precision.
#[derive(Clone, Debug)]
pub(crate) struct Directions {
    values: Narrow,
    rank: usize,
    width: usize,
}

impl From<&Basis> for Directions {
    fn from(basis: &Basis) -> Self {
        let width = padded_narrow(basis.width);
        let mut values = Narrow::zeros(basis.rank * width);
        for (index, row) in values.chunks_exact_mut(width).enumerate() {
            for (out, u) in row.iter_mut().zip(basis.direction(index)) {
                *out = *u as f32;
            }
        }
        Self { values, rank: basis.rank, width }
    }
}

impl Directions {
    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// Direction `index`, padded.
    pub(crate) fn direction(&self, index: usize) -> &[f32] {
        &self.values[index * self.width..(index + 1) * self.width]
    }

    /// Values of a direction, padded.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// All directions, one after the other.
    pub(crate) fn all(&self) -> &[f32] {
        &self.values
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of::<f32>() * self.values.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::padded_row;

    #[test]
    fn what_scores_read_is_the_basis_to_single_precision_and_padded_with_zeros() {
        let rows = [[0.1, -0.2, 1.0 / 3.0].as_slice(), &[0.7; 3]];
        let padded: Vec<f64> = rows.iter().flat_map(|row| padded_row(row)).collect();
        let basis = Basis::new(Aligned::from(padded.as_slice()), 2, 3);

        let directions = Directions::from(&basis);

        assert_eq!((directions.rank(), directions.all().len()), (2, 32));
        for (index, row) in rows.iter().enumerate() {
            let (found, padding) = directions.direction(index).split_at(3);
            assert!(found.iter().zip(*row).all(|(found, u)| (f64::from(*found) - u).abs() <= 6e-8 * u.abs()));
            assert!(padding.iter().all(|u| *u == 0.0));
        }
    }
}
