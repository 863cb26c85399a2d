//! Tail sampling of log records: they wait as spans do, and are kept with their trace, because of an error, because
//! their service was in alarm when they were written, or as a small share.
//!
//! | module | what |
//! | --- | --- |
//! | `record` | [`LogRecord`], [`Severity`]; [`LogPolicy`] and [`LogReason`]: why a record is kept |
//! | `buffer` | waiting records, bounded in bytes; whoever has most makes room |
//! | `keep` | what a [`Keeper`](crate::tracing::Keeper) does with records |

mod buffer;
mod keep;
mod record;

pub(super) use keep::LogKeeper;
pub use keep::{KeptLog, LogLimitsError, LogRule};
pub use record::{LogPolicy, LogReason, LogRecord, Severity};
