//! OTLP response messages, with as many fields as this crate reads or writes. The three signals' responses have the
//! same shape.

use std::time::Duration;

/// The message `Export…ServiceResponse` of any signal.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) partial_success: Option<PartialSuccess>,
}

/// The message `Export…PartialSuccess` of any signal.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(crate) rejected: i64,
    #[prost(string, tag = "2")]
    pub(crate) error_message: String,
}

/// `google.rpc.Status`: the body of an HTTP error, and the wrapper of a gRPC status' details.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Status {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) details: Vec<Any>,
}

/// The message `google.protobuf.Any`: a detail of a status.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Any {
    #[prost(string, tag = "1")]
    pub(crate) type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

/// The message `google.rpc.RetryInfo`: asks for a retry.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    pub(crate) retry_delay: Option<Delay>,
}

/// The message `google.protobuf.Duration`: seconds and nanoseconds.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct Delay {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

impl RetryInfo {
    /// Type URL in an [`Any`].
    pub(crate) const TYPE: &'static str = "type.googleapis.com/google.rpc.RetryInfo";

    /// Asks the client to retry after `pause`.
    pub(crate) fn after(pause: Duration) -> Self {
        let (seconds, nanos) = (pause.as_secs() as i64, pause.subsec_nanos() as i32);
        Self { retry_delay: Some(Delay { seconds, nanos }) }
    }

    /// The requested pause; `None` if the field is absent or negative.
    pub(crate) fn pause(&self) -> Option<Duration> {
        let delay = self.retry_delay?;
        Some(Duration::new(u64::try_from(delay.seconds).ok()?, u32::try_from(delay.nanos).ok()?.min(999_999_999)))
    }
}
