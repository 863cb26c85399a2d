//! One node of the cluster: builds messages to its peers, takes theirs, and says what to do.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::sync::Arc;

use wire::time::{Nanos, UnixNanos};

use crate::coherence::allowance::Allowances;
use crate::coherence::entry_log::EntryLog;
use crate::coherence::item::{Decision, Entry, Item, KnownPath, PathPiece, Run, ServiceVerdict};
use crate::coherence::levels::{DepartedLevels, MAX_LEVEL};
use crate::coherence::message::{Entries, GossipMessage, VersionVector};
use crate::coherence::peer::{Peer, Succession};
use crate::coherence::pending::PendingDecisions;
use crate::coherence::refusal::{Refusal, Refusals};
use crate::coherence::settings::MemberSettings;
use crate::coherence::speaker::Speaker;
use crate::tracing::{Author, PeerLevels, Peers, Rank, TraceStart};

/// Bytes of entries in one message.
const MESSAGE: usize = 256 << 10;
/// Pieces of paths, and paths, that are appended in one second. More are dropped: others of the same path follow.
const PIECES_PER_S: u32 = 64;

/// Largest number of peers.
const MAX_PEERS: usize = 1_024;
/// Runs in the version vector of a message; a peer refuses more.
pub(super) const MAX_VERSIONS: usize = 1_024;
/// How often what is known of peers is looked through for what can be forgotten.
const FORGET_EVERY: Nanos = Nanos::from_secs(10);

/// What the caller has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Another node decided: [`Keeper::keep_from`](crate::tracing::Keeper::keep_from).
    Keep(Decision, Option<TraceStart>),
    /// This node decided, and another node has the decision: [`Keeper::release`](crate::tracing::Keeper::release).
    Release(Decision),
    /// An LMAP of another node found its service anomalous: [`Keeper::verdict`](crate::tracing::Keeper::verdict). With
    /// who answers for it, and whose word it is.
    Verdict(ServiceVerdict, Peers, Author),
    /// Services that another node saw in a trace.
    Piece(PathPiece),
    /// A path that another node knows.
    Path(KnownPath),
    /// The named node did not acknowledge this decision in time: the trace has to be marked with the name.
    Unacknowledged(Decision, Arc<str>),
}

/// A message that is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The connection's identity does not have the name of the node that sends the message.
    #[error(
        "this connection may not speak for the node {0:?}: its certificate needs that name (DNS), or the URI \
         uview:node/NAME"
    )]
    Impostor(Arc<str>),
    /// Two nodes have one name: each would take the other's entries for its own.
    #[error("another node has the name {0:?}: set otlp.traces.node to a different one")]
    SameName(Arc<str>),
    /// More peers than a cluster may have.
    #[error("{0:?} is one node too many, at most 1024 peers are allowed")]
    TooMany(Arc<str>),
}

/// Counters of decisions and messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberCounts {
    /// Decisions of this node.
    pub decided: u64,
    /// Decisions of other nodes that were applied here.
    pub followed: u64,
    /// Verdicts of LMAPs on other nodes.
    pub verdicts: u64,
    /// Pieces of paths that were dropped by the rate limit.
    pub dropped_pieces: u64,
    /// Restarts of peers.
    pub restarts: u64,
    /// Decisions that a peer did not acknowledge in time.
    pub unacknowledged: u64,
}

/// A node of the cluster: its own entries, those it received, and what its peers have of both.
#[derive(Debug)]
pub struct Member {
    run: Run,
    settings: MemberSettings,
    pending: PendingDecisions,
    log: EntryLog,
    peers: BTreeMap<Arc<str>, Peer>,
    allowances: Allowances,
    effects: Vec<Effect>,
    level: Option<Rank>,
    leaving: bool,
    pieces: (Nanos, u32),
    counts: MemberCounts,
    refusals: Refusals,
    departed_levels: DepartedLevels,
    /// When what is known of peers was looked through.
    looked: Nanos,
}

