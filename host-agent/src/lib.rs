//! The host agent: the control plane of a node (μView, Sec. 4.2).
//!
//! Services register over a Unix socket, an LMAP is made for each of them and placed on a NIC worker, verdicts come back and reach
//! the hooks. [`control_plane`] and [`dispatch`] decide: pure state machines that are given the time and give back what to do. The other
//! modules are the edges that do it.

pub mod control_plane;
pub mod dispatch;
