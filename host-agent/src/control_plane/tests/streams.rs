//! Streams of packets that policies want.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::worker::Worker;
use super::*;

impl Node {
    /// A worker that reads so many interfaces for policies.
    fn stream_worker(&mut self, connection: u64, worker: u32, stream_interfaces: u32) {
        let hello = proto::WorkerHello {
            protocol: wire::control::PROTOCOL,
            worker,
            incarnation: 1 + u64::from(worker),
            transports: vec!["shm".to_owned()],
            takes_streams: true,
            stream_interfaces,
            ..proto::WorkerHello::default()
        };
        self.plane.worker_connected(self.now, ConnectionId(connection), &OWNER, &hello);
        self.step();
    }

    /// Lists of streams that were sent over this connection: revision, and names.
    fn lists(&mut self, connection: u64) -> Vec<(u64, String)> {
        let sent = self.sent(connection).into_iter();
        let lists = sent.filter_map(|(_, message)| match message {
            Message::SetStreams(set) => Some((set.revision, names(&set.streams))),
            _ => None,
        });
        lists.collect()
    }

    fn want(&mut self, wanted: &[&str]) {
        self.plane.set_streams(wanted.iter().map(|name| stream(name)).collect());
        self.step();
    }

    /// The worker says of each stream what `problem` is.
    fn say(&mut self, connection: u64, revision: u64, streams: &[(&str, &str)]) {
        let state = |(name, problem): &(&str, &str)| proto::StreamState {
            name: (*name).to_owned(),
            interface: "eth0".to_owned(),
            problem: (*problem).to_owned(),
            waits: false,
        };
        let streams = streams.iter().map(state).collect();
        self.receive(connection, FromWorker::StreamStates(proto::StreamStates { revision, streams }));
    }
}

fn stream(name: &str) -> proto::Stream {
    proto::Stream { name: name.to_owned(), ..proto::Stream::default() }
}

fn names(streams: &[proto::Stream]) -> String {
    streams.iter().map(|stream| &*stream.name).collect::<Vec<_>>().join(" ")
}

fn list(revision: u64, names: &str) -> (u64, String) {
    (revision, names.to_owned())
}

#[test]
fn the_first_worker_that_reads_interfaces_measures_and_another_when_it_is_gone() {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);
    node.stream_worker(51, 1, 0);
    node.want(&["a", "b"]);
    assert_eq!((node.lists(50), node.lists(51)), (vec![], vec![]));
    let StreamOutcome::Refused(why) = node.plane.stream_outcome("a") else { panic!("it is refused") };
    assert!(why.contains("set network.policy_interfaces of worker-1"), "{why}");

    node.stream_worker(53, 3, 1);
    assert_eq!(node.lists(53), [list(1, "a b")]);
    node.stream_worker(52, 2, 1);
    assert_eq!((node.lists(52), node.lists(53)), (vec![list(1, "a b")], vec![list(0, "")]));
    node.say(53, 1, &[("a", "")]);
    assert!(matches!(node.plane.stream_outcome("a"), StreamOutcome::Waiting(_)), "it measures none any more");
    node.say(52, 1, &[("a", ""), ("b", "full")]);
    assert_eq!(node.plane.stream_outcome("a"), StreamOutcome::Measured("eth0".to_owned()));
    assert_eq!(node.plane.stream_outcome("b"), StreamOutcome::Refused("full".to_owned()));

    // It may come back, so that nobody else measures; then its lease is over.
    node.plane.worker_gone(node.now, ConnectionId(52));
    node.step();
    assert_eq!(node.lists(53), []);
    node.pass(Nanos::from_secs(4));
    node.receive(53, FromWorker::Summary(proto::Summary::default()));
    node.pass(Nanos::from_secs(1));
    assert_eq!(node.lists(53), [list(1, "a b")]);
}

#[test]
fn what_was_said_of_a_stream_holds_while_only_its_addresses_change() {
    let mut node = Node::new(settings());
    node.stream_worker(50, 0, 1);
    node.want(&["a"]);
    node.say(50, 1, &[("a", "")]);
    let at = |interval_ms| proto::Stream { addresses: vec![vec![10, 0, 0, 1]], interval_ms, ..stream("a") };

    node.plane.set_streams(vec![at(0)]);
    assert_eq!(node.plane.stream_outcome("a"), StreamOutcome::Measured("eth0".to_owned()));
    node.say(50, 1, &[("a", "of the list before")]);
    assert_eq!(node.plane.stream_outcome("a"), StreamOutcome::Measured("eth0".to_owned()));
    node.plane.set_streams(vec![at(100)]);
    assert!(matches!(node.plane.stream_outcome("a"), StreamOutcome::Waiting(_)));
}

#[test]
fn a_worker_that_comes_back_is_told_again_and_nothing_is_told_before_it_is_known() {
    let mut node = Node::new(settings());
    node.plane.await_streams();
    node.stream_worker(50, 0, 1);
    assert_eq!(node.lists(50), [], "what is measured from before stays");
    node.want(&["a"]);
    node.want(&["a"]);
    assert_eq!(node.lists(50), [list(1, "a")]);

    node.stream_worker(51, 0, 1);
    assert_eq!(node.lists(51), [list(1, "a")]);
    node.want(&["a", "b"]);
    node.want(&[]);
    node.want(&["c"]);
    assert_eq!(node.lists(51), [list(2, "a b"), list(0, ""), list(3, "c")]);
    let many: Vec<String> = (0..100).map(|number| format!("s{number}")).collect();
    node.want(&many.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(node.lists(51)[0].1.split(' ').count(), wire::control::MAX_STREAMS);
}

proptest! {
    /// Whatever happens, each worker was told last what it is to measure now, and at most one measures anything.
    #[test]
    fn workers_were_told_last_what_is_wanted(
        events in prop::collection::vec((0_u8..4, 0_u32..3, 0_u32..2), 1..30),
    ) {
        let mut node = Node::new(settings());
        let mut connections: BTreeMap<u32, u64> = BTreeMap::new();
        let mut told: BTreeMap<u64, String> = BTreeMap::new();
        let mut wanted = String::new();
        for (number, (event, worker, interfaces)) in (100..).zip(events) {
            match event {
                0 => {
                    connections.insert(worker, number);
                    node.stream_worker(number, worker, interfaces);
                }
                1 => {
                    if let Some(connection) = connections.remove(&worker) {
                        node.plane.worker_gone(node.now, ConnectionId(connection));
                        node.pass(Nanos::from_secs(1));
                    }
                }
                2 => {
                    wanted = format!("s{worker}");
                    node.want(&[&*wanted.clone()]);
                }
                _ => {
                    for connection in connections.values() {
                        node.receive(*connection, FromWorker::Summary(proto::Summary::default()));
                    }
                    node.pass(Nanos::from_secs(4));
                }
            }
            for connection in connections.values() {
                told.extend(node.lists(*connection).pop().map(|(_, names)| (*connection, names)));
            }
        }
        let chosen = node.plane.stream_worker();
        for (worker, connection) in &connections {
            let is_connected = node.plane.workers.get(&WorkerId(*worker)).and_then(Worker::connection).is_some();
            if is_connected {
                let expected = if chosen == Some(WorkerId(*worker)) { &*wanted } else { "" };
                // Who reads no interface is told nothing, and measures nothing.
                prop_assert_eq!(told.get(connection).map_or("", String::as_str), expected);
            }
        }
    }
}
