//! The demo: a small shop of real processes that uview watches and this crate breaks, and an honest account of what came of it.
//!
//! | module | what |
//! | --- | --- |
//! | [`graph`] | the five services, who calls whom |
//! | [`shop`], [`load`] | one service; the visitors. Each runs as a process of its own |
//! | [`fault`] | the five faults, their order, the metrics that belong to each |
//! | [`record`] | what happened in a run, as data |
//! | [`judge`] | what that is worth |

mod clock;
pub mod fault;
pub mod graph;
mod http;
pub mod judge;
pub mod load;
mod noise;
mod ready;
pub mod record;
pub mod shop;
