//! What operators say of a new LMAP.

use wire::control::DetectorSpec;
use wire::name::ServiceName;
use wire::time::Interval;

use super::selection::Choice;
use super::trained_model::TrainedModel;

/// Most bytes of all operators' models. Each is kept here, and by the worker that runs its LMAP.
pub const MAX_MODELS_BYTES: u64 = 256 << 20;

/// Options of a new LMAP. The defaults are those of LMAPs that no operator asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LmapOptions {
    /// The local scraping interval; the agent's default if `None`.
    pub interval: Option<Interval>,
    /// A trained model; empty: the LMAP learns by itself.
    pub model: TrainedModel,
    /// Settings of the detector.
    pub detector: DetectorSpec,
    /// The operator who asks, and who pays for the model.
    pub by: String,
    /// The services of an LMAP over several; empty: one of its own name.
    pub members: Vec<MemberChoices>,
}

/// Metrics of one service for an LMAP over several (an entry of the dictionary of `configLMAP`).
#[derive(Clone, Debug, PartialEq)]
pub struct MemberChoices {
    /// Name of the service.
    pub service: ServiceName,
    /// Its metrics, by their own names; without any but derived columns, all of them.
    pub choices: Vec<Choice>,
}
