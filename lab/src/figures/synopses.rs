//! The cost of synopses of flows: distinct items, heavy hitters, packets out of order, sizes of flows.

pub mod cardinality;
pub mod fragment;
pub mod heavy_hitters;
mod keys;
pub mod reordering;
