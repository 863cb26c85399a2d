//! Command line arguments of the driver. It has no configuration file.

use std::path::PathBuf;

use agent_runtime::{LogConfig, LogFormat};

/// The driver's name, as pods write it.
pub const DRIVER: &str = "sockets.uview.dev";

/// Command line arguments of the driver.
#[derive(Clone, Debug, clap::Args)]
pub struct CsiArgs {
    /// Name of this node in Kubernetes
    #[arg(long, value_name = "NAME")]
    pub node: String,
    /// Directory that pods get: that of the agents' sockets
    #[arg(long, value_name = "DIR", default_value = "/run/uview")]
    pub source: PathBuf,
    /// Directory of kubelet
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub kubelet: PathBuf,
    /// Level of the log, also by module, such as info,csi=debug
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
    /// Write the log as JSON, a line each
    #[arg(long)]
    pub log_json: bool,
}

impl CsiArgs {
    /// How it logs.
    #[must_use]
    pub fn log(&self) -> LogConfig {
        let format = if self.log_json { LogFormat::Json } else { LogFormat::Text };
        LogConfig { level: self.log_level.clone(), format }
    }

    /// The driver's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.kubelet.join("plugins").join(DRIVER).join("csi.sock")
    }

    /// Where the directory is mounted first.
    pub(crate) fn stage(&self) -> PathBuf {
        self.kubelet.join("plugins").join(DRIVER).join("stage")
    }

    /// The socket by which kubelet learns of the driver.
    pub(crate) fn registration(&self) -> PathBuf {
        self.kubelet.join("plugins_registry").join(format!("{DRIVER}-reg.sock"))
    }

    /// The directory of pods, below which volumes are.
    pub(crate) fn pods(&self) -> PathBuf {
        self.kubelet.join("pods")
    }
}
