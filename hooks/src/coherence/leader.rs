//! What this node decided, held back until another node knows of it.

use std::collections::VecDeque;

use wire::time::Nanos;

use crate::coherence::item::Decision;

#[derive(Debug)]
struct Held {
    number: u64,
    since: Nanos,
    decision: Decision,
}

/// Decisions between being made and being carried out. Bounded by what is decided within the patience.
#[derive(Debug)]
pub struct Leader {
    patience: Nanos,
    held: VecDeque<Held>,
    next: u64,
    alone: u64,
}

impl Leader {
    /// Nothing decided. A decision waits for `patience` at the most.
    #[must_use]
    pub const fn new(patience: Nanos) -> Self {
        Self { patience, held: VecDeque::new(), next: 0, alone: 0 }
    }

    /// The entry `number` is said, and is `decision`.
    pub fn hold(&mut self, number: u64, decision: Decision, since: Nanos) {
        self.held.push_back(Held { number, since, decision });
        self.next = number + 1;
    }

    /// The entry `number` is said, and is none.
    pub const fn pass(&mut self, number: u64) {
        self.next = number + 1;
    }

    /// Takes what may be carried out: what some node has, which has everything before `known`; all, if nobody `listens`; and what waited as long
    /// as anything waits.
    pub fn ready(&mut self, known: u64, listens: bool, now: Nanos) -> Vec<Decision> {
        let (mut ready, patience) = (Vec::new(), self.patience);
        while let Some(held) = self.held.pop_front_if(|held| {
            let waited = now.since(held.since).is_some_and(|waited| waited >= patience);
            held.number < known || !listens || waited
        }) {
            self.alone += u64::from(held.number >= known);
            ready.push(held.decision);
        }
        ready
    }

    /// The number before which everything was carried out.
    #[must_use]
    pub fn dealt_with(&self) -> u64 {
        self.held.front().map_or(self.next, |held| held.number)
    }

    /// Decisions that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.held.len()
    }

    /// Decisions that were carried out although no other node was known to have them.
    #[must_use]
    pub const fn alone(&self) -> u64 {
        self.alone
    }
}
