//! What a detector tells about itself and about the row that it scored last.

use super::Detector;
use crate::column::Column;
use crate::counts::Counts;
use crate::explain::{self, Reason};
use crate::model::Model;
use crate::pipeline::Pipeline;
use crate::quantile::QUANTILES;
use crate::settings::Settings;
use crate::verdict::State;

impl Detector {
    /// What the detector is doing.
    #[must_use]
    pub fn state(&self) -> State {
        let needed = self.settings.warm_up_rows;
        let rows = self.learning.progress(&self.settings).map_or(0, |(rows, _)| rows);
        match self.pipeline {
            None => State::Learning { rows, needed },
            Some(_) if self.provisional => State::Provisional { rows, needed },
            Some(_) if self.settles() => {
                State::Provisional { rows: self.counts.rows as usize, needed: self.settings.settle_rows as usize }
            }
            Some(_) if self.episodes.rows() >= self.settings.drift_rows as u64 => {
                State::Drifted { rows: self.episodes.rows() }
            }
            Some(_) => State::Armed,
        }
    }

    /// The threshold γ in force, as the alarm budget has moved it; `None` while learning.
    #[must_use]
    pub fn gamma(&self) -> Option<f64> {
        self.pipeline.as_ref().map(Pipeline::gamma_in_force)
    }

    /// What the alarm budget multiplies γ by, between its bounds; 1 without a budget, and after every fit.
    #[must_use]
    pub fn gamma_factor(&self) -> f64 {
        self.budget.factor()
    }

    /// Fills `out` with the `top` columns that the row scored last differs in, largest share first; empty while learning.
    /// O(m (k + top)); allocates only to make room in `out`, and for a basis of more than 64 directions.
    pub fn explain(&self, top: usize, out: &mut Vec<Reason>) {
        out.clear();
        if let Some(pipeline) = &self.pipeline {
            explain::explain(pipeline, &self.intake, top, out);
        }
    }

    /// Fills `out` with each group's share of the score's square, in \[0, 1\], together 1 unless the score is 0; empty while learning. Allocates only to make
    /// room in `out`.
    pub fn group_shares(&self, out: &mut Vec<(u16, f64)>) {
        out.clear();
        if let Some(pipeline) = &self.pipeline {
            explain::group_shares(pipeline, &self.intake, &self.columns, out);
        }
    }

    /// Fills `out` with each column's share of the score's square, in (0, 1\], together 1, in the order of the columns; a column without one is left
    /// out. Empty while learning, and if the score is 0. Allocates only to make room in `out`.
    pub fn column_shares(&self, out: &mut Vec<(usize, f64)>) {
        out.clear();
        if let Some(pipeline) = &self.pipeline {
            explain::column_shares(pipeline, &self.intake, out);
        }
    }

    /// The fitted pipeline, to be kept; `None` until armed, and while a decomposition is out.
    #[must_use]
    pub fn model(&self) -> Option<Model> {
        let pipeline = self.pipeline.as_ref().filter(|_| !self.provisional)?;
        Model::of(pipeline, &self.columns, &self.settings)
    }

    /// The columns, as given.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What was counted.
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

    /// Columns that were never there in training and take no part until the next fit, ascending.
    pub fn unwatched(&self) -> impl Iterator<Item = usize> {
        self.pipeline.iter().flat_map(Pipeline::unwatched)
    }

    /// Percentiles of the training scores, at [`QUANTILES`]; `None` while learning.
    #[must_use]
    pub fn training_quantiles(&self) -> Option<[f64; QUANTILES.len()]> {
        self.pipeline.as_ref().map(|pipeline| pipeline.quantiles)
    }

    /// Rows seen towards the next fit, and how many it waits for; `None` if none is to come.
    #[must_use]
    pub fn next_fit(&self) -> Option<(usize, usize)> {
        self.learning.progress(&self.settings)
    }

    /// Bytes held, apart from a few hundred of fixed size and from what a job that is out holds.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let pipeline = self.pipeline.as_ref().map_or(0, Pipeline::bytes);
        let columns = size_of::<Column>() * self.columns.len();
        self.intake.bytes() + pipeline + self.learning.bytes() + self.spare.bytes() + columns
    }
}
