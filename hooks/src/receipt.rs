//! Day books: what was seen of each service and what became of it, a page for each day (UTC). Pure: the time of day comes with what is booked.
//!
//! Everything is booked on the day on which it happened: a span that was seen before midnight and kept after it is on two pages. Bounded: so many
//! days, so many services a day, the others together as [`OTHER`].
//!
//! Of each service, over all days and at all times: seen = kept + dropped + lost + [waiting](Books::waiting).

mod page;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use wire::time::Nanos;

pub use self::page::{Line, Page, Requests, head_share};
use crate::id::ServiceId;
use crate::paths::OTHER;
use crate::time::UnixNanos;
use crate::tracing::{Gone, Loss, Policy, Tally};

/// Nanoseconds of a day.
const DAY: u64 = 86_400 * 1_000_000_000;

/// How much is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BookLimits {
    /// Days, the present one included.
    pub days: usize,
    /// Services of one day, [`OTHER`] not counted.
    pub services: usize,
}

impl Default for BookLimits {
    /// 8 days, 1,000 services: some 2 MB.
    fn default() -> Self {
        Self { days: 8, services: 1_000 }
    }
}

/// A service that is known by its name, and what of it waits.
#[derive(Debug)]
struct Named {
    name: Arc<str>,
    waits: Tally,
    /// It is not seen again: gone with the last of its spans that wait.
    forgotten: bool,
}

/// Pages of the last days.
#[derive(Debug)]
pub struct Books {
    limits: BookLimits,
    pages: VecDeque<Page>,
    names: HashMap<ServiceId, Named>,
    /// Of services without a name.
    other_waits: Tally,
    /// As of the last time, of what only grows.
    known: BTreeMap<Arc<str>, u64>,
    other: Arc<str>,
}

impl Books {
    /// Without a page.
    #[must_use]
    pub fn new(limits: BookLimits) -> Self {
        let other = OTHER.into();
        Self {
            limits,
            pages: VecDeque::new(),
            names: HashMap::new(),
            other_waits: Tally::default(),
            known: BTreeMap::new(),
            other,
        }
    }

    /// What follows happens at `now`. A clock that was set back books on the last page; one that jumped ahead leaves days out.
    pub fn turn(&mut self, now: UnixNanos) {
        let day = now.0 / DAY;
        if self.pages.back().is_some_and(|page| page.day >= day) {
            return;
        }
        self.pages.push_back(Page { day, ..Page::default() });
        self.drop_old();
    }

    /// Goes on with the `pages` of a predecessor, the oldest first, in which spans `waited` when it ended: these are lost, for the reason `why`, and
    /// booked on its last page. Before anything else is booked.
    pub fn resume(&mut self, pages: Vec<Page>, waited: &BTreeMap<Arc<str>, Tally>, why: Loss) {
        self.pages = pages.into();
        self.drop_old();
        let most = self.limits.services;
        self.pages.iter_mut().for_each(|page| page.bound(most, &self.other));
        for (name, tally) in waited.iter().filter(|(_, tally)| tally.spans > 0) {
            self.line(name).gone[Gone::Lost(why).place()] += *tally;
        }
    }

    /// A span of `service` came, and waits. Its name is remembered for what follows.
    pub fn seen(&mut self, service: ServiceId, name: &str, bytes: usize, root: bool, failed: bool) {
        let tally = Tally::one(bytes);
        // Ids of a day and a bit: whoever books forgets as names do.
        if self.names.len() < 4 * self.limits.services && !self.names.contains_key(&service) {
            self.names.insert(service, Named { name: name.into(), waits: Tally::default(), forgotten: false });
        }
        let name = if let Some(named) = self.names.get_mut(&service) {
            named.waits += tally;
            Arc::clone(&named.name)
        } else {
            self.other_waits += tally;
            Arc::clone(&self.other)
        };
        let line = self.line(&name);
        line.seen += tally;
        line.requests.all += u64::from(root);
        line.requests.failed += u64::from(root && failed);
    }

    /// A span of `service` that waited was kept by `policy`.
    pub fn kept(&mut self, service: ServiceId, policy: Policy, bytes: usize, root: bool, failed: bool) {
        let tally = Tally::one(bytes);
        let name = self.settle(service, tally);
        let line = self.line(&name);
        line.kept[policy as usize] += tally;
        line.kept_requests.all += u64::from(root);
        line.kept_requests.failed += u64::from(root && failed);
    }

    /// Spans of `service` that waited were dropped or lost.
    pub fn gone(&mut self, service: ServiceId, why: Gone, tally: Tally) {
        let name = self.settle(service, tally);
        self.line(&name).gone[why.place()] += tally;
    }

