//! Who may be the other end of a measurement.

use std::sync::{Arc, Mutex, PoisonError};

use agent_runtime::Count;
use agent_runtime::access::{Access, Denied, Identity, Role};
use agent_runtime::reload::Reloadable;
use axum::http::request::Parts;
use tonic::Status;

/// Who may be the other end of a measurement, and how often somebody was refused.
#[derive(Clone, Debug)]
pub(crate) struct PeerAccess {
    /// Roles of certificates. They may change while the agent runs.
    pub(crate) access: Reloadable<Access>,
    /// Calls and answers that the other end's role does not allow.
    pub(crate) denied_calls: Arc<Count>,
    /// The refusal that was logged last: an agent asks once per interval and stream.
    last: Arc<Mutex<Option<Denied>>>,
}

impl PeerAccess {
    /// Nobody was refused yet.
    pub(crate) fn new(access: Reloadable<Access>) -> Self {
        Self { access, denied_calls: Arc::default(), last: Arc::default() }
    }

    /// Refuses a caller without the role of a peer, by the head of its request.
    pub(super) fn check(&self, head: &Parts) -> Result<(), Status> {
        // The server puts it there; a request without it is nobody's.
        let nobody = Identity::Certificate(Vec::new());
        let who = head.extensions.get::<Identity>().unwrap_or(&nobody);
        self.require(who, "measure one-way delay with this agent")
            .map_err(|denied| Status::permission_denied(denied.to_string()))
    }

    /// Refuses `who` without the role of a peer. `what` completes "may not …". Logs a refusal unless it is the last one
    /// again.
    pub(super) fn require(&self, who: &Identity, what: &'static str) -> Result<(), Denied> {
        self.access.load().require(who, Role::Peer, what).inspect_err(|denied| {
            self.denied_calls.one_more();
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.as_ref() != Some(denied) {
                tracing::warn!(%denied, "another agent is refused");
                *last = Some(denied.clone());
            }
        })
    }
}
