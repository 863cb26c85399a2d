//! What Prometheus endpoints and exporters of OTLP metrics say, and which of their series are watched. Pure: the bytes
//! of a scrape or an export go in, values of a region come out. The host agent scrapes, and has the OTLP endpoint.
//!
//! | module | what |
//! | --- | --- |
//! | `format` | the formats, and what all of them say |
//! | [`body`](read) | a body, in any of them |
//! | `text`, `protobuf`, `protobuf_fields` | one pass over a body; nothing is allocated for samples that are known |
//! | `intake` | the line of each sample, which may be new |
//! | `otlp`, `otlp_point` | the points of an OTLP export, likewise; why some are left out |
//! | `point_times`, `distribution` | OTLP's points in order; histograms of either temporality and any buckets |
//! | `lines` | every sample of a target, by the bytes that name it: its value now and before; what is kept of them |
//! | `series` | samples put together: counters, gauges, histograms |
//! | [`choice`], `candidate`, `exclusion` | which series are watched, and why the others are not |
//! | `output`, `placement` | from series to slots of a region; buckets of any bounds to those of a region |
//! | `naming` | names, units and groups of the columns |
//! | [`cost`] | how often a target is scraped |
//! | `model` | what another replica of the service has decided |
//! | [`Target`] | all of that for one endpoint: learns, chooses, goes on |
//!
//! # What a sample becomes
//!
//! | type | column |
//! | --- | --- |
//! | counter | a counter that begins at 0 and never falls; a reset counts from 0 |
//! | gauge, untyped | a gauge; missing while the series is absent or NaN |
//! | histogram | count, mean and 99th percentile of what came between two scrapes |
//! | summary | quantiles are gauges, sum and count are counters |
//! | info, state set, gauge histogram, `_created` | nothing |
//!
//! Timestamps and exemplars are read over.

mod body;
mod candidate;
pub mod choice;
pub mod cost;
mod discards;
mod distribution;
mod exclusion;
mod format;
mod intake;
mod lines;
mod model;
mod naming;
mod native;
mod otlp;
mod otlp_point;
mod output;
mod placement;
mod point_times;
mod program;
mod protobuf;
mod protobuf_fields;
mod refused_samples;
mod report;
mod scraping;
mod series;
mod sides;
mod target;
mod text;

pub use body::read;
pub use discards::{Discard, Discards};
pub use distribution::{HistogramPoint, PointBuckets};
pub use exclusion::{ExcludedSeries, Exclusion};
pub use format::{ACCEPT, Description, FamilyKind, Format, FormatError, Role, Sink};
pub use otlp::PartCounts;
pub use program::ProgramState;
pub use refused_samples::RefusedSamples;
pub use report::{FamilyReport, TargetReport};
pub use target::{Target, TargetSettings};
