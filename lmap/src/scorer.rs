//! Computes the score of a standardised row.

use crate::aligned::{Aligned, Narrow};
use crate::basis::{Basis, Directions};
use crate::estimates::Errors;
use crate::kernels::along::AlongDirections;
use crate::kernels::averages::{MoveVariances, Weigh};
use crate::kernels::prefetch::prefetch;
use crate::kernels::score::Score;
use crate::kernels::widest;
use crate::lanes::{add_scaled, dot, padded, padded_narrow};
use crate::onsets::Deviations;
use crate::settings::ScoreForm;
use core::array;

/// A coordinate's variance is at least this.
pub(crate) const MIN_VARIANCE: f64 = 1e-12;

/// Cache lines of the directions that are asked for ahead: all twelve of a row of 64 columns, and some more.
const DIRECTION_LINES: usize = 64;

/// Coordinates up to this many deviations are plausible effects of load.
const PLAUSIBLE: f64 = 3.0;
/// The square of deviations up to which they are plausible however they are rounded.
const WELL_PLAUSIBLE: f64 = 0.999 * PLAUSIBLE * PLAUSIBLE;
/// Columns whose residuals are weighted at a time, for pulls.
const TOGETHER: usize = 64;

/// The basis, and the variances that residuals and coordinates are measured in.
#[derive(Clone, Debug)]
pub(crate) struct Scorer {
    form: ScoreForm,
    residual_floor: f64,
    pub(crate) basis: Directions,
    /// The basis in double precision, for the paper's forms. Their rows are not clipped: where one column is 10⁹
    /// deviations out, the residuals of the others are differences of large numbers.
    exact: Option<Basis>,
    /// V, per column, padded.
    pub(crate) residual_variance: Aligned,
    /// T, per direction.
    pub(crate) inside_variance: Vec<f64>,
    /// What V and T count for at least, since columns are estimates.
    errors: Errors,
    /// 1 / max(V, floor², errors); ones in the paper's forms.
    weight: Narrow,
    /// 1 / max(T, errors); zeros in the paper's forms.
    inside_weight: Vec<f64>,
}

/// A row z, its coordinates p = Uᵀz and its residual r = z − U p, the latter two in single precision. One per detector,
/// so that scoring does not allocate.
#[derive(Clone, Debug)]
pub(crate) struct Projection {
    pub(crate) z: Aligned,
    pub(crate) coordinates: Vec<f32>,
    pub(crate) residual: Narrow,
    /// r in double precision, for the paper's forms; otherwise empty.
    exact: Aligned,
    /// What z was divided by: its length in the relative form, otherwise 1.
    pub(crate) length: f64,
}

impl Projection {
    /// A buffer for rows of `scorer`.
    pub(crate) fn of(scorer: &Scorer) -> Self {
        let width = scorer.residual_variance.len();
        let (residual, coordinates) = (Narrow::zeros(padded_narrow(width)), vec![0.0; scorer.basis.rank()]);
        let exact = Aligned::zeros(if scorer.exact.is_some() { width } else { 0 });
        Self { z: Aligned::zeros(width), coordinates, residual, exact, length: 1.0 }
    }

    /// Whether it is a buffer for rows of `scorer`.
    pub(crate) fn fits(&self, scorer: &Scorer) -> bool {
        let exact = if scorer.exact.is_some() { self.z.len() } else { 0 };
        self.z.len() == scorer.residual_variance.len()
            && self.coordinates.len() == scorer.basis.rank()
            && self.exact.len() == exact
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of::<f64>() * (self.z.len() + self.exact.len())
            + size_of::<f32>() * (self.coordinates.len() + self.residual.len())
    }
}

