//! Interprets an upstream's replies: what it rejected, and whether and when a retry may succeed. Pure.

use std::time::Duration;

use agent_runtime::http_client;
use hyper::StatusCode;
use prost::Message as _;
use tonic::{Code, Status};
use wire::time::UnixNanos;

use crate::messages::{self, ExportResponse, RetryInfo};
use crate::signal::{Encoding, Signal};

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Error message of the upstream, or of the transport.
    pub text: String,
    /// A retry may succeed.
    pub retryable: bool,
    /// Pause that the upstream asks for, as long as it likes: the caller bounds it.
    pub retry_after: Option<Duration>,
}

/// Number of rejected items in a response that accepts a request of `request_bytes`; 0 if it cannot be read. Not more
/// than the request can have had: an item takes a byte at least.
#[must_use]
pub fn rejected(signal: Signal, encoding: Encoding, response: &[u8], request_bytes: usize) -> u64 {
    let rejected = match encoding {
        Encoding::Protobuf => {
            let partial = ExportResponse::decode(response).ok().and_then(|response| response.partial_success);
            partial.map_or(0, |partial| u64::try_from(partial.rejected).unwrap_or(0))
        }
        Encoding::Json => {
            let response: serde_json::Value = serde_json::from_slice(response).unwrap_or_default();
            let number = &response["partialSuccess"][signal.rejected()];
            number.as_u64().or_else(|| number.as_str()?.parse().ok()).unwrap_or(0)
        }
    };
    rejected.min(request_bytes as u64)
}

/// Interprets a gRPC status as OTLP specifies.
#[must_use]
pub fn grpc_failure(status: &Status) -> Failure {
    let info = messages::Status::decode(status.details()).unwrap_or_default().details.into_iter();
    let info = info.filter(|detail| detail.type_url == RetryInfo::TYPE).find_map(|detail| {
        let info = RetryInfo::decode(detail.value.as_slice()).ok()?;
        info.pause()
    });
    let retryable = match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => true,
        Code::ResourceExhausted => info.is_some(),
        // This is what a broken connection becomes.
        Code::Unknown => core::error::Error::source(status).is_some(),
        _ => false,
    };
    Failure { text: format!("{:?}: {}", status.code(), status.message()), retryable, retry_after: info }
}

/// Interprets an HTTP status as OTLP specifies, with the header `Retry-After`: seconds, or a date, of a response that
/// came at `now`.
#[must_use]
pub fn http_failure(status: StatusCode, retry_after: Option<&str>, now: UnixNanos) -> Failure {
    let retryable = matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    );
    let after = retry_after.and_then(|text| http_client::retry_after(text, now));
    Failure { text: status.to_string(), retryable, retry_after: after.map(Duration::from) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_exhausted_is_tried_again_only_if_the_upstream_says_when() {
        let pause = Duration::from_millis(1_500);
        let info =
            messages::Any { type_url: RetryInfo::TYPE.to_owned(), value: RetryInfo::after(pause).encode_to_vec() };
        let details = messages::Status { details: vec![info], ..messages::Status::default() }.encode_to_vec();

        let told = grpc_failure(&Status::with_details(Code::ResourceExhausted, "later", details.into()));
        let full = grpc_failure(&Status::resource_exhausted("too long"));
        let down = grpc_failure(&Status::unavailable("down"));
        let wrong = grpc_failure(&Status::invalid_argument("no spans"));

        assert_eq!((told.retryable, told.retry_after), (true, Some(pause)));
        assert_eq!((full.retryable, down.retryable, wrong.retryable), (false, true, false));
    }

    #[test]
    fn a_pause_is_asked_for_in_seconds_or_until_a_date() {
        let now = UnixNanos::from_secs(784_111_770);
        let after = |text| http_failure(StatusCode::SERVICE_UNAVAILABLE, Some(text), now).retry_after;

        assert_eq!(after("90"), Some(Duration::from_secs(90)));
        assert_eq!(after("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::from_secs(7)));
        assert_eq!(after("soon"), None);
    }

    #[test]
    fn no_more_is_rejected_than_was_sent() {
        let rejecting = |rejected| {
            let partial = messages::PartialSuccess { rejected, error_message: String::new() };
            ExportResponse { partial_success: Some(partial) }.encode_to_vec()
        };
        let of = |response: &[u8], encoding| rejected(Signal::Traces, encoding, response, 100);

        assert_eq!(of(&rejecting(3), Encoding::Protobuf), 3);
        assert_eq!(of(&rejecting(i64::MAX), Encoding::Protobuf), 100);
        assert_eq!(of(&rejecting(-1), Encoding::Protobuf), 0);
        assert_eq!(of(br#"{"partialSuccess": {"rejectedSpans": "7"}}"#, Encoding::Json), 7);
        assert_eq!(of(br#"{"partialSuccess": {"rejectedSpans": 18446744073709551615}}"#, Encoding::Json), 100);
    }
}
