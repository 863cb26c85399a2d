//! Tail sampling: which traces are kept, whole, and why (μView, Sec. 4.7.1; decision D9).
//!
//! | module | what |
//! | --- | --- |
//! | [`Keeper`] | one tenant on one node: takes spans and verdicts, exports spans of kept traces |
//! | [`TailBuffer`] | buffers spans, bounded by bytes and age; evicts whole traces, the same ones on every node |
//! | [`Triggers`] | which operations are anomalous in which second, from verdicts |
//! | [`Policies`] | which traces are wanted; [`Budget`]: how much of them may be kept; [`Reason`]: why, in words |
//! | [`ServicePolicies`] | what an operator wants of the traces through single services |
//! | [`OperatorRequest`] | what an operator asks for now, for a time |
//! | [`Threshold`] | consistent probability sampling |
//! | [`ScoreBreakdown`] | one row's score, by operation |
//! | [`LogRecord`], [`LogReason`] | log records, which wait likewise and share budget, decisions and verdicts |
//! | [`Account`] | accounting: seen = waiting + kept + dropped + lost |
//! | `blocks`, `traces`, `decisions`, `watermark`, `order`, `record` | parts of the buffer |
//! | `sender_shares`, `sole_services` | whose the buffered traces are: who sent them, which service they are of |

mod account;
mod blocks;
mod breakdown;
mod budget;
mod buffer;
mod cluster;
mod decisions;
mod keeper;
mod limits;
mod logs;
mod operator_requests;
mod order;
mod outcome;
mod peers;
mod policies;
mod reason;
mod record;
mod sender_shares;
mod service_policies;
mod sole_services;
mod span;
mod switches;
mod threshold;
mod trace_path;
mod traces;
mod triggers;
mod watermark;

pub use account::{Account, DiscardReason, DiscardedSpans, DropReason, LossReason, Tally};
pub use breakdown::ScoreBreakdown;
pub use budget::{Budget, BudgetError, BudgetRule, Payer};
pub use buffer::{Indexes, TailBuffer};
pub use cluster::TraceStart;
pub use decisions::StickyDecision;
pub use keeper::{Keeper, KeptSpan, Piece};
pub use limits::{Limits, LimitsError};
pub use logs::{KeptLog, LogLimitsError, LogPolicy, LogReason, LogRecord, LogRule, Severity};
pub use operator_requests::{OperatorRequest, OperatorRequestError};
pub use order::{OrderKey, Rank};
pub use outcome::{BufferedTrace, Completeness, KeepOutcome, LookBack, OfferOutcome};
pub use peers::{Author, PeerLevels, Peers};
pub use policies::{Policies, Selection, ServiceCatalog};
pub use reason::{Metric, Policy, Reason};
pub use service_policies::{ServicePolicies, ServicePolicyError, ServiceRule};
pub use span::{Span, SpanId, SpanIndex, SpanKind, TraceId};
pub use switches::Switches;
pub use threshold::{ProbabilityError, Randomness, Threshold, sampling_of, with_threshold};
pub use trace_path::{FOLLOWED_BYTES, PathStep, SeenCalls};
pub use triggers::{Origin, TriggerRule, Triggers, Verdict};
