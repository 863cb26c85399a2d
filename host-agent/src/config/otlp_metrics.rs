//! Samples as OTLP metrics: what of them, where to, and how much may wait.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};

use daemon::ConfigError;
use hooks::time::UnixNanos;
use otlp::MetricsExporter;
use remote_write::encoding::Version;
use remote_write::queue::QueueLimits;
use remote_write::shipper::{Shipper, ShipperSettings, Wanted};
use serde::Deserialize;

use super::otlp::UpstreamConfig;
use super::remote_write::{DenseConfig, RemoteWriteConfig};

/// Data points of one request; with the next one, what a receiver of gRPC takes by default (4 MiB) is not reached.
const BATCH: usize = 4_000;
/// Bytes of one request, more or less.
const BATCH_BYTES: usize = 1 << 20;

/// Samples to whoever takes OTLP metrics.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OtlpMetricsConfig {
    /// Where to; nothing is sent if left out.
    pub upstream: Option<UpstreamConfig>,
    /// `host.name` of all resources; the machine's name if left out.
    pub instance: Option<String>,
    /// More of what all resources say.
    pub attributes: BTreeMap<String, String>,
    /// Between two samples of a baseline series, 60 s at most.
    pub baseline_ms: NonZeroU32,
    /// What is sent densely.
    pub dense: DenseConfig,
    /// Memory of samples that wait.
    pub queue_bytes: NonZeroUsize,
    /// How long a sample may wait.
    pub longest_wait_ms: NonZeroU32,
}

impl Default for OtlpMetricsConfig {
    fn default() -> Self {
        let RemoteWriteConfig { baseline_ms, dense, queue_bytes, longest_wait_ms, .. } = RemoteWriteConfig::default();
        let (upstream, instance, attributes) = (None, None, BTreeMap::new());
        Self { upstream, instance, attributes, baseline_ms, dense, queue_bytes, longest_wait_ms }
    }
}

impl OtlpMetricsConfig {
    /// What decides and what sends, on a machine of this name, for an agent that began at `began`; `None` if nothing is to be sent. Needs a tokio
    /// runtime.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if something is out of range, or a file cannot be read.
    pub fn start(&self, machine: &str, began: UnixNanos) -> Result<Option<(Shipper, MetricsExporter)>, ConfigError> {
        let shipper = self.shipper(machine, began)?;
        let Some(upstream) = &self.upstream else { return Ok(None) };
        let settings = upstream.settings().map_err(|cause| ConfigError::value("otlp_metrics.upstream", cause))?;
        let exporter =
            MetricsExporter::new(&settings).map_err(|cause| ConfigError::value("otlp_metrics.upstream", cause))?;
        Ok(Some((shipper, exporter)))
    }

    /// Whether everything is in its range. Reads no file.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if something is not.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.shipper("", UnixNanos(0)).map(drop)
    }

    fn shipper(&self, machine: &str, began: UnixNanos) -> Result<Shipper, ConfigError> {
        // What both have in common is said in one place.
        let common = RemoteWriteConfig {
            instance: self.instance.clone(),
            baseline_ms: self.baseline_ms,
            dense: self.dense.clone(),
            queue_bytes: self.queue_bytes,
            longest_wait_ms: self.longest_wait_ms,
            ..RemoteWriteConfig::default()
        };
        let settings = common.settings(machine, began)?;
        let settings = ShipperSettings {
            labels: self.attributes.clone().into_iter().collect(),
            version: Wanted::Only(Version::Otlp),
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
        assert!(text.contains("otlp_metrics") && text.contains("a baseline of 61s"), "{text}");
    }
}