    /// What is undecided, by name.
    #[must_use]
    pub fn waiting(&self) -> BTreeMap<Arc<str>, Tally> {
        let mut waiting = BTreeMap::<_, Tally>::new();
        let named = self.names.values().map(|named| (&named.name, named.waits));
        for (name, waits) in named.chain([(&self.other, self.other_waits)]).filter(|(_, waits)| waits.spans > 0) {
            *waiting.entry(Arc::clone(name)).or_default() += waits;
        }
        waiting
    }

    /// An alarm of the service of this name began, if it `began`, and was on for so long.
    pub fn alarm(&mut self, name: &str, began: bool, on: Nanos) {
        let line = self.line(&name.into());
        line.alarms += u64::from(began);
        line.alarm_time = line.alarm_time.plus(on);
    }

    /// What only grows is at `value` by now; what it has grown since the last time is of today. A value that fell has begun anew.
    pub fn grew(&mut self, name: &str, value: u64) {
        let known = self.known.get(name).copied().unwrap_or(0);
        let by = if value < known { value } else { value - known };
        let name: Arc<str> = self.known.get_key_value(name).map_or_else(|| name.into(), |(name, _)| Arc::clone(name));
        self.known.insert(Arc::clone(&name), value);
        if let Some(page) = self.pages.back_mut() {
            *page.grown.entry(name).or_default() += by;
        }
    }

    /// Whose name is forgotten is not seen again under this id. What waits of it is still booked under its name.
    pub fn forget(&mut self, service: ServiceId) {
        if let Some(named) = self.names.get_mut(&service) {
            named.forgotten = true;
            self.settle(service, Tally::default());
        }
    }

    /// The pages, the oldest first.
    pub fn pages(&self) -> impl Iterator<Item = &Page> {
        self.pages.iter()
    }

