//! Two agents, each in a network namespace, own a fragment each, and agree over their sockets which of them counts a
//! flow. One sees much traffic that the other does not see. The numbers of packets sent are the ground truth.

use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::WAIT;
use super::agent::Agent;
use support::network::{HERE, Network, THERE};

/// Where packets go that only the first agent looks at.
const NOWHERE: Ipv4Addr = Ipv4Addr::new(10, 99, 2, 99);
const COUNTERS: u32 = 256;
/// Flows between both nodes: flow i has 1 + 60/i packets per round.
const FLOWS: u16 = 40;
/// Packets per round that go nowhere.
const ALONE: u16 = 300;

/// The agent with a fragment in `space`. It leaves out packets of `without`.
fn agent(network: &Network, space: &'static str, without: &str) -> Agent {
    let (id, other, interface, there) = if space == HERE { (1, 2, "here2", THERE) } else { (2, 1, "there2", HERE) };
    let address = Network::direct_address(there);
    Agent::start(
        network,
        space,
        &format!(
            "  peers: {{listen: '0.0.0.0:9705', insecure: true, peers_insecure: true}}\n  fragment: {{id: {id}, interface: {interface}, counters: {COUNTERS}, \
             filter: 'udp and port 6000{without}', epoch_ms: 2000, error_packets: 1, \
             peers: [{{id: {other}, at: '{address}:9705', addresses: [{address}]}}]}}\n"
        ),
    )
}

/// What an agent said of its epochs, by number.
fn epochs(agent: &Agent) -> Vec<Value> {
    agent.records("an epoch of the fragment was counted")
}

/// Sends rounds of flows until `stop` is set.
fn sending(network: &Network, stop: &Arc<AtomicBool>) -> thread::JoinHandle<()> {
    let (from, to) = (Network::direct_address(HERE), Network::direct_address(THERE));
    let sink = network.run(THERE, move || UdpSocket::bind((to, 6_000)).expect("the port is free"));
    let stop = Arc::clone(stop);
    network.thread(HERE, move || {
        let _sink = sink;
        let bind = |port: u16| UdpSocket::bind((from, 20_000 + port)).expect("the port is free");
        let flows: Vec<_> = (1..=FLOWS).map(bind).collect();
        let alone = bind(0);
        while !stop.load(Ordering::Acquire) {
            for (number, socket) in (1..).zip(&flows) {
                for _ in 0..=(60 / number) {
                    socket.send_to(&[7; 20], (to, 6_000)).expect("there is a route");
                }
            }
            for _ in 0..ALONE {
                alone.send_to(&[7; 20], (NOWHERE, 6_000)).expect("its neighbour is known");
            }
            thread::sleep(Duration::from_millis(20));
        }
    })
}

/// The estimates of an epoch: source port and packets.
fn flows(epoch: &Value) -> Vec<(u16, f64)> {
    let text = epoch["flows"].as_str().unwrap_or_default();
    let flow = |flow: &str| {
        let (name, count) = flow.rsplit_once(" = ")?;
        let source = name.split(' ').nth(1)?.rsplit_once(':')?.1;
        Some((source.parse().ok()?, count.parse().ok()?))
    };
    text.split(", ").filter_map(flow).collect()
}

#[test]
fn of_two_agents_the_less_loaded_one_counts_and_without_the_other_one_counts_alone() {
    let Some(network) = Network::create() else { return };
    network.connect_directly();
    network.run(HERE, || {
        for arguments in [
            format!("route add {NOWHERE}/32 dev here2"),
            format!("neigh add {NOWHERE} lladdr 02:00:00:00:00:99 dev here2 nud permanent"),
        ] {
            let status = Command::new("ip").args(arguments.split(' ')).status().expect("iproute2 is there");
            assert!(status.success(), "ip {arguments}");
        }
    });
    let there = agent(&network, THERE, &format!(" and not host {NOWHERE}"));
    let here = agent(&network, HERE, "");
    let stop = Arc::new(AtomicBool::new(false));
    let sender = sending(&network, &stop);
    let agreed = |agent: &Agent| epochs(agent).iter().filter(|epoch| epoch["agreed"] == 1).count();
    WAIT.until("epochs with a table", || agreed(&here) >= 3 && agreed(&there) >= 3);

    let number = |epoch: &Value, key: &str| epoch[key].as_u64().expect("a number") as f64;
    let mut both = 0;
    for at_there in epochs(&there).iter().filter(|epoch| epoch["agreed"] == 1 && epoch["whole"] == true) {
        let at_here = epochs(&here).into_iter().find(|epoch| epoch["epoch"] == at_there["epoch"]);
        let Some(at_here) = at_here.filter(|epoch| epoch["agreed"] == 1 && epoch["whole"] == true) else { continue };
        both += 1;
        let [passed, counted] = ["passed", "counted"].map(|key| [number(&at_here, key), number(at_there, key)]);
        println!("epoch {}: passed {passed:?}, counted {counted:?}", at_there["epoch"]);
        // What only the first agent sees is counted there, and what both see at the other one.
        assert!(passed[0] > 1.5 * passed[1] && counted[1] == passed[1], "{passed:?}, {counted:?}");
        assert!((counted[0] - (passed[0] - passed[1])).abs() <= 0.01 * passed[0], "{passed:?}, {counted:?}");
        let rounds = passed[1] / (1..=FLOWS).map(|flow| f64::from(1 + 60 / flow)).sum::<f64>();
        let bound = core::f64::consts::E * counted[1] / f64::from(COUNTERS);
        let found = flows(at_there);
        let error = |(port, count): &(u16, f64)| count - rounds * f64::from(1 + 60 / (port - 20_000));
        // A round may be cut by the epoch's ends.
        assert!(found.len() >= 10 && found.iter().all(|flow| error(flow) > -62.0), "{found:?} of {rounds} rounds");
        let above = found.iter().filter(|flow| error(flow) > bound + 62.0).count();
        println!("{above} of {} flows are above the truth by more than {bound:.0} packets", found.len());
        // One of e flows at most; the agent names those with the largest counts only.
        assert!(above as f64 <= f64::from(FLOWS) / core::f64::consts::E, "{found:?} of {rounds} rounds");
    }
    assert!(both >= 2, "{both} epochs in which both followed a table");

    // The other end is gone: this one soon counts all again.
    drop(there);
    let counts_all =
        |epoch: &Value| epoch["agreed"] == 0 && epoch["counted"] == epoch["passed"] && epoch["whole"] == true;
    let before = epochs(&here).len();
    WAIT.until("an epoch without a table", || epochs(&here).iter().skip(before).any(counts_all));
    let found = flows(epochs(&here).last().expect("there are some"));
    assert!(found.iter().any(|(port, _)| *port == 20_001), "the heaviest flow between both is known here: {found:?}");
    assert!(
        here.warnings().iter().any(|text| text.contains("flows are counted at both ends")),
        "{:?}",
        here.warnings()
    );
    stop.store(true, Ordering::Release);
    drop(here);
    sender.join().expect("it sends");
}
