//! What the host agent takes over from changed files without a restart: certificates of its listeners, roles, rules of
//! identity, the level of the log.

use core::hash::{Hash as _, Hasher as _};
use std::hash::DefaultHasher;
use std::path::PathBuf;
use std::sync::Arc;

use agent_runtime::access::Access;
use agent_runtime::live_tls::{LiveServer, ServerFiles};
use agent_runtime::reload::{Changes, Reload, Reloadable, changed_keys, fingerprint};
use agent_runtime::{ClientConfigs, ClientTls, ServerTls, TlsError, chain, config as files, logs};
use wire::id::Incarnation;

use crate::config::{Config, UpstreamConfig};
use crate::node::Node;
use crate::run::RunError;

/// Keys, and sections, that are taken over.
const LIVE: [&str; 8] =
    ["access", "services.identities", "log.level", "control.tls", "operators.tls", "otlp.tls", "coherence.tls", PEERS];
const PEERS: &str = "coherence.peers_tls";

/// The parts of a running agent that change with its files.
#[derive(Clone, Debug)]
pub(crate) struct LiveParts {
    pub(crate) access: Reloadable<Access>,
    pub(crate) control: Option<LiveServer>,
    pub(crate) operators: Option<LiveServer>,
    pub(crate) otlp: Option<LiveServer>,
    /// Those of gossip, where it is on.
    pub(crate) coherence: Option<LiveServer>,
    /// The certificates shown to peers.
    pub(crate) peers: Option<Reloadable<ClientConfigs>>,
}

impl LiveParts {
    /// The parts as `config` has them at the start, without those of gossip.
    ///
    /// # Errors
    ///
    /// [`RunError`] if a name is unknown, or certificates cannot be used.
    pub(crate) fn new(config: &Config) -> Result<Self, RunError> {
        let live = |tls: &Option<ServerTls>| tls.as_ref().map(ServerFiles::load).transpose();
        Ok(Self {
            access: Reloadable::new(Access::resolve(&config.access)?),
            control: live(&config.control.tls)?.map(LiveServer::new),
            operators: live(&config.operators.tls)?.map(LiveServer::new),
            otlp: live(&config.otlp.tls)?.map(LiveServer::new),
            coherence: None,
            peers: None,
        })
    }
}

