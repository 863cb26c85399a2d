//! A member of the cluster that says whatever harms the others: in their names, about them, and in its own.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;

use hooks::coherence::{
    Decision, Entries, Entry, GossipMessage, Item, KnownPath, Run, RunId, ServiceVerdict, VersionVector,
};
use hooks::tracing::{Rank, Reason, TraceId};
use wire::time::{Nanos, UnixNanos};

use crate::traffic::Random;

/// The name in its certificate.
pub const NAME: &str = "evil";

/// What it does.
enum Habit {
    /// It says whatever harms the others.
    Lies,
    /// It keeps to the protocol, and finds a service anomalous all the time: what it has said of that.
    Shouts(Vec<Entry>),
    /// It says that it has evicted traces: all, none, or some, by turns.
    Claims,
}

pub struct Liar {
    pub messages: u64,
    random: Random,
    id: u64,
    /// How many entries it says that its run has appended.
    appended: u64,
    /// Runs of others, and how far they are, as far as they said.
    known: VersionVector,
    /// Ids of runs that it has made up.
    invented: BTreeSet<RunId>,
    /// What others sent to it.
    heard: Vec<Entries>,
    habit: Habit,
}

impl Liar {
    pub fn new(seed: u64) -> Self {
        let known = VersionVector::new();
        Self {
            messages: 0,
            random: Random(seed ^ 0xbad),
            id: 1,
            appended: 0,
            known,
            invented: BTreeSet::new(),
            heard: Vec::new(),
            habit: Habit::Lies,
        }
    }

    /// One that keeps to the protocol, and finds the service `catalog` anomalous each second, as strongly as can be.
    pub fn loud(seed: u64) -> Self {
        Self { habit: Habit::Shouts(Vec::new()), ..Self::new(seed) }
    }

    /// One that decides and finds nothing, and says what it has evicted: also in others' names, while it relays what
    /// they say, before it leaves, and as one run after another.
    pub fn short(seed: u64) -> Self {
        Self { habit: Habit::Claims, ..Self::new(seed) }
    }

    /// An honest node answers.
    pub fn hear(&mut self, message: GossipMessage) {
        self.known.extend(message.versions.into_iter().filter(|(run, _)| !self.invented.contains(&run.id)));
        self.known.insert(message.run, message.appended);
        self.heard.extend(message.entries);
        let excess = self.heard.len().saturating_sub(1_000);
        self.heard.drain(..excess);
    }

    /// The next lie, for the node `to`. Most are in its own name, as else they are refused.
    pub fn lie(&mut self, to: &str, wall: UnixNanos) -> GossipMessage {
        self.messages += 1;
        match self.habit {
            Habit::Lies => {}
            Habit::Shouts(_) => return self.shout(wall),
            Habit::Claims => return self.claim(),
        }
        let mut message = self.empty();
        match self.random.below(14) {
            // In another's name, of its run or of a new one: it leaves, it has evicted everything.
            0 => (message.run, message.leaving) = (self.victim(), true),
            1 => (message.run, message.level) = (self.victim(), Some(Rank::at(u64::MAX))),
            2 => message.run.node = self.victim().node,
            // About others: entries that they will append, or never could.
            3 | 4 => {
                let (run, ahead) = (self.victim(), self.random.below(3));
                let next = self.known.get(&run).copied().unwrap_or(0);
                message.entries = vec![self.entries(run, next + ahead, 50, wall)];
            }
            5 => {
                let run = self.victim();
                message.entries = vec![self.entries(run, 1 << 50, 3, wall)];
            }
            6 => message.entries = self.replayed(),
            7 => message.entries = self.made_up_runs(wall),
            // What it has: nothing, or everything.
            8 => message.versions.clear(),
            9 => message.versions.extend(self.known.keys().map(|run| (run.clone(), 1 << 53))),
            // Its own words: many, or far ahead, or of a new run.
            10 => {
                message.entries = vec![self.entries(message.run.clone(), self.appended, 500, wall)];
                self.appended += 500;
            }
            11 => {
                message.entries = vec![self.entries(message.run.clone(), (1 << 53) - 10, 10, wall)];
            }
            12 => self.id += 1,
            _ => (message.leaving, message.to) = (self.random.one_in(2), Some(Self::run_of(to, 77))),
        }
        message
    }

