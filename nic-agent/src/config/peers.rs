//! How this agent and other NIC agents reach each other.

use std::net::SocketAddr;

use agent_runtime::config::range;
use agent_runtime::{ClientTls, ConfigError, ServerTls};
use serde::Deserialize;

/// NIC agents with which one-way delay and loss are measured, and flows are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PeersConfig {
    /// Where agents at the sending end connect; `None`: no listener.
    pub listen: Option<SocketAddr>,
    /// Whether `listen` takes everybody for the other end of a measurement.
    pub insecure: bool,
    /// Whether other agents are called without TLS.
    pub peers_insecure: bool,
    /// TLS of that listener; `None` for plain text.
    pub tls: Option<ServerTls>,
    /// TLS of connections to other agents; `None` for plain text.
    pub peers_tls: Option<ClientTls>,
}

/// Whether this is a host and a port.
pub(super) fn is_address(text: &str) -> bool {
    let parts = text.rsplit_once(':');
    parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
}

impl PeersConfig {
    /// Refuses to call whoever is at an address, unless that was said in words.
    pub(super) fn check_calls(&self) -> Result<(), ConfigError> {
        let wanted = "the agents that streams and the fragment name are called with certificates on both sides; or, for whoever answers there, peers_insecure: true";
        let is_said = self.peers_tls.is_some() || self.peers_insecure;
        range(is_said, "network.peers.peers_tls", &"missing", wanted)
    }

    /// Refuses an address that everybody may use, unless that was said in words.
    pub(super) fn check_listener(&self) -> Result<(), ConfigError> {
        let Some(address) = self.listen.filter(|_| !self.insecure) else { return Ok(()) };
        let wanted = "needs tls with client_ca, so that only known agents take part; or, for everybody who can reach it, insecure: true";
        range(self.tls.is_some(), "network.peers.listen", &address, wanted)?;
        let has_authority = self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        let wanted = "names the authority of the other agents' certificates; or, for everybody, insecure: true";
        range(has_authority, "network.peers.tls.client_ca", &"missing", wanted)
    }
}
