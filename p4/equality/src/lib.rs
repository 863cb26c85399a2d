//! What P4 programs do, compared with what the library does: an interpreter of compiled programs, and what each
//! program's registers are by the library.

pub mod begun;
pub mod comparison;
pub mod control;
mod encoding;
pub mod estimates;
pub mod finecomb;
pub mod fragment;
pub mod frames;
pub mod fridge;
pub mod fridges;
pub mod interpreter;
pub mod lda;
pub mod model;
pub mod names;
pub mod precision;
pub mod programs;
pub mod registers;
pub mod reordering;
pub mod sthll;
pub mod together;
pub mod traffic;
pub mod tspcsa;
pub mod vectors;
pub mod wire;
