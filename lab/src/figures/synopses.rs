//! The cost of synopses: of delays, and of flows: distinct items, heavy hitters, packets out of order, sizes of flows.

pub mod cardinality;
pub mod fragment;
pub mod fridge;
pub mod heavy_hitters;
mod keys;
pub mod reordering;