impl Scorer {
    /// A scorer without variances; set them with [`set_variances`](Self::set_variances).
    pub(crate) fn new(form: ScoreForm, residual_floor: f64, basis: &Basis, columns: usize) -> Self {
        let (rank, width) = (basis.rank(), padded(columns));
        let mut weight = Narrow::zeros(padded_narrow(columns));
        weight.fill(1.0);
        let mut scorer = Self {
            form,
            residual_floor,
            basis: basis.into(),
            exact: None,
            residual_variance: Aligned::zeros(width),
            inside_variance: vec![MIN_VARIANCE; rank],
            errors: Errors::default(),
            weight,
            inside_weight: vec![0.0; rank],
        };
        scorer.set_basis(basis);
        scorer.renew_weights();
        scorer
    }

    /// With columns that are estimates: the variances of their errors, in units of each column's own, ascending, under
    /// its `basis`. Variances have to be set then.
    pub(crate) fn with_errors(mut self, variances: &[(u32, f64)], basis: &Basis) -> Self {
        self.errors = Errors::new(variances, self.residual_variance.len());
        self.errors.turn(basis);
        self
    }

    /// The mean square of a score of errors of estimates alone; 0 without any.
    pub(crate) fn error_square(&self) -> f64 {
        self.errors.square()
    }

    /// Sets another basis of the same rank. Its variances have to be set, too.
    pub(crate) fn set_basis(&mut self, basis: &Basis) {
        self.basis = basis.into();
        self.exact = (self.form != ScoreForm::Scaled).then(|| basis.clone());
        self.errors.turn(basis);
        self.renew_weights();
    }

    /// Direction `index` in the precision used for scores, padded.
    pub(crate) fn direction(&self, index: usize) -> Vec<f64> {
        match &self.exact {
            Some(exact) => exact.direction(index).to_vec(),
            None => self.basis.direction(index).iter().map(|u| f64::from(*u)).collect(),
        }
    }

    pub(crate) fn set_variances(&mut self, residual: &[f64], inside: Vec<f64>) {
        self.residual_variance.copy_from_slice(residual);
        self.inside_variance = inside;
        self.renew_weights();
    }

    /// Asks for what the next score reads: of each array the first `lines`, of the directions more.
    pub(crate) fn prefetch(&self, lines: usize) {
        prefetch(self.basis.all(), DIRECTION_LINES);
        prefetch(&self.weight, lines);
        prefetch(&self.inside_weight, lines);
    }

    /// Splits `projection.z` and returns the square of its score: Σ rⱼ² wⱼ + Σ pᵢ² / Tᵢ. O(m k). Never allocates.
    pub(crate) fn score(&self, projection: &mut Projection) -> f64 {
        self.prepare(projection);
        if let Some(basis) = &self.exact {
            return exactly(basis, projection);
        }
        let outside = widest(Score {
            directions: self.basis.all(),
            z: &projection.z,
            weight: &self.weight,
            coordinates: &mut projection.coordinates,
            residual: &mut projection.residual,
        });
        outside + self.inside(projection)
    }

    /// The row as the sketch learns it: of unit length in the relative form. A zero row stays one.
    pub(crate) fn prepare(&self, projection: &mut Projection) {
        projection.length = 1.0;
        if self.form == ScoreForm::PaperRelative {
            let length = dot(&projection.z, &projection.z).sqrt();
            if length > 0.0 {
                projection.length = length;
                projection.z.iter_mut().for_each(|z| *z /= length);
            }
        }
    }

    /// Σ pᵢ² / Tᵢ of the row scored last.
    fn inside(&self, projection: &Projection) -> f64 {
        projection.coordinates.iter().zip(&self.inside_weight).map(|(p, w)| f64::from(*p).powi(2) * w).sum()
    }