    /// The next message of one that is only loud.
    fn shout(&mut self, wall: UnixNanos) -> GossipMessage {
        const SERVICE: &str = "catalog";
        let mut message = GossipMessage { level: None, ..self.empty() };
        let Habit::Shouts(verdicts) = &mut self.habit else { return message };
        if verdicts.last().is_none_or(|last| last.at.second() < wall.second()) {
            let reason = Reason::Lmap {
                service: SERVICE.into(),
                score: 1e9,
                gamma: 1.0,
                metrics: [].into(),
                incident: "".into(),
            };
            let item = Item::Verdict(ServiceVerdict {
                service: SERVICE.into(),
                from: wall,
                at: wall,
                weight: f64::MAX,
                breakdown: None,
                reason: Arc::new(reason),
            });
            verdicts.push(Entry { at: wall, carried_out: false, item });
        }
        message.appended = verdicts.len() as u64;
        let first = verdicts.len().saturating_sub(20);
        message.entries =
            vec![Entries { run: message.run.clone(), first: first as u64, entries: verdicts[first..].to_vec() }];
        message
    }

    /// The next claim of one that says it is short of memory. It acknowledges nothing, and has said nothing else.
    fn claim(&mut self) -> GossipMessage {
        let level = match self.random.below(4) {
            0 => None,
            1 => Some(Rank::at(self.random.draw())),
            _ => Some(Rank::at(u64::MAX)),
        };
        let mut message = GossipMessage { level, versions: VersionVector::new(), ..self.empty() };
        match self.random.below(8) {
            0 => message.run = self.victim(),
            1 => message.leaving = true,
            2 => {
                self.id += 1;
                message.run = Self::run_of(NAME, self.id);
            }
            3 => message.entries = self.replayed(),
            _ => {}
        }
        message
    }

    fn run_of(node: &str, id: u64) -> Run {
        Run { node: node.into(), id: RunId(NonZeroU64::new(id).expect("not zero")) }
    }

    fn empty(&self) -> GossipMessage {
        GossipMessage {
            run: Self::run_of(NAME, self.id),
            level: Some(Rank::at(u64::MAX)),
            versions: self.known.clone(),
            entries: Vec::new(),
            leaving: false,
            to: None,
            appended: self.appended,
        }
    }

    /// A run of an honest node.
    fn victim(&mut self) -> Run {
        let honest: Vec<_> = self.known.keys().filter(|run| &*run.node != NAME).cloned().collect();
        match honest.len() as u64 {
            0 => Self::run_of("node-0", 1),
            count => honest[self.random.below(count) as usize].clone(),
        }
    }

    /// What others said, as it was, or with other numbers.
    fn replayed(&mut self) -> Vec<Entries> {
        if self.heard.is_empty() {
            return Vec::new();
        }
        let place = self.random.below(self.heard.len() as u64) as usize;
        let mut block = self.heard[place].clone();
        if self.random.one_in(2) {
            block.first += self.random.below(10);
        }
        block.entries.iter_mut().for_each(|entry| entry.carried_out = self.random.one_in(2));
        vec![block]
    }

    fn made_up_runs(&mut self, wall: UnixNanos) -> Vec<Entries> {
        let (node, mut all) = (self.victim().node, Vec::new());
        for _ in 0..20 {
            let (id, first) = (self.random.draw() | 1, self.random.below(1 << 20));
            let run = Self::run_of(&node, id);
            self.invented.insert(run.id);
            all.push(self.entries(run, first, 2, wall));
        }
        all
    }

    fn entries(&mut self, run: Run, first: u64, count: usize, wall: UnixNanos) -> Entries {
        let entries = (0..count).map(|_| {
            let at = match self.random.below(8) {
                0 => UnixNanos(0),
                1 => UnixNanos(u64::MAX),
                _ => wall.minus(Nanos::from_millis(self.random.below(20_000))),
            };
            Entry { at, carried_out: self.random.one_in(2), item: self.item(wall) }
        });
        Entries { run, first, entries: entries.collect() }
    }

    fn item(&mut self, wall: UnixNanos) -> Item {
        let (tenant, invented) = (Arc::<str>::from(""), Arc::<str>::from(format!("s{}", self.random.below(1 << 30))));
        match self.random.below(20) {
            0 => Item::Verdict(ServiceVerdict {
                service: invented,
                from: UnixNanos(0),
                at: wall,
                weight: f64::MAX,
                breakdown: None,
                reason: Arc::new(Reason::Trigger { text: "a lie".into() }),
            }),
            1 => Item::Path(KnownPath {
                tenant,
                service: Arc::clone(&invented),
                operation: Arc::clone(&invented),
                services: vec![Arc::clone(&invented); 50],
                requested: vec![(Arc::clone(&invented), invented); 50],
            }),
            _ => {
                let id = u128::from(self.random.draw()) << 64 | 1;
                let trace = TraceId::new(id.to_be_bytes()).expect("not zero");
                let reason = Arc::new(Reason::Trigger { text: "a lie".into() });
                Item::Keep(Decision { tenant, trace, reason, began: Some(UnixNanos(u64::MAX)) })
            }
        }
    }
}
