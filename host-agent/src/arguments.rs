//! Command line arguments of the host agent.

use agent_runtime::program::ConfigArgs;

use crate::config::Config;

/// Command line arguments of the host agent.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct HostAgentArgs {
    /// The file, and what is done with it.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Name of this node in Kubernetes, unless kubernetes.node says it
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
}

impl HostAgentArgs {
    /// `config`, with this node's name where it has none.
    #[must_use]
    pub fn named(&self, mut config: Config) -> Config {
        if config.kubernetes.node.is_none() {
            config.kubernetes.node.clone_from(&self.node);
        }
        config
    }
}
