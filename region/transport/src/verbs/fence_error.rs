//! A worker that may still read.

use std::io;

/// A worker cannot be fenced: the device neither resets nor destroys its queue pair.
#[derive(Debug, thiserror::Error)]
#[error(
    "{device} neither resets nor destroys a queue pair, and keeps {regions} regions registered: they may still be read"
)]
pub struct FenceError {
    /// The name of the device.
    pub device: String,
    /// Regions that the worker can still read.
    pub regions: usize,
    /// The device's error when it was to destroy the queue pair.
    #[source]
    pub cause: io::Error,
}
