//! Would `f32` do? The arithmetic of a fit and of a score in both precisions on labelled data: by how much scores
//! differ, how many rows change sides of γ, and what becomes of the ranking.
//! `cargo run --release -p evaluation --example precision DATA`; nothing depends on it.
//!
//! Rows are standardised as by default (floor of a twentieth of the range, soft clip at 50); k explains 95 %, residuals
//! and coordinates are judged by their own variances, γ is the 99th percentile in sample, nothing is learnt or
//! smoothed. `stored` is a fit in f64 of which everything is kept, and every row scored, in f32; `all` is the fit in
//! f32 as well.

use std::error::Error;
use std::path::Path;

use evaluation::data_set;
use evaluation::ranking::{Point, Ranking, quantile};
use evaluation::table::Label;
use evaluation::unit::Unit;
use nalgebra::{DMatrix, DVector, RealField, SymmetricEigen, convert, try_convert};

const CLIP: f64 = 50.0;
const SHARE: f64 = 0.95;
const FLOOR: f64 = 0.05;

/// Rows as columns of a matrix, standardised by the training rows; in f64, as counters and bytes do not fit into
/// anything else.
fn standardised(unit: &Unit) -> (DMatrix<f64>, DMatrix<f64>) {
    let m = unit.metrics.len();
    let train = unit.train.filled(None);
    let test = unit.test.filled(train.chunks_exact(m).next_back());
    let mut train = DMatrix::from_vec(m, train.len() / m, train);
    let mut test = DMatrix::from_vec(m, test.len() / m, test);
    for column in 0..m {
        let values = train.row(column);
        let (mean, range) = (values.mean(), values.max() - values.min());
        let deviation = values.variance().sqrt();
        // A constant takes no part.
        let moves = deviation > 1e-9 * mean.abs().max(1.0);
        let inverse = if moves { 1.0 / deviation.max(FLOOR * range) } else { 0.0 };
        let soft = |value: f64| {
            let z = (value - mean) * inverse;
            if z.abs() <= CLIP { z } else { z.signum() * CLIP * (1.0 + (z.abs() / CLIP).ln()) }
        };
        for value in train.row_mut(column).iter_mut().chain(test.row_mut(column).iter_mut()) {
            *value = soft(*value);
        }
    }
    (train, test)
}

/// A fitted pipeline.
struct FittedModel<T: RealField> {
    basis: DMatrix<T>,
    /// 1 / V and 1 / T.
    weight: DVector<T>,
    inside_weight: DVector<T>,
}

impl<T: RealField + Copy> FittedModel<T> {
    fn new(z: &DMatrix<T>) -> Option<Self> {
        let eigen = SymmetricEigen::try_new(z * z.transpose(), T::default_epsilon(), 0)?;
        let mut order: Vec<usize> = (0..eigen.eigenvalues.len()).collect();
        let value = |at: usize| eigen.eigenvalues[at].max(T::zero());
        order.sort_by(|a, b| value(*b).partial_cmp(&value(*a)).unwrap_or(std::cmp::Ordering::Equal));
        let total = order.iter().fold(T::zero(), |sum, at| sum + value(*at));
        let mut explained = T::zero();
        let short = order.iter().take_while(|at| {
            explained += value(**at);
            explained < convert::<f64, T>(SHARE) * total
        });
        let rank = (short.count() + 1).min(order.len().saturating_sub(1)).max(1);
        let basis = eigen.eigenvectors.select_columns(&order[..rank]);
        let rows: T = convert(z.ncols() as f64);
        let inside = basis.tr_mul(z);
        let residual = z - &basis * &inside;
        let least: T = convert(FLOOR * FLOOR);
        let weight = |variance: T, least: T| T::one() / (variance / rows).max(least);
        let squares = |all: &DMatrix<T>| all.row_iter().map(|row| row.norm_squared()).collect::<Vec<T>>();
        let weights = squares(&residual).into_iter().map(|square| weight(square, least));
        let inside_weights = squares(&inside).into_iter().map(|square| weight(square, convert(1e-12)));
        let (weight, inside_weight) = (weights.collect::<Vec<T>>(), inside_weights.collect::<Vec<T>>());
        Some(Self { basis, weight: DVector::from_vec(weight), inside_weight: DVector::from_vec(inside_weight) })
    }

