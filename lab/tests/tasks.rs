//! Checks that the tasks of `cargo lab` that CI and the documents use exist.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

fn run(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_lab")).args(arguments).output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn tasks_used_by_ci_and_the_documents_exist() {
    for (arguments, option) in [
        (&["clients", "--help"][..], "--uview"),
        (&["bounds", "--help"], "--write"),
        (&["figures", "--help"], "[NAMES]"),
        (&["memory", "--help"], "--seconds"),
        (&["missing", "--help"], "rdma"),
        (&["rdma", "--help"], "--strict"),
        (&["reproduce", "hooks", "--help"], "--reduced"),
        (&["scale", "--help"], "--write"),
        (&["switch", "--help"], "--interpreter"),
        (&["upgrade", "--help"], "--from"),
    ] {
        let (succeeded, help) = run(arguments);
        assert!(succeeded && help.contains(option), "{arguments:?}: {help}");
    }
}

#[test]
fn every_task_that_scripts_of_guests_call_is_there() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/rdma/vm/agents");
    let mut called = BTreeSet::new();
    for script in fs::read_dir(scripts).unwrap() {
        let text = fs::read_to_string(script.unwrap().path()).unwrap();
        for call in text.split("./lab ").skip(1) {
            let is_name =
                |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-');
            called.insert(call.split_whitespace().take_while(is_name).map(str::to_owned).collect::<Vec<_>>());
        }
    }

    assert!(called.len() >= 5, "the scripts call {called:?}");
    for task in called {
        let mut arguments: Vec<&str> = task.iter().map(String::as_str).collect();
        arguments.push("--help");
        assert!(run(&arguments).0, "`lab {}` is called and does not exist", task.join(" "));
    }
}

#[test]
fn an_unknown_task_is_refused() {
    assert!(!run(&["nothing"]).0);
}
