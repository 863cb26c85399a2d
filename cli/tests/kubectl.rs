//! `uview kubectl` with a kubectl that is a script.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use support::wait::Wait;
use support::workspace;
use tempfile::TempDir;

/// Generous, for busy machines.
const WAIT: Wait = Wait::up_to(Duration::from_mins(1));

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
    let (code, text) = run(uview, folder.path(), &["kubectl", "--node", "n1", "replay", "a.csv"]);
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

/// A folder with a kubectl in whose agents `shop/payment` has a row every 100 ms, and is recorded by this script.
fn recording_by(script: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let branches = format!(
        r#"case "$*" in
    *" uview lmap shop/payment --json"*) echo '[{{"name": "shop/payment", "interval_us": 100000, "lmap": 7}}]' ;;
    *" uview lmap "*) echo 'uview: no LMAP has that name' >&2; echo 'command terminated with exit code 1' >&2; exit 1 ;;
    *" uview record "*) echo "$*" >> "$0.said"; {script} ;;
"#
    );
    let kubectl = folder.path().join("kubectl");
    fs::write(&kubectl, KUBECTL.replace("case \"$*\" in\n", &branches)).unwrap();
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

#[test]
fn a_model_of_rows_that_are_recorded_on_a_node_is_that_of_the_same_rows_in_a_file() {
    let example = workspace().join("examples/shop/payment.uvrec");
    let folder = recording_by(&format!("/bin/cat '{}'; echo 'shop/payment: recorded' >&2", example.display()));
    let uview = Path::new(env!("CARGO_BIN_EXE_uview"));
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (rows, model, of_file) = (path("rows"), path("a.model"), path("b.model"));

    let words = ["kubectl", "--node", "n1", "train", "shop/payment", "--for-s", "60", "--runtime-dir", "/run/a"];
    let files = ["--out", &model, "--rows", &rows, "--form", "relative"];
    let (code, text) = run(uview, folder.path(), &[&words[..], &files].concat());
    let (of_file_code, _) =
        run(uview, folder.path(), &["train", &example.display().to_string(), "--out", &of_file, "--form", "relative"]);

    assert_eq!((code, of_file_code), (Some(0), Some(0)), "{text}");
    let applies = format!("`uview kubectl --node n1 model set shop/payment {model}` lets a running agent judge by it");
    for part in
        ["recorded on n1 for 1 min", "shop/payment: recorded", "rows of 61 metrics, every 100 ms", "a.model", &applies]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(fs::read(&model).unwrap() == fs::read(&of_file).unwrap());
    assert!(fs::read(&rows).unwrap() == fs::read(&example).unwrap());
    let said = fs::read_to_string(folder.path().join("kubectl.said")).unwrap();
    let recorder = "uview record shop/payment --out - --until-eof --for-s 60 --most-mib 64 --runtime-dir /run/a";
    assert_eq!(said, format!("--namespace uview exec --stdin agent-1 --container host-agent -- {recorder}\n"));

    let (code, text) = run(uview, folder.path(), &[&words[..], &files].concat());
    assert!(code == Some(1) && text.contains("rows exists already") && !text.contains("is recorded"), "{text}");
}

#[test]
fn a_model_of_this_machine_is_the_input_of_the_command_that_runs_on_the_node() {
    let folder = tempfile::tempdir().unwrap();
    let kubectl = folder.path().join("kubectl");
    let branch = "    *\" uview model set \"*) /bin/cat > \"$0.input\"; echo \"$*\" ;;\n";
    fs::write(&kubectl, KUBECTL.replace("case \"$*\" in\n", &format!("case \"$*\" in\n{branch}"))).unwrap();
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).unwrap();
    let uview = Path::new(env!("CARGO_BIN_EXE_uview"));
    let example = workspace().join("examples/shop/payment.uvrec").display().to_string();
    let model = folder.path().join("a.model").display().to_string();
    assert_eq!(run(uview, folder.path(), &["train", &example, "--out", &model]).0, Some(0));
    let change = |words: &[&str]| run(uview, folder.path(), &[&["kubectl"], words].concat());
    let exec = |of: &str| format!("--namespace uview exec {of}\n");

    let words = ["--node", "n1", "model", "set", "shop/payment", &model, "--runtime-dir", "/run/a"];
    let there = "--stdin agent-1 --container host-agent -- uview model set shop/payment - --runtime-dir /run/a";
    assert_eq!(change(&words), (Some(0), exec(there)));
    assert!(fs::read(folder.path().join("kubectl.input")).unwrap() == fs::read(&model).unwrap());

    let there = "agent-1 --container host-agent -- uview model unset shop/payment";
    assert_eq!(change(&["--node", "n1", "model", "unset", "shop/payment"]), (Some(0), exec(there)));
    let (code, text) = change(&["--all", "model", "set", "shop/payment", &model]);
    assert!(code == Some(0) && text.starts_with("node n1\n") && text.contains("\nnode n2\n"), "{code:?}: {text}");

    for (words, expected, why) in [
        (["--node", "n1", "model", "set", "shop/payment", &example], 1, "`uview train` trains a model on it"),
        (["--node", "n1", "model", "set", "shop/payment", "nowhere"], 1, "cannot be read"),
        (["--node", "n1", "model", "show", "shop/payment", &model], 64, "unrecognized subcommand"),
        (["--node", "n3", "model", "set", "shop/payment", &model], 1, "no host agent runs on n3"),
    ] {
        let (code, text) = change(&words);
        assert!(code == Some(expected) && text.contains(why), "{words:?}, {code:?}: {text}");
    }
}

