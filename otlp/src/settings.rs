//! What the edge is told when it starts.

use tokio_rustls::rustls::ServerConfig;

use crate::derived::DerivedSettings;
use crate::passed::USUAL;
use crate::tail::{TailError, TailSettings};
use crate::tenants::{Tenant, TenantsError};
use crate::upstream::{UpstreamError, UpstreamSettings};

/// Settings of the edge.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where everything goes on to.
    pub upstream: UpstreamSettings,
    /// What clients have to speak inside of; `None`: they speak openly.
    pub tls: Option<ServerConfig>,
    /// Headers of clients that go on to the upstream with what they sent. [`USUAL_HEADERS`](crate::USUAL_HEADERS) by default.
    pub passed_headers: Vec<String>,
    /// How traces are kept; `None`: spans pass through.
    pub tail: Option<TailSettings>,
    /// What is counted of spans, whether they are kept or not; `None`: nothing.
    pub derived: Option<DerivedSettings>,
    /// Where spans pass through, which operations are out of the ordinary is found out with these frontends; `None`: it is not.
    pub observed: Option<Vec<String>>,
    /// Tenants beside everyone, who is in no table. Each has bytes and connections of its own, as many as stand here.
    pub tenants: Vec<TenantSettings>,
    /// Attributes of spans, their resources, scopes, events and links, whose values are masked before anyone keeps them.
    pub redacted: Vec<String>,
    /// Bytes of one request, unpacked. 16 MiB by default.
    pub request_bytes: usize,
    /// Bytes of all requests that are being read at one time. 64 MiB by default.
    pub reading_bytes: usize,
    /// Bytes of each signal that wait for the upstream. 64 MiB by default.
    pub queue_bytes: usize,
    /// Connections at one time. 1,024 by default.
    pub connections: usize,
}

impl Settings {
    /// The defaults, with `upstream`: spans pass through, and nothing is derived from them.
    #[must_use]
    pub fn new(upstream: UpstreamSettings) -> Self {
        Self {
            upstream,
            tls: None,
            passed_headers: USUAL.map(str::to_owned).to_vec(),
            tail: None,
            derived: None,
            observed: None,
            tenants: Vec::new(),
            redacted: Vec::new(),
            request_bytes: 16 << 20,
            reading_bytes: 64 << 20,
            queue_bytes: 64 << 20,
            connections: 1_024,
        }
    }
}

/// A tenant, and what is other for it than for everyone.
#[derive(Clone, Debug)]
pub struct TenantSettings {
    /// Who it is.
    pub who: Tenant,
    /// Memory for its waiting spans; `None`: as everyone.
    pub memory_bytes: Option<usize>,
    /// What may be kept of it, bytes per second; `None`: as everyone.
    pub budget_bytes_per_s: Option<u64>,
}

impl TenantSettings {
    /// How its traces are kept, where everyone's are as in `tail`.
    pub(crate) fn tail(&self, tail: &TailSettings) -> TailSettings {
        let mut own = tail.clone();
        own.limits.bytes = self.memory_bytes.unwrap_or(tail.limits.bytes);
        own.budget.bytes_per_s = self.budget_bytes_per_s.unwrap_or(tail.budget.bytes_per_s);
        own
    }
}

/// Why the edge does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The upstream.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// A header of clients.
    #[error(
        "{0:?} is no header that can be passed on: a name is needed that says nothing about the message or its connection"
    )]
    Passed(String),
    /// Who sends.
    #[error(transparent)]
    Tenants(#[from] TenantsError),
    /// How traces are kept.
    #[error(transparent)]
    Tail(#[from] TailError),
}
