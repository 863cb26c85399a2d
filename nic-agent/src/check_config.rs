//! `--check-config` of the NIC agent: all that a start would stumble over.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use agent_runtime::access::Role;
use agent_runtime::check::{CAP_NET_RAW, Inspection, Process, SocketState};
use agent_runtime::clock::unix_now;
use agent_runtime::program::{self, ConfigArgs};

use crate::config::{Config, Transport, UNIX};
use crate::error::chain;
use crate::runner::reader::Reader;

/// Checks the configuration that `args` name, without starting an agent. Binds its addresses for a moment.
#[must_use]
pub fn check_config(args: &ConfigArgs) -> Inspection {
    let now_s = i64::try_from(unix_now().second()).unwrap_or(i64::MAX);
    program::check(args, now_s, |config, to| inspect(config, args.config.as_deref(), to))
}

fn inspect(config: &Config, file: Option<&Path>, to: &mut Inspection) {
    to.log_level(&config.log);
    to.access(&config.access);
    host_agent(config, to);
    addresses(config, file, to);
    packets(config, to);
    match Reader::open(config) {
        Ok((_, transports)) => to.ok("transport", transports.join(", ")),
        Err(error) if config.transport == Transport::Verbs => {
            to.error("transport", chain(&error), "`uview check` says what is missing");
        }
        Err(error) => to.error("transport", chain(&error), "regions_socket, if the host agent is on this machine"),
    }
    if let Some(core) = config.core {
        if Path::new(&format!("/sys/devices/system/cpu/cpu{core}")).exists() {
            to.ok("core", core.to_string());
        } else {
            to.warning(
                "core",
                format!("this machine has no core {core}"),
                "a number from `lscpu -p`; any core is used",
            );
        }
    }
    // The connection to the host agent was judged above. What is refused is no warning.
    let advice = "tls on both sides lets only known agents take part";
    let open = config.network.warnings().into_iter().map(|warning| (warning, advice));
    for (warning, advice) in open.chain(config.open_metrics().map(|warning| (warning, "an address of this machine"))) {
        let key = warning.split(' ').next().unwrap_or("network.peers").to_owned();
        let what = warning.strip_prefix(&key).unwrap_or(&warning).trim_start().to_owned();
        to.warning(key, what, advice);
    }
}

/// The host agent: its sockets, or its address and the certificates for it. It is not called.
fn host_agent(config: &Config, to: &mut Inspection) {
    const KEY: &str = "control.address";
    let address = &config.control.address;
    if let Some(path) = address.strip_prefix(UNIX) {
        to.others_socket(KEY, Path::new(path));
        let (own, owner) = (rustix::process::geteuid().as_raw(), std::fs::metadata(path).map(|data| data.uid()));
        if let Ok(owner) = owner
            && own != owner
            && own != 0
        {
            let what = format!("user {own} is not the user of the host agent, {owner}");
            to.warning(KEY, what, "access.workers and regions.uid of the host agent must name it");
        }
        if config.control.tls.is_some() {
            to.warning("control.tls", "it is not used on a Unix socket", "leave it out");
        }
    } else if let Some(tls) = &config.control.tls {
        to.ok(KEY, address.clone());
        to.client_tls("control.tls", tls, Some(Role::Worker));
    } else if let Some(warning) = config.plain_control().filter(|_| config.control.insecure) {
        let what = warning.strip_prefix(KEY).unwrap_or(&warning).trim_start().to_owned();
        to.warning(KEY, what, "control.tls; on this machine, the host agent's socket");
    }
    if let Some(path) = config.regions_socket.as_deref().filter(|_| config.transport != Transport::Verbs) {
        to.others_socket("regions_socket", path);
    }
}

