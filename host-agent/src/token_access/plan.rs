//! Whose tokens are taken, as the configuration says.

/// Whose tokens are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenPlan {
    /// Tokens have to be for it.
    pub(crate) audience: String,
    /// This node's name: a role may be for some nodes only.
    pub(crate) node: Option<String>,
}
