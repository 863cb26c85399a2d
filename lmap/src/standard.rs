//! Standardisation: z = (x − mean) / σ of training, with constants left out and a soft clip.

use crate::aligned::Aligned;
use crate::estimates::error;
use crate::intake::Intake;
use crate::kernels::prepare::Standardise;
use crate::kernels::widest;
use crate::lanes::{padded, padded_row};

/// A column is constant if its deviation is at most this times max(1, |mean|), or at most
/// [`Settings::constant_below`](crate::Settings::constant_below) of its mean.
const CONSTANT: f64 = 1e-9;

/// The role of a column after training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Standardised, scored, learnt.
    Watched,
    /// Did not move in training: neither scored nor learnt, but moves count.
    Constant,
    /// No values in training: neither scored nor learnt.
    Unwatched,
}

/// Role, mean and deviation per column, padded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Standard {
    pub(crate) roles: Vec<Role>,
    pub(crate) mean: Aligned,
    /// 1 / σ; 0 for a column that is not watched.
    pub(crate) inverse: Aligned,
    clip: f64,
}

/// Parameters of [`Standard::fit`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct StandardRule {
    pub(crate) clip: f64,
    pub(crate) deviation_floor: f64,
    /// A deviation of at most this share of the mean makes a column a constant.
    pub(crate) constant_below: f64,
    /// Constant columns are watched in their own unit, as in the paper, instead of being left out.
    pub(crate) watch_constants: bool,
}

impl Standard {
    /// Fits to training rows of `columns` values each. A column with a NaN counts as one without values.
    pub(crate) fn fit(rows: &[f64], columns: usize, rule: StandardRule) -> Self {
        let mut out = Self::of(columns, rule.clip);
        let least = |mean: f64| (CONSTANT * mean.abs().max(1.0)).max(rule.constant_below * mean.abs());
        for column in 0..columns {
            let values = || rows.iter().skip(column).step_by(columns).copied();
            let (mean, deviation) = moments(values());
            out.roles[column] = if mean.is_nan() {
                Role::Unwatched
            } else if deviation > least(mean) || rule.watch_constants {
                Role::Watched
            } else {
                Role::Constant
            };
            out.mean[column] = if mean.is_nan() { 0.0 } else { mean };
            if out.roles[column] == Role::Watched {
                let moves = deviation > least(mean);
                let range = values().fold(f64::MIN, f64::max) - values().fold(f64::MAX, f64::min);
                let floor = rule.deviation_floor * range;
                out.inverse[column] = 1.0 / if moves { deviation.max(floor) } else { 1.0 };
            }
        }
        out
    }

    /// With deviations of `estimates` that are at least their error: also of one that was constant in training, which
    /// is watched then.
    pub(crate) fn with_errors(mut self, estimates: &[u32]) -> Self {
        for column in estimates.iter().map(|column| *column as usize) {
            let most = 1.0 / error(self.mean[column]);
            match self.roles[column] {
                Role::Watched => self.inverse[column] = self.inverse[column].min(most),
                Role::Constant => (self.roles[column], self.inverse[column]) = (Role::Watched, most),
                Role::Unwatched => (),
            }
        }
        self
    }

    /// The variances of the errors of `estimates`, in units of each column's own: at most 1 with
    /// [`with_errors`](Self::with_errors). None of a column that is not watched.
    pub(crate) fn errors(&self, estimates: &[u32]) -> Vec<(u32, f64)> {
        let watched = estimates.iter().copied().filter(|column| self.roles[*column as usize] == Role::Watched);
        let variance = |column: u32| (error(self.mean[column as usize]) * self.inverse[column as usize]).powi(2);
        watched.map(|column| (column, variance(column))).collect()
    }

    /// Restores from a model; `roles`, `mean` and `inverse` have one entry per column.
    pub(crate) fn restore(roles: Vec<Role>, mean: &[f64], inverse: &[f64], clip: f64) -> Self {
        let padded = |values: &[f64]| Aligned::from(padded_row(values).as_slice());
        Self { roles, mean: padded(mean), inverse: padded(inverse), clip }
    }

    fn of(columns: usize, clip: f64) -> Self {
        let width = padded(columns);
        Self { roles: vec![Role::Watched; columns], mean: Aligned::zeros(width), inverse: Aligned::zeros(width), clip }
    }

    pub(crate) fn clip(&self) -> f64 {
        self.clip
    }

    /// Applies the soft clip to a number of deviations.
    pub(crate) fn soft(&self, deviations: f64) -> f64 {
        soft_clip(deviations, self.clip)
    }

    /// z of one value. A missing value has z = 0.
    pub(crate) fn one(&self, column: usize, value: f64) -> f64 {
        soft_clip((value - self.mean[column]) * self.inverse[column], self.clip)
    }

    /// Writes z of a row of values; the padding of `z` stays 0. Never allocates.
    pub(crate) fn row(&self, values: &[f64], z: &mut [f64]) {
        let Self { mean, inverse, clip, .. } = self;
        let inside = widest(Standardise { values, mean, inverse, z, clip: *clip });
        if !inside {
            // Rare, so the logarithm is not vectorised.
            for z in &mut z[..values.len()] {
                *z = soft_clip(*z, self.clip);
            }
        }
    }

