//! What every program does with a frame, by the library.

use packets::frame::{Frame, Link};
use packets::packet::{Packet, ParseError, View, parse};
use packets::switch::Constants;

use crate::registers::Registers;

/// The port of the agent (`shared/headers.p4`).
pub const AGENT_PORT: u16 = 64;
/// The program's own reason for a refusal.
const EXTENSION: usize = 15;

/// A frame and when it was captured, in nanoseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// When it was captured.
    pub time_ns: u64,
    /// Its bytes from the Ethernet header on.
    pub bytes: Vec<u8>,
}

impl Captured {
    /// The frame as the agent sends it to the switch: behind its time.
    #[must_use]
    pub fn replayed(&self) -> Vec<u8> {
        self.replayed_since(0)
    }

    /// The frame as the agent sends it to a switch whose time began then: behind its time there.
    #[must_use]
    pub fn replayed_since(&self, began_ns: u64) -> Vec<u8> {
        [&self.time_ns.saturating_sub(began_ns).to_be_bytes()[..], &self.bytes].concat()
    }
}

/// Counts frames as the programs do.
#[derive(Clone, Debug)]
pub struct Frames {
    seen: u64,
    refusals: [u64; 16],
    checksum: u32,
}

impl Frames {
    /// Before the first frame of a program with these constants.
    #[must_use]
    pub fn new(constants: &Constants) -> Self {
        Self { seen: 0, refusals: [0; 16], checksum: constants.checksum() }
    }

    /// Counts a frame. Returns its packet if a program looks at it.
    pub fn count<'a>(&mut self, captured: &'a Captured) -> Option<Packet<'a>> {
        self.seen += 1;
        let bytes = captured.bytes.as_slice();
        let frame = Frame { bytes, length: bytes.len() as u32, time_ns: captured.time_ns, link: Link::Ethernet };
        let parsed = if has_extension(bytes) { Err(EXTENSION) } else { parse(&frame, View::Outer).map_err(place) };
        parsed.map_err(|reason| self.refusals[reason] += 1).ok()
    }

    /// Adds the registers `frames`, `refusals` and `constants`.
    pub fn put(&self, registers: &mut Registers) {
        registers.insert("frames".to_owned(), vec![self.seen]);
        registers.insert("refusals".to_owned(), self.refusals.to_vec());
        // The first frame brings it.
        let checksum = if self.seen == 0 { 0 } else { self.checksum };
        registers.insert("constants".to_owned(), vec![checksum.into()]);
    }
}

fn place(error: ParseError) -> usize {
    error as usize
}

/// Whether a whole IPv6 header is followed by an extension header.
fn has_extension(bytes: &[u8]) -> bool {
    let mut at = 12;
    for _ in 0..=4 {
        match bytes.get(at..at + 2) {
            Some([0x81 | 0x91, 0] | [0x88, 0xa8]) => at += 4,
            Some([0x86, 0xdd]) => {
                let header = bytes.get(at + 2..at + 42);
                return header.is_some_and(|ip| ip[0] >> 4 == 6 && matches!(ip[6], 0 | 43 | 44 | 51 | 60));
            }
            _ => return false,
        }
    }
    false
}
