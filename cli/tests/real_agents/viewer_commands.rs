//! The commands that read, as users who are neither root nor the user of the agent.

use std::fs::{Permissions, set_permissions, write};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};

use support::harness::not_run;

use crate::operator_calls::RunningService;
use crate::unprivileged::USER;
use crate::{ANY, Agent, WAIT, addresses, lmap, status};

/// The group of viewers, which no system has.
const VIEWERS: u32 = 64_002;

/// What `uview` says to [`USER`], who is in this group and in no other.
fn uview(group: u32, words: &[&str], run: &Path) -> std::io::Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
    command.uid(USER).gid(group).current_dir("/").env("UVIEW_RUNTIME_DIR", run).args(words).output()
}

#[test]
fn a_user_in_the_group_of_viewers_reads_and_another_one_is_told_what_grants_it() {
    let directory = tempfile::tempdir().unwrap();
    set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let run = directory.path().join("run");
    if !uview(VIEWERS, &["--version"], &run).is_ok_and(|output| output.status.success()) {
        return not_run("commands of a viewer: they take root, and a folder in which other users may start programs");
    }
    let config = |name: &str, text: &str| {
        let file = directory.path().join(name);
        write(&file, text).unwrap();
        file
    };
    let text =
        format!("runtime_dir: {}\naccess: {{viewers: {{groups: [{VIEWERS}]}}}}\nmetrics: {ANY}\n", run.display());
    let host = Agent::start("host-agent", &config("host.yaml", &text));
    let ready = addresses(&run);
    let (control, regions) = (ready["control"].as_str().unwrap(), ready["regions"].as_str().unwrap());
    let text =
        format!("control: {{address: '{control}'}}\nregions_socket: {regions}\ntransport: shm\nmetrics: {ANY}\n");
    let nic = Agent::start("nic-agent", &config("nic.yaml", &text));
    let service = RunningService::start("payment", &run.join("services.sock"));
    WAIT.until("the worker is connected", || (status(&run) == Some(0)).then_some(()));
    WAIT.until("the service has an LMAP", || lmap(&run, "payment"));

    for (words, shows) in [
        (&["top", "--once"][..], "payment"),
        (&["status"][..], "worker 0 connected"),
        (&["status", "--json"][..], "\"payment\""),
        (&["receipt"][..], ""),
    ] {
        let output = uview(VIEWERS, words, &run).unwrap();
        let (text, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        // Two: there is a problem, which a busy machine may have.
        assert!(matches!(output.status.code(), Some(0 | 2)), "{words:?}: {text}{error}");
        assert!(!text.is_empty() && text.contains(shows), "{words:?}: {text}");

        let denied = uview(USER, words, &run).unwrap();
        let error = String::from_utf8_lossy(&denied.stderr);
        assert!(!denied.status.success() && denied.stdout.is_empty(), "{words:?}: {error}");
        assert!(error.contains("it needs the role viewer. To grant it: usermod -aG 64002"), "{words:?}: {error}");
    }
    let changed = uview(VIEWERS, &["drain", "0"], &run).unwrap();
    let error = String::from_utf8_lossy(&changed.stderr);
    assert!(!changed.status.success() && error.contains("it needs the role operator"), "{error}");

    drop(service);
    assert_eq!((nic.end(), host.end()), (Some(0), Some(0)));
}
