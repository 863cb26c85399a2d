//! The first bytes of a turn, in either direction.

/// Bytes of a read or write that are looked at, at most.
pub const HEAD_BYTES: usize = 512;
/// Arguments of a RESP command that are looked at, at most.
const ARGUMENTS: usize = 16;
/// Digits of a number in RESP, at most.
const DIGITS: usize = 9;
/// Methods of HTTP/1 after which a body may come, then those after which none comes.
const WITH_BODY: [&[u8]; 5] = [b"POST ", b"PUT ", b"PATCH ", b"CONNECT ", b"DELETE "];
const WITHOUT_BODY: [&[u8]; 4] = [b"GET ", b"HEAD ", b"OPTIONS ", b"TRACE "];

/// What the first bytes of an inbound turn are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// A TLS record: a handshake.
    Tls,
    /// The preface of HTTP/2, whose requests overlap.
    Http2,
    /// A request of HTTP/1.
    Http {
        /// Another request follows in the same bytes.
        pipelined: bool,
    },
    /// A command of Redis, as an array of bulk strings.
    Resp {
        /// Another command follows in the same bytes.
        pipelined: bool,
    },
    /// Anything else that came.
    Other,
}

/// What the first bytes of an outbound turn are, if the client speaks HTTP/1 or RESP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A status line of HTTP/1, 100 to 599.
    Http(u16),
    /// A reply of RESP. `MOVED` and `ASK` name another node and are no errors.
    Resp {
        /// Whether it is an error.
        error: bool,
    },
    /// Anything else that came.
    Other,
}

/// What the first bytes `head` of an inbound turn are. Looks at [`HEAD_BYTES`] at most.
#[must_use]
pub fn question(head: &[u8]) -> Question {
    let head = head.get(..HEAD_BYTES).unwrap_or(head);
    match head {
        [0x16, 0x03, ..] => Question::Tls,
        [b'*', b'0'..=b'9', ..] => Question::Resp { pipelined: command(head).is_some_and(|end| end < head.len()) },
        [b'P', b'R', b'I', b' ', b'*', ..] => Question::Http2,
        [b'A'..=b'Z', ..] => request(head),
        _ => Question::Other,
    }
}

/// What the first bytes `head` of an answer are, to a client that speaks HTTP/1 if `is_http`, else RESP.
#[must_use]
pub fn answer(head: &[u8], is_http: bool) -> Answer {
    match head {
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', _, b' ', digits @ ..] if is_http => status(digits),
        [b'-', rest @ ..] if !is_http => {
            Answer::Resp { error: !(rest.starts_with(b"MOVED ") || rest.starts_with(b"ASK ")) }
        }
        [b'!', ..] if !is_http => Answer::Resp { error: true },
        [_, ..] if !is_http => Answer::Resp { error: false },
        _ => Answer::Other,
    }
}

