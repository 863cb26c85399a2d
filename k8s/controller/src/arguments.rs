//! Command line arguments of the controller. It has no configuration file.

use std::net::SocketAddr;
use std::path::PathBuf;

use agent_runtime::{LogConfig, LogFormat};

/// Command line arguments of the controller.
#[derive(Clone, Debug, clap::Args)]
pub struct ControllerArgs {
    /// Name of this replica: its pod's
    #[arg(long, value_name = "NAME", required_unless_present = "budget")]
    pub name: Option<String>,
    /// Namespace of the lease by which one replica acts, and of the host agents
    #[arg(long, value_name = "NAME", default_value = "uview")]
    pub namespace: String,
    /// Address of /metrics, /healthz and /readyz
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9710")]
    pub listen: SocketAddr,
    /// Address of the metrics for the HorizontalPodAutoscaler, custom.metrics.k8s.io; without it, they are not served
    #[arg(long, value_name = "ADDRESS", requires = "certificate", requires = "key")]
    pub metrics_api: Option<SocketAddr>,
    /// Certificate chain of that address, in PEM
    #[arg(long, value_name = "FILE", requires = "metrics_api")]
    pub certificate: Option<PathBuf>,
    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "metrics_api")]
    pub key: Option<PathBuf>,
    /// Port of the host agents' /metrics, on the addresses of their pods
    #[arg(long, value_name = "PORT", default_value_t = 9702)]
    pub agent_port: u16,
    /// Level of the log, also by module, such as info,controller=debug
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
    /// Write the log as JSON, a line each
    #[arg(long)]
    pub log_json: bool,
    /// Print what the controller may keep in memory, in rows and as a sum, and exit
    #[arg(long)]
    pub budget: bool,
}

impl ControllerArgs {
    /// How it logs.
    #[must_use]
    pub fn log(&self) -> LogConfig {
        let format = if self.log_json { LogFormat::Json } else { LogFormat::Text };
        LogConfig { level: self.log_level.clone(), format }
    }
}
