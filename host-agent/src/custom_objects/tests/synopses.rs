//! `SynopsisPolicy`s, from the API server to a NIC agent's streams and back.

use agent_runtime::access::Identity;
use tokio::sync::mpsc::Receiver;
use tonic::Status;
use wire::proto::control as proto;
use wire::proto::control::host_message::Message;
use wire::proto::control::worker_message::Message as FromWorker;

use super::*;
use crate::control_plane::ConnectionId;

const LONG_AGO: &str = "2026-01-01T00:00:00Z";

fn policy(name: &str, created: &str, spec: &Value) -> Value {
    object("SynopsisPolicy", name, created, spec)
}

/// A NIC agent of the node.
struct Worker {
    id: ConnectionId,
    messages: Receiver<Result<proto::HostMessage, Status>>,
    _closed: tokio::sync::oneshot::Receiver<()>,
}

impl Worker {
    fn connect(node: &Node, worker: u32, (takes_streams, stream_interfaces): (bool, u32)) -> Self {
        let hello = proto::WorkerHello {
            protocol: wire::control::PROTOCOL,
            worker,
            incarnation: 7 + u64::from(worker),
            version: "0.9".to_owned(),
            transports: vec!["shm".to_owned()],
            takes_streams,
            stream_interfaces,
            ..proto::WorkerHello::default()
        };
        let (id, messages, closed) = node.worker_connected(&Identity::Anyone, &hello);
        Self { id, messages, _closed: closed }
    }

    /// The next list of streams.
    async fn streams(&mut self) -> proto::SetStreams {
        let asked = async {
            loop {
                let message = self.messages.recv().await.unwrap().unwrap();
                if let Some(Message::SetStreams(set)) = message.message {
                    return set;
                }
            }
        };
        tokio::time::timeout(WITHIN, asked).await.unwrap()
    }

    /// Says the same of all streams of `set`.
    fn say(&self, node: &Node, set: &proto::SetStreams, problem: &str, waits: bool) {
        let state = |stream: &proto::Stream| proto::StreamState {
            name: stream.name.clone(),
            interface: "cni0".to_owned(),
            problem: problem.to_owned(),
            waits,
        };
        let states = proto::StreamStates { revision: set.revision, streams: set.streams.iter().map(state).collect() };
        node.worker_message(self.id, proto::WorkerMessage { message: Some(FromWorker::StreamStates(states)) });
    }
}

impl Running {
    async fn watching(policies: Vec<Value>) -> Self {
        let synopses = ToldObjects { lists: [Ok(policies)].into(), ..ToldObjects::default() };
        Self::start_told(Answers { synopses, ..Answers::default() }, None).await
    }

    async fn until_said(&self, name: &str, [status, reason, part]: [&str; 3]) {
        let said = |of: &Self| is(of.condition_of("synopsisPolicies", name, "Applied"), status, reason, part);
        self.until(&format!("{name}: {status} {reason} {part}"), said).await;
    }
}

fn cart(more: &Value) -> Value {
    let mut spec = more.clone();
    spec["workload"] = json!({"kind": "Pod", "name": "cart"});
    spec
}

