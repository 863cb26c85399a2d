//! What packets cost, from a capture or an interface to the synopses.

pub mod capture;
pub mod four;
mod spaces;
pub mod veth;
