//! Settings of the endpoint.

use agent_runtime::reload::Reloadable;
use agent_runtime::socket_owner::{OwnerLookup, socket_owner};
use hooks::tracing::LogLimitsError;
use tokio::net::TcpStream;
use tokio_rustls::rustls::ServerConfig;

use crate::forwarded_headers::DEFAULT_FORWARDED;
use crate::pod_senders::PodSenders;
use crate::senders::SenderRules;
use crate::span_metrics::SpanMetricsSettings;
use crate::tail::{LogSettings, TailError, TailSettings};
use crate::tenants::{Tenant, TenantsError};
use crate::upstream::{UpstreamError, UpstreamSettings};

/// Settings of the endpoint.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where everything is forwarded to; `None`: it is watched, and forwarded to nobody.
    pub upstream: Option<UpstreamSettings>,
    /// TLS towards clients; `None`: plain text.
    pub tls: Option<ServerConfig>,
    /// Client headers that are forwarded to the upstream.
    /// [`DEFAULT_FORWARDED_HEADERS`](crate::DEFAULT_FORWARDED_HEADERS) by default.
    pub forwarded_headers: Vec<String>,
    /// Tail sampling; `None`: all spans pass through.
    pub tail: Option<TailSettings>,
    /// Tail sampling of log records, beside that of spans; `None`, and where spans pass through: all pass through.
    pub logs: Option<LogSettings>,
    /// Metrics derived from spans, sampled or not; `None`: none.
    pub span_metrics: Option<SpanMetricsSettings>,
    /// Bytes of requests with metrics that wait to be watched; `None`: metrics are not watched.
    pub watched_metrics: Option<usize>,
    /// Bytes of requests with kept spans that wait to be watched; `None`: they are not watched.
    pub watched_kept: Option<usize>,
    /// Bytes of requests with kept log records that wait to be watched; `None`: they are not watched.
    pub watched_kept_logs: Option<usize>,
    /// Frontends for finding anomalous operations where spans pass through (head sampling,
    /// gossip); `None`: off.
    pub observed: Option<Vec<String>>,
    /// Key by which the traces are chosen that [`observed`](Self::observed) learns paths from: with gossip the same on
    /// all nodes, or pieces of one path do not meet. `None`: a random one.
    pub observed_key: Option<u128>,
    /// Tenants beside the default one. Each has memory and connections of its own, as many as are set here.
    pub tenants: Vec<TenantSettings>,
    /// Who may send spans in which service's name; a service that no rule names is open to everybody. Each request is
    /// judged by the rules that are current when it begins.
    pub senders: Reloadable<SenderRules>,
    /// Pods of this node by address, as they are at the begin of a request; `None`: pods are not watched. Then names
    /// with a slash belong to nobody.
    pub pods: Option<Reloadable<PodSenders>>,
    /// How the owner of a connection from this machine is found out. By default the kernel is asked.
    pub socket_owner: OwnerLookup,
    /// Keys of attributes whose values are masked before anything is stored: of spans, resources, scopes, events and
    /// links.
    pub redacted: Vec<String>,
    /// Maximum bytes of one request after decompression. 16 MiB by default.
    pub request_bytes: usize,
    /// Memory budget for requests while they are read, of which one sender may have three times what is free. 64 MiB by
    /// default.
    pub receive_memory_bytes: usize,
    /// Maximum bytes queued for the upstream, per signal, of which one sender may have three times what is free. 64 MiB
    /// by default.
    pub queue_bytes: usize,
    /// Maximum number of connections of one tenant, of which one user or address may have three times what is free.
    /// 1,024 by default.
    pub connections: usize,
    /// Whether a connection that was just accepted may stay: `false` closes it. By default all may.
    pub admits: fn(&TcpStream) -> bool,
}

impl Settings {
    /// The defaults for `upstream`: spans pass through, no metrics are derived from them.
    #[must_use]
    pub fn new(upstream: UpstreamSettings) -> Self {
        Self { upstream: Some(upstream), ..Self::watch_only() }
    }

    /// The defaults without an upstream: what comes is watched, and forwarded to nobody.
    #[must_use]
    pub fn watch_only() -> Self {
        Self {
            upstream: None,
            tls: None,
            forwarded_headers: DEFAULT_FORWARDED.map(str::to_owned).to_vec(),
            tail: None,
            logs: None,
            span_metrics: None,
            watched_metrics: None,
            watched_kept: None,
            watched_kept_logs: None,
            observed: None,
            observed_key: None,
            tenants: Vec::new(),
            senders: Reloadable::new(SenderRules::default()),
            pods: None,
            socket_owner,
            redacted: Vec::new(),
            request_bytes: 16 << 20,
            receive_memory_bytes: 64 << 20,
            queue_bytes: 64 << 20,
            connections: 1_024,
            admits: |_| true,
        }
    }
}

/// A tenant, and its limits where they differ from the default tenant's.
#[derive(Clone, Debug)]
pub struct TenantSettings {
    /// Name, networks and services.
    pub who: Tenant,
    /// Memory for its buffered spans; `None`: as the default tenant.
    pub memory_bytes: Option<usize>,
    /// Budget for its kept spans in bytes per second; `None`: as the default tenant.
    pub budget_bytes_per_s: Option<u64>,
}

impl TenantSettings {
    /// Its tail sampling settings, where the default tenant's are `tail`.
    pub(crate) fn tail(&self, tail: &TailSettings) -> TailSettings {
        let mut settings = tail.clone();
        settings.limits.bytes = self.memory_bytes.unwrap_or(tail.limits.bytes);
        settings.budget.bytes_per_s = self.budget_bytes_per_s.unwrap_or(tail.budget.bytes_per_s);
        settings
    }
}

/// Why the endpoint does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Settings of the upstream.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// A client header that cannot be forwarded.
    #[error(
        "{0:?} cannot be forwarded: give the name of a header that describes neither the message nor its connection"
    )]
    ForwardedHeader(String),
    /// The table of tenants.
    #[error(transparent)]
    Tenants(#[from] TenantsError),
    /// Settings of tail sampling.
    #[error(transparent)]
    TailSampler(#[from] TailError),
    /// Memory of waiting log records.
    #[error(transparent)]
    Logs(#[from] LogLimitsError),
}
