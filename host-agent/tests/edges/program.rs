//! The program: arguments, signals, and what a kill leaves behind.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use host_agent::config::Config;
use rustix::process::{Pid, Signal, kill_process};

use crate::agent::{addresses, wait_for};
use crate::service::Service;

const PROGRAM: &str = env!("CARGO_BIN_EXE_uview-host-agent");

fn write_config(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("config.yaml");
    let text = format!(
        "runtime_dir: {}\nmetrics: {{listen: '127.0.0.1:0'}}\nlog: {{format: json}}\n",
        folder.join("run").display()
    );
    std::fs::write(&path, text).unwrap();
    path
}

fn start(folder: &Path) -> Child {
    start_by(&mut Command::new(PROGRAM), folder)
}

/// Starts it by `command`, and waits until it listens.
fn start_by(command: &mut Command, folder: &Path) -> Child {
    let mut child = command.arg("--config").arg(write_config(folder)).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("host-agent.json", || {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        addresses(&folder.join("run")).filter(|at| at.pid == child.id())
    });
    child
}

fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().unwrap()
}

#[test]
fn on_sigterm_it_ends_well_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut agent = start(folder.path());

    kill_process(Pid::from_child(&agent), Signal::TERM).unwrap();

    assert!(agent.wait().unwrap().success());
    assert_eq!(std::fs::read_dir(folder.path().join("run")).unwrap().count(), 0);
    let mut log = String::new();
    agent.stderr.unwrap().read_to_string(&mut log).unwrap();
    for line in log.lines() {
        serde_json::from_str::<serde_json::Value>(line).expect(line);
    }
    assert!(log.contains("host agent stopping"), "{log}");
}

#[test]
fn what_a_killed_one_left_is_taken_over_and_a_living_one_is_not_disturbed() {
    let folder = tempfile::tempdir().unwrap();
    let mut killed = start(folder.path());
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(folder.path().join("run/services.sock").exists());

    let mut second = start(folder.path());

    let config = write_config(folder.path());
    let third = run(&["--config", config.to_str().unwrap()]);
    assert!(!third.status.success());
    let text = String::from_utf8(third.stderr).unwrap();
    assert!(text.contains("another agent listens on"), "{text}");
    assert!(addresses(&folder.path().join("run")).is_some_and(|at| at.pid == second.id()));
    kill_process(Pid::from_child(&second), Signal::TERM).unwrap();
    assert!(second.wait().unwrap().success());
}

#[test]
fn the_default_configuration_is_printed() {
    let printed = run(&["--print-default-config"]);

    assert!(printed.status.success());
    assert_eq!(Config::parse(&String::from_utf8(printed.stdout).unwrap()).unwrap(), Config::default());
}

#[test]
fn a_configuration_is_checked_without_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_config(folder.path());
    let check = || run(&["--config", path.to_str().unwrap(), "--check-config"]);

    let good = check();
    let text = String::from_utf8(good.stdout).unwrap();
    assert!(good.status.success() && text.contains("\n0 errors, "), "{text}");
    assert!(!folder.path().join("run").exists(), "nothing was created");

    let mut running = start(folder.path());
    let again = check();
    let text = String::from_utf8(again.stdout).unwrap();
    let process = format!("an agent runs with it, process {};", running.id());
    assert!(again.status.success() && text.contains(&process), "{text}");
    kill_process(Pid::from_child(&running), Signal::TERM).unwrap();
    assert!(running.wait().unwrap().success());

    std::fs::write(&path, "runtime_dir: /proc/self/nowhere\nlmap: {interval_ms: 3600001}\n").unwrap();
    let bad = check();
    let text = String::from_utf8(bad.stdout).unwrap();
    assert_eq!(bad.status.code(), Some(1));
    assert!(text.contains("error    lmap.interval_ms") && text.contains("error    runtime_dir"), "{text}");
}

#[test]
fn an_unknown_key_ends_it_with_line_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    std::fs::write(&path, "lmap:\n  interval: 5\n").unwrap();

    let ended = run(&["--config", path.to_str().unwrap()]);

    assert!(!ended.status.success());
    let text = String::from_utf8(ended.stderr).unwrap();
    assert!(text.contains("line 2") && text.contains("column 3") && text.contains("interval"), "{text}");
    let missing = run(&["--config", "/nowhere/at/all"]);
    assert!(String::from_utf8(missing.stderr).unwrap().contains("cannot read the configuration file /nowhere/at/all"));
}

#[test]
fn the_budget_of_a_configuration_is_printed_without_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    std::fs::write(&path, "lmap: {model_bytes: 5242880}\n").unwrap();

    let printed = run(&["--config", path.to_str().unwrap(), "--budget", "--services", "7", "--columns", "9"]);

    let text = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.status.success() && text.contains("with 7 services of 9 columns"), "{text}");
    assert!(text.contains("      7 MiB  learnt models: lmap.model_bytes + 4,096 × 512 B\n"), "{text}");
    assert!(!run(&["--services", "7"]).status.success(), "without --budget it means nothing");
}

#[test]
fn when_others_have_taken_the_descriptors_that_they_may_have_a_service_still_registers() {
    /// Descriptors of the agent, of which 16 are kept back. It has about twenty before anybody connects.
    const DESCRIPTORS: &str = "ulimit -n 64 && exec \"$0\" \"$@\"";
    let folder = tempfile::tempdir().unwrap();
    let mut agent = start_by(Command::new("sh").args(["-c", DESCRIPTORS, PROGRAM]), folder.path());
    let at = addresses(&folder.path().join("run")).unwrap();
    let open = || std::fs::read_dir(format!("/proc/{}/fd", agent.id())).unwrap().count();
    let held: Vec<_> = (0..60).map(|_| TcpStream::connect(at.metrics).unwrap()).collect();
    wait_for("full agent", || (open() >= 47).then_some(()));

    let (service, _region) = Service::connect_to(&at.services).registered("payment", &["requests"]);

    drop((held, service));
    let counted = wait_for("page", || {
        // What was held is not closed yet at the first try, perhaps.
        let mut stream = TcpStream::connect(at.metrics).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
        let mut page = String::new();
        stream.read_to_string(&mut page).ok()?;
        page.lines().find_map(|line| line.strip_prefix("uview_host_unaffordable_api_connections_total ")?.parse().ok())
    });
    assert!((10..60).contains(&counted), "{counted} were refused");
    kill_process(Pid::from_child(&agent), Signal::TERM).unwrap();
    assert!(agent.wait().unwrap().success());
}
