//! Samples to a remote monitor: what of them, where to, and how much may wait.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use daemon::ConfigError;
use hooks::sampling::{SamplingPolicy, SamplingRule};
use hooks::time::UnixNanos;
use remote_write::answer::Backoff;
use remote_write::client::{Client, Receiver};
use remote_write::encoding::Version;
use remote_write::naming::label_name;
use remote_write::queue::QueueLimits;
use remote_write::shipper::{Shipper, ShipperSettings, Wanted};
use serde::Deserialize;
use wire::time::Nanos;

/// Samples to a remote monitor: Prometheus remote write.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RemoteWriteConfig {
    /// Such as `http://prometheus:9090/api/v1/write`; nothing is sent if left out.
    pub url: Option<String>,
    /// Headers of each request: a tenant, an authorization.
    pub headers: BTreeMap<String, String>,
    /// Whom to trust (PEM), for HTTPS; what the system trusts if left out.
    pub ca: Option<PathBuf>,
    /// How long a request may take.
    pub timeout_ms: NonZeroU32,
    /// Which version.
    pub version: VersionConfig,
    /// The receiver takes samples that are older than what it has.
    pub out_of_order: bool,
    /// `instance` of all series; the machine's name if left out.
    pub instance: Option<String>,
    /// Labels of all series.
    pub labels: BTreeMap<String, String>,
    /// Between two samples of a baseline series, 60 s at most.
    pub baseline_ms: NonZeroU32,
    /// What is sent densely.
    pub dense: DenseConfig,
    /// Memory of samples that wait.
    pub queue_bytes: NonZeroUsize,
    /// How long a sample may wait.
    pub longest_wait_ms: NonZeroU32,
}

/// Which version of remote write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum VersionConfig {
    /// 2.0, and 1.0 if the receiver does not know it.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// 1.0.
    #[serde(rename = "1.0")]
    One,
    /// 2.0.
    #[serde(rename = "2.0")]
    Two,
}

/// Which rule says what is dense.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyConfig {
    /// The whole row by its score, else what moved.
    #[default]
    Either,
    /// The whole row by its score.
    Score,
    /// What moved.
    DeadBand,
    /// What is not what it was.
    OnChange,
    /// Everything.
    Every,
}

/// What is sent densely.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DenseConfig {
    /// By which rule.
    pub policy: PolicyConfig,
    /// θ: a score above this share of γ.
    pub theta: f64,
    /// δ: moved by more than so many deviations.
    pub delta: f64,
    /// Never more than this share of all samples; without a bound if left out.
    pub budget: Option<f64>,
    /// Rows that are still sent after the score fell.
    pub hold_rows: u32,
    /// Rows from before.
    pub pre_trigger_rows: usize,
}

impl Default for RemoteWriteConfig {
    fn default() -> Self {
        let (queue, rule) = (QueueLimits::default(), SamplingRule::default());
        let millis = |length: Nanos| at_least_one(length.as_millis() as u32);
        Self {
            url: None,
            headers: BTreeMap::new(),
            ca: None,
            timeout_ms: at_least_one(30_000),
            version: VersionConfig::Auto,
            out_of_order: queue.out_of_order,
            instance: None,
            labels: BTreeMap::new(),
            baseline_ms: millis(rule.baseline),
            dense: DenseConfig::default(),
            queue_bytes: NonZeroUsize::new(queue.bytes).unwrap_or(NonZeroUsize::MIN),
            longest_wait_ms: millis(queue.age),
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
            hold_rows: rule.hold_rows,
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
    /// What decides and what sends, on a machine of this name, for an agent that began at `began`; `None` if nothing is to be sent.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if something is out of range, or a file cannot be read.
    pub fn start(&self, machine: &str, began: UnixNanos) -> Result<Option<(Shipper, Client)>, ConfigError> {
        let settings = self.settings(machine, began)?;
        let Some(url) = self.url.clone() else { return Ok(None) };
        let shipper = Shipper::new(settings).map_err(|cause| ConfigError::value("remote_write", cause))?;
        let receiver = Receiver {
            url,
            headers: self.headers.clone().into_iter().collect(),
            ca: self.ca.clone(),
            timeout: Duration::from_millis(u64::from(self.timeout_ms.get())),
        };
        let client = Client::new(&receiver).map_err(|cause| ConfigError::value("remote_write", cause))?;
        Ok(Some((shipper, client)))
    }

    /// Whether everything is in its range. Reads no file.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if something is not.
    pub fn check(&self) -> Result<(), ConfigError> {
        let settings = self.settings("", UnixNanos(0))?;
        Shipper::new(settings).map(drop).map_err(|cause| ConfigError::value("remote_write", cause))
    }

    pub(super) fn settings(&self, machine: &str, began: UnixNanos) -> Result<ShipperSettings, ConfigError> {
        let wrong = self.labels.keys().find(|name| label_name(name) != **name || OWN.contains(&name.as_str()));
        let wanted =
            "letters, digits and _ are possible, a letter first, and neither job, instance nor uview_resolution";
        let found: &dyn ToString = wrong.map_or(&"" as &dyn ToString, |name| name as &dyn ToString);
        daemon::config::range(wrong.is_none(), "remote_write.labels", found, wanted)?;
        Ok(ShipperSettings {
            instance: self.instance.clone().unwrap_or_else(|| machine.to_owned()),
            labels: self.labels.clone().into_iter().collect(),
            rule: SamplingRule {
                baseline: millis(self.baseline_ms),
                policy: self.dense.policy(),
                budget: self.dense.budget,
                hold_rows: self.dense.hold_rows,
                pre_trigger_rows: self.dense.pre_trigger_rows,
            },
            queue: QueueLimits {
                bytes: self.queue_bytes.get(),
                age: millis(self.longest_wait_ms),
                out_of_order: self.out_of_order,
                ..QueueLimits::default()
            },
            version: match self.version {
                VersionConfig::Auto => Wanted::Negotiated,
                VersionConfig::One => Wanted::Only(Version::V1),
                VersionConfig::Two => Wanted::Only(Version::V2),
            },
            backoff: Backoff::default(),
            began,
        })
    }
}

/// Labels that are not an operator's to give.
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
        assert!(refused(&baseline).contains("a baseline of 61s"), "{}", refused(&baseline));
        let budget = dense(DenseConfig { budget: Some(2.0), ..DenseConfig::default() });
        assert!(refused(&budget).contains("a budget of 2"), "{}", refused(&budget));
        let theta = dense(DenseConfig { theta: f64::NAN, ..DenseConfig::default() });
        assert!(refused(&theta).contains("a threshold of NaN"), "{}", refused(&theta));
        let wait = RemoteWriteConfig { longest_wait_ms: at_least_one(3_600_000), ..default() };
        assert!(refused(&wait).contains("55 minutes"), "{}", refused(&wait));
        for name in ["a.b", "job", "__x", "1"] {
            assert!(refused(&labels(name)).contains(&format!("remote_write.labels is {name}")), "{name}");
        }
        let url = |url: &str| RemoteWriteConfig { url: Some(url.into()), ..default() }.start("n", UnixNanos(0));
        assert!(url("prometheus:9090").is_err() && url("http://user:secret@prometheus/").is_err());
    }
}
