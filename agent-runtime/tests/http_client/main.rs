//! The HTTP client against servers with real sockets.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

mod pages;
mod posts;
mod tls;

/// Runs `work` in a runtime of its own.
fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}