#[test]
fn what_keeps_a_service_from_being_trained_on_is_said_and_no_model_is_written() {
    let uview = Path::new(env!("CARGO_BIN_EXE_uview"));
    let train = |script: &str, words: &str| {
        let folder = recording_by(script);
        let model = folder.path().join("a.model");
        let words: Vec<&str> = words.split_whitespace().chain(["--out", model.to_str().unwrap()]).collect();
        let result = run(uview, folder.path(), &[&["kubectl"], &words[..]].concat());
        assert!(!model.exists());
        result
    };
    let example = workspace().join("examples/shop/payment.uvrec");
    let cut = format!("/usr/bin/head -c 40 '{}'", example.display());

    for (script, words, expected, why) in [
        ("exit 1", "--node n1 train shop/store", 1, "no LMAP has that name"),
        ("exit 1", "--node n3 train shop/payment", 1, "no host agent runs on n3"),
        ("exit 1", "train shop/payment", 1, "name a node by --node"),
        ("exit 1", "--all train shop/payment", 64, "the rows of one node"),
        ("exit 1", "--node n1 train", 64, "the following required arguments were not provided"),
        ("exit 1", "--node n1 train shop/payment --for-s 1", 64, "10 within 1 s, and 12 are needed"),
        ("exit 1", "--node n1 train shop/payment --percentiles 0", 64, "--percentiles has 0"),
        ("echo 'error: no pod agent-1' >&2; exit 1", "--node n1 train shop/payment", 1, "says: error: no pod agent-1"),
        ("echo \"error: '--until-eof'\" >&2; exit 64", "--node n1 train shop/payment", 1, "of the same release"),
        ("exit 4", "--node n1 train shop/payment", 4, "in the agent's container"),
        ("exit 0", "--node n1 train shop/payment", 1, "the recording of shop/payment cannot be used"),
        (cut.as_str(), "--node n1 train shop/payment", 1, "cannot train on shop/payment"),
    ] {
        let (code, text) = train(script, words);
        assert_eq!(code, Some(expected), "{script}, {words}: {text}");
        assert!(text.contains(why) && !text.contains("command terminated"), "{script}, {words}: {text}");
    }
    let (code, text) = train("exit 1", "train --help");
    assert!(code == Some(0) && text.contains("Usage: uview kubectl train [OPTIONS] --out <FILE> <SERVICE>"), "{text}");
}

#[test]
fn a_connection_that_is_cut_without_an_error_leaves_a_model_of_what_came_and_says_so() {
    let example = workspace().join("examples/shop/payment.uvrec");
    let folder = recording_by(&format!("/usr/bin/head -c 100000 '{}'", example.display()));
    let model = folder.path().join("a.model").display().to_string();
    let words = ["kubectl", "--node", "n1", "train", "shop/payment", "--out", &model];

    let (code, text) = run(Path::new(env!("CARGO_BIN_EXE_uview")), folder.path(), &words);

    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("the recording of shop/payment: ") && text.contains("rows are left"), "{text}");
    assert!(!fs::read(&model).unwrap().is_empty());
}

#[test]
fn two_agents_on_the_node_are_named() {
    let folder = recording_by("exit 1");
    let kubectl = folder.path().join("kubectl");
    let text = fs::read_to_string(&kubectl).unwrap();
    fs::write(&kubectl, text.replace("\"nodeName\": \"n2\"", "\"nodeName\": \"n1\"")).unwrap();
    let words = ["kubectl", "--node", "n1", "train", "shop/payment", "--out", "a.model"];

    let (code, text) = run(Path::new(env!("CARGO_BIN_EXE_uview")), folder.path(), &words);

    assert!(code == Some(1) && text.contains("several host agents run on that node: agent-1, agent-2"), "{text}");
}

#[test]
fn a_recorder_is_told_by_the_end_of_its_input_when_the_training_is_killed_and_nothing_is_left() {
    let folder = recording_by("echo > \"$0.began\"; while read -r line; do :; done; echo > \"$0.ended\"");
    let path = |name: &str| folder.path().join(name);
    let mut train = Command::new(env!("CARGO_BIN_EXE_uview"));
    train.args(["kubectl", "--node", "n1", "train", "shop/payment", "--out", "a.model"]).current_dir(&folder);
    train.env_clear().env("PATH", folder.path()).env("TMPDIR", folder.path());
    let mut train = train.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    WAIT.until("the recorder runs", || path("kubectl.began").exists());
    assert!(!path("kubectl.ended").exists());

    train.kill().unwrap();
    train.wait().unwrap();

    WAIT.until("the recorder has ended", || path("kubectl.ended").exists());
    let mut left: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["kubectl", "kubectl.began", "kubectl.ended", "kubectl.said"]);
}
