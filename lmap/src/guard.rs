//! Protection against poisoning: rows that would raise any variance too fast are learnt with a smaller weight.
//!
//! Rows below γ are learnt. An attacker who stays just below γ, always in the same direction, teaches the detector that
//! direction, and then a little more of it. With 100 metrics γ² is about 120, and 26 such rows among 2,000 more than
//! double the variance there. Without a limit, an attack that grows by half with every decomposition would be learnt
//! completely and never detected.
//!
//! # Guarantee
//! Under the basis that a block of l + 1 new rows leads to, no Tᵢ and no Vⱼ becomes more than `growth` times the value
//! without the block; for fewer rows the factor is smaller accordingly. Variances below the floor of residuals count as
//! the floor. If a variance would grow more, the whole block is learnt with a smaller weight. So rows below γ can move
//! out in one direction by at most √growth per decomposition. Ordinary rows are learnt in full: among n rows the
//! variance along one direction differs by about √(2 / n) from block to block.
//!
//! # Cost
//! One score per new row and decomposition. A block with a smaller weight is decomposed twice.

use crate::aligned::{Aligned, Narrow};
use crate::basis::{Basis, Directions};
use crate::history::Variances;
use crate::kernels::score::Score;
use crate::kernels::squares::AddSquares;
use crate::kernels::widest;
use crate::lanes::padded_narrow;

/// Bounds on how much a block of new rows may raise variances.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limit {
    /// Maximum factor on a variance per l + 1 rows; above 1.
    pub(crate) growth: f64,
    /// Minimum that a variance counts as.
    pub(crate) floor: f64,
}

/// A block of new rows, after it was learnt with full weight.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    /// The rows, padded, in two slices.
    pub(crate) fresh: [&'a [f64]; 2],
    /// Rows learnt, including the block.
    pub(crate) rows: f64,
    /// l: rows of the sketch.
    pub(crate) sketch_rows: usize,
    /// The resulting basis, and the variances under it.
    pub(crate) basis: &'a Basis,
    pub(crate) found: &'a Variances,
}

impl Limit {
    /// The weight, in \[0, 1\], at which the block raises no variance too fast.
    pub(crate) fn weight(self, block: &Block<'_>) -> f64 {
        let width = block.found.residual.len();
        let count = block.fresh.iter().map(|part| part.len()).sum::<usize>() / width;
        let before = block.rows - count as f64;
        let most = self.growth.powf(count as f64 / (block.sketch_rows + 1) as f64) - 1.0;
        if count == 0 || before <= 0.0 {
            return 1.0;
        }
        let added = block.added();
        // (old + w added) / (before + w count) ≤ (1 + most) old / before, solved for w.
        let usual = (1.0 + most) * count as f64 / before;
        let mut steepest = 0.0_f64;
        let all = added.inside.iter().zip(&block.found.inside);
        for (added, variance) in all.chain(added.residual.iter().zip(block.found.residual.iter())) {
            let old = (variance * block.rows - added).max(self.floor * before);
            steepest = steepest.max(added / old - usual);
        }
        if steepest <= most { 1.0 } else { most / steepest }
    }
}

impl Block<'_> {
    /// Sums of squares of the new rows' coordinates and residuals.
    fn added(&self) -> Variances {
        let (rank, width) = (self.basis.rank(), self.found.residual.len());
        let mut sums = Variances { residual: Aligned::zeros(width), inside: vec![0.0; rank] };
        let directions = Directions::from(self.basis);
        let weight = Narrow::zeros(padded_narrow(width));
        let (mut residual, mut coordinates) = (weight.clone(), vec![0.0; rank]);
        for z in self.fresh.iter().flat_map(|part| part.chunks_exact(width)) {
            widest(Score {
                directions: directions.all(),
                z,
                weight: &weight,
                coordinates: &mut coordinates,
                residual: &mut residual,
            });
            sums.inside.iter_mut().zip(&coordinates).for_each(|(sum, p)| *sum += f64::from(*p).powi(2));
            widest(AddSquares { row: &residual, sums: &mut sums.residual });
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::padded_row;

    /// 2,000 rows, the last ones of which are `fresh`, along the first of three columns or beside it. The basis is that
    /// column.
    fn weight(fresh: &[[f64; 3]], inside: f64, residual: [f64; 3], growth: f64) -> f64 {
        let basis = Basis::new(Aligned::from(padded_row(&[1.0, 0.0, 0.0]).as_slice()), 1, 3);
        let residual = Aligned::from(padded_row(&residual).as_slice());
        let found = Variances { residual, inside: vec![inside] };
        let fresh: Vec<f64> = fresh.iter().flat_map(|row| padded_row(row)).collect();
        let fresh = [&fresh[..8], &fresh[8..]];
        let block = Block { fresh, rows: 2_000.0, sketch_rows: 25, basis: &basis, found: &found };
        Limit { growth, floor: 0.0025 }.weight(&block)
    }

    #[test]
    fn ordinary_rows_count_in_full_and_rows_far_out_for_as_much_as_the_limit_allows() {
        let ordinary = [[1.0, 1.0, -1.0]; 26];
        assert_eq!(weight(&ordinary, 1.0, [0.0, 1.0, 1.0], 1.05), 1.0);

        // 1,974 rows before with a variance of 1, and 26 with 16.
        let after = (1_974.0 + 26.0 * 16.0) / 2_000.0;
        let inside = weight(&[[4.0, 0.0, 0.0]; 26], after, [0.0, 1.0, 1.0], 1.05);
        let beside = weight(&[[0.0, 4.0, 0.0]; 26], 1.0, [0.0, after, 1.0], 1.05);
        assert!((inside - beside).abs() < 1e-9 && inside < 1.0, "{inside} and {beside}");
        let learnt = (1_974.0 + inside * 416.0) / (1_974.0 + inside * 26.0);
        assert!((learnt - 1.05).abs() < 1e-9, "{learnt}");
    }

    #[test]
    fn half_as_many_rows_may_add_half_as_much() {
        let weight = weight(&[[4.0, 0.0, 0.0]; 13], (1_987.0 + 208.0) / 2_000.0, [0.0, 1.0, 1.0], 1.05);

        let learnt = (1_987.0 + weight * 208.0) / (1_987.0 + weight * 13.0);
        assert!((learnt - 1.05_f64.sqrt()).abs() < 1e-9, "{learnt}");
    }

    #[test]
    fn what_stays_below_the_floor_counts_in_full() {
        let small = [[0.0, 0.01, 0.0]; 26];

        assert_eq!(weight(&small, 1.0, [0.0, 26.0 * 1e-4 / 2_000.0, 1.0], 1.05), 1.0);
    }
}
