//! Counts spans of the `tracing` crate as metrics: rates, errors and durations by the span's name.
//!
//! ```
//! # #[cfg(feature = "tracing")] {
//! use tracing_subscriber::layer::SubscriberExt as _;
//!
//! let uview = uview::connect(uview::Service::new("payment"));
//! let subscriber = tracing_subscriber::registry().with(uview.span_metrics());
//! tracing::subscriber::with_default(subscriber, || {
//!     tracing::info_span!("POST /pay").in_scope(|| tracing::error!("the bank does not answer"));
//! });
//! # }
//! ```
//!
//! | metric | what it is |
//! | --- | --- |
//! | `tracing.spans` | counter of spans that have closed |
//! | `tracing.span.errors` | counter of those that failed |
//! | `tracing.span.duration` | histogram from creation to close, in µs: time in which the span is not entered counts |
//!
//! Each has the label `span.name`: the field `otel.name`, or the span's `tracing` name. The first 64 names have series
//! of their own (fewer if [`Limits::label_sets_per_metric`](crate::Limits::label_sets_per_metric) is less). All further
//! names share one, labelled `otel.metric.overflow="true"`, so that a name with an id in it costs a known amount.
//!
//! A span fails if an event of level ERROR occurs in it (not in one of its children), or if its field `error` is set to
//! anything but `false` and the empty text, or `otel.status_code` to `error`.
//!
//! # Which layer
//!
//! | you want | take |
//! | --- | --- |
//! | rates, errors and durations of all spans, at once | `Client::span_metrics` |
//! | traces: which request failed, and where | `Client::span_layer` |
//! | both | both: `registry().with(uview.span_metrics()).with(uview.span_layer())` |
//!
//! From what `span_layer` records, the host agent counts the spans of kind server and consumer itself, six seconds late
//! (`traces.span.metrics.*`). This layer counts every span, also those within a service, without delay. To count fewer,
//! give it a filter of its own: `uview.span_metrics().with_filter(LevelFilter::INFO)`.
//!
//! # Cost
//!
//! Per span: two clock reads, four atomic operations, a shared and two uncontended locks. Nothing is allocated once a
//! name is known, unless more spans are open than ever before. Of more than 16,384 open spans, those that find no place
//! are counted without errors and duration.

#[cfg(feature = "tracing")]
mod layer;
#[cfg(feature = "tracing")]
mod names;

#[cfg(feature = "tracing")]
pub use layer::SpanMetricsLayer;
