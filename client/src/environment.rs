//! The only module that reads the environment: `UVIEW_SOCKET`, the process id, the host name, the CPUs.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::OnceLock;

use wire::registration::Shards;

/// The agent's socket if `UVIEW_SOCKET` is not set.
const DEFAULT_SOCKET: &str = "/run/uview/services.sock";

/// The agent's socket: `UVIEW_SOCKET`, or `/run/uview/services.sock`.
#[expect(clippy::disallowed_methods, reason = "the one variable that deployments set; read here and nowhere else")]
pub(crate) fn socket() -> PathBuf {
    std::env::var_os("UVIEW_SOCKET")
        .filter(|path| !path.is_empty())
        .map_or_else(|| DEFAULT_SOCKET.into(), PathBuf::from)
}

/// The process id; another one in a forked child.
pub(crate) fn process() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get().unsigned_abs()
}

/// A name that is unique on the node: host (pod) name and process id. Characters that a name must not have are removed
/// from the host name.
pub(crate) fn instance() -> String {
    let system = rustix::system::uname();
    let host: String = system
        .nodename()
        .to_string_lossy()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || "-.".contains(*c))
        .take(64)
        .collect();
    let host = host.trim_start_matches(['-', '.']);
    if host.is_empty() { format!("process-{}", process()) } else { format!("{host}-{}", process()) }
}

/// Shards of a counter that many threads add to: at least two for each CPU, so that threads seldom share one. A power
/// of two, the same in the whole process.
pub(crate) fn shards() -> Shards {
    static SHARDS: OnceLock<Shards> = OnceLock::new();
    *SHARDS.get_or_init(|| {
        let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get) as u32;
        Shards::new(cpus.saturating_mul(2).next_power_of_two().min(Shards::LIMIT)).unwrap_or(Shards::ONE)
    })
}
