//! Printing: the one place of this crate that writes to stdout and stderr, where a closed pipe is not an error.

use std::io::{self, Write as _};

use serde::Serialize;

use crate::failure::Failure;

/// Prints `text` to stdout. A reader that went away (`uview … | head`) has what it wanted.
///
/// # Errors
///
/// [`Failure`] if stdout cannot be written for another reason, a full disk for instance.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::to("write to the standard output").caused_by(&error))
        }
        _ => Ok(()),
    }
}

/// Tells a person something on stderr. There is nobody to tell if that fails.
pub fn tell(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// `value` as indented JSON with a line feed at the end.
///
/// # Errors
///
/// [`Failure`] if it cannot be written as JSON.
pub fn json<T: Serialize>(value: &T) -> Result<String, Failure> {
    match serde_json::to_string_pretty(value) {
        Ok(text) => Ok(text + "\n"),
        Err(error) => Err(Failure::to("write the result as JSON").caused_by(&error)),
    }
}
