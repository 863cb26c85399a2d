//! The state of a connection, which fits into one word, so that it can be changed by one atomic operation.

use crate::head::{Answer, Question, answer, question};

/// Nanoseconds of a tick, as a power of two.
const TICK_BITS: u32 = 4;
/// Bits of a time in the word.
const TIME_BITS: u32 = 48;
/// Bits of the word below the time.
const STATE_BITS: u32 = 16;
/// The mark of a word that holds a connection.
const TRACKED: u64 = 0b1;
const WAITING: u64 = 0b10;
const PROTOCOL_SHIFT: u32 = 2;
const PROTOCOL_MASK: u64 = 0b11;
/// Bits that no word of a connection has.
const UNUSED: u64 = 0b1111_0000;
const EPOCH_SHIFT: u32 = 8;

/// A time of a steady clock, in ticks of 16 ns; turns round after 52 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticks(u64);

/// A length of time in nanoseconds, to 16 ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(pub u64);

impl Ticks {
    /// A time in nanoseconds since the clock's start.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self((nanos >> TICK_BITS) & ((1 << TIME_BITS) - 1))
    }

    /// The time from `earlier` to `self`. 0 if `earlier` is later by less than half a turn of the clock, which happens
    /// when threads race.
    const fn since(self, earlier: Self) -> Duration {
        let ticks = self.0.wrapping_sub(earlier.0) & ((1 << TIME_BITS) - 1);
        Duration(if ticks >> (TIME_BITS - 1) == 0 { ticks << TICK_BITS } else { 0 })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    /// Not known yet, or none of those below.
    Unknown,
    Http,
    Resp,
    /// Turns say nothing about requests: TLS, HTTP/2, or what HTTP/1 was upgraded to.
    Opaque,
}

/// Why requests are not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// The connection is encrypted; its bytes are counted.
    Tls,
    /// The connection speaks HTTP/2, whose requests overlap; its bytes are counted.
    Http2,
    /// The connection was upgraded by status 101, such as to WebSocket; its bytes are counted.
    Upgraded,
    /// A turn has several requests, and is counted as one.
    Pipelined,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// HTTP/1: status 2xx, or 101.
    Success,
    /// HTTP/1: status 3xx.
    Redirection,
    /// HTTP/1: status 4xx.
    ClientError,
    /// HTTP/1: status 5xx.
    ServerError,
    /// RESP: a reply that is no error.
    Reply,
    /// RESP: an error.
    ErrorReply,
    /// Another protocol, of which only bytes and turns are known.
    Other,
}

/// What inbound bytes have begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inbound {
    /// A turn began.
    pub began: bool,
    /// Requests that will not be seen.
    pub unseen: Option<Unseen>,
}

/// A turn that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// From the first inbound byte to the answer.
    pub duration: Duration,
    /// How it ended.
    pub outcome: Outcome,
    /// Requests that will not be seen from now on.
    pub unseen: Option<Unseen>,
}

/// A connection that a server has accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    protocol: Protocol,
    /// When the turn began that waits for its answer.
    waiting: Option<Ticks>,
    epoch: u8,
}

impl Connection {
    /// The word in place of a connection that the process has opened itself, whose bytes are counted, and nothing else:
    /// not free, and no connection of this type.
    pub const OPENED: u64 = 0b1_0000;

    /// A connection that was accepted now, in the epoch of a process: another one after each fork.
    #[must_use]
    pub const fn new(epoch: u8) -> Self {
        Self { protocol: Protocol::Unknown, waiting: None, epoch }
    }

