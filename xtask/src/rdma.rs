//! What needs an RDMA device, in a virtual machine that has a soft one. The guest is Debian's kernel, built by tests/rdma-vm/build-vm.

mod agents;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use cargo_metadata::Message;

use crate::clock;
use crate::proto::workspace;

/// The filter that leaves out everything but the agents.
const AGENTS: &str = "agents";

/// Runs everything that this machine can run, and says loudly what it cannot.
///
/// # Errors
///
/// Something that could run has failed.
pub fn run(filter: Option<&str>) -> Result<()> {
    let guest = match guest()? {
        Ok(guest) => guest,
        Err(why) => {
            println!("!! THE RDMA TESTS WERE NOT RUN: {why}.");
            println!(
                "!! They need root, for apt-get (cargo xtask rdma installs qemu and unpacks a kernel), on Debian for x86-64."
            );
            return Ok(());
        }
    };
    if filter == Some(AGENTS) {
        return agents::run(&guest);
    }
    if filter.is_none() {
        layout()?;
    }
    let tests = transport_tests(&guest)?;
    let name = tests.file_name().context("a test program has a name")?.display().to_string();
    step("transport on a soft-RoCE device", || {
        let filter = filter.unwrap_or("verbs::tests");
        in_guest(&guest, &format!("./{name} {filter} --test-threads=1"), &[&tests])
    })?;
    if filter.is_some() {
        println!("!! Only tests that are named {} were run.", filter.unwrap_or_default());
        return Ok(());
    }
    step("what is said where something is missing", || {
        let script = workspace().join("tests/rdma-vm/missing");
        in_guest(&guest, &format!("sh ./missing ./{name}"), &[&tests, &script])
    })?;
    agents::run(&guest)
}

fn step(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("== {name}");
    let (result, time) = clock::timed(work);
    result.with_context(|| format!("{name} failed"))?;
    println!("== {name}: {:.1} s", time.as_secs_f64());
    Ok(())
}

/// Our structs of libibverbs against those of its header, where that is installed or can be.
fn layout() -> Result<()> {
    let needed = ["libibverbs-dev", "librdmacm-dev", "libclang-dev", "pkg-config", "gcc", "libc6-dev"];
    let clang = || {
        fs::read_dir("/usr/lib").into_iter().flatten().filter_map(Result::ok).any(|entry| {
            entry.file_name().to_string_lossy().starts_with("llvm-") && entry.path().join("lib/libclang.so").exists()
        })
    };
    let there = || Path::new("/usr/include/infiniband/verbs.h").exists() && clang() && exists("cc");
    if !there() && is_root() && exists("apt-get") {
        let install = ["install", "--yes", "--quiet=2", "--no-install-recommends"];
        succeed(Command::new("apt-get").args(install).args(needed).stdout(Stdio::null()))?;
    }
    if !there() {
        println!("!! THE LAYOUT OF STRUCTS WAS NOT COMPARED: install {}.", needed.join(", "));
        return Ok(());
    }
    step("our structs and those of the header", || {
        let target = workspace().join("target/rdma-layout");
        let folder = workspace().join("tests/rdma-layout");
        succeed(Command::new("cargo").args(["test", "--quiet"]).current_dir(folder).env("CARGO_TARGET_DIR", target))
    })
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n")
}

/// Where the guest is, built if it is missing or older than the scripts; or why there cannot be one.
fn guest() -> Result<Result<PathBuf, String>> {
    let (scripts, guest) = (workspace().join("tests/rdma-vm"), workspace().join("target/rdma-vm"));
    if !cfg!(target_arch = "x86_64") {
        return Ok(Err("the guest is for x86-64".to_owned()));
    }
    let built = age(&guest.join("base.cpio.gz"));
    let changed = ["build-vm", "guest-init"].into_iter().filter_map(|script| age(&scripts.join(script))).min();
    if built.is_none() || built > changed {
        if !is_root() || !exists("apt-get") {
            return Ok(Err("there is no guest, and it cannot be built here".to_owned()));
        }
        step("building the guest", || succeed(Command::new(scripts.join("build-vm")).arg(&guest)))?;
    }
    let missing = ["qemu-system-x86_64", "cpio"].into_iter().find(|program| !exists(program));
    Ok(match missing {
        Some(program) => Err(format!("there is no {program}")),
        None => Ok(guest),
    })
}

fn age(file: &Path) -> Option<std::time::Duration> {
    fs::metadata(file).ok()?.modified().ok()?.elapsed().ok()
}

fn exists(program: &str) -> bool {
    let tried = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    tried.is_ok()
}

/// The crate's unit tests with a device as a program.
fn transport_tests(guest: &Path) -> Result<PathBuf> {
    let arguments = ["test", "--package=transport", "--lib", "--features=device-tests", "--no-run"];
    program(guest, "transport-tests", &arguments)
}

/// The program that cargo makes when called like this, under `name`, small enough for the guest's memory.
fn program(guest: &Path, name: &str, arguments: &[&str]) -> Result<PathBuf> {
    let output = Command::new("cargo")
        .args(arguments)
        .arg("--message-format=json")
        .current_dir(workspace())
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "`cargo {}` failed", arguments.join(" "));
    let program =
        Message::parse_stream(output.stdout.as_slice()).filter_map(Result::ok).find_map(|message| match message {
            Message::CompilerArtifact(artifact) => artifact.executable,
            _ => None,
        });
    let program = program.context("cargo names no program")?;
    let small = guest.join(name);
    fs::copy(program, &small)?;
    if succeed(Command::new("strip").arg(&small)).is_err() {
        println!("(not stripped: there is no `strip`)");
    }
    Ok(small)
}

/// Runs a shell command in a fresh guest, in a folder with `files`.
fn in_guest(guest: &Path, command: &str, files: &[impl AsRef<OsStr>]) -> Result<()> {
    let script = workspace().join("tests/rdma-vm/run-in-vm");
    succeed(Command::new(script).arg(command).args(files).env("RDMA_VM", guest).env("RDMA_VM_TIMEOUT", "300"))
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    ensure!(status.success(), "{} ended with {status}", command.get_program().display());
    Ok(())
}
