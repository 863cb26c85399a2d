//! The configuration file of the NIC agent. Unknown keys are errors with line and column; every key has a default.

mod detector;
mod fragment;
mod network;
mod pair;
mod peers;
mod stream;
mod switch;
mod synopses;
mod warnings;

use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};

use agent_runtime::config::{load, parse, range};
use serde::Deserialize;
use wire::id::WorkerId;
use wire::time::Nanos;

use crate::region_limits::RegionLimits;
use crate::settings::WorkerSettings;

pub use agent_runtime::access::AccessConfig;
pub use agent_runtime::{ClientTls, ConfigError, LogConfig, LogFormat, Rdma};
pub use detector::{DetectorConfig, Score};
pub use fragment::{FragmentConfig, FragmentPeer};
pub use network::{InterfaceConfig, NetworkConfig, Timestamps};
pub use pair::PairName;
pub use peers::PeersConfig;
pub use stream::{OneWayConfig, StreamConfig, SynopsisName};
pub use switch::{SwitchConfig, SwitchFileError};
pub use synopses::{CardinalityConfig, HeavyHittersConfig, KeyName, ReorderingConfig, SynopsesConfig, WeightName};
pub(crate) use warnings::is_here;

/// The default configuration, which `--print-default-config` prints: every key with its default and a comment.
pub const DEFAULT: &str = include_str!("config/default.yaml");

/// Settings of the NIC agent.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Number of this worker on its node, from 0.
    pub worker: u32,
    /// CPU core of the worker's thread; any core if `None`.
    pub core: Option<usize>,
    /// The connection to the host agent.
    pub control: ControlConfig,
    /// The transport for regions.
    pub transport: Transport,
    /// The RDMA device and port.
    pub rdma: Rdma,
    /// Socket on which the host agent passes regions of this host; `None` excludes the transport shm.
    pub regions_socket: Option<PathBuf>,
    /// The HTTP endpoint of the agent's own metrics and health.
    pub metrics: MetricsConfig,
    /// The learned models, for those who may read.
    pub models: ModelsConfig,
    /// Who may read the models.
    pub access: AccessConfig,
    /// Settings of the detectors of all LMAPs.
    pub detector: DetectorConfig,
    /// Packet measurement: interfaces, streams and peers.
    pub network: NetworkConfig,
    /// Limits of queues, memory and retention.
    pub limits: LimitsConfig,
    /// Logs to standard error.
    pub log: LogConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            worker: 0,
            core: None,
            control: ControlConfig::default(),
            transport: Transport::default(),
            rdma: Rdma::default(),
            regions_socket: Some(PathBuf::from("/run/uview/regions.sock")),
            metrics: MetricsConfig::default(),
            models: ModelsConfig::default(),
            access: AccessConfig::default(),
            detector: DetectorConfig::default(),
            network: NetworkConfig::default(),
            limits: LimitsConfig::default(),
            log: LogConfig::default(),
        }
    }
}

/// What the address of a Unix socket begins with.
pub(crate) const UNIX: &str = "unix:";

/// The connection to the host agent.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControlConfig {
    /// Where the host agent listens for workers: `unix:` and the path of its `control.sock`, or host and port.
    pub address: String,
    /// Whether host and port are called without TLS.
    pub insecure: bool,
    /// TLS of the connection to host and port; `None` for plain text.
    pub tls: Option<ClientTls>,
}

impl ControlConfig {
    /// Whether whoever answers is taken for the host agent. A Unix socket is whose it is.
    pub(crate) fn is_open(&self) -> bool {
        self.tls.is_none() && !self.address.starts_with(UNIX)
    }
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self { address: "unix:/run/uview/control.sock".to_owned(), insecure: false, tls: None }
    }
}

/// The transport for regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Shared memory if the host agent is on this machine, else RDMA if there is a device, else shared memory.
    #[default]
    Auto,
    /// RDMA READs over libibverbs.
    Verbs,
    /// Shared memory of this host.
    Shm,
}

/// The HTTP endpoint of the agent's own metrics and health.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsConfig {
    /// Address of `/metrics`, `/healthz` and `/readyz`; port 0 is any free port.
    pub listen: SocketAddr,
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Self { listen: SocketAddr::from(([127, 0, 0, 1], 9703)) }
    }
}

/// The learned models. They tell how a service behaves, so that not everybody may read them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelsConfig {
    /// Unix socket of `/models/SERVICE`, for viewers; `None`: not served.
    pub socket: Option<PathBuf>,
}

