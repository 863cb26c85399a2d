//! Configuration of sources: programs that nobody changed.

use serde::Deserialize;

use super::PrometheusConfig;

/// What is read of programs that nobody changed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SourcesConfig {
    /// Endpoints in the formats of Prometheus.
    pub prometheus: PrometheusConfig,
}
