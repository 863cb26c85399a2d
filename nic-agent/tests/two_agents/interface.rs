//! How an agent reads an interface, by its metrics page.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::agent::Agent;
use super::{Traffic, WAIT, stream};
use support::network::{HERE, Network, THERE};

/// The value of a metric of the interface `there2` on an agent's page; 0 if it is missing.
fn number(agent: &Agent, network: &Network, name: &str) -> u64 {
    let page = agent.page(network, THERE).unwrap_or_default();
    let wanted = format!("uview_nic_{name}{{interface=\"there2\"}} ");
    page.lines().find_map(|line| line.strip_prefix(&wanted)).and_then(|value| value.parse().ok()).unwrap_or(0)
}

#[test]
fn an_agent_that_was_held_says_how_many_frames_the_kernel_dropped_meanwhile() {
    /// Twice the bytes of a ring.
    const SENT: u64 = 16_000;
    let Some(network) = Network::create() else { return };
    network.connect_directly();
    let sink = (Network::direct_address(THERE), 6_000);
    let _bound = network.run(THERE, move || UdpSocket::bind(sink).expect("the port is free"));
    let agent =
        Agent::start(&network, THERE, "  streams: [{name: a, interface: there2, pair: dns, interval_ms: 100}]\n");
    WAIT.until("ring", || number(&agent, &network, "rings") == 1);
    assert_eq!(number(&agent, &network, "dropped_frames_total"), 0);
    // The page is requested over the same interface, which adds a few unknown frames.
    let before = number(&agent, &network, "frames_total");

    agent.hold(true);
    network.run(HERE, move || {
        let socket = UdpSocket::bind((Network::direct_address(HERE), 0)).expect("the port is free");
        for _ in 0..SENT {
            while socket.send_to(&[7; 1_000], sink).is_err() {}
        }
    });
    agent.hold(false);

    let seen = || {
        let [frames, dropped] = ["frames_total", "dropped_frames_total"].map(|name| number(&agent, &network, name));
        (frames - before, dropped)
    };
    WAIT.until("all frames, taken or dropped", || seen().0 + seen().1 >= SENT);
    let (frames, dropped) = seen();
    println!("{frames} frames taken, {dropped} dropped, {SENT} sent");
    assert!(dropped > SENT / 4 && frames > SENT / 4);
    assert!(frames + dropped < SENT + 2_000, "none is counted twice");
}

#[test]
fn two_rings_without_a_clock_and_with_offloads_are_said_to_be_so() {
    let Some(network) = Network::create() else { return };
    network.connect_directly();
    let config = format!(
        "  interfaces: [{{name: there2, rings: 2, timestamps: hardware}}]\n  \
           streams: [{{name: a, interface: there2, pair: data, filter: port {}, interval_ms: 100}}]\n",
        Traffic::Tcp.port()
    );
    let agent = Agent::start(&network, THERE, &config);
    WAIT.until("rings", || number(&agent, &network, "rings") == 2);
    let stop = Arc::new(AtomicBool::new(false));
    let sending = stream(&network, Network::direct_address(THERE), 2, &stop);
    let warned = |words: &str| agent.warnings().iter().filter(|warning| warning.contains(words)).count();

    WAIT.until("oversized frames", || number(&agent, &network, "oversized_frames_total") > 50);
    WAIT.until("a warning", || warned("ethtool -K there2 tso off") > 0);
    assert_eq!(number(&agent, &network, "hardware_timestamps"), 0);
    assert_eq!((warned("ethtool -K"), warned("kernel timestamps are used")), (1, 1), "{:?}", agent.warnings());
    stop.store(true, Ordering::Release);
    drop(agent);
    for sending in sending {
        sending.join().expect("it sends");
    }
}