impl Member {
    /// The node `run`, without peers.
    #[must_use]
    pub const fn new(run: Run, settings: MemberSettings) -> Self {
        Self {
            run,
            pending: PendingDecisions::new(settings.patience),
            log: EntryLog::new(settings.remember, settings.memory),
            allowances: Allowances::new(settings.peer_decisions, settings.remember),
            settings,
            peers: BTreeMap::new(),
            effects: Vec::new(),
            level: None,
            leaving: false,
            pieces: (Nanos::ZERO, 0),
            counts: MemberCounts {
                decided: 0,
                followed: 0,
                verdicts: 0,
                dropped_pieces: 0,
                restarts: 0,
                unacknowledged: 0,
            },
            refusals: Refusals::new(),
            departed_levels: DepartedLevels::new(),
            looked: Nanos::ZERO,
        }
    }

    /// This node decided to keep a trace. An [`Effect::Release`] follows.
    pub fn decide(&mut self, decision: Decision, now: Nanos, wall: UnixNanos) {
        self.counts.decided += 1;
        let number = self.append(Item::Keep(decision.clone()), now, wall);
        self.pending.hold(number, decision, now);
    }

    /// An LMAP of this node found its service anomalous.
    pub fn verdict(&mut self, output: ServiceVerdict, now: Nanos, wall: UnixNanos) {
        let number = self.append(Item::Verdict(output), now, wall);
        self.pending.pass(number);
    }

    /// Services of this node were seen in a trace whose entry span is elsewhere.
    pub fn piece(&mut self, piece: PathPiece, now: Nanos, wall: UnixNanos) {
        self.append_limited(Item::Piece(piece), now, wall);
    }

    /// Services were seen on the path of an operation. Returns whether the entry was appended.
    pub fn path(&mut self, path: KnownPath, now: Nanos, wall: UnixNanos) -> bool {
        self.append_limited(Item::Path(path), now, wall)
    }

    fn append_limited(&mut self, item: Item, now: Nanos, wall: UnixNanos) -> bool {
        if now.since(self.pieces.0).is_some_and(|age| age >= Nanos::from_secs(1)) {
            self.pieces = (now, 0);
        }
        if self.pieces.1 >= PIECES_PER_S {
            self.counts.dropped_pieces += 1;
            return false;
        }
        self.pieces.1 += 1;
        let number = self.append(item, now, wall);
        self.pending.pass(number);
        true
    }

    /// This node has evicted traces up to this rank.
    pub const fn set_eviction_level(&mut self, level: Option<Rank>) {
        self.level = level;
    }

    /// The rank up to which each live peer has evicted traces, by its own word, and at most 7/8 of all ranks.
    ///
    /// It holds for that peer's own verdicts, whoever relays them: they pass over a trace that it has evicted, since
    /// they have others to select, and those are whole. Ranks are uniform over traces, so an eighth of the traces is
    /// left to them however short it is; it marks what it lacks. What others find, or this node, takes no such advice.
    /// The level of a peer that has left holds for a minute.
    #[must_use]
    pub fn peer_eviction_levels(&self, now: Nanos) -> PeerLevels {
        let live = self.live(now).filter_map(|peer| Some((Author::named(&peer.run.node), peer.level?)));
        let levels = live.chain(self.departed_levels.held(now));
        levels.map(|(author, level)| (author, level.min(MAX_LEVEL))).collect()
    }

    /// This node is about to shut down.
    pub const fn leave(&mut self) {
        self.leaving = true;
    }

    /// Whether a message to `peer` is due; `None` for a peer whose name is not known yet. `last` is the time of the
    /// last message to it.
    #[must_use]
    pub fn is_due(&self, peer: Option<&str>, last: Option<Nanos>, now: Nanos) -> bool {
        let Some(last) = last else { return true };
        if now.since(last).is_some_and(|age| age >= self.settings.idle) {
            return true;
        }
        let Some(peer) = peer.and_then(|name| self.peers.get(name)) else { return false };
        self.log.has_for(&peer.versions, &self.run, |run| self.may_send(run, peer, now), self.relayed(now))
    }

