//! Daily ledger of spans and log records: how many of each service were seen, kept, dropped and lost, one page for each
//! day (UTC).
//! Pure: wall-clock time is an argument.
//!
//! Everything is recorded on the day on which it happened: a span that was seen before midnight and kept after it is on
//! two pages. Bounded: a number of days, and of services per day; all other services are recorded as [`OTHER`].
//!
//! For each service, over all days and at all times: seen = kept + dropped + lost + [waiting](DailyLedger::waiting).

mod logs;
mod page;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use wire::time::{Nanos, UnixNanos};

pub use self::page::{Line, LogLine, Page, Requests, head_share};
use crate::id::ServiceId;
use crate::paths::OTHER;
use crate::seeded_map::SeededMap;
use crate::tracing::{DiscardReason, LossReason, Policy, Tally};

/// Length of a day in nanoseconds.
const DAY: u64 = 86_400 * 1_000_000_000;

/// Limits of a daily ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerLimits {
    /// Number of days, today included.
    pub days: usize,
    /// Number of services per day, without [`OTHER`].
    pub services: usize,
}

impl Default for LedgerLimits {
    /// 8 days, 1,000 services: some 5 MB.
    fn default() -> Self {
        Self { days: 8, services: 1_000 }
    }
}

/// A service that has a name, and its buffered spans and log records.
#[derive(Debug)]
struct NamedService {
    name: Arc<str>,
    waits: Tally,
    log_waits: Tally,
    /// Its name is forgotten: removed with the last of what it has buffered.
    forgotten: bool,
}

/// Pages of the last days.
#[derive(Debug)]
pub struct DailyLedger {
    limits: LedgerLimits,
    pages: VecDeque<Page>,
    names: SeededMap<ServiceId, NamedService>,
    /// Buffered spans of services without a name.
    other_waits: Tally,
    /// Buffered log records of services without a name.
    other_log_waits: Tally,
    /// Last values of cumulative counters.
    known: BTreeMap<Arc<str>, u64>,
    other: Arc<str>,
}

impl DailyLedger {
    /// A ledger without pages.
    #[must_use]
    pub fn new(limits: LedgerLimits) -> Self {
        let other = OTHER.into();
        Self {
            limits,
            pages: VecDeque::new(),
            names: SeededMap::default(),
            other_waits: Tally::default(),
            other_log_waits: Tally::default(),
            known: BTreeMap::new(),
            other,
        }
    }

    /// Opens the page of `now`. If the clock was set back, the last page stays; if it jumped ahead, days are left out.
    pub fn turn(&mut self, now: UnixNanos) {
        let day = now.0 / DAY;
        if self.pages.back().is_some_and(|page| page.day >= day) {
            return;
        }
        self.pages.push_back(Page { day, ..Page::default() });
        self.drop_old();
    }

    /// Continues with the `pages` of a predecessor, oldest first. Spans that it had buffered (`waited`) are recorded on
    /// its last page as lost for the reason `why`. To be called before anything is recorded.
    pub fn resume(&mut self, pages: Vec<Page>, waited: &BTreeMap<Arc<str>, Tally>, why: LossReason) {
        self.pages = pages.into();
        self.drop_old();
        let most = self.limits.services;
        self.pages.iter_mut().for_each(|page| page.bound(most, &self.other));
        for (name, tally) in waited.iter().filter(|(_, tally)| tally.spans > 0) {
            self.line(name).gone[DiscardReason::Lost(why).place()] += *tally;
        }
    }

    /// Records a span of `service` that arrived and is buffered. The name is remembered for later records. Allocates
    /// nothing for a service that has a line.
    pub fn seen(&mut self, service: ServiceId, name: &str, bytes: usize, root: bool, failed: bool) {
        let tally = Tally::one(bytes);
        self.name(service, name);
        let Self { limits, pages, names, other_waits, other, .. } = self;
        let (waits, name) = match names.get_mut(&service) {
            Some(named) => (&mut named.waits, &named.name),
            None => (other_waits, &*other),
        };
        *waits += tally;
        let record = |line: &mut Line| {
            line.seen += tally;
            line.requests.all += u64::from(root);
            line.requests.failed += u64::from(root && failed);
        };
        match pages.back_mut().and_then(|page| page.services.get_mut(name)) {
            Some(line) => record(line),
            None => record(last_line(pages, limits.services, name, other)),
        }
    }

