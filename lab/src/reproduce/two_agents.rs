//! The row of RDA that is about two hosts: a test of the NIC agent measures it with two agents in network namespaces,
//! in a release build, and the table judges what it wrote.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use serde_json::json;
use support::workspace;

/// The test with five TCP connections, as published.
const TEST: &str = "rda_of_two_agents_is_as_exact_about_real_tcp";
/// Names the file for the test's figures.
const VARIABLE: &str = "UVIEW_TWO_AGENTS_JSON";

/// Measures into `file`; where that is not possible, the file says what is missing.
///
/// # Errors
///
/// The test cannot be run, or has not come to figures.
pub fn measure(file: &Path) -> Result<()> {
    let write_missing = |missing: &str| std::fs::write(file, json!({ "missing": missing }).to_string());
    if let Some(missing) = missing() {
        return Ok(write_missing(missing)?);
    }
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--release", "--quiet", "--package", "nic-agent", "--test", "two_agents"]);
    cargo.args(["--", "--exact", TEST]);
    let status = cargo.env(VARIABLE, file).current_dir(workspace()).status()?;
    // A test that fails after it has measured leaves its figures to be judged.
    if file.exists() {
        return Ok(());
    }
    ensure!(status.success(), "the test {TEST} ended with {status} before it came to figures");
    // It passes with a message where it cannot be run.
    Ok(write_missing("a system on which `ip netns add` works")?)
}

/// What network namespaces lack here.
fn missing() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("root, for network namespaces");
    }
    // `ip` without a command ends with an error, but is there.
    Command::new("ip").output().is_err().then_some("`ip`, for network namespaces (Debian: iproute2)")
}
