//! The service that a stream is to the rest of the system: `network.NAME`.

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use client::Service;

/// The service of a stream. Its metrics are not about this process and change once an interval.
pub(super) fn stream_service(name: &str, socket: &Path, interval_ms: NonZeroU32) -> Service {
    let every = Duration::from_millis(interval_ms.get().into());
    Service::new(name).socket(socket).without_process_metrics().changes_every(every)
}
