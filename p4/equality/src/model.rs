//! What a model of a program is.

use synopses::digest::DigestKey;

use crate::frames::Captured;
use crate::registers::Registers;

/// What the library does with the frames that a program gets.
pub trait Reference {
    /// Does what the library does with a frame.
    fn process(&mut self, captured: &Captured);
    /// The registers that the program has by now.
    fn registers(&self) -> Registers;
}

/// A constant of a program: its name, its bits, its value.
pub type Constant = (String, u32, u64);

/// The key of the compiled programs' digests.
#[must_use]
pub fn key() -> DigestKey {
    DigestKey::new(0x0123_4567_89ab_cdef_0f1e_2d3c_4b5a_6978)
}
