//! Configuration of sources: programs that nobody changed.

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;

use agent_runtime::config::range;
use serde::Deserialize;
use sources::cgroup::pattern::{Pattern, PatternError};
use wire::time::Nanos;

use super::{Config, ConfigError, Identity, PrometheusConfig, at_least_one};
use crate::cgroup_metrics::{CgroupSettings, ContainerSource};
use crate::pod_watch::PodWatch;

/// What is read of programs that nobody changed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SourcesConfig {
    /// Cgroups to be read, and their services. Empty: none.
    pub cgroups: Vec<CgroupConfig>,
    /// Interval in milliseconds, at least 100.
    pub cgroup_interval_ms: NonZeroU32,
    /// Interval between two scans for new cgroups in milliseconds, at least 1000.
    pub cgroup_scan_ms: NonZeroU32,
    /// Most cgroups, at most 1024.
    pub cgroup_limit: NonZeroUsize,
    /// Endpoints in the formats of Prometheus.
    pub prometheus: PrometheusConfig,
}

/// Cgroups of one pattern.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CgroupConfig {
    /// Their path from the root on, with stars for any text within a folder's name.
    pub pattern: String,
    /// The service of each, with fields for what the stars stand for.
    #[serde(default = "name")]
    pub service: String,
}

fn name() -> String {
    "{name}".to_owned()
}

impl Default for SourcesConfig {
    fn default() -> Self {
        Self {
            cgroups: Vec::new(),
            cgroup_interval_ms: at_least_one(1000),
            cgroup_scan_ms: at_least_one(5000),
            cgroup_limit: NonZeroUsize::new(256).unwrap_or(NonZeroUsize::MIN),
            prometheus: PrometheusConfig::default(),
        }
    }
}

impl SourcesConfig {
    /// Most cgroups of any configuration.
    const MAX_CGROUPS: usize = 1024;

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let (interval, scans, limit) = (self.cgroup_interval_ms, self.cgroup_scan_ms, self.cgroup_limit);
        range(interval.get() >= 100, "sources.cgroup_interval_ms", &interval, "must be at least 100")?;
        range(scans.get() >= 1000, "sources.cgroup_scan_ms", &scans, "must be at least 1000")?;
        range(limit.get() <= Self::MAX_CGROUPS, "sources.cgroup_limit", &limit, "must be at most 1024")?;
        self.patterns().map(drop)
    }

    /// The patterns of cgroups.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if one cannot be used.
    pub fn patterns(&self) -> Result<Vec<Pattern>, ConfigError> {
        let pattern = |config: &CgroupConfig| Pattern::new(&config.pattern, &config.service);
        let patterns: Result<_, PatternError> = self.cgroups.iter().map(pattern).collect();
        patterns.map_err(|cause| ConfigError::value("sources.cgroups", cause))
    }
}

impl Config {
    /// Interval of metrics of cgroups: at least the default interval of LMAPs.
    #[must_use]
    pub fn cgroup_interval(&self) -> Nanos {
        Nanos::from_millis(u64::from(self.sources.cgroup_interval_ms.max(self.lmap.interval_ms).get()))
    }

