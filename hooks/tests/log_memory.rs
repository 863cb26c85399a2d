//! Memory of log records that wait: within the budget, at most 1.4 times their bytes and 81, or 324, and nothing is
//! allocated for one. Alone in its process.

#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

use hooks::id::OriginId;
use hooks::paths::{Latencies, LatencyRule, NameLimits, Names, PathLimits, Paths};
use hooks::tracing::{
    Budget, BudgetRule, Keeper, Limits, LogRecord, LogRule, LossReason, OrderKey, Policies, ServiceCatalog, Severity,
    Switches, TailBuffer, TraceId, TriggerRule, Triggers,
};
use wire::time::{Nanos, UnixNanos};

const MIB: usize = 1 << 20;

fn keeper(log_bytes: usize) -> Keeper {
    let limits = Limits { bytes: 32 * MIB, ..Limits::default() };
    let buffer = TailBuffer::new(limits, OrderKey::new(7), Nanos::ZERO).unwrap();
    let budget = Budget::new(BudgetRule::default(), Nanos::ZERO).unwrap();
    let policies = Policies::new(Switches { floor: None, ..Switches::default() }, budget);
    let mut keeper = Keeper::new(buffer, Triggers::new(TriggerRule::default()), policies);
    keeper.keep_logs(LogRule { floor: None, ..LogRule::default() }, log_bytes).unwrap();
    keeper
}

#[test]
fn a_waiting_record_takes_no_more_than_is_stated_and_allocates_nothing() {
    let mut names = Names::new(NameLimits::default());
    let service = names.service("payment", Nanos::ZERO);
    let (paths, latencies) = (Paths::new(PathLimits::default()), Latencies::new(LatencyRule::default()));
    let catalog = ServiceCatalog { names: &names, paths: &paths, latencies: &latencies };
    for length in [1, 100, 240, 241, 300, 1_000, 100_000] {
        let (mut keeper, encoded) = (keeper(16 * MIB), vec![7; length]);
        let mut log = |number: u64| {
            let record = LogRecord {
                trace: TraceId::new(u128::from(number).to_be_bytes()),
                service,
                origin: OriginId(1),
                severity: Severity::default(),
                at: UnixNanos(9),
                encoded: &encoded,
            };
            keeper.log(&record, &catalog, Nanos::ZERO, |_| panic!("nothing wants it"));
            keeper.log_account().unwrap().lost(LossReason::Evicted).spans
        };
        // The first record of a service has a list of its own.
        let mut waiting = 1;
        assert_eq!(log(0), 0);
        let calls = allocations::during(|| {
            while log(waiting) == 0 {
                waiting += 1;
            }
        });

        // One more was lost, for which the ledger has a line.
        assert!(calls.allocations <= 1, "{length}: {calls:?}");
        assert!(keeper.log_memory() <= 16 * MIB, "{length}: {}", keeper.log_memory());
        let each = (1.4 * length as f64 + 81.0).max(324.0);
        let taken = (16 * MIB) as f64 / waiting as f64;
        // The last one that did not fit is a part of the whole.
        assert!(taken <= each + each / waiting as f64 + 1.0, "{length}: {taken}, {each} is stated");
        assert!(keeper.log_account().unwrap().balances());
    }
}
