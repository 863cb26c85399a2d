//! What a client is told, in the dialect that it speaks.

use std::time::Duration;

use bytes::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use prost::Message as _;
use tonic::Code;

use super::ask::{Ask, Dialect};
use crate::counts::Refused;
use crate::frames::Whole;
use crate::json::JsonError;
use crate::messages::{Any, ExportResponse, PartialSuccess, RetryInfo, Status};
use crate::room::{Crowded, InflateError};

/// A client for which there is no room comes again after this.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// No client is told more.
const TEXT_BYTES: usize = 300;

/// A request was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// But for so many of its items.
    pub(crate) rejected: u64,
    /// Why these were not.
    pub(crate) text: String,
}

/// A request was not taken.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) why: Refused,
    pub(crate) text: String,
}

impl Refusal {
    /// `text` is cut where it is long: it may quote what the client sent.
    pub(crate) fn new(why: Refused, text: impl Into<String>) -> Self {
        let mut text = text.into();
        text.truncate(text.floor_char_boundary(TEXT_BYTES));
        Self { why, text }
    }

    /// As a gRPC code, an HTTP status, and whether the client is to come again.
    const fn codes(&self) -> (Code, StatusCode, bool) {
        match self.why {
            Refused::Foreign => (Code::Unimplemented, StatusCode::NOT_FOUND, false),
            Refused::Malformed => (Code::InvalidArgument, StatusCode::BAD_REQUEST, false),
            // Without RetryInfo: it would not get shorter.
            Refused::TooLarge => (Code::ResourceExhausted, StatusCode::PAYLOAD_TOO_LARGE, false),
            Refused::Unfinished => (Code::DeadlineExceeded, StatusCode::REQUEST_TIMEOUT, false),
            Refused::Busy => (Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE, true),
        }
    }
}

impl From<Crowded> for Refusal {
    fn from(crowded: Crowded) -> Self {
        Self::new(Refused::Busy, crowded.to_string())
    }
}

impl From<InflateError> for Refusal {
    fn from(error: InflateError) -> Self {
        let why = match &error {
            InflateError::TooLarge(_) => Refused::TooLarge,
            InflateError::Crowded(_) => Refused::Busy,
            InflateError::Malformed(_) => Refused::Malformed,
        };
        Self::new(why, error.to_string())
    }
}

impl From<JsonError> for Refusal {
    fn from(error: JsonError) -> Self {
        let why = match &error {
            JsonError::TooLarge(_) => Refused::TooLarge,
            JsonError::Malformed(_) => Refused::Malformed,
        };
        Self::new(why, error.to_string())
    }
}

/// Tells the client of `ask` what became of it.
pub(crate) fn answer(ask: Ask, outcome: Result<Taken, Refusal>) -> Response<Whole> {
    match outcome {
        Ok(taken) => accepted(ask, taken),
        Err(refusal) if ask.dialect == Dialect::Grpc => {
            let (code, _, again) = refusal.codes();
            let details = details(code, &refusal.text, again);
            let details = if details.details.is_empty() { Bytes::new() } else { details.encode_to_vec().into() };
            tonic::Status::with_details(code, refusal.text, details).into_http()
        }
        Err(refusal) => refused(ask.dialect, &refusal),
    }
}

/// An answer in words, to whoever does not speak OTLP.
pub(crate) fn plain(status: StatusCode, text: String) -> Response<Whole> {
    http(status, "text/plain; charset=utf-8", text.into())
}

fn accepted(ask: Ask, Taken { rejected, text }: Taken) -> Response<Whole> {
    if ask.dialect == Dialect::HttpJson {
        // 64 bits are text in JSON.
        let partial = (rejected > 0).then(|| {
            let key = ask.signal.rejected();
            let partial = serde_json::json!({ key: rejected.to_string(), "errorMessage": text });
            serde_json::json!({ "partialSuccess": partial })
        });
        let body = partial.unwrap_or_else(|| serde_json::json!({})).to_string();
        return http(StatusCode::OK, "application/json", body.into());
    }
    let partial = PartialSuccess { rejected: i64::try_from(rejected).unwrap_or(i64::MAX), error_message: text };
    let response = ExportResponse { partial_success: (rejected > 0).then_some(partial) }.encode_to_vec();
    if ask.dialect == Dialect::HttpProtobuf {
        return http(StatusCode::OK, "application/x-protobuf", response.into());
    }
    let mut response = Response::new(Whole::grpc(&response));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

fn refused(dialect: Dialect, refusal: &Refusal) -> Response<Whole> {
    let (code, status, again) = refusal.codes();
    let mut response = if dialect == Dialect::HttpJson {
        let body = serde_json::json!({ "code": code as i32, "message": refusal.text });
        http(status, "application/json", body.to_string().into())
    } else {
        let body = details(code, &refusal.text, again).encode_to_vec();
        http(status, "application/x-protobuf", body.into())
    };
    if again {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER.as_secs()));
    }
    response
}

fn details(code: Code, text: &str, again: bool) -> Status {
    let info = RetryInfo::after(RETRY_AFTER).encode_to_vec();
    let info = again.then(|| Any { type_url: RetryInfo::TYPE.to_owned(), value: info });
    Status { code: code as i32, message: text.to_owned(), details: info.into_iter().collect() }
}

fn http(status: StatusCode, content: &'static str, body: Bytes) -> Response<Whole> {
    let mut response = Response::new(Whole::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content));
    response
}
