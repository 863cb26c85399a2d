//! Spans as OTLP has them (opentelemetry-proto 1, `ExportTraceServiceRequest`): found without being decoded, sent on as they came.
//!
//! A request is walked by its lengths. What this crate needs of a span is read in place; everything else stays bytes, unknown fields
//! included, so that a newer client's spans arrive whole. What is added to a span is appended: in Protocol Buffers a repeated field goes on
//! wherever it stands, and of a single one the last counts.
//!
//! | module | what |
//! | --- | --- |
//! | [`scan`] | request → groups of one origin → spans |
//! | [`Export`] | spans and their origins → request |
//! | [`annotate`] | why a span is kept, within the span |

mod annotate;
mod export;
mod fields;
mod scan;

pub use annotate::annotate;
pub use export::Export;
pub use fields::{Rest, WireError};
pub use scan::{Group, RawSpan, scan};
