//! Standard output and input of a recording that somebody else reads, perhaps from afar: `uview record --out -`.
//!
//! Whoever reads may be gone without a sign: a container's runtime keeps the pipe open, and reads no more. So no write
//! waits for ever, and the end of the standard input says that nobody is there any more.

use std::fs::File;
use std::future::pending;
use std::io::{self, ErrorKind, Write};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::oneshot;

use crate::output;

/// Seconds without a byte read after which nobody reads any more.
const PATIENCE_S: i64 = 30;
/// Bytes that a pipe with room takes without waiting (`PIPE_BUF`).
const PIECE: usize = 4096;

/// A pipe to whoever reads a recording. A write fails when nothing was read for half a minute.
#[derive(Debug)]
pub(super) struct Pipe {
    file: File,
    patience: Timespec,
}

impl Pipe {
    /// The standard output.
    ///
    /// # Errors
    ///
    /// The error of the operating system if there is none.
    pub(super) fn stdout() -> io::Result<Self> {
        Ok(Self { file: output::file()?, patience: Timespec { tv_sec: PATIENCE_S, tv_nsec: 0 } })
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut ready = [PollFd::new(&self.file, PollFlags::OUT)];
        if poll(&mut ready, Some(&self.patience))? == 0 {
            return Err(io::Error::new(ErrorKind::TimedOut, "nobody reads it"));
        }
        self.file.write(bytes.get(..PIECE).unwrap_or(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Resolves at the end of the standard input if `is_watched`, else never.
pub(super) async fn input_ended(is_watched: bool) {
    if !is_watched {
        return pending().await;
    }
    let (sender, ended) = oneshot::channel::<()>();
    // Ends with the process, if not before.
    thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink()); // an error is an end, too
        drop(sender);
    });
    let _ = ended.await; // the sender is dropped
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::OwnedFd;

    use super::*;

    /// A pipe, and the end that is read.
    fn pipe() -> (io::PipeReader, Pipe) {
        let (reader, writer) = io::pipe().unwrap();
        let patience = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        (reader, Pipe { file: File::from(OwnedFd::from(writer)), patience })
    }

    #[test]
    fn more_than_a_pipe_holds_arrives_whole_if_it_is_read() {
        let (mut reader, pipe) = pipe();
        let mut pipe = Pipe { patience: Timespec { tv_sec: PATIENCE_S, tv_nsec: 0 }, ..pipe };
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|number| number as u8).collect();

        let read = thread::spawn(move || {
            let mut read = Vec::new();
            reader.read_to_end(&mut read).unwrap();
            read
        });
        pipe.write_all(&bytes).unwrap();
        drop(pipe);

        assert!(read.join().unwrap() == bytes);
    }

    #[test]
    fn a_reader_that_does_not_read_ends_the_write() {
        let (_reader, mut pipe) = pipe();

        let error = pipe.write_all(&vec![0_u8; 10_000_000]).unwrap_err();

        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::TimedOut, "nobody reads it"));
    }

    #[test]
    fn a_reader_that_is_gone_ends_the_write() {
        let (reader, mut pipe) = pipe();
        drop(reader);

        assert_eq!(pipe.write_all(&[0]).unwrap_err().kind(), ErrorKind::BrokenPipe);
    }
}
