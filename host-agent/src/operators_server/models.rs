//! Models that operators bring: what is refused of them, and what is said of those that LMAPs have.

use agent_runtime::access::Identity;
use tonic::Status;
use wire::id::LmapId;
use wire::proto::operators as proto;

use super::translate;
use crate::control_plane::{OperatorError, TrainedModel};
use crate::node::Node;

/// The model in `bytes`. One that is refused is counted.
///
/// # Errors
///
/// `INVALID_ARGUMENT` unless they are empty or a model file that this release reads.
pub(super) fn trained(node: &Node, bytes: Vec<u8>) -> Result<TrainedModel, Status> {
    TrainedModel::new(bytes).map_err(|error| {
        node.counts.refused_models.one_more();
        let how = "send a model file of this release, such as `uview train` and `uview model fetch` write";
        Status::invalid_argument(format!("model: {error}: {how}"))
    })
}

/// The status of a call with a model that failed. If that was for the model, it is counted.
pub(super) fn refused(node: &Node, error: &OperatorError) -> Status {
    use OperatorError::{ModelColumns, ModelInterval, Share};
    if matches!(error, Share(_) | ModelColumns { .. } | ModelInterval { .. }) {
        node.counts.refused_models.one_more();
    }
    translate::status(error)
}

/// Gives an LMAP the model that `by` sends, or takes the one back that it has.
///
/// # Errors
///
/// As [`trained`] and [`refused`]; nothing has changed then.
pub(super) fn set(node: &Node, asked: proto::SetModelRequest, by: &Identity) -> Result<proto::SetModelReply, Status> {
    let (lmap, bytes) = (LmapId(asked.lmap), asked.model.len());
    let model = trained(node, asked.model)?;
    let set = node.plane(|plane, now| plane.set_model(now, lmap, model, &by.to_string()));
    let fit = set.map_err(|error| refused(node, &error))?;
    let (columns, unknown) = (fit.columns, fit.unknown);
    tracing::info!(%by, %lmap, bytes, columns, unknown, "operator set the model of an LMAP");
    let (columns, unknown, running) = (columns as u32, unknown as u32, fit.is_running);
    Ok(proto::SetModelReply { columns, unknown, examples: fit.examples, running })
}
