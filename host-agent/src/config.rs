//! The one file that a host agent is configured with. Unknown keys are refused with line and column; every key has a default.

mod coherence;
mod head_sampling;
mod otlp;
mod otlp_metrics;
mod receipt;
mod remote_write;
mod webhooks;

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};

use daemon::config::{load, parse, range};
use serde::Deserialize;
use wire::id::Incarnation;
use wire::name::{NameError, ServiceName};
use wire::time::{Interval, Nanos};

use crate::control_plane::{IdentityRule, Limits, Settings};
use crate::{process_metrics, span_metrics};

pub use self::coherence::CoherenceConfig;
pub use self::head_sampling::HeadSamplingConfig;
pub use self::otlp::{
    Compression, DerivedConfig, Keep, OtlpConfig, TenantConfig, TracesConfig, UpstreamConfig, UpstreamProtocol,
};
pub use self::otlp_metrics::OtlpMetricsConfig;
pub use self::receipt::ReceiptConfig;
pub use self::remote_write::{DenseConfig, PolicyConfig, RemoteWriteConfig, VersionConfig};
pub use self::webhooks::WebhookConfig;
pub(crate) use self::webhooks::start as start_webhooks;
pub use daemon::{ConfigError, LogConfig, LogFormat, Rdma, ServerTls};

/// The file that `--print-default-config` prints: every key with its default and what it is for.
pub const DEFAULT: &str = include_str!("config/default.yaml");

/// Settings of the host agent.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where sockets and `host-agent.json` are.
    pub runtime_dir: RuntimeDir,
    /// LMAPs for which nobody asked otherwise.
    pub lmap: LmapConfig,
    /// Services that register.
    pub services: ServicesConfig,
    /// Who may get regions' descriptors.
    pub regions: RegionsConfig,
    /// How regions are offered to workers.
    pub transport: Transport,
    /// Which device and port are used for RDMA.
    pub rdma: Rdma,
    /// NIC workers.
    pub control: ControlConfig,
    /// Operators and hooks.
    pub operators: OperatorsConfig,
    /// The agent's own metrics and health.
    pub metrics: MetricsConfig,
    /// Spans, metrics and logs that services send here.
    pub otlp: OtlpConfig,
    /// Host agents of other nodes, with which traces are kept together.
    pub coherence: CoherenceConfig,
    /// What services are advised that cannot record everything.
    pub head_sampling: HeadSamplingConfig,
    /// Where the receipt's books are kept.
    pub receipt: ReceiptConfig,
    /// Samples to a remote monitor.
    pub remote_write: RemoteWriteConfig,
    /// The same as OTLP metrics.
    pub otlp_metrics: OtlpMetricsConfig,
    /// Receivers of alarms.
    pub webhooks: Vec<WebhookConfig>,
    /// What is measured of registered processes.
    pub process_metrics: ProcessMetricsConfig,
    /// Logs to standard error.
    pub log: LogConfig,
}

/// A directory.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct RuntimeDir(pub PathBuf);

impl Default for RuntimeDir {
    fn default() -> Self {
        Self(PathBuf::from("/run/uview"))
    }
}

/// LMAPs for which nobody asked otherwise.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LmapConfig {
    /// The local scraping interval, 1 ms to 1 h.
    pub interval_ms: NonZeroU32,
}

impl Default for LmapConfig {
    fn default() -> Self {
        Self { interval_ms: at_least_one(1000) }
    }
}

/// Services that register.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServicesConfig {
    /// How often a service's heartbeat word has to change.
    pub heartbeat_ms: NonZeroU32,
    /// Who may register as which service; empty: everyone as any.
    pub identities: Vec<Identity>,
    /// Bounds.
    pub limits: LimitsConfig,
}

impl Default for ServicesConfig {
    fn default() -> Self {
        Self { heartbeat_ms: at_least_one(100), identities: Vec::new(), limits: LimitsConfig::default() }
    }
}

/// Allows the processes that it matches to register as some services.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Processes of this user; of any if left out.
    pub uid: Option<u32>,
    /// Processes in or below this cgroup (v2 path); in any if left out.
    pub cgroup: Option<String>,
    /// As these services; as any if left out.
    pub services: Option<Vec<String>>,
}

/// How much services may ask for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Connections at one time.
    pub connections: usize,
    /// Replicas of one service, at most 1024.
    pub replicas_per_service: usize,
    /// Regions of one replica.
    pub regions_per_replica: usize,
    /// Memory of all regions of one service.
    pub bytes_per_service: u64,
    /// Series of one service, at most 4096.
    pub series_per_service: usize,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            connections: limits.connections,
            replicas_per_service: limits.replicas_per_service,
            regions_per_replica: limits.regions_per_replica,
            bytes_per_service: limits.bytes_per_service,
            series_per_service: limits.series_per_service,
        }
    }
}

