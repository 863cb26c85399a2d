//! Configuration of gossip between nodes.

use std::net::SocketAddr;

use agent_runtime::config::range;
use agent_runtime::reload::Reloadable;
use agent_runtime::{ClientTls, ServerTls};
use gossip::PeerSettings;
use serde::Deserialize;

use super::{ConfigError, OtlpConfig, check_listener, local};

/// Gossip with the host agents of other nodes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CoherenceConfig {
    /// Address for other nodes.
    pub listen: SocketAddr,
    /// The other nodes: `host:port` each; a name stands for all its addresses. Empty: this node decides alone.
    pub peers: Vec<String>,
    /// Server TLS: this node's certificate, and the authority that peers need a certificate of.
    pub tls: Option<ServerTls>,
    /// Whether `listen` takes whoever connects for a peer, and `peers` whoever answers, under any name.
    pub insecure: bool,
    /// Client TLS: the certificate shown to peers, and the authority to trust.
    pub peers_tls: Option<ClientTls>,
}

impl Default for CoherenceConfig {
    fn default() -> Self {
        Self { listen: local(9704), peers: Vec::new(), insecure: false, tls: None, peers_tls: None }
    }
}

impl CoherenceConfig {
    /// Which peers to call. `None` if this node decides alone.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if `order_key` is missing (nodes would evict and learn from different traces), a certificate
    /// cannot be read, or peers are not known by certificates and `insecure` does not say that this is meant.
    pub fn settings(&self, otlp: &OtlpConfig) -> Result<Option<PeerSettings>, ConfigError> {
        if !self.is_on(otlp) {
            return Ok(None);
        }
        check_listener("coherence", Some(self.listen), self.tls.as_ref(), self.insecure)?;
        let shown = self.peers_tls.as_ref().is_some_and(|tls| tls.certificate.is_some());
        let wanted = "needs a certificate to show to peers, and the authority of theirs; or, for whoever answers, insecure: true";
        range(shown || self.insecure, "coherence.peers_tls", &"incomplete", wanted)?;
        let key = otlp.traces.order_key.is_some();
        let wanted = "with coherence.peers it must be set, the same on all nodes: otherwise each node evicts, or \
                      learns from, other traces";
        range(key, "otlp.traces.order_key", &"null", wanted)?;
        let tls = self.peers_tls.as_ref().map(ClientTls::load).transpose();
        let tls = tls.map_err(|cause| ConfigError::value("coherence.peers_tls", cause))?;
        Ok(Some(PeerSettings { addresses: self.peers.clone(), tls: tls.map(Reloadable::new) }))
    }

    /// Whether this node gossips: about traces, paths and verdicts with `keep: tail`, about paths and verdicts without.
    pub(crate) fn is_on(&self, otlp: &OtlpConfig) -> bool {
        !self.peers.is_empty() && otlp.is_on()
    }

    /// What is open to anybody, or not in effect, in words.
    pub(super) fn warning(&self, otlp: &OtlpConfig) -> Option<String> {
        let Self { listen, .. } = self;
        if !self.peers.is_empty() && !self.is_on(otlp) {
            let text = "coherence.peers is not in effect: without otlp.upstream or otlp.watch_only this node sees no spans, and gossips with nobody";
            return Some(text.to_owned());
        }
        (self.insecure && self.is_on(otlp)).then(|| {
            format!("coherence.listen {listen} takes whoever connects for any node, and coherence.peers whoever answers (coherence.insecure)")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    #[test]
    fn nodes_that_keep_traces_together_need_one_order() {
        let text =
            "coherence: {peers: ['node-2:9704'], insecure: true}\notlp:\n  upstream: {endpoint: 'http://c:4318'}\n";
        let key = "order_key: 00112233445566778899aabbccddeeff";

        let passing = Config::parse(&format!("{text}  traces: {{{key}}}\n")).unwrap();
        assert_eq!(passing.coherence.settings(&passing.otlp).unwrap().unwrap().addresses, ["node-2:9704"]);
        let error = Config::parse(&format!("{text}  traces: {{keep: tail}}\n")).unwrap_err().to_string();
        assert!(error.starts_with("otlp.traces.order_key is null: with coherence.peers"), "{error}");
        let together = Config::parse(&format!("{text}  traces: {{keep: tail, {key}}}\n")).unwrap();
        let settings = together.coherence.settings(&together.otlp).unwrap().unwrap();
        assert_eq!(settings.addresses, ["node-2:9704"]);
    }

    #[test]
    fn nodes_need_certificates_on_both_sides_or_the_word_insecure() {
        let otlp = "otlp:\n  upstream: {endpoint: 'http://c:4318'}\n  \
                    traces: {keep: tail, order_key: 00112233445566778899aabbccddeeff}\n";
        let parse = |keys: &str| Config::parse(&format!("coherence: {{peers: ['node-2:9704']{keys}}}\n{otlp}"));
        let server = ", tls: {certificate: a, key: b, client_ca: c}";

        let bare = parse("").unwrap_err().to_string();
        assert!(bare.starts_with("coherence.listen is 127.0.0.1:9704: needs tls with client_ca"), "{bare}");
        let without_authority = parse(", tls: {certificate: a, key: b}").unwrap_err().to_string();
        assert!(without_authority.starts_with("coherence.tls.client_ca is missing"), "{without_authority}");
        let silent = parse(&format!("{server}, peers_tls: {{ca: c}}")).unwrap_err().to_string();
        assert!(silent.starts_with("coherence.peers_tls is incomplete: needs a certificate"), "{silent}");
        let open = parse(", insecure: true").unwrap();
        assert!(open.warnings()[0].starts_with("coherence.listen 127.0.0.1:9704 takes whoever connects for any node"));
        // Said, and not in use.
        assert!(Config::parse("coherence: {insecure: true}").unwrap().warnings().is_empty());
        let ignored = Config::parse("coherence: {peers: ['node-2:9704']}").unwrap().warnings();
        assert!(ignored[0].starts_with("coherence.peers is not in effect: without otlp.upstream"), "{ignored:?}");
        // Verdicts are as little for strangers as traces are.
        let passing = "coherence: {peers: ['node-2:9704']}
otlp: {upstream: {endpoint: 'http://c:4318'}}
";
        let passing = Config::parse(passing).unwrap_err().to_string();
        assert!(passing.starts_with("coherence.listen is 127.0.0.1:9704: needs tls"), "{passing}");
    }
}