/// The agent's own listeners.
fn addresses(config: &Config, file: Option<&Path>, to: &mut Inspection) {
    let mut running = None;
    if let Some(path) = &config.models.socket {
        to.directory("models.socket", path.parent().unwrap_or(Path::new("/")));
        if let SocketState::Listening(pid) = to.own_socket("models.socket", path) {
            running = pid;
        }
    }
    let is_running = |process: &Process| Some(process.pid) == running || is_agent(process, file);
    to.listen("metrics.listen", config.metrics.listen, is_running);
    let peers = &config.network.peers;
    if let Some(address) = peers.listen {
        to.listen("network.peers.listen", address, is_running);
    }
    if let Some(tls) = &peers.tls {
        to.server_tls("network.peers.tls", tls);
    }
    if let Some(tls) = &peers.peers_tls {
        to.client_tls("network.peers.peers_tls", tls, Some(Role::Peer));
    }
}

/// Whether `process` is a NIC agent with this configuration file, by its command line.
fn is_agent(process: &Process, file: Option<&Path>) -> bool {
    if !process.command.contains("nic-agent") {
        return false;
    }
    let mut words = process.command.split(' ');
    let named = words.by_ref().find_map(|word| match word.strip_prefix("--config") {
        Some("") => Some(None),
        Some(value) => value.strip_prefix('=').map(|value| Some(value.to_owned())),
        None => None,
    });
    let named = named.map(|value| value.or_else(|| words.next().map(str::to_owned)).unwrap_or_default());
    // A relative path is one of that process.
    let absolute = |path: PathBuf| path.canonicalize().unwrap_or(path);
    let of_process = named.map(|name| absolute(Path::new(&format!("/proc/{}/cwd", process.pid)).join(name)));
    of_process == file.map(|file| absolute(file.to_owned()))
}

/// What packet measurement needs.
fn packets(config: &Config, to: &mut Inspection) {
    let network = &config.network;
    if network.streams.is_empty() && network.fragment.is_none() {
        return;
    }
    to.others_socket("network.services_socket", &network.services_socket);
    let markers = network.streams.iter().filter_map(|stream| {
        let interface = stream.switch.as_ref()?.marker_interface.as_ref()?;
        Some(("network.streams.switch.marker_interface", &stream.name, interface))
    });
    let are_switches = network.streams.iter().all(|stream| stream.switch.is_some());
    if network.fragment.is_none() && are_switches && markers.clone().next().is_none() {
        to.ok("network.streams", "no packet is read here");
    } else if Inspection::has_capability(CAP_NET_RAW) {
        to.ok("network.streams", "packets can be read, and markers sent (CAP_NET_RAW)");
    } else {
        let what = "without CAP_NET_RAW no packet can be read, and no marker sent";
        to.error("network.streams", what, "AmbientCapabilities=CAP_NET_RAW, or run as root");
    }
    for stream in &network.streams {
        if let Some(switch) = &stream.switch {
            match stream.switch_program() {
                Ok(program) => {
                    let what = format!("{program} at {} (stream {:?})", switch.control, stream.name);
                    to.ok("network.streams.switch", what);
                }
                Err(error) => to.error("network.streams.switch", chain(&error), "a file of `uview p4 constants`"),
            }
        }
    }
    let captured = network.streams.iter().filter(|stream| stream.switch.is_none());
    let streams = captured.map(|stream| ("network.streams.interface", &stream.name, &stream.interface));
    let fragment = network.fragment.iter();
    let fragment = fragment.map(|fragment| ("network.streams.interface", &fragment.name, &fragment.interface));
    for (key, name, interface) in streams.chain(fragment).chain(markers) {
        let exists = !interface.contains('/') && Path::new("/sys/class/net").join(interface).exists();
        if exists {
            to.ok(key, format!("{interface} (stream {name:?})"));
        } else {
            // The agent waits for an interface that comes later.
            let what = format!("there is no interface {interface} now (stream {name:?})");
            to.warning(key, what, "a name that `ip link` lists");
        }
    }
}

#[cfg(test)]
mod tests {
    use agent_runtime::check::Level;

    use super::*;

    fn found(folder: &Path, text: &str) -> Vec<(Level, String)> {
        let file = folder.join("nic.yaml");
        std::fs::write(&file, text).unwrap();
        let args = ConfigArgs { config: Some(file), ..ConfigArgs::default() };
        let found = check_config(&args);
        // What this user may do and which groups exist depends on the machine.
        let of_machine = ["network.streams", "access.viewers"];
        let findings = found.findings().iter().filter(|finding| !of_machine.contains(&finding.key.as_str()));
        findings.map(|finding| (finding.level, finding.key.clone())).collect()
    }

