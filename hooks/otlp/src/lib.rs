//! The node's OTLP endpoint. Services send it what they would send to a Collector. It forwards metrics byte for
//! byte. Spans and logs are either forwarded likewise, or tail-sampled as [`hooks`] decides: it keeps the traces that
//! matter, whole, with the reason in their root span, and the log records that matter, each with its reason. Without an
//! upstream it watches likewise, and forwards nothing.
//!
//! This crate does the I/O: sockets, queues, a clock. The decisions are made in [`hooks`], which [`TailSampler`] feeds.
//! [`codec`] is pure.
//!
//! | module | what |
//! | --- | --- |
//! | `server` | OTLP in: gRPC and HTTP, Protocol Buffers and JSON, bounded before it is stored |
//! | [`codec`] | finds spans and log records in encoded requests and puts them together again; pure |
//! | [`tenants`] | which tenant a peer belongs to, and which services belong to which tenant |
//! | `memory_budget` | the memory that requests share while they are read |
//! | `holders`, `name_shares`, `bounds` | whose share something is of, also of names; what is full, and who fills it |
//! | [`gzip`] | decompression, bounded in memory and work; pure |
//! | [`json`] | transcodes OTLP/JSON to Protocol Buffers |
//! | `edge` | what servers, senders and the clock share; its children: requests, spans of rings, gossip |
//! | [`tail`], `origins`, `export_buffer` | tail sampling: spans, logs and verdicts in, requests with kept ones out |
//! | `grouped` | kept items by their resource and scope |
//! | [`forwarded_headers`](DEFAULT_FORWARDED_HEADERS) | headers of clients that are forwarded |
//! | `senders`, `unverified`, `cgroups` | who may send spans in which service's name |
//! | `listener_rules` | who may be scraped in which service's name |
//! | `pod_senders` | pods of Kubernetes as senders, by address |
//! | [`span_metrics`] | errors and durations of each service's operations, from its spans |
//! | `kept_watch` | kept spans and log records on their way to the upstream, for whoever watches them |
//! | `metric_watch` | metrics that were forwarded, for whoever watches them |
//! | `walk` | passes over a request's spans once, for all who need them |
//! | `outcome` | what becomes of a request: accepted or refused |
//! | `queue`, `sender`, `upstream` | OTLP out: bounded queues, retries with back-off, every loss with a reason |
//! | `exporter` | exports metrics of this node itself |
//! | [`counts`] | counters of requests, and of every request and span that is not forwarded |
//!
//! A gRPC server library is not needed for three unary calls: a request is one frame in a body, a response one frame
//! and a trailer. So the same code reads, bounds and decompresses both protocols, and either port accepts either of
//! them.

mod bounds;
mod cgroups;
mod clock;
pub mod codec;
pub mod counts;
mod edge;
mod export_buffer;
mod exporter;
mod forwarded_headers;
mod frames;
mod grouped;
pub mod gzip;
mod holders;
pub mod json;
mod kept_watch;
mod lifecycle;
mod listener_rules;
mod memory_budget;
mod messages;
mod metric_watch;
mod name_shares;
mod numbered_incidents;
mod origins;
mod outcome;
mod pod_senders;
mod queue;
pub mod reply;
mod sender;
mod senders;
mod server;
mod settings;
mod signal;
pub mod span_metrics;
pub mod tail;
pub mod tenants;
mod unverified;
mod upstream;
mod walk;

pub use agent_runtime::socket_owner::{OwnerLookup, SocketOwner, socket_owner};
pub use cgroups::CGROUP_BYTES;
pub use edge::{Edge, IngestError};
pub use export_buffer::Batch;
pub use exporter::{ExportError, MetricsExporter};
pub use forwarded_headers::DEFAULT_FORWARDED as DEFAULT_FORWARDED_HEADERS;
pub use holders::Holder;
pub use lifecycle::{EdgeHandle, start};
pub use listener_rules::{ForeignListener, ListenerRules};
pub use metric_watch::{ForwardedMetrics, MetricExport};
pub use pod_senders::{ATTRIBUTE_BYTES as POD_ATTRIBUTE_BYTES, PodSender, PodSenders};
pub use senders::{SenderRule, SenderRules, TOKEN_HEADER, Token, UNVERIFIED};
pub use settings::{Settings, StartError, TenantSettings};
pub use signal::{Encoding, Signal};
pub use span_metrics::{SpanMetrics, SpanMetricsSettings};
pub use tail::{
    AnomalousOperation, CoherenceSettings, Finding, KeptRequest, LogSettings, OperationPath, PathService, TailSampler,
    TailSettings,
};
pub use tenants::{Tenant, TenantId};
pub use unverified::{UnknownSenders, UnverifiedSpans, unknown_senders_here};
pub use upstream::{Protocol, UpstreamError, UpstreamSettings};
pub use wire::time::Timestamp;
