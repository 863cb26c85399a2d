//! Spans as OTLP has them (opentelemetry-proto 1, `ExportTraceServiceRequest`): found without being decoded, sent on as they came.
//!
//! A request is walked by its lengths. What this crate needs of a span is read in place; everything else stays bytes, unknown fields
//! included, so that a newer client's spans arrive whole. What is added to a span is appended: in Protocol Buffers a repeated field goes on
//! wherever it stands, and of a single one the last counts.
//!
//! | module | what |
//! | --- | --- |
//! | [`scan`] | request → groups of one origin → spans |
//! | [`count`] | whether it is a request of any signal, and how many items it has |
//! | [`Export`] | spans and their origins → request |
//! | [`mask`], [`rename`] | values of attributes, and services' names, replaced |
//! | [`annotate`] | why a span is kept, within the span |
//! | [`mark`] | that something is missing, where there is no span to say it |

mod annotate;
mod edit;
mod export;
mod fields;
mod mark;
mod scan;

pub use annotate::annotate;
pub use edit::{MASK, mask, rename};
pub use export::Export;
pub use fields::{Rest, WireError};
pub use mark::{mark, mark_resource};
pub use scan::{Group, RawSpan, count, scan};
