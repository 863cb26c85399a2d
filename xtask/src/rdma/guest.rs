//! The virtual machine: its image, the programs that run in it, and what it says while it runs. The scripts are in tests/rdma-vm.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, ensure};
use cargo_metadata::Message;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::proto::workspace;

/// What guests boot: Debian's kernel and a file system with soft-RoCE, in target/rdma-vm. The programs for it lie there as well.
#[derive(Clone, Debug)]
pub struct Image(PathBuf);

/// One boot of a fresh guest.
#[derive(Clone, Debug)]
pub struct Boot<'a> {
    /// What its lines begin with.
    pub name: &'static str,
    /// Run by a shell, in a folder with `files`.
    pub command: &'a str,
    /// What is put there.
    pub files: &'a [PathBuf],
    /// How long it may run, in seconds. Its processor is emulated.
    pub limit_s: u32,
    /// Joined with another guest: the last byte of its address, 1 or 2.
    pub joined: Option<u8>,
}

/// A guest that runs.
#[derive(Debug)]
pub struct Running {
    name: &'static str,
    child: Child,
    output: Option<JoinHandle<String>>,
}

impl Image {
    /// The image, built if it is missing or older than its scripts; or why there cannot be one.
    ///
    /// # Errors
    ///
    /// It could have been built, and was not.
    pub fn find() -> Result<Result<Self, String>> {
        let (scripts, folder) = (workspace().join("tests/rdma-vm"), workspace().join("target/rdma-vm"));
        if !cfg!(target_arch = "x86_64") {
            return Ok(Err("the guest is for x86-64".to_owned()));
        }
        let built = age(&folder.join("base.cpio.gz"));
        let changed = ["build-vm", "guest-init"].into_iter().filter_map(|script| age(&scripts.join(script))).min();
        if built.is_none() || built > changed {
            if !is_root() || !exists("apt-get") {
                return Ok(Err("there is no guest, and it cannot be built here".to_owned()));
            }
            println!("== building the guest");
            succeed(Command::new(scripts.join("build-vm")).arg(&folder))?;
        }
        let missing = ["qemu-system-x86_64", "cpio"].into_iter().find(|program| !exists(program));
        Ok(match missing {
            Some(program) => Err(format!("there is no {program}")),
            None => Ok(Self(folder)),
        })
    }

    /// Where what belongs to guests is kept.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// The program that cargo makes when called like this, under `name`, small enough for the guest's memory.
    ///
    /// # Errors
    ///
    /// It was not built.
    pub fn program(&self, name: &str, arguments: &[&str]) -> Result<PathBuf> {
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
        self.take(program.as_std_path(), name)
    }

    /// `program` under `name`, likewise.
    ///
    /// # Errors
    ///
    /// It cannot be copied.
    pub fn take(&self, program: &Path, name: &str) -> Result<PathBuf> {
        let small = self.0.join(name);
        fs::copy(program, &small).with_context(|| program.display().to_string())?;
        if succeed(Command::new("strip").arg(&small)).is_err() {
            println!("(not stripped: there is no `strip`)");
        }
        Ok(small)
    }

    /// Boots, and waits for the end. What the command said, which is printed while it runs.
    ///
    /// # Errors
    ///
    /// There is no guest, its command failed, or it took too long.
    pub fn run(&self, boot: &Boot) -> Result<String> {
        self.start(boot)?.end()
    }

    /// Boots.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn start(&self, boot: &Boot) -> Result<Running> {
        let mut guest = Command::new(workspace().join("tests/rdma-vm/run-in-vm"));
        guest.arg(boot.command).args(boot.files).env("RDMA_VM", &self.0);
        guest.env("RDMA_VM_TIMEOUT", boot.limit_s.to_string()).env("RDMA_VM_LOG", self.log(boot.name));
        if let Some(address) = boot.joined {
            let wire = self.0.join("wire");
            fs::create_dir_all(&wire)?;
            guest.env("RDMA_VM_WIRE", wire).env("RDMA_VM_ADDRESS", address.to_string());
        }
        // A process group of its own, so that all of it can be ended.
        let mut child = guest.process_group(0).stdout(Stdio::piped()).spawn().context("cannot start a guest")?;
        let output = child.stdout.take().context("a guest's output is piped")?;
        let name = boot.name;
        let output = std::thread::spawn(move || told(name, output));
        Ok(Running { name, child, output: Some(output) })
    }

    fn log(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.kernel.log"))
    }
}

impl Running {
    /// Waits until it has ended; what its command said.
    ///
    /// # Errors
    ///
    /// The command failed, or it took too long.
    pub fn end(self) -> Result<String> {
        let (said, ended) = self.outcome()?;
        ended.map(|()| said)
    }

    /// Waits until it has ended; what its command said, and whether that succeeded.
    ///
    /// # Errors
    ///
    /// The system refuses to wait for it.
    pub fn outcome(mut self) -> Result<(String, Result<()>)> {
        let status = self.child.wait()?;
        let output = self.output.take().and_then(|output| output.join().ok()).unwrap_or_default();
        let why = match status.code() {
            Some(124) => " (it took too long)",
            Some(125) => " (the guest died; see its kernel log in target/rdma-vm)",
            _ => "",
        };
        let ended =
            if status.success() { Ok(()) } else { Err(anyhow!("the guest {} ended with {status}{why}", self.name)) };
        Ok((output, ended))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let (Ok(None), Some(group)) = (self.child.try_wait(), Pid::from_raw(self.child.id() as i32)) {
            // Gone meanwhile: that is what was wanted.
            let _ = kill_process_group(group, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// Prints each line of `output` as it comes, and keeps it.
fn told(name: &str, output: ChildStdout) -> String {
    let mut text = String::new();
    for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        println!("{name:>7} | {}", line.trim_end());
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The path of a script of tests/rdma-vm.
pub fn script(name: &str) -> PathBuf {
    workspace().join("tests/rdma-vm").join(name)
}

pub fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n")
}

fn age(file: &Path) -> Option<std::time::Duration> {
    fs::metadata(file).ok()?.modified().ok()?.elapsed().ok()
}

pub fn exists(program: &str) -> bool {
    let tried = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    tried.is_ok()
}

pub fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    ensure!(status.success(), "{} ended with {status}", command.get_program().display());
    Ok(())
}