/// Who may get regions' descriptors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RegionsConfig {
    /// The user that a NIC agent on this host runs as; the host agent's own if left out.
    pub uid: Option<u32>,
}

/// How regions are offered to workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// What this machine offers: shared memory, and RDMA if there is a device.
    #[default]
    Auto,
    /// RDMA and nothing else.
    Verbs,
    /// Shared memory of this host.
    Shm,
}

/// NIC workers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControlConfig {
    /// Where workers connect to; port 0 is any free one.
    pub listen: SocketAddr,
    /// A worker that is not heard of for so long is fenced; its LMAPs run elsewhere.
    pub lease_ms: NonZeroU32,
    /// Verdicts below this share of γ come as summaries only, whatever hooks want; while no hook wants less than γ, so do all below γ.
    pub lowest_share: f64,
    /// Certificates; without, only a trusted network (such as loopback) is safe.
    pub tls: Option<ServerTls>,
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self { listen: local(9700), lease_ms: at_least_one(5000), lowest_share: 0.5, tls: None }
    }
}

/// Operators and hooks.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OperatorsConfig {
    /// Where operators and hooks connect to; port 0 is any free one.
    pub listen: SocketAddr,
    /// Verdicts that wait for a slow hook.
    pub hook_queue: NonZeroUsize,
    /// Hooks and watchers at one time.
    pub hooks: NonZeroUsize,
    /// Certificates.
    pub tls: Option<ServerTls>,
}

impl Default for OperatorsConfig {
    fn default() -> Self {
        let size = |size| NonZeroUsize::new(size).unwrap_or(NonZeroUsize::MIN);
        Self { listen: local(9701), hook_queue: size(1024), hooks: size(256), tls: None }
    }
}

/// The agent's own metrics and health.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsConfig {
    /// Where `/metrics`, `/healthz` and `/readyz` are; port 0 is any free one.
    pub listen: SocketAddr,
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Self { listen: local(9702) }
    }
}

/// What is measured of registered processes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessMetricsConfig {
    /// Whether anything is.
    pub enabled: bool,
    /// How often, at least 100 ms; what is expensive, once a second at most.
    pub interval_ms: NonZeroU32,
}

impl Default for ProcessMetricsConfig {
    fn default() -> Self {
        Self { enabled: true, interval_ms: at_least_one(100) }
    }
}

const fn local(port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), port)
}

fn at_least_one(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN)
}

impl Config {
    /// Reads the file at `path`.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if it cannot be read, is no configuration, or something in it is out of range.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        load(path)
    }

    /// Reads a configuration. Empty text is the default.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if it is none, or something in it is out of range.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        parse(text)
    }

    /// What the control plane is told, for the run `incarnation`.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if something is out of range.
    pub fn settings(&self, incarnation: Incarnation) -> Result<Settings, ConfigError> {
        self.remote_write.check()?;
        self.otlp_metrics.check()?;
        let share = self.control.lowest_share;
        range((0.0..=1.0).contains(&share), "control.lowest_share", &share, "a share of γ from 0 to 1 is needed")?;
        let lease = self.control.lease_ms.get();
        range(lease >= 1500, "control.lease_ms", &lease, "workers report once a second, so at least 1500 is needed")?;
        let sampled = self.process_metrics.interval_ms.get();
        range(sampled >= 100, "process_metrics.interval_ms", &sampled, "at least 100 is needed")?;
        let interval = Interval::new(Nanos::from_millis(u64::from(self.lmap.interval_ms.get())));
        let interval = interval.map_err(|cause| ConfigError::value("lmap.interval_ms", cause))?;
        let mut settings = Settings::new(incarnation, interval);
        settings.heartbeat = Nanos::from_millis(u64::from(self.services.heartbeat_ms.get()));
        settings.lease = Nanos::from_millis(u64::from(lease));
        settings.lowest_share = share;
        settings.identities = self.services.identities.iter().map(Identity::rule).collect::<Result<_, _>>()?;
        settings.limits = self.services.limits.limits()?;
        settings.periods = process_metrics::periods(self.process_metrics_interval());
        settings.periods.extend(span_metrics::periods(self.span_metrics_interval()));
        Ok(settings)
    }

    /// How often processes are measured: not more often than LMAPs look by default.
    #[must_use]
    pub fn process_metrics_interval(&self) -> Nanos {
        let interval = self.process_metrics.interval_ms.max(self.lmap.interval_ms);
        Nanos::from_millis(u64::from(interval.get()))
    }
}

