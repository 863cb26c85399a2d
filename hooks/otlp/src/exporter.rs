//! Exports metrics of this node to an upstream, over the same transports as clients' requests. The caller queues and
//! retries.

use std::time::Duration;

use agent_runtime::ClientConfigs;
use agent_runtime::live_headers::LiveHeaders;
use agent_runtime::reload::Reloadable;
use bytes::Bytes;
use wire::time::Nanos;

use crate::forwarded_headers::ForwardedHeaders;
use crate::holders::Holder;
use crate::queue::UpstreamRequest;
use crate::reply::Failure;
use crate::signal::{Encoding, Signal};
use crate::tenants::DEFAULT;
use crate::upstream::{Upstream, UpstreamError, UpstreamSettings};

/// Sends metrics to one upstream.
#[derive(Debug)]
pub struct MetricsExporter {
    upstream: Upstream,
    tls: Option<Reloadable<ClientConfigs>>,
}

/// A request was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ExportError {
    /// Error message of the upstream, or of the transport.
    pub text: String,
    /// A retry may succeed.
    pub retryable: bool,
    /// Pause that the upstream asks for (`RetryInfo`, `Retry-After`).
    pub retry_after: Option<Duration>,
}

impl MetricsExporter {
    /// Makes an exporter that connects at the first request. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`UpstreamError`] if the endpoint, a header or a certificate cannot be used.
    pub fn new(settings: &UpstreamSettings) -> Result<Self, UpstreamError> {
        Ok(Self { upstream: Upstream::new(settings)?, tls: settings.tls.clone() })
    }

    /// The certificates with which the next connection begins; `None` without TLS.
    #[must_use]
    pub const fn tls(&self) -> Option<&Reloadable<ClientConfigs>> {
        self.tls.as_ref()
    }

    /// The headers of its requests, which may be replaced: those that begin later have the new ones.
    #[must_use]
    pub const fn headers(&self) -> &LiveHeaders {
        self.upstream.headers()
    }

    /// Sends `request`, an `ExportMetricsServiceRequest`, once. Returns the number of data points that the upstream
    /// rejected.
    ///
    /// # Errors
    ///
    /// [`ExportError`] if the upstream refused it, or sent no response.
    pub async fn send(&self, request: Bytes) -> Result<u64, ExportError> {
        let (tenant, signal, encoding) = (DEFAULT, Signal::Metrics, Encoding::Protobuf);
        let (forwarded, holder, since) = (ForwardedHeaders::default(), Holder::AGENT, Nanos::ZERO);
        let request = UpstreamRequest { tenant, signal, encoding, body: request, forwarded, holder, spans: 0, since };
        self.upstream.send(&request).await.map_err(|Failure { text, retryable, retry_after }| ExportError {
            text,
            retryable,
            retry_after,
        })
    }
}
