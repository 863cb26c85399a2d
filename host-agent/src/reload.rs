//! What the host agent takes over from changed files without a restart: certificates of its listeners, and those for
//! peers and upstreams, headers of outputs, targets that are scraped, cgroups that are read, receivers of alarms,
//! roles, rules of identity and of aggregation, the level of the log.

mod headers;
mod lists;

use core::hash::{Hash as _, Hasher as _};
use std::hash::DefaultHasher;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_runtime::access::Access;
use agent_runtime::budget::{Budget, Load};
use agent_runtime::live_headers::HeaderRenewal;
use agent_runtime::live_tls::{LiveServer, ServerFiles};
use agent_runtime::reload::{Changes, KeyChanges, Reload, ReloadError, Reloadable, changed_keys, fingerprint};
use agent_runtime::{ClientConfigs, OutwardTls, ServerTls, TlsError, config as files, logs};
use otlp::SenderRules;
use wire::id::Incarnation;

use crate::budget::budget;
use crate::config::{Config, UpstreamConfig};
use crate::control_plane::Settings;
use crate::node::Node;
use crate::run_error::RunError;

use lists::{CGROUPS, ListRenewal, TARGETS, WEBHOOKS};

pub(crate) use headers::OutputHeaders;
pub(crate) use lists::LiveLists;

/// Keys, and sections, that are taken over.
const LIVE: [&str; 22] = [
    "access",
    "services.identities",
    "lmap.aggregations",
    "log.level",
    "control.tls",
    OPERATORS,
    "otlp.tls",
    "coherence.tls",
    PEERS,
    UPSTREAM,
    METRICS_UPSTREAM,
    "otlp.upstream.headers",
    "otlp.upstream.header_files",
    "otlp_metrics.upstream.headers",
    "otlp_metrics.upstream.header_files",
    "remote_write.headers",
    "remote_write.header_files",
    "page.prometheus.headers",
    "page.prometheus.header_files",
    TARGETS,
    CGROUPS,
    WEBHOOKS,
];
const OPERATORS: &str = "operators.tls";
const PEERS: &str = "coherence.peers_tls";
const UPSTREAM: &str = "otlp.upstream.tls";
const METRICS_UPSTREAM: &str = "otlp_metrics.upstream.tls";

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
    /// Those of the OTLP endpoint's upstream, and of the one for metrics.
    pub(crate) upstream: Option<Reloadable<ClientConfigs>>,
    pub(crate) metrics_upstream: Option<Reloadable<ClientConfigs>>,
    pub(crate) headers: OutputHeaders,
    /// What may be kept in memory.
    pub(crate) budget: Reloadable<Budget>,
    /// Who may send spans in which service's name.
    pub(crate) senders: Reloadable<SenderRules>,
}

impl LiveParts {
    /// The parts as `config` has them at the start, without those of gossip and of outputs.
    ///
    /// # Errors
    ///
    /// [`RunError`] if a name is unknown, or certificates cannot be used.
    pub(crate) fn new(config: &Config) -> Result<Self, RunError> {
        let live = |tls: &Option<ServerTls>| tls.as_ref().map(ServerFiles::load).transpose();
        Ok(Self {
            access: Reloadable::new(Access::resolve(&config.access)?),
            control: live(&config.control.tls)?.map(LiveServer::new),
            operators: config
                .operators
                .tls
                .as_ref()
                .map(|tls| files_of(OPERATORS, tls, config))
                .transpose()?
                .map(LiveServer::new),
            otlp: live(&config.otlp.tls)?.map(LiveServer::new),
            coherence: None,
            peers: None,
            upstream: None,
            metrics_upstream: None,
            headers: OutputHeaders::default(),
            budget: Reloadable::new(budget(config, Load::default())),
            senders: Reloadable::new(config.services.senders()?),
        })
    }
}

