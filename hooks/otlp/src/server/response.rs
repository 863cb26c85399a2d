//! Responses to clients, in the dialect that they speak.

use std::time::Duration;

use bytes::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use prost::Message as _;
use tonic::Code;

use super::request_head::{Dialect, RequestHead};
use crate::counts::RefusalReason;
use crate::frames::FullBody;
use crate::messages::{Any, ExportResponse, PartialSuccess, RetryInfo, Status};
use crate::outcome::{Acceptance, Refusal};

/// Pause that a client over budget is asked for.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Refusal {
    /// gRPC code, HTTP status, and whether the client should retry.
    const fn codes(&self) -> (Code, StatusCode, bool) {
        match self.why {
            RefusalReason::Unexpected => (Code::Unimplemented, StatusCode::NOT_FOUND, false),
            RefusalReason::Malformed => (Code::InvalidArgument, StatusCode::BAD_REQUEST, false),
            // Without `RetryInfo`: a retry would be as long.
            RefusalReason::TooLarge => (Code::ResourceExhausted, StatusCode::PAYLOAD_TOO_LARGE, false),
            RefusalReason::Incomplete => (Code::DeadlineExceeded, StatusCode::REQUEST_TIMEOUT, false),
            RefusalReason::Busy => (Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE, true),
        }
    }
}

/// The response to a request.
pub(crate) fn respond(head: RequestHead, outcome: Result<Acceptance, Refusal>) -> Response<FullBody> {
    match outcome {
        Ok(acceptance) => accepted(head, acceptance),
        Err(refusal) if head.dialect == Dialect::Grpc => {
            let (code, _, retryable) = refusal.codes();
            let details = details(code, &refusal.text, retryable);
            let details = if details.details.is_empty() { Bytes::new() } else { details.encode_to_vec().into() };
            tonic::Status::with_details(code, refusal.text, details).into_http()
        }
        Err(refusal) => refused(head.dialect, &refusal),
    }
}

/// A plain text response, for clients that do not speak OTLP.
pub(crate) fn plain(status: StatusCode, text: String) -> Response<FullBody> {
    http(status, "text/plain; charset=utf-8", text.into())
}

fn accepted(head: RequestHead, Acceptance { rejected, text }: Acceptance) -> Response<FullBody> {
    if head.dialect == Dialect::HttpJson {
        // JSON has 64-bit numbers as text.
        let partial = (rejected > 0).then(|| {
            let key = head.signal.rejected();
            let partial = serde_json::json!({ key: rejected.to_string(), "errorMessage": text });
            serde_json::json!({ "partialSuccess": partial })
        });
        let body = partial.unwrap_or_else(|| serde_json::json!({})).to_string();
        return http(StatusCode::OK, "application/json", body.into());
    }
    let partial = PartialSuccess { rejected: i64::try_from(rejected).unwrap_or(i64::MAX), error_message: text };
    let response = ExportResponse { partial_success: (rejected > 0).then_some(partial) }.encode_to_vec();
    if head.dialect == Dialect::HttpProtobuf {
        return http(StatusCode::OK, "application/x-protobuf", response.into());
    }
    let mut response = Response::new(FullBody::grpc(&response));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

fn refused(dialect: Dialect, refusal: &Refusal) -> Response<FullBody> {
    let (code, status, retryable) = refusal.codes();
    let mut response = if dialect == Dialect::HttpJson {
        let body = serde_json::json!({ "code": code as i32, "message": refusal.text });
        http(status, "application/json", body.to_string().into())
    } else {
        let body = details(code, &refusal.text, retryable).encode_to_vec();
        http(status, "application/x-protobuf", body.into())
    };
    if retryable {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER.as_secs()));
    }
    response
}

fn details(code: Code, text: &str, retryable: bool) -> Status {
    let info = RetryInfo::after(RETRY_AFTER).encode_to_vec();
    let info = retryable.then(|| Any { type_url: RetryInfo::TYPE.to_owned(), value: info });
    Status { code: code as i32, message: text.to_owned(), details: info.into_iter().collect() }
}

fn http(status: StatusCode, content: &'static str, body: Bytes) -> Response<FullBody> {
    let mut response = Response::new(FullBody::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content));
    response
}
