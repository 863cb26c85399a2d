//! The host agent: the control plane of a node (μView, Sec. 4.2).
//!
//! Services register over a Unix socket, an LMAP is made for each of them and placed on a NIC worker, verdicts come back and reach
//! the hooks. [`control_plane`] and [`dispatch`] decide: pure state machines that are given the time and give back what to do. The other
//! modules are the edges that do it; [`run`] starts them all.

pub mod clock;
pub mod config;
pub mod control_plane;
mod control_server;
pub mod dispatch;
pub mod edge_counts;
mod exposing;
pub mod listening;
mod metrics_endpoint;
pub mod node;
mod operators_server;
pub mod outbox;
pub mod process_metrics;
mod regions_socket;
mod run;
mod services_socket;

pub use daemon::stop;
pub use run::{RunError, run};
