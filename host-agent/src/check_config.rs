//! `--check-config` of the host agent: all that a start would stumble over.

mod receivers;

use std::net::SocketAddr;

use agent_runtime::access::Role;
use agent_runtime::chain;
use agent_runtime::check::{CAP_SYS_PTRACE, Inspection, SocketState};
use agent_runtime::program::{self, ConfigArgs};
use otlp::UnknownSenders;
use rustix::process::{Resource, getrlimit};

use crate::clock;
use crate::config::{Config, Transport};
use crate::custom_objects::problems_of_resources;
use crate::region_registration;
use crate::run::device_choice;

/// Descriptors that a service takes: its connection, its regions, and what measures it.
const DESCRIPTORS_PER_SERVICE: u64 = 10;
/// The sockets in `runtime_dir`.
const SOCKETS: [&str; 4] = ["services.sock", "regions.sock", "control.sock", "operators.sock"];

/// Checks the configuration that `args` name, without starting an agent. Binds its addresses for a moment.
#[must_use]
pub fn check_config(args: &ConfigArgs) -> Inspection {
    let now_s = i64::try_from(clock::unix_now().second()).unwrap_or(i64::MAX);
    program::check(args, now_s, inspect)
}

fn inspect(config: &Config, to: &mut Inspection) {
    to.log_level(&config.log);
    to.access(&config.access);
    let running = directories(config, to);
    addresses(config, running, to);
    certificates(config, to);
    receivers::receivers(config, to);
    receivers::endpoints(config, to);
    memory_access(config, to);
    cgroups(config, to);
    senders(config, otlp::unknown_senders_here().as_ref(), to);
    resources(config, to);
    tokens(config, to);
    for warning in config.open_addresses() {
        let key = warning.split(' ').next().unwrap_or("config").to_owned();
        let what = warning.strip_prefix(&key).unwrap_or(&warning).trim_start().to_owned();
        to.warning(
            key,
            what,
            "TLS with client_ca lets only known peers in; an address of this machine, only its users",
        );
    }
}

/// Directories and sockets. Returns the process of the agent that runs there.
fn directories(config: &Config, to: &mut Inspection) -> Option<u32> {
    let folder = &config.runtime_dir.0;
    to.directory("runtime_dir", folder);
    if let Some(folder) = &config.receipt.dir {
        to.directory("receipt.dir", folder);
    }
    if let Some(folder) = &config.incidents.dir {
        to.directory("incidents.dir", folder);
    }
    if let Some(folder) = &config.lmap.models_dir {
        to.directory("lmap.models_dir", folder);
    }
    let mut running = None;
    for name in SOCKETS {
        let path = folder.join(name);
        // The operators' socket stands for all of a running agent.
        if name == "operators.sock" {
            if let SocketState::Listening(pid) = to.own_socket("runtime_dir", &path) {
                running = pid;
            }
        } else if path.exists() && !is_socket(&path) {
            to.error("runtime_dir", format!("{} is not a socket", path.display()), "remove it");
        }
    }
    running
}

fn is_socket(path: &std::path::Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;

    std::fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket())
}

/// TCP addresses that a start would bind.
fn addresses(config: &Config, running: Option<u32>, to: &mut Inspection) {
    let otlp = config.otlp.is_on();
    let gossips = !config.coherence.peers.is_empty();
    let listens: [(&str, Option<SocketAddr>); 8] = [
        ("control.listen", config.control.listen),
        ("operators.listen", config.operators.listen),
        ("metrics.listen", Some(config.metrics.listen)),
        ("page.listen", Some(config.page.listen).filter(|_| config.page.enabled)),
        ("otlp.listen_grpc", Some(config.otlp.listen_grpc).filter(|_| otlp)),
        ("otlp.listen_http", Some(config.otlp.listen_http).filter(|_| otlp)),
        ("coherence.listen", Some(config.coherence.listen).filter(|_| gossips)),
        ("head_sampling.listen", config.head_sampling.listen),
    ];
    for (key, address) in listens {
        let Some(address) = address else { continue };
        to.listen(key, address, |process| Some(process.pid) == running);
    }
    if !config.metrics.listen.ip().is_loopback() {
        let what = format!("{} is open to everybody who can reach it", config.metrics.listen);
        to.warning("metrics.listen", what, "a firewall, or a loopback address");
    }
}

