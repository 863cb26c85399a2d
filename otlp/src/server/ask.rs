//! What a request asks for, from its head: which signal, in which of OTLP's three dialects.

use bytes::Bytes;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Response, StatusCode, header};

use super::answer::{self, Refusal};
use crate::counts::Refused;
use crate::frames::{self, Whole};
use crate::signal::{Encoding, Signal};

/// How a client speaks, and is answered.
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

/// A request that names a signal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) signal: Signal,
    pub(crate) dialect: Dialect,
    /// Its body, or its one message, is packed with gzip.
    gzip: bool,
}

/// A request that is no OTLP.
#[derive(Debug)]
pub(crate) struct Stranger {
    /// The signal, if the path names one.
    pub(crate) signal: Option<Signal>,
    grpc: bool,
    status: StatusCode,
    text: String,
}

impl Ask {
    /// Reads the head.
    pub(crate) fn of(head: &Parts) -> Result<Self, Stranger> {
        let content = media_type(&head.headers);
        let grpc = content.starts_with("application/grpc");
        let path = head.uri.path();
        let named = |signal: &&Signal| path == if grpc { signal.grpc_path() } else { signal.http_path() };
        let signal = Signal::ALL.iter().find(named).copied();
        let stranger = |status, text| Err(Stranger { signal, grpc, status, text });
        let Some(signal) = signal else {
            return stranger(
                StatusCode::NOT_FOUND,
                format!("{path} is no path of OTLP: /v1/traces, metrics, logs are"),
            );
        };
        if head.method != Method::POST {
            return stranger(StatusCode::METHOD_NOT_ALLOWED, format!("OTLP is sent by POST, this is {}", head.method));
        }
        let dialect = match content {
            "application/grpc" | "application/grpc+proto" => Dialect::Grpc,
            "application/x-protobuf" => Dialect::HttpProtobuf,
            "application/json" => Dialect::HttpJson,
            other => {
                let text = format!("content-type {other:?}: application/x-protobuf and application/json are taken");
                return stranger(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
            }
        };
        let key = if grpc { "grpc-encoding" } else { header::CONTENT_ENCODING.as_str() };
        let gzip = match head.headers.get(key).map_or(&b"identity"[..], |value| value.as_bytes()) {
            b"identity" | b"" => false,
            b"gzip" => true,
            other => {
                let text = format!("{key} {:?}: gzip and identity are taken", String::from_utf8_lossy(other));
                return stranger(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
            }
        };
        Ok(Self { signal, dialect, gzip })
    }

    /// The message in the body, and whether it is packed.
    pub(crate) fn message(self, body: Bytes) -> Result<(Bytes, bool), Refusal> {
        if self.dialect != Dialect::Grpc {
            return Ok((body, self.gzip));
        }
        let malformed = |error: frames::FrameError| Refusal::new(Refused::Malformed, error.to_string());
        let (message, packed) = frames::unframe(body).map_err(malformed)?;
        if packed && !self.gzip {
            return Err(Refusal::new(Refused::Malformed, "the gRPC message is packed, grpc-encoding does not say how"));
        }
        Ok((message, packed))
    }
}

impl Stranger {
    /// What it is told.
    pub(crate) fn answer(self) -> Response<Whole> {
        if self.grpc {
            let mut response = tonic::Status::unimplemented(self.text).into_http::<Whole>();
            let accepted = header::HeaderValue::from_static("gzip,identity");
            response.headers_mut().insert("grpc-accept-encoding", accepted);
            return response;
        }
        let mut response = answer::plain(self.status, self.text);
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("POST"));
        }
        response
    }
}

/// The type of the content without its parameters; empty if there is none.
fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn ask(method: &str, path: &str, headers: &[(&'static str, &'static str)]) -> Result<Ask, StatusCode> {
        let mut request = Request::builder().method(method).uri(path);
        for (key, value) in headers {
            request = request.header(*key, *value);
        }
        Ask::of(&request.body(()).unwrap().into_parts().0).map_err(|stranger| stranger.status)
    }

    #[test]
    fn path_and_type_say_what_is_asked_for() {
        let grpc = ask("POST", Signal::Logs.grpc_path(), &[("content-type", "application/grpc")]).unwrap();
        let json = ask("POST", "/v1/metrics", &[("content-type", "application/json; charset=utf-8")]).unwrap();
        let packed = [("content-type", "application/x-protobuf"), ("content-encoding", "gzip")];
        let packed = ask("POST", "/v1/traces", &packed).unwrap();

        assert_eq!((grpc.signal, grpc.dialect, grpc.gzip), (Signal::Logs, Dialect::Grpc, false));
        assert_eq!((json.signal, json.dialect, json.gzip), (Signal::Metrics, Dialect::HttpJson, false));
        assert_eq!((packed.signal, packed.dialect, packed.gzip), (Signal::Traces, Dialect::HttpProtobuf, true));
    }

    #[test]
    fn what_is_no_otlp_is_refused_with_the_status_that_says_so() {
        let proto = ("content-type", "application/x-protobuf");

        assert_eq!(ask("POST", "/v1/trace", &[proto]).unwrap_err(), StatusCode::NOT_FOUND);
        assert_eq!(ask("GET", "/v1/traces", &[proto]).unwrap_err(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(ask("POST", "/v1/traces", &[]).unwrap_err(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
        let zstd = [proto, ("content-encoding", "zstd")];
        assert_eq!(ask("POST", "/v1/traces", &zstd).unwrap_err(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
        // A gRPC path without gRPC's type is none.
        assert_eq!(ask("POST", Signal::Logs.grpc_path(), &[proto]).unwrap_err(), StatusCode::NOT_FOUND);
    }
}
