//! Reads what a long command of kubectl writes, bounded in bytes and in time.

use std::io::{self, Read};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use indicatif::ProgressBar;
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// The most bytes of messages that are kept.
const MOST_MESSAGES: u64 = 64 << 10;

/// The most that a command may write and take. It is killed beyond.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Bytes on its standard output.
    pub(super) bytes: u64,
    /// Time until it has to have ended.
    pub(super) time: Duration,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It ended by itself, with this status.
    Exited(ExitStatus),
    /// It was killed, since it had written too much.
    TooLong,
    /// It was killed, since it had not ended in time.
    Hung,
}

/// What a command wrote, and how it ended.
#[derive(Debug)]
pub(super) struct Transcript {
    /// Its standard output.
    pub(super) output: Vec<u8>,
    /// The beginning of what it wrote to stderr.
    pub(super) messages: Vec<u8>,
    /// How it ended.
    pub(super) ending: Ending,
}

impl Transcript {
    /// Runs the command, and reads until it has ended. Its standard input stays open as long, and ends with this
    /// process, however that ends. `progress` shows the bytes.
    ///
    /// A command that is late loses its input, and is killed. What it has started, as a script starts kubectl, is read
    /// until it ends: with its input, for it is not killed.
    ///
    /// # Errors
    ///
    /// The error of the operating system if it cannot be started or read.
    pub(super) fn of(command: &mut Command, bounds: Bounds, progress: &ProgressBar) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (input, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let messages = thread::spawn(move || stderr.map(beginning).unwrap_or_default());
        let (process, (running, ended)) = (Pid::from_child(&child), channel::<()>());
        let watchdog = thread::spawn(move || is_killed_after(bounds.time, process, input, &ended));
        let mut output = Vec::new();
        let read = stdout.map_or(Ok(0), |stdout| {
            Read::take(progress.wrap_read(stdout), bounds.bytes.saturating_add(1)).read_to_end(&mut output)
        });
        let is_too_long = output.len() as u64 > bounds.bytes;
        if is_too_long || read.is_err() {
            let _ = child.kill(); // an error: it has ended already
        }
        // It stays a zombie, so that its number is no other process's until the watchdog has ended.
        let _ = retry_on_intr(|| waitid(WaitId::Pid(process), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT));
        drop(running);
        let is_hung = watchdog.join().unwrap_or_default();
        let status = child.wait()?;
        read?;
        let messages = messages.join().unwrap_or_default();
        let ending = if is_hung {
            Ending::Hung
        } else if is_too_long {
            Ending::TooLong
        } else {
            Ending::Exited(status)
        };
        Ok(Self { output, messages, ending })
    }

    /// The messages as text, without the line that kubectl adds about an exit code.
    pub(super) fn said(&self) -> String {
        said(&self.messages)
    }
}

/// Messages as text, without the line that kubectl adds about an exit code.
pub(super) fn said(messages: &[u8]) -> String {
    let text = String::from_utf8_lossy(messages);
    let lines = text.lines().filter(|line| !line.starts_with("command terminated with exit code"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Reads to the end, and keeps the first [`MOST_MESSAGES`] bytes.
fn beginning(mut from: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    // An error is an end, too.
    let _ = Read::take(&mut from, MOST_MESSAGES).read_to_end(&mut bytes);
    let _ = io::copy(&mut from, &mut io::sink());
    bytes
}

/// Ends the `input` of `process`, and kills it, if it has not ended within `time`. Returns whether it did. The input is
/// open as long.
fn is_killed_after(time: Duration, process: Pid, input: Option<ChildStdin>, ended: &Receiver<()>) -> bool {
    let is_late = ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
    drop(input);
    if is_late {
        let _ = kill_process(process, Signal::KILL);
    }
    is_late
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const BOUNDS: Bounds = Bounds { bytes: 1000, time: Duration::from_mins(10) };

    fn transcript(script: &str, bounds: Bounds) -> Transcript {
        let mut command = Command::new("/bin/sh");
        Transcript::of(command.args(["-c", script]), bounds, &ProgressBar::hidden()).unwrap()
    }

    #[test]
    fn a_command_that_ends_by_itself_has_its_exit_code() {
        let said = transcript("echo a; echo b >&2; echo 'command terminated with exit code 2' >&2; exit 2", BOUNDS);

        assert_eq!((said.output.as_slice(), said.said().as_str()), (b"a\n".as_slice(), "b"));
        assert!(matches!(said.ending, Ending::Exited(status) if status.code() == Some(2)), "{said:?}");
    }

    #[test]
    fn a_command_that_writes_without_end_is_killed() {
        let said = transcript("while :; do echo aaaaaaaa; done", BOUNDS);

        assert_eq!((said.output.len(), said.ending), (1001, Ending::TooLong));
    }

    #[test]
    fn a_command_that_does_not_end_is_killed_though_its_input_is_open() {
        let soon = Bounds { time: Duration::from_millis(1), ..BOUNDS };

        let waiting = transcript("while read -r line; do :; done", soon);
        let silent = transcript("exec >&-; while read -r line; do :; done", soon);

        assert_eq!((waiting.ending, silent.ending), (Ending::Hung, Ending::Hung));
    }

    #[test]
    fn a_script_that_does_not_end_is_read_until_what_it_has_started_ends_with_its_input() {
        // Time in which a shell starts `cat`; if it does not, the test says less.
        let soon = Bounds { time: Duration::from_millis(100), ..BOUNDS };

        let wrapped = transcript("/bin/cat; :", soon);

        assert_eq!(wrapped.ending, Ending::Hung);
    }

    #[test]
    fn what_a_killed_script_has_started_ends_with_its_input() {
        let mut command = Command::new("/bin/sh");
        // The shell waits for `cat`, since it has something left to do.
        command.args(["-c", "/bin/cat; :"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = command.spawn().unwrap();
        let (mut input, mut output) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
        let mut text = vec![0_u8];
        // It is there once it has said something.
        input.write_all(b"a").unwrap();
        output.read_exact(&mut text).unwrap();
        let (_running, ended) = channel();

        let is_killed = is_killed_after(Duration::ZERO, Pid::from_child(&script), Some(input), &ended);

        assert!(is_killed);
        assert_eq!(output.read_to_end(&mut text).unwrap(), 0);
        script.wait().unwrap();
    }

    #[test]
    fn of_messages_the_beginning_is_kept() {
        assert_eq!(beginning(vec![b'a'; 1 << 20].as_slice()).len(), 1 << 16);
    }
}