    /// The pages of several books as one's, the oldest first.
    #[must_use]
    pub fn together<'a>(all: impl IntoIterator<Item = &'a Page>) -> Vec<Page> {
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

    /// So much of `service` waits no longer. Returns by which name it is booked.
    fn settle(&mut self, service: ServiceId, tally: Tally) -> Arc<str> {
        let Some(named) = self.names.get_mut(&service) else {
            self.other_waits -= tally;
            return Arc::clone(&self.other);
        };
        named.waits -= tally;
        let name = Arc::clone(&named.name);
        if named.forgotten && named.waits.spans == 0 {
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
        if self.pages.is_empty() {
            // Nobody has said what day it is.
            self.pages.push_back(Page::default());
        }
        let last = self.pages.len() - 1;
        let page = &mut self.pages[last];
        let room = page.services.len() < self.limits.services;
        let name = if room || page.services.contains_key(name) { name } else { &self.other };
        page.services.entry(Arc::clone(name)).or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tracing::Dropped;

    fn day(day: u64, hour: u64) -> UnixNanos {
        UnixNanos::from_secs(day * 86_400 + hour * 3_600)
    }

    #[test]
    fn a_day_has_a_page_and_what_is_kept_is_booked_when_it_is() {
        let mut books = Books::new(BookLimits::default());
        books.turn(day(100, 23));
        books.seen(ServiceId(1), "payment", 200, true, true);
        books.seen(ServiceId(1), "payment", 50, false, false);
        books.seen(ServiceId(1), "payment", 50, false, false);
        books.alarm("payment", true, Nanos::from_secs(3));
        books.turn(day(101, 0));
        books.kept(ServiceId(1), Policy::Lmap, 100, true, true);
        books.kept(ServiceId(1), Policy::Lmap, 50, true, false);
        books.kept(ServiceId(1), Policy::Lmap, 50, false, true);
        books.seen(ServiceId(1), "payment", 70, false, false);
        books.gone(ServiceId(1), Gone::Lost(Loss::Evicted), Tally::one(70));
        // A clock that was set back.
        books.turn(day(100, 1));
        books.seen(ServiceId(2), "cart", 50, false, true);

        let pages: Vec<_> = books.pages().collect();

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
        let mut books = Books::new(BookLimits { days: 2, services: 3 });
        for n in 0..5_u64 {
            books.turn(day(n, 0));
            for id in 0..10 {
                books.seen(ServiceId(id), &format!("s{id}"), 1, false, false);
            }
        }

        assert_eq!(books.pages().map(|page| page.day).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(books.waiting().values().map(|tally| tally.spans).sum::<u64>(), 50);
        for page in books.pages() {
            assert_eq!(page.services.len(), 4);
            assert_eq!(page.services[OTHER].seen.spans, 7);
        }
    }

    #[test]
    fn what_only_grows_is_booked_by_what_it_grew() {
        let mut books = Books::new(BookLimits::default());
        books.turn(day(1, 0));
        books.grew("sent_bytes", 100);
        books.grew("sent_bytes", 150);
        books.turn(day(2, 0));
        books.grew("sent_bytes", 180);
        books.grew("sent_bytes", 20);

        let grown: Vec<_> = books.pages().map(|page| page.grown["sent_bytes"]).collect();

        assert_eq!(grown, [150, 50]);
    }

    #[test]
    fn the_sum_of_several_books_is_of_everything_in_them() {
        let book = |n: u64| {
            let mut books = Books::new(BookLimits::default());
            books.turn(day(1, 0));
            books.seen(ServiceId(1), "payment", 10, true, true);
            books.kept(ServiceId(1), Policy::Error, 10, true, true);
            books.alarm("payment", true, Nanos::from_secs(n));
            books.grew("sent_bytes", 100 * n);
            books
        };
        let all = [book(1), book(2), book(3)];

        let sum = Books::together(all.iter().flat_map(Books::pages));

        let line = sum[0].services["payment"];
        assert_eq!((sum.len(), line.requests), (1, Requests { all: 3, failed: 3 }));
        assert_eq!(line.kept_requests, Requests { all: 3, failed: 3 });
        assert_eq!((line.alarms, line.alarm_time, sum[0].grown["sent_bytes"]), (3, Nanos::from_secs(6), 600));
    }

    #[test]
    fn a_successor_goes_on_with_the_pages_and_what_waited_is_lost() {
        let mut first = Books::new(BookLimits { days: 2, ..BookLimits::default() });
        for n in 1..4 {
            first.turn(day(n, 0));
            first.seen(ServiceId(1), "payment", 10, false, false);
        }
        first.gone(ServiceId(1), Gone::Dropped(Dropped::Aged), Tally::one(10));
        assert_eq!(first.waiting(), [("payment".into(), Tally { spans: 2, bytes: 20 })].into());

        let mut second = Books::new(BookLimits { days: 2, ..BookLimits::default() });
        second.resume(first.pages().cloned().collect(), &first.waiting(), Loss::Killed);
        let last = second.pages().last().unwrap().services["payment"];
        assert_eq!(last.gone[Gone::Lost(Loss::Killed).place()], Tally { spans: 2, bytes: 20 });
        assert_eq!((last.dropped(), last.lost().spans), (Tally::one(10), 2));
        assert!(second.waiting().is_empty());
        second.turn(day(4, 0));
        assert_eq!(second.pages().map(|page| page.day).collect::<Vec<_>>(), [3, 4]);
    }

    #[test]
    fn what_waits_of_a_service_whose_name_is_forgotten_is_booked_under_it() {
        let mut books = Books::new(BookLimits::default());
        books.turn(day(1, 0));
        books.seen(ServiceId(1), "payment", 10, false, false);
        books.seen(ServiceId(2), "cart", 10, false, false);
        books.forget(ServiceId(1));
        books.forget(ServiceId(2));
        books.gone(ServiceId(1), Gone::Dropped(Dropped::Aged), Tally::one(10));
        books.kept(ServiceId(2), Policy::Floor, 10, false, false);

        let page = books.pages().next().unwrap();

        assert_eq!((page.services["payment"].dropped().spans, page.services["cart"].kept().spans), (1, 1));
        assert!(books.waiting().is_empty() && books.names.is_empty());
    }

    proptest! {
        /// However it is spread over days, services and books: nothing is lost on the way into the sum.
        #[test]
        fn the_sum_of_books_has_everything(spans in prop::collection::vec((0_u64..3, 0_u32..6, 1_usize..100, any::<bool>(), any::<bool>()), 0..100)) {
            let mut books = [Books::new(BookLimits { days: 5, services: 2 }), Books::new(BookLimits::default())];
            let (mut seen, mut kept) = (Tally::default(), Tally::default());
            for (n, (when, id, bytes, keep, first)) in spans.into_iter().enumerate() {
                let books = &mut books[usize::from(first)];
                books.turn(day(when, 0));
                books.seen(ServiceId(id), &format!("s{id}"), bytes, n % 2 == 0, false);
                seen += Tally::one(bytes);
                if n % 3 == 0 && !keep {
                    books.gone(ServiceId(id), Gone::Dropped(Dropped::Late), Tally::one(bytes));
                }
                if keep {
                    books.kept(ServiceId(id), Policy::Floor, bytes, false, false);
                    kept += Tally::one(bytes);
                }
            }
            let waits = books.iter().flat_map(|books| books.waiting().into_values()).fold(Tally::default(), Tally::plus);
            let pages = Books::together(books.iter().flat_map(Books::pages));
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