    /// The message to `peer` at `now`. Carry out all effects of received messages before: the message says that they
    /// are carried out.
    #[must_use]
    pub fn message(&self, peer: Option<&str>, now: Nanos) -> GossipMessage {
        let peer = peer.and_then(|name| self.peers.get(name));
        let entries = peer.map_or_else(Vec::new, |peer| {
            let (relayed, wanted) = (self.relayed(now), |run: &Run| self.may_send(run, peer, now));
            let mut blocks = self.log.for_peer(&peer.versions, &self.run, wanted, relayed, MESSAGE);
            for block in &mut blocks {
                if block.run != self.run {
                    peer.relays.sent(block, &peer.versions, now);
                }
                let had = peer.before.get(&block.run).copied().unwrap_or(0);
                for (number, entry) in (block.first..).zip(&mut block.entries) {
                    entry.carried_out = number < had;
                }
            }
            blocks
        });
        GossipMessage {
            run: self.run.clone(),
            level: self.level,
            versions: self.versions_for(peer),
            entries,
            leaving: self.leaving,
            to: peer.map(|peer| peer.run.clone()),
            appended: self.log.next(&self.run),
        }
    }

    /// Whether entries of `run` may be sent to `peer` at `now`: this node's own at once; those of other runs once per
    /// idle interval, if the peer did not take what it was sent of them.
    fn may_send(&self, run: &Run, peer: &Peer, now: Nanos) -> bool {
        *run == self.run || (*run != peer.run && peer.relays.is_due(run, &peer.versions, self.settings.idle, now))
    }

    /// The version vector to show to `peer`. What another node relayed is not in it: the peer, or the run itself, may
    /// have other words with these numbers.
    fn versions_for(&self, peer: Option<&Peer>) -> VersionVector {
        let mut versions = VersionVector::from([(self.run.clone(), self.pending.carried_out())]);
        // The peer's own run first: with a place for each peer, it is the one that must not be left out.
        versions.extend(peer.map(|peer| (peer.run.clone(), self.log.next(&peer.run))));
        let direct = self.log.versions().into_iter().filter(|(run, _)| **run != self.run);
        let relayed = peer.into_iter().flat_map(|peer| peer.hearsay.positions());
        for (run, next) in direct.chain(relayed) {
            let is_full = versions.len() >= MAX_VERSIONS;
            match versions.entry(run.clone()) {
                Slot::Occupied(mut known) => _ = known.insert(next.max(*known.get())),
                Slot::Vacant(_) if is_full => {}
                Slot::Vacant(free) => _ = free.insert(next),
            }
        }
        versions
    }

    /// Takes a message that came over a connection of `speaker`. Carry out the [`effects`](Self::effects) before the
    /// reply. Words that are not believed are skipped and [counted](Self::refusals).
    ///
    /// # Errors
    ///
    /// [`ReceiveError`], if the speaker may not speak for the node, another node has this node's name, or there are too
    /// many peers. Then nothing of the message was taken.
    pub fn receive(
        &mut self,
        message: GossipMessage,
        speaker: Speaker<'_>,
        now: Nanos,
        wall: UnixNanos,
    ) -> Result<(), ReceiveError> {
        let GossipMessage { run, level, versions, entries, leaving, to, appended } = message;
        if !speaker.may_speak_for(&run.node) {
            self.refusals.add(&run.node, Refusal::Impostor, now);
            return Err(ReceiveError::Impostor(run.node));
        }
        if run.node == self.run.node {
            if run == self.run {
                return Ok(());
            }
            self.refusals.add(&run.node, Refusal::SameName, now);
            return Err(ReceiveError::SameName(run.node));
        }
        if self.peers.len() >= MAX_PEERS && !self.peers.contains_key(&run.node) {
            self.refusals.add(&run.node, Refusal::TooManyPeers, now);
            return Err(ReceiveError::TooMany(run.node));
        }
        self.log.announce(&run, appended, now);
        // Who leaves is forgotten, and pays for its last words all the same.
        let (mut peer, author) = (self.number(&run.node), Author::named(&run.node));
        if leaving {
            let level = self.peers.remove(&run.node).and_then(|peer| peer.level);
            self.departed_levels.hold(author, level, now);
        } else {
            self.update_peer(&run, level, versions, now);
            peer = self.number(&run.node);
        }
        // A message for a predecessor begins where that one was. Its entries come again, from where this run is.
        let meant = to.is_none_or(|to| to == self.run);
        for mut block in entries.into_iter().filter(|_| meant) {
            if block.run == run {
                let known = self.log.next(&run);
                if self.allowances.cut(&run.node, &mut block, known, now) {
                    self.refusals.add(&run.node, Refusal::TooManyDecisions, now);
                }
                for entry in self.log.receive(block, now, wall) {
                    self.apply((peer, author), entry);
                }
            } else if block.run != self.run {
                self.receive_relayed(&run.node, block, now, wall);
            }
        }
        Ok(())
    }

