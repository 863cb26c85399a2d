//! Shutdown signals.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Resolves on SIGTERM or SIGINT.
///
/// # Errors
///
/// The error of the operating system if a handler cannot be installed.
pub fn requested() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
