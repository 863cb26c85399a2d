//! The learnt directions U.

use crate::aligned::Aligned;
use crate::lanes::padded;

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

    /// All of them, one after the other.
    pub(crate) fn directions(&self) -> &[f64] {
        &self.directions
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of::<f64>() * self.directions.len()
    }
}
