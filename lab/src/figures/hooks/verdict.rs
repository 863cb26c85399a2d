//! The cost of a verdict, and of checking whether an operation is selected.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use hooks::id::{OperationId, ServiceId};
use hooks::paths::{Latencies, LatencyRule, NameLimits, Names, PathLimits, Paths};
use hooks::tracing::{Origin, Reason, ServiceCatalog, TriggerRule, Triggers, Verdict};
use wire::time::{Nanos, UnixNanos};

use super::super::figure::{Figure, Goal};
use super::super::pair::measure;

const OPERATIONS: u32 = 1_000;
const SERVICES: u32 = 100;
/// Seconds per turn, with a verdict of every service in each.
const SECONDS: u64 = 50;
const MAX_NS: f64 = 2_000.0;

fn verdict(service: u32, second: u64, reason: &Arc<Reason>) -> Verdict {
    let at = UnixNanos::from_secs(second);
    Verdict {
        service: ServiceId(service),
        origin: Origin::Here,
        author: None,
        from: at,
        at,
        breakdown: None,
        weight: 2.0,
        reason: Arc::clone(reason),
    }
}

fn reason() -> Arc<Reason> {
    Arc::new(Reason::Trigger { text: "figure".into() })
}

/// Processing a verdict; each of 100 services has one per second.
pub fn taken(name: &str) -> Figure {
    let (mut triggers, reason) = (Triggers::new(TriggerRule::default()), reason());
    let (mut second, mut theirs, mut bare) = (1_700_000_000, 0, BTreeMap::new());
    let measured = measure(
        SECONDS * u64::from(SERVICES),
        |verdicts| {
            for _ in 0..verdicts / u64::from(SERVICES) {
                second += 1;
                for service in 0..SERVICES {
                    _ = black_box(triggers.take(&verdict(service, second, &reason), UnixNanos::from_secs(second)));
                }
            }
        },
        |verdicts| {
            for number in 0..verdicts {
                theirs += 1;
                _ = black_box(bare.insert(ServiceId(number as u32 % SERVICES), (theirs, Arc::clone(&reason))));
            }
        },
    );
    let peer = "an entry of a BTreeMap of 100 services with the same reason";
    let met = measured.ours < MAX_NS;
    let note = "what it is about is found out when a trace or an operation is asked for: `hooks-operation`".to_owned();
    Figure::new(name, "ns", peer, measured, Goal::Stated).judged("< 2 µs", met, note)
}

/// Checking one of 1,000 operations, with 100 services on the path of each, in a second with one verdict.
pub fn operation(name: &str) -> Figure {
    let mut paths = Paths::new(PathLimits::default());
    for operation in 0..OPERATIONS {
        (0..SERVICES).for_each(|service| paths.learn(OperationId(operation), ServiceId(service), Nanos::ZERO));
    }
    let (names, latencies) = (Names::new(NameLimits::default()), Latencies::new(LatencyRule::default()));
    let known = ServiceCatalog { names: &names, paths: &paths, latencies: &latencies };
    let (mut triggers, reason, mut second) = (Triggers::new(TriggerRule::default()), reason(), 1_700_000_000);
    let bare: BTreeMap<u32, f64> = (0..SERVICES).map(|service| (service, f64::from(service))).collect();
    let measured = measure(
        u64::from(OPERATIONS),
        |operations| {
            second += 1;
            let now = UnixNanos::from_secs(second);
            _ = triggers.take(&verdict(5, second, &reason), now);
            for operation in 0..operations as u32 {
                _ = black_box(triggers.is_on(&known, OperationId(operation), now));
            }
        },
        |operations| {
            for _ in 0..operations {
                _ = black_box((0..SERVICES).filter_map(|service| black_box(&bare).get(&service)).sum::<f64>());
            }
        },
    );
    let peer = "looking up 100 services in a BTreeMap of 100";
    Figure::new(name, "ns per operation", peer, measured, Goal::Stated)
}
