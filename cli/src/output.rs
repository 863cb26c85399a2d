//! Printing: the only module that writes to stdout and stderr. A closed pipe is no error. Whatever is printed is
//! printable ([`wire::printable`]), wherever it came from. Only a recording, which is no text, takes stdout as a file.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;

use serde::Serialize;
use wire::printable;

use crate::failure::Failure;

/// Prints `text` to stdout. A closed pipe is no error: the reader (`uview … | head`) has what it wanted.
///
/// # Errors
///
/// [`Failure`] if stdout cannot be written for another reason, such as a full disk.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(printable::lines(text).as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::to("write to the standard output").caused_by(&error))
        }
        _ => Ok(()),
    }
}

/// Whether stdout is a terminal.
#[must_use]
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Stdout as a file, for bytes that are no text. It is not buffered, and no terminal may be behind it.
///
/// # Errors
///
/// The error of the operating system if there is no stdout, or no descriptor is left.
pub fn file() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// Prints `text` and a line feed to stderr. Errors are ignored: there is no other place to report them.
pub fn print_stderr(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", printable::lines(text));
}

/// `value` as indented JSON with a line feed at the end. Characters of its texts that are not printable are escaped as
/// JSON does, so that printing leaves them as they are.
///
/// # Errors
///
/// [`Failure`] if it cannot be serialized.
pub fn json<T: Serialize>(value: &T) -> Result<String, Failure> {
    match serde_json::to_string_pretty(value) {
        Ok(text) => Ok(printable::json(&text).into_owned() + "\n"),
        Err(error) => Err(Failure::to("write the result as JSON").caused_by(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_stays_json_whatever_its_texts_hold() {
        let hostile = "\u{1b}[2J\u{9b}\u{7f}\u{202e}\n<script>";

        let text = json(&[hostile]).unwrap();

        assert!(text.trim_end().chars().all(|c| printable::is_printable(c) || c == '\n'), "{text:?}");
        assert_eq!(printable::lines(&text), text);
        assert_eq!(serde_json::from_str::<[String; 1]>(&text).unwrap(), [hostile]);
    }
}