/// Limits of queues, memory and retention.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Seconds for which regions are still fetched without a host agent.
    pub without_host_agent_s: u32,
    /// Seconds for which the detectors of a service are retained for a host agent that comes back.
    pub detector_retention_s: u32,
    /// Most bytes of such detectors.
    pub retained_detector_bytes: u64,
    /// Most messages, other than rows, queued for the host agent.
    pub outbox_messages: NonZeroUsize,
    /// Most messages with rows queued for the host agent.
    pub outbox_rows: NonZeroUsize,
    /// Rows of each LMAP that a new subscriber gets first; at most 10,000.
    pub row_history: u32,
    /// Most regions of all LMAPs.
    pub regions: NonZeroUsize,
    /// Bytes of the pages in use of all regions. Their buffers take about as much memory.
    pub region_bytes: NonZeroU64,
    /// Most models of services that are gone.
    pub retained_models: usize,
    /// Most bytes of models of services that are gone.
    pub retained_model_bytes: u64,
    /// Most READs per second between rows, of all LMAPs that are fetched faster since something seems wrong.
    pub extra_reads_per_s: u32,
}

/// Largest value of `limits.row_history`.
const MAX_ROW_HISTORY: u32 = 10_000;
/// Largest length of an outbox queue.
const MAX_OUTBOX: usize = 1 << 20;

impl Default for LimitsConfig {
    fn default() -> Self {
        let settings = WorkerSettings::default();
        let messages = |messages| NonZeroUsize::new(messages).unwrap_or(NonZeroUsize::MIN);
        Self {
            without_host_agent_s: seconds(settings.without_host_agent),
            detector_retention_s: seconds(settings.detector_retention),
            retained_detector_bytes: settings.max_retained_detector_bytes,
            outbox_messages: messages(settings.outbox_messages),
            outbox_rows: messages(settings.outbox_rows),
            row_history: settings.row_history as u32,
            regions: messages(settings.regions.regions),
            region_bytes: NonZeroU64::new(settings.regions.bytes).unwrap_or(NonZeroU64::MIN),
            retained_models: settings.max_retained_models,
            retained_model_bytes: settings.max_retained_model_bytes,
            extra_reads_per_s: settings.extra_reads_per_s as u32,
        }
    }
}

fn seconds(length: Nanos) -> u32 {
    u32::try_from(length.0 / 1_000_000_000).unwrap_or(u32::MAX)
}

impl Config {
    /// Reads the file at `path`.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the file cannot be read or parsed, or a value is out of range.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        load(path)
    }

    /// Parses a configuration. Empty text is the default.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the text cannot be parsed, or a value is out of range.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        parse(text)
    }

    /// The settings of the worker.
    #[must_use]
    pub fn settings(&self) -> WorkerSettings {
        let LimitsConfig {
            without_host_agent_s,
            detector_retention_s,
            retained_detector_bytes,
            outbox_messages,
            outbox_rows,
            row_history,
            regions,
            region_bytes,
            retained_models,
            retained_model_bytes,
            extra_reads_per_s,
        } = self.limits;
        WorkerSettings {
            worker: WorkerId(self.worker),
            without_host_agent: Nanos::from_secs(u64::from(without_host_agent_s)),
            detector_retention: Nanos::from_secs(u64::from(detector_retention_s)),
            max_retained_detector_bytes: retained_detector_bytes,
            outbox_messages: outbox_messages.get(),
            outbox_rows: outbox_rows.get(),
            row_history: row_history as usize,
            regions: RegionLimits { regions: regions.get(), bytes: region_bytes.get() },
            max_retained_models: retained_models,
            max_retained_model_bytes: retained_model_bytes,
            extra_reads_per_s: f64::from(extra_reads_per_s),
            stream_interfaces: self.network.policy_interfaces,
            detector: self.detector.settings(),
            alarms_per_day: self.detector.alarms_per_day,
            warnings: self.warnings(),
            ..WorkerSettings::default()
        }
    }
}

impl agent_runtime::Settings for Config {
    fn check(&self) -> Result<(), ConfigError> {
        self.problems().into_iter().next().map_or(Ok(()), Err)
    }