fn certificates(config: &Config, to: &mut Inspection) {
    for (key, tls) in
        [("control.tls", &config.control.tls), ("operators.tls", &config.operators.tls), ("otlp.tls", &config.otlp.tls)]
    {
        if let Some(tls) = tls {
            to.server_tls(key, tls);
        }
    }
    // Peers ask for the role on both sides of a connection.
    if let Some(tls) = &config.coherence.tls {
        to.peer_tls("coherence.tls", tls);
    }
    if let Some(tls) = &config.coherence.peers_tls {
        to.client_tls("coherence.peers_tls", tls, Some(Role::Peer));
    }
}

/// RDMA, rights, and limits of the system.
fn memory_access(config: &Config, to: &mut Inspection) {
    match config.transport {
        Transport::Shm => to.ok("transport", "shared memory of this machine"),
        wanted => match region_registration::device(device_choice(config)) {
            Ok(_) => to.ok("transport", "this machine has a usable RDMA device"),
            Err(error) if wanted == Transport::Auto => {
                to.ok("transport", format!("shared memory of this machine; no RDMA ({})", chain(&error)));
            }
            Err(error) => {
                to.error("transport", format!("no RDMA: {}", chain(&error)), "`uview check`, or transport: auto");
            }
        },
    }
    if config.process_metrics.enabled && !Inspection::has_capability(CAP_SYS_PTRACE) {
        let what = "without CAP_SYS_PTRACE: no metrics of files and I/O of other users' processes";
        to.warning("process_metrics.enabled", what, "AmbientCapabilities=CAP_SYS_PTRACE, or enabled: false");
    }
    if let Some(uid) = config.regions.uid {
        to.ok("regions.uid", format!("only processes of user {uid} get descriptors of regions"));
    }
    let files = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let wanted = config.services.limits.connections as u64 * DESCRIPTORS_PER_SERVICE;
    if files < wanted {
        let what = format!("so many services may need {wanted} descriptors; this user has {files}");
        to.warning("services.limits.connections", what, format!("LimitNOFILE={wanted}, or fewer connections"));
    }
}

/// Patterns of cgroups, and what they name now.
fn cgroups(config: &Config, to: &mut Inspection) {
    let Ok(settings) = config.cgroup_settings(usize::MAX, None) else { return };
    if !settings.is_wanted() {
        return;
    }
    match settings.matches() {
        Err(error) => to.error("sources.cgroups", format!("no cgroups: {error}"), "mount cgroup2 at /sys/fs/cgroup"),
        Ok((_, Some(problem))) => {
            let what = problem.strip_prefix("sources.cgroups: ").unwrap_or(&problem).to_owned();
            to.warning("sources.cgroups", what, "a rule without a user, in services.identities");
        }
        Ok((0, None)) => {
            let what = "no pattern names a cgroup that exists now";
            to.warning("sources.cgroups", what, "`systemd-cgls` shows paths; write them from the root on");
        }
        Ok((many, None)) => {
            to.ok("sources.cgroups", format!("{many} cgroups, of which {} are read", settings.limit.min(many)));
        }
    }
}

/// Whether rules by user or cgroup can fit a sender of OTLP, where `unknown` is what the kernel does not say.
fn senders(config: &Config, unknown: Option<&UnknownSenders>, to: &mut Inspection) {
    const KEY: &str = "services.identities";
    let identities = &config.services.identities;
    let by_cgroup = identities.iter().any(|identity| identity.cgroup.is_some());
    if !config.otlp.is_on() || !(by_cgroup || identities.iter().any(|identity| identity.uid.is_some())) {
        return;
    }
    match unknown {
        Some(UnknownSenders::NoCgroups) if !by_cgroup => to.ok(KEY, "users of senders are known"),
        Some(unknown) => to.warning(KEY, unknown.to_string(), unknown.advice()),
        None => to.ok(KEY, "users and cgroups of senders are known"),
    }
}

