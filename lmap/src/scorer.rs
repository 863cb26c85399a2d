//! From a standardised row to its score.

use crate::aligned::{Aligned, Narrow};
use crate::basis::{Basis, Directions};
use crate::kernels::score::Score;
use crate::kernels::widest;
use crate::lanes::{add_scaled, dot, padded, padded_narrow};
use crate::settings::ScoreForm;
use crate::since::Deviations;

/// A coordinate's variance is at least this.
pub(crate) const LEAST_VARIANCE: f64 = 1e-12;

/// Deviations of a coordinate that are still taken for the load's doing.
const PLAUSIBLE: f64 = 3.0;

/// The basis, and the variances that residuals and coordinates are measured in.
#[derive(Clone, Debug)]
pub(crate) struct Scorer {
    form: ScoreForm,
    residual_floor: f64,
    pub(crate) basis: Directions,
    /// The same in double precision, for the paper's forms: their rows are not clipped, and where one column is a billion deviations out what is left of
    /// the others is a difference of large numbers.
    exact: Option<Basis>,
    /// V, per column, padded.
    pub(crate) residual_variance: Aligned,
    /// T, per direction.
    pub(crate) inside_variance: Vec<f64>,
    /// 1 / max(V, floor²); ones in the paper's forms.
    weight: Narrow,
    /// 1 / T; zeros in the paper's forms.
    inside_weight: Vec<f64>,
}

/// A row on its way to a score: z, p = Uᵀz and r = z − U p, the latter two in single precision. One per detector, so that scoring does not
/// allocate.
#[derive(Clone, Debug)]
pub(crate) struct Split {
    pub(crate) z: Aligned,
    pub(crate) coordinates: Vec<f32>,
    pub(crate) residual: Narrow,
    /// r in double precision, for the paper's forms; else empty.
    exact: Aligned,
    /// What z was divided by: its length in the relative form, else 1.
    pub(crate) length: f64,
}

impl Split {
    /// For rows of as many columns as `scorer` has.
    pub(crate) fn of(scorer: &Scorer) -> Self {
        let width = scorer.residual_variance.len();
        let (residual, coordinates) = (Narrow::zeros(padded_narrow(width)), vec![0.0; scorer.basis.rank()]);
        let exact = Aligned::zeros(if scorer.exact.is_some() { width } else { 0 });
        Self { z: Aligned::zeros(width), coordinates, residual, exact, length: 1.0 }
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of::<f64>() * (self.z.len() + self.exact.len())
            + size_of::<f32>() * (self.coordinates.len() + self.residual.len())
    }
}

