//! Sends requests to a remote monitor: by remote write, or as OTLP metrics.

use agent_runtime::ClientConfigs;
use agent_runtime::live_headers::LiveHeaders;
use agent_runtime::reload::Reloadable;
use axum::body::Bytes;
use otlp::MetricsExporter;
use remote_write::client::{Client, SendReport};
use remote_write::encoding::Version;
use remote_write::reply::Reply;

/// The client of a remote monitor.
#[derive(Debug)]
pub enum Output {
    /// Prometheus remote write.
    RemoteWrite(Box<Client>),
    /// OTLP metrics over gRPC or HTTP.
    Otlp(MetricsExporter),
}

impl Output {
    /// The certificates with which the next connection begins, where they are replaced from outside: remote write reads
    /// its own.
    pub(crate) const fn tls(&self) -> Option<&Reloadable<ClientConfigs>> {
        match self {
            Self::RemoteWrite(_) => None,
            Self::Otlp(exporter) => exporter.tls(),
        }
    }

    /// The headers of its requests, which may be replaced.
    pub(crate) fn headers(&self) -> &LiveHeaders {
        match self {
            Self::RemoteWrite(client) => client.headers(),
            Self::Otlp(exporter) => exporter.headers(),
        }
    }

    /// Sends a body, once.
    pub(super) async fn send(&mut self, version: Version, body: Bytes, failures: u32) -> SendReport {
        match self {
            Self::RemoteWrite(client) => client.send(version, body, failures).await,
            Self::Otlp(exporter) => match exporter.send(body).await {
                Ok(rejected) => {
                    let text = if rejected > 0 { format!("{rejected} data points rejected") } else { String::new() };
                    SendReport { reply: Reply::OtlpAccepted { rejected }, text }
                }
                Err(error) => {
                    let (retryable, retry_after) = (error.retryable, error.retry_after.map(Into::into));
                    SendReport { reply: Reply::OtlpFailed { retryable, retry_after }, text: error.text }
                }
            },
        }
    }
}