    /// The value that has this `z`: the inverse of [`one`](Self::one). Finite.
    pub(crate) fn value(&self, column: usize, z: f64) -> f64 {
        let raw = if z.abs() <= self.clip { z } else { z.signum() * self.clip * (z.abs() / self.clip - 1.0).exp() };
        if self.inverse[column] == 0.0 {
            return self.mean[column];
        }
        (self.mean[column] + raw / self.inverse[column]).clamp(f64::MIN, f64::MAX)
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of::<f64>() * (self.mean.len() + self.inverse.len()) + size_of::<Role>() * self.roles.len()
    }
}

/// The soft clip: linear up to ± `clip`, beyond it clip · (1 + ln(|x| / clip)). It keeps the order of values, but no
/// single row can turn the basis. NaN becomes 0.
pub(crate) fn soft_clip(x: f64, clip: f64) -> f64 {
    let size = x.abs();
    if size <= clip {
        x
    } else if size.is_nan() {
        0.0
    } else {
        x.signum() * clip * (1.0 + (size.min(1e300) / clip).ln())
    }
}

/// Mean and population deviation, in two passes.
pub(crate) fn moments(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values.clone() {
        sum += value;
        count += 1.0;
    }
    let mean = sum / count;
    let square: f64 = values.map(|value| (value - mean) * (value - mean)).sum();
    (mean, (square / count).sqrt())
}

/// Writes z of the newest row: levels by their increments, the others by their values. Never allocates.
pub(crate) fn standardise(standard: &Standard, levels: &[u32], intake: &Intake, z: &mut [f64]) {
    standard.row(intake.row(), z);
    for &level in levels {
        let column = level as usize;
        z[column] = standard.one(column, intake.value(column) - intake.before(column));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: StandardRule =
        StandardRule { clip: 50.0, deviation_floor: 0.05, constant_below: 0.0005, watch_constants: false };

    #[test]
    fn columns_are_watched_constant_or_unwatched() {
        let rows = [1.0, 7.0, f64::NAN, 3.0, 7.0, f64::NAN];

        let standard = Standard::fit(&rows, 3, RULE);

        assert_eq!(standard.roles, [Role::Watched, Role::Constant, Role::Unwatched]);
        let mut z = vec![0.0; 8];
        standard.row(&[3.0, 1e9, 5.0], &mut z);
        assert_eq!(z[..3], [1.0, 0.0, 0.0]);
    }

    #[test]
    fn the_papers_rule_divides_a_constant_by_one() {
        let standard = Standard::fit(&[7.0, 7.0], 1, StandardRule { watch_constants: true, ..RULE });

        assert_eq!(standard.one(0, 9.0), 2.0);
    }

    #[test]
    fn a_deviation_is_at_least_a_share_of_the_range() {
        let mut rows = vec![0.0; 10_000];
        rows[0] = 1.0;

        let standard = Standard::fit(&rows, 1, RULE);

        assert!((1.0 / standard.inverse[0] - 0.05).abs() < 1e-12);
    }

    #[test]
    fn the_deviation_of_an_estimate_is_at_least_its_error() {
        // One that hardly moves, one that does not, one that moves by more, and one without values.
        let row = |row: f64| [25.0 + row % 2.0, 1.0, 10.0 * row, f64::NAN];
        let rows: Vec<f64> = (0..100).map(f64::from).flat_map(row).collect();

        let (plain, found) = (Standard::fit(&rows, 4, RULE), Standard::fit(&rows, 4, RULE).with_errors(&[0, 1, 2, 3]));

        assert_eq!(found.roles, [Role::Watched, Role::Watched, Role::Watched, Role::Unwatched]);
        assert!((1.0 / found.inverse[0] - error(25.5)).abs() < 1e-9);
        assert_eq!((1.0 / found.inverse[1], found.inverse[2]), (error(1.0), plain.inverse[2]));
        let errors = found.errors(&[0, 1, 2, 3]);
        assert!(matches!(errors[..], [(0, a), (1, b), (2, c)] if a > 0.999 && b > 0.999 && c < 0.05), "{errors:?}");
        assert_eq!(Standard::fit(&rows, 4, RULE).with_errors(&[]).inverse, plain.inverse);
    }

    #[test]
    fn what_moves_by_next_to_nothing_of_itself_is_constant() {
        let rows: Vec<f64> = (0..100).flat_map(|row| [0.0, 40e3].map(|by| 192e6 + by * f64::from(row % 2))).collect();
        let more: Vec<f64> = (0..100).map(|row| 192e6 + 400e3 * f64::from(row % 2)).collect();

        assert_eq!(Standard::fit(&rows, 2, RULE).roles, [Role::Constant; 2]);
        assert_eq!(Standard::fit(&more, 1, RULE).roles, [Role::Watched]);
    }

    #[test]
    fn the_soft_clip_is_continuous_and_keeps_order() {
        assert_eq!(soft_clip(50.0, 50.0), 50.0);
        assert!((soft_clip(50.000_001, 50.0) - 50.000_001).abs() < 1e-9);
        assert!(soft_clip(1e8, 50.0) < soft_clip(1e9, 50.0));
        assert_eq!(soft_clip(-1e9, 50.0), -soft_clip(1e9, 50.0));
        assert!(soft_clip(f64::INFINITY, 50.0).is_finite());
        assert_eq!(soft_clip(f64::NAN, 50.0), 0.0);
    }

    #[test]
    fn a_value_comes_back_from_its_z() {
        let standard = Standard::fit(&[1.0, 3.0], 1, RULE);

        for value in [-1e6, 0.0, 2.5, 1e9] {
            assert!((standard.value(0, standard.one(0, value)) - value).abs() < 1e-9 * value.abs().max(1.0));
        }
    }
}
