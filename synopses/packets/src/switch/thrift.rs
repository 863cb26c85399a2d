//! How the reference switch (`simple_switch`) is asked for its registers and its time: calls of its control interface,
//! in Thrift's binary protocol, without a library. The switch answers in the order of the calls.

use std::io::{self, Read, Write};

use thiserror::Error;

use super::MAX_ENTRIES;

/// Services of the switch, in front of the names of their calls. Answers have the name only.
const STANDARD: &str = "standard:";
const SIMPLE_SWITCH: &str = "simple_switch:";
/// The call that reads an array of registers.
const READ_ALL: &str = "bm_register_read_all";
/// First word of a message: version, and kind.
const VERSION: u32 = 0x8001_0000;
const KIND_CALL: u8 = 1;
const KIND_REPLY: u8 = 2;
const KIND_EXCEPTION: u8 = 3;
/// Types of fields.
const STOP: u8 = 0;
const I32: u8 = 8;
const I64: u8 = 10;
const STRING: u8 = 11;
const STRUCT: u8 = 12;
const LIST: u8 = 15;
/// Most bytes of a name or text.
const MAX_TEXT: usize = 1 << 10;
const ANOTHER_CALL: ThriftError = ThriftError::Protocol("another call");

/// Why registers were not read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ThriftError {
    /// The connection failed, or is too slow.
    #[error("the switch does not answer")]
    Io(#[from] io::Error),
    /// The switch does not have these registers.
    #[error("the switch has no registers {0}: it runs another program")]
    NoRegisters(String),
    /// The switch does not know the call.
    #[error("the switch refuses the call: {0}")]
    Refused(String),
    /// The answer is not one of this protocol.
    #[error("not the answer of a switch: {0}")]
    Protocol(&'static str),
}

/// A time that a switch can say, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchTime {
    /// Since it started: the time of its live packets.
    Elapsed,
    /// Since 1970, by the clock of its machine.
    Epoch,
}

impl SwitchTime {
    const ALL: [Self; 2] = [Self::Elapsed, Self::Epoch];

    /// Name of the call.
    const fn name(self) -> &'static str {
        match self {
            Self::Elapsed => "get_time_elapsed_us",
            Self::Epoch => "get_time_since_epoch_us",
        }
    }
}

/// Asks for all entries of an array, by its full name, as the compiled program has it.
///
/// # Errors
///
/// [`ThriftError::Io`] if writing fails.
pub fn ask(mut to: impl Write, name: &str, sequence: u32) -> Result<(), ThriftError> {
    let mut out = begun(KIND_CALL, &format!("{STANDARD}{READ_ALL}"), sequence);
    // Context 0, name.
    out.extend([I32, 0, 1, 0, 0, 0, 0, STRING, 0, 2]);
    put_text(&mut out, name);
    out.push(STOP);
    Ok(to.write_all(&out)?)
}

/// Asks for a time.
///
/// # Errors
///
/// [`ThriftError::Io`] if writing fails.
pub fn ask_time(mut to: impl Write, time: SwitchTime, sequence: u32) -> Result<(), ThriftError> {
    let mut out = begun(KIND_CALL, &format!("{SIMPLE_SWITCH}{}", time.name()), sequence);
    out.push(STOP);
    Ok(to.write_all(&out)?)
}

/// The begin of a message.
fn begun(kind: u8, name: &str, sequence: u32) -> Vec<u8> {
    let mut out = (VERSION | u32::from(kind)).to_be_bytes().to_vec();
    put_text(&mut out, name);
    out.extend(sequence.to_be_bytes());
    out
}

/// Reads the answer to the call `sequence` about the array `name`.
///
/// # Errors
///
/// [`ThriftError`] if there is none, or it is an error. The connection cannot be used again.
pub fn answer(from: impl Read, name: &str, sequence: u32) -> Result<Vec<u64>, ThriftError> {
    let mut reader = Reader(from);
    reader.reply(READ_ALL, sequence)?;
    match reader.field()? {
        Some((LIST, 0)) => {}
        Some((STRUCT, 1)) => {
            reader.skip_code()?;
            return Err(ThriftError::NoRegisters(name.to_owned()));
        }
        _ => return Err(ThriftError::Protocol("it has no registers")),
    }
    if reader.byte()? != I64 {
        return Err(ThriftError::Protocol("registers are no numbers of 64 bits"));
    }
    let entries = reader.word()? as usize;
    if entries > MAX_ENTRIES {
        return Err(ThriftError::Protocol("it has more registers than a program"));
    }
    let all = (0..entries).map(|_| reader.array::<8>().map(u64::from_be_bytes)).collect::<Result<_, _>>()?;
    reader.stop()?;
    Ok(all)
}

