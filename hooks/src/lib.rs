//! Decisions that follow from verdicts of LMAPs (local metrics analysis pipelines): which traces to keep and why, which
//! samples to send, which services an operation passes through.
//!
//! The crate decides and never acts. It has no clock, no thread and no socket; time is an argument. Reception of OTLP,
//! export of traces and remote write are in the host agent and its crates. A span is a few fields and its encoded
//! bytes, which are returned unchanged; only the crate `otlp` knows the encoding.
//!
//! | module | what |
//! | --- | --- |
//! | [`tracing`] | tail sampling: buffered spans, triggers, a budget, kept traces |
//! | [`coherence`] | gossip: a trace that one node keeps is kept by all nodes |
//! | [`paths`] | names of operations, services on their paths, rate, errors and durations from spans |
//! | [`sampling`] | metric samples: a baseline series, and a dense one during anomalies |
//! | [`suspects`] | ranks the services in alarm: the suspected cause comes first |
//! | [`receipt`] | daily ledger of spans seen, kept, dropped and lost |
//! | [`id`], [`time`] | ids, and wall-clock time |

pub mod coherence;
pub mod id;
pub mod paths;
pub mod receipt;
pub mod sampling;
mod seeded_map;
pub mod suspects;
pub mod time;
pub mod tracing;
