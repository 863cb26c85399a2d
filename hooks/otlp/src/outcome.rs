//! What becomes of a request: accepted or refused, in no dialect yet.

use crate::bounds::Bound;
use crate::counts::RefusalReason;
use crate::gzip::GzipError;
use crate::json::JsonError;
use crate::memory_budget::OverBudget;

/// Maximum bytes of an error message: it names two senders, which may be pods.
const TEXT_BYTES: usize = 500;

/// An accepted request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Acceptance {
    /// Number of rejected items.
    pub(crate) rejected: u64,
    /// Why they were rejected.
    pub(crate) text: String,
}

/// A refused request.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) why: RefusalReason,
    pub(crate) text: String,
    /// What is full, if that is why.
    pub(crate) full: Option<Bound>,
}

impl Refusal {
    /// `text` is cut to 500 bytes: it may quote what the client sent.
    pub(crate) fn new(why: RefusalReason, text: impl Into<String>) -> Self {
        let mut text = text.into();
        text.truncate(text.floor_char_boundary(TEXT_BYTES));
        Self { why, text, full: None }
    }

    /// `bound` is full, and `text` says by whom: the client is asked to retry.
    pub(crate) fn full(bound: Bound, text: impl Into<String>) -> Self {
        Self { full: Some(bound), ..Self::new(RefusalReason::Busy, text) }
    }
}

impl From<OverBudget> for Refusal {
    fn from(over_budget: OverBudget) -> Self {
        Self::full(Bound::ReceiveMemory, over_budget.to_string())
    }
}

impl From<GzipError<OverBudget>> for Refusal {
    fn from(error: GzipError<OverBudget>) -> Self {
        let text = error.to_string();
        let why = match error {
            GzipError::Memory(over_budget) => return over_budget.into(),
            GzipError::TooLarge(_) | GzipError::Ratio { .. } => RefusalReason::TooLarge,
            GzipError::Members | GzipError::Blocks { .. } | GzipError::Malformed(_) => RefusalReason::Malformed,
        };
        Self::new(why, text)
    }
}

impl From<JsonError> for Refusal {
    fn from(error: JsonError) -> Self {
        let why = match &error {
            JsonError::TooLarge(_) => RefusalReason::TooLarge,
            JsonError::Malformed(_) => RefusalReason::Malformed,
        };
        Self::new(why, error.to_string())
    }
}
