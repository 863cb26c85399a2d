//! Configuration of OTLP metrics as columns.

use std::num::{NonZeroU32, NonZeroUsize};

use agent_runtime::config::range;
use exposition::choice::ChoiceSettings;
use serde::Deserialize;
use wire::time::Nanos;

use super::{ConfigError, at_least_one};
use crate::metric_exports::ExportSettings;

/// Bytes kept for a series: 900 on average for its names, labels and buckets, or it counts for several; its places in
/// tables that were just grown; what choosing among series takes.
const SERIES_BYTES: u64 = 1_900;
/// Bytes of an export in a window.
const WINDOW_BYTES: u64 = 4;
/// A replica's region.
const REGION_BYTES: u64 = 96 << 10;
/// A column's part of the catalogue and of the configuration of its LMAP.
const COLUMN_BYTES: u64 = 1_800;
/// Requests of the longest length that may wait to be looked at.
const QUEUED: usize = 2;

/// Which of the metrics that services export are watched.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WatchedMetricsConfig {
    /// Whether they are looked at. An upstream gets them either way.
    pub watch: bool,
    /// Names of metrics that may be watched, with `*`. Empty: all.
    pub allow: Vec<String>,
    /// Names of metrics that are not watched.
    pub deny: Vec<String>,
    /// Columns for all metrics of a service, at most 2000.
    pub max_columns: NonZeroUsize,
    /// Series of one name that get columns of their own.
    pub label_sets: NonZeroUsize,
    /// Exports that are learnt before series are chosen, 10 to 600.
    pub learn_exports: NonZeroU32,
    /// Replicas of all services, at most 4096.
    pub max_replicas: NonZeroUsize,
    /// Series of one replica.
    pub max_series: NonZeroUsize,
    /// Series of all replicas.
    pub max_all_series: NonZeroUsize,
    /// Points of one request that are looked at.
    pub max_points: NonZeroUsize,
    /// A replica that exports nothing for this long is gone.
    pub expire_ms: NonZeroU32,
}

fn size(size: usize) -> NonZeroUsize {
    NonZeroUsize::new(size).unwrap_or(NonZeroUsize::MIN)
}

impl Default for WatchedMetricsConfig {
    fn default() -> Self {
        Self {
            watch: true,
            allow: Vec::new(),
            deny: Vec::new(),
            max_columns: size(150),
            label_sets: size(8),
            learn_exports: at_least_one(20),
            max_replicas: size(256),
            max_series: size(5_000),
            max_all_series: size(20_000),
            max_points: size(50_000),
            expire_ms: at_least_one(600_000),
        }
    }
}

impl WatchedMetricsConfig {
    /// What is watched of requests of up to `request_bytes`; `None`: nothing.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if a value is out of range.
    pub(crate) fn settings(&self, request_bytes: usize) -> Result<Option<ExportSettings>, ConfigError> {
        let window = self.learn_exports.get();
        range((10..=600).contains(&window), "otlp.metrics.learn_exports", &window, "must be from 10 to 600")?;
        let columns = self.max_columns.get();
        range(columns <= 2_000, "otlp.metrics.max_columns", &columns, "must be at most 2000")?;
        let exporters = self.max_replicas.get();
        range(exporters <= 4_096, "otlp.metrics.max_replicas", &exporters, "must be at most 4096")?;
        Ok(self.watch.then(|| ExportSettings {
            choice: ChoiceSettings {
                allow: self.allow.clone(),
                deny: self.deny.clone(),
                columns,
                label_sets: self.label_sets.get(),
            },
            window,
            exporters,
            series: self.max_series.get(),
            all_series: self.max_all_series.get(),
            points: self.max_points.get(),
            expire: Nanos::from_millis(u64::from(self.expire_ms.get())),
            queue_bytes: QUEUED * (request_bytes + 4_096),
        }))
    }

    /// What they may keep in memory at most, with requests of up to `request_bytes`.
    pub(crate) fn bytes(&self, request_bytes: usize) -> u64 {
        if !self.watch {
            return 0;
        }
        let of_series = SERIES_BYTES + u64::from(self.learn_exports.get()) * WINDOW_BYTES;
        let of_replica = REGION_BYTES + self.max_columns.get() as u64 * COLUMN_BYTES;
        (QUEUED * request_bytes) as u64
            + self.max_all_series.get() as u64 * of_series
            + self.max_replicas.get() as u64 * of_replica
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn metrics_are_watched_unless_that_is_switched_off_and_what_is_out_of_range_is_named() {
        let upstream = "upstream: {endpoint: 'http://c:4317'}";
        let settings = |text: &str| {
            let config = Config::parse(&format!("otlp: {{{upstream}{text}}}")).unwrap();
            config.otlp.metrics.settings(config.otlp.request_bytes).unwrap()
        };
        let watched = settings("").unwrap();
        assert_eq!((watched.window, watched.exporters, watched.choice.columns), (20, 256, 150));
        assert!(watched.queue_bytes > 16 << 20);
        assert_eq!(settings(", metrics: {watch: false}"), None);
        assert_eq!(settings(", metrics: {deny: ['jvm.*']}").unwrap().choice.deny, ["jvm.*"]);

        for (text, expected) in [
            ("learn_exports: 3", "otlp.metrics.learn_exports is 3: must be from 10 to 600"),
            ("max_columns: 5000", "otlp.metrics.max_columns is 5000"),
            ("max_replicas: 5000", "otlp.metrics.max_replicas is 5000"),
            ("watched: true", "watched"),
        ] {
            let error = Config::parse(&format!("otlp: {{{upstream}, metrics: {{{text}}}}}")).unwrap_err();
            assert!(agent_runtime::chain(&error).contains(expected), "{text}: {}", agent_runtime::chain(&error));
        }
    }
}
