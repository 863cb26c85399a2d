//! `cargo xtask arm64`: cross-compiles the NIC agent for the processors of a DPU, and runs its tests in an emulator if
//! there is one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::MetadataCommand;

use support::workspace;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATORS: [&str; 2] = ["qemu-aarch64-static", "qemu-aarch64"];
/// Debian's folder of the C library for cross-compiled programs.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";
/// The required packages of Debian and Ubuntu.
const PACKAGES: &str = "gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static";
/// Version of the C library of Ubuntu 22.04, which DPUs run. Programs that need a later one do not start there.
const NEWEST_C_LIBRARY: Version = (2, 35);
/// The members that run on a DPU, and can be tested without a device.
const MEMBERS: [&str; 5] = ["wire", "region", "transport", "lmap", "nic-agent"];
/// The number of the architecture in an ELF header.
const AARCH64: u16 = 183;

type Version = (u32, u32);

/// The available tools of this machine.
struct Tools {
    /// The cross linker; `None` on arm64.
    linker: Option<&'static str>,
    /// The emulator; `None` on arm64, or if there is none.
    emulator: Option<&'static str>,
    native: bool,
}

/// The extent of a run.
pub enum Plan {
    /// Build it without optimisation, and start it once in the emulator if there is one.
    Build,
    /// Build the release, start it, and run the tests.
    Test,
}

/// Why the NIC agent cannot be built here, and what to install.
pub fn missing() -> Option<String> {
    tools().err().map(|error| error.to_string())
}

/// Builds and starts it; with [`Plan::Test`], as a release, and runs the tests of its members.
///
/// # Errors
///
/// A missing tool, a build or a test that fails, or a program that a DPU could not start.
pub fn run(plan: &Plan) -> Result<()> {
    let tools = tools()?;
    let (folder, profile) = match plan {
        Plan::Build => ("debug", "dev"),
        Plan::Test => ("release", "release"),
    };
    cargo(&tools, &["build", "--quiet", "--profile", profile, "--target", TARGET, "-p", "nic-agent"])?;
    let metadata = MetadataCommand::new().current_dir(workspace()).no_deps().exec()?;
    let program = metadata.target_directory.as_std_path().join(TARGET).join(folder).join("uview-nic-agent");
    let bytes = fs::read(&program).with_context(|| program.display().to_string())?;
    let newest = check(&bytes)?;
    println!("{}: {} bytes, needs a C library {}.{} or later", program.display(), bytes.len(), newest.0, newest.1);
    let Some(start) = tools.start() else {
        not_run("THE PROGRAM WAS NOT STARTED AND NO TEST WAS RUN");
        return Ok(());
    };
    starts(&start, &program)?;
    if matches!(plan, Plan::Test) {
        let mut arguments = vec!["test", "--no-fail-fast", "--target", TARGET];
        arguments.extend(MEMBERS.iter().flat_map(|member| ["-p", member]));
        if tools.emulator.is_some() {
            // Statistics over tens of thousands of rows take many minutes each in an emulator.
            println!("!! tests called noise::… are left out: they take too long in an emulator");
            arguments.extend(["--", "--skip", "noise::"]);
        }
        cargo(&tools, &arguments)?;
    }
    Ok(())
}

fn not_run(what: &str) {
    println!("!! {what}: there is no emulator for arm64. Debian: apt-get install {PACKAGES}");
}

impl Tools {
    /// The command prefix for starting a program of the target; empty on arm64.
    fn start(&self) -> Option<Vec<&'static str>> {
        match self.emulator {
            Some(emulator) => Some(vec![emulator, "-L", LIBRARIES]),
            None => self.native.then(Vec::new),
        }
    }
}

fn tools() -> Result<Tools> {
    ensure_target()?;
    if cfg!(target_arch = "aarch64") {
        return Ok(Tools { linker: None, emulator: None, native: true });
    }
    ensure!(
        works(LINKER),
        "there is no {LINKER}, which also compiles the C of `ring`; Debian: apt-get install {PACKAGES}"
    );
    let emulator = EMULATORS.into_iter().find(|name| Path::new(LIBRARIES).is_dir() && works(name));
    Ok(Tools { linker: Some(LINKER), emulator, native: false })
}

