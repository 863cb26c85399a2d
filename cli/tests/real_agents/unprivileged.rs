//! Agents of an ordinary user, without capabilities, as the units of `deploy/systemd` start them.

use std::fs::{Permissions, create_dir, set_permissions, write};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use support::harness::not_run;

use crate::operator_calls::RunningService;
use crate::{ANY, Agent, WAIT, addresses};

/// A user that no system has, so that nothing belongs to it.
pub const USER: u32 = 64_001;

/// The program, as it is started by root for [`USER`], who has no capability and no group. Anybody else starts it as
/// themselves.
fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
    if rustix::process::geteuid().is_root() {
        command.uid(USER).gid(USER);
    }
    command.current_dir("/");
    command
}

/// A folder that belongs to that user alone.
fn own_folder(path: &Path, mode: u32) {
    create_dir(path).unwrap();
    set_permissions(path, Permissions::from_mode(mode)).unwrap();
    if rustix::process::geteuid().is_root() {
        chown(path, Some(USER), Some(USER)).unwrap();
    }
}

#[test]
fn agents_of_an_ordinary_user_watch_a_service_of_another() {
    if !program().arg("--version").output().is_ok_and(|output| output.status.success()) {
        return not_run("agents without root: other users may not start programs in this folder");
    }
    let directory = tempfile::tempdir().unwrap();
    set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let (run, state) = (directory.path().join("run"), directory.path().join("state"));
    own_folder(&run, 0o755);
    own_folder(&state, 0o700);
    let start = |name: &str, text: &str| {
        let config = directory.path().join(format!("{name}.yaml"));
        write(&config, text).unwrap();
        Agent(program().arg(name).arg("--config").arg(config).spawn().unwrap())
    };

    let host = format!("runtime_dir: {}\nreceipt: {{dir: {}}}\nmetrics: {ANY}\n", run.display(), state.display());
    let host = start("host-agent", &host);
    let ready = addresses(&run);
    let (control, regions) = (ready["control"].as_str().unwrap(), ready["regions"].as_str().unwrap());
    let nic = format!("control: {{address: '{control}'}}\nregions_socket: {regions}\ntransport: shm\nmetrics: {ANY}\n");
    let nic = start("nic-agent", &nic);
    let service = RunningService::start("payment", &run.join("services.sock"));

    WAIT.until("the service is judged", || {
        let mut status = Command::new(env!("CARGO_BIN_EXE_uview"));
        let output = status.args(["status", "--json"]).env("UVIEW_RUNTIME_DIR", &run).output().unwrap();
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        let lmap = status["lmaps"].as_array()?.iter().find(|lmap| lmap["service"] == "payment")?;
        lmap["rows"].as_u64().filter(|rows| *rows > 0)
    });
    drop(service);
    assert_eq!(nic.end(), Some(0));
    assert_eq!(host.end(), Some(0));
    assert_eq!(std::fs::read_dir(&run).unwrap().count(), 0, "files are left");
    assert!(state.join("receipt.ledger").is_file(), "the ledger is written at the end");
}