/// The listeners of `config` with certificates: the key of each section, and its files.
fn sections(config: &Config) -> [(&'static str, Option<&ServerTls>); 4] {
    [
        ("control.tls", config.control.tls.as_ref()),
        ("operators.tls", config.operators.tls.as_ref()),
        ("otlp.tls", config.otlp.tls.as_ref()),
        ("coherence.tls", config.coherence.tls.as_ref()),
    ]
}

/// Certificates that are read at the start only: the key of each section, and its files.
fn fixed_sections(config: &Config) -> Vec<(&'static str, Vec<PathBuf>)> {
    let upstream = |upstream: &Option<UpstreamConfig>| {
        let tls = upstream.as_ref().and_then(|upstream| upstream.tls.as_ref());
        tls.map_or_else(Vec::new, |tls| tls.files().cloned().collect())
    };
    vec![
        ("otlp.upstream.tls", upstream(&config.otlp.upstream)),
        ("otlp_metrics.upstream.tls", upstream(&config.otlp_metrics.upstream)),
    ]
}

/// The files of a running agent.
#[derive(Debug)]
pub(crate) struct AgentFiles {
    file: Option<PathBuf>,
    /// Text of the configuration that is in use, as far as it is taken over.
    text: String,
    /// The configuration of the start: what is not live stays as it says.
    started: Config,
    /// The configuration that was read last, whether or not it could be used.
    latest: Config,
    live: LiveParts,
    node: Arc<Node>,
    /// Content of the files that are read at the start only, as far as the log has spoken of them.
    fixed: Vec<u64>,
    /// Content of the files shown to peers, and the name that is expected of them.
    peers: u64,
}

/// A number for the content of the files of `tls`, and for the name that it expects.
fn peers_fingerprint(tls: Option<&ClientTls>) -> u64 {
    let mut hasher = DefaultHasher::new();
    let files: Vec<_> = tls.into_iter().flat_map(ClientTls::files).cloned().collect();
    (fingerprint(&files), tls.and_then(|tls| tls.domain.as_ref())).hash(&mut hasher);
    hasher.finish()
}

impl AgentFiles {
    /// The files of an agent that has started with `config`, read from `file` if there is one.
    pub(crate) fn new(file: Option<PathBuf>, config: Config, live: LiveParts, node: Arc<Node>) -> Self {
        let text = file.as_deref().and_then(|path| files::read(path).ok()).unwrap_or_default();
        let fixed = fixed_sections(&config).iter().map(|(_, files)| fingerprint(files)).collect();
        let peers = peers_fingerprint(config.coherence.peers_tls.as_ref());
        Self { file, text, started: config.clone(), latest: config, live, node, fixed, peers }
    }

    /// The certificates for peers as they are now, with their number; `None` if they cannot be taken over: gossip is
    /// off, or TLS comes or goes.
    ///
    /// # Errors
    ///
    /// They cannot be used.
    fn peers(&self) -> Result<Option<(ClientConfigs, u64)>, String> {
        let tls = self.latest.coherence.peers_tls.as_ref().filter(|_| self.live.peers.is_some());
        let loaded = tls.map(|tls| Ok((tls.load()?, peers_fingerprint(Some(tls)))));
        loaded.transpose().map_err(|error: TlsError| format!("{PEERS}: {}", chain(&error)))
    }
}

/// Whether a listener can go from one section to the other while it listens: with TLS before and after, and with an
/// authority of clients' certificates before and after. Otherwise it would be open to others than it was.
fn is_of_same_kind(before: Option<&ServerTls>, after: Option<&ServerTls>) -> bool {
    let kind = |tls: Option<&ServerTls>| tls.map(|tls| tls.client_ca.is_some());
    kind(before) == kind(after)
}

impl Reload for AgentFiles {
    fn files(&self) -> Vec<PathBuf> {
        let of_sections = sections(&self.latest).into_iter().filter_map(|(_, tls)| tls).flat_map(ServerTls::files);
        let peers = self.latest.coherence.peers_tls.iter().flat_map(ClientTls::files);
        let fixed = fixed_sections(&self.started).into_iter().flat_map(|(_, files)| files);
        self.file.iter().chain(of_sections).chain(peers).cloned().chain(fixed).collect()
    }

    fn reload(&mut self) -> Result<Changes, String> {
        let text = match &self.file {
            Some(path) => files::read(path).map_err(|error| chain(&error))?,
            None => self.text.clone(),
        };
        if self.file.is_some() {
            // Its files are watched from now on, even if they cannot be used yet.
            self.latest = files::parse_unchecked(&text).map_err(|error| chain(&error))?;
        }
        let config = &self.latest;
        agent_runtime::Settings::check(config).map_err(|error| chain(&error))?;
        // Everything is made before anything is taken over.
        let access = Access::resolve(&config.access).map_err(|error| chain(&error))?;
        let level = logs::parse_level(&config.log.level).map_err(|error| chain(&error))?;
        let identities = config.settings(Incarnation(0)).map_err(|error| chain(&error))?.identities;
        let mut changes = changed_keys(&self.text, &text, &LIVE).map_err(|error| chain(&error))?;
        if changes.live.iter().any(|name| name.starts_with("services.identities"))
            && self.started.otlp.upstream.is_some()
        {
            changes.at_restart.push("services.identities (senders of OTLP)".to_owned());
        }
        let mut loaded = Vec::new();
        let servers = [&self.live.control, &self.live.operators, &self.live.otlp, &self.live.coherence];
        for (((key, after), (_, before)), live) in
            sections(config).into_iter().zip(sections(&self.started)).zip(servers)
        {
            if !is_of_same_kind(before, after) {
                let (later, live) = changes.live.into_iter().partition(|name| name.starts_with(key));
                changes.live = live;
                changes.at_restart.extend::<Vec<String>>(later);
            } else if let (Some(live), Some(tls)) = (live, after) {
                let files = ServerFiles::load(tls).map_err(|error| format!("{key}: {}", chain(&error)))?;
                loaded.push((key, live.clone(), files));
            }
        }
        let peers = self.peers()?;
        if peers.is_none() {
            let (later, live) = changes.live.into_iter().partition(|name| name.starts_with(PEERS));
            changes.live = live;
            changes.at_restart.extend::<Vec<String>>(later);
        }
        for (key, live, files) in loaded {
            if live.replace(files) && !changes.live.iter().any(|name| name.starts_with(key)) {
                changes.live.push(key.to_owned());
            }
        }
        if let (Some(live), Some((configs, number))) = (&self.live.peers, peers)
            && core::mem::replace(&mut self.peers, number) != number
        {
            live.replace(configs);
            if !changes.live.iter().any(|name| name.starts_with(PEERS)) {
                changes.live.push(PEERS.to_owned());
            }
        }
        for ((key, files), known) in fixed_sections(&self.started).iter().zip(&mut self.fixed) {
            let now = fingerprint(files);
            if core::mem::replace(known, now) != now {
                changes.at_restart.push(format!("{key} (other content)"));
            }
        }
        self.live.access.replace(access);
        logs::set_level(level);
        self.node.plane(|plane, _| plane.set_identities(identities));
        self.text = text;
        Ok(Changes { taken: changes.live, at_restart: changes.at_restart })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_stays_as_closed_as_it_was() {
        let tls = |client_ca: Option<&str>| ServerTls {
            certificate: "c".into(),
            key: "k".into(),
            client_ca: client_ca.map(Into::into),
        };
        let (closed, renewed, open) = (tls(Some("a")), tls(Some("b")), tls(None));

        assert!(is_of_same_kind(Some(&closed), Some(&renewed)) && is_of_same_kind(None, None));
        for (before, after) in [(Some(&closed), None), (Some(&closed), Some(&open)), (None, Some(&closed))] {
            assert!(!is_of_same_kind(before, after));
        }
    }
}
