//! Queries: the state of a detector, and explanations of the row that it scored last.

use super::Detector;
use crate::column::Column;
use crate::counts::Counts;
use crate::explain::{self, JudgedRow, Reason};
use crate::model::Model;
use crate::novelty::Novelty;
use crate::pipeline::Pipeline;
use crate::quantile::QUANTILES;
use crate::settings::Settings;
use crate::standard::Role;
use crate::verdict::State;

impl Detector {
    /// The state of the detector.
    #[must_use]
    pub fn state(&self) -> State {
        let needed = self.settings.warm_up_rows;
        let rows = self.learning.progress(&self.settings).map_or(0, |(rows, _)| rows);
        match self.pipeline {
            None => State::Learning { rows, needed },
            Some(_) if self.provisional => State::Provisional { rows, needed },
            Some(_) if self.is_settling() => {
                State::Provisional { rows: self.counts.rows as usize, needed: self.settings.settle_rows as usize }
            }
            Some(_) if self.episodes.rows() >= self.settings.drift_rows as u64 => {
                State::Drifted { rows: self.episodes.rows() }
            }
            Some(_) => State::Armed,
        }
    }

    /// The threshold γ in force, including the factor of the alarm budget; `None` while learning.
    #[must_use]
    pub fn gamma(&self) -> Option<f64> {
        self.pipeline.as_ref().map(Pipeline::gamma_in_force)
    }

    /// How unsteady the rows were that γ was learnt from: γ as the fit set it, as a multiple of the usual score. That
    /// is the median score of the training rows, but at least √n for n columns that vary, which is what independent
    /// columns score. Where most columns rest most of the time, the median says nothing. `None` while learning.
    #[must_use]
    pub fn threshold_noise(&self) -> Option<f64> {
        let pipeline = self.pipeline.as_ref()?;
        let [median, ..] = pipeline.quantiles;
        let varying = pipeline.standard.roles.iter().filter(|role| **role == Role::Watched).count();
        Some(pipeline.gamma / median.max((varying.max(1) as f64).sqrt()))
    }

    /// The factor by which the alarm budget multiplies γ, within its bounds; 1 without a budget, and after every fit.
    #[must_use]
    pub fn gamma_factor(&self) -> f64 {
        self.budget.factor()
    }

    /// Fills `out` with the `top` columns that contribute most to the last score, largest share first; empty while
    /// learning. If another episode began within one, to what is new in that row ([`Settings::novelty`]).
    /// O(m (k + top)); allocates only if `out` has to grow, and for a basis of more than 64 directions or rows of more
    /// than 512 columns.
    pub fn explain(&self, top: usize, out: &mut Vec<Reason>) {
        out.clear();
        if let Some(judged) = self.told_row() {
            explain::explain(judged, top, out);
        }
    }

    /// Fills `out` with each column that is judged and has a value in the row scored last, in the order of the columns;
    /// empty while learning. The shares add up to 1 unless the score is 0. O(m k); allocates.
    pub fn explain_each(&self, out: &mut Vec<Reason>) {
        out.clear();
        if let Some(judged) = self.judged_row() {
            explain::explain_each(judged, out);
        }
    }

    /// Fills `out` with α = x − U Uᵀ x of the row scored last (μView, Eq. 4.1), one residual per column in deviations
    /// of training; x is the standardised row, of unit length in the relative form. NaN: the column is not watched, or
    /// has no value. Empty while learning. O(m); allocates only if `out` has to grow.
    pub fn residuals(&self, out: &mut Vec<f32>) {
        out.clear();
        if let Some(pipeline) = &self.pipeline {
            explain::residuals(pipeline, &self.intake, out);
        }
    }

    /// Fills `out` with each group's share of the square of the score, in \[0, 1\]; of what
    /// [`explain`](Self::explain) explains, and allocates when that does. The shares add up to 1 unless the score is 0.
    /// Empty while learning.
    pub fn group_shares(&self, out: &mut Vec<(u16, f64)>) {
        out.clear();
        if let Some(judged) = self.told_row() {
            explain::group_shares(judged, &self.columns, out);
        }
    }

