//! Measurement with certificates: an agent without a certificate of the receiver's CA gets no response.

use std::path::Path;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::agent::Agent;
use super::wait_for;
use support::network::{HERE, Network, THERE};

/// Writes a CA and certificates of `names` with their keys into `folder`. The files are numbered in the order of
/// `names`.
fn certificates(folder: &Path, names: &[String]) {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let authority = CertifiedIssuer::self_signed(params, key).expect("an authority");
    std::fs::write(folder.join("ca.pem"), authority.pem()).expect("it can be written");
    for (place, name) in names.iter().enumerate() {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.clone()]).expect("a name");
        let made = params.signed_by(&key, &authority).expect("it is signed").pem();
        std::fs::write(folder.join(format!("{place}.pem")), made).expect("it can be written");
        std::fs::write(folder.join(format!("{place}.key")), key.serialize_pem()).expect("it can be written");
    }
}

#[test]
fn agents_with_certificates_compare_and_one_without_is_not_answered() {
    let Some(network) = Network::create() else { return };
    network.connect_directly();
    let folder = tempfile::tempdir().expect("a folder");
    certificates(folder.path(), &[Network::direct_address(THERE).to_string(), "worker".to_owned()]);
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (ca, peer) = (at("ca.pem"), format!("{}:9705", Network::direct_address(THERE)));
    let there = Agent::start(
        &network,
        THERE,
        &format!(
            "  peers: {{listen: '0.0.0.0:9705', tls: {{certificate: {}, key: {}, client_ca: {ca}}}}}\n  streams: [{{name: way, interface: there2, one_way: {{synopsis: rda}}}}]\n",
            at("0.pem"),
            at("0.key")
        ),
    );
    let sender = |own: &str| {
        let stream = format!("{{name: way, interface: here2, one_way: {{synopsis: rda, peer: '{peer}'}}}}");
        Agent::start(&network, HERE, &format!("  peers: {{peers_tls: {{ca: {ca}{own}}}}}\n  streams: [{stream}]\n"))
    };
    let limit = Duration::from_mins(1);

    let stranger = sender("");
    wait_for("a refusal", limit, || stranger.warnings().iter().any(|warning| warning.contains("does not respond")));
    assert!(stranger.intervals().is_empty() && there.intervals().is_empty());
    drop(stranger);
    let known = sender(&format!(", certificate: {}, key: {}", at("1.pem"), at("1.key")));
    wait_for("reports", limit, || [&known, &there].iter().all(|agent| !agent.intervals().is_empty()));
}
