//! The cost of packets, from a capture or an interface to the synopses.

pub mod all_synopses;
pub mod capture;
mod flow_synopses;
mod flow_table;
mod namespaces;
mod table;
pub mod veth;
