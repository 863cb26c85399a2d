//! Whatever a program reads and writes, its connections are in a state that fits into a word, and turns alternate.

use proptest::collection::vec;
use proptest::prelude::*;
use turns::{Answer, Connection, Duration, Question, Ticks, answer, question};

/// Bytes that resemble a protocol now and then.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        &b"*1\r\n$4\r\nPING\r\n"[..],
        b"GET / HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"-ERR no\r\n",
        b"\x16\x03\x01",
        b"PRI * HTTP/2.0",
    ]);
    prop_oneof![vec(any::<u8>(), 0..40), (known, vec(any::<u8>(), 0..40)).prop_map(|(a, b)| [a, &b].concat())]
}

proptest! {
    #[test]
    fn a_connection_survives_its_word(
        steps in vec((any::<bool>(), bytes(), 0_u64..1_000_000_000), 0..40),
        epoch: u8,
        start: u64,
    ) {
        let mut connection = Connection::new(epoch);
        let (mut now, mut began) = (start, None);
        for (inbound, head, pause) in steps {
            now = now.wrapping_add(pause);
            let time = Ticks::from_nanos(now);
            if inbound {
                let change = connection.received(time, &head);
                prop_assert!(!(change.began && began.is_some()), "a turn began within a turn");
                began = if change.began { Some(now) } else { began };
            } else if let Some(turn) = connection.sent(time, &head) {
                let passed = now.wrapping_sub(began.take().expect("a turn that ends has begun"));
                prop_assert!(turn.duration.0.abs_diff(passed) <= 16, "{:?} of {passed}", turn.duration);
            }
            prop_assert_eq!(connection.is_waiting(), began.is_some());
            prop_assert_eq!(Connection::from_word(connection.word()), Some(connection));
            prop_assert!(!Connection::is_free(connection.word()));
        }
    }

    #[test]
    fn any_word_is_a_connection_or_none_and_never_two(word: u64) {
        if let Some(connection) = Connection::from_word(word) {
            let again = Connection::from_word(connection.word());
            prop_assert_eq!(again, Some(connection));
        }
    }

    #[test]
    fn a_lone_command_is_not_pipelined_and_two_are(arguments in vec(vec(any::<u8>(), 0..20), 1..8)) {
        let mut command = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in &arguments {
            command.extend(format!("${}\r\n", argument.len()).into_bytes());
            command.extend(argument);
            command.extend(b"\r\n");
        }
        prop_assert_eq!(question(&command), Question::Resp { pipelined: false });
        let twice = [&command[..], &command[..]].concat();
        prop_assert_eq!(question(&twice), Question::Resp { pipelined: true });
    }

    #[test]
    fn a_status_is_what_the_line_says(status in 100_u16..600, rest in vec(any::<u8>(), 0..20)) {
        let head = [format!("HTTP/1.1 {status} ").as_bytes(), &rest].concat();
        prop_assert_eq!(answer(&head, true), Answer::Http(status));
    }
}

#[test]
fn durations_are_in_nanoseconds() {
    let mut connection = Connection::new(0);
    connection.received(Ticks::from_nanos(0), b"a");
    assert_eq!(connection.sent(Ticks::from_nanos(1 << 40), b"b").map(|turn| turn.duration), Some(Duration(1 << 40)));
}
