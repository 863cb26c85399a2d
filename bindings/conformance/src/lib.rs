//! One list of what a client does, for the clients of all languages (`cases.txt`).
//!
//! A *driver* is a small program in the client's language: it reads one command per line, makes that call of its
//! client, and writes one line in reply. [`run`] starts a driver per case, sends it the commands of the list, plays the
//! host agent, and looks into the memory that the client has passed to it.
//!
//! | command | the driver |
//! | --- | --- |
//! | `open NAME KEY=VALUE…` | opens a client: `socket`, `instance`, `label:K`, `series`, `label_sets`, `regions` |
//! | `counter HANDLE NAME KEY=VALUE…` | registers: `unit`, `label:K`, `aggregation`, `every` (milliseconds) |
//! | `sharded`, `updown`, `gauge`, `histogram` | the same; a histogram has `parts`, `sub_bits`, `max_bits`, too |
//! | `add HANDLE N`, `set HANDLE X`, `observe HANDLE N` | writes |
//! | `threads HANDLE N M` | N threads each add 1, M times |
//! | `get HANDLE` | replies with the value; for a histogram with count and sum |
//! | `span HANDLE NAME KEY=VALUE…` | begins a span: `kind`, `traceparent`, `tracestate`, `parent` (a handle) |
//! | `attribute HANDLE KEY TEXT`, `integer HANDLE KEY N` | adds it to a span |
//! | `event HANDLE NAME KEY=VALUE…` | says that it happened: values are integers, floats, truth values, else texts |
//! | `fail HANDLE TEXT`, `keep HANDLE REASON` | says that a span failed; asks for its trace |
//! | `context HANDLE` | replies with the span's traceparent |
//! | `enter HANDLE`, `leave HANDLE` | works in a span from now on; leaves and ends it |
//! | `end HANDLE` | ends a span |
//! | `trigger TRACE REASON`, `subject METRIC TEXT` | asks for a trace to be kept; says what values are about |
//! | `remove HANDLE`, `release HANDLE` | takes the series back; drops the handle |
//! | `status` | replies `connection=…`, `series`, `detached`, `regions`, `connections`, `forked`, `problems` |
//! | `fork` | forks: the child replies and obeys up to `exit`, then its parent replies and goes on |
//! | `close` | closes the client; handles stay |
//!
//! Replies begin with `ok`, `detached` (the handle works, no agent reads it; the cause follows), `error`, or are
//! `unsupported`: the language cannot say that.

#[path = "../../../client/tests/fake_agent/mod.rs"]
#[expect(dead_code, reason = "the agent of the client's own tests, which needs more of it")]
mod agent;
mod driver;
mod list;
mod play;
mod spans;

pub use driver::DriverError;
pub use list::{Case, Command, ListError};
pub use play::{Failure, Report, run};

/// The list that all clients have to pass.
pub const CASES: &str = include_str!("../cases.txt");
