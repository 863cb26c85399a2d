//! The Rust client passes the list.

use std::process::Command;

#[test]
fn the_rust_client_does_what_the_list_says() {
    let report = conformance::run(conformance::CASES, || Command::new(env!("CARGO_BIN_EXE_driver-rust")));

    let report = report.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(report.held.len() > 20 && report.unsupported.is_empty(), "{report:?}");
}

#[test]
fn a_driver_that_does_something_else_fails_with_the_line() {
    let list = "case a\ncase what is\n\nopen payment\ncounter c requests\nget c => ok 1\n";

    let failure = conformance::run(list, || Command::new(env!("CARGO_BIN_EXE_driver-rust"))).unwrap_err();

    assert_eq!(failure.to_string(), r#"what is, line 6, "get c": ok 0"#);
}
