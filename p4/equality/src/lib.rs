//! What P4 programs do, compared with what the library does: an interpreter of compiled programs, and what each
//! program's registers are by the library.

mod encoding;
pub mod finecomb;
pub mod frames;
pub mod fridge;
pub mod interpreter;
pub mod model;
pub mod programs;
pub mod registers;
pub mod traffic;
pub mod vectors;
