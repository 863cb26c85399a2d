//! Printing: the only module that writes to stdout and stderr. A closed pipe is no error. Whatever a service, a worker
//! or another node said reaches the terminal without control characters, and without those that change the direction of
//! text.

use std::borrow::Cow;
use std::fmt::Write as _;
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

/// Whether `c` is shown as itself and leaves the text around it as it is: no control character, and none of Unicode's
/// bidirectional controls, with which a name could show as another one.
#[must_use]
pub fn is_plain(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `text` with the characters that are not plain, other than line feeds and tabs, written as `\u{1b}`: they could move
/// the cursor, change what stands on the terminal already, or show a name as another one.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| is_plain(c) || c == '\n' || c == '\t';
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

/// `value` as indented JSON with a line feed at the end. Characters of its texts that are not plain are escaped as JSON
/// does, so that printing leaves them as they are.
///
/// # Errors
///
/// [`Failure`] if it cannot be serialized.
pub fn json<T: Serialize>(value: &T) -> Result<String, Failure> {
    match serde_json::to_string_pretty(value) {
        Ok(text) => Ok(escaped_json(&text) + "\n"),
        Err(error) => Err(Failure::to("write the result as JSON").caused_by(&error)),
    }
}

/// JSON with the characters escaped that are not plain. They stand in its texts only.
fn escaped_json(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_plain(c) || c == '\n' {
            escaped.push(c);
        } else {
            // All of them have four digits: they are in the basic plane.
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_written_out_and_lines_and_tables_stay() {
        assert_eq!(printable("a\tb\nπ µs"), "a\tb\nπ µs");
        assert_eq!(printable("abc\u{202e}tnemyap\u{2069}"), "abc\\u{202e}tnemyap\\u{2069}");
        assert_eq!(printable("x\u{1b}[2Jy\r\u{9b}z\u{7}"), "x\\u{1b}[2Jy\\u{d}\\u{9b}z\\u{7}");
    }

    #[test]
    fn json_stays_json_whatever_its_texts_hold() {
        let hostile = "\u{1b}[2J\u{9b}\u{7f}\u{202e}\n<script>";

        let text = json(&[hostile]).unwrap();

        assert!(text.trim_end().chars().all(|c| is_plain(c) || c == '\n'), "{text:?}");
        assert_eq!(printable(&text), text);
        assert_eq!(serde_json::from_str::<[String; 1]>(&text).unwrap(), [hostile]);
    }
}
