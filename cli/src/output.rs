//! Printing: the only module that writes to stdout and stderr. A closed pipe is no error.

use std::io::{self, Write as _};

use serde::Serialize;

use crate::failure::Failure;

/// Prints `text` to stdout. A closed pipe is no error: the reader (`uview … | head`) has what it wanted.
///
/// # Errors
///
/// [`Failure`] if stdout cannot be written for another reason, such as a full disk.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::to("write to the standard output").caused_by(&error))
        }
        _ => Ok(()),
    }
}

/// Prints `text` and a line feed to stderr. Errors are ignored: there is no other place to report them.
pub fn print_stderr(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// `value` as indented JSON with a line feed at the end.
///
/// # Errors
///
/// [`Failure`] if it cannot be serialized.
pub fn json<T: Serialize>(value: &T) -> Result<String, Failure> {
    match serde_json::to_string_pretty(value) {
        Ok(text) => Ok(text + "\n"),
        Err(error) => Err(Failure::to("write the result as JSON").caused_by(&error)),
    }
}
