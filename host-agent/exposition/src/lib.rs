//! What Prometheus endpoints say, and which of their series are watched. Pure: the bytes of a scrape go in, values of a
//! region come out. The host agent scrapes.
//!
//! | module | what |
//! | --- | --- |
//! | [`format`](read) | the formats, and what all of them say |
//! | `text`, `protobuf` | one pass over a body; nothing is allocated for samples that are known |
//! | `lines` | every sample of a target, by the bytes that name it: its value now and before |
//! | `series` | samples put together: counters, gauges, histograms |
//! | [`choice`] | which series are watched, and why the others are not |
//! | `output`, `placement` | from series to slots of a region; buckets of any bounds to those of a region |
//! | `naming` | names, units and groups of the columns |
//! | [`cost`] | how often a target is scraped |
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

pub mod choice;
pub mod cost;
mod format;
mod lines;
mod naming;
mod output;
mod placement;
mod protobuf;
mod report;
mod series;
mod target;
mod text;

pub use format::{ACCEPT, Description, FamilyKind, Format, FormatError, Role, Sink, read};
pub use report::{FamilyReport, TargetReport};
pub use target::{RefusedSamples, Target, TargetSettings};
