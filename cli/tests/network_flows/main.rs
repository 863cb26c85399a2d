//! From the wire to an alarm that names who it is about, with the real programs: a host agent and a NIC agent in one
//! network namespace, clients of several prefixes in another one, and a relay between them. Clients change their
//! addresses, one after the other and all at once, which is no alarm. The relay reorders the packets of one prefix,
//! somebody scans ports, floods the server, takes half of the traffic, or spreads to new peers: `uview status` names
//! prefix, address or target. Needs root; without it, the test is skipped with a message.
//!
//! Nothing but the relay may reorder. So there is no TCP of a kernel, whose segments are sent again after a stall;
//! clients and relay each send from one core; and the relay's own log has to say so before it disturbs anything.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

mod agents;
mod senders;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde_json::Value;
use support::network::{HERE, Network, THERE};
use support::relay::{LinkConditions, Relay, SegmentOrder};

use agents::Agents;
use senders::{Attack, CLIENTS, GREEDY, INFECTED, SCANNER, SERVER, Senders};

/// One delay for all: packets never overtake each other, also those that come together after a stall of this machine.
const USUAL: LinkConditions = LinkConditions { delay_ms: (1, 1), loss: 0.0, duplication: 0.0, seed: 9 };
/// Up to six segments of a client are under way, and overtake each other.
const DISTURBED: LinkConditions = LinkConditions { delay_ms: (1, 30), ..USUAL };
const REORDERING: [&str; 3] =
    ["network.reordering.share", "network.reordering.prefix.share", "network.reordering.prefixes"];

/// Whether the LMAP is in alarm because of its network metrics, and one of `columns` is a reason that names `who`.
fn names(lmap: &Value, columns: &[&str], who: &str) -> bool {
    let is = |reason: &Value| {
        reason["group"] == "network"
            && columns.iter().any(|column| reason["column"] == *column)
            && reason["about"].as_str().is_some_and(|about| about.starts_with(who))
    };
    lmap["alarm"] == true && lmap["reasons"].as_array().is_some_and(|reasons| reasons.iter().any(is))
}

fn is_quiet(lmap: &Value) -> bool {
    lmap["alarm"] == false
}

/// Waits until the LMAP is in no alarm, and a few rows more, which might begin another one.
#[track_caller]
fn wait_for_quiet(agents: &Agents, after: &str) {
    agents.wait_for(&format!("quiet after {after}"), is_quiet);
    agents.wait_for_rows(6);
    agents.wait_for(&format!("still quiet after {after}"), is_quiet);
}

/// Clients that come back with other addresses are no alarm.
#[track_caller]
fn rollouts_are_no_alarm(agents: &Agents, senders: &Senders) {
    let before = agents.alarms();
    for client in 0..CLIENTS {
        senders.replace(client);
        agents.wait_for_rows(1);
    }
    agents.wait_for_rows(6);
    assert_eq!(agents.alarms(), before, "a rollout, one after the other:\n{}", agents.summary());
    // Whenever in a row that is.
    for number in 0..3 {
        senders.replace_all();
        agents.wait_for_rows(8);
        assert_eq!(agents.alarms(), before, "rollout {number} at once:\n{}", agents.summary());
    }
}

/// Segments out of order that left the relay in the meantime, by prefix.
fn out_of_order(relay: &Relay, before: &BTreeMap<[u8; 3], SegmentOrder>) -> Vec<([u8; 3], u64)> {
    let since = |prefix: &[u8; 3]| before.get(prefix).map_or(0, |of| of.out_of_order);
    let more = relay.order().into_iter().map(|(prefix, of)| (prefix, of.out_of_order - since(&prefix)));
    more.filter(|(_, more)| *more > 0).collect()
}

/// The prefix that is named is the one that the relay reorders, as its log says.
#[track_caller]
fn the_reordered_prefix_is_named(agents: &Agents, senders: &Senders, relay: &Relay) {
    let before = relay.order();
    assert!(
        before.values().all(|of| of.sent > 0 && of.out_of_order == 0),
        "the relay reorders nothing yet: {before:?}"
    );
    let [a, b, c, _] = senders.address(1).octets();
    relay.disturb_only(Some([a, b, c]));
    relay.set_conditions(DISTURBED);
    agents.wait_for("reordering", |lmap| names(lmap, &REORDERING, &format!("{a}.{b}.{c}.0/24 (")));
    relay.set_conditions(USUAL);
    let reordered = out_of_order(relay, &before);
    assert!(matches!(reordered[..], [(prefix, 50..)] if prefix == [a, b, c]), "{reordered:?}");
    wait_for_quiet(agents, "reordering");
    relay.disturb_only(None);
}

/// Each attack is an alarm that names who it is, or whom it is for.
#[track_caller]
fn attacks_are_named(agents: &Agents, senders: &Senders) {
    let by = |address: Ipv4Addr| format!("{address} (");
    let attacks: [(Attack, &[&str], String); 4] = [
        (
            Attack::PortScan,
            &["network.ports.distinct", "network.source.destinations", "network.flows.distinct"],
            by(SCANNER),
        ),
        (
            Attack::SynFlood,
            &["network.flows.distinct", "network.destination.flows", "network.sources.distinct"],
            format!("to {SERVER} ("),
        ),
        (Attack::Greedy, &["network.top_talker.share"], by(senders.address(GREEDY))),
        (Attack::Worm, &["network.source.destinations", "network.flows.distinct"], by(senders.address(INFECTED))),
    ];
    for (attack, columns, who) in attacks {
        senders.attack(Some(attack));
        agents.wait_for(&format!("{attack:?}"), |lmap| names(lmap, columns, &who));
        senders.attack(None);
        wait_for_quiet(agents, &format!("{attack:?}"));
    }
}

#[test]
#[ignore = "it takes four minutes and both cores for itself: a machine that stalls for half a second is another one"]
fn reordering_and_attacks_are_alarms_that_name_who_it_was_and_rollouts_are_none() {
    let Some(network) = Network::create() else { return };
    for space in [HERE, THERE] {
        network.set_up_loopback(space);
    }
    let relay = Relay::start_in_order(&network, USUAL);
    let senders = Senders::start(&network);
    let agents = Agents::start(&network);
    agents.wait_for("armed", |lmap| lmap["state"] == "armed");
    agents.wait_for_rows(16);
    wait_for_quiet(&agents, "arming");

    rollouts_are_no_alarm(&agents, &senders);
    the_reordered_prefix_is_named(&agents, &senders, &relay);
    attacks_are_named(&agents, &senders);

    senders.stop();
    drop(agents);
    drop(relay.stop());
}
