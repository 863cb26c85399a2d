//! A member of a cluster in which others lie: what an honest node says is taken, whatever they say in between.

use std::num::NonZeroU64;
use std::sync::Arc;

use hooks::coherence::{
    Decision, Effect, GossipMessage, Member, MemberSettings, Refusal, Run, RunId, ServiceVerdict, Speaker,
};
use hooks::tracing::{Author, Rank, Reason, TraceId};
use prost::Message as _;
use wire::proto;
use wire::time::{Nanos, UnixNanos};

/// Memory of entries, small enough to be filled.
const MEMORY: usize = 1 << 16;
/// The member under test, and the honest node that speaks with it.
const NODES: [&str; 2] = ["a", "b"];
/// Who else speaks: a name in a certificate each.
const LIARS: [&str; 2] = ["evil", "worse"];

struct Cluster {
    a: Member,
    b: Member,
    now: Nanos,
    decided: u64,
}

/// A sequence of steps, each with a byte that says what: an honest decision, time that passes (one more byte, in tenths
/// of a second), or a message of a liar (two bytes of length, and the message). Runs of honest nodes have the id 1, so
/// that a fuzzer can name them.
pub fn gossip_member(bytes: &[u8]) {
    let settings = MemberSettings { memory: MEMORY, ..MemberSettings::default() };
    let run = |node: &str| Run { node: node.into(), id: RunId(NonZeroU64::MIN) };
    let [a, b] = NODES.map(|node| Member::new(run(node), settings));
    let mut cluster = Cluster { a, b, now: Nanos::from_secs(1), decided: 0 };
    cluster.decide();
    let mut rest = bytes;
    while let Some((&what, more)) = rest.split_first() {
        rest = match what % 4 {
            0 => {
                cluster.decide();
                more
            }
            1 => {
                let (&tenths, more) = more.split_first().unwrap_or((&0, more));
                cluster.now = cluster.now.plus(Nanos::from_millis(100 * u64::from(tenths)));
                cluster.tick();
                more
            }
            liar => {
                let Some((length, more)) = more.split_first_chunk() else { break };
                let (message, more) = more.split_at(usize::from(u16::from_be_bytes(*length)).min(more.len()));
                cluster.lie(LIARS[usize::from(liar - 2)], message);
                more
            }
        };
        cluster.check();
    }
    cluster.decide();
}

impl Cluster {
    fn wall(&self) -> UnixNanos {
        UnixNanos::from_secs(1_700_000_000).plus(self.now)
    }

    fn tick(&mut self) {
        let (now, wall) = (self.now, self.wall());
        for member in [&mut self.a, &mut self.b] {
            member.tick(now, wall);
            drop(member.effects());
        }
    }

    /// What `liar` says over its own connection.
    fn lie(&mut self, liar: &str, message: &[u8]) {
        let Ok(message) = proto::gossip::GossipMessage::decode(message) else { return };
        let Ok(message) = GossipMessage::decode(&message) else { return };
        let (now, wall, claimed) = (self.now, self.wall(), Arc::clone(&message.run.node));
        let received = self.a.receive(message, Speaker::Named(&[liar]), now, wall);
        assert!(received.is_err() || *claimed == *liar, "a certificate is for its own names only");
        drop(self.a.effects());
    }

    /// b decides and finds a service anomalous, and speaks with a: a carries the decision out, b learns that, and
    /// releases it. The verdict is taken as b's: what b has evicted holds for it, and not what liars say of themselves.
    fn decide(&mut self) {
        self.decided += 1;
        let trace = TraceId::new((u128::from(self.decided) << 64 | 1).to_be_bytes()).expect("not zero");
        let reason = Arc::new(Reason::Trigger { text: "honest".into() });
        let (now, wall) = (self.now, self.wall());
        self.b.decide(Decision { tenant: "".into(), trace, reason: Arc::clone(&reason), began: None }, now, wall);
        let (service, from, at) = ("honest".into(), wall, wall);
        self.b.verdict(ServiceVerdict { service, from, at, weight: 1.0, breakdown: None, reason }, now, wall);
        let mut taken = Vec::new();
        for _ in 0..2 {
            self.pass();
            taken.extend(self.a.effects());
        }
        self.b.tick(now, wall);
        let released = self.b.effects();
        let kept = |effect: &Effect| matches!(effect, Effect::Keep(decision, _) if decision.trace == trace);
        let own = |effect: &Effect| matches!(effect, Effect::Release(decision) if decision.trace == trace);
        let b = Author::named(NODES[1]);
        let found = |effect: &Effect| matches!(effect, Effect::Verdict(_, _, author) if *author == b);
        assert!(taken.iter().any(kept), "a has not taken the decision {} of b", self.decided);
        assert!(taken.iter().any(found), "a has not taken the verdict {} of b as b's", self.decided);
        assert!(released.iter().any(own), "b does not know that a has it");
    }

    /// A message of b to a, and the reply, as bytes.
    fn pass(&mut self) {
        let (now, wall) = (self.now, self.wall());
        let there = through_bytes(&self.b.message(Some(NODES[0]), now));
        self.a.receive(there, Speaker::Named(&[NODES[1]]), now, wall).expect("b is welcome");
        let back = through_bytes(&self.a.message(Some(NODES[1]), now));
        self.b.receive(back, Speaker::Named(&[NODES[0]]), now, wall).expect("a is welcome");
    }

    fn check(&mut self) {
        let (now, wall) = (self.now, self.wall());
        self.a.tick(now, wall);
        drop(self.a.effects());
        assert!(self.a.log().memory() <= MEMORY, "{} bytes of entries", self.a.log().memory());
        let levels = self.a.peer_eviction_levels(now);
        assert_eq!(levels.of(Author::named(NODES[1])), None, "b has evicted nothing, whoever says so");
        for liar in LIARS {
            assert!(levels.of(Author::named(liar)) < Some(Rank::at(u64::MAX)), "some traces are left to {liar}");
        }
        assert!(self.a.refusals().lines(now).count() <= 32);
        for line in self.a.refusals().lines(now) {
            assert!(!line.contains(char::is_control), "{line:?}");
        }
        let known = self.b.refusals();
        assert_eq!(Refusal::ALL.map(|why| known.count(why)), [0; Refusal::ALL.len()], "a is honest");
    }
}

/// What the other end decodes: it refuses no message of an honest member.
fn through_bytes(message: &GossipMessage) -> GossipMessage {
    let bytes = message.encode().encode_to_vec();
    let message = proto::gossip::GossipMessage::decode(&bytes[..]).expect("it was encoded");
    GossipMessage::decode(&message).expect("an honest member's message is accepted")
}