impl Config {
    /// How often what is counted of spans is written: not more often than LMAPs look by default.
    #[must_use]
    pub fn span_metrics_interval(&self) -> Nanos {
        Nanos::from_millis(u64::from(self.lmap.interval_ms.get()).max(100))
    }
}

impl daemon::Settings for Config {
    fn check(&self) -> Result<(), ConfigError> {
        self.settings(Incarnation(0))?;
        self.coherence.settings(&self.otlp)?;
        self.head_sampling.advice(&self.otlp)?;
        self.receipt.check()?;
        self.otlp.settings(0, "").map(drop)
    }
}

impl Identity {
    fn rule(&self) -> Result<IdentityRule, ConfigError> {
        let names = |names: &Vec<String>| names.iter().map(|name| ServiceName::new(name)).collect::<Result<_, _>>();
        let services = self.services.as_ref().map(names).transpose();
        let services = services.map_err(|cause: NameError| ConfigError::value("services.identities", cause))?;
        Ok(IdentityRule { uid: self.uid, cgroup: self.cgroup.clone(), services })
    }
}

impl LimitsConfig {
    fn limits(&self) -> Result<Limits, ConfigError> {
        let (replicas, series) = (self.replicas_per_service, self.series_per_service);
        let (most_replicas, most_series) = (wire::control::MAX_REPLICAS, wire::control::MAX_METRICS);
        range(self.connections > 0, "services.limits.connections", &self.connections, "at least 1 is needed")?;
        let wanted = "1 to 1024 are possible";
        range((1..=most_replicas).contains(&replicas), "services.limits.replicas_per_service", &replicas, wanted)?;
        let wanted = "33 to 4096 are possible, 32 of which are kept for process metrics";
        let possible = Limits::OWN_SERIES + 1..=most_series;
        range(possible.contains(&series), "services.limits.series_per_service", &series, wanted)?;
        Ok(Limits {
            connections: self.connections,
            replicas_per_service: replicas,
            regions_per_replica: self.regions_per_replica,
            bytes_per_service: self.bytes_per_service,
            series_per_service: series,
            ..Limits::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_configuration_is_the_default_one() {
        assert_eq!(Config::parse(DEFAULT).unwrap(), Config::default());
        assert_eq!(Config::parse("# nothing\n\n").unwrap(), Config::default());
    }

    #[test]
    fn an_unknown_key_is_refused_with_line_and_column() {
        let error = Config::parse("lmap:\n  interval_ms: 100\n  intervall_ms: 5\n").unwrap_err().to_string();

        assert!(
            error.contains("line 3") && error.contains("column 3") && error.contains("`intervall_ms: 5`"),
            "{error}"
        );
    }

    #[test]
    fn a_value_of_the_wrong_type_is_refused_with_line_and_column() {
        for text in [
            "control:\n  listen: nowhere\n",
            "lmap:\n  interval_ms: 0\n",
            "lmap: [1]\n",
            "transport: rdma\n",
            "rdma:\n  port: 0\n",
            "log:\n  format: xml\n",
        ] {
            let error = Config::parse(text).unwrap_err().to_string();
            assert!(error.contains("line ") && error.contains("column "), "{text}: {error}");
        }
    }

    #[test]
    fn a_value_out_of_range_is_refused_with_its_key() {
        for (text, key) in [
            ("lmap:\n  interval_ms: 3600001\n", "lmap.interval_ms"),
            ("control:\n  lowest_share: 2\n", "control.lowest_share is 2"),
            ("control:\n  lease_ms: 10\n", "control.lease_ms is 10"),
            ("process_metrics:\n  interval_ms: 10\n", "process_metrics.interval_ms is 10"),
            ("services:\n  limits:\n    series_per_service: 5000\n", "series_per_service is 5000"),
            ("services:\n  identities:\n    - uid: 5\n      services: ['a b']\n", "services.identities"),
        ] {
            let error = Config::parse(text).unwrap_err().to_string();
            assert!(error.contains(key), "{text}: {error}");
        }
    }

    #[test]
    fn identities_become_rules() {
        let text =
            "services:\n  identities:\n    - uid: 1000\n      services: [payment]\n    - cgroup: /system.slice\n";
        let rules = Config::parse(text).unwrap().settings(Incarnation(1)).unwrap().identities;

        assert_eq!(rules[0].uid, Some(1000));
        assert_eq!(rules[0].services, Some(vec![ServiceName::new("payment").unwrap()]));
        assert_eq!(rules[1].cgroup.as_deref(), Some("/system.slice"));
        assert_eq!(rules[1].services, None);
    }
}
