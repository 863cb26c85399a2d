//! The virtual machine: its image, the programs that run in it, and its output. The scripts are in tests/rdma/vm.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, ensure};
use cargo_metadata::Message;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::unavailable::Unavailable;
use support::workspace;

/// The image of the guests: Debian's kernel and a file system with soft-RoCE, in target/rdma-vm, together with the
/// programs for the guest.
#[derive(Clone, Debug)]
pub struct Image(PathBuf);

/// One boot of a fresh guest.
#[derive(Clone, Debug)]
pub struct Boot<'a> {
    /// Prefix of its output lines.
    pub name: &'static str,
    /// Shell command to run, in a folder with `files`.
    pub command: &'a str,
    /// Files to copy into the guest.
    pub files: &'a [PathBuf],
    /// Time limit in seconds; the processor is emulated.
    pub limit_s: u32,
    /// If it is connected with another guest: the last byte of its address, 1 or 2.
    pub joined: Option<u8>,
}

/// A running guest.
#[derive(Debug)]
pub struct RunningGuest {
    name: &'static str,
    child: Child,
    output: Option<JoinHandle<String>>,
}

impl Image {
    /// The image, built if it is missing or older than its scripts.
    ///
    /// # Errors
    ///
    /// [`Unavailable`] if it cannot be built here. Or the build failed.
    pub fn find() -> Result<Self> {
        let (scripts, folder) = (workspace().join("tests/rdma/vm"), workspace().join("target/rdma-vm"));
        if !cfg!(target_arch = "x86_64") {
            return Err(Unavailable("the guest is for x86-64".to_owned()).into());
        }
        let built = age(&folder.join("base.cpio.gz"));
        let changed = ["build-vm", "guest-init"].into_iter().filter_map(|script| age(&scripts.join(script))).min();
        if built.is_none() || built > changed {
            if !is_root() || !exists("apt-get") {
                return Err(Unavailable("there is no guest, and it cannot be built here".to_owned()).into());
            }
            println!("== building the guest");
            succeed(Command::new(scripts.join("build-vm")).arg(&folder))?;
        }
        let missing = ["qemu-system-x86_64", "cpio"].into_iter().find(|program| !exists(program));
        match missing {
            Some(program) => Err(Unavailable(format!("there is no {program}")).into()),
            None => Ok(Self(folder)),
        }
    }

    /// The folder with the image and the guests' files.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Builds a program by cargo with `arguments`, and copies it to `name`, stripped to save the guest's memory.
    ///
    /// # Errors
    ///
    /// The build failed.
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

    /// Copies `program` to `name`, stripped.
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

    /// Boots, and waits for the end. Returns the command's output, which is also printed while it runs.
    ///
    /// # Errors
    ///
    /// The guest does not start, its command failed, or it took too long.
    pub fn run(&self, boot: &Boot) -> Result<String> {
        self.start(boot)?.end()
    }

    /// Boots a fresh guest.
    ///
    /// # Errors
    ///
    /// The process cannot be started.
    pub fn start(&self, boot: &Boot) -> Result<RunningGuest> {
        let mut guest = Command::new(workspace().join("tests/rdma/vm/run-in-vm"));
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
        let output = std::thread::spawn(move || forward_output(name, output));
        Ok(RunningGuest { name, child, output: Some(output) })
    }

    fn log(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.kernel.log"))
    }
}

impl RunningGuest {
    /// Waits until it has ended. Returns its command's output.
    ///
    /// # Errors
    ///
    /// The command failed, or it took too long.
    pub fn end(self) -> Result<String> {
        let (output, ended) = self.outcome()?;
        ended.map(|()| output)
    }

    /// Waits until it has ended. Returns its command's output, and whether the command succeeded.
    ///
    /// # Errors
    ///
    /// Waiting for the process failed.
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

impl Drop for RunningGuest {
    fn drop(&mut self) {
        if let (Ok(None), Some(group)) = (self.child.try_wait(), Pid::from_raw(self.child.id() as i32)) {
            // Fails only if it has ended already.
            let _ = kill_process_group(group, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// Prints each line of `output` as it comes, and returns all of it.
fn forward_output(name: &str, output: ChildStdout) -> String {
    let mut text = String::new();
    for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        println!("{name:>7} | {}", line.trim_end());
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The path of a script of tests/rdma/vm.
pub fn script(name: &str) -> PathBuf {
    workspace().join("tests/rdma/vm").join(name)
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
