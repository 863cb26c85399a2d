//! What a model of a program is.

use synopses::digest::{DigestKey, DigestKind};

use crate::frames::Captured;
use crate::registers::Registers;

/// What the library does with the frames that a program gets.
pub trait Reference: core::fmt::Debug {
    /// Does what the library does with a frame.
    fn process(&mut self, captured: &Captured);
    /// The registers that the program has by now.
    fn registers(&self) -> Registers;
    /// Whether the library's type is the same as one that is loaded from a program's registers, where these are no
    /// plain copy of its fields.
    fn is_loaded_from(&self, _registers: &Registers) -> bool {
        true
    }
}

/// The key of the compiled programs' digests.
#[must_use]
pub fn key(kind: DigestKind) -> DigestKey {
    DigestKey::of_kind(kind, 0x0123_4567_89ab_cdef_0f1e_2d3c_4b5a_6978)
}
