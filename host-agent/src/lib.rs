//! The host agent: the control plane of a node (μView, Sec. 4.2).
//!
//! Services register over a Unix socket, an LMAP is made for each of them and placed on a NIC worker, verdicts come back and reach
//! the hooks. [`control_plane`] and [`dispatch`] decide: pure state machines that are given the time and give back what to do. The other
//! modules are the edges that do it; [`run`] starts them all.

pub mod clock;
mod coherence;
pub mod config;
pub mod control_plane;
mod control_server;
pub mod dispatch;
pub mod edge_counts;
mod exposing;
mod head_sampling;
pub mod listening;
mod metrics_endpoint;
pub mod node;
mod operators_server;
mod otlp_endpoint;
pub mod outbox;
pub mod process_metrics;
pub mod receipts;
mod regions_socket;
pub mod remote_writing;
mod run;
mod services_socket;
mod span_metrics;
pub mod span_ring;
mod webhooks;

pub use daemon::stop;
pub use otlp_endpoint::OtlpError;
pub use run::{RunError, run};
