//! What the NIC agent takes over from changed files without a restart: certificates, roles, the level of the log.

use std::path::{Path, PathBuf};

use agent_runtime::access::Access;
use agent_runtime::live_tls::{ClientFiles, LiveServer, ServerFiles};
use agent_runtime::reload::{Changes, Reload, ReloadError, Reloadable, changed_keys};
use agent_runtime::{ClientTls, ServerTls, Settings as _, TlsError, config as files, logs};
use tonic::transport::Endpoint;

use crate::config::Config;
use crate::network::PeerCertificates;
use crate::runner::RunError;
use crate::runner::control;

/// Keys, and sections, that are taken over.
const LIVE: [&str; 5] = ["access", "log.level", CONTROL, PEERS_SERVER, PEERS_CLIENT];
const CONTROL: &str = "control.tls";
const PEERS_SERVER: &str = "network.peers.tls";
const PEERS_CLIENT: &str = "network.peers.peers_tls";

/// The parts of a running agent that change with its files.
#[derive(Clone, Debug)]
pub(crate) struct LiveParts {
    pub(crate) access: Reloadable<Access>,
    /// Where the host agent is, and the certificates for it.
    pub(crate) endpoint: Reloadable<Endpoint>,
    control: Reloadable<Option<ClientFiles>>,
    pub(crate) peers: PeerCertificates,
}

fn client(tls: Option<&ClientTls>) -> Result<Option<ClientFiles>, TlsError> {
    tls.map(ClientFiles::load).transpose()
}

impl LiveParts {
    /// The parts as `config` has them at the start.
    ///
    /// # Errors
    ///
    /// [`RunError`] if a name is unknown, or certificates cannot be used.
    pub(crate) fn new(config: &Config) -> Result<Self, RunError> {
        let (control, peers) = (client(config.control.tls.as_ref())?, &config.network.peers);
        Ok(Self {
            access: Reloadable::new(Access::resolve(&config.access)?),
            endpoint: Reloadable::new(control::endpoint(&config.control, control.as_ref())?),
            control: Reloadable::new(control),
            peers: PeerCertificates {
                server: peers.tls.as_ref().map(ServerFiles::load).transpose()?.map(LiveServer::new),
                client: Reloadable::new(client(peers.peers_tls.as_ref())?),
            },
        })
    }
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
}

/// The text of the configuration file, to find out later what has changed; empty without a file.
pub(crate) fn text_of(file: Option<&Path>) -> String {
    file.and_then(|path| files::read(path).ok()).unwrap_or_default()
}

impl AgentFiles {
    /// The files of an agent that has started with `config`, read from `file`, with its text, if there is one.
    pub(crate) fn new((file, text): (Option<PathBuf>, String), config: Config, live: LiveParts) -> Self {
        Self { file, text, started: config.clone(), latest: config, live }
    }

    /// Keys of sections that cannot be taken over: TLS comes or goes, a listener would be open to others than it was,
    /// or another name is expected.
    fn fixed_sections(&self) -> Vec<&'static str> {
        let (before, after) = (&self.started, &self.latest);
        let authority = |tls: &Option<ServerTls>| tls.as_ref().map(|tls| tls.client_ca.is_some());
        let name = |tls: &Option<ClientTls>| tls.as_ref().map(|tls| tls.domain.is_some());
        let (peers_before, peers_after) = (&before.network.peers, &after.network.peers);
        let fixed = [
            (CONTROL, before.control.tls.is_some() != after.control.tls.is_some()),
            (PEERS_SERVER, authority(&peers_before.tls) != authority(&peers_after.tls)),
            (PEERS_CLIENT, name(&peers_before.peers_tls) != name(&peers_after.peers_tls)),
        ];
        fixed.into_iter().filter_map(|(key, is_fixed)| is_fixed.then_some(key)).collect()
    }
}

/// Replaces the files of a client. Returns whether they differ.
fn replace(live: &Reloadable<Option<ClientFiles>>, files: Option<ClientFiles>) -> bool {
    let differs = match (live.load().as_ref(), &files) {
        (Some(before), Some(after)) => before.differs(after),
        _ => false,
    };
    if differs {
        live.replace(files);
    }
    differs
}

