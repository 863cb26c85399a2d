use support::wait::Wait;

use super::*;
use crate::config::Config;

const WITHIN: Duration = Duration::from_secs(20);

fn stream(name: &str) -> proto::Stream {
    proto::Stream {
        name: name.to_owned(),
        by: format!("SynopsisPolicy shop/{name}"),
        addresses: vec![vec![127, 0, 0, 1]],
        side: "dst".to_owned(),
        interval_ms: 100,
        pair: "handshake".to_owned(),
        reordering: true,
        ..proto::Stream::default()
    }
}

/// A keeper, what it says, and its interfaces.
fn start(text: &str) -> (Sender<Event>, Receiver<proto::StreamStates>, Interfaces) {
    let text = format!("network: {{services_socket: /nowhere/services.sock, {text}}}");
    let keeper = Keeper::new(&Config::parse(&text).unwrap().network, Stop::default());
    let (events, stats) = (keeper.events(), keeper.stats());
    let (report, states) = channel();
    keeper.start(Box::new(move |of| drop(report.send(of)))).unwrap();
    (events, states, stats)
}

fn set(events: &Sender<Event>, revision: u64, streams: Vec<proto::Stream>) {
    events.send(Event::Set(proto::SetStreams { revision, streams })).unwrap();
}

/// Waits for states of which `holds`.
fn until(states: &Receiver<proto::StreamStates>, holds: impl Fn(&proto::StreamStates) -> bool) -> proto::StreamStates {
    loop {
        let found = states.recv_timeout(WITHIN).unwrap();
        if holds(&found) {
            return found;
        }
    }
}

fn names(stats: &Interfaces) -> Vec<String> {
    stats.all().iter().map(|interface| interface.name().to_owned()).collect()
}

#[test]
fn an_interface_that_nobody_has_is_said_and_closed_when_nobody_asks_for_it() {
    let (events, states, stats) = start("policy_interfaces: 1");
    let gone = proto::Stream { interface: "nowhere9".to_owned(), ..stream("cart") };
    set(&events, 1, vec![gone]);

    let found = until(&states, |of| !of.streams[0].problem.is_empty());
    assert!(found.revision == 1 && found.streams[0].waits, "{found:?}");
    assert!(found.streams[0].problem.starts_with("nowhere9 cannot be read: "), "{found:?}");
    assert_eq!(names(&stats), ["nowhere9"]);
    set(&events, 2, Vec::new());
    until(&states, |of| of.revision == 2);
    // The stream ends when its thread tries again; then its interface is closed.
    Wait::up_to(WITHIN).until("its interface is closed", || {
        let open = names(&stats);
        if open.is_empty() { Ok(()) } else { Err(open) }
    });
    events.send(Event::Stop).unwrap();
}

#[test]
fn a_stream_is_read_where_its_addresses_are_routed_and_goes_again() {
    if !rustix::process::geteuid().is_root() {
        return support::harness::not_run("reading an interface takes root");
    }
    let (events, states, stats) = start("policy_interfaces: 1");
    let named = |name| proto::Stream { interface: "lo".to_owned(), ..stream(name) };
    set(&events, 1, vec![named("cart"), named("payment")]);
    let found = until(&states, |of| of.streams.iter().all(|of| of.problem.is_empty()));
    assert_eq!((found.streams.len(), &*found.streams[0].interface), (2, "lo"));

    // One changes, and one goes: it ends with its interval, and begins anew.
    set(&events, 2, vec![proto::Stream { interval_ms: 200, ..named("cart") }]);
    let waiting = until(&states, |of| of.revision == 2);
    assert!(waiting.streams[0].waits || waiting.streams[0].problem.is_empty(), "{waiting:?}");
    if waiting.streams[0].waits {
        until(&states, |of| of.revision == 2 && of.streams[0].problem.is_empty());
    }
    assert_eq!(names(&stats), ["lo"]);
    events.send(Event::Stop).unwrap();
}
