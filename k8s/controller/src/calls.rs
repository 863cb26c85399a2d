//! Requests of the API server that say how they failed, and when to ask again: its client library keeps the body of a
//! refusal and drops its `Retry-After`.

use core::time::Duration;

use axum::http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use kube::Client;
use kube::client::Body;
use serde_json::Value;

/// Time limit of one request.
pub(crate) const WITHIN: Duration = Duration::from_secs(5);
/// Most bytes of an answer that are read.
const MAX_BYTES: usize = 2 << 20;
/// Pause without `Retry-After`.
const PAUSE: Duration = Duration::from_secs(1);

/// Why a request was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// Somebody else has written the object, or it is there already.
    #[error("the object has changed meanwhile, or is there already")]
    Conflict,
    /// There is no such object, or no such kind.
    #[error("there is no such object")]
    Missing,
    /// The API server has enough to do.
    #[error("the API server asks to wait {} s", .0.as_secs())]
    Throttled(Duration),
    /// It refuses, and says why.
    #[error("the API server refuses ({0}): {1}")]
    Refused(u16, String),
    /// It cannot be reached, or its answer is none.
    #[error("the API server does not answer: {0}")]
    Unreachable(String),
}

/// Sends `request`, and returns the object in the answer.
///
/// # Errors
///
/// [`CallError`]: what was wrong with the answer, or that there is none within 5 s.
pub(crate) async fn call(client: &Client, request: Request<Vec<u8>>) -> Result<Value, CallError> {
    let unreachable = |error: &dyn core::error::Error| CallError::Unreachable(agent_runtime::chain(error));
    let sending = async {
        let response = client.send(request.map(Body::from)).await.map_err(|error| unreachable(&error))?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, MAX_BYTES).collect().await.map_err(|error| unreachable(&*error))?;
        Ok::<_, CallError>((parts, body.to_bytes()))
    };
    let late = |_| CallError::Unreachable(format!("nothing came within {} s", WITHIN.as_secs()));
    let (parts, body) = tokio::time::timeout(WITHIN, sending).await.map_err(late)??;
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    if parts.status.is_success() {
        return Ok(answer);
    }
    Err(match parts.status {
        StatusCode::CONFLICT => CallError::Conflict,
        StatusCode::NOT_FOUND => CallError::Missing,
        status @ (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) => {
            tracing::debug!(%status, "throttled");
            CallError::Throttled(retry_after(&parts.headers, &answer))
        }
        status => {
            let text = answer["message"].as_str().unwrap_or("without a reason").to_owned();
            CallError::Refused(status.as_u16(), text)
        }
    })
}

/// How long to wait: what the header says, or the body, or a second.
fn retry_after(headers: &HeaderMap, answer: &Value) -> Duration {
    let header = headers.get(header::RETRY_AFTER).and_then(|text| text.to_str().ok()?.trim().parse().ok());
    let seconds = header.or_else(|| answer["details"]["retryAfterSeconds"].as_u64());
    seconds.map_or(PAUSE, Duration::from_secs).max(PAUSE)
}

/// What `call` returns, or an error as a sentence; also if nothing comes within 5 s.
pub(crate) async fn within<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, String> {
    let answer = tokio::time::timeout(WITHIN, call).await;
    let answer = answer.map_err(|_| format!("nothing came within {} s", WITHIN.as_secs()))?;
    answer.map_err(|error| agent_runtime::chain(&error))
}
