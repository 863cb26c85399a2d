//! Targets of the configuration: they come, change and go with it. One that stays as it is keeps what it has learnt,
//! also if its headers change; one of which anything else changes is another one.

use std::sync::Arc;

use agent_runtime::ConfigError;
use agent_runtime::live_headers::{HeaderRenewal, LiveHeaders};
use otlp::ListenerRules;
use tokio::runtime::Handle;
use wire::time::Nanos;

use super::plan::TargetPlan;
use super::targets::Targets;
use super::view::TargetView;
use crate::config::PrometheusTarget;
use crate::node::Node;

/// The key of files with headers.
const HEADER_FILES: &str = "sources.prometheus.targets.header_files";

/// A target that is scraped, and as what it was configured.
#[derive(Debug)]
struct ScrapedTarget {
    config: PrometheusTarget,
    headers: LiveHeaders,
    view: Arc<TargetView>,
}

/// All targets of the configuration.
#[derive(Debug)]
pub(crate) struct ConfiguredTargets {
    scraped: Vec<ScrapedTarget>,
    targets: Targets,
    listeners: Arc<ListenerRules>,
    node: Arc<Node>,
    threads: Handle,
}

/// What changed targets make of those that are scraped. Nothing of it has happened yet.
#[derive(Debug)]
#[must_use = "nothing changes before it is taken"]
pub(crate) struct TargetRenewal {
    /// Those that go on, by their places before, with the headers of now.
    kept: Vec<(usize, PrometheusTarget, HeaderRenewal)>,
    new: Vec<(PrometheusTarget, TargetPlan)>,
}

impl ConfiguredTargets {
    /// Scrapes by `plans`, on `threads`, until `node` drains. By the rules of `listeners` names belong to services.
    pub(super) fn start(
        plans: Vec<(PrometheusTarget, TargetPlan)>,
        targets: Targets,
        listeners: Arc<ListenerRules>,
        (node, threads): (&Arc<Node>, &Handle),
    ) -> Self {
        let (node, threads) = (Arc::clone(node), threads.clone());
        let mut configured = Self { scraped: Vec::new(), targets, listeners, node, threads };
        configured.begin(plans);
        configured
    }

    /// All targets that there are, also those of pods.
    pub(crate) const fn all(&self) -> &Targets {
        &self.targets
    }

    /// What it takes to scrape `wanted`, whose names were found to be unique.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if one cannot be scraped so. Nothing has changed.
    pub(crate) fn renewal(&self, wanted: &[PrometheusTarget]) -> Result<TargetRenewal, ConfigError> {
        let mut renewal = TargetRenewal { kept: Vec::new(), new: Vec::new() };
        for config in wanted {
            let known = self.scraped.iter().enumerate().find(|(_, known)| config.goes_on_from(&known.config));
            if let Some((place, known)) = known {
                let headers = known.headers.renewal(&config.header_source().values(HEADER_FILES)?);
                let headers = headers.map_err(|cause| ConfigError::value(HEADER_FILES, cause))?;
                renewal.kept.push((place, config.clone(), headers));
            } else {
                renewal.new.push((config.clone(), config.plan()?));
            }
        }
        Ok(renewal)
    }

    /// Ends, changes and begins what `renewal` says. Returns whether that was anything.
    pub(crate) fn take(&mut self, renewal: TargetRenewal) -> bool {
        let TargetRenewal { kept, new } = renewal;
        let mut before: Vec<_> = core::mem::take(&mut self.scraped).into_iter().map(Some).collect();
        let mut is_changed = !new.is_empty();
        for (place, config, headers) in kept {
            if let Some(target) = before.get_mut(place).and_then(Option::take) {
                is_changed |= headers.take();
                self.scraped.push(ScrapedTarget { config, ..target });
            }
        }
        for ScrapedTarget { config: PrometheusTarget { service, url, .. }, view, .. } in before.into_iter().flatten() {
            tracing::info!(service, url, "a target is not scraped any more");
            self.targets.end(&view);
            is_changed = true;
        }
        for (PrometheusTarget { service, url, .. }, _) in &new {
            tracing::info!(service, url, "a target is scraped");
        }
        self.begin(new);
        is_changed
    }

    fn begin(&mut self, new: Vec<(PrometheusTarget, TargetPlan)>) {
        let all = new.len().max(1) as u64;
        for (number, (config, plan)) in (0..).zip(new) {
            // Not all at once.
            let offset = Nanos(1_000_000_000 * number / all);
            let (headers, listeners) = (plan.client.headers().clone(), Some(Arc::clone(&self.listeners)));
            let view = self.targets.begin(plan, offset, listeners, (&self.node, &self.threads));
            self.scraped.push(ScrapedTarget { config, headers, view });
        }
    }
}
