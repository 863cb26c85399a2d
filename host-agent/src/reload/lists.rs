//! Lists of the configuration whose members come, change and go while the agent runs.

use std::path::PathBuf;

use agent_runtime::ConfigError;
use agent_runtime::reload::KeyChanges;
use sources::cgroup::pattern::Pattern;

use crate::cgroup_metrics::PatternSender;
use crate::config::Config;
use crate::prometheus::{ConfiguredTargets, TargetRenewal};
use crate::webhooks::{ReceiverRenewal, Receivers};

/// The members that there are.
#[derive(Debug)]
pub(crate) struct LiveLists {
    pub(crate) targets: ConfiguredTargets,
    /// `None`: this machine has no cgroups.
    pub(crate) cgroups: Option<PatternSender>,
    pub(crate) webhooks: Receivers,
}

/// What changed lists make of them. Nothing of it has happened yet.
#[derive(Debug)]
pub(super) struct ListRenewal {
    targets: TargetRenewal,
    /// `None`: those in use are the same.
    cgroups: Option<(PatternSender, Vec<Pattern>)>,
    webhooks: ReceiverRenewal,
}

impl LiveLists {
    /// What it takes to have the members of `latest`, and of the files that it names, where those of `used` are in use.
    /// Cgroups of a machine that has none wait for a start.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if a member cannot be used. Nothing has changed.
    pub(super) fn renewal(
        &self,
        used: &Config,
        latest: &Config,
        changes: &mut KeyChanges,
    ) -> Result<ListRenewal, ConfigError> {
        if self.cgroups.is_none() {
            changes.postpone(CGROUPS);
        }
        let cgroups = self.cgroups.clone().filter(|_| used.sources.cgroups != latest.sources.cgroups);
        let cgroups = cgroups.map(|sender| latest.sources.patterns().map(|patterns| (sender, patterns))).transpose()?;
        let targets = self.targets.renewal(&latest.sources.prometheus.targets)?;
        Ok(ListRenewal { targets, cgroups, webhooks: self.webhooks.renewal(&latest.webhooks)? })
    }

    /// Has the members be those of `renewal`. Lists of which only a file with a header has changed are added to
    /// `changes`.
    pub(super) fn take(&mut self, renewal: ListRenewal, changes: &mut KeyChanges) {
        if self.targets.take(renewal.targets) {
            changes.add(TARGETS);
        }
        if let Some((sender, patterns)) = renewal.cgroups {
            sender.send(patterns);
        }
        if self.webhooks.take(renewal.webhooks) {
            changes.add(WEBHOOKS);
        }
    }

    /// Takes the lists of `latest`, which are in use now.
    pub(super) fn adopt(&self, used: &mut Config, latest: &Config) {
        used.sources.prometheus.clone_from(&latest.sources.prometheus);
        used.webhooks.clone_from(&latest.webhooks);
        used.services.identities.clone_from(&latest.services.identities);
        if self.cgroups.is_some() {
            used.sources.cgroups.clone_from(&latest.sources.cgroups);
        }
    }
}

/// The key of the targets that are scraped.
pub(super) const TARGETS: &str = "sources.prometheus.targets";
/// The key of patterns of cgroups.
pub(super) const CGROUPS: &str = "sources.cgroups";
/// The key of receivers of alarms.
pub(super) const WEBHOOKS: &str = "webhooks";

/// Files with headers that members of lists have.
pub(super) fn header_files(config: &Config) -> impl Iterator<Item = &PathBuf> {
    let targets = config.sources.prometheus.targets.iter().flat_map(|from| from.header_files.values());
    targets.chain(config.webhooks.iter().flat_map(|to| to.header_files.values()))
}
