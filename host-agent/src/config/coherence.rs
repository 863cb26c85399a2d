//! Configuration of gossip between nodes.

use std::net::SocketAddr;

use agent_runtime::config::range;
use agent_runtime::{ClientTls, ServerTls};
use gossip::PeerSettings;
use serde::Deserialize;

use super::{ConfigError, KeepMode, OtlpConfig, local};

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
    /// Client TLS: the certificate shown to peers, and the authority to trust.
    pub peers_tls: Option<ClientTls>,
}

impl Default for CoherenceConfig {
    fn default() -> Self {
        Self { listen: local(9704), peers: Vec::new(), tls: None, peers_tls: None }
    }
}

impl CoherenceConfig {
    /// Which peers to call. `None` if this node decides alone, or traces are not buffered.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if `order_key` is missing (nodes would evict different traces), or a certificate cannot be read.
    pub fn settings(&self, otlp: &OtlpConfig) -> Result<Option<PeerSettings>, ConfigError> {
        if self.peers.is_empty() || otlp.upstream.is_none() || otlp.traces.keep != KeepMode::Tail {
            return Ok(None);
        }
        let key = otlp.traces.order_key.is_some();
        let wanted =
            "with coherence.peers it must be set, the same on all nodes: otherwise each node evicts other traces";
        range(key, "otlp.traces.order_key", &"null", wanted)?;
        let tls = self.peers_tls.as_ref().map(ClientTls::client).transpose();
        let tls = tls.map_err(|cause| ConfigError::value("coherence.peers_tls", cause))?;
        let overrides_name = self.peers_tls.as_ref().is_some_and(|tls| tls.domain.is_some());
        Ok(Some(PeerSettings { addresses: self.peers.clone(), tls, overrides_name }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    #[test]
    fn nodes_that_keep_traces_together_need_one_order() {
        let text = "coherence: {peers: ['node-2:9704']}\notlp:\n  upstream: {endpoint: 'http://c:4318'}\n";
        let key = "order_key: 00112233445566778899aabbccddeeff";

        let passing = Config::parse(text).unwrap();
        assert!(passing.coherence.settings(&passing.otlp).unwrap().is_none());
        let error = Config::parse(&format!("{text}  traces: {{keep: tail}}\n")).unwrap_err().to_string();
        assert!(error.starts_with("otlp.traces.order_key is null: with coherence.peers"), "{error}");
        let together = Config::parse(&format!("{text}  traces: {{keep: tail, {key}}}\n")).unwrap();
        let settings = together.coherence.settings(&together.otlp).unwrap().unwrap();
        assert_eq!(settings.addresses, ["node-2:9704"]);
    }
}
