//! A message of the gossip protocol.

use std::collections::BTreeMap;

use crate::coherence::item::{Entry, Run};
use crate::tracing::Rank;

/// Position in the log of each run: all entries with a lower number are there.
pub type VersionVector = BTreeMap<Run, u64>;

/// Consecutive entries of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Entries {
    /// The run that appended them.
    pub run: Run,
    /// The number of the first entry.
    pub first: u64,
    /// The entries, by number.
    pub entries: Vec<Entry>,
}

/// A message from one node to another.
#[derive(Clone, Debug, PartialEq)]
pub struct GossipMessage {
    /// The run that sends it.
    pub run: Run,
    /// The sender has evicted traces up to this rank; `None` if it has evicted none.
    pub level: Option<Rank>,
    /// The sender's version vector. For its own run: the entries that it has carried out itself.
    pub versions: VersionVector,
    /// Entries that the receiver lacks, as far as the sender knows.
    pub entries: Vec<Entries>,
    /// The sender shuts down in order: no node needs to wait for it.
    pub leaving: bool,
    /// The run for which the message is meant, as far as the sender knows. A successor of that run lacks what it had.
    pub to: Option<Run>,
    /// How many entries the sender's run has appended.
    pub appended: u64,
}