    /// [`explain`](Self::explain), [`group_shares`](Self::group_shares) and, if `shares` are asked for,
    /// [`column_shares`](Self::column_shares) at once, in about the time of one of them.
    pub fn explain_at_once(
        &self,
        top: usize,
        out: &mut Vec<Reason>,
        groups: &mut Vec<(u16, f64)>,
        mut shares: Option<&mut Vec<(usize, f64)>>,
    ) {
        out.clear();
        groups.clear();
        if let Some(shares) = &mut shares {
            shares.clear();
        }
        let Some(told) = self.told_row() else { return };
        // Shares are of the whole row, also where only what is new in it is told.
        let is_whole = self.novelty.as_deref().and_then(Novelty::told).is_none();
        let (with_told, alone) = if is_whole { (shares, None) } else { (None, shares) };
        explain::explain_at_once(told, (top, &self.columns), out, groups, with_told);
        if let Some(shares) = alone {
            self.column_shares(shares);
        }
    }

    /// Fills `out` with each column's share of the square of the score, in (0, 1\], in the order of the columns. The
    /// shares add up to 1; columns without a share are left out. Empty while learning, and if the score is 0. Allocates
    /// when [`explain`](Self::explain) does.
    pub fn column_shares(&self, out: &mut Vec<(usize, f64)>) {
        out.clear();
        if let Some(judged) = self.judged_row() {
            explain::column_shares(judged, out);
        }
    }

    fn judged_row(&self) -> Option<JudgedRow<'_>> {
        let Self { pipeline, intake, saturations, .. } = self;
        let pipeline = pipeline.as_ref()?;
        Some(JudgedRow { pipeline, projection: &pipeline.projection, intake, saturations })
    }

    /// The row that was scored last, or what is new in it if another episode began with it within one.
    fn told_row(&self) -> Option<JudgedRow<'_>> {
        let judged = self.judged_row()?;
        let projection = self.novelty.as_deref().and_then(Novelty::told).unwrap_or(judged.projection);
        Some(JudgedRow { projection, ..judged })
    }

    /// The fitted pipeline, to be saved; `None` until armed, and while a decomposition is in flight.
    #[must_use]
    pub fn model(&self) -> Option<Model> {
        let pipeline = self.pipeline.as_ref().filter(|_| !self.provisional)?;
        Model::of(pipeline, &self.columns, &self.settings)
    }

    /// The columns, as passed by the caller.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Counters of rows, jobs and episodes.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Rank k of the basis and rows l of the sketch; `None` while learning.
    #[must_use]
    pub fn shape(&self) -> Option<(usize, usize)> {
        self.pipeline.as_ref().map(|pipeline| (pipeline.scorer.basis.rank(), pipeline.sketch_rows))
    }

    /// Columns judged by their increments, ascending.
    pub fn levels(&self) -> impl Iterator<Item = usize> {
        self.pipeline.iter().flat_map(|pipeline| pipeline.levels.iter().map(|&column| column as usize))
    }

    /// Columns that did not move in training, ascending.
    pub fn constants(&self) -> impl Iterator<Item = usize> {
        self.pipeline.iter().flat_map(|pipeline| pipeline.constants.iter().map(|constant| constant.column as usize))
    }

    /// Columns without values in training, which are not scored until the next fit, ascending.
    pub fn unwatched(&self) -> impl Iterator<Item = usize> {
        self.pipeline.iter().flat_map(Pipeline::unwatched)
    }

    /// Percentiles of the training scores, at [`QUANTILES`]; `None` while learning.
    #[must_use]
    pub fn training_quantiles(&self) -> Option<[f64; QUANTILES.len()]> {
        self.pipeline.as_ref().map(|pipeline| pipeline.quantiles)
    }

    /// Rows seen towards the next fit, and the number at which it is due; `None` if none is scheduled.
    #[must_use]
    pub fn next_fit(&self) -> Option<(usize, usize)> {
        self.learning.progress(&self.settings)
    }

    /// Memory in bytes, except for a few hundred of fixed size. With what a job in flight took along, without what it
    /// computes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let pipeline = self.pipeline.as_ref().map_or(0, Pipeline::bytes);
        let columns = size_of::<Column>() * self.columns.len();
        let expectation = self.expectation.as_ref().map_or(0, |of| of.bytes());
        let kept = self.learning.bytes() + self.given_out.reserved;
        let beside = self.saturations.bytes() + self.load.bytes() + self.novelty.as_deref().map_or(0, Novelty::bytes);
        self.intake.bytes() + expectation + pipeline + kept + self.spare.bytes() + beside + columns
    }

    /// Of [`memory_bytes`](Self::memory_bytes), what is in use: without the place for rows that have not come yet.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        let (reserved, filled) = (self.learning.bytes(), self.learning.filled_bytes());
        self.memory_bytes() - reserved - self.given_out.reserved + filled + self.given_out.filled
    }
}