    /// Records a buffered span of `service` that `policy` kept.
    pub fn kept(&mut self, service: ServiceId, policy: Policy, bytes: usize, root: bool, failed: bool) {
        let tally = Tally::one(bytes);
        let name = self.settle(service, tally);
        let line = self.line(&name);
        line.kept[policy as usize] += tally;
        line.kept_requests.all += u64::from(root);
        line.kept_requests.failed += u64::from(root && failed);
    }

    /// Records buffered spans of `service` that were dropped or lost.
    pub fn gone(&mut self, service: ServiceId, why: DiscardReason, tally: Tally) {
        let name = self.settle(service, tally);
        self.line(&name).gone[why.place()] += tally;
    }

    /// Buffered spans, by name of the service.
    #[must_use]
    pub fn waiting(&self) -> BTreeMap<Arc<str>, Tally> {
        let mut waiting = BTreeMap::<_, Tally>::new();
        let named = self.names.values().map(|named| (&named.name, named.waits));
        for (name, waits) in named.chain([(&self.other, self.other_waits)]).filter(|(_, waits)| waits.spans > 0) {
            *waiting.entry(Arc::clone(name)).or_default() += waits;
        }
        waiting
    }

    /// Records the time during which an alarm of the named service was on, and its beginning if it `began`.
    pub fn alarm(&mut self, name: &str, began: bool, on: Nanos) {
        let line = self.line(&name.into());
        line.alarms += u64::from(began);
        line.alarm_time = line.alarm_time.plus(on);
    }

    /// Records the cumulative counter `name`, which is at `value`: its growth since the last call is of today. A value
    /// that fell was reset.
    pub fn grew(&mut self, name: &str, value: u64) {
        let known = self.known.get(name).copied().unwrap_or(0);
        let by = if value < known { value } else { value - known };
        let name: Arc<str> = self.known.get_key_value(name).map_or_else(|| name.into(), |(name, _)| Arc::clone(name));
        self.known.insert(Arc::clone(&name), value);
        if let Some(page) = self.pages.back_mut() {
            *page.grown.entry(name).or_default() += by;
        }
    }

    /// The name of `service` is forgotten: the id is not seen again. Its buffered spans are still recorded under the
    /// name.
    pub fn forget(&mut self, service: ServiceId) {
        if let Some(named) = self.names.get_mut(&service) {
            named.forgotten = true;
            self.settle(service, Tally::default());
        }
    }

    /// The pages, oldest first.
    pub fn pages(&self) -> impl Iterator<Item = &Page> {
        self.pages.iter()
    }

    /// The sum of several ledgers, by day, oldest first.
    #[must_use]
    pub fn merge<'a>(all: impl IntoIterator<Item = &'a Page>) -> Vec<Page> {
        let mut days: BTreeMap<u64, Page> = BTreeMap::new();
        for page in all {
            let sum = days.entry(page.day).or_insert_with(|| Page { day: page.day, ..Page::default() });
            for (name, line) in &page.services {
                sum.services.entry(Arc::clone(name)).or_default().add(line);
            }
            for (name, by) in &page.grown {
                *sum.grown.entry(Arc::clone(name)).or_default() += by;
            }
        }
        days.into_values().collect()
    }

    /// Remembers the name of `service`, if there is room. Ids are of more than a day: they are forgotten by the caller.
    fn name(&mut self, service: ServiceId, name: &str) {
        if self.names.len() < 4 * self.limits.services && !self.names.contains_key(&service) {
            let (waits, log_waits) = (Tally::default(), Tally::default());
            self.names.insert(service, NamedService { name: name.into(), waits, log_waits, forgotten: false });
        }
    }

    /// Spans of `service` are no longer buffered. Returns the name under which to record them.
    fn settle(&mut self, service: ServiceId, tally: Tally) -> Arc<str> {
        let Some(named) = self.names.get_mut(&service) else {
            self.other_waits -= tally;
            return Arc::clone(&self.other);
        };
        named.waits -= tally;
        let name = Arc::clone(&named.name);
        if named.forgotten && named.waits.spans == 0 && named.log_waits.spans == 0 {
            self.names.remove(&service);
        }
        name
    }

    fn drop_old(&mut self) {
        while self.pages.len() > self.limits.days.max(1) {
            self.pages.pop_front();
        }
    }

    fn line(&mut self, name: &Arc<str>) -> &mut Line {
        last_line(&mut self.pages, self.limits.services, name, &self.other)
    }
}

