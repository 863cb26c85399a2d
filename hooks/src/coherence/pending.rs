//! Decisions of this node that no other node has yet.

use std::collections::VecDeque;

use wire::time::Nanos;

use crate::coherence::item::Decision;

#[derive(Debug)]
struct PendingDecision {
    number: u64,
    since: Nanos,
    decision: Decision,
}

/// Decisions between being made and being carried out. Bounded by what is decided within the patience.
#[derive(Debug)]
pub struct PendingDecisions {
    patience: Nanos,
    pending: VecDeque<PendingDecision>,
    next: u64,
    unconfirmed: u64,
}

impl PendingDecisions {
    /// No decision is pending. A decision waits for `patience` at most.
    #[must_use]
    pub const fn new(patience: Nanos) -> Self {
        Self { patience, pending: VecDeque::new(), next: 0, unconfirmed: 0 }
    }

    /// Entry `number` is appended, and is `decision`.
    pub fn hold(&mut self, number: u64, decision: Decision, since: Nanos) {
        self.pending.push_back(PendingDecision { number, since, decision });
        self.next = number + 1;
    }

    /// Entry `number` is appended, and is no decision.
    pub const fn pass(&mut self, number: u64) {
        self.next = number + 1;
    }

    /// Takes the decisions that may be carried out now: those with a number below `known`, up to which some peer has
    /// everything; all if no peer is alive (`has_live_peer` is false); and those that have waited for the patience.
    pub fn ready(&mut self, known: u64, has_live_peer: bool, now: Nanos) -> Vec<Decision> {
        let (mut ready, patience) = (Vec::new(), self.patience);
        while let Some(pending) = self.pending.pop_front_if(|pending| {
            let waited = now.since(pending.since).is_some_and(|waited| waited >= patience);
            pending.number < known || !has_live_peer || waited
        }) {
            self.unconfirmed += u64::from(pending.number >= known);
            ready.push(pending.decision);
        }
        ready
    }

    /// All entries with a lower number are carried out.
    #[must_use]
    pub fn carried_out(&self) -> u64 {
        self.pending.front().map_or(self.next, |pending| pending.number)
    }

    /// Decisions that are pending.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether no decision is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Decisions that were carried out before a peer was known to have them.
    #[must_use]
    pub const fn unconfirmed(&self) -> u64 {
        self.unconfirmed
    }
}
