//! A driver's process: one line goes in, one line comes out.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

/// How long a reply may take, also on a busy machine.
const LIMIT: Duration = Duration::from_mins(1);

/// Why a driver did not reply.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// The program cannot be started.
    #[error("cannot start the driver {program}")]
    Start {
        /// The program as it was named.
        program: String,
        /// What the system says.
        #[source]
        cause: std::io::Error,
    },
    /// The driver has ended.
    #[error("the driver ended ({status}) at the command {command:?}")]
    Ended {
        /// The command that it did not reply to.
        command: String,
        /// How it ended.
        status: String,
    },
    /// No reply came.
    #[error("no reply to {command:?} within {LIMIT:?}")]
    Silent {
        /// The command that it did not reply to.
        command: String,
    },
}

/// A running driver, which is killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Driver {
    child: Child,
    stdin: Option<ChildStdin>,
    replies: Receiver<String>,
}

impl Driver {
    pub(crate) fn start(command: &mut Command) -> Result<Self, DriverError> {
        let program = command.get_program().display().to_string();
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started.map_err(|cause| DriverError::Start { program, cause })?;
        let stdin = child.stdin.take();
        let (sender, replies) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            // Ends with the driver, and with its forks.
            thread::spawn(move || {
                BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
            });
        }
        Ok(Self { child, stdin, replies })
    }

    /// Sends a command and waits for its reply.
    pub(crate) fn ask(&mut self, command: &str) -> Result<String, DriverError> {
        if let Some(stdin) = &mut self.stdin {
            // A driver that has ended does not reply either.
            let _ = stdin.write_all(format!("{command}\n").as_bytes());
        }
        self.replies.recv_timeout(LIMIT).map_err(|error| match error {
            mpsc::RecvTimeoutError::Timeout => DriverError::Silent { command: command.to_owned() },
            mpsc::RecvTimeoutError::Disconnected => {
                DriverError::Ended { command: command.to_owned(), status: self.ended() }
            }
        })
    }

    fn ended(&mut self) -> String {
        self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string())
    }

    /// Closes its input and waits for its end, which must be a success: sanitizers report at the end.
    pub(crate) fn finish(mut self) -> Result<(), DriverError> {
        self.stdin = None;
        // Its output ends with it.
        match self.replies.recv_timeout(LIMIT) {
            Err(mpsc::RecvTimeoutError::Disconnected) => {}
            _ => return Err(DriverError::Silent { command: "(end of input)".to_owned() }),
        }
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            _ => Err(DriverError::Ended { command: "(end of input)".to_owned(), status: self.ended() }),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