#[tokio::test]
async fn a_policy_is_measured_changed_and_gone() {
    let running =
        Running::watching(vec![policy("front", LONG_AGO, &cart(&json!({"delay": "Handshake", "port": 80})))]).await;
    let mut worker = Worker::connect(&running.node, 1, (true, 2));
    // The list of policies may be known before the worker, or after it.
    let mut set = worker.streams().await;
    while set.streams.is_empty() {
        set = worker.streams().await;
    }

    let [stream] = &set.streams[..] else { panic!("{set:?}") };
    assert_eq!((&*stream.name, &*stream.by, &*stream.interface), ("shop.cart", "SynopsisPolicy shop/front", ""));
    assert_eq!((&stream.addresses[..], &*stream.side, stream.port), (&[vec![10, 0, 0, 1]][..], "dst", 80));
    assert_eq!((&*stream.pair, stream.interval_ms, stream.reordering), ("handshake", 1_000, false));
    running.until_said("front", ["False", "Waiting", "network.shop.cart is not measured yet"]).await;
    worker.say(&running.node, &set, "", false);
    running.until_said("front", ["True", "Applied", ""]).await;
    let written = running.server.written();
    assert_eq!(written.last().unwrap()["synopsisPolicies"][0]["services"], json!(["network.shop.cart"]));

    let slower =
        cart(&json!({"cardinality": {"window": "1m"}, "heavyHitters": {}, "direction": "Sent", "interface": "eth0"}));
    running.server.tell("MODIFIED", &policy("front", LONG_AGO, &slower));
    let changed = worker.streams().await;
    let [stream] = &changed.streams[..] else { panic!("{changed:?}") };
    assert!(changed.revision > set.revision && stream.side == "src" && stream.interface == "eth0");
    assert_eq!(stream.cardinality, Some(proto::Cardinality { window_ms: 60_000 }));
    let heavy = proto::HeavyHitters { by: "source".to_owned(), weight: "bytes".to_owned() };
    assert_eq!((&*stream.pair, &stream.heavy_hitters), ("", &Some(heavy)));
    // What is said about the list before counts no more.
    worker.say(&running.node, &set, "", false);
    worker.say(&running.node, &changed, "memory is full", false);
    running.until_said("front", ["False", "Refused", "network.shop.cart: memory is full"]).await;

    running.server.tell("DELETED", &policy("front", LONG_AGO, &slower));
    let none = worker.streams().await;
    assert_eq!((none.revision, none.streams.len()), (0, 0));
    let nothing = |of: &Running| of.server.written().last().is_some_and(|last| last["synopsisPolicies"] == json!([]));
    running.until("nothing is left to say", nothing).await;
    assert_eq!(running.objects.problems(), Vec::<String>::new());
}

#[tokio::test]
async fn a_node_whose_nic_agents_cannot_do_it_says_why() {
    let running = Running::watching(vec![policy("front", LONG_AGO, &cart(&json!({"delay": "Dns"})))]).await;
    running.until_said("front", ["False", "Waiting", "is not measured yet"]).await;

    let _earlier = Worker::connect(&running.node, 0, (false, 0));
    running
        .until_said("front", ["False", "Refused", "is of release 0.9, whose streams of packets cannot be changed"])
        .await;
    let _unset = Worker::connect(&running.node, 1, (true, 0));
    running.until_said("front", ["False", "Refused", "set network.policy_interfaces of worker-1"]).await;
    let mut third = Worker::connect(&running.node, 2, (true, 1));
    let set = third.streams().await;
    third.say(&running.node, &set, "", false);
    running.until_said("front", ["True", "Applied", ""]).await;
}

#[tokio::test]
async fn older_policies_have_their_streams_first() {
    let both = |name, created| policy(name, created, &json!({"selector": {}, "delay": "Dns"}));
    let running = Running::watching(vec![
        both("a-later", "2026-01-02T00:00:00Z"),
        policy("z-older", LONG_AGO, &cart(&json!({"delay": "Ntp"}))),
    ])
    .await;
    let mut worker = Worker::connect(&running.node, 0, (true, 1));
    let mut set = worker.streams().await;
    while set.streams.is_empty() {
        set = worker.streams().await;
    }

    let names: Vec<_> = set.streams.iter().map(|stream| (&*stream.name, &*stream.pair)).collect();
    assert_eq!(names, [("shop.cart", "ntp"), ("shop.payment", "dns")]);
    let conflict = |of: &Running| {
        let said = of.condition_of("synopsisPolicies", "a-later", "Conflicted");
        is(said, "True", "OlderSynopsisPolicy", "network.shop.cart is set by the older SynopsisPolicy shop/z-older")
    };
    running.until("the conflict is said", conflict).await;
}
