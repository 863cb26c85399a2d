//! The node that the agent runs on.

use crate::config::Config;

/// The node's name: the cluster's if it is known, since a pod's host name is its own; else the host's; empty if neither
/// is known.
pub(super) fn node_name(config: &Config) -> String {
    let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    config.kubernetes.node.clone().unwrap_or_else(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_its_name_of_the_cluster_or_that_of_the_host() {
        let mut config = Config::default();
        assert!(!node_name(&config).is_empty(), "this host has a name");

        config.kubernetes.node = Some("worker-3".to_owned());
        assert_eq!(node_name(&config), "worker-3");
    }
}
