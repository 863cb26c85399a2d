//! The ledger's part about log records. They are recorded as spans are, by the same names and on the same pages.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::id::ServiceId;
use crate::receipt::DailyLedger;
use crate::tracing::{DiscardReason, LogPolicy, LossReason, Tally};

impl DailyLedger {
    /// Records a log record of `service` that arrived and is buffered. The name is remembered for later records.
    pub fn log_seen(&mut self, service: ServiceId, name: &str, bytes: usize) {
        let tally = Tally::one(bytes);
        self.name(service, name);
        let name = if let Some(named) = self.names.get_mut(&service) {
            named.log_waits += tally;
            Arc::clone(&named.name)
        } else {
            self.other_log_waits += tally;
            Arc::clone(&self.other)
        };
        self.line(&name).logs.seen += tally;
    }

    /// Records a buffered log record of `service` that `policy` kept.
    pub fn log_kept(&mut self, service: ServiceId, policy: LogPolicy, bytes: usize) {
        let tally = Tally::one(bytes);
        let name = self.settle_logs(service, tally);
        self.line(&name).logs.kept[policy as usize] += tally;
    }

    /// Records buffered log records of `service` that were dropped or lost.
    pub fn log_gone(&mut self, service: ServiceId, why: DiscardReason, tally: Tally) {
        let name = self.settle_logs(service, tally);
        self.line(&name).logs.gone[why.place()] += tally;
    }

    /// Buffered log records, by name of the service.
    #[must_use]
    pub fn waiting_logs(&self) -> BTreeMap<Arc<str>, Tally> {
        let mut waiting = BTreeMap::<_, Tally>::new();
        let named = self.names.values().map(|named| (&named.name, named.log_waits));
        for (name, waits) in named.chain([(&self.other, self.other_log_waits)]).filter(|(_, waits)| waits.spans > 0) {
            *waiting.entry(Arc::clone(name)).or_default() += waits;
        }
        waiting
    }

    /// After [`resume`](Self::resume): log records that the predecessor had buffered (`waited`) are recorded on its
    /// last page as lost for the reason `why`.
    pub fn resume_logs(&mut self, waited: &BTreeMap<Arc<str>, Tally>, why: LossReason) {
        for (name, tally) in waited.iter().filter(|(_, tally)| tally.spans > 0) {
            self.line(name).logs.gone[DiscardReason::Lost(why).place()] += *tally;
        }
    }

    /// As `settle`, for log records.
    fn settle_logs(&mut self, service: ServiceId, tally: Tally) -> Arc<str> {
        let Some(named) = self.names.get_mut(&service) else {
            self.other_log_waits -= tally;
            return Arc::clone(&self.other);
        };
        named.log_waits -= tally;
        let name = Arc::clone(&named.name);
        if named.forgotten && named.waits.spans == 0 && named.log_waits.spans == 0 {
            self.names.remove(&service);
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use wire::time::UnixNanos;

    use super::*;
    use crate::receipt::LedgerLimits;
    use crate::tracing::DropReason;

    #[test]
    fn log_records_are_on_the_lines_of_their_services_beside_spans() {
        let mut ledger = DailyLedger::new(LedgerLimits::default());
        ledger.turn(UnixNanos::from_secs(86_400));
        ledger.seen(ServiceId(1), "payment", 10, false, false);
        for bytes in [100, 200, 300] {
            ledger.log_seen(ServiceId(1), "payment", bytes);
        }
        ledger.log_kept(ServiceId(1), LogPolicy::Error, 100);
        ledger.log_gone(ServiceId(1), DiscardReason::Dropped(DropReason::Aged), Tally::one(200));
        ledger.forget(ServiceId(1));
        ledger.gone(ServiceId(1), DiscardReason::Dropped(DropReason::Aged), Tally::one(10));

        assert_eq!(ledger.waiting_logs(), [("payment".into(), Tally::one(300))].into());
        assert!(ledger.waiting().is_empty());
        let pages: Vec<_> = ledger.pages().cloned().collect();
        let line = pages[0].services["payment"];
        assert_eq!((line.seen, line.logs.seen), (Tally::one(10), Tally { spans: 3, bytes: 600 }));
        assert_eq!((line.logs.kept(), line.logs.kept[LogPolicy::Error as usize]), (Tally::one(100), Tally::one(100)));
        assert_eq!(DailyLedger::merge([&pages[0], &pages[0]])[0].services["payment"].logs.seen.bytes, 1_200);

        let mut after = DailyLedger::new(LedgerLimits::default());
        after.resume(pages, &BTreeMap::new(), LossReason::Killed);
        after.resume_logs(&ledger.waiting_logs(), LossReason::Killed);
        let line = after.pages().next().unwrap().services["payment"];
        assert_eq!(line.logs.gone[DiscardReason::Lost(LossReason::Killed).place()], Tally::one(300));
        ledger.log_gone(ServiceId(1), DiscardReason::Lost(LossReason::Evicted), Tally::one(300));
        assert!(ledger.waiting_logs().is_empty() && ledger.names.is_empty());
    }
}
