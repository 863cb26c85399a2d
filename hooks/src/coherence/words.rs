//! What two nodes say to each other in one exchange.

use std::collections::BTreeMap;

use crate::coherence::item::{Entry, Run};
use crate::tracing::Rank;

/// What a node has of what each run said: everything before the number that stands here.
pub type Digest = BTreeMap<Run, u64>;

/// Consecutive entries of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// Who said it.
    pub run: Run,
    /// The number of the first entry.
    pub first: u64,
    /// In the order of their numbers.
    pub entries: Vec<Entry>,
}

/// A message.
#[derive(Clone, Debug, PartialEq)]
pub struct Words {
    /// Who speaks.
    pub run: Run,
    /// Up to which rank traces gave way at the speaker.
    pub level: Option<Rank>,
    /// What the speaker has; of its own run, what it has dealt with itself.
    pub digest: Digest,
    /// What the other one lacks, as far as the speaker knows.
    pub said: Vec<Said>,
    /// The speaker ends in order: nobody need wait for it any more.
    pub leaving: bool,
    /// The run that is spoken to, as far as the speaker knows: its successor lacks what it had.
    pub to: Option<Run>,
}
