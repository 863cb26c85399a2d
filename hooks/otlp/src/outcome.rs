//! What becomes of a request: accepted or refused, in no dialect yet.

use crate::counts::RefusalReason;
use crate::gzip::GzipError;
use crate::json::JsonError;
use crate::memory_budget::OverBudget;

/// Maximum bytes of an error message.
const TEXT_BYTES: usize = 300;

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
}

impl Refusal {
    /// `text` is cut to 300 bytes: it may quote what the client sent.
    pub(crate) fn new(why: RefusalReason, text: impl Into<String>) -> Self {
        let mut text = text.into();
        text.truncate(text.floor_char_boundary(TEXT_BYTES));
        Self { why, text }
    }
}

impl From<OverBudget> for Refusal {
    fn from(over_budget: OverBudget) -> Self {
        Self::new(RefusalReason::Busy, over_budget.to_string())
    }
}

impl From<GzipError<OverBudget>> for Refusal {
    fn from(error: GzipError<OverBudget>) -> Self {
        let why = match &error {
            GzipError::TooLarge(_) | GzipError::Ratio { .. } => RefusalReason::TooLarge,
            GzipError::Memory(_) => RefusalReason::Busy,
            GzipError::Members | GzipError::Blocks { .. } | GzipError::Malformed(_) => RefusalReason::Malformed,
        };
        Self::new(why, error.to_string())
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
