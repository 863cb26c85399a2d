//! The host agent's configuration file. Unknown keys are refused with line and column. Every key has a default.

mod coherence;
mod head_sampling;
mod headers;
mod identity;
mod incidents;
mod keep_mode;
mod kubernetes;
mod limits;
mod lmap;
mod operators;
mod otlp;
mod otlp_logs;
mod otlp_metrics;
mod outputs;
mod page;
mod prometheus;
mod receipt;
mod remote_write;
mod sources;
mod warnings;
mod watched_metrics;
mod webhooks;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use agent_runtime::config::{load, parse, range};
use serde::Deserialize;
use wire::id::Incarnation;
use wire::time::{Interval, Nanos};

use crate::control_plane::Settings;
use crate::{cgroup_metrics, process_metrics, span_metrics};

pub use self::coherence::CoherenceConfig;
pub use self::head_sampling::HeadSamplingConfig;
pub(crate) use self::headers::HeaderSource;
pub use self::identity::Identity;
pub use self::incidents::{IncidentsConfig, ProfileConfig};
pub use self::keep_mode::KeepMode;
pub use self::kubernetes::KubernetesConfig;
pub(crate) use self::kubernetes::pod_target;
pub use self::limits::LimitsConfig;
pub use self::lmap::{AdaptiveConfig, AggregationConfig, LmapConfig};
pub use self::operators::OperatorsConfig;
pub(crate) use self::otlp::WATCH_ONLY;
pub use self::otlp::{
    Compression, DerivedConfig, OtlpConfig, TenantConfig, TracesConfig, UpstreamConfig, UpstreamProtocol,
};
pub use self::otlp_logs::LogsConfig;
pub use self::otlp_metrics::OtlpMetricsConfig;
pub(crate) use self::page::TRACE;
pub use self::page::{PageConfig, PagePrometheus};
pub(crate) use self::prometheus::changes_every;
pub use self::prometheus::{PrometheusConfig, PrometheusTarget};
pub use self::receipt::ReceiptConfig;
pub use self::remote_write::{DenseConfig, PolicyConfig, RemoteWriteConfig, VersionConfig};
pub use self::sources::{CgroupConfig, SourcesConfig};
pub use self::watched_metrics::WatchedMetricsConfig;
pub use self::webhooks::WebhookConfig;
pub(crate) use self::webhooks::{check_names as check_webhook_names, planned as planned_webhooks};
pub use agent_runtime::access::AccessConfig;
pub use agent_runtime::{ConfigError, LogConfig, LogFormat, Rdma, ServerTls};

/// The file that `--print-default-config` prints: every key with its default and what it is for.
pub const DEFAULT: &str = include_str!("config/default.yaml");

/// Settings of the host agent.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Directory of the Unix sockets and `host-agent.json`.
    pub runtime_dir: RuntimeDir,
    /// Defaults for LMAPs.
    pub lmap: LmapConfig,
    /// Services that register on the Unix socket.
    pub services: ServicesConfig,
    /// Who may be a worker, an operator, a viewer, a peer.
    pub access: AccessConfig,
    /// Access to region descriptors.
    pub regions: RegionsConfig,
    /// How workers read regions.
    pub transport: Transport,
    /// RDMA device and port.
    pub rdma: Rdma,
    /// Connections of NIC workers.
    pub control: ControlConfig,
    /// The operators' API and hooks.
    pub operators: OperatorsConfig,
    /// The agent's own metrics and health endpoints.
    pub metrics: MetricsConfig,
    /// The live page for viewers on this machine.
    pub page: PageConfig,
    /// The OTLP endpoint: spans, metrics and logs of services.
    pub otlp: OtlpConfig,
    /// Gossip with the host agents of other nodes, so that traces are kept or dropped as a whole.
    pub coherence: CoherenceConfig,
    /// Advice for services that sample at the head.
    pub head_sampling: HeadSamplingConfig,
    /// Storage of the receipt's ledger.
    pub receipt: ReceiptConfig,
    /// Storage of incidents.
    pub incidents: IncidentsConfig,
    /// Samples to a remote monitor by Prometheus remote write.
    pub remote_write: RemoteWriteConfig,
    /// Samples to a remote monitor as OTLP metrics.
    pub otlp_metrics: OtlpMetricsConfig,
    /// Receivers of alarms.
    pub webhooks: Vec<WebhookConfig>,
    /// Metrics of registered processes, from /proc.
    pub process_metrics: ProcessMetricsConfig,
    /// Programs that nobody changed.
    pub sources: SourcesConfig,
    /// What the API server of Kubernetes is asked for.
    pub kubernetes: KubernetesConfig,
    /// Folder of files with `Lmap`s, `SamplingPolicy`s and `SynopsisPolicy`s about a node without Kubernetes. `None`:
    /// none.
    pub resources: Option<PathBuf>,
    /// Logs to standard error.
    pub log: LogConfig,
}

/// The runtime directory.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct RuntimeDir(pub PathBuf);

impl Default for RuntimeDir {
    fn default() -> Self {
        Self(PathBuf::from("/run/uview"))
    }
}

