//! Being asked to end.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Resolves on SIGTERM or SIGINT.
///
/// # Errors
///
/// What the system said when the handlers were installed.
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
