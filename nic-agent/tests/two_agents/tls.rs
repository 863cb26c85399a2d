//! Measurement with certificates: an agent without a certificate of the receiver's CA, or without the role peer, gets
//! no response; an agent without the role is not asked.

use std::path::Path;

use super::WAIT;
use super::agent::Agent;
use support::certificates::{Authority, Subject};
use support::network::{HERE, Network, THERE};

/// Writes a CA and certificates with their keys into `folder`, each with some of `names`. The files are numbered in the
/// order of `names`.
fn certificates(folder: &Path, names: &[&[&str]]) {
    let authority = Authority::new("authority");
    authority.write(folder, "ca");
    for (place, names) in names.iter().enumerate() {
        Subject::new(names).signed_by(&authority).write(folder, &place.to_string());
    }
}

#[test]
fn agents_with_certificates_compare_and_one_without_the_role_is_neither_answered_nor_asked() {
    let Some(network) = Network::create() else { return };
    network.connect_directly();
    let folder = tempfile::tempdir().expect("a folder");
    let address = Network::direct_address(THERE).to_string();
    certificates(
        folder.path(),
        &[
            &[&address, "uview:peer"],
            &["uview:peer"],
            &["nic-2.example"],
            &["uview:worker"],
            &[&address, "there.example"],
        ],
    );
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (ca, peer) = (at("ca.pem"), format!("{}:9705", Network::direct_address(THERE)));
    let receiver = |place: usize| {
        let tls = format!(
            "{{certificate: {}, key: {}, client_ca: {ca}}}",
            at(&format!("{place}.pem")),
            at(&format!("{place}.key"))
        );
        let stream = "{name: way, interface: there2, one_way: {synopsis: rda}}";
        Agent::start(
            &network,
            THERE,
            &format!("  peers: {{listen: '0.0.0.0:9705', tls: {tls}}}\n  streams: [{stream}]\n"),
        )
    };
    let sender = |own: &str| {
        let stream = format!("{{name: way, interface: here2, one_way: {{synopsis: rda, peer: '{peer}'}}}}");
        Agent::start(&network, HERE, &format!("  peers: {{peers_tls: {{ca: {ca}{own}}}}}\n  streams: [{stream}]\n"))
    };
    let own =
        |place: usize| format!(", certificate: {}, key: {}", at(&format!("{place}.pem")), at(&format!("{place}.key")));

    // It has the address, and a certificate of the same authority, but one for something else.
    let there = receiver(4);
    let caller = sender(&own(1));
    let who = "certificate there.example may not answer measurements of this agent: it needs the role peer";
    WAIT.until("a refusal in words", || caller.warnings().iter().any(|warning| warning.contains(who)));
    // It is not asked in spite of that.
    WAIT.until("a failed call", || caller.warnings().iter().any(|warning| warning.contains("does not respond")));
    assert!(caller.intervals().is_empty() && there.intervals().is_empty());
    drop((caller, there));
    let there = receiver(0);

    let stranger = sender("");
    WAIT.until("a refusal", || stranger.warnings().iter().any(|warning| warning.contains("does not respond")));
    assert!(stranger.intervals().is_empty() && there.intervals().is_empty());
    drop(stranger);

    // Of the same authority, and without the role: a certificate with another role, and one that is not listed.
    for (place, name, grant) in [
        (3, "uview:worker", "its name in `access.peers.certificates`"),
        (2, "nic-2.example", "`access: {peers: {certificates: ['nic-2.example']}}`"),
    ] {
        let other = sender(&own(place));
        let who = format!("certificate {name} may not measure one-way delay with this agent: it needs the role peer");
        for agent in [&other, &there] {
            WAIT.until("a refusal in words", || {
                let refused = |text: &String| text.contains(&who) && text.contains(grant);
                agent.warnings().iter().any(refused)
            });
        }
        assert!(other.intervals().is_empty() && there.intervals().is_empty());
    }
    let denied = there.page(&network, THERE).expect("it serves its metrics");
    let count = denied.lines().find_map(|line| line.strip_prefix("uview_nic_denied_calls_total "));
    assert!(count.is_some_and(|count| count != "0"), "{denied}");

    let known = sender(&own(1));
    WAIT.until("reports", || [&known, &there].iter().all(|agent| !agent.intervals().is_empty()));
}
