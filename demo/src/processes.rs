//! Child processes of the demo and of `uview watch`: starts and monitors them, and ends them however the demo ends.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use wire::time::Nanos;

use crate::clock::Clock;

/// Time for a process to end after SIGTERM, before SIGKILL; generous for a busy machine, since the load writes its log
/// in this time.
const ENDS_WITHIN: Nanos = Nanos::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Characters of the beginning and of the end of the last output of a process that ended unexpectedly. The beginning
/// has the message of a panic.
const OUTPUT_CHARS: usize = 700;
const LAST_LINES: usize = 60;

/// One child process.
#[derive(Debug)]
struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.child.id()).ok()?)
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            let _ = kill_process(pid, signal); // fails if the process has ended already
        }
    }

    /// Waits until it ends, at most until `limit` on `clock`. True if it has ended.
    fn ended_by(&mut self, clock: &Clock, limit: Nanos) -> bool {
        loop {
            match self.child.try_wait() {
                Ok(None) if clock.now() < limit => std::thread::sleep(LOOK_EVERY),
                Ok(None) => return false,
                Ok(Some(_)) | Err(_) => return true,
            }
        }
    }

    /// The last lines of its output; the middle is left out if they are long.
    fn last_output(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        let lines: Vec<_> = text.trim().lines().collect();
        let output: Vec<_> = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n").chars().collect();
        if output.len() <= 2 * OUTPUT_CHARS {
            return output.into_iter().collect();
        }
        let (head, tail) = (output.iter().take(OUTPUT_CHARS), output.iter().skip(output.len() - OUTPUT_CHARS));
        head.chain(&['\n', '…', '\n']).chain(tail).collect()
    }
}

/// A process that ended unexpectedly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitedProcess {
    /// Its name, as it was started.
    pub name: String,
    /// How it ended.
    pub status: ExitStatus,
    /// The end of its output.
    pub last_output: String,
}

/// All child processes. Dropping ends each and waits for it, so that neither a process nor a zombie is left.
#[derive(Debug)]
pub struct Processes {
    prefix: Vec<String>,
    logs: PathBuf,
    running: Vec<Process>,
}

impl Processes {
    /// No processes yet. All commands begin with `prefix`; output goes to files in the directory `logs`.
    #[must_use]
    pub fn new(prefix: Vec<String>, logs: &Path) -> Self {
        Self { prefix, logs: logs.to_owned(), running: Vec::new() }
    }

    /// Starts the prefix with `arguments`, in the demo's environment plus `settings`. The process gets a process group
    /// of its own, so that only the demo gets Ctrl-C.
    ///
    /// # Errors
    ///
    /// The error of the operating system if the log cannot be created, or the process not started.
    pub fn start(&mut self, name: &str, arguments: &[String], settings: &[(&str, &str)]) -> io::Result<()> {
        let log = self.logs.join(format!("{name}.log"));
        let file = File::create(&log)?;
        let words: Vec<_> = self.prefix.iter().chain(arguments).collect();
        let (program, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(arguments).envs(settings.iter().copied());
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).process_group(0);
        self.running.push(Process { name: name.to_owned(), child: command.spawn()?, log });
        Ok(())
    }

    /// The id of the process called `name`; 0 if there is none.
    pub(crate) fn pid(&self, name: &str) -> u32 {
        self.running.iter().find(|process| process.name == name).map_or(0, |process| process.child.id())
    }

    /// Sends `signal` to the process called `name`.
    pub(crate) fn signal(&self, name: &str, signal: Signal) {
        if let Some(process) = self.running.iter().find(|process| process.name == name) {
            process.signal(signal);
        }
    }

    /// The first process that ended unexpectedly.
    pub fn exited(&mut self) -> Option<ExitedProcess> {
        self.running.iter_mut().find_map(|process| {
            let status = process.child.try_wait().ok().flatten()?;
            Some(ExitedProcess { name: process.name.clone(), status, last_output: process.last_output() })
        })
    }

    /// Ends the process called `name`, and waits for it.
    pub(crate) fn end(&mut self, name: &str) {
        let Some(at) = self.running.iter().position(|process| process.name == name) else { return };
        end_all(vec![self.running.swap_remove(at)]);
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        end_all(std::mem::take(&mut self.running));
    }
}

/// SIGTERM first, since agents remove their sockets; then SIGKILL. A stopped process gets SIGCONT, since it handles no
/// SIGTERM.
fn end_all(mut processes: Vec<Process>) {
    let clock = Clock::start();
    for process in &processes {
        process.signal(Signal::TERM);
        process.signal(Signal::CONT);
    }
    for process in &mut processes {
        if !process.ended_by(&clock, ENDS_WITHIN) {
            process.signal(Signal::KILL);
        }
        let _ = process.child.wait(); // reaps it
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &[&str]) -> Vec<String> {
        command.iter().map(|word| (*word).to_owned()).collect()
    }

    fn exists(pid: u32) -> bool {
        Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn no_process_is_left_not_even_a_stopped_one() {
        let directory = tempfile::tempdir().unwrap();
        let mut processes = Processes::new(words(&["env"]), directory.path());
        processes.start("one", &words(&["sleep", "100"]), &[]).unwrap();
        processes.start("two", &words(&["sleep", "100"]), &[]).unwrap();
        processes.signal("two", Signal::STOP);
        let pids = [processes.pid("one"), processes.pid("two")];
        assert!(pids.iter().all(|pid| exists(*pid)));

        drop(processes);

        assert!(pids.iter().all(|pid| !exists(*pid)));
    }

    #[test]
    fn a_process_that_ends_by_itself_is_lost_and_leaves_its_last_words() {
        let directory = tempfile::tempdir().unwrap();
        let mut processes = Processes::new(words(&["env"]), directory.path());
        processes.start("talker", &words(&["sh", "-c", "echo no such $WHAT; exit 3"]), &[("WHAT", "socket")]).unwrap();

        let clock = Clock::start();
        let exited = loop {
            match processes.exited() {
                Some(exited) => break exited,
                None if clock.now() < Nanos::from_secs(60) => std::thread::sleep(LOOK_EVERY),
                None => panic!("it did not end within 60 s"),
            }
        };

        assert_eq!((exited.name.as_str(), exited.status.code()), ("talker", Some(3)));
        assert_eq!(exited.last_output, "no such socket");
    }
}
