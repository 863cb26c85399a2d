//! Fuzzing in CI: one program has all targets; each of them runs for some seconds, one on each processor.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use support::workspace;

use super::commands::{cargo_with, cargo_works};

/// Seconds for each target.
const SECONDS: u32 = 10;
/// What cargo-fuzz builds for: it asks for a target even where that is the host's.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// No target reaches `unsafe` code: they are decoders, and what maps memory is tested by Miri and loom instead. So no
/// sanitizer, which would make the build twice as long, and many codegen units. By hand, with both as they are by
/// default: `cargo +nightly fuzz run -s address TARGET`.
const BUILD: [&str; 7] = [
    "+nightly",
    "fuzz",
    "build",
    "--sanitizer=none",
    "--codegen-units=16",
    "--target=x86_64-unknown-linux-gnu",
    PROGRAM,
];
/// The program with all targets (`fuzz/any.rs`), and the variable that tells it which.
const PROGRAM: &str = "any";
const TARGET_VARIABLE: &str = "UVIEW_TARGET";

/// Why nothing can be fuzzed here.
pub fn missing() -> Option<String> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Some("it is set up for Linux on x86-64 only".to_owned());
    }
    let there = cargo_works(&["+nightly", "--version"]) && cargo_works(&["fuzz", "--version"]);
    (!there).then(|| {
        "it needs a nightly toolchain and `cargo install cargo-fuzz`; the ordinary tests replay the corpora".to_owned()
    })
}

/// Builds the program with all targets. Ten seconds each need no more than the first level of optimization.
///
/// # Errors
///
/// It does not build.
pub fn build() -> Result<()> {
    cargo_with("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1", &BUILD)
}

/// Builds all targets and runs each.
///
/// # Errors
///
/// A target that does not build, or that found an input: its file is named.
pub fn run() -> Result<()> {
    build()?;
    let targets = targets()?;
    let at_once = std::thread::available_parallelism().map_or(1, usize::from);
    for some in targets.chunks(at_once) {
        let running: Vec<_> = some.iter().map(|target| Ok((target, start(target)?))).collect::<Result<_>>()?;
        for (target, child) in running {
            end(target, child)?;
        }
    }
    println!("{} targets, {SECONDS} s each", targets.len());
    Ok(())
}

/// The names of all targets: one file each.
fn targets() -> Result<Vec<String>> {
    let files = fs::read_dir(workspace().join("fuzz/fuzz_targets"))?;
    let names =
        files.map(|file| Ok(file?.path().file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned()));
    let mut names = names.collect::<Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

fn log(target: &str) -> PathBuf {
    workspace().join("target/fuzz").join(format!("{target}.log"))
}

fn start(target: &str) -> Result<Child> {
    let program = workspace().join("fuzz/target").join(TARGET).join("release").join(PROGRAM);
    // The fuzzer writes new inputs to the first folder; the second one is what the ordinary tests replay.
    let new = workspace().join("target/fuzz").join(target);
    fs::create_dir_all(&new)?;
    let log = fs::File::create(log(target))?;
    let mut command = Command::new(&program);
    command.env(TARGET_VARIABLE, target);
    command.arg(&new).arg(Path::new("fuzz/corpus").join(target)).current_dir(workspace());
    command
        .arg(format!("-max_total_time={SECONDS}"))
        .arg("-verbosity=1")
        .arg(format!("-artifact_prefix={}/", new.display()));
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.spawn().with_context(|| program.display().to_string())
}

fn end(target: &str, mut child: Child) -> Result<()> {
    let status = child.wait()?;
    let text = String::from_utf8_lossy(&fs::read(log(target))?).into_owned();
    if !status.success() {
        bail!("the fuzz target {target} ended with {status}:\n{}", finding(&text).join("\n"));
    }
    // libFuzzer's last line: "Done 123456 runs in 11 second(s)".
    let done = text.lines().rev().find(|line| line.starts_with("Done "));
    println!("{target:16} {}", done.with_context(|| format!("the fuzz target {target} did not say what it did"))?);
    Ok(())
}

/// What a fuzzer's log says about its finding: the panic with the first frames of its stack, or the last lines, and the
/// file of the input.
fn finding(log: &str) -> Vec<&str> {
    let lines: Vec<_> = log.lines().collect();
    let panic = lines.iter().position(|line| line.contains("panicked at"));
    let (from, count) = panic.map_or((lines.len().saturating_sub(20), 20), |at| (at, 40));
    let file = lines.iter().filter(|line| line.contains("Test unit written to"));
    lines.iter().skip(from).take(count).chain(file).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_its_panic_and_the_file_of_its_input() {
        let inputs = vec!["#1 NEW"; 100].join("\n");
        let frames = vec!["  frame"; 100].join("\n");
        let log = format!("{inputs}\nthread panicked at a.rs:1\noverflow\n{frames}\nTest unit written to crash-1");

        let lines = finding(&log);

        assert_eq!((lines[0], lines[1]), ("thread panicked at a.rs:1", "overflow"));
        assert_eq!((lines.len(), lines[lines.len() - 1]), (41, "Test unit written to crash-1"));
        assert_eq!(finding("slow\nTest unit written to slow-1").len(), 3);
    }
}
