//! What a server reads and writes.

use turns::{Connection, Ticks};

/// Reads and writes of one connection: a byte with the direction and the pause, a byte with the length, then the bytes.
///
/// # Panics
///
/// If turns do not alternate, or a word loses what it holds.
pub fn turns(bytes: &[u8]) {
    let (mut connection, mut now) = (Connection::new(0), 0_u64);
    let mut rest = bytes;
    while let [how, length, tail @ ..] = rest {
        let (head, tail) = tail.split_at(tail.len().min(usize::from(*length)));
        rest = tail;
        now = now.wrapping_add(u64::from(how & 0x7f) << 40);
        let before = connection.is_waiting();
        if how & 0x80 == 0 {
            let began = connection.received(Ticks::from_nanos(now), head).began;
            assert!(!(began && before), "a turn began within a turn");
        } else {
            let turn = connection.sent(Ticks::from_nanos(now), head);
            assert!(turn.is_none() || before, "a turn ended that had not begun");
        }
        assert_eq!(Connection::from_word(connection.word()), Some(connection));
    }
}
