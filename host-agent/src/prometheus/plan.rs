//! What a scraper needs to know of a target.

use agent_runtime::http_client::Client;
use exposition::TargetSettings;
use wire::name::{InstanceName, ServiceName};
use wire::time::Nanos;

/// A target that is configured.
#[derive(Debug)]
pub(crate) struct TargetPlan {
    pub(crate) service: ServiceName,
    pub(crate) instance: InstanceName,
    pub(crate) url: String,
    pub(crate) client: Client,
    /// `None`: by its cost.
    pub(crate) interval: Option<Nanos>,
    pub(crate) cpu_share: f64,
    pub(crate) max_bytes: usize,
    pub(crate) settings: TargetSettings,
}