/// Reads the answer to the call `sequence` about a time, in microseconds.
///
/// # Errors
///
/// [`ThriftError`] if there is none, or it is an error. The connection cannot be used again.
pub fn answer_time(from: impl Read, time: SwitchTime, sequence: u32) -> Result<u64, ThriftError> {
    let mut reader = Reader(from);
    reader.reply(time.name(), sequence)?;
    if reader.field()? != Some((I64, 0)) {
        return Err(ThriftError::Protocol("it has no time"));
    }
    let time_us = reader.array().map(u64::from_be_bytes)?;
    reader.stop()?;
    Ok(time_us)
}

/// A call that a switch gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What it is about.
    pub subject: CallSubject,
    /// Number of the call.
    pub sequence: u32,
}

/// What a call is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallSubject {
    /// All entries of the array with this name.
    Registers(String),
    /// The switch's time.
    Time(SwitchTime),
}

/// Reads a call, as a switch; `None` at the end of the connection.
///
/// # Errors
///
/// [`ThriftError`] if it is another call.
pub fn call(mut from: impl Read) -> Result<Option<Call>, ThriftError> {
    let mut first = [0];
    if from.read(&mut first)? == 0 {
        return Ok(None);
    }
    let mut reader = Reader(first.as_slice().chain(from));
    let (kind, name) = reader.head()?;
    if kind != KIND_CALL {
        return Err(ThriftError::Protocol("it is no call"));
    }
    let sequence = reader.word()?;
    let time =
        name.strip_prefix(SIMPLE_SWITCH).and_then(|name| SwitchTime::ALL.into_iter().find(|of| of.name() == name));
    let subject = match time {
        Some(time) => CallSubject::Time(time),
        None if name.strip_prefix(STANDARD) == Some(READ_ALL) => {
            if reader.field()? != Some((I32, 1)) || reader.word()? != 0 || reader.field()? != Some((STRING, 2)) {
                return Err(ThriftError::Protocol("a call has a context, 0, and a name"));
            }
            CallSubject::Registers(reader.text()?)
        }
        None => return Err(ANOTHER_CALL),
    };
    reader.stop()?;
    Ok(Some(Call { subject, sequence }))
}

/// Answers a call about registers, as a switch: with the entries, or that there are no such registers.
///
/// # Errors
///
/// [`ThriftError::Io`] if writing fails.
pub fn reply(mut to: impl Write, sequence: u32, entries: Option<&[u64]>) -> Result<(), ThriftError> {
    let mut out = begun(KIND_REPLY, READ_ALL, sequence);
    if let Some(entries) = entries {
        out.extend([LIST, 0, 0, I64]);
        out.extend((entries.len() as u32).to_be_bytes());
        out.extend(entries.iter().flat_map(|entry| entry.to_be_bytes()));
    } else {
        // InvalidRegisterOperation with the code of an unknown name.
        out.extend([STRUCT, 0, 1, I32, 0, 1, 0, 0, 0, 1, STOP]);
    }
    out.push(STOP);
    Ok(to.write_all(&out)?)
}

/// Answers a call about a time, as a switch.
///
/// # Errors
///
/// [`ThriftError::Io`] if writing fails.
pub fn reply_time(mut to: impl Write, sequence: u32, time: SwitchTime, time_us: u64) -> Result<(), ThriftError> {
    let mut out = begun(KIND_REPLY, time.name(), sequence);
    out.extend([I64, 0, 0]);
    out.extend(time_us.to_be_bytes());
    out.push(STOP);
    Ok(to.write_all(&out)?)
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u32).to_be_bytes());
    out.extend(text.as_bytes());
}

/// Reads messages piece by piece.
struct Reader<R>(R);

