//! Checks `deploy/` and its documentation: programs accept the files, and the troubleshooting table quotes real
//! messages of the programs.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use agent_runtime::budget::{Budget, Load, MIB};
use serde_json::Value;
use support::harness::not_run;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests lie in the workspace")
}

/// A file of `deploy/`.
fn deployed(path: &str) -> String {
    let path = root().join("deploy").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn file(name: &str) -> String {
    deployed(&format!("bluefield/{name}"))
}

/// All units, by their paths in `deploy/`, with those of ordinary hosts also as they are with a drop-in.
fn units() -> Vec<(String, String)> {
    let mut units = Vec::new();
    for folder in ["bluefield", "systemd"] {
        let entries = fs::read_dir(root().join("deploy").join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let names = names.filter(|name| name.ends_with(".service")).map(|name| format!("{folder}/{name}"));
        units.extend(names.map(|path| (path.clone(), deployed(&path))));
    }
    for (unit, addition) in
        [("uview-host-agent", "processes"), ("uview-host-agent", "profiles"), ("uview-nic-agent", "packets")]
    {
        let lines = [format!("systemd/{unit}.service"), format!("systemd/{unit}-{addition}.conf")];
        let both = lines.iter().map(|path| deployed(path)).collect::<String>();
        units.push((format!("systemd/{unit}-with-{addition}.service"), both));
    }
    units
}

/// Whether there is a systemd-analyze. If not, it is said that `what` was not run.
fn systemd_analyze(what: &str) -> bool {
    let there = Command::new("systemd-analyze").arg("--version").output().is_ok();
    if !there {
        not_run(&format!("{what}: no systemd-analyze (Debian: apt-get install systemd)"));
    }
    there
}

#[test]
fn the_agents_take_their_configurations() {
    let worker = nic_agent::config::Config::parse(&file("nic-agent-0.yaml")).unwrap();
    let host = host_agent::config::Config::parse(&file("host-agent.yaml")).unwrap();

    assert_eq!(worker.transport, nic_agent::config::Transport::Verbs);
    assert_eq!(worker.regions_socket, None, "there is no such socket on a DPU");
    assert!(worker.core.is_some() && worker.control.tls.is_some());
    assert_eq!(
        worker.control.address,
        host.control.listen.unwrap().to_string(),
        "the NIC agent connects to the host agent's address"
    );
    assert!(host.control.tls.is_some());
}

#[test]
fn the_pod_starts_the_program_of_the_image_with_the_files_that_are_there() {
    let pod: Value = serde_saphyr::from_str(&file("uview-nic-agent.pod.yaml")).unwrap();
    let worker = &pod["spec"]["containers"][0];

    assert_eq!((&pod["apiVersion"], &pod["kind"]), (&"v1".into(), &"Pod".into()));
    let args: Vec<_> = worker["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(args, ["nic-agent", "--config", "/etc/uview/nic-agent-0.yaml"]);
    // They are those of the image's own program, and the image has that one.
    assert_eq!(worker["command"], Value::Null);
    let image = deployed("release/Containerfile");
    let program = image.lines().find_map(|line| line.strip_prefix("COPY bin/uview ")).unwrap();
    assert!(image.lines().any(|line| line == format!("ENTRYPOINT [\"{program}\"]")), "{image}");
    let (_, name) = image.split_once("podman build --tag ").unwrap();
    assert_eq!(worker["image"].as_str(), name.split(' ').next(), "the image has the name that its recipe gives it");
    assert_eq!(pod["spec"]["hostNetwork"], true);
    let config = nic_agent::config::Config::parse(&file("nic-agent-0.yaml")).unwrap();
    for probe in ["readinessProbe", "livenessProbe"] {
        assert_eq!(worker[probe]["httpGet"]["port"], config.metrics.listen.port(), "{probe}");
    }
    let volumes: Vec<_> = pod["spec"]["volumes"].as_array().unwrap().iter().map(|volume| &volume["name"]).collect();
    let mounts: Vec<_> = worker["volumeMounts"].as_array().unwrap().iter().map(|mount| &mount["name"]).collect();
    assert_eq!(volumes, mounts, "every volume exists and is used");
}

#[test]
fn memory_of_services_that_are_gone_goes_back_to_the_system_wherever_an_agent_is_started() {
    let pod: Value = serde_saphyr::from_str(&file("uview-nic-agent.pod.yaml")).unwrap();
    let variables = pod["spec"]["containers"][0]["env"].as_array().unwrap();
    let line = |name: &str| {
        let variable = variables.iter().find(|of| of["name"] == name).unwrap();
        format!("{name}={}", variable["value"].as_str().unwrap())
    };
    let (threshold, heaps) = (line("MALLOC_MMAP_THRESHOLD_"), line("MALLOC_ARENA_MAX"));

    for (path, unit) in units().into_iter().filter(|(path, _)| path.contains("-agent")) {
        let lines = if path.contains("nic-agent") { vec![&*threshold, &*heaps] } else { vec![&*heaps] };
        assert_eq!(settings(&unit, "Environment"), lines, "{path}");
    }
    let bounds = fs::read_to_string(root().join("docs/bounds.md")).unwrap();
    assert!(bounds.contains(&threshold) && bounds.contains(&heaps));
}

#[test]
fn systemd_takes_the_units() {
    if !systemd_analyze("units as systemd reads them") {
        return;
    }
    let units = units();
    assert_eq!(units.len(), 7);
    let folder = tempfile::tempdir().unwrap();
    for (path, unit) in units {
        let program = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        let program = program.split(' ').next().unwrap();
        // The program is not installed here; everything else must be correct.
        let name = path.rsplit('/').next().unwrap().replace("@.", "@0.");
        let copy = folder.path().join(name);
        fs::write(&copy, unit.replace(&format!("={program} "), "=/bin/true ")).unwrap();
        let output = Command::new("systemd-analyze").arg("verify").arg(&copy).output().unwrap();
        let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && complaints.is_empty(), "{path}: {complaints}");
        fs::remove_file(&copy).unwrap();
    }
}

/// What a unit says of `key`, each value once it is set.
fn settings<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

#[test]
fn viewers_do_not_belong_to_the_group_that_reads_configurations() {
    let users = deployed("systemd/uview.sysusers.conf");
    let lines: Vec<_> = users.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines[..2], ["g uview -", "g uview-agent -"]);
    assert!(lines[2].starts_with("u uview -:uview-agent "), "{lines:?}");
    assert!(deployed("systemd/uview.tmpfiles.conf").contains("\nd /etc/uview 0750 root uview-agent -\n"));
    let viewers = host_agent::config::Config::default().access;
    let shown = format!("{viewers:?}");
    assert!(shown.contains("\"uview\"") && !shown.contains("uview-agent"), "{shown}");

    for (path, unit) in units() {
        assert_eq!(settings(&unit, "Group"), ["uview-agent"], "{path}");
        assert!(settings(&unit, "SupplementaryGroups").is_empty(), "{path}");
    }
}

#[test]
fn units_let_viewers_reach_sockets_and_agents_tell_them_apart() {
    for (path, unit) in units() {
        let folder = match path.split_once("uview-").unwrap().1 {
            agent if agent.starts_with("host-agent") => "uview",
            "nic-agent@.service" => "uview-nic-%i",
            _ => "uview-nic",
        };
        assert_eq!(settings(&unit, "RuntimeDirectory"), [folder], "{path}");
        assert_eq!(settings(&unit, "RuntimeDirectoryMode"), ["0755"], "{path}");
        assert!(settings(&unit, "PrivateUsers").is_empty(), "{path}: users of the peers of a socket are translated");
        // The marker of a run that was killed is there (coherence.rs).
        let preserved = settings(&unit, "RuntimeDirectoryPreserve");
        assert_eq!(preserved, if folder == "uview" { vec!["restart"] } else { vec![] }, "{path}");
    }
    let socket = "/run/uview-nic/models.sock";
    let commented = deployed("systemd/nic-agent.yaml");
    let (_, line) = commented.split_once("\n# models:").unwrap();
    let config = nic_agent::config::Config::parse(&format!("models:{line}")).unwrap();
    assert_eq!(config.models.socket.as_deref(), Some(Path::new(socket)));
}

/// A configuration of the host agent with everything on that a host without Kubernetes may have, and four endpoints to
/// scrape. The chart has limits of its own.
const EVERYTHING: &str = r#"
services: {identities: [{cgroup: '/a.slice', services: [a]}]}
otlp:
  upstream: {endpoint: 'http://127.0.0.1:1'}
  traces: {keep: tail, order_key: "000102030405060708090a0b0c0d0e0f"}
  logs: {keep: tail}
remote_write: {url: 'http://127.0.0.1:1/api/v1/write'}
otlp_metrics: {upstream: {endpoint: 'http://127.0.0.1:1'}}
head_sampling: {listen: '127.0.0.1:0'}
coherence: {peers: ['127.0.0.1:1'], insecure: true}
webhooks: [{name: team, url: 'http://127.0.0.1:1'}]
page: {prometheus: {url: 'http://127.0.0.1:1'}}
incidents: {profile: {seconds: 30}}
resources: /etc/uview/resources
sources:
  cgroups: [{pattern: 'system.slice/*.service'}]
  prometheus:
    targets:
      - {service: a, url: 'http://127.0.0.1:1/metrics'}
      - {service: b, url: 'http://127.0.0.1:1/metrics'}
      - {service: c, url: 'http://127.0.0.1:1/metrics'}
      - {service: d, url: 'http://127.0.0.1:1/metrics'}
"#;

/// The bounds of the host agent with `config`.
fn host_bounds(config: &str) -> Budget {
    host_agent::budget(&host_agent::config::Config::parse(config).unwrap(), Load::default())
}

#[test]
fn the_bound_that_units_are_above_has_all_that_a_host_may_switch_on() {
    let all = host_bounds(EVERYTHING);
    let off: Vec<_> = all.bounds.iter().filter(|bound| bound.bytes == 0).map(|bound| bound.what).collect();
    assert_eq!(off, ["pods of this node", "what the API server has said of tokens"], "both are Kubernetes'");

    // These have no row of their own.
    for (on, without) in [
        ("incidents: {profile: {seconds: 30}}", "incidents: {profile: {seconds: 0}}"),
        ("page: {prometheus: {url: 'http://127.0.0.1:1'}}", ""),
        ("head_sampling: {listen: '127.0.0.1:0'}", ""),
    ] {
        assert!(EVERYTHING.contains(on), "{on}");
        assert!(host_bounds(&EVERYTHING.replace(on, without)).total() < all.total(), "{on} takes no memory");
    }
}

#[test]
fn limits_of_memory_are_above_the_agents_own_bounds() {
    let host = host_bounds(EVERYTHING).total();
    let worker = nic_agent::budget(&nic_agent::config::Config::default(), Load::default()).total();
    let page = fs::read_to_string(root().join("docs/systemd.md")).unwrap();

    for (path, unit) in units() {
        let bound = if path.contains("host-agent") { host } else { worker };
        let [high, max] = ["MemoryHigh", "MemoryMax"].map(|key| {
            let found = settings(&unit, key);
            assert_eq!(found.len(), 1, "{path}: {key}");
            found[0].strip_suffix('M').unwrap().parse::<u64>().unwrap() * MIB
        });
        assert!(bound < high && high < max, "{path}: {bound} B, {high} B, {max} B");
        let words =
            [bound.div_ceil(MIB), high / MIB, max / MIB].map(|mib| format!("{},{:03} MiB", mib / 1000, mib % 1000));
        let row = format!("| {} | {}, {} |", words[0], words[1], words[2]);
        assert!(page.contains(&row), "docs/systemd.md has no {row}");
    }
}

/// The exposure of each unit that systemd computes, from 0 (none) to 10.
#[test]
fn units_leave_little_exposed() {
    const MAX_EXPOSURE: f64 = 3.0;
    if !systemd_analyze("exposure of the units") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (path, unit) in units() {
        let copy = folder.path().join(path.replace('/', "-").replace("@.", "@0."));
        fs::write(&copy, unit).unwrap();
        let mut command = Command::new("systemd-analyze");
        let output = command.args(["security", "--offline=true", "--no-pager"]).arg(&copy).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let exposure = text.lines().find_map(|line| line.split_once("Overall exposure level for ")?.1.split_once(": "));
        let exposure = exposure.and_then(|(_, level)| level.split(' ').next()?.parse::<f64>().ok());
        assert!(exposure.is_some_and(|level| level <= MAX_EXPOSURE), "{path}: {exposure:?}\n{text}");
    }
}

#[test]
fn units_of_ordinary_hosts_start_the_program_with_the_configurations_that_are_there() {
    for agent in ["host-agent", "nic-agent"] {
        let unit = deployed(&format!("systemd/uview-{agent}.service"));
        let start = format!("ExecStart=/usr/local/bin/uview {agent} --config /etc/uview/{agent}.yaml");
        assert!(unit.lines().any(|line| line == start), "{agent} is started otherwise");
        assert!(
            unit.contains("\nUser=uview\n") && unit.contains("\nMemoryMax="),
            "{agent} has another user, or no limit"
        );
    }
    let host = host_agent::config::Config::parse(&deployed("systemd/host-agent.yaml")).unwrap();
    let worker = nic_agent::config::Config::parse(&deployed("systemd/nic-agent.yaml")).unwrap();

    assert_eq!(host.receipt.dir.as_deref(), Some(Path::new("/var/lib/uview")));
    assert_eq!(worker.transport, nic_agent::config::Transport::Shm);
    let users = deployed("systemd/uview.sysusers.conf");
    assert!(users.contains("\ng uview ") && users.contains("\nu uview "));
}

/// All Rust sources of the members whose messages operators read.
fn sources() -> String {
    fn collect(folder: &Path, text: &mut String) {
        for entry in fs::read_dir(folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, text);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut text = String::new();
    for member in ["region/transport", "region", "wire", "nic-agent", "host-agent", "cli"] {
        collect(&root().join(member).join("src"), &mut text);
    }
    text
}

#[test]
fn symptoms_of_the_troubleshooting_table_are_messages_of_the_programs() {
    let page = fs::read_to_string(root().join("docs/bluefield.md")).unwrap();
    let (_, table) = page.split_once("<!-- symptoms -->").expect("the page has a table of symptoms");
    let sources = sources();
    let rows: Vec<_> = table.lines().skip(1).take_while(|line| line.starts_with('|')).skip(2).collect();
    assert!(rows.len() > 10, "only {} symptoms", rows.len());

    for row in rows {
        let symptom = row.split('|').nth(1).unwrap();
        let quoted: Vec<_> = symptom.split('`').skip(1).step_by(2).collect();
        assert!(!quoted.is_empty(), "no quoted message in {symptom:?}");
        // An ellipsis stands for the variable parts of a message.
        for part in quoted.iter().flat_map(|words| words.split('…')).map(str::trim).filter(|part| !part.is_empty()) {
            assert!(sources.contains(part), "no program prints {part:?}");
        }
    }
}
