//! Requests of services that are refused: the service is told, and the status shows it.

use wire::metric::AggregationError;
use wire::proto::registration as proto;
use wire::time::Nanos;

use super::action::{Action, ConnectionId};
use super::state::ControlPlane;

/// The message that tells a service of a refusal.
pub(super) fn refused(what: String, reason: String, retry_after: Option<Nanos>) -> proto::AgentMessage {
    let retry_after_ms = retry_after.map_or(0, |after| after.as_millis().clamp(1, u64::from(u32::MAX)) as u32);
    let refusal = proto::Refusal { what, reason, retry_after_ms };
    proto::AgentMessage { message: Some(proto::agent_message::Message::Refusal(refusal)) }
}

impl ControlPlane {
    pub(super) fn refuse(&mut self, connection: ConnectionId, what: &str, refusal: &dyn core::error::Error) {
        self.refuse_until(connection, what, refusal, None);
    }

    /// Refuses `what`, which may be taken after that time.
    pub(super) fn refuse_until(
        &mut self,
        connection: ConnectionId,
        what: &str,
        refusal: &dyn core::error::Error,
        retry_after: Option<Nanos>,
    ) {
        let reason = refusal.to_string();
        self.record_problem(connection, what, &reason);
        self.actions.push(Action::ToService { connection, message: refused(what.to_owned(), reason, retry_after) });
    }

    /// Records a problem for the status call.
    pub(super) fn record_problem(&mut self, connection: ConnectionId, what: &str, reason: &str) {
        let who = self.connections.get(connection).map_or_else(
            || format!("connection {}", connection.0),
            |entry| match entry.replica() {
                Some(replica) => format!("{} {}", replica.service, replica.instance),
                None => format!("process {} of user {}", entry.peer.pid, entry.peer.uid),
            },
        );
        self.problems.push(&format!("{who}: {what}: {reason}"));
    }

    /// Tells a service, once for a message, that the agent does not know what it declares about some series.
    pub(super) fn refuse_declared(&mut self, connection: ConnectionId, unknown: &[(String, AggregationError)]) {
        if let [(title, error), more @ ..] = unknown {
            let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
            self.refuse(connection, &format!("aggregation of {title}{more}"), error);
        }
    }
}
