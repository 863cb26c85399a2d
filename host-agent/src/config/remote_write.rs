//! Configuration of samples sent by Prometheus remote write.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use agent_runtime::ConfigError;
use agent_runtime::http_client::Endpoint;
use hooks::sampling::{SamplingPolicy, SamplingRule};
use remote_write::client::Client;
use remote_write::encoding::Version;
use remote_write::naming::label_name;
use remote_write::queue::QueueLimits;
use remote_write::shipper::{Shipper, ShipperSettings, VersionPolicy};
use serde::Deserialize;
use wire::backoff::RetryRule;
use wire::time::{Nanos, UnixNanos};

use super::headers::HeaderSource;

/// Samples to a remote monitor by Prometheus remote write.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RemoteWriteConfig {
    /// Such as `http://prometheus:9090/api/v1/write`; `None`: off.
    pub url: Option<String>,
    /// Headers of each request, such as a tenant or an authorization.
    pub headers: BTreeMap<String, String>,
    /// Files with the values of more of them. Changed ones are read again.
    pub header_files: BTreeMap<String, PathBuf>,
    /// Root certificates (PEM) for HTTPS; the system's if left out.
    pub ca: Option<PathBuf>,
    /// Deadline of a request.
    pub timeout_ms: NonZeroU32,
    /// Version of the protocol.
    pub version: VersionConfig,
    /// Whether the receiver accepts samples older than its newest one.
    pub out_of_order: bool,
    /// `instance` of all series; the host's name if left out.
    pub instance: Option<String>,
    /// Additional labels of all series.
    pub labels: BTreeMap<String, String>,
    /// Milliseconds between two samples of a baseline series; at most 60000.
    pub baseline_ms: NonZeroU32,
    /// Which samples the dense series get.
    pub dense: DenseConfig,
    /// Memory of queued samples, in bytes.
    pub queue_bytes: NonZeroUsize,
    /// Maximum age of a queued sample, in milliseconds; at most 3300000.
    pub max_age_ms: NonZeroU32,
}

/// Version of remote write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum VersionConfig {
    /// 2.0, or 1.0 if the receiver does not support it.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// Version 1.0 only.
    #[serde(rename = "1.0")]
    One,
    /// Version 2.0 only.
    #[serde(rename = "2.0")]
    Two,
}

/// Policy that selects samples for the dense series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyConfig {
    /// The whole row by its score, otherwise the columns that moved.
    #[default]
    Either,
    /// The whole row by its score.
    Score,
    /// The columns that moved.
    DeadBand,
    /// The columns that changed.
    OnChange,
    /// Every sample, without selection.
    Every,
}

/// Which samples the dense series get.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DenseConfig {
    /// The policy that selects samples.
    pub policy: PolicyConfig,
    /// θ: send rows whose score exceeds this share of γ.
    pub theta: f64,
    /// δ: send columns that moved by more than this many standard deviations.
    pub delta: f64,
    /// Upper bound, as a share of all samples; `None`: no bound.
    pub budget: Option<f64>,
    /// Rows sent after the score fell below the threshold.
    pub post_trigger_rows: u32,
    /// Rows sent from before the score exceeded the threshold.
    pub pre_trigger_rows: usize,
}

impl Default for RemoteWriteConfig {
    fn default() -> Self {
        let (queue, rule) = (QueueLimits::default(), SamplingRule::default());
        let millis = |length: Nanos| at_least_one(length.as_millis() as u32);
        Self {
            url: None,
            headers: BTreeMap::new(),
            header_files: BTreeMap::new(),
            ca: None,
            timeout_ms: at_least_one(30_000),
            version: VersionConfig::Auto,
            out_of_order: queue.out_of_order,
            instance: None,
            labels: BTreeMap::new(),
            baseline_ms: millis(rule.baseline),
            dense: DenseConfig::default(),
            queue_bytes: NonZeroUsize::new(queue.bytes).unwrap_or(NonZeroUsize::MIN),
            max_age_ms: millis(queue.age),
        }
    }
}

impl Default for DenseConfig {
    fn default() -> Self {
        let rule = SamplingRule::default();
        Self {
            policy: PolicyConfig::Either,
            theta: rule.policy.theta().unwrap_or(1.0),
            delta: rule.policy.delta().unwrap_or(1.0),
            budget: rule.budget,
            post_trigger_rows: rule.hold_rows,
            pre_trigger_rows: rule.pre_trigger_rows,
        }
    }
}

fn at_least_one(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN)
}

impl DenseConfig {
    fn policy(&self) -> SamplingPolicy {
        let Self { theta, delta, .. } = *self;
        match self.policy {
            PolicyConfig::Either => SamplingPolicy::Either { theta, delta },
            PolicyConfig::Score => SamplingPolicy::Score { theta },
            PolicyConfig::DeadBand => SamplingPolicy::DeadBand { delta },
            PolicyConfig::OnChange => SamplingPolicy::OnChange,
            PolicyConfig::Every => SamplingPolicy::Every,
        }
    }
}

