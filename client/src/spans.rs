//! Records spans of the `tracing` crate, or those that a program begins itself ([`Span`]), without an exporter or a
//! Collector.
//!
//! Each finished span is one record in a ring buffer in shared memory. The host agent reads the ring, buffers the spans
//! until its tail-sampling policies have decided about their trace, and exports them as OTLP.
//!
//! ```
//! # #[cfg(feature = "tracing")] {
//! use tracing_subscriber::layer::SubscriberExt as _;
//!
//! let uview = uview::connect(uview::Service::new("payment"));
//! let subscriber = tracing_subscriber::registry().with(uview.span_layer());
//! tracing::subscriber::with_default(subscriber, || {
//!     let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
//!     let headers = |name: &str| (name == "traceparent").then_some(parent);
//!     let span = tracing::info_span!("POST /pay", otel.kind = "server", amount = 12);
//!     if let Some(caller) = uview::TraceContext::extract(headers) {
//!         uview::spans::set_parent(&span, &caller);
//!     }
//!     let context = uview::spans::context(&span).expect("the layer records it");
//!     context.inject(|name, value| println!("{name}: {value}"));
//!     uview.trigger(context.trace, "amount above 10");
//! });
//! # }
//! ```
//!
//! | field | becomes |
//! | --- | --- |
//! | `otel.name` | the span's name, in place of its `tracing` name |
//! | `otel.kind` | the span kind: `server`, `client`, `producer`, `consumer`; else internal |
//! | `otel.status_code`, `otel.status_message` | the status: `ok` or `error`, and a text |
//! | `uview.trigger` | a request to keep the trace, for this reason |
//! | any other | an attribute |
//!
//! To count spans instead, or as well, take the layer of [`span_metrics`](crate::span_metrics), which says when to take
//! which.
//!
//! An event within a span, up to the level INFO (`SpanLayer::with_events`), is an event of the span: its message is
//! the name, its level and its fields are attributes. One of level ERROR also sets its span's status to error.
//!
//! A record has 448 bytes for name, attributes and events, of which events with their attributes take at most half: the
//! first five of twenty letters. The last events give way to the name, the status message and the tracestate. Texts are
//! cut at 160 bytes; what does not fit is left out and counted in the span. A span without a parent begins a trace.
//! Recording never waits: a span is lost if the agent reads too late, or if more than 16,384 spans are open at a time
//! and it finds no place (with 18,432 none does). The agent counts lost spans.

mod begun;
mod context;
mod current;
#[cfg(feature = "tracing")]
mod fields;
#[cfg(feature = "tracing")]
mod layer;
#[cfg(feature = "tracing")]
pub(crate) mod open;
#[cfg(feature = "tracing")]
mod reserved_ids;
mod ring;
mod span;
mod span_event;

pub use context::{IdError, SpanId, TraceContext, TraceId};
pub use current::EnteredSpan;
#[cfg(feature = "tracing")]
pub use layer::{SpanLayer, context, set_parent};
pub(crate) use ring::{RingState, SpanRing};
pub use span::{Span, SpanKind};
pub use span_event::SpanEvent;
