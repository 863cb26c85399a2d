//! Finds anomalous operations where all spans pass through, for head sampling: a tail sampler that keeps nothing learns
//! paths from the spans and receives verdicts.

use hooks::tracing::{BudgetRule, Limits, OrderKey, Origin, ServiceCatalog, Switches};
use wire::time::{Nanos, Timestamp, UnixNanos};

use super::{TailSampler, TailSettings};

/// Memory for spans whose paths are learnt; spans over it are not learnt from.
const BYTES: usize = 16 << 20;
/// How long a trace is buffered.
const AGE: Nanos = Nanos::from_secs(20);
/// Look-back in seconds: a verdict is later than the requests that it is about.
const SECONDS: u64 = 15;

/// Settings of a tail sampler that keeps nothing. `drawn` is any number unknown to services.
pub(crate) fn observer_settings(frontends: &[String], drawn: u128) -> TailSettings {
    let none = Switches { floor: None, error: false, lmap: false, unremarkable: None, latency: false, trigger: false };
    TailSettings {
        limits: Limits { bytes: BYTES, age: AGE, trace_bytes: 256 << 10, decisions: 1 << 17, ..Limits::default() },
        key: OrderKey::new(drawn),
        switches: none,
        budget: BudgetRule::default(),
        frontends: frontends.to_vec(),
        node: String::new(),
    }
}

/// An operation through a service in alarm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnomalousOperation {
    /// Name of its service.
    pub service: String,
    /// Name of the operation.
    pub operation: String,
    /// Who says so: others, only if no LMAP of this node does.
    pub origin: Origin,
}

impl TailSampler {
    /// Operations that were anomalous within the last 15 s, and the age of the first verdict since the last call. The
    /// verdict may be of another node. O(operations).
    pub fn anomalous_operations(&mut self, now: Timestamp) -> (Vec<AnomalousOperation>, Nanos) {
        let age = self.first_verdict.take().and_then(|first| now.monotonic.since(first)).unwrap_or_default();
        let Self { keeper, names, paths, latencies, .. } = self;
        let known = ServiceCatalog { names, paths, latencies };
        let last = now.wall.second();
        let named = paths.operations().filter_map(|operation| {
            let seconds = last.saturating_sub(SECONDS)..=last;
            let origins =
                seconds.filter_map(|second| keeper.alarm_origin(&known, operation, UnixNanos::from_secs(second)));
            let (origin, service) = (origins.reduce(Origin::or)?, names.service_of(operation)?);
            let (service, operation) = (names.service_name(service), names.operation_name(operation));
            Some(AnomalousOperation { service: service.to_owned(), operation: operation.to_owned(), origin })
        });
        (named.collect(), age)
    }
}
