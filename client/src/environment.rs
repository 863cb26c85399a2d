//! The only place of this crate that asks the environment: who and where this process is.

use std::path::PathBuf;

/// Where the agent listens if nobody says otherwise.
const DEFAULT_SOCKET: &str = "/run/uview/services.sock";

/// The agent's socket: `UVIEW_SOCKET`, or `/run/uview/services.sock`.
#[expect(clippy::disallowed_methods, reason = "the one variable that deployments set; read here and nowhere else")]
pub(crate) fn socket() -> PathBuf {
    std::env::var_os("UVIEW_SOCKET")
        .filter(|path| !path.is_empty())
        .map_or_else(|| DEFAULT_SOCKET.into(), PathBuf::from)
}

/// This process.
pub(crate) fn process() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get().unsigned_abs()
}

/// A name that no other replica on a node has: the host's (a pod's) name and the process id, as far as the former may be part of a name.
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