    fn scores(&self, rows: &DMatrix<T>) -> Vec<f64> {
        let inside = self.basis.tr_mul(rows);
        let residual = rows - &self.basis * &inside;
        let part = |row: nalgebra::DVectorView<'_, T>, weight: &DVector<T>| {
            row.iter().zip(weight.iter()).fold(T::zero(), |sum, (value, weight)| sum + *value * *value * *weight)
        };
        let columns = residual.column_iter().zip(inside.column_iter());
        let squares = columns.map(|(r, p)| part(r, &self.weight) + part(p, &self.inside_weight));
        squares.map(|square| try_convert::<T, f64>(square.sqrt()).unwrap_or(f64::NAN)).collect()
    }
}

impl FittedModel<f64> {
    fn stored(&self) -> FittedModel<f32> {
        let (weight, inside_weight) =
            (self.weight.map(|value| value as f32), self.inside_weight.map(|value| value as f32));
        FittedModel { basis: self.basis.map(|value| value as f32), weight, inside_weight }
    }
}

/// What one precision made of a unit's test rows.
struct Precision {
    auc_pr: f64,
    /// Largest and middle relative difference of a score from that in f64.
    largest: f64,
    middle: f64,
    /// Rows on another side of γ.
    moved: usize,
}

fn found(unit: &Unit, exact: &[f64], scores: &[f64], gamma: f64) -> Precision {
    let mut differences: Vec<f64> =
        exact.iter().zip(scores).map(|(a, b)| (a - b).abs() / a.max(f64::MIN_POSITIVE)).collect();
    differences.sort_by(f64::total_cmp);
    let moved = exact.iter().zip(scores).filter(|(a, b)| (**a >= gamma) != (**b >= gamma)).count();
    let labelled = unit.labels.iter().zip(scores).filter(|(label, _)| **label != Label::Ignored);
    let event = |label: Label| (label == Label::Anomalous).then_some(0);
    let points = labelled.map(|(label, score)| Point { score: *score, event: event(*label) });
    let auc_pr = Ranking::new(points.collect()).auc_pr();
    Precision { auc_pr, largest: quantile(&differences, 1.0), middle: quantile(&differences, 0.5), moved }
}

fn on_unit(unit: &Unit) -> Option<[Precision; 3]> {
    let (train, test) = standardised(unit);
    let double = FittedModel::new(&train)?;
    let mut training = double.scores(&train);
    training.sort_by(f64::total_cmp);
    let gamma = quantile(&training, 0.99);
    let exact = double.scores(&test);
    let (train, test) = (train.map(|value| value as f32), test.map(|value| value as f32));
    let all = FittedModel::new(&train)?;
    Some([&exact, &double.stored().scores(&test), &all.scores(&test)].map(|scores| found(unit, &exact, scores, gamma)))
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("which folder of labelled data? See `uview eval --help`")?;
    println!("| set | rows | arithmetic | AUC-PR | score differs by (middle, most) | rows on another side of γ |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for set in data_set::open(Path::new(&folder))? {
        let (mut rows, mut units) = (0, Vec::new());
        for files in &set.units {
            let unit = files.load()?;
            rows += unit.test.len();
            if unit.labels.contains(&Label::Anomalous) {
                units.extend(on_unit(&unit));
            }
        }
        for (place, arithmetic) in ["f64", "stored", "all"].into_iter().enumerate() {
            let of = || units.iter().map(|unit| &unit[place]);
            let auc_pr = of().map(|found| found.auc_pr).sum::<f64>() / units.len() as f64;
            let largest = of().map(|found| found.largest).fold(0.0, f64::max);
            let middle = of().map(|found| found.middle).fold(0.0, f64::max);
            let moved: usize = of().map(|found| found.moved).sum();
            println!("| {} | {rows} | {arithmetic} | {auc_pr:.4} | {middle:.1e}, {largest:.1e} | {moved} |", set.name);
        }
    }
    Ok(())
}
