//! From the wire to a verdict, with the programs that users start: two NIC agents, each in a network namespace of its own, and a host agent beside one of them. A
//! relay between the namespaces becomes slow, then it loses packets, and `uview status` says of which stream, in numbers. Runs where root is, and says so where it is
//! not.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

#[path = "../../../packets/tests/namespaces/network.rs"]
mod network;
#[path = "../../../packets/tests/namespaces/relay.rs"]
#[expect(dead_code, reason = "shared with the tests of captures")]
mod relay;

mod agents;
mod traffic;

use std::ops::Range;
use std::time::{Duration, Instant};

use serde_json::Value;

use agents::Agents;
use network::Network;
use relay::{Relay, Road};
use traffic::Traffic;

/// How long anything may take before the test fails: an LMAP of a row each 200 ms arms itself after 28 s, on an idle machine.
const PATIENCE: Duration = Duration::from_secs(50);
/// So long nothing is to be in alarm before there is a fault.
const QUIET: Duration = Duration::from_secs(12);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);

/// A road that holds packets for so much longer than it is told to is not as it always is.
const LATE: Duration = Duration::from_millis(5);
const STREAMS: [&str; 2] = ["network.way", "network.tcp"];

/// The road as it always is.
const USUAL: Road = Road { delay_ms: (2, 7), loss: 0.0, twice: 0.0, seed: 9 };

#[expect(clippy::disallowed_methods, reason = "tests wait for conditions with a limit")]
fn wait_for<T>(what: &str, agents: &Agents, mut found: impl FnMut(&Value) -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        let status = agents.status();
        if let Some(found) = found(&status) {
            println!("{what}: after {:.1} s\n{}", since.elapsed().as_secs_f64(), agents.told());
            return found;
        }
        if since.elapsed() >= PATIENCE {
            agents.recordings().iter().for_each(print_columns);
        }
        assert!(since.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}\n{}", agents.told());
        std::thread::sleep(LOOK);
    }
}

fn lmap<'a>(status: &'a Value, service: &str) -> Option<&'a Value> {
    status["lmaps"].as_array()?.iter().find(|lmap| lmap["service"] == service)
}

/// Whether `service` is in alarm for its network, one of these columns is among the reasons, and what was seen and expected of it is in these ranges.
fn alarm(status: &Value, service: &str, columns: &[&str], within: &[Range<f64>; 2]) -> Option<()> {
    let lmap = lmap(status, service).filter(|lmap| lmap["alarm"] == true)?;
    let is_network = lmap["groups"]["network"].as_f64()? > 0.9;
    let speaks = |reason: &Value| {
        let says = columns.iter().any(|name| reason["column"] == *name) && reason["group"] == "network";
        let [seen, expected] = ["seen", "expected"].map(|of| reason[of].as_f64());
        says && seen.is_some_and(|seen| within[0].contains(&seen)) && expected.is_some_and(|e| within[1].contains(&e))
    };
    (is_network && lmap["reasons"].as_array()?.iter().any(speaks)).then_some(())
}

/// Waits until no alarm has begun for [`QUIET`]. One that begins is a failure, unless the road was not what it should have been.
#[expect(clippy::disallowed_methods, reason = "tests wait for conditions with a limit")]
fn wait_for_quiet(agents: &Agents, relay: &Relay) {
    let alarms = |status: &Value| STREAMS.map(|service| lmap(status, service).and_then(|lmap| lmap["alarms"].as_u64()));
    let (mut before, mut since, mut late) = (alarms(&agents.status()), Instant::now(), relay.late());
    wait_for("nothing happened", agents, |status| {
        late = late.max(relay.late());
        let now = alarms(status);
        if now != before {
            assert!(late > LATE, "in alarm although nothing had happened:\n{}", agents.told());
            println!("a busy machine: the relay held packets for {late:?} more than it should have");
            (before, since, late) = (now, Instant::now(), Duration::ZERO);
        }
        (since.elapsed() > QUIET).then_some(())
    });
}

fn are_quiet(status: &Value) -> Option<()> {
    let quiet = |service: &str| lmap(status, service).is_some_and(|lmap| lmap["alarm"] == false);
    STREAMS.into_iter().all(quiet).then_some(())
}

/// The last row, for whoever reads the test's output.
fn print_columns(recording: &recording::Recording) {
    let row = recording.rows().last().unwrap_or_default();
    println!("{}: {} rows", recording.service, recording.rows().len());
    for (column, value) in recording.columns.iter().zip(row) {
        println!("  {} ({}) {value} {}", column.title, column.group, column.unit);
    }
}

#[test]
fn a_road_that_becomes_slow_or_loses_packets_is_an_alarm_that_says_so() {
    let Some(network) = Network::make() else { return };
    network.join();
    network.each_segment_alone();
    let relay = Relay::start(&network, USUAL);
    let traffic = Traffic::start(&network);
    let agents = Agents::start(&network);
    let armed = |status: &Value| {
        let is = |service: &str| lmap(status, service).is_some_and(|lmap| lmap["state"] == "armed");
        STREAMS.into_iter().all(is).then(|| status.clone())
    };
    let status = wait_for("both streams are learnt", &agents, armed);
    // Whoever wants more than figures finds it in rows; nothing of the process that measures is among it.
    let recordings = agents.recordings();
    assert_eq!(recordings.len(), 2);
    for recording in &recordings {
        print_columns(recording);
        let lmap = lmap(&status, &recording.service).unwrap();
        assert_eq!(lmap["columns"].as_u64(), Some(recording.columns.len() as u64));
        assert!(recording.columns.iter().all(|column| column.title.starts_with("network.")), "{:?}", recording.columns);
    }

    wait_for_quiet(&agents, &relay);

    relay.turn(Road { delay_ms: (22, 27), ..USUAL });
    wait_for("the road is slow", &agents, |status| {
        alarm(status, "network.way", &["network.owd.mean"], &[0.021..0.033, 0.001..0.012])
    });
    let quantiles = ["network.delay.p50", "network.delay.p95", "network.delay.p99"];
    wait_for("its answers are slow", &agents, |status| {
        alarm(status, "network.tcp", &quantiles, &[0.040..0.095, 0.004..0.045])
    });
    relay.turn(USUAL);
    wait_for("it is as it was", &agents, are_quiet);

    relay.turn(Road { loss: 0.05, ..USUAL });
    wait_for("the road loses packets", &agents, |status| {
        alarm(status, "network.way", &["network.loss"], &[0.01..0.15, -0.001..0.001])
    });
    relay.turn(USUAL);
    wait_for("it is as it was again", &agents, are_quiet);

    // Nothing comes through at all: loss is said once, and that it lasts as long as it does.
    relay.turn(Road { loss: 1.0, ..USUAL });
    wait_for("the road is cut", &agents, |status| {
        alarm(status, "network.way", &["network.packets.silence"], &[1.0..200.0, -0.1..0.1])
    });

    drop(agents);
    traffic.stop();
    drop(relay.stop());
}
