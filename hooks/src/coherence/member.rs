//! One node among others.

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::time::Nanos;

use crate::coherence::follower::Follower;
use crate::coherence::item::{Decision, Entry, Item, KnownPath, Output, PathPiece, Run};
use crate::coherence::leader::Leader;
use crate::coherence::words::{Digest, Words};
use crate::time::UnixNanos;
use crate::tracing::{Began, Rank};

/// Bytes of entries in one message.
const MESSAGE: usize = 256 << 10;
/// Pieces of paths, and paths, that are said in a second; what is more is not: others of the same path come.
const PIECES_PER_S: u32 = 64;

/// Other nodes that are known at one time.
const MOST_PEERS: usize = 1_024;

/// How a node deals with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberSettings {
    /// For how long what was said is remembered and told on: as long as decisions are. 120 s by default.
    pub remember: Nanos,
    /// Entries that are remembered. 2^18 by default: 26 MB.
    pub entries: usize,
    /// A decision waits no longer for others. 2 s by default.
    pub patience: Nanos,
    /// A node that was not heard for so long is not waited for. 3 s by default.
    pub lease: Nanos,
    /// What another node said is told on after so long: that one says it itself first. 1 s by default.
    pub relay_after: Nanos,
    /// With nothing to say, a node says that it is there so often. 1 s by default.
    pub idle: Nanos,
}

impl Default for MemberSettings {
    fn default() -> Self {
        Self {
            remember: Nanos::from_secs(120),
            entries: 1 << 18,
            patience: Nanos::from_secs(2),
            lease: Nanos::from_secs(3),
            relay_after: Nanos::from_secs(1),
            idle: Nanos::from_secs(1),
        }
    }
}

/// What a node dealt with it has sent to its upstream within this. What it dealt with just before it was killed may have been in its queue still, and is not
/// taken for dealt with by its successor: that marks such traces.
const SENT_WITHIN: Nanos = Nanos::from_secs(2);

/// What is to be done here.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Another node decided: [`Keeper::keep_from`](crate::tracing::Keeper::keep_from).
    Keep(Decision, Option<Began>),
    /// This node decided, and others know now: [`Keeper::release`](crate::tracing::Keeper::release).
    Release(Decision),
    /// An LMAP elsewhere spoke: [`Keeper::verdict`](crate::tracing::Keeper::verdict).
    Output(Output),
    /// Services that another node saw in a trace.
    Piece(PathPiece),
    /// A path that another node knows.
    Path(KnownPath),
    /// A node was not told in time that this trace is kept: it is to be marked, with the name of that node.
    Untold(Decision, Arc<str>),
}

/// Words that cannot be heard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HearError {
    /// Two nodes with one name would take each other's words for their own.
    #[error("another node is called {0:?}, too: otlp.traces.node must differ")]
    SameName(Arc<str>),
    /// More nodes than a cluster has.
    #[error("{0:?} is one node too many: 1024 others are possible")]
    TooMany(Arc<str>),
    /// Of a run that has a successor.
    #[error("{0:?} has begun again since this was said")]
    Outdated(Arc<str>),
}

/// What became of decisions and messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberCounts {
    /// Decisions of this node.
    pub decided: u64,
    /// Decisions of others that were applied here.
    pub followed: u64,
    /// Outputs of LMAPs elsewhere.
    pub outputs: u64,
    /// Pieces of paths that were not said, since there are enough.
    pub unsaid_pieces: u64,
    /// Runs of other nodes that began while a predecessor was known.
    pub restarts: u64,
    /// Decisions that a node was not told in time.
    pub untold: u64,
}

#[derive(Debug)]
struct Peer {
    run: Run,
    digest: Digest,
    /// What its predecessor had, as far as is known, and had sent on.
    before: Digest,
    /// What it had at least [`SENT_WITHIN`] before it was heard last.
    settled: Digest,
    /// What it had then: to be settled.
    sample: (Nanos, Digest),
    heard: Nanos,
    level: Option<Rank>,
}

/// A node, what it says, what it heard, and what others have of both.
#[derive(Debug)]
pub struct Member {
    run: Run,
    settings: MemberSettings,
    leader: Leader,
    follower: Follower,
    peers: BTreeMap<Arc<str>, Peer>,
    effects: Vec<Effect>,
    level: Option<Rank>,
    leaving: bool,
    pieces: (Nanos, u32),
    counts: MemberCounts,
}

impl Member {
    /// The node `run`, which knows nobody yet.
    #[must_use]
    pub const fn new(run: Run, settings: MemberSettings) -> Self {
        Self {
            run,
            leader: Leader::new(settings.patience),
            follower: Follower::new(settings.remember, settings.entries),
            settings,
            peers: BTreeMap::new(),
            effects: Vec::new(),
            level: None,
            leaving: false,
            pieces: (Nanos::ZERO, 0),
            counts: MemberCounts { decided: 0, followed: 0, outputs: 0, unsaid_pieces: 0, restarts: 0, untold: 0 },
        }
    }