/// The line of `name` on the last page, or of `other` if `most` services have one.
fn last_line<'a>(pages: &'a mut VecDeque<Page>, most: usize, name: &Arc<str>, other: &Arc<str>) -> &'a mut Line {
    if pages.is_empty() {
        // No page was opened yet.
        pages.push_back(Page::default());
    }
    let last = pages.len() - 1;
    let page = &mut pages[last];
    let fits = page.services.len() < most;
    let name = if fits || page.services.contains_key(name) { name } else { other };
    page.services.entry(Arc::clone(name)).or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tracing::DropReason;

    fn day(day: u64, hour: u64) -> UnixNanos {
        UnixNanos::from_secs(day * 86_400 + hour * 3_600)
    }

    #[test]
    fn a_day_has_a_page_and_spans_are_recorded_when_they_are_kept() {
        let mut ledger = DailyLedger::new(LedgerLimits::default());
        ledger.turn(day(100, 23));
        ledger.seen(ServiceId(1), "payment", 200, true, true);
        ledger.seen(ServiceId(1), "payment", 50, false, false);
        ledger.seen(ServiceId(1), "payment", 50, false, false);
        ledger.alarm("payment", true, Nanos::from_secs(3));
        ledger.turn(day(101, 0));
        ledger.kept(ServiceId(1), Policy::Lmap, 100, true, true);
        ledger.kept(ServiceId(1), Policy::Lmap, 50, true, false);
        ledger.kept(ServiceId(1), Policy::Lmap, 50, false, true);
        ledger.seen(ServiceId(1), "payment", 70, false, false);
        ledger.gone(ServiceId(1), DiscardReason::Lost(LossReason::Evicted), Tally::one(70));
        // A clock that was set back.
        ledger.turn(day(100, 1));
        ledger.seen(ServiceId(2), "cart", 50, false, true);

        let pages: Vec<_> = ledger.pages().collect();

        assert_eq!(pages.iter().map(|page| page.day).collect::<Vec<_>>(), [100, 101]);
        let line = pages[0].services["payment"];
        assert_eq!((line.seen, line.kept()), (Tally { spans: 3, bytes: 300 }, Tally::default()));
        assert_eq!((line.requests, line.alarms), (Requests { all: 1, failed: 1 }, 1));
        assert_eq!(line.alarm_time, Nanos::from_secs(3));
        let line = pages[1].services["payment"];
        assert_eq!(line.kept[Policy::Lmap as usize], Tally { spans: 3, bytes: 200 });
        assert_eq!(line.kept_requests, Requests { all: 2, failed: 1 });
        assert_eq!((line.lost(), line.dropped()), (Tally::one(70), Tally::default()));
        assert_eq!(pages[1].services["cart"].requests, Requests::default(), "only a first span is a request");
    }

    #[test]
    fn days_and_services_are_bounded() {
        let mut ledger = DailyLedger::new(LedgerLimits { days: 2, services: 3 });
        for n in 0..5_u64 {
            ledger.turn(day(n, 0));
            for id in 0..10 {
                ledger.seen(ServiceId(id), &format!("s{id}"), 1, false, false);
            }
        }

        assert_eq!(ledger.pages().map(|page| page.day).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(ledger.waiting().values().map(|tally| tally.spans).sum::<u64>(), 50);
        for page in ledger.pages() {
            assert_eq!(page.services.len(), 4);
            assert_eq!(page.services[OTHER].seen.spans, 7);
        }
    }

    #[test]
    fn a_cumulative_counter_is_recorded_by_its_growth() {
        let mut ledger = DailyLedger::new(LedgerLimits::default());
        ledger.turn(day(1, 0));
        ledger.grew("sent_bytes", 100);
        ledger.grew("sent_bytes", 150);
        ledger.turn(day(2, 0));
        ledger.grew("sent_bytes", 180);
        ledger.grew("sent_bytes", 20);

        let grown: Vec<_> = ledger.pages().map(|page| page.grown["sent_bytes"]).collect();

        assert_eq!(grown, [150, 50]);
    }

    #[test]
    fn merged_ledgers_add_up() {
        let ledger_of = |n: u64| {
            let mut ledger = DailyLedger::new(LedgerLimits::default());
            ledger.turn(day(1, 0));
            ledger.seen(ServiceId(1), "payment", 10, true, true);
            ledger.kept(ServiceId(1), Policy::Error, 10, true, true);
            ledger.alarm("payment", true, Nanos::from_secs(n));
            ledger.grew("sent_bytes", 100 * n);
            ledger
        };
        let all = [ledger_of(1), ledger_of(2), ledger_of(3)];

        let sum = DailyLedger::merge(all.iter().flat_map(DailyLedger::pages));

        let line = sum[0].services["payment"];
        assert_eq!((sum.len(), line.requests), (1, Requests { all: 3, failed: 3 }));
        assert_eq!(line.kept_requests, Requests { all: 3, failed: 3 });
        assert_eq!((line.alarms, line.alarm_time, sum[0].grown["sent_bytes"]), (3, Nanos::from_secs(6), 600));
    }

    #[test]
    fn a_successor_goes_on_with_the_pages_and_what_waited_is_lost() {
        let mut first = DailyLedger::new(LedgerLimits { days: 2, ..LedgerLimits::default() });
        for n in 1..4 {
            first.turn(day(n, 0));
            first.seen(ServiceId(1), "payment", 10, false, false);
        }
        first.gone(ServiceId(1), DiscardReason::Dropped(DropReason::Aged), Tally::one(10));
        assert_eq!(first.waiting(), [("payment".into(), Tally { spans: 2, bytes: 20 })].into());

        let mut second = DailyLedger::new(LedgerLimits { days: 2, ..LedgerLimits::default() });
        second.resume(first.pages().cloned().collect(), &first.waiting(), LossReason::Killed);
        let last = second.pages().last().unwrap().services["payment"];
        assert_eq!(last.gone[DiscardReason::Lost(LossReason::Killed).place()], Tally { spans: 2, bytes: 20 });
        assert_eq!((last.dropped(), last.lost().spans), (Tally::one(10), 2));
        assert!(second.waiting().is_empty());
        second.turn(day(4, 0));
        assert_eq!(second.pages().map(|page| page.day).collect::<Vec<_>>(), [3, 4]);
    }

    #[test]
    fn buffered_spans_of_a_forgotten_service_are_recorded_under_its_name() {
        let mut ledger = DailyLedger::new(LedgerLimits::default());
        ledger.turn(day(1, 0));
        ledger.seen(ServiceId(1), "payment", 10, false, false);
        ledger.seen(ServiceId(2), "cart", 10, false, false);
        ledger.forget(ServiceId(1));
        ledger.forget(ServiceId(2));
        ledger.gone(ServiceId(1), DiscardReason::Dropped(DropReason::Aged), Tally::one(10));
        ledger.kept(ServiceId(2), Policy::Floor, 10, false, false);

        let page = ledger.pages().next().unwrap();

        assert_eq!((page.services["payment"].dropped().spans, page.services["cart"].kept().spans), (1, 1));
        assert!(ledger.waiting().is_empty() && ledger.names.is_empty());
    }

    proptest! {
        /// However records are spread over days, services and ledgers, the sum has them all.
        #[test]
        fn merging_loses_nothing(spans in prop::collection::vec((0_u64..3, 0_u32..6, 1_usize..100, any::<bool>(), any::<bool>()), 0..100)) {
            let mut ledgers = [DailyLedger::new(LedgerLimits { days: 5, services: 2 }), DailyLedger::new(LedgerLimits::default())];
            let (mut seen, mut kept) = (Tally::default(), Tally::default());
            for (n, (when, id, bytes, keep, first)) in spans.into_iter().enumerate() {
                let ledger = &mut ledgers[usize::from(first)];
                ledger.turn(day(when, 0));
                ledger.seen(ServiceId(id), &format!("s{id}"), bytes, n % 2 == 0, false);
                seen += Tally::one(bytes);
                if n % 3 == 0 && !keep {
                    ledger.gone(ServiceId(id), DiscardReason::Dropped(DropReason::Late), Tally::one(bytes));
                }
                if keep {
                    ledger.kept(ServiceId(id), Policy::Floor, bytes, false, false);
                    kept += Tally::one(bytes);
                }
            }
            let waits = ledgers.iter().flat_map(|ledger| ledger.waiting().into_values()).fold(Tally::default(), Tally::plus);
            let pages = DailyLedger::merge(ledgers.iter().flat_map(DailyLedger::pages));
            let lines = || pages.iter().flat_map(|page| page.services.values());
            prop_assert_eq!(lines().fold(Tally::default(), |sum, line| sum.plus(line.seen)), seen);
            prop_assert_eq!(lines().fold(Tally::default(), |sum, line| sum.plus(line.kept())), kept);
            for (at, line) in pages.iter().flat_map(|page| &page.services) {
                prop_assert!(&**at == OTHER || line.kept().plus(line.dropped()).spans <= line.seen.spans);
            }
            let gone = lines().fold(Tally::default(), |sum, line| sum.plus(line.kept()).plus(line.dropped()).plus(line.lost()));
            prop_assert_eq!(gone.plus(waits), seen);
            prop_assert!(pages.is_sorted_by_key(|page| page.day));
        }
    }
}
