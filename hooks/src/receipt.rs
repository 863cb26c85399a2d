//! Day books: what was seen of each service and what became of it, a page for each day (UTC). Pure: the time of day comes with what is booked.
//!
//! Everything is booked on the day on which it happened: a span that was seen before midnight and kept after it is on two pages. Bounded: so many
//! days, so many services a day, the others together as [`OTHER`].

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use wire::time::Nanos;

use crate::id::ServiceId;
use crate::paths::OTHER;
use crate::time::UnixNanos;
use crate::tracing::{Policy, Tally};

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

/// So many of something, and how many of them failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// All: spans without a parent, each a trace's first.
    pub all: u64,
    /// Of them in error.
    pub failed: u64,
}

/// A service's line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Spans that came.
    pub seen: Tally,
    /// Spans that were kept, by which policy, as [`Policy::ALL`].
    pub kept: [Tally; Policy::ALL.len()],
    /// Requests that began at the service.
    pub requests: Requests,
    /// Those of which the first span was kept.
    pub kept_requests: Requests,
    /// Alarms that began.
    pub alarms: u64,
    /// How long alarms were on.
    pub alarm_time: Nanos,
}

impl Line {
    /// All that was kept.
    #[must_use]
    pub fn kept(&self) -> Tally {
        self.kept.iter().fold(Tally::default(), |sum, tally| sum.plus(*tally))
    }

    fn add(&mut self, other: &Self) {
        self.seen += other.seen;
        for (mine, theirs) in self.kept.iter_mut().zip(other.kept) {
            *mine += theirs;
        }
        for (mine, theirs) in [(&mut self.requests, other.requests), (&mut self.kept_requests, other.kept_requests)] {
            mine.all += theirs.all;
            mine.failed += theirs.failed;
        }
        self.alarms += other.alarms;
        self.alarm_time = self.alarm_time.plus(other.alarm_time);
    }
}

/// A day's page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Days since 1970.
    pub day: u64,
    /// Services by name.
    pub services: BTreeMap<Arc<str>, Line>,
    /// What grew on this day of what only grows: losses by reason, bytes sent, processor time.
    pub grown: BTreeMap<Arc<str>, u64>,
}

/// Pages of the last days.
#[derive(Debug)]
pub struct Books {
    limits: BookLimits,
    pages: VecDeque<Page>,
    names: HashMap<ServiceId, Arc<str>>,
    /// As of the last time, of what only grows.
    known: BTreeMap<Arc<str>, u64>,
    other: Arc<str>,
}

impl Books {
    /// Without a page.
    #[must_use]
    pub fn new(limits: BookLimits) -> Self {
        let other = OTHER.into();
        Self { limits, pages: VecDeque::new(), names: HashMap::new(), known: BTreeMap::new(), other }
    }

    /// What follows happens at `now`. A clock that was set back books on the last page; one that jumped ahead leaves days out.
    pub fn turn(&mut self, now: UnixNanos) {
        let day = now.0 / DAY;
        if self.pages.back().is_some_and(|page| page.day >= day) {
            return;
        }
        self.pages.push_back(Page { day, ..Page::default() });
        while self.pages.len() > self.limits.days.max(1) {
            self.pages.pop_front();
        }
    }

    /// A span of `service` came. Its name is remembered for what follows.
    pub fn seen(&mut self, service: ServiceId, name: &str, bytes: usize, root: bool, failed: bool) {
        let name = match self.names.get(&service) {
            Some(name) => Arc::clone(name),
            None => self.learn(service, name),
        };
        let line = self.line(&name);
        line.seen += Tally::one(bytes);
        line.requests.all += u64::from(root);
        line.requests.failed += u64::from(root && failed);
    }

