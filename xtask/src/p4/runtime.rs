//! The switch's run-time interface, as far as it is needed: Thrift's binary protocol over TCP, one call at a time.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

/// First bytes of a call and of its reply in this protocol.
const CALL: u32 = 0x8001_0001;
const REPLY: u32 = 0x8001_0002;
/// Types of fields.
const STOP: u8 = 0;
const WORD: u8 = 8;
const LONG: u8 = 10;
const TEXT: u8 = 11;
const LIST: u8 = 15;
/// The most entries of one array that are read.
const MAX_ENTRIES: u32 = 1 << 22;
/// How long a reply may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to a switch.
#[derive(Debug)]
pub struct Runtime(TcpStream);

impl Runtime {
    /// Connects to the switch on this machine.
    ///
    /// # Errors
    ///
    /// Nobody listens there.
    pub fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(stream))
    }

    /// Lets the queue in front of each port hold this many frames; 64 by default.
    ///
    /// # Errors
    ///
    /// The connection broke.
    pub fn set_queues(&mut self, frames: u32) -> Result<()> {
        let mut arguments = Vec::from([WORD, 0, 1]);
        arguments.extend(frames.to_be_bytes());
        self.call("simple_switch:set_all_egress_queue_depths", &arguments)?;
        // What is returned, a word, is always 0.
        self.bytes(1 + 2 + 4 + 1).map(drop)
    }

    /// All entries of an array of registers.
    ///
    /// # Errors
    ///
    /// There is no such array, or the connection broke.
    pub fn registers(&mut self, name: &str) -> Result<Vec<i64>> {
        // The first argument is the context, which is 0.
        let mut arguments = Vec::from([WORD, 0, 1, 0, 0, 0, 0, TEXT, 0, 2]);
        text(&mut arguments, name);
        self.call("standard:bm_register_read_all", &arguments)?;
        let kind = self.bytes(1)?[0];
        let field = self.bytes(2)?;
        // Field 0 is the result, any other one an exception, of which nothing more is to be had.
        ensure!((kind, field.as_slice()) == (LIST, &[0, 0]), "the switch has no registers {name}");
        ensure!(self.bytes(1)?[0] == LONG, "registers {name} are no list of numbers");
        let size = self.word()?;
        ensure!(size <= MAX_ENTRIES, "{size} registers {name}");
        let bytes = self.bytes(size as usize * 8)?;
        ensure!(self.bytes(1)?[0] == STOP, "a reply with more than the registers {name}");
        Ok(bytes.as_chunks::<8>().0.iter().map(|entry| i64::from_be_bytes(*entry)).collect())
    }

    /// Sends a call, and reads its reply up to the first field.
    fn call(&mut self, method: &str, arguments: &[u8]) -> Result<()> {
        let mut call = CALL.to_be_bytes().to_vec();
        text(&mut call, method);
        call.extend(0_u32.to_be_bytes());
        call.extend(arguments);
        call.push(STOP);
        self.0.write_all(&call)?;
        ensure!(self.word()? == REPLY, "the switch does not reply to {method}");
        let length = self.word()?;
        ensure!(length < 256, "a reply to a call with a name of {length} bytes");
        // The name, and the call's number.
        self.bytes(length as usize + 4).map(drop)
    }

    fn word(&mut self) -> Result<u32> {
        let bytes = self.bytes(4)?;
        Ok(bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)))
    }

    fn bytes(&mut self, count: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).context("the switch broke off")?;
        Ok(bytes)
    }
}

fn text(call: &mut Vec<u8>, text: &str) {
    call.extend((text.len() as u32).to_be_bytes());
    call.extend(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// What a switch says after the name and the number of a call.
    fn registers(result: &'static [u8]) -> Result<Vec<i64>> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let port = listener.local_addr()?.port();
        let switch = std::thread::spawn(move || -> std::io::Result<Vec<u8>> {
            let (mut stream, _) = listener.accept()?;
            let mut call = vec![0; 4 + 4 + 29 + 4 + 7 + 3 + 4 + 5 + 1];
            stream.read_exact(&mut call)?;
            let mut reply = REPLY.to_be_bytes().to_vec();
            text(&mut reply, "bm_register_read_all");
            reply.extend([0; 4]);
            reply.extend(result);
            stream.write_all(&reply)?;
            Ok(call)
        });
        let found = Runtime::connect(port)?.registers("ticks");
        let call = switch.join().expect("no panic")?;
        assert!(call.ends_with(b"\x0b\x00\x02\x00\x00\x00\x05ticks\x00"), "{call:?}");
        found
    }

    #[test]
    fn a_list_of_registers_is_read() {
        let list = b"\x0f\x00\x00\x0a\x00\x00\x00\x02\0\0\0\0\0\0\0\x07\xff\xff\xff\xff\xff\xff\xff\xff\x00";

        assert_eq!(registers(list).expect("registers"), [7, -1]);
    }

    #[test]
    fn an_exception_a_short_reply_and_a_long_list_are_errors() {
        let error = |result| registers(result).unwrap_err().to_string();

        assert_eq!(error(b"\x0c\x00\x01"), "the switch has no registers ticks");
        assert_eq!(error(b"\x0f\x00"), "the switch broke off");
        assert_eq!(error(b"\x0f\x00\x00\x0a\xff\xff\xff\xff"), "4294967295 registers ticks");
    }
}
