//! The learnt directions U.

use crate::lanes::{add_four_scaled, add_scaled, dot, padded};

/// k orthonormal directions in m columns, each a padded row; a direction that does not exist is a row of zeros.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Basis {
    directions: Vec<f64>,
    rank: usize,
    width: usize,
}

impl Basis {
    /// `directions` holds `rank` padded rows for `columns` columns.
    pub(crate) fn new(directions: Vec<f64>, rank: usize, columns: usize) -> Self {
        debug_assert_eq!(directions.len(), rank * padded(columns));
        Self { directions, rank, width: padded(columns) }
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    pub(crate) fn direction(&self, index: usize) -> &[f64] {
        &self.directions[index * self.width..(index + 1) * self.width]
    }

    /// p = Uᵀ z: one coordinate per direction. O(m k).
    #[inline]
    pub(crate) fn project(&self, z: &[f64], coordinates: &mut [f64]) {
        for (p, direction) in coordinates.iter_mut().zip(self.directions.chunks_exact(self.width)) {
            *p = dot(direction, z);
        }
    }

    /// r = z − U p. O(m k).
    ///
    /// Subtracts instead of taking ‖z‖² − ‖p‖²: that is cheaper, but cancels when z is near the basis.
    #[inline]
    pub(crate) fn residual(&self, z: &[f64], coordinates: &[f64], residual: &mut [f64]) {
        residual.copy_from_slice(z);
        let fours = self.directions.chunks_exact(4 * self.width);
        let (by_four, rest) = coordinates.as_chunks::<4>();
        let left = fours.remainder();
        for (four, p) in fours.zip(by_four) {
            add_four_scaled(residual, p.map(|p| -p), four);
        }
        for (direction, p) in left.chunks_exact(self.width).zip(rest) {
            add_scaled(residual, -p, direction);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of::<f64>() * self.directions.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_and_residual_add_up_to_the_row() {
        let columns = 11;
        let mut directions = vec![0.0; 5 * padded(columns)];
        for i in 0..5 {
            directions[i * padded(columns) + 2 * i] = 1.0;
        }
        let basis = Basis::new(directions, 5, columns);
        let mut z: Vec<f64> = (1..=11).map(f64::from).collect();
        z.resize(padded(columns), 0.0);
        let (mut p, mut r) = (vec![0.0; 5], vec![0.0; padded(columns)]);

        basis.project(&z, &mut p);
        basis.residual(&z, &p, &mut r);

        assert_eq!(p, [1.0, 3.0, 5.0, 7.0, 9.0]);
        assert_eq!(r[..11], [0.0, 2.0, 0.0, 4.0, 0.0, 6.0, 0.0, 8.0, 0.0, 10.0, 11.0]);
    }
}
