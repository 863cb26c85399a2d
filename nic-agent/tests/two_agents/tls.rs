//! Measurement with certificates: an agent without a certificate of the receiver's CA, or without the role peer, gets
//! no response; an agent without the role is not asked.

use std::path::Path;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};

use super::agent::Agent;
use super::wait_for;
use support::network::{HERE, Network, THERE};

/// Writes a CA and certificates with their keys into `folder`, each with the names of one of `names`, separated by
/// spaces (with a colon: URIs). The files are numbered in the order of `names`.
fn certificates(folder: &Path, names: &[&str]) {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let authority = CertifiedIssuer::self_signed(params, key).expect("an authority");
    std::fs::write(folder.join("ca.pem"), authority.pem()).expect("it can be written");
    for (place, name) in names.iter().enumerate() {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        let alternative = |name: &str| match name.parse() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) if name.contains(':') => SanType::URI(name.try_into().expect("ASCII")),
            Err(_) => SanType::DnsName(name.try_into().expect("ASCII")),
        };
        params.subject_alt_names = name.split(' ').map(alternative).collect();
        let made = params.signed_by(&key, &authority).expect("it is signed").pem();
        std::fs::write(folder.join(format!("{place}.pem")), made).expect("it can be written");
        std::fs::write(folder.join(format!("{place}.key")), key.serialize_pem()).expect("it can be written");
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
            &format!("{address} uview:peer"),
            "uview:peer",
            "nic-2.example",
            "uview:worker",
            &format!("{address} there.example"),
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
    let limit = Duration::from_mins(1);

    // It has the address, and a certificate of the same authority, but one for something else.
    let there = receiver(4);
    let caller = sender(&own(1));
    let who = "certificate there.example may not answer measurements of this agent: it needs the role peer";
    wait_for("a refusal in words", limit, || caller.warnings().iter().any(|warning| warning.contains(who)));
    // It is not asked in spite of that.
    wait_for("a failed call", limit, || caller.warnings().iter().any(|warning| warning.contains("does not respond")));
    assert!(caller.intervals().is_empty() && there.intervals().is_empty());
    drop((caller, there));
    let there = receiver(0);

    let stranger = sender("");
    wait_for("a refusal", limit, || stranger.warnings().iter().any(|warning| warning.contains("does not respond")));
    assert!(stranger.intervals().is_empty() && there.intervals().is_empty());
    drop(stranger);

    // Of the same authority, and without the role: a certificate with another role, and one that is not listed.
    for (place, name) in [(3, "uview:worker"), (2, "nic-2.example")] {
        let other = sender(&own(place));
        let who = format!("certificate {name} may not measure one-way delay with this agent: it needs the role peer");
        for agent in [&other, &there] {
            wait_for("a refusal in words", limit, || {
                let refused = |text: &String| text.contains(&who) && text.contains("access.peers.certificates");
                agent.warnings().iter().any(refused)
            });
        }
        assert!(other.intervals().is_empty() && there.intervals().is_empty());
    }
    let denied = there.page(&network, THERE).expect("it serves its metrics");
    let count = denied.lines().find_map(|line| line.strip_prefix("uview_nic_denied_calls_total "));
    assert!(count.is_some_and(|count| count != "0"), "{denied}");

    let known = sender(&own(1));
    wait_for("reports", limit, || [&known, &there].iter().all(|agent| !agent.intervals().is_empty()));
}
