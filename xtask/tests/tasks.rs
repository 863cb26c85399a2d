//! Checks that the tasks used by CI exist. As a test of the program it has a second purpose: `cargo test --workspace`
//! then builds the program with the dependencies of the workspace, and `.ci/run` uses that one. A separate build takes
//! 83 more compilations in addition to the 492 of the tests.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::process::Command;

fn run(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).args(arguments).output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn tasks_used_by_ci_and_the_documents_exist() {
    for (arguments, option) in [
        (&["ci", "--help"][..], "--tests-took"),
        (&["arm64", "--help"], "--build"),
        (&["proto", "--help"], "--check"),
        (&["deny", "--help"], "advisories"),
        (&["release", "--help"], "--twice"),
    ] {
        let (succeeded, help) = run(arguments);
        assert!(succeeded && help.contains(option), "{arguments:?}: {help}");
    }
}

#[test]
fn an_unknown_task_is_refused() {
    assert!(!run(&["nothing"]).0);
}
