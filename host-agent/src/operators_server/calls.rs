//! What each call needs, and how long its request may be. Both are looked at before a byte of the request is read:
//! everybody on the machine may connect to the socket.

use std::sync::Arc;

use agent_runtime::access::{Access, Identity, Role};
use agent_runtime::reload::Reloadable;
use agent_runtime::repeated_events::RefusedCalls;
use agent_runtime::server::AdmittedRequest;
use axum::http::request::Parts;
use tonic::metadata::MetadataMap;
use tonic::{Request, Status};
use wire::control::MAX_MESSAGE_BYTES;

use crate::node::Node;
use crate::token_access::{Credential, Right, TokenAccess};

/// Prefix of the paths of all calls.
const SERVICE: &str = "/uview.operators.v1.Operators/";
/// Longest request of a call that names a few things.
const SHORT: usize = 64 << 10;
/// Longest request that names the metrics of LMAPs: 1 KiB for each that an LMAP may have.
const METRICS: usize = 4 << 20;
/// Longest request with a model. The frame of a message has five bytes.
const MODEL: usize = MAX_MESSAGE_BYTES + 5;

/// A call of the API.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) name: &'static str,
    /// What it needs.
    pub(super) right: Right,
    /// Completes "may not …".
    pub(super) what: &'static str,
    /// Maximum bytes of a request.
    bytes: usize,
}

const fn call(name: &'static str, right: Right, what: &'static str, bytes: usize) -> Call {
    Call { name, right, what, bytes }
}

impl Call {
    /// Whether it changes nothing, and registers nothing that stays.
    pub(super) fn reads(&self) -> bool {
        self.right.role() == Role::Viewer
    }
}

/// All calls. One that is not here is refused.
static CALLS: [Call; 22] = [
    call("NewLmap", Right::CreateLmap, "create an LMAP", MODEL),
    call("ConfigLmap", Right::UpdateLmap, "configure an LMAP", METRICS),
    call("DeleteLmap", Right::DeleteLmap, "delete an LMAP", SHORT),
    call("AddMetric", Right::UpdateLmap, "add a metric to an LMAP", SHORT),
    call("DeleteMetric", Right::UpdateLmap, "delete a metric of an LMAP", SHORT),
    call("RegisterHook", Right::Hook, "register a hook", SHORT),
    call("ResumeHook", Right::Hook, "resume a hook", SHORT),
    call("WatchRows", Right::WatchRows, "watch rows", SHORT),
    call("FitAgain", Right::UpdateLmap, "fit an LMAP again", SHORT),
    call("SetInterval", Right::UpdateLmap, "set the interval of an LMAP", SHORT),
    call("SetModel", Right::UpdateLmap, "set the model of an LMAP", MODEL),
    call("DrainWorker", Right::UpdateWorkers, "drain a worker", SHORT),
    call("UndrainWorker", Right::UpdateWorkers, "undrain a worker", SHORT),
    call("Trigger", Right::Trigger, "have traces kept", SHORT),
    call("List", Right::Read, "list LMAPs", SHORT),
    call("Receipt", Right::Read, "read the receipt", SHORT),
    call("Paths", Right::Read, "read paths", SHORT),
    call("Sources", Right::Read, "read sources", SHORT),
    call("Status", Right::Read, "read the status", SHORT),
    call("Incidents", Right::Read, "read incidents", SHORT),
    call("Incident", Right::Read, "read incidents", SHORT),
    call("OpenPage", Right::Read, "open the page", SHORT),
];

/// Who called, and that they may.
#[derive(Clone, Debug)]
pub(super) struct AllowedCall {
    pub(super) by: Identity,
    pub(super) call: &'static Call,
}

/// Who may send `request`.
///
/// # Errors
///
/// An internal error if nobody has looked at that: nothing is done for somebody unknown.
pub(super) fn allowed<T>(request: &Request<T>) -> Result<AllowedCall, Status> {
    let unchecked = || Status::internal("nobody has looked at who sent this call");
    request.extensions().get::<AllowedCall>().cloned().ok_or_else(unchecked)
}

/// Who decides what callers may.
#[derive(Clone, Debug)]
pub(crate) struct Callers {
    /// Those whom the kernel or a certificate names.
    pub(crate) access: Reloadable<Access>,
    /// Those over TLS who show a token in place of a certificate; `None`: nobody does.
    pub(crate) tokens: Option<Arc<TokenAccess>>,
    /// Those who may not, for the log.
    pub(crate) refused: Arc<RefusedCalls>,
}

impl Callers {
    /// Lets a request with `head` in if its sender may call, and says how long it may be.
    ///
    /// # Errors
    ///
    /// There is no such call, or the sender may not: with how to grant it.
    pub(super) async fn admit(&self, node: &Node, mut head: Parts) -> Result<AdmittedRequest, Status> {
        let name = head.uri.path().strip_prefix(SERVICE).unwrap_or_default();
        let Some(call) = CALLS.iter().find(|call| call.name == name) else {
            return Err(Status::unimplemented("there is no such call"));
        };
        // The server puts it there; a request without it is nobody's.
        let identity = head.extensions.get().cloned().unwrap_or(Identity::Certificate(Vec::new()));
        let by = self.require(identity, &head, call).await.inspect_err(|refused| {
            node.counts.denied_calls.one_more();
            self.refused.log(call.name, refused.message(), node.clock().now());
        })?;
        // Whose share it is of.
        head.extensions.insert(by.clone());
        head.extensions.insert(AllowedCall { by, call });
        Ok(AdmittedRequest { head, bytes: call.bytes })
    }

    async fn require(&self, identity: Identity, head: &Parts, call: &'static Call) -> Result<Identity, Status> {
        if let (Identity::Anyone, Some(tokens)) = (&identity, &self.tokens) {
            // Over TLS, and without a certificate: the configuration lets nobody in without either.
            let shown = Credential::of(&MetadataMap::from_headers(head.headers.clone()));
            return tokens.allow(&shown, call.right, call.what).await.map_err(|refusal| refusal.status());
        }
        let denied = self.access.load().require(&identity, call.right.role(), call.what);
        denied.map(|()| identity).map_err(|denied| Status::permission_denied(denied.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const API: &str = include_str!("../../../wire/proto/operators.proto");

    #[test]
    fn each_call_of_the_api_needs_a_right() {
        let rpcs = API.lines().filter_map(|line| line.trim().strip_prefix("rpc "));
        let mut of_api: Vec<_> = rpcs.filter_map(|line| line.split('(').next()).collect();
        let mut known: Vec<_> = CALLS.iter().map(|call| call.name).collect();
        of_api.sort_unstable();
        known.sort_unstable();

        assert_eq!(known, of_api);
    }
}