    /// A span of `service` was kept by `policy`.
    pub fn kept(&mut self, service: ServiceId, policy: Policy, bytes: usize, root: bool, failed: bool) {
        let name = Arc::clone(self.names.get(&service).unwrap_or(&self.other));
        let line = self.line(&name);
        line.kept[policy as usize] += Tally::one(bytes);
        line.kept_requests.all += u64::from(root);
        line.kept_requests.failed += u64::from(root && failed);
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

    /// Whose name is forgotten is not seen again under this id.
    pub fn forget(&mut self, service: ServiceId) {
        self.names.remove(&service);
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

    fn learn(&mut self, service: ServiceId, name: &str) -> Arc<str> {
        let name: Arc<str> = name.into();
        // Ids of a day and a bit: whoever books forgets as names do.
        if self.names.len() < 4 * self.limits.services {
            self.names.insert(service, Arc::clone(&name));
        }
        name
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

/// What head sampling would have kept at the same bytes: of everything the share that was kept of bytes, whatever happened to it.
#[must_use]
pub fn head_share(line: &Line) -> f64 {
    if line.seen.bytes == 0 { 0.0 } else { (line.kept().bytes as f64 / line.seen.bytes as f64).min(1.0) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn day(day: u64, hour: u64) -> UnixNanos {
        UnixNanos::from_secs(day * 86_400 + hour * 3_600)
    }

    #[test]
    fn a_day_has_a_page_and_what_is_kept_is_booked_when_it_is() {
        let mut books = Books::new(BookLimits::default());
        books.turn(day(100, 23));
        books.seen(ServiceId(1), "payment", 200, true, true);
        books.seen(ServiceId(1), "payment", 100, false, false);
        books.alarm("payment", true, Nanos::from_secs(3));
        books.turn(day(101, 0));
        books.kept(ServiceId(1), Policy::Lmap, 100, true, true);
        books.kept(ServiceId(1), Policy::Lmap, 50, true, false);
        books.kept(ServiceId(1), Policy::Lmap, 50, false, true);
        // A clock that was set back.
        books.turn(day(100, 1));
        books.seen(ServiceId(2), "cart", 50, false, true);

        let pages: Vec<_> = books.pages().collect();

        assert_eq!(pages.iter().map(|page| page.day).collect::<Vec<_>>(), [100, 101]);
        let line = pages[0].services["payment"];
        assert_eq!((line.seen, line.kept()), (Tally { spans: 2, bytes: 300 }, Tally::default()));
        assert_eq!((line.requests, line.alarms), (Requests { all: 1, failed: 1 }, 1));
        assert_eq!(line.alarm_time, Nanos::from_secs(3));
        let line = pages[1].services["payment"];
        assert_eq!(line.kept[Policy::Lmap as usize], Tally { spans: 3, bytes: 200 });
        assert_eq!(line.kept_requests, Requests { all: 2, failed: 1 });
        assert_eq!(pages[1].services["cart"].requests, Requests::default(), "only a first span is a request");
    }

    #[test]
    fn days_and_services_are_bounded() {
        let mut books = Books::new(BookLimits { days: 2, services: 3 });
        for n in 0..5 {
            books.turn(day(u64::from(n), 0));
            for id in 0..10 {
                books.seen(ServiceId(n * 10 + id), &format!("s{id}"), 1, false, false);
            }
        }

        assert_eq!(books.pages().map(|page| page.day).collect::<Vec<_>>(), [3, 4]);
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
    fn head_sampling_at_the_same_bytes_keeps_that_share_of_everything() {
        let mut line = Line { seen: Tally { spans: 10, bytes: 1_000 }, ..Line::default() };
        assert_eq!(head_share(&line), 0.0);
        line.kept[0] = Tally { spans: 1, bytes: 50 };
        assert_eq!(head_share(&line), 0.05);
        assert_eq!(head_share(&Line::default()), 0.0);
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
                if keep {
                    books.kept(ServiceId(id), Policy::Floor, bytes, false, false);
                    kept += Tally::one(bytes);
                }
            }
            let pages = Books::together(books.iter().flat_map(Books::pages));
            let lines = || pages.iter().flat_map(|page| page.services.values());
            prop_assert_eq!(lines().fold(Tally::default(), |sum, line| sum.plus(line.seen)), seen);
            prop_assert_eq!(lines().fold(Tally::default(), |sum, line| sum.plus(line.kept())), kept);
            prop_assert!(pages.is_sorted_by_key(|page| page.day));
        }
    }
}
