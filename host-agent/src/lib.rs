//! The host agent: the control plane of a node (μView, Sec. 4.2).
//!
//! Services register over a Unix socket. Each service gets an LMAP (local metrics analysis pipeline), which runs on a
//! NIC worker. Verdicts of the workers go to hooks: traces, remote monitors, webhooks, operators. [`control_plane`] and
//! [`dispatch`] decide: pure state machines that get the time as a parameter and return what to do. The other modules
//! do the I/O; [`run`] starts them all.

mod arguments;
mod budget;
mod cached_lists;
pub mod cgroup_metrics;
mod check_config;
pub mod clock;
mod coherence;
pub mod config;
pub mod control_plane;
mod control_server;
mod custom_objects;
pub mod dispatch;
pub mod edge_counts;
mod filled_region;
pub mod findings;
mod freed_regions;
mod head_sampling;
mod incident_book;
mod kept_logs;
mod kept_traces;
mod kernel_file;
mod listeners;
mod live_page;
mod measuring;
mod metric_exports;
mod metrics_endpoint;
pub mod node;
mod open_problems;
pub mod operators_server;
mod otlp_endpoint;
pub mod outbox;
mod pod_watch;
pub mod process_metrics;
mod prometheus;
mod readiness;
pub mod receipts;
mod region_registration;
mod regions_socket;
mod reload;
pub mod remote_monitor;
mod run;
mod run_error;
mod runtime_folder;
pub mod sampling_times;
mod services_socket;
pub mod span_columns;
mod span_metrics;
pub mod span_ring;
pub mod stored_file;
mod stored_models;
mod telemetry_threads;
mod token_access;
mod watched_sources;
mod webhooks;

pub use agent_runtime::stop;
pub use arguments::{HostAgentArgs, custom_resources};
pub use budget::{budget, budget_of};
pub use check_config::check_config;
pub use custom_objects::{FolderError, problems_of_resources};
pub use otlp::{UnknownSenders, unknown_senders_here};
pub use otlp_endpoint::OtlpError;
pub use run::{run, run_from};
pub use run_error::RunError;
