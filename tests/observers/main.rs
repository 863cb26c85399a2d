//! Three nodes where all spans pass through (`keep: all`) and head sampling follows verdicts, in virtual time, with a
//! fourth member that lies. Whatever it says, it suppresses nothing that others find, and what it has raised is bounded
//! (decisions D26 and D34).
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

mod liar;

use core::num::NonZeroU64;
use std::collections::BTreeSet;

use head_sampling::{Advice, AdviceRule, Mode, VerdictSource};
use hooks::coherence::{GossipMessage, Member, MemberSettings, Refusal, Run, RunId, Speaker};
use hooks::tracing::{BudgetRule, Limits, OrderKey, Origin, Switches};
use otlp::{CoherenceSettings, Finding, TailSampler, TailSettings, Timestamp};
use prost::Message as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use support::otlp::{span, traces};
use wire::time::{Nanos, UnixNanos};

use liar::{Liar, Lies};

const NODES: [&str; 3] = ["front", "back", "side"];
const FRONT: usize = 0;
const BACK: usize = 1;
/// Operation n of the frontend passes service n. Spans of the first half of the services are at `back`, the others at
/// `front`, where the requests enter.
const OPERATIONS: usize = 8;
/// Operations that may be raised at a time, of which others have half.
const RAISED: usize = 6;
/// Requests until here, in milliseconds.
const LEARNT: u64 = 33_000;
/// The liar begins to find services anomalous, an honest LMAP at `back` does, one at `front` does, and the end.
const LOUD: u64 = 75_000;
const HONEST: u64 = 80_000;
const OWN: u64 = 85_000;
const END: u64 = 100_000;
/// SDKs of the frontend ask for their shares every so often, each at another time of it.
const POLL: u64 = 5_000;
const SDKS: u64 = 20;
/// Percentage of messages that are lost.
const LOSS: u32 = 10;

fn at(millis: u64) -> Timestamp {
    let monotonic = Nanos::from_millis(millis);
    Timestamp { monotonic, wall: UnixNanos::from_secs(1_700_000_000).plus(monotonic) }
}

fn service(number: usize) -> String {
    format!("service-{number}")
}

fn operation(number: usize) -> String {
    format!("GET /{number}")
}

fn run(name: &str, id: u64) -> Run {
    Run { node: name.into(), id: RunId(NonZeroU64::new(id).unwrap()) }
}

fn node(name: &str, id: u64) -> TailSampler {
    let switches =
        Switches { floor: None, error: false, lmap: false, unremarkable: None, latency: false, trigger: false };
    let settings = TailSettings {
        limits: Limits { bytes: 32 << 20, age: Nanos::from_secs(20), ..Limits::default() },
        key: OrderKey::new(7),
        switches,
        budget: BudgetRule::default(),
        frontends: vec!["frontend".to_owned()],
        node: name.to_owned(),
    };
    let mut node = TailSampler::new(&settings, at(0)).unwrap();
    let settings = CoherenceSettings { member: MemberSettings::default(), successor: false };
    node.join_as_observer(run(name, id), settings, at(0));
    node
}

fn request(service: &str, trace: u128, parent: u8, name: &str, when: Timestamp) -> Vec<u8> {
    traces(service, vec![span(trace, 1 + u8::from(parent > 0), parent, name, when.wall.0)]).encode_to_vec()
}

fn finding(service: &str, when: Timestamp) -> Finding<'_> {
    Finding {
        service,
        from: when.wall,
        at: when.wall,
        breakdown: None,
        score: 12.0,
        gamma: 4.0,
        metrics: Vec::new(),
        incident: "".into(),
    }
}

/// An SDK, which asks once in [`POLL`].
#[derive(Clone, Copy, Debug)]
struct Sdk {
    phase: u64,
    /// Answers since the honest verdict that did not have its operation's raised share yet.
    without: usize,
    /// When it got that.
    told: Option<u64>,
}

impl Sdk {
    /// Asks, if it is time.
    fn ask(&mut self, millis: u64, advice: &mut Advice) {
        if millis < HONEST || millis % POLL != self.phase || self.told.is_some() {
            return;
        }
        let answer = advice.respond("frontend", at(millis).monotonic);
        if answer.operations().any(|(name, _)| name == operation(0)) {
            self.told = Some(millis);
        } else {
            self.without += 1;
        }
    }
}

