//! How far a move of an LMAP to another worker is.

use wire::id::WorkerId;
use wire::time::Nanos;

use super::sent_config::SentConfig;

/// A move to another worker that has begun.
#[derive(Debug)]
pub struct Move {
    /// `None`: off its worker, since an operator drains that by force and no other takes it.
    pub to: Option<WorkerId>,
    pub(super) stage: Stage,
}

impl Move {
    /// The configuration that the next worker was sent.
    pub fn sent(&self) -> Option<&SentConfig> {
        match &self.stage {
            Stage::AwaitingModel { .. } => None,
            Stage::Preparing { sent, .. } => Some(sent),
        }
    }
}

/// What a move waits for.
#[derive(Debug)]
pub(super) enum Stage {
    /// The LMAP's worker was asked for its model.
    AwaitingModel { until: Nanos },
    /// The next worker was sent this configuration, and has to have rows by then.
    Preparing { sent: SentConfig, until: Nanos },
}