    #[test]
    fn a_good_file_has_no_finding_that_is_bad() {
        let folder = tempfile::tempdir().unwrap();
        let [control, regions] = ["control.sock", "regions.sock"].map(|name| folder.path().join(name));
        let _listeners = [&control, &regions].map(|path| std::os::unix::net::UnixListener::bind(path).unwrap());
        let text = format!(
            "control: {{address: 'unix:{}'}}\nregions_socket: {}\nmetrics: {{listen: 127.0.0.1:0}}\n\
             models: {{socket: {}/models.sock}}\n",
            control.display(),
            regions.display(),
            folder.path().display()
        );

        let found = found(folder.path(), &text);

        assert!(found.len() > 5 && found.iter().all(|(level, _)| *level == Level::Ok), "{found:?}");
    }

    #[test]
    fn all_faults_of_a_file_are_found_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let here = folder.path().display();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let text = format!(
            "control: {{address: '192.0.2.1:9700', tls: {{ca: /no/ca}}}}\nregions_socket: {here}/nowhere.sock\n\
             metrics: {{listen: '{address}'}}\nmodels: {{socket: {here}/file}}\nlimits: {{row_history: 10001}}\n\
             core: 99999\naccess: {{workers: {{users: [no-such-user]}}, viewers: {{groups: [no-such-group]}}}}\nnetwork:\n  peers: {{listen: 127.0.0.1:0}}\n  \
             streams: [{{name: a, interface: no-such-0, pair: dns}}]\n"
        );

        let found = found(folder.path(), &text);

        let with = |wanted: Level| {
            let of = found.iter().filter(|(level, _)| *level == wanted);
            of.map(|(_, key)| key.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(
            with(Level::Error),
            [
                "limits.row_history",
                "network.peers.listen",
                "access.workers.users",
                "access.viewers.groups",
                "control.tls.ca",
                "models.socket",
                "metrics.listen",
            ]
        );
        for key in ["regions_socket", "core", "network.streams.interface"] {
            assert!(with(Level::Warning).contains(&key), "{key}: {found:?}");
        }
    }

    #[test]
    fn a_port_that_is_called_without_tls_is_an_error_until_that_is_said_in_words() {
        let folder = tempfile::tempdir().unwrap();
        let of = |more: &str, peers: &str| {
            let text = format!(
                "control: {{address: '127.0.0.1:9700'{more}}}\nmetrics: {{listen: 127.0.0.1:0}}\nnetwork:\n  \
                 {peers}streams: [{{name: a, interface: lo, one_way: {{synopsis: rda, peer: '192.0.2.1:9705'}}}}]\n"
            );
            let found = found(folder.path(), &text).into_iter();
            let found = found.filter(|(_, key)| key == "control.address" || key.starts_with("network.peers"));
            found.collect::<Vec<_>>()
        };
        let both = |level| vec![(level, "control.address".to_owned()), (level, "network.peers.peers_tls".to_owned())];

        assert_eq!(of("", ""), both(Level::Error));
        assert_eq!(of(", insecure: true", "peers: {peers_insecure: true}\n  "), both(Level::Warning));
    }

    #[test]
    fn an_agent_with_the_same_file_is_the_same_agent() {
        let process = |command: &str| Process { pid: std::process::id(), command: command.to_owned() };
        let file = Some(Path::new("/etc/uview/nic.yaml"));

        assert!(is_agent(&process("uview nic-agent --config /etc/uview/nic.yaml"), file));
        assert!(is_agent(&process("/usr/bin/uview-nic-agent --config=/etc/uview/nic.yaml"), file));
        assert!(is_agent(&process("uview nic-agent"), None));
        assert!(!is_agent(&process("uview nic-agent --config /etc/uview/other.yaml"), file));
        assert!(!is_agent(&process("nginx --config /etc/uview/nic.yaml"), file));
    }
}
