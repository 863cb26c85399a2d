//! Open files. Each region of this host that is attached takes one.

use agent_runtime::descriptors;

use crate::config::Config;
use crate::settings::WorkerSettings;

/// The worker's settings. Raises the limit of open files (RLIMIT_NOFILE) to its hard limit, and takes at most half of
/// them for regions: sockets and files are needed, too, and one user's regions must not take those of another.
pub(super) fn settings(config: &Config) -> WorkerSettings {
    let mut settings = config.settings();
    if config.regions_socket.is_some() {
        settings.regions.regions = settings.regions.regions.min(descriptors::raise_limit() / 2);
    }
    settings
}
