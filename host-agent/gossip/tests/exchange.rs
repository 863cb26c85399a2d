//! Cluster members on loopback addresses, over gRPC.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_runtime::access::{Access, AccessConfig};
use agent_runtime::clock::{Clock, unix_now};
use agent_runtime::reload::Reloadable;
use agent_runtime::server::{self, Limits, Listener, Server, Traffic};
use gossip::{Counts, Exchange, LocalNode, PeerSettings, Responder};
use hooks::coherence::{
    Decision, Effect, GossipMessage, Member, MemberSettings, ReceiveError, Refusal, Run, RunId, Speaker,
};
use hooks::tracing::{Reason, TraceId};
use support::wait::Wait;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use wire::time::Nanos;

/// How tests wait for a condition.
const WAIT: Wait = Wait::up_to(Duration::from_mins(1));

/// A member that records effects instead of carrying them out.
struct Node {
    member: Mutex<Member>,
    effects: Mutex<Vec<Effect>>,
    clock: Clock,
}

impl Node {
    fn new(name: &str) -> Arc<Self> {
        let run = Run { node: name.into(), id: RunId(rand::random()) };
        let member = Mutex::new(Member::new(run, MemberSettings::default()));
        Arc::new(Self { member, effects: Mutex::default(), clock: Clock::start() })
    }

    fn decide(&self, number: u8) {
        let reason = Arc::new(Reason::Error { service: "cart".into(), operation: "AddItem".into() });
        let decision = Decision { tenant: "".into(), trace: trace(number), reason, began: None };
        self.member.lock().unwrap().decide(decision, self.time(), unix_now());
    }

    /// Traces that this node keeps; its own ones once they are released.
    fn kept(&self) -> Vec<TraceId> {
        let mut member = self.member.lock().unwrap();
        member.tick(self.time(), unix_now());
        let mut effects = self.effects.lock().unwrap();
        effects.extend(member.effects());
        let kept = effects.iter().filter_map(|effect| match effect {
            Effect::Keep(decision, _) | Effect::Release(decision) => Some(decision.trace),
            _ => None,
        });
        kept.collect()
    }
}

impl LocalNode for Node {
    fn receive(&self, message: GossipMessage, speaker: Speaker<'_>) -> Result<(), ReceiveError> {
        self.member.lock().unwrap().receive(message, speaker, self.time(), unix_now())
    }

    fn refuse(&self, who: &str, why: Refusal) {
        self.member.lock().unwrap().refuse(who, why, self.time());
    }

    fn message(&self, peer: Option<&str>) -> Option<GossipMessage> {
        Some(self.member.lock().unwrap().message(peer, self.time()))
    }

    fn is_due(&self, peer: Option<&str>, last: Option<Nanos>) -> bool {
        self.member.lock().unwrap().is_due(peer, last, self.time())
    }

    fn time(&self) -> Nanos {
        self.clock.now()
    }

    fn forget_peer(&self, peer: &str) {
        self.member.lock().unwrap().forget(peer);
    }
}

fn trace(number: u8) -> TraceId {
    TraceId::new([number; 16]).unwrap()
}

/// A node that listens until this value is dropped.
struct RunningNode {
    node: Arc<Node>,
    calls: Exchange,
    counts: Arc<Counts>,
    stop: oneshot::Sender<()>,
}

fn serve(name: &str, listener: TcpListener, addresses: Vec<String>) -> RunningNode {
    let (node, counts) = (Node::new(name), Arc::new(Counts::default()));
    let (stop, stopped) = oneshot::channel::<()>();
    let access = Reloadable::new(Access::resolve(&AccessConfig::default()).unwrap());
    let router = gossip::router(Arc::clone(&node), access.clone(), Arc::clone(&counts));
    let limits = Limits { connections: 64, connections_per_peer: 64, traffic: Traffic::Streams };
    let server = Server { name: "gossip", router, limits, counts: Arc::new(server::Counts::default()) };
    tokio::spawn(server.serve(vec![Listener::Tcp(listener)], None, async move { _ = stopped.await }));
    let settings = PeerSettings { addresses, tls: None };
    let calls = gossip::start(settings, Arc::clone(&node), access, Arc::clone(&counts)).unwrap();
    RunningNode { node, calls, counts, stop }
}

async fn listen(host: u8, port: u16) -> TcpListener {
    TcpListener::bind(SocketAddr::from(([127, 0, 0, host], port))).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_reach_all_nodes_and_a_node_that_comes_back() {
    let mut listeners = Vec::new();
    for host in 2..5 {
        listeners.push(listen(host, 0).await);
    }
    let at: Vec<_> = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
    // All nodes have the same list, with their own address on it.
    let addresses: Vec<_> = at.iter().map(ToString::to_string).collect();
    let mut nodes = listeners.into_iter().zip(["a", "b", "c"]);
    let mut next = || nodes.next().map(|(listener, name)| serve(name, listener, addresses.clone())).unwrap();
    let (a, b, c) = (next(), next(), next());
    let known = |running: &RunningNode| running.node.member.lock().unwrap().sizes(running.node.time());
    WAIT.until_async("everyone to know everyone", async || [&a, &b, &c].iter().all(|running| known(running) == (2, 2)))
        .await;

    let expected = [Responder::ThisNode, Responder::Node("b".into()), Responder::Node("c".into())];
    let called = || a.calls.calls().list().into_iter().map(|(_, called)| called);
    WAIT.until_async("the name at each address", async || called().map(|called| called.replied).eq(expected.clone()))
        .await;
    assert!(called().map(|called| called.configured).eq(addresses.clone()));

    a.node.decide(1);
    b.node.decide(2);
    WAIT.until_async("both decisions everywhere", async || {
        [&a, &b, &c].iter().all(|running| running.node.kept().len() == 2)
    })
    .await;

    // A node that shuts down in order is not waited for.
    let (counts, port) = (Arc::clone(&c.counts), at[2].port());
    c.node.member.lock().unwrap().leave();
    c.calls.end(Duration::from_secs(5)).await;
    drop(c.stop);
    WAIT.until_async("the other two to be alone", async || known(&a) == (1, 1) && known(&b) == (1, 1)).await;
    assert_eq!(counts.refused.get(), 0);

    a.node.decide(3);
    let place = SocketAddr::from(([127, 0, 0, 4], port));
    let listener = WAIT.until_async("the port is free again", async || TcpListener::bind(place).await).await;
    let again = serve("c", listener, addresses.clone());
    WAIT.until_async("all decisions at the successor", async || again.node.kept().len() == 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_node_of_the_same_name_is_refused_and_counted() {
    let (one, other) = (listen(5, 0).await, listen(6, 0).await);
    let addresses = vec![one.local_addr().unwrap().to_string(), other.local_addr().unwrap().to_string()];
    let (one, other) = (serve("same", one, addresses.clone()), serve("same", other, addresses));

    WAIT.until_async("a refusal", async || one.counts.refused.get() + other.counts.refused.get() > 0).await;

    assert_eq!(one.node.member.lock().unwrap().sizes(one.node.time()), (0, 0));
}

#[tokio::test]
async fn an_address_without_a_port_is_refused_with_what_is_needed() {
    let access = Reloadable::new(Access::resolve(&AccessConfig::default()).unwrap());
    let settings = PeerSettings { addresses: vec!["node-1".to_owned()], tls: None };

    let error = gossip::start(settings, Node::new("a"), access, Arc::default()).unwrap_err();

    assert_eq!(error.to_string(), r#""node-1" is not a peer address: use host:port"#);
}