/// All nodes, head sampling at `front`, and the liar.
struct World {
    nodes: Vec<TailSampler>,
    advice: Advice,
    liar: Option<Liar>,
    random: ChaCha8Rng,
    /// When `front` knew of the honest verdict, when its operation was raised, and when the one of its own was.
    heard: Option<u64>,
    raised: Option<u64>,
    raised_own: Option<u64>,
    /// The most operations that were raised by others only.
    by_others: usize,
    sdks: Vec<Sdk>,
}

impl World {
    fn new(liar: Option<Lies>, seed: u64) -> Self {
        let rule = AdviceRule { default_probability: 0.0, ..AdviceRule::default() };
        Self {
            nodes: NODES.iter().zip(1..).map(|(name, id)| node(name, id)).collect(),
            advice: Advice::new(rule, Mode::Head, RAISED).unwrap(),
            liar: liar.map(|lies| Liar::new(lies, seed)),
            random: ChaCha8Rng::seed_from_u64(seed),
            heard: None,
            raised: None,
            raised_own: None,
            by_others: 0,
            sdks: (0..SDKS).map(|at| Sdk { phase: at * POLL / SDKS, without: 0, told: None }).collect(),
        }
    }

    fn member(&self, node: usize) -> &Member {
        self.nodes[node].member().unwrap()
    }

    /// Carries a message as bytes, unless it is lost.
    fn carry(&mut self, message: &GossipMessage, from: &str, to: usize, now: Timestamp) {
        let bytes = message.encode().encode_to_vec();
        if self.random.random_ratio(LOSS, 100) {
            return;
        }
        let message = wire::proto::gossip::GossipMessage::decode(&bytes[..]).unwrap();
        let Ok(message) = GossipMessage::decode(&message) else {
            assert_eq!(from, liar::NAME, "messages of nodes are valid");
            return;
        };
        let taken = self.nodes[to].receive(message, Speaker::Named(&[from]), now);
        assert!(taken.is_ok() || from == liar::NAME, "{from} is refused: {taken:?}");
    }

    fn exchange(&mut self, millis: u64) {
        let now = at(millis);
        self.nodes.iter_mut().for_each(|node| node.tick(now));
        for (from, name) in NODES.into_iter().enumerate() {
            for to in (0..NODES.len()).filter(|to| *to != from) {
                let message = self.member(from).message(Some(NODES[to]), now.monotonic);
                self.carry(&message, name, to, now);
            }
            let message = self.member(from).message(Some(liar::NAME), now.monotonic);
            let Some(liar) = &mut self.liar else { continue };
            liar.hear(&message);
            let lie = liar.lie(from, now.wall, millis >= LOUD);
            self.carry(&lie, liar::NAME, from, now);
        }
    }

    /// As the host agent does once a second.
    fn advise(&mut self, millis: u64) {
        let now = at(millis);
        let (on, _) = self.nodes[FRONT].anomalous_operations(now);
        for found in &on {
            let source = match found.origin {
                Origin::Here => VerdictSource::Own,
                Origin::Elsewhere(peers) => VerdictSource::Peers(peers.bits()),
            };
            self.advice.raise(&found.service, &found.operation, source, now.monotonic, now.monotonic);
        }
        self.advice.lower(now.monotonic);
        if millis >= HONEST && on.iter().any(|found| found.operation == operation(0)) {
            self.heard.get_or_insert(millis);
        }
        let answer = self.advice.respond("frontend", now.monotonic);
        let raised: BTreeSet<_> = answer.operations().map(|(name, _)| name.to_owned()).collect();
        if millis >= HONEST && raised.contains(&operation(0)) {
            self.raised.get_or_insert(millis);
        }
        let own = operation(OPERATIONS - 1);
        if raised.contains(&own) {
            self.raised_own.get_or_insert(millis);
        }
        self.by_others = self.by_others.max(raised.iter().filter(|name| **name != own).count());
    }

