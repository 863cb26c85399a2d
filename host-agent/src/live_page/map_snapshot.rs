//! What the agent knows for the map: requests of operations, calls, and paths.

use std::collections::BTreeMap;
use std::sync::Arc;

use hooks::paths::{BOUNDS, CALLS_FROM, OTHER};
use otlp::{Edge, TenantId};
use page::map::{Counts, MAX_OPERATIONS, MapSnapshot, Pair};

/// What `edge` knows now; nothing without an endpoint. Spans wait while counters and names are copied.
pub(super) fn snapshot(edge: Option<&Edge>) -> MapSnapshot {
    let mut snapshot = MapSnapshot { calls_from: CALLS_FROM, bounds: BOUNDS.to_vec(), ..MapSnapshot::default() };
    let Some(edge) = edge else { return snapshot };
    read_operations(edge, &mut snapshot);
    snapshot.calls = edge.with_tail(|tail, _| {
        let call = |(caller, callee, counted): (&str, &str, hooks::paths::CallCounts)| {
            let hooks::paths::CallCounts { calls, failed, took, unanswered } = counted;
            let counts = Counts { requests: calls, errors: failed, took, unanswered, ..Counts::default() };
            ((caller.into(), callee.into()), counts)
        };
        tail.counted_calls().map(call).collect()
    });
    // Names of services are shared by all tenants, paths are not: as in `uview paths`, the default one comes first.
    let default = edge.tenants().next().map(|(tenant, _)| tenant);
    snapshot.paths = default.map(|tenant| paths(edge, tenant)).unwrap_or_default();
    snapshot
}

fn read_operations(edge: &Edge, snapshot: &mut MapSnapshot) {
    let read = edge.with_span_metrics(|metrics| {
        let mut unread = 0;
        let mut operations = BTreeMap::new();
        for service in metrics.services() {
            let name: Arc<str> = service.name().into();
            for (_, operation, rate) in service.operations() {
                let (took, classes) = (rate.classes.sum(), rate.classes.counts()[..].into());
                let counts = Counts { requests: rate.requests, errors: rate.errors, took, classes, unanswered: 0 };
                let is_beyond = operations.len() >= MAX_OPERATIONS;
                unread += usize::from(is_beyond);
                let operation: Arc<str> = if is_beyond { OTHER.into() } else { operation.into() };
                let of: &mut Counts = operations.entry((Arc::clone(&name), operation)).or_default();
                of.add(&counts);
            }
        }
        (operations, unread)
    });
    if let Some((operations, unread)) = read {
        (snapshot.operations, snapshot.unread) = (Some(operations), unread);
    }
}

fn paths(edge: &Edge, tenant: TenantId) -> BTreeMap<Pair, Vec<Arc<str>>> {
    let known = edge.operations(tenant).unwrap_or_default();
    let mut names: BTreeMap<String, Arc<str>> = BTreeMap::new();
    let mut name = |text: String| Arc::clone(names.entry(text).or_insert_with_key(|text| text.as_str().into()));
    let path = |of: otlp::OperationPath| {
        let services = of.services.into_iter().map(|on| name(on.service)).collect();
        ((name(of.service), of.operation.into()), services)
    };
    known.into_iter().take(MAX_OPERATIONS).map(path).collect()
}