/// Whether the API server can be asked about tokens.
fn tokens(config: &Config, to: &mut Inspection) {
    const KEY: &str = "kubernetes.tokens";
    if !config.kubernetes.tokens {
        return;
    }
    match kube::Config::incluster() {
        Ok(_) => to.ok(KEY, format!("tokens for the audience {} are taken", config.kubernetes.audience)),
        Err(error) => {
            let what = format!("this is no pod with a service account: {}", chain(&error));
            to.warning(KEY, what, "automountServiceAccountToken: true, as hostAgent.operatorsApi of the chart has it");
        }
    }
}

/// Objects in files, as the agent will read them.
fn resources(config: &Config, to: &mut Inspection) {
    const KEY: &str = "resources";
    let Some(folder) = &config.resources else { return };
    match problems_of_resources(folder) {
        Ok(problems) if problems.is_empty() => to.ok(KEY, format!("{}: all objects are taken", folder.display())),
        Ok(problems) => {
            for problem in problems {
                to.error(KEY, problem, "");
            }
        }
        Err(error) => to.error(KEY, error.to_string(), "the agent reads the files of this folder every 5 s"),
    }
}

#[cfg(test)]
mod tests {
    use agent_runtime::check::Level;

    use super::*;

    /// The findings that are not fine about `text`, in `folder`, with every address on a free port.
    fn bad(folder: &std::path::Path, text: &str) -> Vec<(Level, String)> {
        let file = folder.join("host.yaml");
        let metrics = if text.contains("metrics:") { "" } else { "metrics: {listen: 127.0.0.1:0}\n" };
        let run = folder.join("run");
        std::fs::write(&file, format!("runtime_dir: {}\n{metrics}{text}", run.display())).unwrap();
        let args = ConfigArgs { config: Some(file), ..ConfigArgs::default() };
        let found = check_config(&args);
        // What this user may do and which groups exist depends on the machine.
        let of_machine = ["process_metrics.enabled", "access.viewers", "services.limits.connections"];
        let worse = found.findings().iter().filter(|f| f.level != Level::Ok && !of_machine.contains(&f.key.as_str()));
        worse.map(|finding| (finding.level, finding.key.clone())).collect()
    }

    #[test]
    fn a_good_file_has_no_finding_that_is_bad() {
        let folder = tempfile::tempdir().unwrap();

        assert_eq!(bad(folder.path(), "transport: shm\n"), []);
    }

    #[test]
    fn files_with_objects_are_read_and_each_fault_is_told_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let of = folder.path().join("resources.d");
        let text = format!("resources: {}\n", of.display());
        let resources = || vec![(Level::Error, "resources".to_owned())];
        assert_eq!(bad(folder.path(), &text), resources(), "there is no such folder");

