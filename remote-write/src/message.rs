//! The messages of both versions, as far as they are sent: for whoever receives them, and to judge the encoder by. Field numbers are those of
//! `prometheus.WriteRequest` (Remote-Write 1.0) and `io.prometheus.write.v2.Request` (2.0-rc.4, which has the start timestamp in the sample).

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
    /// Sorted by name.
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<Label>,
    /// Older first.
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<Sample>,
    /// Traces that stand for samples, older first.
    #[prost(message, repeated, tag = "3")]
    pub exemplars: Vec<Exemplar>,
}

/// 1.0: a trace that stands for a sample.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Exemplar {
    /// `trace_id`.
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<Label>,
    /// What was measured.
    #[prost(double, tag = "2")]
    pub value: f64,
    /// Milliseconds since 1970.
    #[prost(int64, tag = "3")]
    pub timestamp: i64,
}

/// 1.0: one label.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Label {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// 1.0: one sample.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Sample {
    /// The value.
    #[prost(double, tag = "1")]
    pub value: f64,
    /// Milliseconds since 1970.
    #[prost(int64, tag = "2")]
    pub timestamp: i64,
}

/// Remote-Write 2.0.
pub mod v2 {
    /// `io.prometheus.write.v2.Request`.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Request {
        /// All strings, once each; the first is empty.
        #[prost(string, repeated, tag = "4")]
        pub symbols: Vec<String>,
        /// Series, each with its samples.
        #[prost(message, repeated, tag = "5")]
        pub timeseries: Vec<TimeSeries>,
    }

    /// One series.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct TimeSeries {
        /// Names and values in turn, as places in the table; sorted by name.
        #[prost(uint32, repeated, tag = "1")]
        pub labels_refs: Vec<u32>,
        /// Older first.
        #[prost(message, repeated, tag = "2")]
        pub samples: Vec<Sample>,
        /// Traces that stand for samples, older first.
        #[prost(message, repeated, tag = "4")]
        pub exemplars: Vec<Exemplar>,
        /// What the metric is.
        #[prost(message, optional, tag = "5")]
        pub metadata: Option<Metadata>,
    }

    /// One sample.
    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct Sample {
        /// The value.
        #[prost(double, tag = "1")]
        pub value: f64,
        /// Milliseconds since 1970.
        #[prost(int64, tag = "2")]
        pub timestamp: i64,
        /// When the counter was 0, in milliseconds since 1970; 0 if not said.
        #[prost(int64, tag = "3")]
        pub start_timestamp: i64,
    }

    /// A trace that stands for a sample.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Exemplar {
        /// `trace_id` and the trace, as places in the table.
        #[prost(uint32, repeated, tag = "1")]
        pub labels_refs: Vec<u32>,
        /// What was measured.
        #[prost(double, tag = "2")]
        pub value: f64,
        /// Milliseconds since 1970.
        #[prost(int64, tag = "3")]
        pub timestamp: i64,
    }

    /// What a metric is.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub struct Metadata {
        /// Its type.
        #[prost(enumeration = "MetricType", tag = "1")]
        pub r#type: i32,
        /// Its help, as a place in the table.
        #[prost(uint32, tag = "3")]
        pub help_ref: u32,
        /// Its unit, as a place in the table.
        #[prost(uint32, tag = "4")]
        pub unit_ref: u32,
    }

    /// Types of metrics, as far as they are sent.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
    #[repr(i32)]
    pub enum MetricType {
        /// Not said.
        Unspecified = 0,
        /// Only grows.
        Counter = 1,
        /// Goes anywhere.
        Gauge = 2,
        /// One of the series of a histogram.
        Histogram = 3,
    }
}
