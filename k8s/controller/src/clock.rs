//! The only place of this crate that reads the wall clock. Intervals are measured by tokio's, which never goes back.
#![expect(clippy::disallowed_methods, reason = "the only module that reads the clock")]

use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::jiff::Timestamp;

/// The time of the day.
pub(crate) fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_nanosecond(since.as_nanos() as i128).unwrap_or_default()
}
