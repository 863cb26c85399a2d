//! A member of the cluster that lies to nodes where spans pass through.

use core::num::NonZeroU64;
use std::sync::Arc;

use hooks::coherence::{Entries, Entry, GossipMessage, Item, KnownPath, Run, RunId, ServiceVerdict, VersionVector};
use hooks::tracing::{Rank, Reason};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use wire::time::UnixNanos;

use crate::{NODES, OPERATIONS, operation, service};

/// The name in its certificate.
pub const NAME: &str = "evil";
/// How many of its last entries a message has.
const LAST: usize = 40;

/// What kind of lies it tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lies {
    /// In the names of others, about what others said, and paths that nobody takes.
    Forged,
    /// Verdicts, by the rules: everything is anomalous.
    Loud,
}

pub struct Liar {
    lies: Lies,
    random: ChaCha8Rng,
    /// Runs of others, and how far they are.
    known: VersionVector,
    said: Vec<Entry>,
}

impl Liar {
    pub fn new(lies: Lies, seed: u64) -> Self {
        Self { lies, random: ChaCha8Rng::seed_from_u64(!seed), known: VersionVector::new(), said: Vec::new() }
    }

    /// An honest node speaks to it.
    pub fn hear(&mut self, message: &GossipMessage) {
        self.known.insert(message.run.clone(), message.appended);
    }

    /// The next lie, for node number `to`. `is_loud`: verdicts, too.
    pub fn lie(&mut self, to: usize, wall: UnixNanos, is_loud: bool) -> GossipMessage {
        match self.lies {
            Lies::Loud if is_loud => self.shout(wall),
            Lies::Loud => self.message(),
            Lies::Forged => self.forge(to, wall),
        }
    }

    fn own_run() -> Run {
        Run { node: NAME.into(), id: RunId(NonZeroU64::new(666).unwrap()) }
    }

    /// What it has said, by the rules.
    fn message(&self) -> GossipMessage {
        let first = self.said.len().saturating_sub(LAST);
        let entries = Entries { run: Self::own_run(), first: first as u64, entries: self.said[first..].to_vec() };
        GossipMessage {
            run: Self::own_run(),
            level: None,
            versions: self.known.clone(),
            entries: vec![entries],
            leaving: false,
            to: None,
            appended: self.said.len() as u64,
        }
    }

    fn verdict(service: &str, wall: UnixNanos) -> Entry {
        let reason =
            Reason::Lmap { service: service.into(), score: 1e9, gamma: 1.0, metrics: [].into(), incident: "".into() };
        let verdict = ServiceVerdict {
            service: service.into(),
            from: wall,
            at: wall,
            weight: f64::MAX,
            breakdown: None,
            reason: Arc::new(reason),
        };
        Entry { at: wall, carried_out: false, item: Item::Verdict(verdict) }
    }

    fn shout(&mut self, wall: UnixNanos) -> GossipMessage {
        if self.said.last().is_none_or(|last| last.at.second() < wall.second()) {
            self.said.extend((1..OPERATIONS).map(|number| Self::verdict(&service(number), wall)));
        }
        self.message()
    }

    fn forge(&mut self, to: usize, wall: UnixNanos) -> GossipMessage {
        let victim = NODES[(to + 1 + self.random.random_range(0..NODES.len() - 1)) % NODES.len()];
        let run = self.known.keys().find(|run| &*run.node == victim).cloned();
        let run = run.unwrap_or_else(|| Run { node: victim.into(), id: Self::own_run().id });
        let next = self.known.get(&run).copied().unwrap_or(0);
        let mut message = self.message();
        match self.random.random_range(0..8) {
            // In another's name: it leaves, it has evicted everything, it has begun anew.
            0 => (message.run, message.leaving) = (run, true),
            1 => (message.run, message.level) = (run, Some(Rank::at(u64::MAX))),
            2 => message.run = Run { id: Self::own_run().id, ..run },
            // What another will say, or never could.
            3 => message.entries = vec![Self::nothing(run, next, wall)],
            4 => message.entries = vec![Self::nothing(run, 1 << 50, wall)],
            // What it has of others: everything, and more.
            5 => message.versions.values_mut().for_each(|version| *version = 1 << 53),
            6 => (message.level, message.leaving) = (Some(Rank::at(u64::MAX)), true),
            _ => {
                self.said.push(self.path(wall));
                message = self.message();
            }
        }
        message
    }

    /// Entries that say nothing, in place of what `run` says under these numbers.
    fn nothing(run: Run, first: u64, wall: UnixNanos) -> Entries {
        let entries = (0..20).map(|_| Self::verdict("nobody", wall)).collect();
        Entries { run, first, entries }
    }

    /// An operation passes a service that does not exist.
    fn path(&self, wall: UnixNanos) -> Entry {
        let (number, invented) = (self.said.len(), Arc::<str>::from(format!("invented-{}", self.said.len())));
        let item = Item::Path(KnownPath {
            tenant: "".into(),
            service: "frontend".into(),
            operation: operation(number % OPERATIONS).into(),
            services: vec![Arc::clone(&invented)],
            requested: vec![(invented, "Handle".into())],
        });
        Entry { at: wall, carried_out: false, item }
    }
}
