//! What a microservice links to be watched: it registers metrics, and writes values straight into shared memory that an agent reads.
//!
//! ```
//! let uview = uview::connect(uview::Service::new("payment").label("version", "1.2"));
//! let requests = uview.counter("http.server.requests").label("route", "/pay").unit("{request}").register();
//! let duration = uview.histogram("http.server.request.duration").unit("s").parts_per_unit(1_000_000).register();
//!
//! requests.add(1);
//! duration.observe(1_234);
//! println!("{}", uview.status());
//! ```
//!
//! # Spans
//!
//! With the feature `tracing`, `Client::span_layer` makes traces of `tracing` spans: each finished one is written into a ring of shared memory that the agent
//! reads, no Collector and no exporter needed. [`spans`] says what becomes of fields, how a trace goes on over the network, and how a service asks
//! for a trace to be kept ([`Client::trigger`]).
//!
//! # What it costs
//!
//! `add` and `set` are one relaxed atomic operation, `observe` is two: no lock, no system call, no allocation. Handles are `Clone`, `Send`
//! and `Sync`; get them once and keep them. Registering takes a lock and, seldom, makes a region: microseconds.
//!
//! # What it can never do to the service
//!
//! Nothing here fails, blocks or panics for lack of an agent. With none running, values are counted all the same; when one comes, or comes
//! back, a thread of this library tells it everything again and passes the same memory. A name that is not allowed, a name that has another
//! kind already, too many series, no memory: each gives a handle that works and that nobody reads, and a line in [`Client::status`].
//!
//! # Fork
//!
//! A child writes to its parent's metrics through the handles that it inherits, and both count right. It has no thread to beat the heart and
//! cannot register: [`Status::forked`] says so, and [`connect`] in the child makes it a replica of its own.

mod client;
mod clock;
mod courier;
mod environment;
mod free_slots;
mod handles;
mod link;
mod problem;
mod registration;
mod registry;
mod service;
mod session;
pub mod spans;
mod status;

pub use client::{Client, connect};
pub use handles::{Counter, Gauge, Histogram, UpDownCounter};
pub use problem::{Cause, Problem};
pub use registration::{Handle, Registration};
pub use service::{Limits, Service};
pub use spans::{SpanId, TraceContext, TraceId};
pub use status::{Connection, Status};
pub use wire::histogram::Scale;
pub use wire::id::Incarnation;
pub use wire::metric::Group;
