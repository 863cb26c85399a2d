//! Configuration of what the API server of Kubernetes is asked for.

use agent_runtime::config::range;
use serde::Deserialize;

use super::ConfigError;
use crate::pod_watch::PodPlan;

/// What is known of Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KubernetesConfig {
    /// Whether the containers of the node's pods are watched, as replicas of their workloads.
    pub pods: bool,
    /// The node's name. `None`: as `--node` says.
    pub node: Option<String>,
}

impl KubernetesConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let Some(node) = &self.node else { return Ok(()) };
        // A selector of fields names it, where a comma begins another condition.
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
        let fits = !node.is_empty() && node.len() <= 253 && node.bytes().all(is_name);
        range(fits, "kubernetes.node", node, "must be the name of a node: letters, digits, '-' and '.'")
    }

    /// Which pods are watched. `None` if none are.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] without the node's name.
    pub(crate) fn plan(&self) -> Result<Option<PodPlan>, ConfigError> {
        self.check()?;
        if !self.pods {
            return Ok(None);
        }
        let wanted = "names this node: start the agent with --node $(NODE_NAME), as the chart does";
        range(self.node.is_some(), "kubernetes.node", &"missing", wanted)?;
        Ok(self.node.clone().map(|node| PodPlan { node }))
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn pods_need_the_name_of_their_node() {
        let plan = |text: &str| {
            let config = Config::parse(text).map_err(|error| error.to_string())?;
            config.kubernetes.plan().map(|plan| plan.map(|plan| plan.node)).map_err(|error| error.to_string())
        };

        assert_eq!(plan(""), Ok(None));
        assert_eq!(plan("kubernetes: {pods: true, node: node-1.example}"), Ok(Some("node-1.example".to_owned())));
        let missing = plan("kubernetes: {pods: true}").unwrap_err();
        assert!(missing.contains("kubernetes.node is missing: names this node"), "{missing}");
        let selector = plan("kubernetes: {node: 'a,spec.nodeName=b'}").unwrap_err();
        assert!(selector.contains("kubernetes.node is a,spec.nodeName=b: must be"), "{selector}");
    }
}
