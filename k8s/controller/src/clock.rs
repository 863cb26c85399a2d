//! The agents' wall clock, in the API server's type. Intervals are measured by tokio's, which never goes back.

use agent_runtime::clock::unix_now;
use k8s_openapi::jiff::Timestamp;

/// The time of the day.
pub(crate) fn wall() -> Timestamp {
    Timestamp::from_nanosecond(unix_now().0.into()).unwrap_or_default()
}
