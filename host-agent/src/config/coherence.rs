//! The part of the configuration that is about other nodes.

use std::net::SocketAddr;

use daemon::config::range;
use daemon::{ClientTls, ServerTls};
use leaders::PeerSettings;
use serde::Deserialize;

use super::{ConfigError, Keep, OtlpConfig, local};

/// Host agents of other nodes, with which traces are kept together.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CoherenceConfig {
    /// Where they connect to.
    pub listen: SocketAddr,
    /// Where they are: `host:port` each, a name for all of its addresses. Without any, this node decides alone.
    pub peers: Vec<String>,
    /// This node's certificate, and who may connect.
    pub tls: Option<ServerTls>,
    /// What is shown to the others, and whom to trust.
    pub peers_tls: Option<ClientTls>,
}

impl Default for CoherenceConfig {
    fn default() -> Self {
        Self { listen: local(9704), peers: Vec::new(), tls: None, peers_tls: None }
    }
}

impl CoherenceConfig {
    /// Whom to call; `None` if this node decides alone, or spans pass through.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the nodes would let different traces give way, or a certificate cannot be read.
    pub fn settings(&self, otlp: &OtlpConfig) -> Result<Option<PeerSettings>, ConfigError> {
        if self.peers.is_empty() || otlp.upstream.is_none() || otlp.traces.keep != Keep::Tail {
            return Ok(None);
        }
        let key = otlp.traces.order_key.is_some();
        let wanted = "with coherence.peers it is needed, the same on all nodes: else each lets other traces give way";
        range(key, "otlp.traces.order_key", &"null", wanted)?;
        let tls = self.peers_tls.as_ref().map(ClientTls::client).transpose();
        let tls = tls.map_err(|cause| ConfigError::value("coherence.peers_tls", cause))?;
        let named = self.peers_tls.as_ref().is_some_and(|tls| tls.domain.is_some());
        Ok(Some(PeerSettings { addresses: self.peers.clone(), tls, named }))
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
