//! What CI asks this tool for is there. That it is a test of the program has another end: `cargo test --workspace` builds the program for it, with what
//! the rest of the workspace is built with, and `.ci/run` goes on with that one. Built by itself it takes 83 more compilations beside the 492 of the tests.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::process::Command;

fn said(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).args(arguments).output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn what_ci_and_the_documents_ask_for_is_there() {
    for (arguments, option) in [
        (&["ci", "--help"][..], "--skip-tests"),
        (&["rdma", "--help"], "--strict"),
        (&["arm64", "--help"], "--build"),
        (&["proto", "--help"], "--check"),
        (&["scale", "--help"], "--write"),
    ] {
        let (succeeded, help) = said(arguments);
        assert!(succeeded && help.contains(option), "{arguments:?}: {help}");
    }
}

#[test]
fn a_task_that_is_none_is_refused() {
    assert!(!said(&["nothing"]).0);
}