    /// `relayer` says what another run said. Whether the predecessor of this node had carried it out, only others know:
    /// that is the relayer's own word.
    fn receive_relayed(&mut self, relayer: &Arc<str>, mut block: Entries, now: Nanos, wall: UnixNanos) {
        let MemberSettings { lease, remember, .. } = self.settings;
        let (node, of) = (Arc::clone(&block.run.node), self.peers.get(&block.run.node));
        let speaks = of.is_some_and(|peer| peer.run == block.run && peer.is_live(lease, now));
        let Some(peer) = self.peers.get(relayer) else { return };
        let known = peer.hearsay.known(&block.run, &self.log);
        let is_known = of.is_some() || node == self.run.node;
        if !speaks && self.allowances.cut_relayed(relayer, is_known, &mut block, known, now) {
            self.refusals.add(relayer, Refusal::TooManyDecisions, now);
        }
        // Whose words they are is known of a run that speaks itself; of any other, who relays answers for them.
        let who = (self.number(if speaks { &node } else { relayer }), Author::named(&node));
        let Some(peer) = self.peers.get_mut(relayer) else { return };
        match peer.hearsay.receive(block, &mut self.log, speaks, (remember, now, wall)) {
            Ok(entries) => entries.into_iter().for_each(|entry| self.apply(who, entry)),
            Err(why) => self.refusals.add(&format!("{relayer} about {node}"), why, now),
        }
    }

    fn update_peer(&mut self, run: &Run, level: Option<Rank>, versions: VersionVector, now: Nanos) {
        let name = Arc::clone(&run.node);
        if level > Some(MAX_LEVEL) {
            self.refusals.add(&name, Refusal::Level, now);
        }
        let appended = self.log.next(&self.run);
        let claimed = versions.get(&self.run).copied();
        let mut versions = self.log.known(versions);
        if let Some(claimed) = claimed {
            if claimed > appended {
                self.refusals.add(&name, Refusal::Overclaimed, now);
            }
            versions.insert(self.run.clone(), claimed.min(appended));
        }
        let Some(peer) = self.peers.get_mut(&name) else {
            let number = self.free_number();
            self.peers.insert(name, Peer::new(run.clone(), number, level, versions, now));
            return;
        };
        match peer.update(run.clone(), level, versions, now) {
            Succession::Same => {}
            Succession::New => self.counts.restarts += 1,
            Succession::Former => self.refusals.add(&name, Refusal::Alternating, now),
        }
    }

    fn number(&self, node: &str) -> Peers {
        self.peers.get(node).map_or(Peers::UNKNOWN, |peer| Peers::one(peer.number))
    }

    /// The number of 64 that fewest peers have.
    fn free_number(&self) -> u8 {
        let mut peers = [0; 64];
        self.peers.values().for_each(|peer| peers[usize::from(peer.number)] += 1);
        (0..64).min_by_key(|number| peers[usize::from(*number)]).unwrap_or(0)
    }

    /// `author` announces `entry`, for which `peer` answers.
    fn apply(&mut self, (peer, author): (Peers, Author), entry: Entry) {
        let effect = match entry.item {
            Item::Keep(decision) => {
                self.counts.followed += 1;
                let began =
                    if entry.carried_out { Some(TraceStart::CarriedOut) } else { decision.began.map(TraceStart::At) };
                Effect::Keep(decision, began)
            }
            Item::Verdict(output) => {
                self.counts.verdicts += 1;
                Effect::Verdict(output, peer, author)
            }
            Item::Piece(piece) => Effect::Piece(piece),
            Item::Path(path) => Effect::Path(path),
        };
        self.effects.push(effect);
    }

