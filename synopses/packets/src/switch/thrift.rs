//! How the reference switch (`simple_switch`) is asked for its registers: one call of its control interface, in
//! Thrift's binary protocol, without a library. The switch answers in the order of the calls.

use std::io::{self, Read, Write};

use thiserror::Error;

use super::MAX_ENTRIES;

/// The call, as the switch's multiplexer names it, and as the answer does.
const CALL: &str = "standard:bm_register_read_all";
const ANSWER: &str = "bm_register_read_all";
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
    #[error("the switch refuses to read registers: {0}")]
    Refused(String),
    /// The answer is not one of this protocol.
    #[error("not the answer of a switch: {0}")]
    Protocol(&'static str),
}

/// Asks for all entries of an array, by its full name, as the compiled program has it.
///
/// # Errors
///
/// [`ThriftError::Io`] if writing fails.
pub fn ask(mut to: impl Write, name: &str, sequence: u32) -> Result<(), ThriftError> {
    let mut out = Vec::new();
    out.extend((VERSION | u32::from(KIND_CALL)).to_be_bytes());
    put_text(&mut out, CALL);
    out.extend(sequence.to_be_bytes());
    // Context 0, name.
    out.extend([I32, 0, 1, 0, 0, 0, 0, STRING, 0, 2]);
    put_text(&mut out, name);
    out.push(STOP);
    Ok(to.write_all(&out)?)
}

/// Reads the answer to the call `sequence` about the array `name`.
///
/// # Errors
///
/// [`ThriftError`] if there is none, or it is an error. The connection cannot be used again.
pub fn answer(from: impl Read, name: &str, sequence: u32) -> Result<Vec<u64>, ThriftError> {
    let mut reader = Reader(from);
    let kind = reader.head(ANSWER)?;
    if reader.word()? != sequence {
        return Err(ThriftError::Protocol("it is to another call"));
    }
    match kind {
        KIND_REPLY => {}
        KIND_EXCEPTION => return Err(reader.exception()),
        _ => return Err(ThriftError::Protocol("it is no reply")),
    }
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

/// A call that a switch gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Name of the array.
    pub name: String,
    /// Number of the call.
    pub sequence: u32,
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
    if reader.head(CALL)? != KIND_CALL {
        return Err(ThriftError::Protocol("it is no call"));
    }
    let sequence = reader.word()?;
    if reader.field()? != Some((I32, 1)) || reader.word()? != 0 || reader.field()? != Some((STRING, 2)) {
        return Err(ThriftError::Protocol("a call has a context, 0, and a name"));
    }
    let name = reader.text()?;
    reader.stop()?;
    Ok(Some(Call { name, sequence }))
}

/// Answers a call, as a switch: with the entries, or that there are no such registers.
///
/// # Errors
///
/// [`ThriftError::Io`] if writing fails.
pub fn reply(mut to: impl Write, call: &Call, entries: Option<&[u64]>) -> Result<(), ThriftError> {
    let mut out = Vec::new();
    out.extend((VERSION | u32::from(KIND_REPLY)).to_be_bytes());
    put_text(&mut out, ANSWER);
    out.extend(call.sequence.to_be_bytes());
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

    /// The kind of a message about `name`.
    fn head(&mut self, name: &str) -> Result<u8, ThriftError> {
        let [version, low, zero, kind] = self.array()?;
        if [version, low, zero] != [0x80, 1, 0] {
            return Err(ThriftError::Protocol("another version"));
        }
        // Exceptions carry the call's own name.
        let found = self.text()?;
        if found == name || kind == KIND_EXCEPTION { Ok(kind) } else { Err(ThriftError::Protocol("another call")) }
    }

    /// Type and number of the next field; `None` at the end.
    fn field(&mut self) -> Result<Option<(u8, u16)>, ThriftError> {
        let kind = self.byte()?;
        if kind == STOP { Ok(None) } else { Ok(Some((kind, self.array().map(u16::from_be_bytes)?))) }
    }

    fn stop(&mut self) -> Result<(), ThriftError> {
        if self.byte()? == STOP { Ok(()) } else { Err(ThriftError::Protocol("it does not end")) }
    }

    /// The code of a refusal, and the end of the message.
    fn skip_code(&mut self) -> Result<(), ThriftError> {
        while let Some((kind, _)) = self.field()? {
            if kind != I32 {
                return Err(ThriftError::Protocol("a refusal without a code"));
            }
            self.word()?;
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
        reply(&mut bytes, &Call { name: "a".to_owned(), sequence: 7 }, entries).expect("memory");
        bytes
    }

    #[test]
    fn a_switch_reads_what_an_agent_asks_and_an_agent_what_it_answers() {
        let asked = asked("Handshakes.Fridge.matched");
        let call = call(&*asked).expect("a call").expect("one");
        assert_eq!(call, Call { name: "Handshakes.Fridge.matched".to_owned(), sequence: 7 });
        assert_eq!(super::call(b"".as_slice()).expect("the end"), None);

        assert_eq!(answer(&*replied(Some(&[1, 1 << 40])), "a", 7).expect("registers"), [1, 1 << 40]);
        let error = answer(&*replied(None), "a", 7).expect_err("none").to_string();
        assert_eq!(error, "the switch has no registers a: it runs another program");
        let error = answer(&*replied(Some(&[])), "a", 8).expect_err("another").to_string();
        assert_eq!(error, "not the answer of a switch: it is to another call");
    }

    /// A message as the switch's own library writes it, byte for byte.
    #[test]
    fn the_call_is_thrifts() {
        let mut expected = vec![0x80, 1, 0, 1, 0, 0, 0, 29];
        expected.extend(b"standard:bm_register_read_all");
        expected.extend([0, 0, 0, 7, 8, 0, 1, 0, 0, 0, 0, 11, 0, 2, 0, 0, 0, 1, b'a', 0]);
        assert_eq!(asked("a"), expected);
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