    fn problems(&self) -> Vec<ConfigError> {
        let address = &self.control.address;
        let is_socket = address.strip_prefix(UNIX).is_some_and(|path| path.starts_with('/'));
        let is_address = address
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0));
        let has_socket = self.transport != Transport::Shm || self.regions_socket.is_some();
        let LimitsConfig { row_history, outbox_messages, outbox_rows, .. } = &self.limits;
        let outbox =
            |key, found: &NonZeroUsize| range(found.get() <= MAX_OUTBOX, key, found, "at most 1048576 are possible");
        let wanted = "the host agent's socket is needed, such as unix:/run/uview/control.sock, or a host and a port";
        let without = "transport shm needs the host agent's regions socket";
        let is_said = !is_address || !self.control.is_open() || self.control.insecure;
        let in_words = "needs control.tls, so that the host agent is known by its certificate, and this agent by its own; or, for whoever answers there, control.insecure: true";
        [
            range(is_socket || is_address, "control.address", &format!("{address:?}"), wanted),
            range(is_said, "control.address", address, in_words),
            range(has_socket, "regions_socket", &"null", without),
            range(*row_history <= MAX_ROW_HISTORY, "limits.row_history", row_history, "at most 10000 are possible"),
            outbox("limits.outbox_messages", outbox_messages),
            outbox("limits.outbox_rows", outbox_rows),
            self.network.check(),
            self.detector.check(),
        ]
        .into_iter()
        .filter_map(Result::err)
        .collect()
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
        let error = Config::parse(
            "limits:\n  without_host_agent_s: 5
  without_host_agent_ms: 5
",
        )
        .unwrap_err()
        .to_string();

        assert!(
            error.contains("line 3") && error.contains("column 3") && error.contains("`without_host_agent_ms: 5`"),
            "{error}"
        );
    }

    #[test]
    fn a_value_of_the_wrong_type_is_refused_with_line_and_column() {
        for text in [
            "worker: -1\n",
            "transport: rdma\n",
            "rdma:\n  port: 0\n",
            "limits:\n  outbox_rows: 0\n",
            "metrics:\n  listen: here\n",
        ] {
            let error = Config::parse(text).unwrap_err().to_string();
            assert!(error.contains("line ") && error.contains("column "), "{text}: {error}");
        }
    }

    #[test]
    fn a_value_out_of_range_is_refused_with_its_key() {
        for (text, key) in [
            ("control:\n  address: localhost\n", "control.address is \"localhost\""),
            ("control:\n  address: 'host:0'\n", "control.address"),
            ("control:\n  address: 'unix:control.sock'\n", "control.address"),
            ("control:\n  address: '127.0.0.1:9700'\n", "control.address is 127.0.0.1:9700: needs control.tls"),
            ("control:\n  address: 'host:9700'\n", "or, for whoever answers there, control.insecure: true"),
            ("transport: shm\nregions_socket: null\n", "regions_socket is null"),
            ("limits:\n  row_history: 10001\n", "limits.row_history is 10001"),
            ("limits:\n  outbox_messages: 1048577\n", "limits.outbox_messages is 1048577"),
        ] {
            let error = Config::parse(text).unwrap_err().to_string();
            assert!(error.contains(key), "{text}: {error}");
        }
    }

    #[test]
    fn a_port_without_tls_is_called_if_that_is_said_in_words_also_on_this_machine() {
        for address in ["127.0.0.1:9700", "localhost:9700", "[::1]:9700", "192.0.2.1:9700"] {
            let text = |more: &str| format!("control: {{address: '{address}'{more}}}\n");
            let problems = agent_runtime::Settings::problems(&parse_any(&text("")));
            assert_eq!(problems.len(), 1, "{address}: {problems:?}");
            assert!(Config::parse(&text(", insecure: true")).is_ok(), "{address}");
            assert!(Config::parse(&text(", tls: {ca: ca.pem}")).is_ok(), "{address}");
        }
        assert!(Config::parse("control: {address: 'unix:/run/control.sock'}\n").is_ok());
    }

    /// The configuration of `text`, whatever is wrong with its values.
    fn parse_any(text: &str) -> Config {
        agent_runtime::config::parse_unchecked(text).unwrap()
    }

    #[test]
    fn configured_values_reach_the_worker() {
        let settings =
            Config::parse("worker: 3\nlimits:\n  without_host_agent_s: 7\n  row_history: 9\n").unwrap().settings();

        assert_eq!(
            (settings.worker, settings.without_host_agent, settings.row_history),
            (WorkerId(3), Nanos::from_secs(7), 9)
        );
    }
}