    /// To be called about ten times a second: releases decisions, and forgets old entries.
    pub fn tick(&mut self, now: Nanos, wall: UnixNanos) {
        // Numbers of this run go on, however long it had nothing to say.
        self.log.announce(&self.run, 0, now);
        let known = self.live(now).filter_map(|peer| peer.versions.get(&self.run)).max().copied().unwrap_or(0);
        let has_live_peer = self.live(now).next().is_some();
        self.effects.extend(self.pending.ready(known, has_live_peer, now).into_iter().map(Effect::Release));
        let (peers, own, lease) = (&self.peers, &self.run, self.settings.lease);
        let (effects, counts) = (&mut self.effects, &mut self.counts);
        self.log.forget(now, wall, |run, number, item| {
            let Item::Keep(decision) = item else { return };
            // The deciding node reports it; if that is dead, every node that has the decision does.
            let reports =
                run == own || !peers.get(&run.node).is_some_and(|peer| peer.run == *run && peer.is_live(lease, now));
            let lacks = |peer: &Peer| peer.run != *run && peer.versions.get(run).is_none_or(|next| *next <= number);
            for (name, _) in peers.iter().filter(|(name, peer)| reports && **name != run.node && lacks(peer)) {
                counts.unacknowledged += 1;
                effects.push(Effect::Unacknowledged(decision.clone(), Arc::clone(name)));
            }
        });
        if now.since(self.looked).is_some_and(|passed| passed >= FORGET_EVERY) {
            self.looked = now;
            let (log, own, age) = (&self.log, &self.run, Nanos(self.settings.remember.0.saturating_mul(2)));
            self.peers.retain(|_, peer| peer.is_live(self.settings.forget, now));
            self.allowances.forget(now);
            for peer in self.peers.values_mut() {
                peer.forget(|run| run == own || log.announced(run).is_some(), age, now);
            }
        }
    }

    /// Takes what has to be done, in order.
    #[must_use]
    pub fn effects(&mut self) -> Vec<Effect> {
        core::mem::take(&mut self.effects)
    }

    /// A node left the cluster: no decision waits for it, and no trace is marked because of it.
    pub fn forget(&mut self, node: &str) {
        self.peers.remove(node);
    }

    /// The run of this node.
    #[must_use]
    pub const fn run(&self) -> &Run {
        &self.run
    }

    /// Each known peer: its name, for how long it has been silent, and whether it counts as live.
    pub fn peers(&self, now: Nanos) -> impl Iterator<Item = (&str, Nanos, bool)> {
        let silent = move |peer: &Peer| now.since(peer.last_seen).unwrap_or(Nanos::ZERO);
        let lease = self.settings.lease;
        self.peers.iter().map(move |(name, peer)| (&**name, silent(peer), peer.is_live(lease, now)))
    }

    /// Number of live peers, and of all known peers.
    #[must_use]
    pub fn sizes(&self, now: Nanos) -> (usize, usize) {
        (self.live(now).count(), self.peers.len())
    }

    /// Decisions of this node that no other node has yet.
    #[must_use]
    pub const fn pending(&self) -> &PendingDecisions {
        &self.pending
    }

    /// Recent entries of all nodes.
    #[must_use]
    pub const fn log(&self) -> &EntryLog {
        &self.log
    }

    /// A message of `who` was refused before it came here.
    pub fn refuse(&mut self, who: &str, why: Refusal, now: Nanos) {
        self.refusals.add(who, why, now);
    }

    /// Words of peers that were not believed.
    #[must_use]
    pub const fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Counters of decisions and messages.
    #[must_use]
    pub const fn counts(&self) -> &MemberCounts {
        &self.counts
    }

    fn append(&mut self, item: Item, now: Nanos, wall: UnixNanos) -> u64 {
        self.log.append(&self.run, Entry { at: wall, carried_out: false, item }, now)
    }

    fn live(&self, now: Nanos) -> impl Iterator<Item = &Peer> {
        self.peers.values().filter(move |peer| peer.is_live(self.settings.lease, now))
    }

    const fn relayed(&self, now: Nanos) -> Nanos {
        Nanos(now.0.saturating_sub(self.settings.relay_after.0))
    }
}
