//! Which traces are kept, whole, and why (μView, Sec. 4.7.1; D9 of ARCHITECTURE.md).
//!
//! | module | what |
//! | --- | --- |
//! | [`Keeper`] | one tenant on one node: spans and verdicts in, kept spans out |
//! | [`TailBuffer`] | spans wait, bounded by bytes and age; where memory is short whole traces give way, the same ones on every node |
//! | [`Triggers`] | verdicts → operations and seconds |
//! | [`Policies`] | what wants a trace, [`Budget`]: what may be kept of it, [`Reason`]: in words |
//! | [`Threshold`] | consistent probability sampling |
//! | [`Parts`] | what a row says by itself, and about which operation |
//! | [`Account`] | seen = waiting + kept + dropped + lost |
//! | `blocks`, `traces`, `decisions`, `watermark`, `order`, `record` | the parts of the buffer |

mod account;
mod blocks;
mod budget;
mod buffer;
mod decisions;
mod keeper;
mod limits;
mod order;
mod outcome;
mod parts;
mod policies;
mod reason;
mod record;
mod span;
mod threshold;
mod traces;
mod triggers;
mod watermark;

pub use account::{Account, Departed, Dropped, Gone, Loss, Tally};
pub use budget::{Budget, BudgetError, BudgetRule};
pub use buffer::{Indexes, TailBuffer};
pub use decisions::Fate;
pub use keeper::{Began, Given, Keeper, Passed, Piece};
pub use limits::{Limits, LimitsError};
pub use order::{OrderKey, Rank};
pub use outcome::{Kept, LookBack, Offered, Part, Waiting};
pub use parts::Parts;
pub use policies::{Known, Policies, Switches};
pub use reason::{Metric, Policy, Reason};
pub use span::{Span, SpanId, SpanIndex, SpanKind, TraceId};
pub use threshold::{ProbabilityError, Randomness, Threshold, sampling_of, with_threshold};
pub use triggers::{TriggerRule, Triggers, Verdict};
