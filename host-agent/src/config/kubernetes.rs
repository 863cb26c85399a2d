//! Configuration of what the API server of Kubernetes is asked for.

use std::collections::BTreeSet;

use agent_runtime::config::range;
use serde::Deserialize;

use super::ConfigError;
use super::prometheus::{MAX_TARGETS, PrometheusTarget, size};
use crate::pod_watch::PodPlan;
use crate::token_access::TokenPlan;

/// What is known of Kubernetes.
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own, as in the file")]
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KubernetesConfig {
    /// Whether the containers of the node's pods are watched, as replicas of their workloads.
    pub pods: bool,
    /// The node's name. `None`: as `--node` says.
    pub node: Option<String>,
    /// Services (`namespace/workload`) whose pods forward spans and metrics of others, such as Collectors.
    pub forwarders: BTreeSet<String>,
    /// Most endpoints of pods that are scraped; 0: none.
    pub scrape_targets: usize,
    /// Whether `PodMonitor`s say what is scraped, beside annotations.
    pub pod_monitors: bool,
    /// Whether `Lmap`s (uview.dev) say how the pods' services are watched.
    pub lmaps: bool,
    /// Whether `SamplingPolicy`s (uview.dev) say which of their traces are kept, with `otlp.traces.keep: tail`.
    pub sampling_policies: bool,
    /// Whether `SynopsisPolicy`s (uview.dev) say which synopses watch their packets.
    pub synopsis_policies: bool,
    /// Each node writes what came of a change at a moment of its own within so many milliseconds.
    pub status_spread_ms: u32,
    /// Whether callers of `operators.listen` may show a token of the cluster in place of a certificate: its API server
    /// says whose it is, and whether they may.
    pub tokens: bool,
    /// What these tokens have to be for.
    pub audience: String,
}

impl Default for KubernetesConfig {
    fn default() -> Self {
        let forwarders = BTreeSet::new();
        Self {
            pods: false,
            node: None,
            forwarders,
            scrape_targets: 32,
            pod_monitors: true,
            lmaps: true,
            sampling_policies: true,
            synopsis_policies: true,
            status_spread_ms: 30_000,
            tokens: false,
            audience: "uview".to_owned(),
        }
    }
}

impl KubernetesConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let most = "must be at most 256 on one node";
        range(self.scrape_targets <= MAX_TARGETS, "kubernetes.scrape_targets", &self.scrape_targets, most)?;
        let most = "must be at most 600000: somebody waits for it";
        let spread = self.status_spread_ms;
        range(spread <= 600_000, "kubernetes.status_spread_ms", &spread, most)?;
        for name in &self.forwarders {
            let is_service =
                name.split_once('/').is_some_and(|(space, workload)| !space.is_empty() && !workload.is_empty());
            let wanted = "must be a namespace, a slash and a workload, such as tracing/otel-collector";
            range(is_service, "kubernetes.forwarders", name, wanted)?;
        }
        let is_printable = self.audience.bytes().all(|byte| byte.is_ascii_graphic());
        let fits = is_printable && (1..=253).contains(&self.audience.len());
        let wanted = "must be a name that tokens are issued for, without spaces: --audience of kubectl create token";
        range(fits, "kubernetes.audience", &self.audience, wanted)?;
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
        Ok(self.node.clone().map(|node| PodPlan {
            node,
            forwarders: self.forwarders.clone(),
            scrape_targets: self.scrape_targets,
            pod_monitors: self.pod_monitors,
        }))
    }

    /// Whose tokens are taken; `None`: nobody's.
    pub(crate) fn tokens(&self) -> Option<TokenPlan> {
        self.tokens.then(|| TokenPlan { audience: self.audience.clone(), node: self.node.clone() })
    }

    /// What custom resources may keep in memory at most: as they are, as they are planned, and one answer of the API
    /// server.
    pub(crate) fn object_bytes(&self) -> u64 {
        let lmaps = resources::plan::MAX_OBJECT_BYTES as u64 * u64::from(self.lmaps);
        let policies = resources::sampling_plan::MAX_POLICY_BYTES as u64 * u64::from(self.sampling_policies);
        let synopses = resources::synopsis_plan::MAX_SYNOPSIS_POLICY_BYTES as u64 * u64::from(self.synopsis_policies);
        8 * (lmaps + policies + synopses) * u64::from(self.pods)
    }

    /// What the endpoints of pods may keep in memory at most.
    pub(crate) fn scrape_bytes(&self) -> u64 {
        if self.pods { self.scrape_targets as u64 * target_bytes() } else { 0 }
    }
}

/// What one endpoint of a pod may keep in memory at most.
fn target_bytes() -> u64 {
    pod_target(String::new(), String::new(), String::new()).bytes()
}

/// The endpoint `url` of the replica `instance` of `service`. Less of it is looked at than of one that is configured.
pub(crate) fn pod_target(service: String, instance: String, url: String) -> PrometheusTarget {
    PrometheusTarget {
        instance: Some(instance),
        max_samples: size(2_000),
        max_bytes: size(512 << 10),
        max_columns: size(50),
        ..PrometheusTarget::new(service, url)
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
        for (wrong, expected) in [
            ("status_spread_ms: 600001", "kubernetes.status_spread_ms is 600001: must be at most 600000"),
            ("scrape_targets: 257", "kubernetes.scrape_targets is 257: must be at most 256"),
            (
                "forwarders: [collector]",
                "kubernetes.forwarders is collector: must be a namespace, a slash and a workload",
            ),
        ] {
            let error = plan(&format!("kubernetes: {{{wrong}}}")).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let selector = plan("kubernetes: {node: 'a,spec.nodeName=b'}").unwrap_err();
        assert!(selector.contains("kubernetes.node is a,spec.nodeName=b: must be"), "{selector}");
    }

    #[test]
    fn custom_resources_take_memory_only_where_they_are_watched() {
        let bytes = |text: &str| Config::parse(text).unwrap().kubernetes.object_bytes();

        assert_eq!(bytes(""), 0);
        let without = |others: &str| bytes(&format!("kubernetes: {{pods: true, node: a, {others}}}"));
        let policies = without("lmaps: false, synopsis_policies: false");
        let lmaps = without("sampling_policies: false, synopsis_policies: false");
        let synopses = without("lmaps: false, sampling_policies: false");
        assert_eq!((policies, lmaps, synopses), (1 << 20, 16 << 20, 2 << 20));
        assert_eq!(bytes("kubernetes: {pods: true, node: a}"), policies + lmaps + synopses);
    }

    #[test]
    fn endpoints_of_pods_take_memory_only_where_pods_are_watched() {
        let bytes = |text: &str| Config::parse(text).unwrap().kubernetes.scrape_bytes();

        let one = bytes("kubernetes: {pods: true, node: a, scrape_targets: 1}");
        assert!((5_000_000..5_600_000).contains(&one), "{one}");
        assert_eq!(bytes("kubernetes: {pods: true, node: a}"), 32 * one);
        assert_eq!(bytes(""), 0);
    }
}
