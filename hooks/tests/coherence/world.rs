//! Three nodes in virtual time, and a network between them that loses messages.

use std::collections::BTreeMap;

use hooks::coherence::GossipMessage;
use hooks::tracing::{LossReason, TraceId};
use prost::Message as _;
use wire::proto::gossip as proto;

use crate::liar::{self, Liar};
use crate::node::{Backend, Node, Plan};
use crate::traffic::{Random, RecordedSpan, Shop};

pub const NODES: usize = 3;
/// The place of the member that lies.
const LIAR: usize = NODES;

/// What arrives at a node.
enum Event {
    Span(RecordedSpan),
    /// From `from`; `wanted` says whether a reply is wanted.
    Message {
        from: usize,
        message: proto::GossipMessage,
        wanted: bool,
    },
}

/// A node is killed, and starts again.
#[derive(Clone, Copy)]
pub struct Kill {
    pub node: usize,
    pub at: u64,
    pub back: u64,
}

pub struct World {
    pub shop: Shop,
    pub nodes: Vec<Node>,
    pub backend: Backend,
    pub kills: Vec<Kill>,
    /// Percentage of messages that are lost.
    pub loss: u64,
    /// Spans arrive up to so many milliseconds after their end.
    pub batch: u64,
    /// When the first span of each trace arrived at each node.
    pub arrived: [BTreeMap<TraceId, u64>; NODES],
    /// Spans that each node acknowledged, over all of its runs.
    pub acknowledged: [u64; NODES],
    pub messages: u64,
    pub message_bytes: u64,
    /// A fourth member, which lies to each node ten times a second.
    pub liar: Option<Liar>,
    /// Nodes with an LMAP of payment.
    pub watchers: Vec<usize>,
    down: [bool; NODES],
    /// Events by time; none is looked for twice.
    wheel: BTreeMap<u64, Vec<(usize, Event)>>,
    /// When each node last sent to each, and whether a reply is pending since then.
    spoken: [[Option<(u64, bool)>; NODES]; NODES],
    random: Random,
    /// What becomes of messages from and to the liar: those of the nodes fare as they do without it.
    beside: Random,
}

impl World {
    pub fn new(plans: [Plan; NODES], seed: u64) -> Self {
        let nodes = plans.iter().enumerate().map(|(n, plan)| Node::start(&format!("node-{n}"), *plan, 0, None));
        Self {
            shop: Shop::new(NODES, seed),
            nodes: nodes.collect(),
            backend: Backend::default(),
            kills: Vec::new(),
            loss: 10,
            batch: 5_000,
            arrived: Default::default(),
            acknowledged: [0; NODES],
            messages: 0,
            message_bytes: 0,
            liar: None,
            // Where no frontend is.
            watchers: vec![NODES - 1],
            down: [false; NODES],
            wheel: BTreeMap::new(),
            spoken: Default::default(),
            random: Random(!seed),
            beside: Random(seed ^ 0xb5),
        }
    }

    fn at(&mut self, millis: u64, node: usize, event: Event) {
        self.wheel.entry(millis).or_default().push((node, event));
    }

    /// Runs until `end`: so many requests a second from each time on, and verdicts about payment in these seconds.
    pub fn run(&mut self, rates: &[(u64, u64)], verdicts: &[u64], end: u64) {
        let mut due = 0;
        for millis in 0..end {
            due += rates.iter().rfind(|(from, _)| *from <= millis).map_or(0, |(_, per_s)| *per_s);
            while due >= 1_000 {
                due -= 1_000;
                self.request(millis);
            }
            self.kill(millis);
            for (node, event) in self.wheel.remove(&millis).unwrap_or_default() {
                self.play(node, event, millis);
            }
            if millis % 1_000 == 500 && verdicts.contains(&(millis / 1_000)) {
                self.watchers.iter().for_each(|node| self.nodes[*node].verdict("payment", millis));
            }
            // Each node ticks at a time of its own.
            for node in (0..NODES).filter(|node| millis % 100 == *node as u64 * 31) {
                self.tick(node, millis);
                self.lie(node, millis);
            }
        }
    }

    fn lie(&mut self, node: usize, millis: u64) {
        let wall = self.nodes[node].wall(millis);
        if let Some(liar) = &mut self.liar {
            let message = liar.lie(&format!("node-{node}"), wall);
            self.send(LIAR, node, &message, true, millis);
        }
    }

    /// Asserts that no span and no entry is under way. Idle messages go on for ever.
    pub fn is_over(&self) {
        let is_idle = |event: &Event| match event {
            Event::Message { from, message, .. } => {
                let of_liar = |block: &proto::Entries| block.run.as_ref().is_some_and(|run| run.node == liar::NAME);
                *from == LIAR || message.entries.iter().all(of_liar)
            }
            Event::Span(_) => false,
        };
        let honest = self.wheel.values().flatten().filter(|(to, _)| *to != LIAR);
        assert!(honest.into_iter().all(|(_, event)| is_idle(event)), "something is still under way");
    }

    fn request(&mut self, millis: u64) {
        let (mut spans, random, batch) = (Vec::new(), &mut self.random, self.batch);
        self.shop.request(millis, |span| spans.push((span.end + random.below(batch), span)));
        for (at, span) in spans {
            self.at(at.max(millis), span.node, Event::Span(span));
        }
    }

