//! Printing: the only module that writes to stdout and stderr. A closed pipe is no error. Whatever a service, a worker
//! or another node said reaches the terminal without control characters.

use std::borrow::Cow;
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
    match stdout.write_all(printable(text).as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::to("write to the standard output").caused_by(&error))
        }
        _ => Ok(()),
    }
}

/// `text` with its control characters, other than line feeds and tabs, written as `\u{1b}`: they could move the cursor,
/// or change what stands on the terminal already.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| !c.is_control() || c == '\n' || c == '\t';
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let escape = |c: char| if is_plain(c) { c.to_string() } else { c.escape_unicode().to_string() };
    Cow::Owned(text.chars().map(escape).collect())
}

/// Prints `text` and a line feed to stderr. Errors are ignored: there is no other place to report them.
pub fn print_stderr(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", printable(text));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_written_out_and_lines_and_tables_stay() {
        assert_eq!(printable("a\tb\nπ µs"), "a\tb\nπ µs");
        assert_eq!(printable("x\u{1b}[2Jy\r\u{9b}z\u{7}"), "x\\u{1b}[2Jy\\u{d}\\u{9b}z\\u{7}");
    }
}
