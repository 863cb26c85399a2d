//! Which metric samples are sent to a remote monitor (μView, Sec. 4.7.2; decision D10): a baseline series at a steady
//! interval, on which every query can rely, and a dense one while a service is anomalous. They are different series
//! with different names.
//!
//! | module | what |
//! | --- | --- |
//! | [`Sampler`] | one service: rows in, samples out |
//! | [`SamplingRule`], [`SamplingPolicy`] | what is sent densely, and how much of it |
//! | [`Ledger`] | seen = waiting + in flight + sent + suppressed + lost, for each of the two series |
//! | `columns`, `ring`, `steering` | which columns have moved, earlier rows, the budget |

mod columns;
mod ledger;
mod ring;
mod rule;
mod sampler;
mod steering;

pub use ledger::{Ledger, SampleLossReason, SuppressionReason};
pub use rule::{RuleError, SamplingPolicy, SamplingRule};
pub use sampler::{ColumnId, Row, Sample, Sampler, Series, WidthError};
