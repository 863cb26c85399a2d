//! Configuration of samples sent as OTLP metrics.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};

use agent_runtime::ConfigError;
use otlp::MetricsExporter;
use remote_write::encoding::Version;
use remote_write::queue::QueueLimits;
use remote_write::shipper::{Shipper, ShipperSettings, VersionPolicy};
use serde::Deserialize;
use wire::time::UnixNanos;

use super::otlp::UpstreamConfig;
use super::remote_write::{DenseConfig, RemoteWriteConfig};

/// Data points per request. Below the default message limit of gRPC receivers (4 MiB).
const BATCH: usize = 4_000;
/// Approximate bytes per request.
const BATCH_BYTES: usize = 1 << 20;

/// Samples to a remote monitor as OTLP metrics.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OtlpMetricsConfig {
    /// Where samples go; `None`: off.
    pub upstream: Option<UpstreamConfig>,
    /// `host.name` of all resources; the host's name if left out.
    pub instance: Option<String>,
    /// Additional attributes of all resources.
    pub attributes: BTreeMap<String, String>,
    /// Milliseconds between two samples of a baseline series; at most 60000.
    pub baseline_ms: NonZeroU32,
    /// Which samples the dense series get.
    pub dense: DenseConfig,
    /// Memory of queued samples, in bytes.
    pub queue_bytes: NonZeroUsize,
    /// Maximum age of a queued sample, in milliseconds; at most 3300000.
    pub max_age_ms: NonZeroU32,
}

impl Default for OtlpMetricsConfig {
    fn default() -> Self {
        let RemoteWriteConfig { baseline_ms, dense, queue_bytes, max_age_ms, .. } = RemoteWriteConfig::default();
        let (upstream, instance, attributes) = (None, None, BTreeMap::new());
        Self { upstream, instance, attributes, baseline_ms, dense, queue_bytes, max_age_ms }
    }
}

impl OtlpMetricsConfig {
    /// The shipper and its exporter, for an agent on `machine` that started at `began`. `None` if nothing is
    /// configured. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if a value is out of range, or a file cannot be read.
    pub fn start(&self, machine: &str, began: UnixNanos) -> Result<Option<(Shipper, MetricsExporter)>, ConfigError> {
        let shipper = self.shipper(machine, began)?;
        let Some(upstream) = &self.upstream else { return Ok(None) };
        let settings = upstream.settings().map_err(|cause| ConfigError::value("otlp_metrics.upstream", cause))?;
        let exporter =
            MetricsExporter::new(&settings).map_err(|cause| ConfigError::value("otlp_metrics.upstream", cause))?;
        Ok(Some((shipper, exporter)))
    }

    /// Checks all ranges. Reads no file.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if a value is out of range.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.shipper("", UnixNanos(0)).map(drop)
    }

    fn shipper(&self, machine: &str, began: UnixNanos) -> Result<Shipper, ConfigError> {
        // The settings in common are converted by remote write.
        let common = RemoteWriteConfig {
            instance: self.instance.clone(),
            baseline_ms: self.baseline_ms,
            dense: self.dense.clone(),
            queue_bytes: self.queue_bytes,
            max_age_ms: self.max_age_ms,
            ..RemoteWriteConfig::default()
        };
        let settings = common.settings(machine, began)?;
        let settings = ShipperSettings {
            labels: self.attributes.clone().into_iter().collect(),
            version: VersionPolicy::Only(Version::Otlp),
            queue: QueueLimits { batch: BATCH, batch_bytes: BATCH_BYTES, ..settings.queue },
            ..settings
        };
        Shipper::new(settings).map_err(|cause| ConfigError::value("otlp_metrics", cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_sent_by_default_and_what_is_out_of_range_is_named() {
        let default = OtlpMetricsConfig::default();
        default.check().unwrap();
        assert!(default.start("node", UnixNanos(0)).unwrap().is_none());

        let slow = OtlpMetricsConfig { baseline_ms: NonZeroU32::new(61_000).unwrap(), ..default };
        let error = slow.check().unwrap_err();
        let text = format!("{error}: {}", core::error::Error::source(&error).unwrap());
        assert!(text.contains("otlp_metrics") && text.contains("a baseline interval of 61s"), "{text}");
    }
}