/// Services that register.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServicesConfig {
    /// How often a service's heartbeat word has to change, in milliseconds.
    pub heartbeat_ms: NonZeroU32,
    /// Which processes may register as which services, and who may send spans in their names. Empty: every process as
    /// any service.
    pub identities: Vec<Identity>,
    /// Limits per service and in total.
    pub limits: LimitsConfig,
}

impl Default for ServicesConfig {
    fn default() -> Self {
        Self { heartbeat_ms: at_least_one(100), identities: Vec::new(), limits: LimitsConfig::default() }
    }
}

/// Access to region descriptors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RegionsConfig {
    /// The user of the NIC agent on this host; the host agent's own user if left out.
    pub uid: Option<u32>,
}

/// How workers read regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Shared memory, and RDMA if this machine has a device.
    #[default]
    Auto,
    /// RDMA and nothing else.
    Verbs,
    /// Shared memory of this host only.
    Shm,
}

/// Connections of NIC workers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControlConfig {
    /// Address for NIC workers of other machines, such as a DPU; port 0 is any free port. Those of this machine connect
    /// to `control.sock`.
    pub listen: Option<SocketAddr>,
    /// Whether `listen` takes workers without a certificate, whoever they are.
    pub insecure: bool,
    /// A worker that is silent for this long is fenced, and its LMAPs move to another worker.
    pub lease_ms: NonZeroU32,
    /// Verdicts with a score below this share of γ are sent as summaries only, whatever hooks ask for. While no hook
    /// asks for less than γ, that applies to all verdicts below γ. 0 to 1.
    pub min_verdict_share: f64,
    /// Server TLS of `listen`, with the authority that signs workers' certificates.
    pub tls: Option<ServerTls>,
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self { listen: None, insecure: false, lease_ms: at_least_one(5000), min_verdict_share: 0.5, tls: None }
    }
}

/// The agent's own metrics and health.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsConfig {
    /// Address of `/metrics`, `/healthz` and `/readyz`; port 0 is any free port.
    pub listen: SocketAddr,
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Self { listen: local(9702) }
    }
}

/// Metrics of registered processes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessMetricsConfig {
    /// Whether processes are measured.
    pub enabled: bool,
    /// Interval in milliseconds, at least 100. Expensive values are read once a second at most.
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

/// Refuses an address that everybody may use, unless that was said in words.
fn check_listener(
    section: &'static str,
    listen: Option<SocketAddr>,
    tls: Option<&ServerTls>,
    insecure: bool,
) -> Result<(), ConfigError> {
    let Some(address) = listen.filter(|_| !insecure) else { return Ok(()) };
    let [listen, client_ca] = match section {
        "control" => ["control.listen", "control.tls.client_ca"],
        "coherence" => ["coherence.listen", "coherence.tls.client_ca"],
        _ => ["operators.listen", "operators.tls.client_ca"],
    };
    let wanted = "needs tls with client_ca, so that peers are known by their certificates; or, for everybody who can reach it, insecure: true";
    range(tls.is_some(), listen, &address, wanted)?;
    let has_authority = tls.is_some_and(|tls| tls.client_ca.is_some());
    range(
        has_authority,
        client_ca,
        &"missing",
        "names the authority of peers' certificates; or, for everybody, insecure: true",
    )
}

