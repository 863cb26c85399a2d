//! The uview client library: a microservice links it to register metrics and to record spans.
//!
//! Values are written to shared memory with one or two atomic operations. The node's host agent passes that memory to
//! the NIC agent, which reads it; the service takes part in nothing else.
//!
//! ```
//! let uview = uview::connect(uview::Service::new("payment").label("version", "1.2"));
//! let requests = uview.counter("http.server.requests").label("route", "/pay").unit("{request}").register();
//! let duration = uview.histogram("http.server.request.duration").unit("s").parts_per_unit(1_000_000).register();
//!
//! requests.add(1);
//! duration.observe(1_234); // µs
//! println!("{}", uview.status());
//! ```
//!
//! | to | call |
//! | --- | --- |
//! | connect | [`connect`] with a [`Service`]: its name, instance, labels, socket and [`Limits`] |
//! | count requests, errors, bytes | [`Client::counter`] → [`Counter::add`] |
//! | count what many threads count at once, by millions | [`Client::sharded_counter`] → [`ShardedCounter::add`] |
//! | count what is active: requests in flight, connections | [`Client::up_down_counter`] → [`UpDownCounter::add`] |
//! | report a value measured elsewhere: queue depth, temperature | [`Client::gauge`] → [`Gauge::set`] |
//! | measure durations and sizes | [`Client::histogram`] → [`Histogram::observe`], [`Histogram::observe_duration`] |
//! | remove a series | [`Client::remove`] |
//! | say whom a value is about: the client behind a share | [`Client::set_subject`] |
//! | take what is counted with the facade `metrics` (feature `metrics`) | `Client::recorder`, see [`facade`] |
//! | take what OpenTelemetry's SDK counts (feature `opentelemetry`) | `Client::metric_reader`, see [`open_telemetry`] |
//! | count `tracing` spans, errors, durations (feature `tracing`) | `Client::span_metrics`, see [`span_metrics`] |
//! | record `tracing` spans (feature `tracing`) | `Client::span_layer`, see [`spans`] |
//! | record spans without `tracing` | [`Client::span`] → [`Span`] |
//! | keep one trace | [`Client::trigger`] |
//! | find out why a metric does not appear | [`Client::status`] |
//!
//! # Cost
//!
//! | operation | cost |
//! | --- | --- |
//! | `add`, `set` | one relaxed atomic operation |
//! | `observe` | two relaxed atomic operations |
//! | `register` | a lock, and seldom a new region of shared memory: microseconds |
//! | a client | one thread that wakes ten times a second; up to 11 MiB of regions with default [`Limits`] |
//!
//! Writing takes no lock, makes no system call and allocates nothing. Handles are `Clone`, `Send` and `Sync`: register
//! once and keep the handle.
//!
//! # Failures
//!
//! The library never fails, blocks or panics because there is no agent. Without an agent, values are counted all the
//! same. When an agent starts or restarts, the client's I/O thread registers everything again and passes the same
//! memory, so no count is lost.
//!
//! An invalid name, a name that is registered with another kind, too many series, or a lack of memory: in each case
//! `register` returns a *detached* handle: it counts, but no agent reads it. [`Client::status`] says why.
//!
//! # Fork
//!
//! A child process writes to its parent's metrics through the handles that it inherits, and the counts stay correct;
//! it may ask for them again by name. It has no I/O thread, so it registers nothing new: [`Status::forked`] is `true`.
//! Call [`connect`] in the child to make it a replica of its own. For each client, a fork waits up to a tenth of a
//! second for a thread that is in the middle of a registration.

mod client;
mod clock;
mod environment;
pub mod facade;
mod fork;
mod free_slots;
mod handles;
mod io_thread;
mod link;
mod metric_spec;
pub mod open_telemetry;
mod problem;
mod registration;
mod registry;
mod service;
mod session;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
mod signed_histogram;
pub mod span_metrics;
pub mod spans;
mod status;
mod subjects;
#[cfg(any(feature = "metrics", feature = "opentelemetry", feature = "tracing"))]
mod text;
mod thread_number;

pub use client::{Client, connect};
pub use handles::{Counter, Gauge, Histogram, ShardedCounter, UpDownCounter};
pub use problem::{Cause, Problem};
pub use registration::{Handle, Registration};
pub use service::{Limits, Service};
pub use spans::{EnteredSpan, Span, SpanEvent, SpanId, SpanKind, TraceContext, TraceId};
pub use status::{Connection, Status};
pub use wire::histogram::Scale;
pub use wire::id::Incarnation;
pub use wire::metric::Group;

/// The examples of the README are tests.
#[cfg(all(doctest, feature = "metrics", feature = "opentelemetry", feature = "tracing"))]
#[doc = include_str!("../README.md")]
struct Readme;
