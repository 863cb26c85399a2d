//! Nodes where all spans pass through, in virtual time: an LMAP's verdict on one node reaches operations whose requests
//! enter at another.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

use core::num::NonZeroU64;

use hooks::coherence::{MemberSettings, Run, RunId, Speaker};
use hooks::tracing::{BudgetRule, Limits, OrderKey, Origin, Peers, Switches};
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use otlp::{AnomalousOperation, CoherenceSettings, Finding, TailSampler, TailSettings, Timestamp};
use prost::Message as _;
use support::otlp::traces;
use wire::time::{Nanos, UnixNanos};

fn at(millis: u64) -> Timestamp {
    let monotonic = Nanos::from_millis(millis);
    Timestamp { monotonic, wall: UnixNanos::from_secs(1_700_000_000).plus(monotonic) }
}

const NONE: Switches =
    Switches { floor: None, error: false, lmap: false, unremarkable: None, latency: false, trigger: false };

/// A node that is alone, with a short wait for its traces.
fn node(name: &str, switches: Switches) -> TailSampler {
    let settings = TailSettings {
        limits: Limits { bytes: 32 << 20, age: Nanos::from_secs(20), ..Limits::default() },
        key: OrderKey::new(7),
        switches,
        budget: BudgetRule::default(),
        frontends: vec!["frontend".to_owned()],
        node: name.to_owned(),
    };
    TailSampler::new(&settings, at(0)).unwrap()
}

fn run(name: &str, id: u64) -> Run {
    Run { node: name.into(), id: RunId(NonZeroU64::new(id).unwrap()) }
}

fn settings() -> CoherenceSettings {
    CoherenceSettings { member: MemberSettings::default(), successor: false }
}

/// Two nodes that keep nothing: `front` and `back`.
fn observers() -> [TailSampler; 2] {
    let mut nodes = [node("front", NONE), node("back", NONE)];
    nodes[0].join_as_observer(run("front", 1), settings(), at(0));
    nodes[1].join_as_observer(run("back", 2), settings(), at(0));
    nodes
}

fn request(service: &str, trace: u64, parent: u8, name: &str, status: i32, when: Timestamp) -> Vec<u8> {
    let span = Span {
        status: Some(Status { code: status, ..Status::default() }),
        ..support::otlp::span(trace.into(), 1 + u8::from(parent > 0), parent, name, when.wall.0)
    };
    traces(service, vec![span]).encode_to_vec()
}

/// Both nodes work, then each says to the other what it has to say.
fn exchange(nodes: &mut [TailSampler; 2], now: Timestamp) {
    let [a, b] = nodes;
    a.tick(now);
    b.tick(now);
    let message = |of: &TailSampler, to: &str| of.member().unwrap().message(Some(to), now.monotonic);
    let (from_a, from_b) = (message(a, "back"), message(b, "front"));
    b.receive(from_a, Speaker::Named(&["front"]), now).unwrap();
    a.receive(from_b, Speaker::Named(&["back"]), now).unwrap();
}

/// Requests of which the frontend's span is at the first node and that of `payment` at the second, and others that stay
/// at the first; until their paths are known. Returns when that is.
fn learn(nodes: &mut [TailSampler; 2]) -> u64 {
    for number in 1..=400 {
        let now = at(number * 10);
        nodes[1].ingest(&request("payment", 2 * number, 1, "Charge", 0, now), now).unwrap();
        nodes[0].ingest(&request("frontend", 2 * number, 0, "POST /pay", 0, now), now).unwrap();
        nodes[0].ingest(&request("frontend", 2 * number + 1, 0, "GET /list", 0, now), now).unwrap();
        exchange(nodes, now);
    }
    for tenth in 40..400 {
        exchange(nodes, at(tenth * 100));
    }
    40_000
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

fn pay(origin: Origin) -> AnomalousOperation {
    AnomalousOperation { service: "frontend".to_owned(), operation: "POST /pay".to_owned(), origin }
}

#[test]
fn where_nothing_is_kept_a_verdict_reaches_the_node_where_requests_enter_and_only_operations_through_its_service() {
    let mut nodes = observers();
    let now = learn(&mut nodes);
    assert_eq!(nodes[0].anomalous_operations(at(now)).0, []);

    nodes[1].verdict(finding("payment", at(now)), at(now));
    exchange(&mut nodes, at(now + 100));
    exchange(&mut nodes, at(now + 200));

    let (on, age) = nodes[0].anomalous_operations(at(now + 300));
    assert_eq!(on, [pay(Origin::Elsewhere(Peers::one(0)))]);
    assert!(age <= Nanos::from_millis(200), "{age:?}");
    // Found here, too: it is this node's own.
    nodes[0].verdict(finding("payment", at(now + 300)), at(now + 300));
    assert_eq!(nodes[0].anomalous_operations(at(now + 300)).0, [pay(Origin::Here)]);
    for tenth in 4..300 {
        exchange(&mut nodes, at(now + 100 * tenth));
    }
    assert_eq!(nodes[0].anomalous_operations(at(now + 30_000)).0, [], "it has ended");
}

#[test]
fn a_node_that_keeps_nothing_acknowledges_decisions_of_others_and_exports_nothing() {
    let mut nodes = [node("front", NONE), node("back", Switches { floor: None, error: true, ..NONE })];
    nodes[0].join_as_observer(run("front", 1), settings(), at(0));
    nodes[1].join(run("back", 2), settings(), at(0));
    exchange(&mut nodes, at(10));
    exchange(&mut nodes, at(20));

    nodes[0].ingest(&request("frontend", 9, 0, "POST /pay", 0, at(30)), at(30)).unwrap();
    nodes[1].ingest(&request("payment", 9, 1, "Charge", 2, at(30)), at(30)).unwrap();
    for tenth in 1..20 {
        exchange(&mut nodes, at(100 * tenth));
    }

    assert_eq!(nodes[0].take_batches().len(), 0, "its spans passed through already");
    assert_eq!(
        nodes[1].take_batches().iter().map(|batch| batch.spans).sum::<usize>(),
        1,
        "another node has the decision"
    );
}
