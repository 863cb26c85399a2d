//! The only module that reads the environment: `UVIEW_SOCKET`, the process id, the host name.

use std::path::PathBuf;

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