impl<R: Read> Reader<R> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], ThriftError> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn byte(&mut self) -> Result<u8, ThriftError> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn word(&mut self) -> Result<u32, ThriftError> {
        self.array().map(u32::from_be_bytes)
    }

    fn text(&mut self) -> Result<String, ThriftError> {
        let bytes = self.word()? as usize;
        if bytes > MAX_TEXT {
            return Err(ThriftError::Protocol("a text of more than 1,024 bytes"));
        }
        let mut text = vec![0; bytes];
        self.0.read_exact(&mut text)?;
        String::from_utf8(text).map_err(|_| ThriftError::Protocol("a text that is not UTF-8"))
    }

    /// Kind and name of a message.
    fn head(&mut self) -> Result<(u8, String), ThriftError> {
        let [version, low, zero, kind] = self.array()?;
        if [version, low, zero] != [0x80, 1, 0] {
            return Err(ThriftError::Protocol("another version"));
        }
        Ok((kind, self.text()?))
    }

    /// The begin of a reply to the call `sequence` of this name.
    fn reply(&mut self, name: &str, sequence: u32) -> Result<(), ThriftError> {
        let (kind, found) = self.head()?;
        // Exceptions carry the call's own name.
        if found != name && kind != KIND_EXCEPTION {
            return Err(ANOTHER_CALL);
        }
        if self.word()? != sequence {
            return Err(ThriftError::Protocol("it is to another call"));
        }
        match kind {
            KIND_REPLY => Ok(()),
            KIND_EXCEPTION => Err(self.exception()),
            _ => Err(ThriftError::Protocol("it is no reply")),
        }
    }

    /// Type and number of the next field; `None` at the end.
    fn field(&mut self) -> Result<Option<(u8, u16)>, ThriftError> {
        let kind = self.byte()?;
        if kind == STOP { Ok(None) } else { Ok(Some((kind, self.array().map(u16::from_be_bytes)?))) }
    }

    fn stop(&mut self) -> Result<(), ThriftError> {
        if self.byte()? == STOP { Ok(()) } else { Err(ThriftError::Protocol("it does not end")) }
    }

    /// The code of a refusal, if it has one, and the end of the message.
    fn skip_code(&mut self) -> Result<(), ThriftError> {
        match self.field()? {
            None => {}
            Some((I32, _)) => {
                self.word()?;
                self.stop()?;
            }
            Some(_) => return Err(ThriftError::Protocol("a refusal without a code")),
        }
        self.stop()
    }

    /// What the switch says instead of a reply.
    fn exception(&mut self) -> ThriftError {
        match self.field() {
            Ok(Some((STRING, 1))) => self.text().map_or_else(|error| error, ThriftError::Refused),
            Ok(_) => ThriftError::Refused("without a reason".to_owned()),
            Err(error) => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        ask(&mut bytes, name, 7).expect("memory");
        bytes
    }

    fn replied(entries: Option<&[u64]>) -> Vec<u8> {
        let mut bytes = Vec::new();
        reply(&mut bytes, 7, entries).expect("memory");
        bytes
    }

    #[test]
    fn a_switch_reads_what_an_agent_asks_and_an_agent_what_it_answers() {
        let asked = asked("Handshakes.Fridge.matched");
        let call = call(&*asked).expect("a call").expect("one");
        let subject = CallSubject::Registers("Handshakes.Fridge.matched".to_owned());
        assert_eq!(call, Call { subject, sequence: 7 });
        assert_eq!(super::call(b"".as_slice()).expect("the end"), None);

        assert_eq!(answer(&*replied(Some(&[1, 1 << 40])), "a", 7).expect("registers"), [1, 1 << 40]);
        let error = answer(&*replied(None), "a", 7).expect_err("none").to_string();
        assert_eq!(error, "the switch has no registers a: it runs another program");
        let error = answer(&*replied(Some(&[])), "a", 8).expect_err("another").to_string();
        assert_eq!(error, "not the answer of a switch: it is to another call");
    }

    #[test]
    fn a_switch_says_its_time_and_an_agent_reads_it() {
        for time in SwitchTime::ALL {
            let (mut asked, mut replied) = (Vec::new(), Vec::new());
            ask_time(&mut asked, time, 7).expect("memory");
            let call = call(&*asked).expect("a call").expect("one");
            assert_eq!(call, Call { subject: CallSubject::Time(time), sequence: 7 });

            reply_time(&mut replied, 7, time, 1 << 50).expect("memory");
            assert_eq!(answer_time(&*replied, time, 7).expect("a time"), 1 << 50);
            let error = answer_time(&*replied, time, 8).expect_err("another").to_string();
            assert_eq!(error, "not the answer of a switch: it is to another call");
            for end in 0..replied.len() {
                assert!(answer_time(&replied[..end], time, 7).is_err(), "{end}");
            }
        }
        let mut other = Vec::new();
        reply_time(&mut other, 7, SwitchTime::Epoch, 0).expect("memory");
        assert!(matches!(answer_time(&*other, SwitchTime::Elapsed, 7), Err(ThriftError::Protocol("another call"))));
    }

    /// Messages as the switch's own library writes them, byte for byte.
    #[test]
    fn the_calls_are_thrifts() {
        let mut expected = vec![0x80, 1, 0, 1, 0, 0, 0, 29];
        expected.extend(b"standard:bm_register_read_all");
        expected.extend([0, 0, 0, 7, 8, 0, 1, 0, 0, 0, 0, 11, 0, 2, 0, 0, 0, 1, b'a', 0]);
        assert_eq!(asked("a"), expected);

        let mut asked = Vec::new();
        ask_time(&mut asked, SwitchTime::Elapsed, 7).expect("memory");
        let name = b"simple_switch:get_time_elapsed_us";
        let expected = [&[0x80_u8, 1, 0, 1, 0, 0, 0, 33][..], name, &[0, 0, 0, 7, 0]];
        assert_eq!(asked, expected.concat());
    }

    /// What `simple_switch` 1.15.5 sent, four seconds after it had started.
    #[test]
    fn times_of_the_reference_switch_are_read_and_those_of_the_interpreter_are_the_same() {
        let answers = [
            (SwitchTime::Elapsed, 1, &b"\0\0\0\x13get_time_elapsed_us\0\0\0\x01\x0a\0\0"[..], 4_166_806),
            (SwitchTime::Epoch, 2, &b"\0\0\0\x17get_time_since_epoch_us\0\0\0\x02\x0a\0\0"[..], 1_795_977_705_073_309),
        ];
        for (time, sequence, head, time_us) in answers {
            let sent = [&[0x80, 1, 0, 2][..], head, &u64::to_be_bytes(time_us), &[0]].concat();
            assert_eq!(answer_time(&*sent, time, sequence).expect("a time"), time_us);
            let mut replied = Vec::new();
            reply_time(&mut replied, sequence, time, time_us).expect("memory");
            assert_eq!(replied, sent);
        }
    }

    /// What `simple_switch` 1.15.0 sent: the checksum of the tested fridge, and that it has no such registers.
    #[test]
    fn answers_of_the_reference_switch_are_read_and_those_of_the_interpreter_are_the_same() {
        let head = [&[0x80_u8, 1, 0, 2, 0, 0, 0, 20][..], b"bm_register_read_all", &[0, 0, 0, 7]].concat();
        let registers = [&head[..], &[15, 0, 0, 10, 0, 0, 0, 1, 0, 0, 0, 0, 0xe3, 0x62, 0xe0, 0xda, 0]].concat();
        let none = [&head[..], &[12, 0, 1, 8, 0, 1, 0, 0, 0, 1, 0, 0]].concat();

        assert_eq!(answer(&*registers, "a", 7).expect("registers"), [0xe362_e0da]);
        assert!(matches!(answer(&*none, "a", 7), Err(ThriftError::NoRegisters(name)) if name == "a"));
        assert_eq!((replied(Some(&[0xe362_e0da])), replied(None)), (registers, none));
    }

    #[test]
    fn a_refusal_has_one_code_or_none_and_is_not_read_any_further() {
        let name = b"bm_register_read_all";
        let head = [&[0x80_u8, 1, 0, 2, 0, 0, 0, 20][..], name, &[0, 0, 0, 7, STRUCT, 0, 1]].concat();
        let code = [I32, 0, 1, 0, 0, 0, 1];
        for (codes, is_refusal) in [(0, true), (1, true), (2, false)] {
            let sent = [&head[..], &code.repeat(codes)[..], &[STOP, STOP]].concat();
            let error = answer(&*sent, "a", 7).expect_err("no registers");
            assert_eq!(matches!(error, ThriftError::NoRegisters(_)), is_refusal, "{codes}: {error}");
        }
        // A switch that sends codes without end.
        let endless = head.as_slice().chain(io::repeat(I32));
        assert!(matches!(answer(endless, "a", 7), Err(ThriftError::Protocol("it does not end"))));
    }

    #[test]
    fn an_answer_that_is_cut_or_changed_is_an_error_and_takes_no_memory() {
        let whole = replied(Some(&[1, 2]));
        for end in 0..whole.len() {
            assert!(answer(&whole[..end], "a", 7).is_err(), "{end}");
        }
        for at in 0..36 {
            let mut changed = whole.clone();
            changed[at] ^= 0x40;
            assert!(answer(&*changed, "a", 7).is_err(), "byte {at}");
        }
    }
}
