//! From the wire to a verdict, with the real programs: two NIC agents in two network namespaces, and a host agent
//! beside one of them. A relay between the namespaces first delays packets, then loses them, and `uview status` names
//! the stream and the figures. Needs root; without it, the test is skipped with a message.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

mod agents;
mod traffic;

use std::ops::Range;
use std::time::Duration;

use serde_json::Value;

use agents::{Agents, last_row};
use support::clock::Stopwatch;
use support::network::Network;
use support::relay::{LinkConditions, Relay};
use support::wait::Wait;
use traffic::Traffic;

/// How each step is waited for. With a row every 200 ms, an LMAP arms itself after 28 s on an idle machine.
const WAIT: Wait = Wait::up_to(Duration::from_mins(5)).pausing(Duration::from_millis(200));
/// How long no alarm may begin before the first fault.
const QUIET: Duration = Duration::from_secs(12);

/// An alarm is excused if the relay has held packets for this much longer than configured.
const LATE: Duration = Duration::from_millis(5);
const STREAMS: [&str; 2] = ["network.link", "network.tcp"];

/// The conditions of the link without a fault.
const USUAL: LinkConditions = LinkConditions { delay_ms: (2, 7), loss: 0.0, duplication: 0.0, seed: 9 };

/// Waits until `found` has a value for the status, and prints how long that took.
#[track_caller]
fn wait_for<T>(what: &str, agents: &Agents, mut found: impl FnMut(&Value) -> Option<T>) -> T {
    let clock = Stopwatch::start();
    let value = WAIT.until(what, || found(&agents.status()).ok_or(agents));
    println!("{what}: after {:.1} s\n{}", clock.elapsed().as_secs_f64(), agents.summary());
    value
}

fn lmap<'a>(status: &'a Value, service: &str) -> Option<&'a Value> {
    status["lmaps"].as_array()?.iter().find(|lmap| lmap["service"] == service)
}

/// Whether `service` is in alarm because of its network metrics, and one of `columns` is a reason whose seen and
/// expected values are in the ranges `within`.
fn alarm(status: &Value, service: &str, columns: &[&str], within: &[Range<f64>; 2]) -> Option<()> {
    let lmap = lmap(status, service).filter(|lmap| lmap["alarm"] == true)?;
    let is_network = lmap["groups"]["network"].as_f64()? > 0.9;
    let matches = |reason: &Value| {
        let is_wanted = columns.iter().any(|name| reason["column"] == *name) && reason["group"] == "network";
        let [seen, expected] = ["seen", "expected"].map(|of| reason[of].as_f64());
        is_wanted
            && seen.is_some_and(|seen| within[0].contains(&seen))
            && expected.is_some_and(|e| within[1].contains(&e))
    };
    (is_network && lmap["reasons"].as_array()?.iter().any(matches)).then_some(())
}

/// Waits until no alarm has begun for [`QUIET`]. An alarm is a failure, unless the relay was too late.
fn wait_for_quiet(agents: &Agents, relay: &Relay) {
    let alarms = |status: &Value| STREAMS.map(|service| lmap(status, service).and_then(|lmap| lmap["alarms"].as_u64()));
    let (mut before, mut since, mut late) = (alarms(&agents.status()), Stopwatch::start(), relay.late());
    wait_for("no alarm", agents, |status| {
        late = late.max(relay.late());
        let now = alarms(status);
        if now != before {
            assert!(late > LATE, "an alarm without a fault:\n{}", agents.summary());
            println!("busy machine: the relay held packets {late:?} longer than configured");
            (before, since, late) = (now, Stopwatch::start(), Duration::ZERO);
        }
        (since.elapsed() > QUIET).then_some(())
    });
}

fn are_quiet(status: &Value) -> Option<()> {
    let quiet = |service: &str| lmap(status, service).is_some_and(|lmap| lmap["alarm"] == false);
    STREAMS.into_iter().all(quiet).then_some(())
}

#[test]
fn delay_and_loss_on_a_link_raise_an_alarm_that_names_them() {
    let Some(network) = Network::create() else { return };
    network.connect_directly();
    network.disable_segmentation_offload();
    let relay = Relay::start(&network, USUAL);
    let traffic = Traffic::start(&network);
    let agents = Agents::start(&network);
    let armed = |status: &Value| {
        let is = |service: &str| lmap(status, service).is_some_and(|lmap| lmap["state"] == "armed");
        STREAMS.into_iter().all(is).then(|| status.clone())
    };
    let status = wait_for("both streams are armed", &agents, armed);
    // Rows have all metrics of the stream, and none of the process that measures.
    let recordings = agents.recordings();
    assert_eq!(recordings.len(), 2);
    for recording in &recordings {
        println!("{}", last_row(recording));
        let lmap = lmap(&status, &recording.service).unwrap();
        assert_eq!(lmap["columns"].as_u64(), Some(recording.columns.len() as u64));
        assert!(recording.columns.iter().all(|column| column.title.starts_with("network.")), "{:?}", recording.columns);
    }

    wait_for_quiet(&agents, &relay);

    relay.set_conditions(LinkConditions { delay_ms: (22, 27), ..USUAL });
    wait_for("delay", &agents, |status| {
        alarm(status, "network.link", &["network.owd.mean"], &[0.021..0.033, 0.001..0.012])
    });
    let quantiles = ["network.delay.p50", "network.delay.p95", "network.delay.p99"];
    wait_for("delay of the replies", &agents, |status| {
        alarm(status, "network.tcp", &quantiles, &[0.040..0.095, 0.004..0.045])
    });
    relay.set_conditions(USUAL);
    wait_for("no delay", &agents, are_quiet);

    relay.set_conditions(LinkConditions { loss: 0.05, ..USUAL });
    wait_for("loss", &agents, |status| alarm(status, "network.link", &["network.loss"], &[0.01..0.15, -0.001..0.001]));
    relay.set_conditions(USUAL);
    wait_for("no loss", &agents, are_quiet);

    // No packet arrives: the metric of silence rises for as long as that lasts.
    relay.set_conditions(LinkConditions { loss: 1.0, ..USUAL });
    wait_for("total loss", &agents, |status| {
        alarm(status, "network.link", &["network.packets.silence"], &[1.0..200.0, -0.1..0.1])
    });

    drop(agents);
    traffic.stop();
    drop(relay.stop());
}