impl Config {
    /// Reads the file at `path`.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the file cannot be read, is not a configuration, or has a value out of range.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        load(path)
    }

    /// Reads a configuration. Empty text is the default.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the text is not a configuration, or has a value out of range.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        parse(text)
    }

    /// Settings of the control plane, for the run `incarnation`.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if a value is out of range.
    pub fn settings(&self, incarnation: Incarnation) -> Result<Settings, ConfigError> {
        self.remote_write.check()?;
        self.otlp_metrics.check()?;
        self.sources.check()?;
        self.kubernetes.check()?;
        self.check_resources()?;
        self.page.check()?;
        self.incidents.check()?;
        let control = &self.control;
        check_listener("control", control.listen, control.tls.as_ref(), control.insecure)?;
        self.check_operators()?;
        let share = self.control.min_verdict_share;
        range((0.0..=1.0).contains(&share), "control.min_verdict_share", &share, "must be a share of γ from 0 to 1")?;
        let lease = self.control.lease_ms.get();
        range(lease >= 1500, "control.lease_ms", &lease, "must be at least 1500, since workers report once a second")?;
        let sampled = self.process_metrics.interval_ms.get();
        range(sampled >= 100, "process_metrics.interval_ms", &sampled, "must be at least 100")?;
        let interval = Interval::new(Nanos::from_millis(u64::from(self.lmap.interval_ms.get())));
        let interval = interval.map_err(|cause| ConfigError::value("lmap.interval_ms", cause))?;
        let mut settings = Settings::new(incarnation, interval);
        settings.heartbeat = Nanos::from_millis(u64::from(self.services.heartbeat_ms.get()));
        settings.interval_bounds = self.lmap.interval_bounds(interval)?;
        settings.operator_bounds = self.lmap.operator_bounds(settings.interval_bounds);
        settings.adaptive = self.lmap.adaptive()?;
        settings.aggregations = self.lmap.rules()?;
        settings.models_every = Nanos::from_secs(u64::from(self.lmap.models_every_s));
        settings.model_bytes = self.lmap.model_bytes;
        settings.lease = Nanos::from_millis(u64::from(lease));
        settings.lowest_share = share;
        settings.identities = self.services.identities.iter().map(Identity::rule).collect::<Result<_, _>>()?;
        settings.limits = self.services.limits.limits()?;
        settings.warnings = self.warnings();
        settings.periods = process_metrics::periods(self.process_metrics_interval());
        settings.periods.extend(cgroup_metrics::periods(self.cgroup_interval()));
        settings.periods.extend(span_metrics::periods(self.span_metrics_interval()));
        Ok(settings)
    }

    /// Refuses files with objects where the API server tells of them.
    fn check_resources(&self) -> Result<(), ConfigError> {
        let Some(folder) = self.resources.as_ref().filter(|_| self.kubernetes.pods) else { return Ok(()) };
        let wanted = "must be left out with kubernetes.pods: there the API server tells of these objects";
        range(false, "resources", &folder.display(), wanted)
    }

    /// What objects of the API server, or of files, may keep in memory at most.
    pub(crate) fn object_bytes(&self) -> u64 {
        let files = self.resources.as_ref().map_or(0, |_| 8 * resources::files::MAX_FILE_BYTES);
        self.kubernetes.object_bytes() + files
    }

    /// Interval of process metrics: at least the default interval of LMAPs.
    #[must_use]
    pub fn process_metrics_interval(&self) -> Nanos {
        let interval = self.process_metrics.interval_ms.max(self.lmap.interval_ms);
        Nanos::from_millis(u64::from(interval.get()))
    }

    /// Whether paths and verdicts are looked at where all spans pass through: for head sampling, here or on other
    /// nodes.
    #[must_use]
    pub fn observes_spans(&self) -> bool {
        let is_wanted = self.head_sampling.listen.is_some() || self.coherence.is_on(&self.otlp);
        is_wanted && self.otlp.traces.keep != KeepMode::Tail
    }

    /// Interval at which span metrics are written into regions: at least the default interval of LMAPs, and at least
    /// 100 ms.
    #[must_use]
    pub fn span_metrics_interval(&self) -> Nanos {
        Nanos::from_millis(u64::from(self.lmap.interval_ms.get()).max(100))
    }
}

impl agent_runtime::Settings for Config {
    fn check(&self) -> Result<(), ConfigError> {
        self.problems().into_iter().next().map_or(Ok(()), Err)
    }

    fn problems(&self) -> Vec<ConfigError> {
        let control = &self.control;
        let mut found = Vec::new();
        // The settings of the control plane have one problem at most, which may be one of the listeners'.
        for result in [
            self.settings(Incarnation(0)).map(drop),
            check_listener("control", control.listen, control.tls.as_ref(), control.insecure),
            self.check_operators(),
            self.remote_write.check(),
            self.otlp_metrics.check(),
            self.sources.check(),
            self.kubernetes.check(),
            self.check_resources(),
            self.page.check(),
            self.incidents.check(),
            self.coherence.settings(&self.otlp).map(drop),
            self.head_sampling.advice(&self.otlp).map(drop),
            self.receipt.check(),
            self.services.senders().map(drop),
            self.sources.prometheus.plans().map(drop),
            self.otlp.settings(0, "").map(drop),
        ] {
            let Err(error) = result else { continue };
            if found.iter().all(|known: &ConfigError| known.to_string() != error.to_string()) {
                found.push(error);
            }
        }
        found
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
            "access:\n  operators: {user: [root]}\n",
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
            ("lmap: {slowest_ms: 500}", "lmap.slowest_ms is 500"),
            ("lmap: {fastest_ms: 2000}", "lmap.fastest_ms is 2000"),
            ("lmap: {aggregations: [{metrics: q, aggregation: max -}]}", "lmap.aggregations"),
            ("lmap: {aggregations: [{metrics: q, aggregation: max / mode}]}", "lmap.aggregations"),
            ("control:\n  min_verdict_share: 2\n", "control.min_verdict_share is 2"),
            ("control:\n  lease_ms: 10\n", "control.lease_ms is 10"),
            ("control:\n  listen: 0.0.0.0:9700\n", "control.listen is 0.0.0.0:9700: needs tls"),
            ("operators: {listen: '[::1]:0', tls: {certificate: a, key: b}}", "operators.tls.client_ca is missing"),
            ("process_metrics:\n  interval_ms: 10\n", "process_metrics.interval_ms is 10"),
            (
                "resources: /etc/a\nkubernetes: {pods: true, node: a}",
                "resources is /etc/a: must be left out with kubernetes.pods",
            ),
            ("services:\n  limits:\n    series_per_service: 5000\n", "series_per_service is 5000"),
            ("services:\n  identities:\n    - uid: 5\n      services: ['a b']\n", "services.identities"),
        ] {
            let error = Config::parse(text).unwrap_err().to_string();
            assert!(error.contains(key), "{text}: {error}");
        }
    }
}
