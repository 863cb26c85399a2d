//! The connection to one other agent, which is asked only if its certificate has the role of a peer.

use std::sync::Arc;
use std::time::Duration;

use agent_runtime::access::Access;
use agent_runtime::connect::Connector;
use agent_runtime::live_tls::ClientFiles;
use agent_runtime::reload::Reloadable;
use tonic::transport::{Channel, Endpoint};

use super::access::PeerAccess;
use crate::error::chain;

/// HTTP/2 keep-alive: its interval, and the timeout after which a silent peer is disconnected.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// An error of any kind, which ends in the log.
pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The connection to one other agent. Connects anew when the certificates or the roles have changed; a request in
/// flight ends on the connection on which it began.
#[derive(Debug)]
pub(super) struct PeerConnection {
    peer: String,
    certificates: Reloadable<Option<ClientFiles>>,
    access: PeerAccess,
    used: (Arc<Option<ClientFiles>>, Arc<Access>),
    channel: Channel,
}

impl PeerConnection {
    /// A connection to the agent at `peer`, a host and port. It connects when it is first used.
    pub(super) fn new(
        peer: &str,
        certificates: &Reloadable<Option<ClientFiles>>,
        access: &PeerAccess,
    ) -> Result<Self, BoxError> {
        let used = (certificates.load(), access.access.load());
        let channel = channel(peer, used.0.as_ref().as_ref(), access)?;
        Ok(Self { peer: peer.to_owned(), certificates: certificates.clone(), access: access.clone(), used, channel })
    }

    /// The connection with the current certificates and roles.
    pub(super) fn current(&mut self) -> Channel {
        let current = (self.certificates.load(), self.access.access.load());
        if !(Arc::ptr_eq(&current.0, &self.used.0) && Arc::ptr_eq(&current.1, &self.used.1)) {
            match channel(&self.peer, current.0.as_ref().as_ref(), &self.access) {
                Ok(channel) => self.channel = channel,
                Err(error) => tracing::warn!(why = chain(&*error), "new certificates cannot be used for another agent"),
            }
            self.used = current;
        }
        self.channel.clone()
    }
}

fn channel(peer: &str, files: Option<&ClientFiles>, access: &PeerAccess) -> Result<Channel, BoxError> {
    let host = peer.rsplit_once(':').map_or(peer, |(host, _)| host);
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let tls = files.map(|files| Reloadable::new(files.configs.clone()));
    let access = access.clone();
    // Nothing is sent to who may not answer.
    let connector = Connector::new(peer.to_owned(), host, tls)?
        .admitting(move |who| access.require(who, "answer measurements of this agent"));
    // The connector does TLS.
    let endpoint = Endpoint::from_shared(format!("http://{peer}"))?
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true);
    Ok(endpoint.connect_with_connector_lazy(connector))
}
