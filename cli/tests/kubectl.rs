//! `uview kubectl` with a kubectl that is a script.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output};

/// Two agents; `exec` prints what it is asked for, and ends as `uview status` does where a service is in alarm.
const KUBECTL: &str = r#"#!/bin/sh
case "$*" in
    *" get pods "*) echo '{"items": [
        {"metadata": {"name": "agent-1"}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}},
        {"metadata": {"name": "agent-2"}, "spec": {"nodeName": "n2"}, "status": {"phase": "Running"}}]}' ;;
    *" exec agent-1 "*" uview open --print") echo 'http://127.0.0.1:9705/open?token=00ff' ;;
    *" exec agent-1 "*" uview open --print 20261127")
        echo 'http://127.0.0.1:9705/open?token=00ff&incident=20261127-064215-123' ;;
    *" exec agent-2 "*" uview open --print") echo 'http://evil.example/open?token=00ff' ;;
    *" port-forward "*) echo "$*" >> "$0.said"; echo "Forwarding from 127.0.0.1:9705 -> 9705"; echo "Handling connection" ;;
    *" exec agent-2 "*) echo "$*"; exit 2 ;;
    *" exec "*) echo "$*" ;;
    *) echo "error: You must be logged in" >&2; exit 1 ;;
esac
"#;

fn run(program: &Path, folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    // No other kubectl is found.
    let path = folder.as_os_str();
    let Output { status, stdout, stderr } =
        Command::new(program).args(arguments).env_clear().env("PATH", path).output().unwrap();
    (status.code(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

#[test]
fn the_page_is_opened_through_a_tunnel_to_the_port_of_its_address() {
    let folder = tempfile::tempdir().unwrap();
    let kubectl = folder.path().join("kubectl");
    fs::write(&kubectl, KUBECTL).unwrap();
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).unwrap();
    let uview = Path::new(env!("CARGO_BIN_EXE_uview"));
    let open = |arguments: &[&str]| run(uview, folder.path(), &[&["kubectl"], arguments].concat());

    let (code, text) = open(&["--node", "n1", "open", "--print"]);
    assert_eq!((code, text.as_str()), (Some(0), "http://127.0.0.1:9705/open?token=00ff\n"));
    let said = fs::read_to_string(folder.path().join("kubectl.said")).unwrap();
    assert_eq!(said, "--namespace uview port-forward --address 127.0.0.1 pod/agent-1 9705:9705\n");

    let (code, text) = open(&["--node", "n1", "open", "20261127", "--print"]);
    let url = "http://127.0.0.1:9705/open?token=00ff&incident=20261127-064215-123\n";
    assert_eq!((code, text.as_str()), (Some(0), url));

    let (code, text) = open(&["--node", "n2", "open"]);
    assert!(code == Some(1) && text.contains("no address of its page"), "{code:?}: {text}");
    for arguments in [&["--all", "open"][..], &["--node", "n1", "open", "--json"]] {
        let (code, text) = open(arguments);
        assert!(code == Some(64) && text.contains("one page at a time"), "{code:?}: {text}");
    }
    let broken = KUBECTL.replace("; echo \"Forwarding", "; exit 1; echo \"Forwarding");
    fs::write(&kubectl, broken).unwrap();
    let (code, text) = open(&["--node", "n1", "open"]);
    assert!(code == Some(1) && text.contains("the tunnel to port 9705 of agent-1 ended"), "{code:?}: {text}");
}

#[test]
fn a_command_runs_in_the_agent_of_the_node_and_its_exit_code_is_that_of_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let kubectl = folder.path().join("kubectl");
    fs::write(&kubectl, KUBECTL).unwrap();
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).unwrap();
    let uview = Path::new(env!("CARGO_BIN_EXE_uview"));
    let plugin = folder.path().join("kubectl-uview");
    symlink(uview, &plugin).unwrap();

    let (code, text) = run(&plugin, folder.path(), &["--node", "n1", "lmap", "shop/payment", "--json"]);
    let exec = "exec agent-1 --container host-agent -- uview lmap shop/payment --json";
    assert_eq!((code, text), (Some(0), format!("--namespace uview {exec}\n")));

    let (code, text) = run(uview, folder.path(), &["kubectl", "--context", "lab", "--all", "status"]);
    let of = |number: u32| {
        let exec = format!("exec agent-{number} --container host-agent -- uview status");
        format!("node n{number}\n--context lab --namespace uview {exec}\n")
    };
    assert_eq!((code, text), (Some(2), of(1) + &of(2)));

    let (code, text) = run(&plugin, folder.path(), &["--node", "n1", "describe", "shop/payment"]);
    let of = |command: &str| {
        format!("--namespace uview exec agent-1 --container host-agent -- uview {command} shop/payment\n")
    };
    assert_eq!((code, text), (Some(0), of("lmap") + &of("metric")));

    let (code, text) = run(uview, folder.path(), &["kubectl", "status"]);
    assert!(code == Some(1) && text.contains("name a node by --node, or --all for one after the other: n1, n2"));
    let (code, text) = run(uview, folder.path(), &["kubectl", "--node", "n1", "train", "a.csv"]);
    assert!(code == Some(64) && text.contains("only commands that ask an agent run there"), "{code:?}: {text}");
    let (code, text) = run(uview, folder.path(), &["kubectl", "--all", "watch", "--name", "kubelet"]);
    assert!(code == Some(64) && text.contains("name one node by --node"), "{code:?}: {text}");
    // What the agent refuses is not asked for twice.
    let refusing = KUBECTL.replace("*\" exec \"*) echo \"$*\" ;;", "*\" exec \"*) echo \"$*\"; exit 1 ;;");
    assert!(refusing != KUBECTL);
    fs::write(&kubectl, refusing).unwrap();
    let (code, text) = run(uview, folder.path(), &["kubectl", "--node", "n1", "traces"]);
    assert!(code == Some(1) && text.contains("uview receipt") && !text.contains("uview paths"), "{code:?}: {text}");

    fs::write(&kubectl, "#!/bin/sh\necho 'error: You must be logged in' >&2; exit 1\n").unwrap();
    let (code, text) = run(uview, folder.path(), &["kubectl", "status"]);
    assert!(code == Some(1) && text.contains("kubectl says: error: You must be logged in"), "{code:?}: {text}");
    fs::remove_file(&kubectl).unwrap();
    let (code, text) = run(uview, folder.path(), &["kubectl", "status"]);
    assert!(code == Some(1) && text.contains("install kubectl, or add its folder to PATH"), "{code:?}: {text}");
}
