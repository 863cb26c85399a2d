//! What this agent shows other agents, and how it knows them.

use agent_runtime::live_tls::{ClientFiles, LiveServer};
use agent_runtime::reload::Reloadable;

/// The certificates that other agents are shown. They may change while the agent runs.
#[derive(Clone, Debug)]
pub(crate) struct PeerCertificates {
    /// Those of the listener; `None` for plain text.
    pub(crate) server: Option<LiveServer>,
    /// Those of connections to other agents; `None` for plain text.
    pub(crate) client: Reloadable<Option<ClientFiles>>,
}
