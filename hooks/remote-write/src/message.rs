//! The Protocol Buffers messages of both versions, as far as they are sent: for receivers, and to test the encoder.
//! Field numbers are those of `prometheus.WriteRequest` (Remote-Write 1.0) and `io.prometheus.write.v2.Request`
//! (2.0-rc.4, with the start timestamp in the sample).

/// Remote-Write 1.0: `prometheus.WriteRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WriteRequest {
    /// Series, each with its samples.
    #[prost(message, repeated, tag = "1")]
    pub timeseries: Vec<TimeSeries>,
}

/// 1.0: one series.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TimeSeries {
    /// Labels, sorted by name.
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<Label>,
    /// Samples, oldest first.
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<Sample>,
    /// Exemplars, oldest first.
    #[prost(message, repeated, tag = "3")]
    pub exemplars: Vec<Exemplar>,
}

/// 1.0: an exemplar, a trace of one counted request.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Exemplar {
    /// One label: `trace_id`.
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<Label>,
    /// Measured value of the request.
    #[prost(double, tag = "2")]
    pub value: f64,
    /// Milliseconds since 1970.
    #[prost(int64, tag = "3")]
    pub timestamp: i64,
}

/// 1.0: one label.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Label {
    /// Name of the label.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Value of the label.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// 1.0: one sample.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Sample {
    /// Value of the sample.
    #[prost(double, tag = "1")]
    pub value: f64,
    /// Milliseconds since 1970.
    #[prost(int64, tag = "2")]
    pub timestamp: i64,
}

/// The messages of Remote-Write 2.0.
pub mod v2 {
    /// The message `io.prometheus.write.v2.Request`: symbols and series.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Request {
        /// Symbol table: all strings, once each; the first is empty.
        #[prost(string, repeated, tag = "4")]
        pub symbols: Vec<String>,
        /// Series, each with its samples.
        #[prost(message, repeated, tag = "5")]
        pub timeseries: Vec<TimeSeries>,
    }

    /// 2.0: one series.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct TimeSeries {
        /// Labels: names and values in turn, as positions in the symbol table; sorted by name.
        #[prost(uint32, repeated, tag = "1")]
        pub labels_refs: Vec<u32>,
        /// Samples, oldest first.
        #[prost(message, repeated, tag = "2")]
        pub samples: Vec<Sample>,
        /// Exemplars, oldest first.
        #[prost(message, repeated, tag = "4")]
        pub exemplars: Vec<Exemplar>,
        /// Metadata of the metric.
        #[prost(message, optional, tag = "5")]
        pub metadata: Option<Metadata>,
    }

    /// 2.0: one sample.
    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct Sample {
        /// Value of the sample.
        #[prost(double, tag = "1")]
        pub value: f64,
        /// Milliseconds since 1970.
        #[prost(int64, tag = "2")]
        pub timestamp: i64,
        /// When the counter was 0, in milliseconds since 1970; 0 if unknown.
        #[prost(int64, tag = "3")]
        pub start_timestamp: i64,
    }

    /// An exemplar, a trace of one counted request.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Exemplar {
        /// `trace_id` and the trace, as positions in the symbol table.
        #[prost(uint32, repeated, tag = "1")]
        pub labels_refs: Vec<u32>,
        /// Measured value of the request.
        #[prost(double, tag = "2")]
        pub value: f64,
        /// Milliseconds since 1970.
        #[prost(int64, tag = "3")]
        pub timestamp: i64,
    }

    /// Metadata of a metric.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub struct Metadata {
        /// Type of the metric.
        #[prost(enumeration = "MetricType", tag = "1")]
        pub r#type: i32,
        /// Help text, as position in the symbol table.
        #[prost(uint32, tag = "3")]
        pub help_ref: u32,
        /// Unit, as position in the symbol table.
        #[prost(uint32, tag = "4")]
        pub unit_ref: u32,
    }

    /// Types of metrics, as far as they are sent.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
    #[repr(i32)]
    pub enum MetricType {
        /// Not specified; never sent.
        Unspecified = 0,
        /// Monotonic: only increases.
        Counter = 1,
        /// May rise and fall.
        Gauge = 2,
        /// One of the series of a histogram.
        Histogram = 3,
    }
}
