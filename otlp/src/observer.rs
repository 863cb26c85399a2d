//! Where spans pass through, somebody may still want to know which operations are out of the ordinary: head sampling. A tail that keeps nothing learns
//! paths from the spans that there are, and hears verdicts.

use hooks::time::UnixNanos;
use hooks::tracing::{BudgetRule, Known, Limits, OrderKey, Switches};
use wire::time::Nanos;

use crate::edge::Edge;
use crate::tail::{Moment, OperationPath, Tail, TailSettings};
use crate::tenants::{DEFAULT, TenantId};

/// Memory for spans of which paths are learnt; what finds no room teaches nothing.
const BYTES: usize = 16 << 20;
/// How long a trace is waited for.
const AGE: Nanos = Nanos::from_secs(20);
/// Verdicts come later than what they are about: so many seconds are looked back.
const SECONDS: u64 = 15;

/// A tail that keeps nothing. `drawn` is any number that services do not know.
pub(crate) fn settings(frontends: &[String], drawn: u128) -> TailSettings {
    let none = Switches { floor: None, error: false, lmap: false, latency: false, code: false };
    TailSettings {
        limits: Limits { bytes: BYTES, age: AGE, trace_bytes: 256 << 10, decisions: 1 << 17, ..Limits::default() },
        key: OrderKey::new(drawn),
        switches: none,
        budget: BudgetRule::default(),
        frontends: frontends.to_vec(),
        node: String::new(),
    }
}

impl Tail {
    /// Operations that were out of the ordinary within the last seconds, each with its service, and how long ago the first verdict came since this was asked
    /// last. O(operations).
    pub fn operations_on(&mut self, now: Moment) -> (Vec<(String, String)>, Nanos) {
        let age = self.first_verdict.take().and_then(|first| now.own.since(first)).unwrap_or_default();
        let Self { keeper, names, paths, latencies, .. } = self;
        let known = Known { names, paths, latencies };
        let last = now.day.second();
        let on = paths.operations().filter(|operation| {
            let mut seconds = last.saturating_sub(SECONDS)..=last;
            seconds.any(|second| keeper.is_on(&known, *operation, UnixNanos::from_secs(second)))
        });
        let named = on.filter_map(|operation| {
            let service = names.service_of(operation)?;
            Some((names.service_name(service).to_owned(), names.operation_name(operation).to_owned()))
        });
        (named.collect(), age)
    }
}

impl Edge {
    /// Operations that were out of the ordinary within the last seconds, each with its service: of those who are in no table of tenants. And how long ago
    /// the first verdict came since this was asked last: what is new among them is so because of that one, or of a later one.
    #[must_use]
    pub fn operations_on(&self) -> (Vec<(String, String)>, Nanos) {
        let now = self.moment();
        let tail = self.observer().or_else(|| self.tail(DEFAULT));
        tail.map(|mut tail| tail.operations_on(now)).unwrap_or_default()
    }

    /// Every operation of `tenant` that is known, with the services on its path; `None` where nobody looks at its spans.
    #[must_use]
    pub fn operations(&self, tenant: TenantId) -> Option<Vec<OperationPath>> {
        let tail = self.tail(tenant).or_else(|| self.observer().filter(|_| tenant == DEFAULT))?;
        Some(tail.operations(self.now()))
    }
}