impl Reload for AgentFiles {
    fn files(&self) -> Vec<PathBuf> {
        let peers = &self.latest.network.peers;
        let clients = [&self.latest.control.tls, &peers.peers_tls].into_iter().flatten().flat_map(ClientTls::files);
        let servers = peers.tls.iter().flat_map(ServerTls::files);
        self.file.iter().chain(clients).chain(servers).cloned().collect()
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
        config.check()?;
        // Everything is made before anything is taken over.
        let access = Access::resolve(&config.access)?;
        let level = logs::parse_level(&config.log.level)?;
        let mut changes = changed_keys(&self.text, &text, &LIVE)?;
        let fixed = self.fixed_sections();
        let of_fixed = |name: &String| fixed.iter().any(|key| name.starts_with(key));
        let (later, taken) = changes.live.into_iter().partition(of_fixed);
        changes.live = taken;
        changes.at_restart.extend::<Vec<String>>(later);
        let is_live = |key| !fixed.contains(&key);
        let load = |key, tls: &Option<ClientTls>| {
            client(tls.as_ref().filter(|_| is_live(key))).map_err(|cause| ReloadError::certificates(key, cause))
        };
        let peers = &config.network.peers;
        let (control, peers_client) = (load(CONTROL, &config.control.tls)?, load(PEERS_CLIENT, &peers.peers_tls)?);
        let server = peers.tls.as_ref().filter(|_| is_live(PEERS_SERVER)).map(ServerFiles::load).transpose();
        let server = server.map_err(|cause| ReloadError::certificates(PEERS_SERVER, cause))?;
        let endpoint = control.as_ref().map(|files| {
            let at = crate::config::ControlConfig { tls: config.control.tls.clone(), ..self.started.control.clone() };
            control::endpoint(&at, Some(files)).map_err(|error| ReloadError::Part(error.into()))
        });
        if let Some(endpoint) = endpoint.transpose()? {
            self.live.endpoint.replace(endpoint);
        }
        let mut differing = Vec::new();
        if replace(&self.live.control, control) {
            differing.push(CONTROL);
        }
        if replace(&self.live.peers.client, peers_client) {
            differing.push(PEERS_CLIENT);
        }
        if let (Some(live), Some(files)) = (&self.live.peers.server, server)
            && live.replace(files)
        {
            differing.push(PEERS_SERVER);
        }
        for key in differing {
            if !changes.live.iter().any(|name| name.starts_with(key)) {
                changes.live.push(key.to_owned());
            }
        }
        self.live.access.replace(access);
        logs::set_level(level);
        self.text = text;
        Ok(Changes { taken: changes.live, at_restart: changes.at_restart })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::error::chain;

    /// Writes a certificate of its own authority, and its key.
    fn write(folder: &Path) {
        support::certificates::Subject::new(&["host.example"]).self_signed().write(folder, "a");
    }

    fn text(folder: &Path, more: &str) -> String {
        let at = folder.display();
        let tls = format!("{{ca: {at}/a.pem, certificate: {at}/a.pem, key: {at}/a.key}}");
        format!(
            "control: {{address: 'host.example:9700', tls: {tls}}}\nnetwork: {{peers: {{peers_tls: {tls}}}}}\n{more}"
        )
    }

    #[test]
    fn renewed_certificates_are_taken_over_together_and_a_wrong_file_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path());
        let file = folder.path().join("nic.yaml");
        std::fs::write(&file, text(folder.path(), "")).unwrap();
        let config = Config::load(&file).unwrap();
        let live = LiveParts::new(&config).unwrap();
        let mut agent = AgentFiles::new((Some(file.clone()), text_of(Some(&file))), config, live.clone());
        let (endpoint, peers) = (live.endpoint.load(), live.peers.client.load());
        let is_same =
            || Arc::ptr_eq(&peers, &live.peers.client.load()) && Arc::ptr_eq(&endpoint, &live.endpoint.load());
        assert_eq!(agent.files().len(), 7);

        std::fs::write(folder.path().join("a.key"), "no key\n").unwrap();
        assert!(chain(&agent.reload().unwrap_err()).contains("a.key"));
        assert!(is_same());

        write(folder.path());
        assert_eq!(agent.reload().unwrap().taken, [CONTROL, PEERS_CLIENT]);
        assert!(!is_same());
        assert_eq!(agent.reload().unwrap(), Changes::default());
    }

    #[test]
    fn keys_of_the_start_are_named_and_tls_does_not_go_away() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path());
        let file = folder.path().join("nic.yaml");
        std::fs::write(&file, text(folder.path(), "log: {level: info}\n")).unwrap();
        let config = Config::load(&file).unwrap();
        let live = LiveParts::new(&config).unwrap();
        let mut agent = AgentFiles::new((Some(file.clone()), text_of(Some(&file))), config, live.clone());

        let plain = "control: {address: 'host.example:9700', insecure: true}\nworker: 3\nlog: {level: debug}\n";
        std::fs::write(&file, plain).unwrap();
        let changes = agent.reload().unwrap();

        assert_eq!(changes.taken, ["log.level"]);
        assert!(changes.at_restart.contains(&"worker".to_owned()), "{changes:?}");
        assert!(changes.at_restart.contains(&"control.tls.ca".to_owned()), "{changes:?}");
        assert!(live.control.load().is_some() && live.peers.client.load().is_some());
    }
    #[test]
    fn a_change_between_the_start_and_the_first_look_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("nic.yaml");
        std::fs::write(&file, "log: {level: info}\n").unwrap();
        let (config, text) = (Config::load(&file).unwrap(), text_of(Some(&file)));

        std::fs::write(&file, "log: {level: debug}\nworker: 3\n").unwrap();
        let live = LiveParts::new(&config).unwrap();
        let changes = AgentFiles::new((Some(file), text), config, live).reload().unwrap();

        assert_eq!((changes.taken, changes.at_restart), (vec!["log.level".to_owned()], vec!["worker".to_owned()]));
    }
}
