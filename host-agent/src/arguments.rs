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
    /// Name of this agent in gossip and in incomplete traces, unless otlp.traces.node says it
    #[arg(long, value_name = "NAME")]
    pub gossip_name: Option<String>,
    /// Print the definitions of the custom resources of Kubernetes that this agent follows, and exit
    #[arg(long)]
    pub print_custom_resources: bool,
}

impl HostAgentArgs {
    /// `config`, with the names of this node and of this agent where it has none.
    #[must_use]
    pub fn named(&self, mut config: Config) -> Config {
        if config.kubernetes.node.is_none() {
            config.kubernetes.node.clone_from(&self.node);
        }
        if config.otlp.traces.node.is_none() {
            config.otlp.traces.node.clone_from(&self.gossip_name);
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_configuration_come_before_those_of_the_command_line() {
        let (node, gossip_name) = (Some("node-1".to_owned()), Some("agent-x7k2p".to_owned()));
        let args = HostAgentArgs { node, gossip_name, ..HostAgentArgs::default() };
        let names = |text: &str| {
            let config = args.named(Config::parse(text).unwrap());
            (config.kubernetes.node.unwrap_or_default(), config.otlp.traces.node.unwrap_or_default())
        };

        assert_eq!(names(""), ("node-1".to_owned(), "agent-x7k2p".to_owned()));
        let said = "kubernetes: {node: node-2}\notlp: {traces: {node: edge-2}}\n";
        assert_eq!(names(said), ("node-2".to_owned(), "edge-2".to_owned()));
    }
}