    /// The connection in a word, or `None` if the word has none or is impossible ([`Connection::is_free`]).
    #[must_use]
    #[inline]
    pub const fn from_word(word: u64) -> Option<Self> {
        if word & TRACKED == 0 || word & UNUSED != 0 {
            return None;
        }
        let protocol = match (word >> PROTOCOL_SHIFT) & PROTOCOL_MASK {
            0 => Protocol::Unknown,
            1 => Protocol::Http,
            2 => Protocol::Resp,
            _ => Protocol::Opaque,
        };
        let waiting = if word & WAITING == 0 { None } else { Some(Ticks(word >> STATE_BITS)) };
        Some(Self { protocol, waiting, epoch: (word >> EPOCH_SHIFT) as u8 })
    }

    /// Whether a word holds no connection: 0, as memory is when it is new.
    #[must_use]
    #[inline]
    pub const fn is_free(word: u64) -> bool {
        word == 0
    }

    /// The connection as a word, never 0.
    #[must_use]
    #[inline]
    pub const fn word(self) -> u64 {
        let (waiting, time) = match self.waiting {
            Some(Ticks(ticks)) => (WAITING, ticks << STATE_BITS),
            None => (0, 0),
        };
        TRACKED | waiting | (self.protocol as u64) << PROTOCOL_SHIFT | (self.epoch as u64) << EPOCH_SHIFT | time
    }

    /// The epoch in which the connection was accepted or adopted.
    #[must_use]
    pub const fn epoch(self) -> u8 {
        self.epoch
    }

    /// The same connection, used from now on by a forked child in its own epoch.
    #[must_use]
    pub const fn adopted(self, epoch: u8) -> Self {
        Self { epoch, ..self }
    }

    /// Whether a turn waits for its answer.
    #[must_use]
    pub const fn is_waiting(self) -> bool {
        self.waiting.is_some()
    }

    /// Whether inbound bytes can change the state.
    #[must_use]
    #[inline]
    pub const fn awaits_inbound(self) -> bool {
        self.waiting.is_none() && !matches!(self.protocol, Protocol::Opaque)
    }

    /// Bytes were read, the first of which are `head`, at `now`.
    #[inline]
    pub fn received(&mut self, now: Ticks, head: &[u8]) -> Inbound {
        let nothing = Inbound { began: false, unseen: None };
        if !self.awaits_inbound() {
            return nothing;
        }
        let (protocol, unseen) = match question(head) {
            Question::Tls => (Protocol::Opaque, Some(Unseen::Tls)),
            Question::Http2 => (Protocol::Opaque, Some(Unseen::Http2)),
            Question::Http { pipelined } => (Protocol::Http, pipelined.then_some(Unseen::Pipelined)),
            Question::Resp { pipelined } => (Protocol::Resp, pipelined.then_some(Unseen::Pipelined)),
            Question::Other => (self.protocol, None),
        };
        self.protocol = protocol;
        if protocol == Protocol::Opaque {
            return Inbound { began: false, unseen };
        }
        self.waiting = Some(now);
        Inbound { began: true, unseen }
    }

