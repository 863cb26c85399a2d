//! The local side of every gossip exchange.

use hooks::coherence::{GossipMessage, ReceiveError, Refusal, Speaker};
use wire::time::Nanos;

/// State that this node gossips about. Called from several tasks, so no method may block for long.
pub trait LocalNode: Send + Sync + 'static {
    /// Takes in a message that came over a connection of `speaker`. All its effects are done on return, so the next
    /// [`Self::message`] reflects them.
    ///
    /// # Errors
    ///
    /// [`ReceiveError`] if the message cannot be applied.
    fn receive(&self, message: GossipMessage, speaker: Speaker<'_>) -> Result<(), ReceiveError>;

    /// A message of `who` was refused before it could be received: to be counted and reported.
    fn refuse(&self, who: &str, why: Refusal);

    /// The next message for `peer`, or for a peer whose name is still unknown. `None` while this node gossips with
    /// nobody.
    fn message(&self, peer: Option<&str>) -> Option<GossipMessage>;

    /// Whether a message to `peer` is due; `last` is the [`Self::time`] of the last message sent to it.
    fn is_due(&self, peer: Option<&str>, last: Option<Nanos>) -> bool;

    /// Monotonic time, the clock of `last`.
    fn time(&self) -> Nanos;

    /// `peer` has left the cluster: drop what is kept for it.
    fn forget_peer(&self, peer: &str);
}
