//! Spans of the `tracing` crate as traces, without an exporter: each finished span is one record in a ring of shared memory, which the agent
//! reads, keeps for as long as something may want its trace, and sends on as OTLP.
//!
//! ```
//! # #[cfg(feature = "tracing")] {
//! use tracing_subscriber::layer::SubscriberExt as _;
//!
//! let uview = uview::connect(uview::Service::new("payment"));
//! let subscriber = tracing_subscriber::registry().with(uview.span_layer());
//! tracing::subscriber::with_default(subscriber, || {
//!     let headers = |name: &str| (name == "traceparent").then_some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
//!     let span = tracing::info_span!("POST /pay", otel.kind = "server", amount = 12);
//!     if let Some(caller) = uview::TraceContext::extract(headers) {
//!         uview::spans::set_parent(&span, &caller);
//!     }
//!     let here = uview::spans::context(&span).expect("the layer records it");
//!     here.inject(|name, value| println!("{name}: {value}"));
//!     uview.trigger(here.trace, "amount above 10");
//! });
//! # }
//! ```
//!
//! | field | becomes |
//! | --- | --- |
//! | `otel.name` | the span's name in place of its own |
//! | `otel.kind` | `server`, `client`, `producer`, `consumer`; else internal |
//! | `otel.status_code`, `otel.status_message` | `ok` or `error`, and a text. An event of level ERROR makes its span one in error, too |
//! | `uview.trigger` | a wish that the trace be kept, for this reason |
//! | any other | an attribute |
//!
//! A record has 448 bytes for name and attributes: texts are cut at 160 bytes, and what finds no room is left out and counted in the span.
//! A span without a parent begins a trace. What is lost (the agent reads too late, more than 16,384 spans are open) is counted by
//! the agent, never waited for.

mod context;
#[cfg(feature = "tracing")]
mod fields;
#[cfg(feature = "tracing")]
mod layer;
#[cfg(feature = "tracing")]
mod open;
mod ring;

pub use context::{SpanId, TraceContext, TraceId};
#[cfg(feature = "tracing")]
pub use layer::{SpanLayer, context, set_parent};
pub(crate) use ring::{Rings, SpanRing};
