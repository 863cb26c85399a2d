//! The node's OTLP endpoint. Services send it what they would send to a Collector; it passes metrics and logs on byte by byte, and spans
//! either likewise, or as [`hooks`] decides: whole traces that matter, with the reason in their root span.
//!
//! This crate acts: sockets, queues, a clock. What is decided is decided in [`hooks`], which [`Tail`] feeds.
//!
//! | module | what |
//! | --- | --- |
//! | `server` | OTLP in: gRPC and HTTP, Protocol Buffers and JSON, bounded before it is stored |
//! | [`tenants`] | who sends, and what belongs to whom |
//! | `room` | memory of requests that are being read; gzip with a limit |
//! | [`json`] | OTLP's JSON as Protocol Buffers |
//! | `edge`, `local` | what became of a request, and of spans that came another way |
//! | [`tail`], `origins`, `outgoing` | spans and verdicts in, requests with kept traces out |
//! | [`passed`](USUAL_HEADERS) | headers of clients that go on |
//! | [`derived`] | errors and durations of each service's operations, from its spans |
//! | `exemplars` | kept traces of each operation |
//! | `observer` | which operations are out of the ordinary, where spans pass through |
//! | `together` | what nodes say to each other about kept traces |
//! | `queue`, `sender`, `upstream` | OTLP out: bounded, again after a pause, lost with a reason |
//! | `exporter` | metrics of this node's own, out over the same ways |
//! | [`counts`] | every request and span that does not go on |
//!
//! A server of gRPC is not needed for three unary calls: a request is one frame in a body, an answer one frame and a trailer. So both
//! protocols are read, bounded and unpacked by the same code, and either port takes either of them.

mod clock;
pub mod counts;
pub mod derived;
mod edge;
mod exemplars;
mod exporter;
mod frames;
pub mod json;
mod local;
mod messages;
mod observer;
mod origins;
mod outgoing;
mod passed;
mod queue;
mod room;
mod running;
mod sender;
mod server;
mod settings;
mod signal;
pub mod tail;
pub mod tenants;
mod together;
mod upstream;
mod walk;

pub use derived::{Derived, DerivedSettings};
pub use edge::Edge;
pub use exemplars::KeptRequest;
pub use exporter::{MetricsExporter, NotTakenYet};
pub use local::NotTaken;
pub use outgoing::Batch;
pub use passed::USUAL as USUAL_HEADERS;
pub use running::{Running, start};
pub use settings::{Settings, StartError, TenantSettings};
pub use signal::{Encoding, Signal};
pub use tail::{Finding, Moment, OperationPath, PassedService, Tail, TailSettings};
pub use tenants::{Tenant, TenantId};
pub use together::TogetherSettings;
pub use upstream::{Protocol, UpstreamError, UpstreamSettings, UpstreamTls};