    /// Bytes were written, the first of which are `head`, by a call that began at `now`. The turn, if that ends one: an
    /// interim answer (status 1xx) does not.
    #[inline]
    pub fn sent(&mut self, now: Ticks, head: &[u8]) -> Option<Turn> {
        let began = self.waiting?;
        let answer = match self.protocol {
            Protocol::Http => answer(head, true),
            Protocol::Resp => answer(head, false),
            Protocol::Unknown | Protocol::Opaque => Answer::Other,
        };
        let mut unseen = None;
        let outcome = match answer {
            Answer::Http(101) => {
                (self.protocol, unseen) = (Protocol::Opaque, Some(Unseen::Upgraded));
                Outcome::Success
            }
            Answer::Http(100..=199) => return None,
            Answer::Http(200..=299) => Outcome::Success,
            Answer::Http(300..=399) => Outcome::Redirection,
            Answer::Http(400..=499) => Outcome::ClientError,
            Answer::Http(_) => Outcome::ServerError,
            Answer::Resp { error: false } => Outcome::Reply,
            Answer::Resp { error: true } => Outcome::ErrorReply,
            Answer::Other => Outcome::Other,
        };
        self.waiting = None;
        Some(Turn { duration: now.since(began), outcome, unseen })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(nanos: u64) -> Ticks {
        Ticks::from_nanos(nanos)
    }

    #[test]
    fn a_turn_lasts_from_its_first_inbound_byte_to_its_first_answer() {
        let mut connection = Connection::new(0);

        assert!(connection.received(at(1_600), b"*1\r\n$4\r\nPI").began);
        assert!(!connection.received(at(3_200), b"NG\r\n").began, "the turn goes on");
        let turn = connection.sent(at(16_000), b"+PONG\r\n").unwrap();

        assert_eq!(turn, Turn { duration: Duration(14_400), outcome: Outcome::Reply, unseen: None });
        assert_eq!(connection.sent(at(20_000), b"more"), None, "a turn has one answer");
    }

    #[test]
    fn an_interim_answer_does_not_end_a_turn_and_an_upgrade_ends_what_is_seen() {
        let mut connection = Connection::new(0);
        connection.received(at(0), b"POST / HTTP/1.1\r\n\r\n");

        assert_eq!(connection.sent(at(16), b"HTTP/1.1 100 Continue\r\n\r\n"), None);
        let turn = connection.sent(at(32), b"HTTP/1.1 503 Busy\r\n").unwrap();
        assert_eq!((turn.outcome, turn.duration), (Outcome::ServerError, Duration(32)));

        connection.received(at(48), b"GET /chat HTTP/1.1\r\n\r\n");
        let turn = connection.sent(at(64), b"HTTP/1.1 101 Switching Protocols\r\n").unwrap();
        assert_eq!((turn.outcome, turn.unseen), (Outcome::Success, Some(Unseen::Upgraded)));
        assert!(!connection.received(at(80), b"GET / HTTP/1.1\r\n\r\n").began);
    }

    #[test]
    fn encrypted_connections_have_no_turns_and_say_so_once() {
        // PostgreSQL: the client asks for TLS in the clear, the server says S.
        let mut connection = Connection::new(0);
        connection.received(at(0), &[0, 0, 0, 8, 4, 210, 22, 47]);
        assert_eq!(connection.sent(at(16), b"S").map(|turn| turn.outcome), Some(Outcome::Other));

        let hello = connection.received(at(32), &[0x16, 0x03, 0x01]);
        assert_eq!(hello, Inbound { began: false, unseen: Some(Unseen::Tls) });
        assert_eq!(connection.sent(at(48), &[0x16, 0x03, 0x03]), None);
        assert_eq!(connection.received(at(64), &[0x16, 0x03, 0x01]), Inbound { began: false, unseen: None });
    }

    #[test]
    fn a_server_that_speaks_first_has_no_turn() {
        let mut connection = Connection::new(0);

        assert_eq!(connection.sent(at(16), b"220 mail ESMTP\r\n"), None);
        assert!(connection.received(at(32), b"EHLO me\r\n").began);
    }

    #[test]
    fn a_word_with_bits_that_no_connection_has_is_none() {
        assert!(Connection::is_free(0));
        assert_eq!(Connection::from_word(0), None);
        assert_eq!(Connection::from_word(Connection::new(3).word() | 0b1_0000), None);
        assert_eq!(Connection::from_word(Connection::OPENED), None);
        assert!(!Connection::is_free(Connection::OPENED));
        assert_eq!(Connection::from_word(Connection::new(3).word()).map(Connection::epoch), Some(3));
    }

    #[test]
    fn the_clock_may_turn_round_and_threads_may_race() {
        let mut connection = Connection::new(0);
        connection.received(at(u64::MAX), b"a");
        assert_eq!(connection.sent(at(144), b"b").map(|turn| turn.duration), Some(Duration(160)));

        connection.received(at(160), b"a");
        assert_eq!(connection.sent(at(144), b"b").map(|turn| turn.duration), Some(Duration(0)));
    }
}
