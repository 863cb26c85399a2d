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
    // Two values below 0 are in the first bucket.
    has(&agent, "http_request_duration", 2);
    let duration = agent.look(|state| {
        state.series().into_iter().find(|placed| placed.series.title() == "http_request_duration").unwrap()
    });
    assert_eq!(duration.series.unit.as_ref().map(ToString::to_string), Some("s".to_owned()));
    let sum = client.histogram("http_request_duration").unit("s").parts_per_unit(1_000_000).register();
    assert_eq!((sum.count(), sum.sum()), (3, 18_000));
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
