//! The program: arguments, signals, and what a kill leaves behind.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use host_agent::config::Config;
use rustix::process::{Pid, Signal, kill_process};

use crate::agent::{addresses, wait_for};

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
    let mut child =
        Command::new(PROGRAM).arg("--config").arg(write_config(folder)).stderr(Stdio::piped()).spawn().unwrap();
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