    /// How cgroups are read, with at most `files` open files: those of patterns, and containers of `pods`.
    pub(crate) fn cgroup_settings(
        &self,
        files: usize,
        pods: Option<Arc<PodWatch>>,
    ) -> Result<CgroupSettings, ConfigError> {
        let patterns = self.sources.patterns()?;
        let containers = pods.map(|pods| {
            let patterns = pods::cgroup::PATTERNS.map(|pattern| Pattern::new(pattern, "{name}"));
            let patterns = patterns.into_iter().collect::<Result<_, PatternError>>();
            patterns.map(|patterns| ContainerSource { patterns, pods })
        });
        let containers = containers.transpose().map_err(|cause| ConfigError::value("kubernetes.pods", cause))?;
        let identities = self.services.identities.iter().map(Identity::rule).collect::<Result<_, _>>()?;
        let scan_interval = Nanos::from_millis(u64::from(self.sources.cgroup_scan_ms.get()));
        Ok(CgroupSettings {
            interval: self.cgroup_interval(),
            scan_interval,
            limit: self.sources.cgroup_limit.get().min(files / CgroupSettings::FILES).max(1),
            patterns,
            containers,
            identities,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_checked_with_the_key_and_what_to_write() {
        for (text, expected) in [
            ("sources: {cgroups: [{pattern: a//b}]}", "sources.cgroups"),
            ("sources: {cgroups: [{pattern: 'a/*', service: '{pod}'}]}", "{name} and {1} to {1}"),
            ("sources: {cgroups: [{pattern: 'a/*', name: x}]}", "name"),
            ("sources: {cgroup_interval_ms: 99}", "sources.cgroup_interval_ms is 99: must be at least 100"),
            ("sources: {cgroup_scan_ms: 10}", "sources.cgroup_scan_ms is 10: must be at least 1000"),
            ("sources: {cgroup_limit: 2000}", "sources.cgroup_limit is 2000: must be at most 1024"),
        ] {
            let error = Config::parse(text).unwrap_err();
            let text = agent_runtime::chain(&error);
            assert!(text.contains(expected), "{text}");
        }
    }

    /// How many patterns match the path of a group.
    fn matching(path: &str) -> usize {
        let patterns = pods::cgroup::PATTERNS.map(|pattern| Pattern::new(pattern, "{name}").unwrap());
        patterns.iter().filter(|pattern| pattern.service(path).is_some()).count()
    }

    #[test]
    fn containers_of_each_driver_are_found_at_the_root_and_below_a_kubelet_that_is_in_a_container() {
        let container = format!("cri-containerd-{}.scope", "3f".repeat(32));
        let (plain, nested) = ("3f".repeat(32), "kubelet.slice/kubelet-kubepods.slice");
        let (slice, folder) =
            ("pod0b5c5b7e_6f0f_4c55_9d3a_0d2b2a0c8f11.slice", "pod0b5c5b7e-6f0f-4c55-9d3a-0d2b2a0c8f11");
        for path in [
            format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-{slice}/{container}"),
            format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-{slice}/crio-{plain}.scope"),
            format!("kubepods.slice/kubepods-{slice}/{container}"),
            format!("kubepods/besteffort/{folder}/{plain}"),
            format!("kubepods/{folder}/{plain}"),
            format!("kubepods/{folder}/crio-{plain}"),
            format!("{nested}/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-{slice}/{container}"),
            format!("{nested}/kubelet-kubepods-{slice}/{container}"),
            format!("kubelet/kubepods/burstable/{folder}/{plain}"),
            format!("kubelet/kubepods/{folder}/{plain}"),
            format!("system.slice/containerd.service/kubepods-burstable-{slice}:cri-containerd:{plain}"),
            format!("system.slice/containerd.service/kubepods-{slice}:cri-containerd:{plain}"),
            format!("system.slice/k3s.service/kubepods-{slice}:cri-containerd:{plain}"),
            format!("system.slice/k3s-agent.service/kubepods-{slice}:cri-containerd:{plain}"),
            format!("podruntime.slice/containerd.service/kubepods-{slice}:cri-containerd:{plain}"),
            format!("system.slice/kubepods-besteffort-{slice}:cri-containerd:{plain}"),
        ] {
            let is_container = pods::cgroup::container_at(&path).is_some();
            assert_eq!((matching(&path), is_container), (1, true), "{path}");
        }
    }

    #[test]
    fn what_is_no_container_is_not_watched_as_one() {
        let id = "3f".repeat(32);
        let slice = "kubepods.slice/kubepods-pod0b5c5b7e_6f0f_4c55_9d3a_0d2b2a0c8f11.slice";
        let joint = format!("kubepods-pod0b5c5b7e_6f0f_4c55_9d3a_0d2b2a0c8f11.slice:cri-containerd:{id}");
        for path in [
            // Below a container's own group, which has all of it.
            format!("{slice}/crio-{id}.scope/container"),
            format!("system.slice/containerd.service/{joint}/own"),
            // Monitors of CRI-O.
            format!("{slice}/crio-conmon-{id}.scope"),
            format!("kubepods/pod0b5c5b7e-6f0f-4c55-9d3a-0d2b2a0c8f11/crio-conmon-{id}"),
            // Groups that users make, or may be given.
            format!("user.slice/{joint}"),
            format!("user.slice/containerd.service/{joint}"),
            format!("user.slice/user-1000.slice/user@1000.service/{joint}"),
            format!("system.slice/own.service/{joint}"),
        ] {
            let is_watched = matching(&path) > 0 && pods::cgroup::container_at(&path).is_some();
            assert!(!is_watched, "{path}");
        }
    }

    #[test]
    fn cgroups_are_read_no_more_often_than_lmaps_by_default_and_as_many_as_files_allow() {
        let config = Config::parse(
            "lmap: {interval_ms: 2000}\nsources: {cgroups: [{pattern: 'system.slice/*.service'}], cgroup_limit: 100}",
        );
        let config = config.unwrap();

        let settings = config.cgroup_settings(10 * CgroupSettings::FILES, None).unwrap();

        assert_eq!((settings.interval, settings.limit), (Nanos::from_secs(2), 10));
        assert_eq!(settings.patterns[0].service("system.slice/redis.service").as_deref(), Some("redis"));
        assert!(settings.is_wanted());
        assert!(!Config::default().cgroup_settings(1000, None).unwrap().is_wanted());
    }
}
