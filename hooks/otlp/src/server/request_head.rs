//! Reads the head of a request: which signal, in which of OTLP's three dialects.

use bytes::Bytes;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Response, StatusCode, header};

use super::response;
use crate::counts::RefusalReason;
use crate::frames::{self, FullBody};
use crate::outcome::Refusal;
use crate::signal::{Encoding, Signal};

/// Protocol and encoding of a request and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Grpc,
    HttpProtobuf,
    HttpJson,
}

impl Dialect {
    pub(crate) const fn encoding(self) -> Encoding {
        match self {
            Self::Grpc | Self::HttpProtobuf => Encoding::Protobuf,
            Self::HttpJson => Encoding::Json,
        }
    }
}

/// Head of an OTLP request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestHead {
    pub(crate) signal: Signal,
    pub(crate) dialect: Dialect,
    /// The body, or its one gRPC message, is compressed with gzip.
    gzip: bool,
}

/// A request that is not OTLP.
#[derive(Debug)]
pub(crate) struct UnsupportedRequest {
    /// The signal, if the path names one.
    pub(crate) signal: Option<Signal>,
    grpc: bool,
    status: StatusCode,
    text: String,
}

impl RequestHead {
    /// Reads the head of a request.
    pub(crate) fn of(head: &Parts) -> Result<Self, UnsupportedRequest> {
        let content = media_type(&head.headers);
        let grpc = content.starts_with("application/grpc");
        let path = head.uri.path();
        let named = |signal: &&Signal| path == if grpc { signal.grpc_path() } else { signal.http_path() };
        let signal = Signal::ALL.iter().find(named).copied();
        let unsupported = |status, text| Err(UnsupportedRequest { signal, grpc, status, text });
        let Some(signal) = signal else {
            return unsupported(
                StatusCode::NOT_FOUND,
                format!("{path:.200} is not a path of OTLP: use /v1/traces, /v1/metrics or /v1/logs"),
            );
        };
        if head.method != Method::POST {
            return unsupported(StatusCode::METHOD_NOT_ALLOWED, format!("OTLP needs POST, found {}", head.method));
        }
        let dialect = match content {
            "application/grpc" | "application/grpc+proto" => Dialect::Grpc,
            "application/x-protobuf" => Dialect::HttpProtobuf,
            "application/json" => Dialect::HttpJson,
            other => {
                // Replies stay short, whatever comes.
                let other = other.get(..100).unwrap_or(other);
                let text =
                    format!("content-type {other:?} is unsupported: use application/x-protobuf or application/json");
                return unsupported(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
            }
        };
        let key = if grpc { "grpc-encoding" } else { header::CONTENT_ENCODING.as_str() };
        let gzip = match head.headers.get(key).map_or(&b"identity"[..], |value| value.as_bytes()) {
            b"identity" | b"" => false,
            b"gzip" => true,
            other => {
                let other = other.get(..100).unwrap_or(other);
                let text = format!("{key} {:?} is unsupported: use gzip or identity", String::from_utf8_lossy(other));
                return unsupported(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
            }
        };
        Ok(Self { signal, dialect, gzip })
    }

    /// Length of the body that begins with `first`, if that says it.
    pub(crate) fn announced(self, first: &[u8]) -> Option<usize> {
        Some(first).filter(|_| self.dialect == Dialect::Grpc).and_then(frames::announced)
    }

    /// The message in the body, and whether it is compressed.
    pub(crate) fn message(self, body: Bytes) -> Result<(Bytes, bool), Refusal> {
        if self.dialect != Dialect::Grpc {
            return Ok((body, self.gzip));
        }
        let malformed = |error: frames::FrameError| Refusal::new(RefusalReason::Malformed, error.to_string());
        let (message, compressed) = frames::unframe(body).map_err(malformed)?;
        if compressed && !self.gzip {
            return Err(Refusal::new(
                RefusalReason::Malformed,
                "the gRPC message is compressed, but grpc-encoding is missing",
            ));
        }
        Ok((message, compressed))
    }
}

impl UnsupportedRequest {
    /// The response to it.
    pub(crate) fn response(self) -> Response<FullBody> {
        if self.grpc {
            let mut response = tonic::Status::unimplemented(self.text).into_http::<FullBody>();
            let accepted = header::HeaderValue::from_static("gzip,identity");
            response.headers_mut().insert("grpc-accept-encoding", accepted);
            return response;
        }
        let mut response = response::plain(self.status, self.text);
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("POST"));
        }
        response
    }
}

/// The media type without its parameters; empty if there is none.
fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn head(method: &str, path: &str, headers: &[(&'static str, &'static str)]) -> Result<RequestHead, StatusCode> {
        let mut request = Request::builder().method(method).uri(path);
        for (key, value) in headers {
            request = request.header(*key, *value);
        }
        RequestHead::of(&request.body(()).unwrap().into_parts().0).map_err(|unsupported| unsupported.status)
    }

    #[test]
    fn path_and_type_say_what_is_asked_for() {
        let grpc = head("POST", Signal::Logs.grpc_path(), &[("content-type", "application/grpc")]).unwrap();
        let json = head("POST", "/v1/metrics", &[("content-type", "application/json; charset=utf-8")]).unwrap();
        let compressed = [("content-type", "application/x-protobuf"), ("content-encoding", "gzip")];
        let compressed = head("POST", "/v1/traces", &compressed).unwrap();

        assert_eq!((grpc.signal, grpc.dialect, grpc.gzip), (Signal::Logs, Dialect::Grpc, false));
        assert_eq!((json.signal, json.dialect, json.gzip), (Signal::Metrics, Dialect::HttpJson, false));
        assert_eq!(
            (compressed.signal, compressed.dialect, compressed.gzip),
            (Signal::Traces, Dialect::HttpProtobuf, true)
        );
    }

    #[test]
    fn what_is_no_otlp_is_refused_with_the_status_that_says_so() {
        let proto = ("content-type", "application/x-protobuf");

        assert_eq!(head("POST", "/v1/trace", &[proto]).unwrap_err(), StatusCode::NOT_FOUND);
        assert_eq!(head("GET", "/v1/traces", &[proto]).unwrap_err(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(head("POST", "/v1/traces", &[]).unwrap_err(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
        let zstd = [proto, ("content-encoding", "zstd")];
        assert_eq!(head("POST", "/v1/traces", &zstd).unwrap_err(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
        // A gRPC path without gRPC's content type is unknown.
        assert_eq!(head("POST", Signal::Logs.grpc_path(), &[proto]).unwrap_err(), StatusCode::NOT_FOUND);
    }
}
