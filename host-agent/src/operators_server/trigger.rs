//! Traces that operators ask for: what is asked, and what is said to it.

use agent_runtime::access::Identity;
use hooks::tracing::{LookBack, OperatorRequest, OperatorRequestError};
use otlp::Edge;
use tonic::Status;
use wire::printable;
use wire::proto::operators as proto;
use wire::time::Nanos;

use super::not_buffered;
use crate::node::Node;

/// For how long, unless the request says so.
const USUAL: Nanos = Nanos::from_secs(30);

/// What `by` asks for.
///
/// # Errors
///
/// `INVALID_ARGUMENT` without a service.
pub(super) fn request(asked: proto::TriggerRequest, by: &Identity) -> Result<OperatorRequest, Status> {
    let proto::TriggerRequest { service, operation, for_ms, reason: why } = asked;
    if service.is_empty() {
        return Err(Status::invalid_argument("service is missing: `uview receipt` lists the services of this node"));
    }
    let operation = Some(operation).filter(|operation| !operation.is_empty());
    let length = if for_ms == 0 { USUAL } else { Nanos::from_millis(for_ms) };
    Ok(OperatorRequest { service, short_name: None, operation, length, why, by: by.to_string() })
}

/// Has `edge` carry out what is `wanted`. It is counted and logged with that: whoever asked may not wait for the reply.
///
/// # Errors
///
/// `FAILED_PRECONDITION` where no traces are buffered; others for what cannot be carried out.
pub(super) fn ask(node: &Node, edge: Option<&Edge>, wanted: &OperatorRequest) -> Result<proto::TriggerReply, Status> {
    let asked = edge.and_then(|edge| Some((edge.ask(wanted)?, edge.forwards())));
    let (look_back, forwards) = asked.ok_or_else(|| not_buffered(edge))?;
    let look_back = look_back.map_err(|error| status(&error))?;
    node.counts.operator_triggers.one_more();
    let OperatorRequest { service, operation, length, why, by, .. } = wanted;
    tracing::info!(%by, service, operation, %length, why = %printable::line(why), "operator asked for traces");
    Ok(reply(*length, look_back, !forwards))
}

/// The status of a request that is not carried out.
fn status(error: &OperatorRequestError) -> Status {
    let text = error.to_string();
    match error {
        OperatorRequestError::NoService(_) | OperatorRequestError::NoOperation { .. } => Status::not_found(text),
        OperatorRequestError::Length { .. } => Status::out_of_range(text),
        OperatorRequestError::Why { .. } => Status::invalid_argument(text),
        OperatorRequestError::TooMany { .. } | OperatorRequestError::TooManyByOne { .. } => {
            Status::resource_exhausted(text)
        }
        _ => Status::internal(text),
    }
}

/// What is said of a request that is carried out, where what is kept goes on or is `unforwarded`.
fn reply(length: Nanos, look_back: LookBack, unforwarded: bool) -> proto::TriggerReply {
    proto::TriggerReply { for_ms: length.as_millis(), look_back_ms: look_back.reach.as_millis(), unforwarded }
}
