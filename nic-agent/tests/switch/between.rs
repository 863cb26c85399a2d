//! The interpreter between two interfaces: real TCP passes it, and is in its registers.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use equality::control::Switch;
use equality::wire::Wire;
use support::network::{HERE, Network, THERE};
use support::relay::{LinkConditions, Relay};

use crate::{PORT, WAIT, control, machine};

/// Connections that are opened.
const CONNECTIONS: u64 = 40;
/// When the switch's time began, in nanoseconds since 1970.
const BEGAN: u64 = 1_700_000_000_000_000_000;

#[test]
fn tcp_passes_a_switch_that_counts_its_requests() {
    let Some(network) = Network::create_with_switches(&[HERE]) else { return };
    for space in [HERE, THERE] {
        network.disable_segmentation_offload_of(space);
    }
    let relay = Relay::start(&network, LinkConditions { delay_ms: (1, 1), loss: 0.0, duplication: 0.0, seed: 3 });
    let listener = control(&network, HERE);
    let switch = Arc::new(Switch::start_at(machine("fridge"), listener, BEGAN).expect("a thread"));
    let stop = Arc::new(AtomicBool::new(false));
    let (forwards, stopped) = (Arc::clone(&switch), Arc::clone(&stop));
    let wire = network.thread(HERE, move || {
        let [near, far] = Network::switch_ports(HERE);
        Wire::open([&near, &far]).expect("root may read an interface").run(&forwards, &stopped)
    });
    let to = (Network::address(THERE), PORT);
    let server = network.run(THERE, move || TcpListener::bind(to)).expect("an address");
    thread::spawn(move || server.incoming().map_while(Result::ok).for_each(drop));

    network.run(HERE, move || {
        for _ in 0..CONNECTIONS {
            drop(TcpStream::connect(to).expect("somebody listens"));
        }
    });

    let count = |name: &str| switch.registers(name).first().copied().unwrap_or_default();
    // One that came before the switch did is sent again.
    WAIT.until("all requests", || count("requests") >= CONNECTIONS);
    WAIT.until("responses to some of them", || count("matched") > 0);
    let [there, back] = relay.counts();
    assert!(there.packets > CONNECTIONS && back.packets >= CONNECTIONS, "{there:?}, {back:?}");
    assert_eq!((there.lost, back.lost), (0, 0));
    stop.store(true, Ordering::Release);
    wire.join().expect("it does not panic").expect("frames as on a wire");
    drop(relay.stop());
}