impl RemoteWriteConfig {
    /// The shipper and its client, for an agent on `machine` that started at `began`. `None` if nothing is configured.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if a value is out of range, or a file cannot be read.
    pub fn start(&self, machine: &str, began: UnixNanos) -> Result<Option<(Shipper, Client)>, ConfigError> {
        let settings = self.settings(machine, began)?;
        let Some(headers) = self.header_source() else { return Ok(None) };
        let shipper = Shipper::new(settings).map_err(|cause| ConfigError::value("remote_write", cause))?;
        let receiver = Endpoint {
            url: headers.url.to_owned(),
            headers: headers.values("remote_write.header_files")?,
            ca: self.ca.clone(),
            timeout: Duration::from_millis(u64::from(self.timeout_ms.get())),
        };
        let client = Client::new(&receiver).map_err(|cause| ConfigError::value("remote_write", cause))?;
        Ok(Some((shipper, client)))
    }

    /// The headers of its requests; `None` if it is off.
    pub(crate) fn header_source(&self) -> Option<HeaderSource<'_>> {
        Some(HeaderSource { url: self.url.as_deref()?, given: &self.headers, files: &self.header_files })
    }

    /// Checks all ranges. Reads no file.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if a value is out of range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let settings = self.settings("", UnixNanos(0))?;
        Shipper::new(settings).map(drop).map_err(|cause| ConfigError::value("remote_write", cause))
    }

    pub(super) fn settings(&self, machine: &str, began: UnixNanos) -> Result<ShipperSettings, ConfigError> {
        let wrong = self.labels.keys().find(|name| label_name(name) != **name || OWN.contains(&name.as_str()));
        let wanted =
            "must be letters, digits and _, beginning with a letter, and not job, instance or uview_resolution";
        let found: &dyn ToString = wrong.map_or(&"" as &dyn ToString, |name| name as &dyn ToString);
        agent_runtime::config::range(wrong.is_none(), "remote_write.labels", found, wanted)?;
        Ok(ShipperSettings {
            instance: self.instance.clone().unwrap_or_else(|| machine.to_owned()),
            labels: self.labels.clone().into_iter().collect(),
            rule: SamplingRule {
                baseline: millis(self.baseline_ms),
                policy: self.dense.policy(),
                budget: self.dense.budget,
                hold_rows: self.dense.post_trigger_rows,
                pre_trigger_rows: self.dense.pre_trigger_rows,
            },
            queue: QueueLimits {
                bytes: self.queue_bytes.get(),
                age: millis(self.max_age_ms),
                out_of_order: self.out_of_order,
                ..QueueLimits::default()
            },
            version: match self.version {
                VersionConfig::Auto => VersionPolicy::Negotiated,
                VersionConfig::One => VersionPolicy::Only(Version::V1),
                VersionConfig::Two => VersionPolicy::Only(Version::V2),
            },
            retry: RetryRule::default(),
            began,
        })
    }
}

/// Labels that operators cannot set.
const OWN: [&str; 4] = ["__name__", "job", "instance", "uview_resolution"];

fn millis(number: NonZeroU32) -> Nanos {
    Nanos::from_millis(u64::from(number.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(config: &RemoteWriteConfig) -> String {
        let error = config.check().unwrap_err();
        let cause = core::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        format!("{error}: {cause}")
    }

    #[test]
    fn nothing_is_sent_by_default_and_the_default_is_in_range() {
        let default = RemoteWriteConfig::default();

        default.check().unwrap();
        assert!(default.start("node", UnixNanos(0)).unwrap().is_none());
        let on = RemoteWriteConfig { url: Some("http://localhost:9090/api/v1/write".into()), ..default };
        assert!(on.start("node", UnixNanos(0)).unwrap().is_some());
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        let default = RemoteWriteConfig::default;
        let dense = |dense| RemoteWriteConfig { dense, ..default() };
        let labels = |name: &str| RemoteWriteConfig { labels: [(name.into(), "x".into())].into(), ..default() };

        let baseline = RemoteWriteConfig { baseline_ms: at_least_one(61_000), ..default() };
        assert!(refused(&baseline).contains("a baseline interval of 61s"), "{}", refused(&baseline));
        let budget = dense(DenseConfig { budget: Some(2.0), ..DenseConfig::default() });
        assert!(refused(&budget).contains("a budget of 2"), "{}", refused(&budget));
        let theta = dense(DenseConfig { theta: f64::NAN, ..DenseConfig::default() });
        assert!(refused(&theta).contains("a threshold of NaN"), "{}", refused(&theta));
        let wait = RemoteWriteConfig { max_age_ms: at_least_one(3_600_000), ..default() };
        assert!(refused(&wait).contains("55 min"), "{}", refused(&wait));
        for name in ["a.b", "job", "__x", "1"] {
            assert!(refused(&labels(name)).contains(&format!("remote_write.labels is {name}")), "{name}");
        }
        let url = |url: &str| RemoteWriteConfig { url: Some(url.into()), ..default() }.start("n", UnixNanos(0));
        assert!(url("prometheus:9090").is_err() && url("http://user:secret@prometheus/").is_err());
    }
}
