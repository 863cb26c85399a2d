//! What acts on verdicts: which traces are kept and why, which samples are sent, which services an operation passes through.
//!
//! The crate decides and never acts: no clock, no thread, no socket; time comes in as an argument. What receives OTLP, exports traces
//! and writes to a remote monitor stands beside it, in the host agent. A span is a few fields and bytes that
//! are given back as they came; only [`otlp`] knows how they are encoded.
//!
//! | module | what |
//! | --- | --- |
//! | [`tracing`] | spans wait, triggers and a budget decide, whole traces leave |
//! | [`coherence`] | what one node decides, all nodes do |
//! | [`paths`] | names of operations, services on their paths, rate, errors and durations from spans |
//! | [`sampling`] | a baseline series, and a dense one while something happens |
//! | [`otlp`] | spans found in requests and put together again, as bytes |
//! | [`receipt`] | what was seen and kept, a page for each day |
//! | [`id`], [`time`] | what they are called, and when |

pub mod coherence;
pub mod id;
pub mod otlp;
pub mod paths;
pub mod receipt;
pub mod sampling;
pub mod time;
pub mod tracing;
