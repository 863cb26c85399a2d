//! Open files. Each region of this host that is attached takes one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Config;
use crate::settings::WorkerSettings;

/// The worker's settings. Raises the limit of open files (RLIMIT_NOFILE) to its hard limit, and takes at most half of
/// them for regions: sockets and files are needed, too, and one user's regions must not take those of another.
pub(super) fn settings(config: &Config) -> WorkerSettings {
    let mut settings = config.settings();
    if config.regions_socket.is_some() {
        settings.regions.regions = settings.regions.regions.min(raise_file_limit() / 2);
    }
    settings
}

/// Returns the new limit.
fn raise_file_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    if setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).is_err() {
        tracing::warn!(?limit, "cannot raise the limit of open files");
    }
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| files as usize)
}
