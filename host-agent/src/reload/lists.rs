//! Lists of the configuration whose members come, change and go while the agent runs.

use std::path::PathBuf;

use agent_runtime::ConfigError;
use agent_runtime::reload::KeyChanges;

use crate::config::Config;
use crate::prometheus::{ConfiguredTargets, TargetRenewal};

/// The members that there are.
#[derive(Debug)]
pub(crate) struct LiveLists {
    pub(crate) targets: ConfiguredTargets,
}

/// What changed lists make of them. Nothing of it has happened yet.
#[derive(Debug)]
pub(super) struct ListRenewal {
    targets: TargetRenewal,
}

impl LiveLists {
    /// What it takes to have the members of `latest`, and of the files that it names.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if a member cannot be used. Nothing has changed.
    pub(super) fn renewal(&self, latest: &Config) -> Result<ListRenewal, ConfigError> {
        Ok(ListRenewal { targets: self.targets.renewal(&latest.sources.prometheus.targets)? })
    }

    /// Has the members be those of `renewal`. A list of which only a file with a header has changed is added to
    /// `changes`.
    pub(super) fn take(&mut self, renewal: ListRenewal, changes: &mut KeyChanges) {
        if self.targets.take(renewal.targets) {
            changes.add(TARGETS);
        }
    }
}

/// The key of the targets that are scraped.
pub(super) const TARGETS: &str = "sources.prometheus.targets";

/// Takes the lists of `latest`, which are in use now.
pub(super) fn adopt(used: &mut Config, latest: &Config) {
    used.sources.prometheus.clone_from(&latest.sources.prometheus);
}

/// Files with headers that members of lists have.
pub(super) fn header_files(config: &Config) -> impl Iterator<Item = &PathBuf> {
    config.sources.prometheus.targets.iter().flat_map(|from| from.header_files.values())
}