    /// This node decided. It is carried out by an [`Effect::Release`].
    pub fn decide(&mut self, decision: Decision, now: Nanos, day: UnixNanos) {
        self.counts.decided += 1;
        let number = self.say(Item::Keep(decision.clone()), now, day);
        self.leader.hold(number, decision, now);
    }

    /// An LMAP of this node spoke.
    pub fn output(&mut self, output: Output, now: Nanos, day: UnixNanos) {
        let number = self.say(Item::Output(output), now, day);
        self.leader.pass(number);
    }

    /// Services of this node were seen in a trace whose entry span is elsewhere.
    pub fn piece(&mut self, piece: PathPiece, now: Nanos, day: UnixNanos) {
        self.say_seldom(Item::Piece(piece), now, day);
    }

    /// Services were seen on the path of an operation. Returns whether that was said.
    pub fn path(&mut self, path: KnownPath, now: Nanos, day: UnixNanos) -> bool {
        self.say_seldom(Item::Path(path), now, day)
    }

    fn say_seldom(&mut self, item: Item, now: Nanos, day: UnixNanos) -> bool {
        if now.since(self.pieces.0).is_some_and(|age| age >= Nanos::from_secs(1)) {
            self.pieces = (now, 0);
        }
        if self.pieces.1 >= PIECES_PER_S {
            self.counts.unsaid_pieces += 1;
            return false;
        }
        self.pieces.1 += 1;
        let number = self.say(item, now, day);
        self.leader.pass(number);
        true
    }

    /// Up to which rank traces gave way here.
    pub const fn yields_below(&mut self, level: Option<Rank>) {
        self.level = level;
    }

    /// Up to which rank traces gave way at any other node that is there.
    #[must_use]
    pub fn others_level(&self, now: Nanos) -> Option<Rank> {
        self.live(now).filter_map(|peer| peer.level).max()
    }

    /// This node is about to end.
    pub const fn leave(&mut self) {
        self.leaving = true;
    }

    /// Whether there is something to say to `peer`; `None` for one whose name is not known yet. `last` is when it was last spoken to.
    #[must_use]
    pub fn is_due(&self, peer: Option<&str>, last: Option<Nanos>, now: Nanos) -> bool {
        let Some(last) = last else { return true };
        if now.since(last).is_some_and(|age| age >= self.settings.idle) {
            return true;
        }
        let Some(peer) = peer.and_then(|name| self.peers.get(name)) else { return false };
        self.follower.has_for(&peer.digest, &self.run, Some(&peer.run), self.relayed(now))
    }

    /// What to say to `peer` now. The effects of what was heard have to be carried out before: the words say that they were.
    #[must_use]
    pub fn words(&self, peer: Option<&str>, now: Nanos) -> Words {
        let mut digest = self.follower.digest();
        digest.insert(self.run.clone(), self.leader.dealt_with());
        let peer = peer.and_then(|name| self.peers.get(name));
        let said = peer.map_or_else(Vec::new, |peer| {
            let relayed = self.relayed(now);
            let mut said = self.follower.for_peer(&peer.digest, &self.run, Some(&peer.run), relayed, MESSAGE);
            for said in &mut said {
                let had = peer.before.get(&said.run).copied().unwrap_or(0);
                for (number, entry) in (said.first..).zip(&mut said.entries) {
                    entry.dealt_with = number < had;
                }
            }
            said
        });
        let to = peer.map(|peer| peer.run.clone());
        Words { run: self.run.clone(), level: self.level, digest, said, leaving: self.leaving, to }
    }

    /// Another node spoke. What is to be done is in [`effects`](Self::effects), and is to be done before it is answered.
    ///
    /// # Errors
    ///
    /// [`HearError`], if the words are of a node of the same name, or of a run that has ended.
    pub fn hear(&mut self, words: Words, now: Nanos, day: UnixNanos) -> Result<(), HearError> {
        let Words { run, level, digest, said, leaving, to } = words;
        if run.node == self.run.node {
            return if run == self.run { Ok(()) } else { Err(HearError::SameName(run.node)) };
        }
        if leaving {
            self.peers.remove(&run.node);
        } else {
            self.meet(run, level, digest, now)?;
        }
        // What was meant for a predecessor begins where that one was: it comes again, from where this run is.
        let meant = to.is_none_or(|to| to == self.run);
        for said in said.into_iter().filter(|_| meant) {
            if said.run == self.run {
                continue;
            }
            for heard in self.follower.take(said, now, day) {
                self.apply(heard.entry);
            }
        }
        Ok(())
    }

