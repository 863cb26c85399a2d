//! Why an effect failed, in a form that is kept, repeated and sent.

use agent_runtime::chain;

/// Why a reader, its device or a socket did not do what the worker needs: the error with its causes, in one line. The
/// worker tries again, and the host agent shows the line in its status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EffectError(String);

impl EffectError {
    /// Keeps the text of `error` and its causes.
    #[must_use]
    pub fn of(error: &dyn core::error::Error) -> Self {
        Self(chain(error))
    }
}

impl From<String> for EffectError {
    fn from(why: String) -> Self {
        Self(why)
    }
}

impl From<&str> for EffectError {
    fn from(why: &str) -> Self {
        Self(why.to_owned())
    }
}