    /// Fills `out` with pᵢ / Tᵢ − Σⱼ Uⱼᵢ rⱼ wⱼ, one per direction: how the square of the score pulls along it. O(m k).
    pub(crate) fn pulls(&self, projection: &Projection, out: &mut [f64]) {
        let mut weighted = [0.0; TOGETHER];
        out.fill(0.0);
        let columns = projection.residual.chunks(TOGETHER).zip(self.weight.chunks(TOGETHER));
        for (block, (residual, weight)) in columns.enumerate() {
            for (out, (r, w)) in weighted.iter_mut().zip(residual.iter().zip(weight)) {
                *out = f64::from(*r) * f64::from(*w);
            }
            self.add_outside(TOGETHER * block, &weighted[..residual.len()], out);
        }
        let inside = projection.coordinates.iter().zip(&self.inside_weight);
        for (out, (p, weight)) in out.iter_mut().zip(inside) {
            *out = f64::from(*p) * weight - *out;
        }
    }

    /// Adds Σⱼ Uⱼᵢ rⱼ wⱼ over some columns from `first` on to the sum of each direction: of six side by side, since a
    /// sum alone waits for each of its additions.
    fn add_outside(&self, first: usize, weighted: &[f64], sums: &mut [f64]) {
        let from_first = |index: usize| &self.basis.direction(index)[first..];
        let (sixes, rest) = sums.as_chunks_mut::<6>();
        let (twos, last) = rest.as_chunks_mut::<2>();
        let mut next = 0;
        for sums in sixes {
            add_products(sums, array::from_fn(|at| from_first(next + at)), weighted);
            next += 6;
        }
        for sums in twos {
            add_products(sums, array::from_fn(|at| from_first(next + at)), weighted);
            next += 2;
        }
        if let [sum] = last {
            add_products(array::from_mut(sum), [from_first(next)], weighted);
        }
    }

    /// Fills `out`, one value per column, with what each adds to the square of the score: [`contribution`] of all, in
    /// the order in which the directions lie in memory. O(m k).
    ///
    /// [`contribution`]: Self::contribution
    pub(crate) fn contributions(&self, projection: &Projection, pulls: &[f64], out: &mut [f64]) {
        let (directions, width) = (self.basis.all(), self.basis.width());
        widest(AlongDirections { directions, width, factors: pulls, out: &mut *out });
        let columns = projection.z.iter().zip(projection.residual.iter()).zip(self.weight.iter());
        for (along, ((z, r), w)) in out.iter_mut().zip(columns) {
            *along = z * (f64::from(*r) * f64::from(*w) + *along);
        }
    }

    /// What `column` adds to the square s² of the row scored last: zⱼ (rⱼ wⱼ + Σᵢ Uⱼᵢ [`pulls`](Self::pulls)ᵢ), its
    /// value times half of what s² changes by with it. These add up to s²; one is below 0 for a column that pulls the
    /// other way. O(k).
    pub(crate) fn contribution(&self, projection: &Projection, pulls: &[f64], column: usize) -> f64 {
        projection.z[column] * self.sensitivity(projection, pulls, column)
    }

    /// Half of what the square s² of the row scored last changes by with `column`: (A z)ⱼ if s² = zᵀA z. O(k).
    pub(crate) fn sensitivity(&self, projection: &Projection, pulls: &[f64], column: usize) -> f64 {
        let u = |i: usize| f64::from(self.basis.direction(i)[column]);
        let along: f64 = pulls.iter().enumerate().map(|(i, pull)| u(i) * pull).sum();
        f64::from(projection.residual[column]) * f64::from(self.weight[column]) + along
    }

    /// Whether the square of the score is that of the default form, of residuals and coordinates.
    pub(crate) const fn is_scaled(&self) -> bool {
        self.exact.is_none()
    }

    /// Deviations of the columns of the row scored last: their own, and their residuals'.
    pub(crate) fn deviations<'a>(&'a self, projection: &'a Projection) -> Deviations<'a> {
        Deviations { z: &projection.z, length: projection.length, residual: &projection.residual, weight: &self.weight }
    }

