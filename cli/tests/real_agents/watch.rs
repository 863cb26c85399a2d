//! `uview watch` on real programs: one that hangs, one that restarts, one of a unit, one of another user.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use support::harness::not_run;

use crate::unprivileged::USER;
use crate::{ANY, Agent, WAIT, addresses};

/// A program that is killed at the end of its test.
pub struct Program(pub Child);

impl Program {
    pub fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes to a program at a steady rate, until the program or its pipe is gone.
fn feed(mut input: ChildStdin) {
    std::thread::spawn(move || {
        while input.write_all(&[0; 1 << 14]).is_ok() {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

/// A running `uview watch`, and its lines.
struct WatchProcess {
    child: Program,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl WatchProcess {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
        Self::of(command.args(["watch", "--interval-ms", "100"]).args(arguments).env_remove("UVIEW_RUNTIME_DIR"))
    }

    fn of(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (output, errors) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (sender, lines) = channel();
        let of_errors = sender.clone();
        let pass = |line: std::io::Result<String>, to: &std::sync::mpsc::Sender<String>| drop(to.send(line.unwrap()));
        std::thread::spawn(move || BufReader::new(output).lines().for_each(|line| pass(line, &sender)));
        std::thread::spawn(move || BufReader::new(errors).lines().for_each(|line| pass(line, &of_errors)));
        Self { child: Program(child), lines, seen: Vec::new() }
    }

    /// The first line with `text`, from now on.
    fn line(&mut self, text: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(Duration::from_mins(2));
            assert!(line.is_ok(), "no line with {text} within two minutes, or before it ended: {:?}", self.seen);
            self.seen.push(line.unwrap());
            if let Some(line) = self.seen.last().filter(|line| line.contains(text)) {
                return line.clone();
            }
        }
    }

    /// Presses Ctrl-C. The exit code.
    fn interrupt(mut self) -> Option<i32> {
        self.child.signal(Signal::INT);
        self.child.0.wait().unwrap().code()
    }
}

/// Processes whose parent is `parent`.
fn children(parent: u32) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_child = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after_name = stat.rsplit(')').next().unwrap_or_default().to_owned();
        after_name.split(' ').nth(2) == Some(parent.to_string().as_str())
    };
    pids.filter(is_child).collect()
}

#[test]
fn a_program_that_hangs_is_named_and_after_ctrl_c_nothing_is_left() {
    let mut program = Program::start(&mut Command::new("cat"));
    feed(program.0.stdin.take().unwrap());
    let pid = program.pid().to_string();
    let mut watch = WatchProcess::start(&["--pid", &pid, "--service", "hung", "--private"]);
    let greeting = watch.line("hung: watching pid");
    let directory = PathBuf::from(greeting.rsplit(' ').next().unwrap());
    watch.line("hung: armed");
    let agents = children(watch.child.pid());
    assert!(directory.join("host-agent.json").is_file() && agents.len() == 2, "{greeting} {agents:?}");

    program.signal(Signal::STOP);

    let reason = watch.line(", expected ");
    assert!(reason.starts_with("hung: process."), "{reason}");
    assert_eq!(watch.interrupt(), Some(0));
    assert!(!directory.exists(), "{}", directory.display());
    let left: Vec<_> = agents.iter().filter(|pid| Path::new(&format!("/proc/{pid}")).exists()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_program_that_restarts_is_watched_on_by_agents_that_run_and_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("run");
    let start = |name: &str, text: String| {
        let config = directory.path().join(format!("{name}.yaml"));
        fs::write(&config, text).unwrap();
        Agent::start(name, &config)
    };
    let host = start("host-agent", format!("runtime_dir: {}\nmetrics: {ANY}\n", run.display()));
    let ready = addresses(&run);
    let (control, regions) = (ready["control"].as_str().unwrap(), ready["regions"].as_str().unwrap());
    let nic = format!("control: {{address: '{control}'}}\nregions_socket: {regions}\nmetrics: {ANY}\n");
    let nic = start("nic-agent", nic);
    // Longer than the 15 bytes of a name that the kernel keeps.
    let name = format!("uview-restarts-{}", std::process::id());
    let path = directory.path().join(&name);
    // By a program of its own: a child that another test forks meanwhile would hold a copy that is open for writing.
    assert!(Command::new("cp").args(["/bin/cat".as_ref(), path.as_os_str()]).status().unwrap().success());
    let program = Program::start(&mut Command::new(&path));

    let mut watch = WatchProcess::start(&["--name", &name, "--runtime-dir", run.to_str().unwrap()]);
    let greeting = watch.line("watching pid");
    assert!(greeting.contains(&format!("pid {}, other processes: 0, with the agents in", program.pid())), "{greeting}");
    watch.line("learning what is normal");
    drop(program);
    watch.line(&format!("{name}: has ended; waiting for its restart"));
    let program = Program::start(&mut Command::new(&path));
    watch.line(&format!("{name}: has restarted as pid {}", program.pid()));

    assert_eq!(watch.interrupt(), Some(0));
    let is_gone = || {
        let mut status = Command::new(env!("CARGO_BIN_EXE_uview"));
        let output = status.args(["status", "--json", "--runtime-dir"]).arg(&run).output().unwrap();
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        status["lmaps"].as_array()?.is_empty().then_some(())
    };
    WAIT.until("the service is gone, and the agents run", is_gone);
    assert_eq!(nic.end(), Some(0));
    assert_eq!(host.end(), Some(0));
}

/// A folder of cgroups that this user may create: of version 2, or of systemd's own hierarchy.
fn unit_folder(unit: &str) -> Option<PathBuf> {
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"];
    let folders = roots.into_iter().map(|root| Path::new(root).join(unit));
    folders.into_iter().find(|folder| {
        let created = fs::create_dir(folder).is_ok();
        let is_cgroup = folder.join("cgroup.procs").is_file();
        if created && !is_cgroup {
            let _ = fs::remove_dir(folder);
        }
        is_cgroup
    })
}

#[test]
fn a_unit_is_the_processes_of_its_cgroup() {
    let unit = format!("uview-watch-{}.service", std::process::id());
    let Some(folder) = unit_folder(&unit) else {
        return not_run("uview watch of a unit: this user may create no cgroup");
    };
    let program = Program::start(&mut Command::new("cat"));
    fs::write(folder.join("cgroup.procs"), program.pid().to_string()).unwrap();

    let mut watch = WatchProcess::start(&["--unit", &unit, "--private"]);
    let greeting = watch.line("watching pid");
    let code = watch.interrupt();
    let pid = program.pid();
    drop(program);
    WAIT.until("the cgroup can be removed", || fs::remove_dir(&folder).ok());

    let name = unit.strip_suffix(".service").unwrap();
    let directory = Path::new(greeting.rsplit(' ').next().unwrap());
    assert!(!directory.exists(), "Ctrl-C came early, and all is gone: {greeting}");
    assert!(greeting.starts_with(&format!("{name}: watching pid {pid},")), "{greeting}");
    assert_eq!(code, Some(0));
}

#[test]
fn of_another_users_program_the_metrics_that_are_missing_are_named_with_what_to_do() {
    let root = rustix::process::geteuid().is_root();
    let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
    if !root
        || !command.uid(USER).gid(USER).current_dir("/").arg("--version").output().is_ok_and(|o| o.status.success())
    {
        return not_run("uview watch of another user's program: others may not start programs in this folder");
    }
    let program = Program::start(&mut Command::new("cat"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
    command.uid(USER).gid(USER).current_dir("/").env_remove("UVIEW_RUNTIME_DIR");
    let mut watch = WatchProcess::of(command.args(["watch", "--private", "--pid", &program.pid().to_string()]));

    let lacks = watch.line("not readable");

    for text in ["process.disk.io", "process.network.*", "run as the program's user or root, or with CAP_SYS_PTRACE"] {
        assert!(lacks.contains(text), "{lacks}");
    }
    watch.line("learning what is normal");
    assert_eq!(watch.interrupt(), Some(0));
}

#[test]
fn what_does_not_run_is_an_error_that_says_where_to_look() {
    for (arguments, expected) in [
        (["--pid", "4194304"], "there is no process 4194304"),
        (["--name", "no-such-program"], "--command TEXT, with a part of its command line"),
        (["--command", "no such words at all"], "`ps -ef` shows command lines"),
        (["--unit", "no-such-unit.service"], "`systemctl status` shows units"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_uview")).arg("watch").args(arguments).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.contains(expected), "{arguments:?}: {text}");
    }
}
