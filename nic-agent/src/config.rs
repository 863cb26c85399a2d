//! The one file that a NIC agent is configured with. Unknown keys are refused with line and column; every key has a default.

mod detector;
mod network;

use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};

use daemon::config::{load, parse, range};
use serde::Deserialize;
use wire::id::WorkerId;
use wire::time::Nanos;

use crate::claims::RegionLimits;
use crate::settings::WorkerSettings;

pub use daemon::{ClientTls, ConfigError, LogConfig, LogFormat, Rdma};
pub use detector::{DetectorConfig, Score};
pub use network::{
    ComparedConfig, InterfaceConfig, NetworkConfig, PairName, PeersConfig, StreamConfig, SynopsisName, Timestamps,
};

/// The file that `--print-default-config` prints: every key with its default and what it is for.
pub const DEFAULT: &str = include_str!("config/default.yaml");

/// Settings of the NIC agent.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Which worker of the node this is.
    pub worker: u32,
    /// The core that the worker's thread runs on; any if left out.
    pub core: Option<usize>,
    /// The host agent.
    pub control: ControlConfig,
    /// How regions are fetched.
    pub transport: Transport,
    /// Which device and port are used for RDMA.
    pub rdma: Rdma,
    /// Where the host agent gives out regions of this host; without one, shared memory is no way to fetch.
    pub regions_socket: Option<PathBuf>,
    /// The agent's own metrics and health.
    pub metrics: MetricsConfig,
    /// How LMAPs judge.
    pub detector: DetectorConfig,
    /// What is measured of packets.
    pub network: NetworkConfig,
    /// Bounds.
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
            detector: DetectorConfig::default(),
            network: NetworkConfig::default(),
            limits: LimitsConfig::default(),
            log: LogConfig::default(),
        }
    }
}

/// The host agent.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControlConfig {
    /// Where it listens for workers: host and port.
    pub address: String,
    /// Certificates.
    pub tls: Option<ClientTls>,
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self { address: "127.0.0.1:9700".to_owned(), tls: None }
    }
}

/// How regions are fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// What this machine offers: shared memory if the host agent is on it, else RDMA if there is a device, else shared memory.
    #[default]
    Auto,
    /// RDMA READs.
    Verbs,
    /// Shared memory of this host.
    Shm,
}

/// The agent's own metrics and health.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsConfig {
    /// Where `/metrics` and `/healthz` are; port 0 is any free one.
    pub listen: SocketAddr,
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Self { listen: SocketAddr::from(([127, 0, 0, 1], 9703)) }
    }
}

/// Bounds of what the worker keeps.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// How long regions are fetched on without a host agent.
    pub alone_s: u32,
    /// How long what was learnt of a service is kept for a host agent that comes back.
    pub remembered_s: u32,
    /// Messages other than rows that wait for the host agent.
    pub outbox_messages: NonZeroUsize,
    /// Messages of rows that wait for the host agent.
    pub outbox_rows: NonZeroUsize,
    /// Rows of each LMAP kept for whoever subscribes later; at most 10,000.
    pub rows_kept: u32,
    /// Regions of all LMAPs.
    pub regions: NonZeroUsize,
    /// Bytes of all regions; as much memory is used for them.
    pub region_bytes: NonZeroU64,
}

/// The most rows of an LMAP that can be kept.
const MOST_ROWS_KEPT: u32 = 10_000;
/// The most messages that can wait.
const MOST_MESSAGES: usize = 1 << 20;

impl Default for LimitsConfig {
    fn default() -> Self {
        let settings = WorkerSettings::default();
        let messages = |messages| NonZeroUsize::new(messages).unwrap_or(NonZeroUsize::MIN);
        Self {
            alone_s: seconds(settings.alone),
            remembered_s: seconds(settings.remembered),
            outbox_messages: messages(settings.outbox_messages),
            outbox_rows: messages(settings.outbox_rows),
            rows_kept: settings.rows_kept as u32,
            regions: messages(settings.regions.regions),
            region_bytes: NonZeroU64::new(settings.regions.bytes).unwrap_or(NonZeroU64::MIN),
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

    /// What the worker is told.
    #[must_use]
    pub fn settings(&self) -> WorkerSettings {
        let LimitsConfig { alone_s, remembered_s, outbox_messages, outbox_rows, rows_kept, regions, region_bytes } =
            self.limits;
        WorkerSettings {
            worker: WorkerId(self.worker),
            alone: Nanos::from_secs(u64::from(alone_s)),
            remembered: Nanos::from_secs(u64::from(remembered_s)),
            outbox_messages: outbox_messages.get(),
            outbox_rows: outbox_rows.get(),
            rows_kept: rows_kept as usize,
            regions: RegionLimits { regions: regions.get(), bytes: region_bytes.get() },
            detector: self.detector.settings(),
            alarms_per_day: self.detector.alarms_per_day,
            ..WorkerSettings::default()
        }
    }
}

impl daemon::Settings for Config {
    fn check(&self) -> Result<(), ConfigError> {
        let address = &self.control.address;
        let is_address = address
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0));
        let wanted = "a host and a port are needed, such as 127.0.0.1:9700";
        range(is_address, "control.address", &format!("{address:?}"), wanted)?;
        let has_socket = self.transport != Transport::Shm || self.regions_socket.is_some();
        range(has_socket, "regions_socket", &"null", "transport shm needs the host agent's regions socket")?;
        let limits = &self.limits;
        let kept = limits.rows_kept;
        range(kept <= MOST_ROWS_KEPT, "limits.rows_kept", &kept, "at most 10000 are possible")?;
        for (key, found) in
            [("limits.outbox_messages", limits.outbox_messages), ("limits.outbox_rows", limits.outbox_rows)]
        {
            range(found.get() <= MOST_MESSAGES, key, &found, "at most 1048576 are possible")?;
        }
        self.network.check()?;
        self.detector.check()
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
        let error = Config::parse("limits:\n  alone_s: 5\n  alone_ms: 5\n").unwrap_err().to_string();

        assert!(error.contains("line 3") && error.contains("column 3") && error.contains("`alone_ms: 5`"), "{error}");
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
            ("transport: shm\nregions_socket: null\n", "regions_socket is null"),
            ("limits:\n  rows_kept: 10001\n", "limits.rows_kept is 10001"),
            ("limits:\n  outbox_messages: 1048577\n", "limits.outbox_messages is 1048577"),
        ] {
            let error = Config::parse(text).unwrap_err().to_string();
            assert!(error.contains(key), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_configured_reaches_the_worker() {
        let settings = Config::parse("worker: 3\nlimits:\n  alone_s: 7\n  rows_kept: 9\n").unwrap().settings();

        assert_eq!((settings.worker, settings.alone, settings.rows_kept), (WorkerId(3), Nanos::from_secs(7), 9));
    }
}
