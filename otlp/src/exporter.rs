//! Sends metrics of this node's own to an upstream of theirs, over the same ways as what services sent. What waits, and how long after a failure, is its
//! caller's business.

use std::time::Duration;

use bytes::Bytes;
use wire::time::Nanos;

use crate::passed::Passed;
use crate::queue::Parcel;
use crate::signal::{Encoding, Signal};
use crate::tenants::DEFAULT;
use crate::upstream::{Failure, Upstream, UpstreamError, UpstreamSettings};

/// An upstream for metrics.
#[derive(Debug)]
pub struct MetricsExporter(Upstream);

/// A request was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct NotTakenYet {
    /// What the upstream said, or what went wrong.
    pub text: String,
    /// It may go better next time.
    pub again: bool,
    /// Not before so long, as the upstream says (`RetryInfo`, `Retry-After`).
    pub after: Option<Duration>,
}

impl MetricsExporter {
    /// Nothing is connected yet. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`UpstreamError`] if the endpoint, a header or a certificate cannot be used.
    pub fn new(settings: &UpstreamSettings) -> Result<Self, UpstreamError> {
        Upstream::new(settings).map(Self)
    }

    /// Sends `request`, an `ExportMetricsServiceRequest`, once. Returns how many of its data points the upstream did not take.
    ///
    /// # Errors
    ///
    /// [`NotTakenYet`], if it took none, or nobody knows.
    pub async fn send(&self, request: Bytes) -> Result<u64, NotTakenYet> {
        let (tenant, signal, encoding) = (DEFAULT, Signal::Metrics, Encoding::Protobuf);
        let passed = Passed::default();
        let parcel = Parcel { tenant, signal, encoding, body: request, passed, spans: 0, since: Nanos::ZERO };
        self.0.send(&parcel).await.map_err(|Failure { text, again, after }| NotTakenYet { text, again, after })
    }
}