/// The listeners of `config` with certificates: the key of each section, and its files.
fn sections(config: &Config) -> [(&'static str, Option<&ServerTls>); 4] {
    [
        ("control.tls", config.control.tls.as_ref()),
        (OPERATORS, config.operators.tls.as_ref()),
        ("otlp.tls", config.otlp.tls.as_ref()),
        ("coherence.tls", config.coherence.tls.as_ref()),
    ]
}

/// The files of the listener with the section `key`. Whoever may show a token needs no certificate.
fn files_of(key: &str, tls: &ServerTls, config: &Config) -> Result<ServerFiles, TlsError> {
    if key == OPERATORS && config.kubernetes.tokens { ServerFiles::load_optional(tls) } else { ServerFiles::load(tls) }
}

/// The clients of `config` with certificates: the key of each section, and its files.
fn client_sections(config: &Config) -> [(&'static str, Option<OutwardTls>); 3] {
    let upstream = |upstream: &Option<UpstreamConfig>| upstream.as_ref().and_then(UpstreamConfig::client_tls);
    [
        (PEERS, config.coherence.peers_tls.as_ref().map(OutwardTls::from)),
        (UPSTREAM, upstream(&config.otlp.upstream)),
        (METRICS_UPSTREAM, upstream(&config.otlp_metrics.upstream)),
    ]
}

/// A number for the content of the files of `tls`, and for the name that it expects.
fn client_fingerprint(tls: &OutwardTls) -> u64 {
    let mut hasher = DefaultHasher::new();
    let files: Vec<_> = tls.files().cloned().collect();
    (fingerprint(&files), &tls.domain).hash(&mut hasher);
    hasher.finish()
}

/// Certificates that were read and can be used, with the key of their section.
struct Renewal {
    servers: Vec<(&'static str, LiveServer, ServerFiles)>,
    clients: Vec<ClientRenewal>,
}

/// Those of a client.
struct ClientRenewal {
    key: &'static str,
    /// Number of its section.
    place: usize,
    live: Reloadable<ClientConfigs>,
    configs: ClientConfigs,
    /// Number for the content of its files.
    content: u64,
}

/// The files of a running agent.
#[derive(Debug)]
pub(crate) struct AgentFiles {
    file: Option<PathBuf>,
    /// Text of the configuration that is in use, as far as it is taken over.
    text: String,
    /// The configuration in use: that of the start, with the headers and lists that were taken over since.
    used: Config,
    /// The configuration that was read last, whether or not it could be used.
    latest: Config,
    live: LiveParts,
    lists: LiveLists,
    node: Arc<Node>,
    /// Content of the files of clients' sections, as far as it is in use.
    clients: [Option<u64>; 3],
}

/// The text of the configuration file, to find out later what has changed; empty without a file.
pub(crate) fn text_of(file: Option<&Path>) -> String {
    file.and_then(|path| files::read(path).ok()).unwrap_or_default()
}

impl AgentFiles {
    /// The files of an agent that has started with `config`, read from `file`, with its text, if there is one.
    pub(crate) fn new(
        (file, text): (Option<PathBuf>, String),
        config: Config,
        (live, lists): (LiveParts, LiveLists),
        node: Arc<Node>,
    ) -> Self {
        let clients = client_sections(&config).map(|(_, tls)| tls.as_ref().map(client_fingerprint));
        Self { file, text, used: config.clone(), latest: config, live, lists, node, clients }
    }

    /// Reads all certificates as they are now. What cannot be taken over waits for a start: parts that are off, and TLS
    /// that comes or goes.
    ///
    /// # Errors
    ///
    /// [`ReloadError::Certificates`] if those of one section cannot be used.
    fn certificates(&self, changes: &mut KeyChanges) -> Result<Renewal, ReloadError> {
        let mut renewal = Renewal { servers: Vec::new(), clients: Vec::new() };
        let live = [&self.live.control, &self.live.operators, &self.live.otlp, &self.live.coherence];
        for (((key, after), (_, before)), live) in
            sections(&self.latest).into_iter().zip(sections(&self.used)).zip(live)
        {
            if !is_of_same_kind(before, after) {
                changes.postpone(key);
            } else if let (Some(live), Some(tls)) = (live, after) {
                let files = files_of(key, tls, &self.used).map_err(|cause| ReloadError::certificates(key, cause))?;
                renewal.servers.push((key, live.clone(), files));
            }
        }
        let live = [&self.live.peers, &self.live.upstream, &self.live.metrics_upstream];
        for (place, ((key, tls), live)) in client_sections(&self.latest).into_iter().zip(live).enumerate() {
            let (Some(live), Some(tls)) = (live, tls) else {
                changes.postpone(key);
                continue;
            };
            let content = client_fingerprint(&tls);
            let configs = tls.load().map_err(|cause| ReloadError::certificates(key, cause))?;
            renewal.clients.push(ClientRenewal { key, place, live: live.clone(), configs, content });
        }
        Ok(renewal)
    }

    /// Has the handshakes to come take `renewal`.
    fn take_certificates(&mut self, renewal: Renewal, changes: &mut KeyChanges) {
        for (key, live, files) in renewal.servers {
            if live.replace(files) {
                changes.add(key);
            }
        }
        for ClientRenewal { key, place, live, configs, content } in renewal.clients {
            // Even with the same files: what the system trusts may have changed.
            live.replace(configs);
            if self.clients[place].replace(content) != Some(content) {
                changes.add(key);
            }
        }
    }

    /// Has the requests to come take `headers`, and the members of lists be those of `lists`. What they leave open is
    /// said, and not any more what those before did.
    fn take_outputs(
        &mut self,
        headers: Vec<(&'static str, HeaderRenewal)>,
        lists: ListRenewal,
        changes: &mut KeyChanges,
    ) {
        headers::take(headers, changes);
        self.lists.take(lists, changes);
        let before = self.used.warnings();
        self.used.adopt_headers(&self.latest);
        self.lists.adopt(&mut self.used, &self.latest);
        let warnings = self.used.warnings();
        for warning in warnings.iter().filter(|warning| !before.contains(warning)) {
            tracing::warn!("{warning}");
        }
        self.node.plane(|plane, _| plane.set_warnings(warnings));
        self.live.budget.replace(budget(&self.used, Load::default()));
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
        let servers = sections(&self.latest).into_iter().filter_map(|(_, tls)| tls).flat_map(ServerTls::files);
        let clients = client_sections(&self.latest).into_iter().filter_map(|(_, tls)| tls);
        let clients = clients.flat_map(|tls| tls.files().cloned().collect::<Vec<_>>());
        let tokens = self.latest.services.token_files();
        let headers = self.latest.output_headers().into_iter().filter_map(|(_, headers)| headers);
        let headers = headers.flat_map(|headers| headers.files.values().cloned().collect::<Vec<_>>());
        let headers = headers.chain(lists::header_files(&self.latest).cloned());
        self.file.iter().chain(servers).chain(tokens).cloned().chain(clients).chain(headers).collect()
    }

    fn reload(&mut self) -> Result<Changes, ReloadError> {
        let text = match &self.file {
            Some(path) => files::read(path)?,
            None => self.text.clone(),
        };
        if self.file.is_some() {
            // Its files are watched from now on, even if they cannot be used yet.
            self.latest = files::parse_unchecked(&text)?;
        }
        let config = &self.latest;
        agent_runtime::Settings::check(config)?;
        // Everything is made before anything is taken over.
        let access = Access::resolve(&config.access)?;
        let level = logs::parse_level(&config.log.level)?;
        let Settings { identities, aggregations, .. } = config.settings(Incarnation(0))?;
        let senders = config.services.senders()?;
        let mut changes = changed_keys(&self.text, &text, &LIVE)?;
        let renewal = self.certificates(&mut changes)?;
        let headers = self.live.headers.renewals(&self.used, &self.latest, &mut changes)?;
        let lists = self.lists.renewal(&self.used, &self.latest, &mut changes)?;
        self.take_certificates(renewal, &mut changes);
        self.live.access.replace(access);
        logs::set_level(level);
        self.node.plane(|plane, now| {
            plane.set_identities(identities);
            plane.set_aggregations(now, aggregations);
        });
        self.take_outputs(headers, lists, &mut changes);
        if *self.live.senders.load() != senders {
            // Perhaps a token only: that is in a file of its own.
            changes.add("services.identities");
            self.live.senders.replace(senders);
        }
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
