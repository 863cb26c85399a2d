//! The client library, as services link it.

use client::{Client, Service};
use host_agent::control_plane::Limits;

use crate::agent::{Agent, WAIT, config};
use crate::worker::Worker;

fn connect(agent: &Agent, name: &str) -> Client {
    client::connect(Service::new(name).instance(format!("{name}-1")).socket(&agent.at.services))
}

#[test]
fn what_a_service_registers_is_watched_until_it_is_removed() {
    let agent = Agent::start();
    let mut worker = Worker::connect(&agent, 0);
    let cart = connect(&agent, "cart");
    let requests = cart.counter("http.server.requests").label("route", "/pay").unit("{request}").register();
    let latency = cart.histogram("http.server.request.duration").unit("s").parts_per_unit(1_000_000).register();
    let (_, lmap) = worker.set_where(|lmap| lmap.metrics.len() == 2);
    assert_eq!(lmap.replicas[0].instance, "cart-1");

    latency.observe(5);
    cart.remove(requests);

    let (_, lmap) = worker.set_where(|lmap| lmap.metrics.len() == 1);
    assert_eq!(lmap.metrics[0].name, "http.server.request.duration");
    WAIT.until("the release", || (agent.counter("released_slot_runs") == 1).then_some(()));
    drop(cart);
    worker.removed();
}

#[test]
fn a_service_finds_the_next_agent_and_registers_again() {
    let agent = Agent::start();
    let cart = connect(&agent, "cart");
    let requests = cart.counter("http.server.requests").register();
    WAIT.until("the registration", || (agent.counter("accepted_series") == 1).then_some(()));
    let folder = agent.stop();
    requests.add(1);

    let agent = Agent::again(folder, |folder| config(folder, "process_metrics: {enabled: false}\n"));

    let mut worker = Worker::connect(&agent, 0);
    assert_eq!(worker.set().1.metrics[0].name, "http.server.requests");
    assert_eq!(requests.get(), 1);
}

#[test]
fn a_service_that_asks_for_too_much_gets_what_there_is_and_sees_the_rest_in_its_status() {
    let agent = Agent::start();
    let cart = connect(&agent, "cart");
    let limit = wire::control::MAX_METRICS - Limits::OWN_SERIES;
    let handles: Vec<_> = (0..limit + 10).map(|number| cart.counter(&format!("m{number}")).register()).collect();

    WAIT.until("the refusals", || (agent.counter("refused_series") == 10).then_some(()));

    for handle in &handles {
        handle.add(1);
    }
    WAIT.until("the problem", || cart.status().to_string().contains("reached the limit of").then_some(()));
    assert_eq!(agent.counter("slow_services"), 0);
}

#[test]
fn what_a_service_measures_of_something_else_has_no_process_metrics_beside_it() {
    let agent = Agent::with("process_metrics: {interval_ms: 100}\n");
    let mut worker = Worker::connect(&agent, 0);
    let every = std::time::Duration::from_secs(2);
    let measured = Service::new("network.way").socket(&agent.at.services).without_process_metrics();
    let measured = client::connect(measured.changes_every(every));
    let loss = measured.gauge("network.loss").register();
    let (_, lmap) = worker.set_where(|lmap| lmap.service == "network.way");
    assert_eq!(lmap.interval_us, every.as_micros() as u64);
    assert!(lmap.replicas[0].regions.iter().all(|region| !region.heartbeat));

    // Processes are measured in the order of registration, so the first one's would be known before.
    let cart = connect(&agent, "cart");
    let requests = cart.counter("http.server.requests").register();
    let (_, lmap) = worker.set_where(|lmap| {
        let of_process = lmap.metrics.iter().any(|metric| metric.name.starts_with("process."));
        assert!(lmap.service != "network.way" || !of_process, "{:?}", lmap.metrics);
        of_process
    });
    assert_eq!(lmap.service, "cart");
    drop((loss, requests, measured, cart));
}
