//! What operators say of a new LMAP.

use lmap::ModelError;
use wire::control::DetectorSpec;
use wire::name::ServiceName;
use wire::time::Interval;

use super::selection::Choice;

/// Most bytes of all operators' models. Each is kept here, and by the worker that runs its LMAP.
pub const MAX_MODELS_BYTES: u64 = 256 << 20;

/// A trained model as bytes; empty: there is none. What is not empty decodes as a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrainedModel(Vec<u8>);

impl TrainedModel {
    /// The model in `bytes`. Decodes them, which takes milliseconds for a large one: not for a thread that others wait
    /// for.
    ///
    /// # Errors
    ///
    /// [`ModelError`] unless they are empty or a model file.
    pub fn new(bytes: Vec<u8>) -> Result<Self, ModelError> {
        if !bytes.is_empty() {
            lmap::Model::decode(&bytes)?;
        }
        Ok(Self(bytes))
    }

    /// Its length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Its bytes, for a worker.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.0.clone()
    }
}

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
