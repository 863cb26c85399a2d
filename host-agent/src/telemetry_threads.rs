//! Threads for what services send in bulk: OTLP's sockets, decompression, decoding, tail sampling, samples to remote
//! monitors. The control plane runs on others, so that no sender delays workers' leases, registrations or `/healthz`:
//! if all of these threads are busy, the system still shares the processors between them and the control plane's.

use std::io;
use std::thread::available_parallelism;

use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};

/// Fewest and most threads, unless configured.
const USUAL_THREADS: core::ops::RangeInclusive<usize> = 2..=8;

/// A runtime of its own. Stopped on drop, without waiting for its tasks.
#[derive(Debug)]
pub(crate) struct TelemetryThreads {
    handle: Handle,
    runtime: Option<Runtime>,
}

/// Half of the processors, from 2 to 8: one long request leaves a thread to others, and services keep processors.
fn usual_threads() -> usize {
    let processors = available_parallelism().map_or(1, core::num::NonZero::get);
    (processors / 2).clamp(*USUAL_THREADS.start(), *USUAL_THREADS.end())
}

impl TelemetryThreads {
    /// Starts `threads` threads; the usual number if `None`.
    ///
    /// # Errors
    ///
    /// The system has no thread or event queue left.
    pub(crate) fn start(threads: Option<usize>) -> io::Result<Self> {
        let threads = threads.unwrap_or_else(usual_threads);
        let runtime =
            Builder::new_multi_thread().worker_threads(threads).thread_name("uview-otlp").enable_all().build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// Where tasks are spawned.
    pub(crate) const fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for TelemetryThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Moves a listener to the runtime of `handle`.
///
/// # Errors
///
/// The system has no descriptor left.
pub(crate) fn move_to(handle: &Handle, listener: TcpListener) -> io::Result<TcpListener> {
    let listener = listener.into_std()?;
    let _entered = handle.enter();
    TcpListener::from_std(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_threads_as_configured_or_the_usual_number() {
        let threads = |configured| {
            let started = TelemetryThreads::start(configured).unwrap();
            started.handle().metrics().num_workers()
        };

        assert_eq!(threads(Some(3)), 3);
        assert!(USUAL_THREADS.contains(&threads(None)));
    }
}