    /// The expected z of `column`: Σᵢ Uⱼᵢ pᵢ. Each coordinate is limited to [`PLAUSIBLE`] deviations, so that a fault
    /// along a learnt direction does not explain itself. Not limited without T, as in the paper's forms.
    pub(crate) fn expected(&self, projection: &Projection, column: usize) -> f64 {
        let plausible = |(i, (p, weight)): (usize, (&f32, &f64))| {
            let p = f64::from(*p);
            // Most are well below: they need neither the root nor the division.
            let p = if p * p * weight < WELL_PLAUSIBLE {
                p
            } else {
                let most = if *weight > 0.0 { PLAUSIBLE / weight.sqrt() } else { f64::MAX };
                p.clamp(-most, most)
            };
            f64::from(self.basis.direction(i)[column]) * p
        };
        projection.coordinates.iter().zip(&self.inside_weight).enumerate().map(plausible).sum()
    }

    /// Updates the averages V and T with the row scored last, at weight `share`.
    pub(crate) fn average(&mut self, projection: &Projection, share: f64) {
        let (residual, coordinates) = (&projection.residual, &projection.coordinates);
        widest(MoveVariances { variance: &mut self.residual_variance, values: residual, share });
        widest(MoveVariances { variance: &mut self.inside_variance, values: coordinates, share });
        self.renew_weights();
    }

    /// V with its floor, as scores use it; padded.
    pub(crate) fn floored_residual_variance(&self) -> Vec<f64> {
        let floor = self.residual_floor * self.residual_floor;
        let mut floored: Vec<f64> = self.residual_variance.iter().map(|variance| variance.max(floor)).collect();
        floored.iter_mut().zip(self.errors.residual()).for_each(|(out, error)| *out = out.max(f64::from(*error)));
        floored
    }

    pub(crate) fn bytes(&self) -> usize {
        let numbers = self.residual_variance.len() + 2 * self.inside_weight.len();
        let exact = self.exact.as_ref().map_or(0, Basis::bytes) + self.errors.bytes();
        self.basis.bytes() + exact + size_of::<f64>() * numbers + size_of::<f32>() * self.weight.len()
    }

    fn renew_weights(&mut self) {
        if self.form != ScoreForm::Scaled {
            return;
        }
        let floor = self.residual_floor * self.residual_floor;
        widest(Weigh { variance: &self.residual_variance, floor, weight: &mut self.weight });
        for (weight, variance) in self.inside_weight.iter_mut().zip(&self.inside_variance) {
            *weight = 1.0 / variance.max(MIN_VARIANCE);
        }
        // Without an error, 1 / 0 changes nothing.
        for (weight, error) in self.weight.iter_mut().zip(self.errors.residual()) {
            *weight = weight.min(1.0 / error);
        }
        for (weight, error) in self.inside_weight.iter_mut().zip(self.errors.inside()) {
            *weight = weight.min(1.0 / f64::from(*error));
        }
    }
}

/// Adds to each sum the products of its direction with `weighted`, in the order of the columns.
fn add_products<const D: usize>(sums: &mut [f64; D], directions: [&[f32]; D], weighted: &[f64]) {
    // Of one length: nothing is left to be checked in the loop.
    let directions = directions.map(|direction| &direction[..weighted.len()]);
    let mut all = *sums;
    for (column, weighted) in weighted.iter().enumerate() {
        for (sum, direction) in all.iter_mut().zip(directions) {
            *sum += f64::from(direction[column]) * weighted;
        }
    }
    *sums = all;
}