        std::fs::create_dir(&of).unwrap();
        let object = "apiVersion: uview.dev/v1alpha1\nkind: Lmap\nmetadata: {name: a}\nspec:\n  workload: {name: b}\n";
        std::fs::write(of.join("a.yaml"), object).unwrap();
        assert_eq!(bad(folder.path(), &text), []);
        std::fs::write(of.join("a.yaml"), format!("{object}  intervall: 1s\n")).unwrap();
        assert_eq!(bad(folder.path(), &text), resources());
        let problems = problems_of_resources(&of).unwrap();
        assert_eq!(problems, ["a.yaml:6: spec.intervall is no field that is known: is it misspelt?"]);
    }

    #[test]
    fn all_faults_of_a_file_are_found_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let text = format!(
            "metrics: {{listen: '{address}'}}\n\
             control: {{lease_ms: 5, listen: 0.0.0.0:0, insecure: true}}\n\
             operators: {{listen: 127.0.0.1:0, tls: {{certificate: /no/c, key: /no/k, client_ca: /no/ca}}}}\n\
             access: {{operators: {{users: [nobody-at-all]}}}}\n\
             receipt: {{dir: {0}/file}}\n\
             lmap: {{models_dir: {0}/file}}\n\
             incidents: {{dir: {0}/file}}\n\
             remote_write: {{url: 'ftp://x/'}}\n\
             webhooks: [{{name: a, url: 'http://a.example/', headers: {{authorization: x}}}}]\n\
             log: {{level: 'info,x=loud'}}\n",
            folder.path().display()
        );

        let found = bad(folder.path(), &text);

        let errors = [
            "control.lease_ms",
            "log.level",
            "access.operators.users",
            "receipt.dir",
            "incidents.dir",
            "lmap.models_dir",
            "metrics.listen",
            "operators.tls.certificate",
            "operators.tls.key",
            "operators.tls.client_ca",
            "remote_write.url",
        ];
        let warnings = ["webhooks[0].url", "control.listen"];
        let expected: Vec<_> = errors.iter().map(|key| (Level::Error, (*key).to_owned())).collect();
        let expected = [expected, warnings.iter().map(|key| (Level::Warning, (*key).to_owned())).collect()].concat();
        assert_eq!(found, expected);
    }

    #[test]
    fn patterns_that_name_no_cgroup_are_worth_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let text = "transport: shm\nsources: {cgroups: [{pattern: 'no-such.slice/*'}]}\n";

        let found = bad(folder.path(), text);

        assert!(found.iter().all(|(_, key)| key == "sources.cgroups") && found.len() == 1, "{found:?}");
    }

    #[test]
    fn certificates_of_a_peer_that_do_not_say_so_are_worth_a_warning_on_both_sides() {
        let folder = tempfile::tempdir().unwrap();
        support::certificates::Subject::new(&["node-1"]).self_signed().write(folder.path(), "a");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let own = format!("certificate: {0}, key: {1}", path("a.pem"), path("a.key"));
        let text =
            format!("coherence: {{tls: {{{own}, client_ca: {0}}}, peers_tls: {{{own}, ca: {0}}}}}\n", path("a.pem"));

        let found = bad(folder.path(), &text);

        for key in ["coherence.tls.certificate", "coherence.peers_tls.certificate"] {
            assert!(found.contains(&(Level::Warning, key.to_owned())), "{key}: {found:?}");
        }
    }

    #[test]
    fn rules_that_can_fit_no_sender_are_worth_a_warning_that_says_what_to_do() {
        let found = |identities: &str, unknown: Option<&UnknownSenders>| {
            let text = format!(
                "otlp: {{upstream: {{endpoint: 'http://c:4317'}}}}\nservices: {{identities: [{identities}]}}\n"
            );
            let mut to = Inspection::new(0);
            senders(&Config::parse(&text).unwrap(), unknown, &mut to);
            to.findings().first().map(|finding| (finding.level, finding.to_string()))
        };
        let (user, cgroup) = ("{uid: 7, services: [a]}", "{cgroup: /a, services: [a]}");

        for rule in [user, cgroup] {
            let (level, line) = found(rule, Some(&UnknownSenders::NoModule)).unwrap();
            assert_eq!(level, Level::Warning);
            assert!(line.contains("fix: load the module tcp_diag (modprobe tcp_diag), or use token_file"), "{line}");
            assert_eq!(found(rule, None).unwrap().0, Level::Ok);
        }
        assert_eq!(found(user, Some(&UnknownSenders::NoCgroups)).unwrap().0, Level::Ok);
        assert_eq!(found(cgroup, Some(&UnknownSenders::NoCgroups)).unwrap().0, Level::Warning);
        for rule in ["", "{peers: [10.0.0.1], services: [a]}", "{services: [a]}"] {
            assert_eq!(found(rule, Some(&UnknownSenders::NoModule)), None, "{rule}");
        }
    }
}