/// Fetches Rust's standard library for the target if it is missing.
fn ensure_target() -> Result<()> {
    let output = Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]).output()?;
    let folder = PathBuf::from(String::from_utf8(output.stdout)?.trim());
    if folder.is_dir() {
        return Ok(());
    }
    println!("fetching Rust's library for {TARGET}");
    let fetched = Command::new("rustup").args(["target", "add", TARGET]).status().is_ok_and(|status| status.success());
    ensure!(fetched, "Rust's library for {TARGET} is missing and could not be fetched: `rustup target add {TARGET}`");
    Ok(())
}

fn works(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn cargo(tools: &Tools, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(workspace());
    if let Some(linker) = tools.linker {
        command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", linker);
    }
    if let Some(start) = tools.start().filter(|start| !start.is_empty()) {
        command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", start.join(" "));
    }
    ensure!(command.status()?.success(), "`cargo {}` failed", arguments.join(" "));
    Ok(())
}

/// Starts the program with `--print-default-config`, which needs neither a device nor a host agent.
fn starts(start: &[&str], program: &Path) -> Result<()> {
    let mut line: Vec<_> = start.iter().map(Path::new).collect();
    line.push(program);
    let (first, rest) = line.split_first().context("a command has a first word")?;
    let output = Command::new(first).args(rest).arg("--print-default-config").output()?;
    ensure!(output.status.success(), "the program does not start: {}", String::from_utf8_lossy(&output.stderr));
    let expected = fs::read(workspace().join("nic-agent/src/config/default.yaml"))?;
    ensure!(output.stdout == expected, "the program does not print its default configuration");
    println!("it starts and prints its configuration");
    Ok(())
}

/// Checks that the program is for arm64 and that a DPU's system can start it. Returns the C library that it needs.
fn check(program: &[u8]) -> Result<Version> {
    let machine = program.get(18..20).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    ensure!(program.starts_with(b"\x7fELF") && machine == Some(AARCH64), "this is no program for arm64");
    let newest = newest_c_library(program).context("the program names no version of the C library")?;
    if newest > NEWEST_C_LIBRARY {
        let ((major, minor), (known, last)) = (newest, NEWEST_C_LIBRARY);
        bail!("the program needs glibc {major}.{minor}, DPUs have {known}.{last}: link it on an older system");
    }
    Ok(newest)
}

/// The newest version of the C library in the program's symbols, which are text in the file.
fn newest_c_library(program: &[u8]) -> Option<Version> {
    const PREFIX: &[u8] = b"GLIBC_";
    let versions = program.windows(PREFIX.len()).enumerate().filter(|(_, window)| *window == PREFIX);
    versions.filter_map(|(at, _)| version(&program[at + PREFIX.len()..])).max()
}

/// Parses a version such as `2.34`, followed by a zero byte.
fn version(text: &[u8]) -> Option<Version> {
    let end = text.iter().take(8).position(|byte| *byte == 0)?;
    let (major, minor) = std::str::from_utf8(&text[..end]).ok()?.split_once('.')?;
    // A third number, as in `2.2.5`, only occurs in old versions, and is ignored.
    let minor = minor.split('.').next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program with the parts that are checked.
    fn program(machine: u16, names: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x7fELF".to_vec();
        bytes.resize(18, 0);
        bytes.extend(machine.to_le_bytes());
        bytes.extend(names);
        bytes
    }

    #[test]
    fn the_newest_version_is_what_a_program_needs() {
        let found =
            check(&program(AARCH64, b"\0GLIBC_2.17\0memcpy\0GLIBC_2.34\0GLIBC_2.2.5\0GLIBC_PRIVATE\0")).unwrap();

        assert_eq!(found, (2, 34));
    }

    #[test]
    fn a_program_that_no_dpu_could_start_is_refused() {
        for (program, reason) in [
            (program(62, b"\0GLIBC_2.17\0"), "no program for arm64"),
            (program(AARCH64, b"\0GLIBC_2.36\0"), "needs glibc 2.36"),
            (program(AARCH64, b"\0"), "names no version"),
            (b"#!/bin/sh".to_vec(), "no program for arm64"),
        ] {
            let error = check(&program).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