/// ‖r‖², in double precision throughout. O(m k).
fn exactly(basis: &Basis, projection: &mut Projection) -> f64 {
    let narrow = |value: f64| value.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32;
    projection.exact.copy_from_slice(&projection.z);
    for (index, coordinate) in projection.coordinates.iter_mut().enumerate() {
        let direction = basis.direction(index);
        let p = dot(direction, &projection.z);
        add_scaled(&mut projection.exact, -p, direction);
        *coordinate = narrow(p);
    }
    projection.residual.iter_mut().zip(projection.exact.iter()).for_each(|(out, r)| *out = narrow(*r));
    dot(&projection.exact, &projection.exact)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::padded_row;
    use crate::random::Random;

    /// A scorer with `rank` directions in so many columns and weights of all sizes, and a row that it has scored.
    fn scored(columns: usize, rank: usize) -> (Scorer, Projection) {
        let mut random = Random::new(7);
        let mut numbers = |count: usize| (0..count).map(|_| random.unit() - 0.5).collect::<Vec<f64>>();
        let directions: Vec<f64> = (0..rank).flat_map(|_| padded_row(&numbers(columns))).collect();
        let basis = Basis::new(Aligned::from(directions.as_slice()), rank, columns);
        let mut scorer = Scorer::new(ScoreForm::Scaled, 0.05, &basis, columns);
        let variances: Vec<f64> = numbers(columns).iter().map(|of| of + 0.5).collect();
        scorer.set_variances(&padded_row(&variances), numbers(rank).iter().map(|of| of + 0.6).collect());
        let mut projection = Projection::of(&scorer);
        projection.z.copy_from_slice(&padded_row(&numbers(columns)));
        _ = scorer.score(&mut projection);
        (scorer, projection)
    }

    #[test]
    fn pulls_are_bit_for_bit_those_of_one_direction_after_the_other() {
        for (columns, rank) in [(21, 1), (21, 3), (21, 4), (21, 9), (64, 6), (65, 2), (141, 15)] {
            let (scorer, projection) = scored(columns, rank);
            let mut pulls = vec![f64::NAN; rank];
            scorer.pulls(&projection, &mut pulls);

            for (i, pull) in pulls.iter().enumerate() {
                let mut outside = 0.0;
                for ((r, w), u) in projection.residual.iter().zip(scorer.weight.iter()).zip(scorer.basis.direction(i)) {
                    outside += f64::from(*u) * (f64::from(*r) * f64::from(*w));
                }
                let expected = f64::from(projection.coordinates[i]) * scorer.inside_weight[i] - outside;
                assert_eq!(pull.to_bits(), expected.to_bits(), "direction {i} of {rank} in {columns}");
            }
        }
    }

    #[test]
    fn contributions_are_bit_for_bit_those_of_each_column_and_add_up_to_the_square() {
        for rank in [1, 3, 4, 9] {
            let (scorer, mut projection) = scored(21, rank);
            let square = scorer.score(&mut projection);
            let (mut pulls, mut all) = (vec![0.0; rank], vec![f64::NAN; 21]);
            scorer.pulls(&projection, &mut pulls);
            scorer.contributions(&projection, &pulls, &mut all);

            for (column, found) in all.iter().enumerate() {
                let expected = scorer.contribution(&projection, &pulls, column);
                assert_eq!(found.to_bits(), expected.to_bits(), "column {column} of a basis of {rank}");
            }
            let sum: f64 = all.iter().sum();
            assert!((sum - square).abs() < 1e-3 * square, "{sum} instead of {square}");
        }
    }

    #[test]
    fn in_the_papers_forms_what_is_left_beside_something_huge_is_not_lost() {
        let directions = Aligned::from(padded_row(&[0.5_f64.sqrt(), 0.5_f64.sqrt(), 0.0]).as_slice());
        let scorer = Scorer::new(ScoreForm::PaperAbsolute, 0.05, &Basis::new(directions, 1, 3), 3);
        let mut projection = Projection::of(&scorer);

        projection.z.copy_from_slice(&padded_row(&[1e9 + 1.0, 1e9 - 1.0, 3.0]));
        let square = scorer.score(&mut projection);

        assert!((square - 11.0).abs() < 1e-5, "{square}");
        let left = [1.0, -1.0, 3.0].iter().zip(projection.residual.iter());
        assert!(
            left.clone().all(|(expected, found)| (f64::from(*found) - expected).abs() < 1e-5),
            "{:?}",
            projection.residual
        );
    }
}
