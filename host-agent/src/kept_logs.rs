//! Log records that were kept, for incidents.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use incidents::logs::{Log, MAX_TEXT, RecentLogs};
use otlp::Edge;
use otlp::codec::{RawLog, scan_logs};

/// Bytes of requests with kept log records that wait for the next look.
pub(crate) const KEPT_BYTES: usize = 2 << 20;
/// Bytes of the newest records, read.
pub(crate) const READ_BYTES: usize = 2 << 20;
/// Name of a service that does not say it.
const UNKNOWN: &str = "unknown";

/// The newest kept log records.
#[derive(Debug)]
pub(crate) struct KeptLogs {
    edge: Option<Arc<Edge>>,
    recent: Mutex<RecentLogs>,
}

impl KeptLogs {
    /// None yet. Without an `edge` there will be none.
    pub(crate) fn new(edge: Option<Arc<Edge>>) -> Self {
        Self { edge, recent: Mutex::new(RecentLogs::new(READ_BYTES)) }
    }

    /// Those that were kept by now.
    pub(crate) fn look(&self) -> MutexGuard<'_, RecentLogs> {
        // Nothing under this lock panics; if something did, the records would still be usable.
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        for request in self.edge.iter().flat_map(|edge| edge.take_kept_logs()) {
            // What cannot be read was refused when it came.
            _ = scan_logs(&request, |group, log| {
                if let Ok(log) = log {
                    recent.add(read(group.service_name().unwrap_or(UNKNOWN), &log));
                }
            });
        }
        recent
    }
}

fn read(service: &str, log: &RawLog<'_>) -> Log {
    let text = |key: &[u8]| log.text(key).unwrap_or_default().into();
    Log {
        at: log.at,
        severity: log.severity.number(),
        level: log.severity.to_string().into(),
        service: service.into(),
        text: log.body(4 * MAX_TEXT).unwrap_or_default().into(),
        trace: log.trace.map(|trace| u128::from_be_bytes(trace.bytes())),
        policy: text(b"uview.policy"),
        reason: text(b"uview.reason"),
        incident: text(b"uview.incident"),
    }
}
