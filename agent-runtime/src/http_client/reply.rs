//! Reads what a response says about itself. Pure: time is an argument.

use core::time::Duration;
use std::time::UNIX_EPOCH;

use wire::printable;
use wire::time::{Nanos, UnixNanos};

/// Maximum characters of a response's body in a report.
const MAX_TEXT: usize = 400;

/// Parses `Retry-After`: a number of seconds, or a date, relative to `now`.
#[must_use]
pub fn retry_after(text: &str, now: UnixNanos) -> Option<Nanos> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Nanos::from_secs(seconds));
    }
    let date: Duration = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(UnixNanos(u64::try_from(date.as_nanos()).unwrap_or(u64::MAX)).since(now))
}

/// Status and beginning of a response's body in one line, of at most 400 characters and a status: the text goes to
/// logs and to the status.
#[must_use]
pub fn excerpt(body: &[u8], status: u16) -> String {
    let text = String::from_utf8_lossy(body);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line: String = printable::line(&words).chars().take(MAX_TEXT).collect();
    format!("status {status}: {line}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixNanos = UnixNanos::from_secs(784_111_770);

    #[test]
    fn retry_after_is_a_number_or_a_date() {
        assert_eq!(retry_after(" 120 ", NOW), Some(Nanos::from_secs(120)));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:37 GMT", NOW), Some(Nanos::from_secs(7)));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:40:00 GMT", NOW), Some(Nanos::ZERO));
        for nothing in ["", "soon", "-5", "1.5"] {
            assert_eq!(retry_after(nothing, NOW), None, "{nothing}");
        }
    }

    #[test]
    fn what_a_receiver_wrote_is_one_line_without_control_characters() {
        assert_eq!(excerpt(b"out of\r\n  order", 400), "status 400: out of order");
        assert_eq!(excerpt(b"\x1b[2Jgone\xff", 500), "status 500: \\u{1b}[2Jgone\u{fffd}");
        assert_eq!(excerpt(&vec![b'a'; 70_000], 500).len(), "status 500: ".len() + MAX_TEXT);
    }
}