fn status(digits: &[u8]) -> Answer {
    match digits {
        [a @ b'1'..=b'5', b @ b'0'..=b'9', c @ b'0'..=b'9', ..] => {
            Answer::Http(u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0'))
        }
        _ => Answer::Other,
    }
}

fn request(head: &[u8]) -> Question {
    if WITHOUT_BODY.iter().any(|method| head.starts_with(method)) {
        let next = end_of_fields(head).and_then(|end| head.get(end));
        return Question::Http { pipelined: next.is_some_and(u8::is_ascii_uppercase) };
    }
    if WITH_BODY.iter().any(|method| head.starts_with(method)) {
        return Question::Http { pipelined: false };
    }
    Question::Other
}

/// Where the first empty line ends. Looks at every fourth byte, and closer only where one of the line's may be.
fn end_of_fields(head: &[u8]) -> Option<usize> {
    let mut at = 3;
    loop {
        match head.get(at)? {
            b'\n' if head.get(at - 3..=at)? == b"\r\n\r\n" => return Some(at + 1),
            // The second byte of the four or the fourth.
            b'\n' => at += 2,
            // The first or the third.
            b'\r' => at += 1,
            _ => at += 4,
        }
    }
}

/// Where the first command ends: an array of bulk strings. `None` if it ends beyond `head`, or is too long to look at.
fn command(head: &[u8]) -> Option<usize> {
    let (arguments, mut at) = number(head, 1)?;
    if arguments > ARGUMENTS {
        return None;
    }
    for _ in 0..arguments {
        if *head.get(at)? != b'$' {
            return None;
        }
        let (bytes, start) = number(head, at + 1)?;
        at = start.checked_add(bytes)?.checked_add(2)?;
    }
    (at <= head.len()).then_some(at)
}

/// The number at `at`, and what comes after the end of its line.
fn number(head: &[u8], at: usize) -> Option<(usize, usize)> {
    let mut value = 0_usize;
    for digits in 0..=DIGITS {
        match head.get(at + digits)? {
            digit @ b'0'..=b'9' => value = value.wrapping_mul(10).wrapping_add(usize::from(digit - b'0')),
            b'\r' if digits > 0 && *head.get(at + digits + 1)? == b'\n' => return Some((value, at + digits + 2)),
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_known_by_its_first_bytes() {
        for (head, expected) in [
            (&b"\x16\x03\x01\x02\x00\x01"[..], Question::Tls),
            (b"\x16", Question::Other),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Question::Http2),
            (b"GET / HTTP/1.1\r\n\r\n", Question::Http { pipelined: false }),
            (b"GETTY", Question::Other),
            (b"POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nABC", Question::Http { pipelined: false }),
            (b"*1\r\n$4\r\nPING\r\n", Question::Resp { pipelined: false }),
            (b"PING\r\n", Question::Other),
            (b"*x", Question::Other),
            (b"Q\0\0\0\x0bCOMMIT\0", Question::Other),
            (b"", Question::Other),
        ] {
            assert_eq!(question(head), expected, "{head:?}");
        }
    }

    #[test]
    fn requests_that_do_not_wait_for_an_answer_are_noticed() {
        for (head, expected) in [
            (&b"GET /a HTTP/1.1\r\nhost: b\r\n\r\nGET /c HTTP/1.1\r\n\r\n"[..], true),
            (b"GET /a HTTP/1.1\r\nhost: b\r\n\r\n{\"a\": 1}", false),
            (b"GET /a HTTP/1.1\r\nhost: b\r\n", false),
            (b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", true),
            (b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", false),
            (b"*2\r\n$3\r\nGET\r\n$900000000\r\nk\r\n", false),
            (b"*99\r\n$3\r\nGET\r\n", false),
            (b"*2\r\n$3\r\nGET\r\n$18446744073709551615\r\n", false),
        ] {
            let pipelined = match question(head) {
                Question::Http { pipelined } | Question::Resp { pipelined } => pipelined,
                other => unreachable!("{other:?}"),
            };
            assert_eq!(pipelined, expected, "{}", head.escape_ascii());
        }
    }

    #[test]
    fn the_empty_line_is_found_wherever_it_is() {
        for length in 0..64 {
            for filler in [b'a', b'\r', b'\n'] {
                let mut text = vec![filler; length];
                text.extend_from_slice(b"x\r\n\r\n");
                let expected = text.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
                text.extend_from_slice(b"GET");
                assert_eq!(end_of_fields(&text), expected, "{}", text.escape_ascii());
            }
        }
    }

    #[test]
    fn an_answer_says_whether_it_failed() {
        for (head, is_http, expected) in [
            (&b"HTTP/1.1 503 Service Unavailable"[..], true, Answer::Http(503)),
            (b"HTTP/1.0 200", true, Answer::Http(200)),
            (b"HTTP/1.1 999", true, Answer::Other),
            (b"HTTP/1.1 20", true, Answer::Other),
            (b"<html>", true, Answer::Other),
            (b"-ERR unknown command", false, Answer::Resp { error: true }),
            (b"-MOVED 3999 127.0.0.1:6381", false, Answer::Resp { error: false }),
            (b"!21\r\nSYNTAX", false, Answer::Resp { error: true }),
            (b"+OK\r\n", false, Answer::Resp { error: false }),
            (b"", false, Answer::Other),
        ] {
            assert_eq!(answer(head, is_http), expected, "{}", head.escape_ascii());
        }
    }
}
