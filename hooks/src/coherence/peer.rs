//! What a node knows of one peer.

use wire::time::Nanos;

use crate::coherence::hearsay::Hearsay;
use crate::coherence::item::Run;
use crate::coherence::message::VersionVector;
use crate::coherence::relays::Relays;
use crate::tracing::Rank;

/// Time within which a node has exported what it carried out. What it carried out just before it was killed may still
/// have been in its queue: for its successor it does not count as carried out, and such traces are marked.
const SENT_WITHIN: Nanos = Nanos::from_secs(2);

/// Whether a peer speaks for the same run as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Succession {
    /// The same run.
    Same,
    /// A new run: the peer has restarted.
    New,
    /// The run before, again: two nodes have one name, or a message was very late.
    Former,
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) run: Run,
    /// Its number in [`Peers`](crate::tracing::Peers), below 64.
    pub(super) number: u8,
    /// The run before this one.
    former: Option<Run>,
    pub(super) versions: VersionVector,
    /// What its predecessor had carried out and exported, as far as known.
    pub(super) before: VersionVector,
    /// What it had at least [`SENT_WITHIN`] before its last message.
    settled: VersionVector,
    /// Its version vector then, not yet settled.
    sample: (Nanos, VersionVector),
    pub(super) last_seen: Nanos,
    pub(super) level: Option<Rank>,
    /// What it relays of other runs.
    pub(super) hearsay: Hearsay,
    /// What it was sent of other runs.
    pub(super) relays: Relays,
}

impl Peer {
    /// A peer with this number that speaks for the first time.
    pub(super) fn new(run: Run, number: u8, level: Option<Rank>, versions: VersionVector, now: Nanos) -> Self {
        Self {
            run,
            number,
            former: None,
            sample: (now, versions.clone()),
            versions,
            before: VersionVector::new(),
            settled: VersionVector::new(),
            last_seen: now,
            level,
            hearsay: Hearsay::default(),
            relays: Relays::default(),
        }
    }

    /// The peer itself speaks, for `run`. Whichever run it speaks for is its newest: no order of runs exists by which
    /// somebody could outbid it.
    pub(super) fn update(&mut self, run: Run, level: Option<Rank>, versions: VersionVector, now: Nanos) -> Succession {
        let succession = if run == self.run {
            Succession::Same
        } else if self.former.as_ref() == Some(&run) {
            Succession::Former
        } else {
            Succession::New
        };
        if succession != Succession::Same {
            self.before = core::mem::take(&mut self.settled);
            self.sample = (now, versions.clone());
            self.versions.clear();
            self.relays = Relays::default();
            self.former = Some(core::mem::replace(&mut self.run, run));
        } else if now.since(self.sample.0).is_some_and(|age| age >= SENT_WITHIN) {
            self.settled = core::mem::replace(&mut self.sample, (now, versions.clone())).1;
        }
        // Messages may overtake each other; a version vector never falls.
        for (run, next) in versions {
            let known = self.versions.entry(run).or_default();
            *known = next.max(*known);
        }
        (self.last_seen, self.level) = (now, level);
        succession
    }

    /// Whether it spoke within `lease`.
    pub(super) fn is_live(&self, lease: Nanos, now: Nanos) -> bool {
        now.since(self.last_seen).is_none_or(|silent| silent < lease)
    }

    /// Forgets positions of runs that neither `knows`, so that its version vectors stay as long as the cluster is
    /// large.
    pub(super) fn forget(&mut self, knows: impl Fn(&Run) -> bool, age: Nanos, now: Nanos) {
        for versions in [&mut self.versions, &mut self.before, &mut self.settled, &mut self.sample.1] {
            versions.retain(|run, _| knows(run));
        }
        self.relays.retain(knows);
        self.hearsay.forget(age, now);
    }
}
