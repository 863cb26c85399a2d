//! The few messages of which this crate reads or writes more than lengths: answers. The three signals' answers have the same shape.

use std::time::Duration;

/// `Export…ServiceResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) partial_success: Option<PartialSuccess>,
}

/// `Export…PartialSuccess`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(crate) rejected: i64,
    #[prost(string, tag = "2")]
    pub(crate) error_message: String,
}

/// `google.rpc.Status`: what an HTTP answer says that is an error, and what details of a gRPC status are wrapped in.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Status {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Any {
    #[prost(string, tag = "1")]
    pub(crate) type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    pub(crate) retry_delay: Option<Delay>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct Delay {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

impl RetryInfo {
    /// Its name in an [`Any`].
    pub(crate) const TYPE: &'static str = "type.googleapis.com/google.rpc.RetryInfo";

    /// What says "again after `pause`".
    pub(crate) fn after(pause: Duration) -> Self {
        let (seconds, nanos) = (pause.as_secs() as i64, pause.subsec_nanos() as i32);
        Self { retry_delay: Some(Delay { seconds, nanos }) }
    }

    /// How long to wait; `None` for what is no length of time.
    pub(crate) fn pause(&self) -> Option<Duration> {
        let delay = self.retry_delay?;
        Some(Duration::new(u64::try_from(delay.seconds).ok()?, u32::try_from(delay.nanos).ok()?.min(999_999_999)))
    }
}