#[cfg(test)]
mod tests {
    use crate::column::{Column, ColumnKind};
    use crate::detector::Detector;
    use crate::settings::{ScoreForm, Settings};

    /// Row `t` of six columns that follow two loads, and noise of their own.
    fn row(t: u64, fault: f64) -> Vec<f64> {
        let noise = |of: u64| ((t * 31 + of * 17).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / 1e7;
        let loads = [(t as f64 / 7.0).sin(), (t as f64 / 11.0).cos()];
        let value = |column: u64| 10.0 + loads[(column % 2) as usize] * (column + 1) as f64 + noise(column);
        (0..6).map(|column| value(column) + if column == 3 { fault } else { 0.0 }).collect()
    }

    #[test]
    fn residuals_are_what_the_models_basis_leaves_of_the_standardised_row() {
        let columns: Vec<_> = (0..6)
            .map(|fingerprint| Column { level: Some(false), ..Column::new(ColumnKind::Gauge, fingerprint) })
            .collect();
        let settings = Settings { warm_up_rows: 120, ..Settings::paper(ScoreForm::PaperAbsolute) };
        let mut detector = Detector::new(columns, settings, 1).unwrap();
        let mut residuals = vec![1.0];
        detector.residuals(&mut residuals);
        assert!(residuals.is_empty(), "there is no basis while it learns");
        let mut rows = (0..400).map(|t| row(t, 0.0));
        while detector.model().is_none() {
            let row = rows.next().expect("it is armed within 400 rows");
            _ = detector.score(&row).unwrap();
            if let Some(job) = detector.learn() {
                detector.install(job.run());
            }
        }
        let model = detector.model().unwrap().summary();
        let directions: Vec<Vec<f64>> = {
            let scorer = &detector.pipeline.as_ref().unwrap().scorer;
            (0..model.rank).map(|index| scorer.direction(index)).collect()
        };

        let judged = row(401, 5.0);
        let verdict = detector.score(&judged).unwrap();
        detector.residuals(&mut residuals);

        let x: Vec<f64> =
            judged.iter().zip(&model.columns).map(|(value, of)| (value - of.mean) / of.deviation).collect();
        let mut alpha = x.clone();
        for direction in &directions {
            let p: f64 = direction.iter().zip(&x).map(|(u, x)| u * x).sum();
            alpha.iter_mut().zip(direction).for_each(|(left, u)| *left -= p * u);
        }
        assert_eq!(residuals.len(), 6);
        for (residual, alpha) in residuals.iter().zip(&alpha) {
            assert!((f64::from(*residual) - alpha).abs() < 1e-4, "{residuals:?} instead of {alpha:?}");
        }
        let norm = residuals.iter().map(|residual| f64::from(*residual).powi(2)).sum::<f64>().sqrt();
        assert!((norm - verdict.raw).abs() < 1e-4 * norm, "{norm} instead of {}", verdict.raw);
    }

    #[test]
    fn a_column_without_a_value_has_no_residual() {
        let columns: Vec<_> = (0..6).map(|fingerprint| Column::new(ColumnKind::Gauge, fingerprint)).collect();
        let settings = Settings { provisional_rows: None, warm_up_rows: 120, ..Settings::default() };
        let mut detector = Detector::new(columns, settings, 1).unwrap();
        let mut residuals = Vec::new();
        for t in 0..200 {
            let mut row = row(t, 0.0);
            row[5] = f64::NAN;
            _ = detector.score(&row).unwrap();
            if let Some(job) = detector.learn() {
                detector.install(job.run());
            }
        }

        detector.residuals(&mut residuals);

        assert!(residuals[5].is_nan() && residuals[..5].iter().all(|of| of.is_finite()), "{residuals:?}");
    }
}