    fn meet(&mut self, run: Run, level: Option<Rank>, digest: Digest, now: Nanos) -> Result<(), HearError> {
        let Some(peer) = self.peers.get_mut(&run.node) else {
            let name = Arc::clone(&run.node);
            if self.peers.len() >= MOST_PEERS {
                return Err(HearError::TooMany(name));
            }
            let (before, settled, sample) = (Digest::new(), Digest::new(), (now, digest.clone()));
            self.peers.insert(name, Peer { run, digest, before, settled, sample, heard: now, level });
            return Ok(());
        };
        if run < peer.run {
            return Err(HearError::Outdated(run.node));
        }
        if run != peer.run {
            self.counts.restarts += 1;
            peer.before = core::mem::take(&mut peer.settled);
            peer.sample = (now, digest.clone());
            peer.digest.clear();
            peer.run = run;
        } else if now.since(peer.sample.0).is_some_and(|age| age >= SENT_WITHIN) {
            peer.settled = core::mem::replace(&mut peer.sample, (now, digest.clone())).1;
        }
        // Messages may overtake each other; what a run has, it has for good.
        for (run, next) in digest {
            let known = peer.digest.entry(run).or_default();
            *known = next.max(*known);
        }
        (peer.heard, peer.level) = (now, level);
        Ok(())
    }

    fn apply(&mut self, entry: Entry) {
        let effect = match entry.item {
            Item::Keep(decision) => {
                self.counts.followed += 1;
                let began = if entry.dealt_with { Some(Began::Before) } else { decision.began.map(Began::At) };
                Effect::Keep(decision, began)
            }
            Item::Output(output) => {
                self.counts.outputs += 1;
                Effect::Output(output)
            }
            Item::Piece(piece) => Effect::Piece(piece),
            Item::Path(path) => Effect::Path(path),
        };
        self.effects.push(effect);
    }

    /// Ten times a second or so: what may be carried out by now, and what nobody needs to remember.
    pub fn tick(&mut self, now: Nanos, day: UnixNanos) {
        let known = self.live(now).filter_map(|peer| peer.digest.get(&self.run)).max().copied().unwrap_or(0);
        let listens = self.live(now).next().is_some();
        self.effects.extend(self.leader.ready(known, listens, now).into_iter().map(Effect::Release));
        let (peers, own, lease) = (&self.peers, &self.run, self.settings.lease);
        let (effects, counts) = (&mut self.effects, &mut self.counts);
        self.follower.forget(now, day, |run, number, item| {
            let Item::Keep(decision) = item else { return };
            // Whoever decided says so; if it is gone, everyone who knows.
            let speaks =
                run == own || !peers.get(&run.node).is_some_and(|peer| peer.run == *run && peer.hears(lease, now));
            let lacks = |peer: &Peer| peer.run != *run && peer.digest.get(run).is_none_or(|next| *next <= number);
            for (name, _) in peers.iter().filter(|(name, peer)| speaks && **name != run.node && lacks(peer)) {
                counts.untold += 1;
                effects.push(Effect::Untold(decision.clone(), Arc::clone(name)));
            }
        });
    }

    /// Takes what is to be done, in order.
    #[must_use]
    pub fn effects(&mut self) -> Vec<Effect> {
        core::mem::take(&mut self.effects)
    }

    /// A node is no longer one of the cluster: nobody waits for it, and nothing is marked because of it.
    pub fn forget(&mut self, node: &str) {
        self.peers.remove(node);
    }

    /// This node.
    #[must_use]
    pub const fn run(&self) -> &Run {
        &self.run
    }

    /// Other nodes that are there, and those that are known.
    #[must_use]
    pub fn sizes(&self, now: Nanos) -> (usize, usize) {
        (self.live(now).count(), self.peers.len())
    }

    /// What this node decided.
    #[must_use]
    pub const fn leader(&self) -> &Leader {
        &self.leader
    }

    /// What was said.
    #[must_use]
    pub const fn follower(&self) -> &Follower {
        &self.follower
    }

    /// What became of it.
    #[must_use]
    pub const fn counts(&self) -> &MemberCounts {
        &self.counts
    }

    fn say(&mut self, item: Item, now: Nanos, day: UnixNanos) -> u64 {
        self.follower.say(&self.run, Entry { said: day, dealt_with: false, item }, now)
    }

    fn live(&self, now: Nanos) -> impl Iterator<Item = &Peer> {
        self.peers.values().filter(move |peer| peer.hears(self.settings.lease, now))
    }

    const fn relayed(&self, now: Nanos) -> Nanos {
        Nanos(now.0.saturating_sub(self.settings.relay_after.0))
    }
}

impl Peer {
    fn hears(&self, lease: Nanos, now: Nanos) -> bool {
        now.since(self.heard).is_none_or(|silent| silent < lease)
    }
}
