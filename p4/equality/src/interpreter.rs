//! Runs compiled P4 programs as the reference switch does: its parser, tables without keys, actions, registers and
//! arithmetic of any width, and CRC-32. A program that uses anything else is refused with the name of the construct.

pub use load::LoadError;
pub use machine::{Fault, Machine, Sent, SetError};
pub use number::Number;
pub use paths::Surplus;
pub use program::{Program, RegisterArray};

mod arithmetic;
mod load;
mod machine;
mod number;
mod operands;
mod paths;
mod program;
