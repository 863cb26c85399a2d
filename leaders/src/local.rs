//! This node's end of every exchange.

use hooks::coherence::{HearError, Words};
use wire::time::Nanos;

/// What this node says and hears. Called from several tasks; nothing of it may block for long.
pub trait Local: Send + Sync + 'static {
    /// Another node spoke. Everything that follows from it is done when this returns: what is said next says so.
    ///
    /// # Errors
    ///
    /// [`HearError`], if it cannot be heard.
    fn hear(&self, words: Words) -> Result<(), HearError>;

    /// What there is to say to `peer`, or to a node whose name is not known yet; `None` while this node is alone.
    fn words(&self, peer: Option<&str>) -> Option<Words>;

    /// Whether there is something to say to `peer`, to whom this node spoke last at `last`.
    fn is_due(&self, peer: Option<&str>, last: Option<Nanos>) -> bool;

    /// The time by which `last` is told.
    fn time(&self) -> Nanos;

    /// `peer` is no longer one of the cluster.
    fn forget(&self, peer: &str);
}
