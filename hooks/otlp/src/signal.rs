//! The signals of OTLP, their paths and encodings.

/// Signal that a request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// Spans, grouped by resource and scope.
    Traces,
    /// Metrics with their data points.
    Metrics,
    /// Log records, grouped by resource and scope.
    Logs,
}

/// How a request's body is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Protocol Buffers, over gRPC as over HTTP.
    Protobuf,
    /// OTLP/JSON, over HTTP only.
    Json,
}

impl Signal {
    /// All signals, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Traces, Self::Metrics, Self::Logs];

    /// Value of the metric label `signal`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
            Self::Logs => "logs",
        }
    }

    /// Path of the signal over HTTP.
    #[must_use]
    pub const fn http_path(self) -> &'static str {
        match self {
            Self::Traces => "/v1/traces",
            Self::Metrics => "/v1/metrics",
            Self::Logs => "/v1/logs",
        }
    }

    /// Path of the signal's method over gRPC.
    #[must_use]
    pub const fn grpc_path(self) -> &'static str {
        match self {
            Self::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Self::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            Self::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        }
    }

    /// JSON key of the count of rejected items in a response.
    pub(crate) const fn rejected(self) -> &'static str {
        match self {
            Self::Traces => "rejectedSpans",
            Self::Metrics => "rejectedDataPoints",
            Self::Logs => "rejectedLogRecords",
        }
    }
}
