//! How often a peer is sent entries of other runs.

use std::cell::RefCell;
use std::collections::BTreeMap;

use wire::time::Nanos;

use crate::coherence::item::Run;
use crate::coherence::message::{Entries, VersionVector};

/// Relays of a run that follow each other at once, although the peer took none of them: a message, or its reply, may be
/// lost.
const AT_ONCE: u32 = 2;

#[derive(Debug)]
struct Relay {
    /// The number after the last entry that was sent.
    end: u64,
    at: Nanos,
    /// Messages with entries of the run since the peer had all that it was sent.
    unanswered: u32,
}

/// What one peer was sent of other runs than this node's own. A peer may not take it: the run speaks to it itself, or
/// has announced less, or too much is relayed. Then a relay is repeated once in an interval, and not with each message.
/// Memory: one element for each run in the log.
#[derive(Debug, Default)]
pub(super) struct Relays(RefCell<BTreeMap<Run, Relay>>);

impl Relays {
    /// Whether entries of `run` may be sent at `now` to the peer, which has `versions`.
    pub(super) fn is_due(&self, run: &Run, versions: &VersionVector, interval: Nanos, now: Nanos) -> bool {
        self.0.borrow().get(run).is_none_or(|relay| {
            let rested = || now.since(relay.at).is_some_and(|passed| passed >= interval);
            relay.unanswered < AT_ONCE || relay.is_taken(run, versions) || rested()
        })
    }

    /// `block` is sent at `now`.
    pub(super) fn sent(&self, block: &Entries, versions: &VersionVector, now: Nanos) {
        let end = block.first.saturating_add(block.entries.len() as u64);
        let mut relays = self.0.borrow_mut();
        let unanswered = match relays.get(&block.run) {
            Some(relay) if !relay.is_taken(&block.run, versions) => relay.unanswered.saturating_add(1),
            _ => 1,
        };
        relays.insert(block.run.clone(), Relay { end, at: now, unanswered });
    }

    /// Forgets all runs but those that `knows`.
    pub(super) fn retain(&mut self, knows: impl Fn(&Run) -> bool) {
        self.0.get_mut().retain(|run, _| knows(run));
    }
}

impl Relay {
    fn is_taken(&self, run: &Run, versions: &VersionVector) -> bool {
        versions.get(run).is_some_and(|next| *next >= self.end)
    }
}
