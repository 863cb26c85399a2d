//! What a service counts with the facade `metrics`, as an agent gets it.

#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

#[expect(dead_code, reason = "the agent can do more than is wanted here")]
mod fake_agent;

use fake_agent::{FakeAgent, WAIT};
use metrics::{Unit, counter, describe_histogram, gauge, histogram, with_local_recorder};
use uview::{Limits, Service};

fn agent() -> (tempfile::TempDir, FakeAgent, uview::Client) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("services.sock");
    let agent = FakeAgent::start(&socket, 1);
    let client = uview::connect(Service::new("payment").socket(&socket));
    (folder, agent, client)
}

/// Waits until the agent has the series `title` with this first word.
fn has(agent: &FakeAgent, title: &str, word: u64) {
    WAIT.until(&format!("{title} is {word}"), || (agent.look(|state| state.value(title)) == Some(word)).then_some(()));
}

#[test]
fn counters_gauges_and_histograms_of_the_facade_reach_the_agent_with_labels_and_units() {
    let (_folder, agent, client) = agent();
    let recorder = client.recorder();

    with_local_recorder(&recorder, || {
        describe_histogram!("http_request_duration", Unit::Seconds, "of requests");
        for _ in 0..3 {
            counter!("http_requests_total", "route" => "/pay", "status code" => "200").increment(2);
        }
        counter!("kept elsewhere").absolute(9);
        gauge!("queue.depth").set(4.0);
        gauge!("queue.depth").decrement(1.5);
        histogram!("http_request_duration").record(0.018);
        histogram!("http_request_duration").record_many(-1.0, 2);
        histogram!("http_request_duration").record(f64::NAN);
    });

    has(&agent, "http_requests_total{route=\"/pay\",status_code=\"200\"}", 6);
    has(&agent, "kept_elsewhere", 9);
    has(&agent, "queue.depth", 2.5_f64.to_bits());
    for (name, counts) in [("http_request_duration", (1, 18_000)), ("http_request_duration.below_zero", (2, 2_000_000))]
    {
        let announced =
            agent.until(name, |state| state.series().into_iter().find(|placed| placed.series.title() == name));
        assert_eq!(announced.series.unit.as_ref().map(ToString::to_string), Some("s".to_owned()));
        let there = client.histogram(name).unit("s").parts_per_unit(1_000_000).register();
        assert_eq!((there.count(), there.sum()), counts, "{name}");
    }
    assert_eq!(client.status().problems, []);
}

#[test]
fn a_histogram_that_nobody_described_takes_seconds_as_well_as_bytes() {
    let (_folder, _agent, client) = agent();
    let recorder = client.recorder();

    let scale = uview::Scale::new(2, 48).unwrap();
    for (name, value) in [("latency", 0.000_25), ("size", 3_000_000.0)] {
        with_local_recorder(&recorder, || histogram!(name).record(value));
        let there = client.histogram(name).parts_per_unit(1_000_000).scale(scale).register();

        assert_eq!(there.count(), 1);
        assert_eq!(there.sum() as f64, value * 1e6);
    }
}

#[test]
fn values_below_zero_have_a_histogram_of_their_own_from_the_first_of_them_on() {
    let client = uview::connect(Service::new("payment").socket("/nonexistent/services.sock"));
    let recorder = client.recorder();
    let drift = with_local_recorder(&recorder, || {
        describe_histogram!("drift", Unit::Seconds, "of the clock");
        histogram!("drift", "node" => "a")
    });

    for value in [0.0, -0.0, 0.5, -1e-9] {
        drift.record(value);
    }
    assert_eq!(client.status().series, 1, "nothing was below 0: {}", client.status());
    for value in [-0.25, -1e-6, f64::NEG_INFINITY] {
        drift.record(value);
    }

    let histogram =
        |name: &str| client.histogram(name).label("node", "a").unit("s").parts_per_unit(1_000_000).register();
    let (above, below) = (histogram("drift"), histogram("drift.below_zero"));
    assert_eq!((above.count(), above.sum()), (4, 500_000), "less than half a part is 0");
    // The last one is beyond all buckets, and the sum wraps by it.
    assert_eq!((below.count(), below.sum().wrapping_sub(u64::MAX)), (3, 250_001));
    assert_eq!((client.status().series, client.status().problems), (2, vec![]));
}

#[test]
fn labels_without_end_take_no_memory_without_end() {
    let limits = Limits { series: 20, label_sets_per_metric: 10, ..Limits::default() };
    let client = uview::connect(Service::new("payment").socket("/nonexistent/services.sock").limits(limits));
    let recorder = client.recorder();

    with_local_recorder(&recorder, || {
        for user in 0..1_000 {
            counter!("logins", "user" => user.to_string()).increment(1);
        }
    });

    assert!(client.status().series <= 11, "{}", client.status());
    let overflow = client.counter("logins").label("otel.metric.overflow", "true").register();
    assert_eq!(overflow.get(), 990, "nothing is lost");
}