impl Scorer {
    /// With variances of zero, to be set with [`set_variances`](Self::set_variances).
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
            inside_variance: vec![LEAST_VARIANCE; rank],
            weight,
            inside_weight: vec![0.0; rank],
        };
        scorer.set_basis(basis);
        scorer.renew_weights();
        scorer
    }

    /// Another basis of the same rank. Variances are to be set anew.
    pub(crate) fn set_basis(&mut self, basis: &Basis) {
        self.basis = basis.into();
        self.exact = (self.form != ScoreForm::Scaled).then(|| basis.clone());
    }

    /// Direction number `index`, as a row is judged by it; padded.
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

    /// Splits `split.z` and returns the square of its score: Σ rⱼ² wⱼ + Σ pᵢ² / Tᵢ. O(m k). Never allocates.
    pub(crate) fn score(&self, split: &mut Split) -> f64 {
        self.prepare(split);
        if let Some(basis) = &self.exact {
            return exactly(basis, split);
        }
        let outside = widest(Score {
            directions: self.basis.all(),
            z: &split.z,
            weight: &self.weight,
            coordinates: &mut split.coordinates,
            residual: &mut split.residual,
        });
        outside + self.inside(split)
    }

    /// The row as the sketch learns it: of unit length in the relative form. A zero row stays one.
    pub(crate) fn prepare(&self, split: &mut Split) {
        split.length = 1.0;
        if self.form == ScoreForm::PaperRelative {
            let length = dot(&split.z, &split.z).sqrt();
            if length > 0.0 {
                split.length = length;
                split.z.iter_mut().for_each(|z| *z /= length);
            }
        }
    }

    /// Σ pᵢ² / Tᵢ of the row split last.
    fn inside(&self, split: &Split) -> f64 {
        split.coordinates.iter().zip(&self.inside_weight).map(|(p, w)| f64::from(*p).powi(2) * w).sum()
    }

    /// Fills `out` with pᵢ / Tᵢ − Σⱼ Uⱼᵢ rⱼ wⱼ, one per direction: how the square of the score pulls along it. O(m k).
    pub(crate) fn pulls(&self, split: &Split, out: &mut [f64]) {
        for (i, out) in out.iter_mut().enumerate() {
            let weighted = split.residual.iter().zip(self.weight.iter()).map(|(r, w)| f64::from(*r) * f64::from(*w));
            let outside: f64 = self.basis.direction(i).iter().zip(weighted).map(|(u, rw)| f64::from(*u) * rw).sum();
            *out = f64::from(split.coordinates[i]) * self.inside_weight[i] - outside;
        }
    }

    /// What `column` adds to the square s² of the row split last: zⱼ (rⱼ wⱼ + Σᵢ Uⱼᵢ [`pulls`](Self::pulls)ᵢ), its value times half of what s²
    /// changes by with it. These add up to s²; one is below 0 for a column that pulls the other way. O(k).
    pub(crate) fn contribution(&self, split: &Split, pulls: &[f64], column: usize) -> f64 {
        let u = |i: usize| f64::from(self.basis.direction(i)[column]);
        let along: f64 = pulls.iter().enumerate().map(|(i, pull)| u(i) * pull).sum();
        split.z[column] * (f64::from(split.residual[column]) * f64::from(self.weight[column]) + along)
    }

    /// What the columns of the row split last are off by, of their own and of their residuals.
    pub(crate) fn deviations<'a>(&'a self, split: &'a Split) -> Deviations<'a> {
        Deviations { z: &split.z, length: split.length, residual: &split.residual, weight: &self.weight }
    }

    /// z that is expected of `column`: Σᵢ Uⱼᵢ pᵢ, each coordinate taken for no more than [`PLAUSIBLE`] deviations, lest a
    /// fault along a learnt direction explains itself. Without T, as in the paper's forms, coordinates are taken as they are.
    pub(crate) fn expected(&self, split: &Split, column: usize) -> f64 {
        let plausible = |(i, (p, weight)): (usize, (&f32, &f64))| {
            let most = if *weight > 0.0 { PLAUSIBLE / weight.sqrt() } else { f64::MAX };
            f64::from(self.basis.direction(i)[column]) * f64::from(*p).clamp(-most, most)
        };
        split.coordinates.iter().zip(&self.inside_weight).enumerate().map(plausible).sum()
    }

    /// V and T go on averaging, with weight `share` for the row split last.
    pub(crate) fn average(&mut self, split: &Split, share: f64) {
        for (variance, r) in self.residual_variance.iter_mut().zip(split.residual.iter()) {
            *variance = (1.0 - share) * *variance + share * f64::from(*r).powi(2);
        }
        for (variance, p) in self.inside_variance.iter_mut().zip(&split.coordinates) {
            *variance = (1.0 - share) * *variance + share * f64::from(*p).powi(2);
        }
        self.renew_weights();
    }

    /// V as residuals are judged by it, padded.
    pub(crate) fn floored_residual_variance(&self) -> Vec<f64> {
        let floor = self.residual_floor * self.residual_floor;
        self.residual_variance.iter().map(|variance| variance.max(floor)).collect()
    }

    pub(crate) fn bytes(&self) -> usize {
        let numbers = self.residual_variance.len() + 2 * self.inside_weight.len();
        let exact = self.exact.as_ref().map_or(0, Basis::bytes);
        self.basis.bytes() + exact + size_of::<f64>() * numbers + size_of::<f32>() * self.weight.len()
    }

    fn renew_weights(&mut self) {
        if self.form != ScoreForm::Scaled {
            return;
        }
        let floor = self.residual_floor * self.residual_floor;
        for (weight, variance) in self.weight.iter_mut().zip(self.residual_variance.iter()) {
            *weight = (1.0 / variance.max(floor)) as f32;
        }
        for (weight, variance) in self.inside_weight.iter_mut().zip(&self.inside_variance) {
            *weight = 1.0 / variance.max(LEAST_VARIANCE);
        }
    }
}

/// ‖r‖², in double precision throughout. O(m k).
fn exactly(basis: &Basis, split: &mut Split) -> f64 {
    let narrow = |value: f64| value.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32;
    split.exact.copy_from_slice(&split.z);
    for (index, coordinate) in split.coordinates.iter_mut().enumerate() {
        let direction = basis.direction(index);
        let p = dot(direction, &split.z);
        add_scaled(&mut split.exact, -p, direction);
        *coordinate = narrow(p);
    }
    split.residual.iter_mut().zip(split.exact.iter()).for_each(|(out, r)| *out = narrow(*r));
    dot(&split.exact, &split.exact)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::padded_row;

    #[test]
    fn in_the_papers_forms_what_is_left_beside_something_huge_is_not_lost() {
        let directions = Aligned::from(padded_row(&[0.5_f64.sqrt(), 0.5_f64.sqrt(), 0.0]).as_slice());
        let scorer = Scorer::new(ScoreForm::PaperAbsolute, 0.05, &Basis::new(directions, 1, 3), 3);
        let mut split = Split::of(&scorer);

        split.z.copy_from_slice(&padded_row(&[1e9 + 1.0, 1e9 - 1.0, 3.0]));
        let square = scorer.score(&mut split);

        assert!((square - 11.0).abs() < 1e-5, "{square}");
        let left = [1.0, -1.0, 3.0].iter().zip(split.residual.iter());
        assert!(
            left.clone().all(|(expected, found)| (f64::from(*found) - expected).abs() < 1e-5),
            "{:?}",
            split.residual
        );
    }
}
