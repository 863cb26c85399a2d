//! Models that operators give to LMAPs.

use wire::id::LmapId;
use wire::name::ServiceName;
use wire::time::{Interval, Nanos};

use super::lmap::Lmap;
use super::operator_error::{OperatorError, bounded};
use super::state::ControlPlane;
use super::trained_model::TrainedModel;

/// Size limit of an LMAP's model.
pub(super) const MAX_MODEL_BYTES: usize = 8 << 20;
/// Columns that are named of those that a model does not know: to who gave it, and in a refusal.
const EXAMPLES: (usize, usize) = (8, 3);

/// How the model that an LMAP has from now on fits it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelFit {
    /// Columns of the LMAP that are judged; 0: no replica has any now.
    pub columns: usize,
    /// Those of them that the model does not know, and that are not judged therefore.
    pub unknown: usize,
    /// Titles of the first of these.
    pub examples: Vec<String>,
    /// Whether a worker runs the LMAP.
    pub is_running: bool,
}

/// Checks that `model` is of rows every `interval`, as `service` has them.
pub(super) fn check_interval(
    service: &ServiceName,
    interval: Interval,
    model: &TrainedModel,
) -> Result<(), OperatorError> {
    match model.interval() {
        Some(learnt) if !model.is_of(interval) => {
            Err(OperatorError::ModelInterval { service: service.clone(), learnt, interval })
        }
        _ => Ok(()),
    }
}

impl ControlPlane {
    /// `setModel`: the LMAP judges by `model` once its worker has it, and as before until then; without one it learns
    /// by itself again. As long as it has a model, the LMAP stays, even without replicas. `by` is who pays for it.
    ///
    /// # Errors
    ///
    /// [`OperatorError::NoLmap`], [`OperatorError::TooMany`] for a model over 8 MiB, [`OperatorError::ModelInterval`],
    /// [`OperatorError::ModelColumns`], [`OperatorError::Share`].
    pub fn set_model(
        &mut self,
        now: Nanos,
        id: LmapId,
        model: TrainedModel,
        by: &str,
    ) -> Result<ModelFit, OperatorError> {
        bounded("bytes of a model", model.bytes(), MAX_MODEL_BYTES)?;
        let lmap = self.lmaps.get(&id).ok_or(OperatorError::NoLmap(id))?;
        check_interval(&lmap.service, lmap.interval, &model)?;
        let fit = self.fit_of(lmap, &model)?;
        let (is_given, interval) = (!model.is_empty(), lmap.interval);
        let (former_by, former_bytes) = (lmap.model_by.clone(), lmap.model.bytes() as u64);
        self.models.release(&former_by, former_bytes);
        if is_given && let Err(error) = self.models.take(by.to_owned(), model.bytes() as u64) {
            self.models.add(former_by, former_bytes);
            return Err(error.into());
        }
        if let Some(lmap) = self.lmaps.get_mut(&id) {
            (lmap.model, lmap.model_by) =
                if is_given { (model.taken_for(interval), by.to_owned()) } else { (model, String::new()) };
            let service = lmap.service.clone();
            self.changed(id, now);
            self.forget_without_replicas(&service, now);
        }
        Ok(fit)
    }

    /// How `model` fits an LMAP; perfectly if there is none.
    fn fit_of(&self, lmap: &Lmap, model: &TrainedModel) -> Result<ModelFit, OperatorError> {
        let metrics = self.spec_of(lmap.id).map(|spec| spec.metrics).unwrap_or_default();
        let judged = metrics.iter().filter(|metric| metric.series.group.is_judged());
        let titles: Vec<String> = judged
            .flat_map(|of| of.series.kind.statistics().iter().map(|&statistic| of.series.column_title(statistic)))
            .collect();
        let unknown: Vec<&String> = titles.iter().filter(|title| !(model.is_empty() || model.knows(title))).collect();
        let examples = |most: usize| unknown.iter().take(most).map(|title| (*title).clone()).collect::<Vec<String>>();
        // What most services have, such as processor time, is in models of all others, too.
        if 2 * unknown.len() > titles.len() {
            return Err(OperatorError::ModelColumns {
                service: lmap.service.clone(),
                columns: titles.len(),
                unknown: unknown.len(),
                examples: examples(EXAMPLES.1).join(", "),
            });
        }
        let is_running = lmap.worker.is_some();
        Ok(ModelFit { columns: titles.len(), unknown: unknown.len(), examples: examples(EXAMPLES.0), is_running })
    }
}
