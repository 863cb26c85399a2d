//! Everything that CI runs, in the order in which it fails fastest. What cannot run here is said, never skipped in silence.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::proto::workspace;
use crate::{arm64, clock, demo, licences, proto, rdma, reproduce};

/// Runs all checks and prints how long each took.
///
/// # Errors
///
/// The first check that fails.
pub fn run(skip_tests: bool) -> Result<()> {
    let mut steps = Steps::default();
    steps.run("format", || cargo(&["fmt", "--all", "--check"]))?;
    steps.run("generated code", || proto::generate(true))?;
    steps.run("licences", licences::check)?;
    steps.cannot("advisories", "the advisory database needs a network; run `cargo audit` where there is one");
    steps.run("clippy", || {
        cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"])
    })?;
    steps.run("documentation", || {
        cargo_with("RUSTDOCFLAGS", "-D warnings", &["doc", "--quiet", "--workspace", "--no-deps"])
    })?;
    if !skip_tests {
        steps.run("tests", || cargo(&["test", "--quiet", "--workspace"]))?;
    }
    match arm64::missing() {
        None => steps.run("arm64", || arm64::run(&arm64::Plan::Build))?,
        Some(why) => steps.cannot("arm64", &why),
    }
    steps.run("coherence of three nodes, full size", || {
        cargo(&["test", "--quiet", "--release", "-p", "hooks", "--test", "coherence", "--", "--ignored"])
    })?;
    steps.run("simulation, 10,000 seeds", || {
        cargo_with("UVIEW_SEEDS", "10000", &["test", "--quiet", "--release", "-p", "e2e", "--test", "simulation"])
    })?;
    steps.run("reproduction of synopses, reduced", reproduce::check_synopses)?;
    steps.run("demo", demo::check)?;
    if prometheus() {
        steps.run("remote write to Prometheus", || {
            cargo(&["test", "--quiet", "-p", "remote-write", "--test", "prometheus", "--", "--ignored"])
        })?;
    } else {
        steps.cannot("remote write to Prometheus", "it needs Prometheus (Debian: apt-get install prometheus)");
    }
    match rdma::why_not() {
        None => steps.run("RDMA in virtual machines", || rdma::run(&rdma::RdmaArgs::default()))?,
        Some(why) => steps.cannot("RDMA in virtual machines", &why),
    }
    // Builds the standard library for it, once.
    if cargo_works(&["+nightly", "miri", "setup"]) {
        steps.run("Miri", miri)?;
    } else {
        steps.cannot("Miri", "it needs nightly Rust and `rustup +nightly component add miri rust-src`");
    }
    steps.run("fuzzing", fuzz)?;
    steps.report();
    Ok(())
}

#[derive(Default)]
struct Steps(Vec<(String, String)>);

impl Steps {
    fn run(&mut self, name: &str, step: impl FnOnce() -> Result<()>) -> Result<()> {
        println!("== {name}");
        let (result, time) = clock::timed(step);
        result.with_context(|| format!("{name} failed"))?;
        self.0.push((name.to_owned(), format!("{:.1} s", time.as_secs_f64())));
        Ok(())
    }

    fn cannot(&mut self, name: &str, why: &str) {
        println!("== {name}: NOT RUN: {why}");
        self.0.push((name.to_owned(), format!("NOT RUN: {why}")));
    }

    fn report(&self) {
        println!("== done");
        for (name, result) in &self.0 {
            println!("{name:28} {result}");
        }
    }
}

fn cargo(arguments: &[&str]) -> Result<()> {
    cargo_with("CARGO_TERM_COLOR", "never", arguments)
}

fn cargo_with(variable: &str, value: &str, arguments: &[&str]) -> Result<()> {
    let status = Command::new("cargo").args(arguments).env(variable, value).current_dir(workspace()).status()?;
    ensure!(status.success(), "`cargo {}` failed", arguments.join(" "));
    Ok(())
}

/// Whether Prometheus is installed.
fn prometheus() -> bool {
    Command::new("prometheus").arg("--version").output().is_ok_and(|output| output.status.success())
}

fn cargo_works(arguments: &[&str]) -> bool {
    let output = Command::new("cargo").args(arguments).current_dir(workspace()).output();
    output.is_ok_and(|output| output.status.success())
}

/// What shares memory, in an interpreter that sees undefined behaviour and data races: whatever does not need the system's own memory or
/// sockets, which it does not have.
fn miri() -> Result<()> {
    let members = ["-p", "region", "-p", "transport", "-p", "uview", "--lib"];
    // It takes more than a minute to count to 100,000, and problems are shared by nobody.
    let skipped = ["--", "--skip", "problem::"];
    let arguments = [&["+nightly", "miri", "test", "--quiet"], &members[..], &skipped].concat();
    // The clock and the environment are the system's.
    cargo_with("MIRIFLAGS", "-Zmiri-disable-isolation", &arguments)
}

/// Ten seconds for each target, where nightly Rust and cargo-fuzz exist.
fn fuzz() -> Result<()> {
    if !cargo_works(&["+nightly", "--version"]) || !cargo_works(&["fuzz", "--version"]) {
        println!("!! FUZZING WAS NOT RUN: it needs nightly Rust and `cargo install cargo-fuzz`.");
        println!("!! The corpora were replayed by the ordinary tests.");
        return Ok(());
    }
    let output = Command::new("cargo").args(["+nightly", "fuzz", "list"]).current_dir(workspace()).output()?;
    ensure!(output.status.success(), "`cargo fuzz list` failed");
    for target in String::from_utf8(output.stdout)?.lines() {
        // The first folder takes what is found; the second one is what the ordinary tests replay.
        let found = workspace().join("target/fuzz-corpus").join(target);
        fs::create_dir_all(&found)?;
        let (found, kept) = (found.display().to_string(), format!("fuzz/corpus/{target}"));
        let limits = ["-max_total_time=10", "-verbosity=0"];
        cargo(&["+nightly", "fuzz", "run", target, &found, &kept, "--", limits[0], limits[1]])?;
    }
    Ok(())
}
