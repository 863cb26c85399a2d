//! The OTLP encoding of traces and logs (opentelemetry-proto 1, `ExportTraceServiceRequest` and
//! `ExportLogsServiceRequest`): finds spans and log records in a request without decoding them, and puts those that are
//! kept together into requests. Pure: no I/O, no clock.
//!
//! [`scan`] walks a request by its length prefixes. It reads in place the fields that [`hooks`] needs. Everything else
//! stays bytes, unknown fields included, so spans from a newer client are forwarded whole. Additions to a span are
//! appended: in Protocol Buffers a repeated field may continue anywhere, and the last occurrence of a singular field
//! counts.
//!
//! | module | what |
//! | --- | --- |
//! | [`scan`] | request → groups of one origin → spans |
//! | [`scan_logs`], [`annotate_log`] | the same for log records, and why one is kept |
//! | [`resources`] | request of any signal → resources |
//! | [`count`] | checks that bytes are a request of any signal, and counts its items |
//! | [`Export`] | builds a request from spans and their origins |
//! | [`mask`], [`mask_logs`], [`rename`] | replace values of attributes, and names of services |
//! | [`identify`] | adds to a resource whose it is |
//! | [`annotate`] | adds to a span why it is kept |
//! | [`mark`] | makes a span that says what is missing of a trace |

mod annotate;
mod edit;
mod export;
mod fields;
mod identify;
mod logs;
mod mark;
mod scan;

pub use annotate::annotate;
pub use edit::{MASK, mask, mask_logs, rename};
pub use export::Export;
pub use fields::{Envelope, WireError};
pub use identify::{CLAIMED, identify};
pub use logs::{RawLog, annotate_log, scan_logs};
pub use mark::{mark, mark_resource};
pub use scan::{Group, RawResource, RawSpan, count, resources, scan};
