//! Which samples are sent to a remote monitor (μView, Sec. 4.7.2; D10 of ARCHITECTURE.md): a baseline series at a steady interval that every
//! query can trust, and a dense one, a series of its own, while a service has something to say. Never both under one name.
//!
//! | module | what |
//! | --- | --- |
//! | [`Sampler`] | one service: rows in, samples out |
//! | [`SamplingRule`], [`SamplingPolicy`] | what is dense, and how much of it |
//! | [`Ledger`] | seen = waiting + handed + sent + suppressed + lost, for each of the two series |
//! | `columns`, `ring`, `steering` | what has moved, what came before, what is affordable |

mod columns;
mod ledger;
mod ring;
mod rule;
mod sampler;
mod steering;

pub use ledger::{Ledger, LostSample, Suppressed};
pub use rule::{RuleError, SamplingPolicy, SamplingRule};
pub use sampler::{ColumnId, Row, Sample, Sampler, Series, WidthError};