    fn play(mut self) -> Self {
        for millis in (0..END).step_by(10) {
            let now = at(millis);
            if millis < LEARNT {
                let number = (millis / 10) as usize;
                let (of, trace) = (number % OPERATIONS, (u128::from(self.random.random::<u64>()) << 64) | 1);
                let inner = if of < OPERATIONS / 2 { BACK } else { FRONT };
                self.nodes[inner].ingest(&request(&service(of), trace, 1, "Handle", now), now).unwrap();
                self.nodes[FRONT].ingest(&request("frontend", trace, 0, &operation(of), now), now).unwrap();
            }
            if (HONEST..HONEST + 5_000).contains(&millis) && millis % 1_000 == 0 {
                self.nodes[BACK].verdict(finding(&service(0), now), now);
            }
            if (OWN..OWN + 5_000).contains(&millis) && millis % 1_000 == 0 {
                self.nodes[FRONT].verdict(finding(&service(OPERATIONS - 1), now), now);
            }
            if millis % 100 == 0 {
                self.exchange(millis);
            }
            if millis % 1_000 == 500 {
                self.advise(millis);
            }
            for sdk in &mut self.sdks {
                sdk.ask(millis, &mut self.advice);
            }
        }
        self
    }

    /// Asserts that nothing of what honest nodes said is missing anywhere, and that what a member stores is bounded.
    fn nothing_is_suppressed(&self) {
        for (from, name) in NODES.into_iter().enumerate() {
            let said = self.member(from).message(None, at(END).monotonic).appended;
            for (to, other) in NODES.into_iter().enumerate() {
                let (run, versions) = (run(name, from as u64 + 1), self.member(to).log().versions());
                let has = versions.into_iter().find(|(of, _)| **of == run).map(|(_, version)| version);
                assert!(to == from || has == Some(said), "{other} has {has:?} of {said} entries of {name}");
            }
        }
        for node in 0..NODES.len() {
            assert!(self.member(node).log().memory() <= 32 << 20, "{}", self.member(node).log().memory());
        }
    }
}

#[test]
fn without_a_liar_what_one_node_finds_is_raised_where_requests_enter() {
    let world = World::new(None, 1).play();

    world.nothing_is_suppressed();
    assert!(world.heard.is_some_and(|at| at <= HONEST + 1_500), "{:?}", world.heard);
    assert!(world.raised_own.is_some_and(|at| at <= OWN + 500), "{:?}", world.raised_own);
    assert_eq!(world.raised, world.heard);
    assert_eq!(world.by_others, 1, "the operation through the service in alarm, and no other");
}

#[test]
fn a_share_that_another_node_has_raised_reaches_each_sdk_at_its_next_interval() {
    for seed in 4..8 {
        let world = World::new(None, seed).play();

        let raised = world.raised.unwrap();
        // Gossip takes a tenth of a second, unless a message is lost, and alarms are collected once a second.
        assert!(raised <= HONEST + 1_500, "{raised}");
        for sdk in &world.sdks {
            let first = (raised..raised + POLL).find(|millis| millis % POLL == sdk.phase);
            assert_eq!(sdk.told, first, "{sdk:?}");
            assert!(sdk.without <= 1, "only an answer within that time is without it: {sdk:?}");
        }
    }
}

/// In others' names, about others, with runs, numbers and paths that it has made up.
#[test]
fn a_member_that_forges_suppresses_no_verdict_and_delays_none() {
    let honest = World::new(None, 2).play();

    let world = World::new(Some(Lies::Forged), 2).play();

    world.nothing_is_suppressed();
    assert!(world.heard.is_some_and(|at| at <= honest.heard.unwrap() + 1_000), "{:?}", world.heard);
    assert_eq!(world.raised_own, honest.raised_own);
    assert!(world.by_others <= RAISED / 2, "{} are raised", world.by_others);
    for node in 0..NODES.len() {
        let refused = |why| world.member(node).refusals().count(why);
        assert!(refused(Refusal::Impostor) > 50, "{}", refused(Refusal::Impostor));
    }
}

/// By the rules, and as strongly as can be: every service but that of the honest verdict is anomalous all the time.
#[test]
fn a_member_that_finds_everything_anomalous_has_half_of_what_may_be_raised_and_not_what_others_find() {
    let world = World::new(Some(Lies::Loud), 3).play();

    world.nothing_is_suppressed();
    assert!(world.heard.is_some(), "the honest verdict arrives");
    assert_eq!(world.raised, world.heard, "and has a place, though all of them were taken");
    assert_eq!(world.by_others, RAISED / 2, "it has its half, and no more");
    assert!(world.advice.refused() > 0, "the rest is refused, and counted");
    assert!(world.raised_own.is_some_and(|at| at <= OWN + 500), "{:?}", world.raised_own);
}