    fn kill(&mut self, millis: u64) {
        for kill in self.kills.clone() {
            if kill.at == millis {
                self.down[kill.node] = true;
            } else if kill.back == millis {
                self.nodes[kill.node] = self.nodes[kill.node].again(millis);
                self.down[kill.node] = false;
                self.spoken[kill.node] = Default::default();
            }
        }
    }

    fn play(&mut self, node: usize, event: Event, millis: u64) {
        match event {
            Event::Message { message, .. } if node == LIAR => {
                let message = GossipMessage::decode(&message).expect("messages of nodes are valid");
                self.liar.as_mut().expect("it has asked").hear(message);
            }
            // Clients resend what was not acknowledged.
            Event::Span(span) if self.down[node] => {
                let again = millis + 200 + self.random.below(800);
                self.at(again, node, Event::Span(span));
            }
            Event::Span(span) => {
                self.acknowledged[node] += 1;
                self.arrived[node].entry(span.trace).or_insert(millis);
                self.nodes[node].span(&span, millis, &mut self.backend);
            }
            Event::Message { .. } if self.down[node] => {}
            Event::Message { from, message, wanted } => {
                let decoded = GossipMessage::decode(&message);
                if from == LIAR && decoded.is_err() {
                    return;
                }
                let message = decoded.expect("messages of nodes are valid");
                let sender = if from == LIAR { liar::NAME.to_owned() } else { format!("node-{from}") };
                let reply = self.nodes[node].receive(message, &sender, millis, &mut self.backend);
                if wanted {
                    if let Some(reply) = reply {
                        self.send(node, from, &reply, false, millis);
                    }
                } else if let Some(Some((_, awaited))) = self.spoken[node].get_mut(from) {
                    *awaited = false;
                }
            }
        }
    }

    /// Most messages take up to 20 ms, some ten times as long.
    fn send(&mut self, from: usize, to: usize, message: &GossipMessage, wanted: bool, millis: u64) {
        let message = message.encode();
        self.messages += 1;
        self.message_bytes += message.encoded_len() as u64;
        let random = if from == LIAR || to == LIAR { &mut self.beside } else { &mut self.random };
        let slow = if random.one_in(20) { 200 } else { 0 };
        let at = millis + 1 + random.below(20) + slow;
        if random.below(100) >= self.loss {
            self.at(at, to, Event::Message { from, message, wanted });
        }
    }

    fn tick(&mut self, node: usize, millis: u64) {
        if self.down[node] {
            return;
        }
        self.nodes[node].tick(millis, &mut self.backend);
        assert!(self.nodes[node].keeper.buffer().account().balances());
        for peer in (0..NODES).filter(|peer| *peer != node) {
            let (name, now) = (format!("node-{peer}"), self.nodes[node].now(millis));
            let spoken = self.spoken[node][peer];
            // One request at a time; a reply that is later than half a second is given up.
            if spoken.is_some_and(|(at, awaited)| awaited && millis - at < 500) {
                continue;
            }
            let last = spoken.map(|(at, _)| self.nodes[node].now(at));
            if self.nodes[node].member.is_due(Some(&name), last, now) || spoken.is_some_and(|(_, awaited)| awaited) {
                let message = self.nodes[node].member.message(Some(&name), now);
                self.spoken[node][peer] = Some((millis, true));
                self.send(node, peer, &message, true, millis);
            }
        }
    }

    /// Numbers of kept traces, of whole ones, of incomplete ones without a mark, and of marked ones.
    pub fn kept(&self) -> (usize, usize, usize, usize) {
        let whole = |(trace, spans): &(&_, &u64)| self.shop.truth[*trace].spans == **spans;
        let (kept, marked) = (&self.backend.spans, &self.backend.marked);
        let unmarked = kept.iter().filter(|of| !whole(of) && !marked.contains(of.0)).count();
        let all_marked = kept.keys().filter(|trace| marked.contains(trace)).count();
        (kept.len(), kept.iter().filter(whole).count(), unmarked, all_marked)
    }

    /// Asserts that what each node decided and released was taken by each other node.
    pub fn agree(&self) {
        for (one, node) in self.nodes.iter().enumerate() {
            for (other, follower) in self.nodes.iter().enumerate() {
                let lacks = node.kept.iter().filter(|trace| !follower.kept.contains(trace)).count();
                assert_eq!(lacks, 0, "of {} traces that node {one} keeps, node {other} lacks so many", node.kept.len());
            }
        }
    }

    /// Asserts that the account of each node agrees with what its services know, over all of its runs.
    pub fn audit(&self) {
        self.is_over();
        for (node, acknowledged) in self.nodes.iter().zip(self.acknowledged) {
            let account = node.keeper.buffer().account();
            assert!(account.balances());
            assert_eq!(account.seen.spans, acknowledged, "acknowledged spans are the seen ones");
        }
        let killed = |node: usize| self.nodes[node].keeper.buffer().account().lost(LossReason::Killed).spans;
        for node in 0..NODES {
            assert_eq!(killed(node) > 0, self.kills.iter().any(|kill| kill.node == node), "node {node}");
        }
        let given: u64 = self.backend.spans.values().map(|spans| u64::from(spans.count_ones())).sum();
        let kept: u64 = self.nodes.iter().map(|node| node.keeper.buffer().account().kept.spans).sum();
        assert_eq!(given + self.backend.twice, kept, "exported spans are those of the accounts");
    }
}
