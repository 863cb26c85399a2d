//! Command line arguments of the host agent.

use agent_runtime::program::ConfigArgs;

use crate::config::Config;

/// The definitions of the custom resources that this agent follows, as YAML for `kubectl apply`.
///
/// # Errors
///
/// The serializer's; none for these values.
pub fn custom_resources() -> Result<String, impl core::error::Error + Send + Sync + 'static> {
    resources::manifests::yaml()
}

/// Command line arguments of the host agent.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct HostAgentArgs {
    /// The file, and what is done with it.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Name of this node in Kubernetes, unless kubernetes.node says it
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Print the definitions of the custom resources of Kubernetes that this agent follows, and exit
    #[arg(long)]
    pub print_custom_resources: bool,
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
