//! What sends a request and says what came back: by remote write, or as OTLP metrics.

use axum::body::Bytes;
use otlp::MetricsExporter;
use remote_write::answer::Answer;
use remote_write::client::{Client, Said};
use remote_write::encoding::Version;

/// One of the two.
#[derive(Debug)]
pub enum Output {
    /// Prometheus remote write.
    RemoteWrite(Client),
    /// OTLP metrics.
    Otlp(MetricsExporter),
}

impl Output {
    /// Sends a body, once.
    pub(super) async fn send(&mut self, version: Version, body: Bytes, failures: u32) -> Said {
        match self {
            Self::RemoteWrite(client) => client.send(version, body, failures).await,
            Self::Otlp(exporter) => match exporter.send(body).await {
                Ok(rejected) => {
                    let text = if rejected > 0 { format!("{rejected} data points rejected") } else { String::new() };
                    Said { answer: Answer::Exported { rejected }, text }
                }
                Err(error) => {
                    let (again, after) = (error.again, error.after.map(Into::into));
                    Said { answer: Answer::Failed { again, after }, text: error.text }
                }
            },
        }
    }
}
