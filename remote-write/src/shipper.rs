//! All of it together: rows in, requests out, answers in. Pure: the time comes in, and so does randomness.
//!
//! One request is under way at a time; whatever failed is sent again before anything else, so that times rise within each series whatever
//! happens. A refused request is never sent again.

use std::collections::BTreeMap;

use hooks::sampling::{Ledger, LostSample, Row, RuleError, SamplingRule, Series as Resolution, WidthError};
use hooks::time::UnixNanos;
use wire::time::{Interval, Nanos};

pub use crate::books::{Books, Counters};

use crate::answer::{Answer, Asked, Backoff, Meaning, meaning};
use crate::encoding::{Encoder, Version};
use crate::feed::{Column, Feed, FeedStart, SeriesNumbers, Target};
use crate::queue::{Batch, LimitError, Queue, QueueLimits};
use crate::series::{Point, ServiceNumber};
use crate::steady::Reading;

/// How long a receiver that does not know 2.0 is not asked again.
const ASK_AGAIN: Nanos = Nanos::from_secs(3600);
/// How long the end of a service is remembered.
const REMEMBERED: Nanos = Nanos::from_secs(3600);

/// In the order of [`Shipper::books`].
const RESOLUTIONS: [Resolution; 2] = [Resolution::Baseline, Resolution::Dense];

/// Which version is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// 2.0, and 1.0 if the receiver does not know it; asked again each hour.
    #[default]
    Negotiated,
    /// This one, whatever the receiver says.
    Only(Version),
}

/// How samples are sent.
#[derive(Clone, Debug, PartialEq)]
pub struct ShipperSettings {
    /// `instance` of all series.
    pub instance: String,
    /// Labels of all series, with legal names.
    pub labels: Vec<(String, String)>,
    /// What is sampled.
    pub rule: SamplingRule,
    /// What may wait.
    pub queue: QueueLimits,
    /// Which version.
    pub version: Wanted,
    /// How failures are answered.
    pub backoff: Backoff,
    /// When this process began: rows up to this time were its predecessor's.
    pub began: UnixNanos,
}

/// Settings that nothing can be sent with.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The sampler's.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// The queue's.
    #[error(transparent)]
    Queue(#[from] LimitError),
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Step<'a> {
    /// Send this, then say what came back.
    Send(Request<'a>),
    /// Nothing, until then, or until there are more rows; [`Nanos::NEVER`] if nothing waits, or a request is under way.
    Wait(Nanos),
}

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Which message it is.
    pub version: Version,
    /// The body.
    pub body: &'a [u8],
    /// How often the same samples were sent before.
    pub failures: u32,
}

/// What an answer came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// All samples were taken.
    Taken(u64),
    /// So many were, and so many never will be.
    Refused {
        /// Were taken.
        written: u64,
        /// Were not.
        refused: u64,
    },
    /// The receiver speaks the other version: the same samples follow in it.
    OtherVersion(Version),
    /// The same samples are sent again after this pause.
    Again(Nanos),
    /// There was no request under way.
    Unasked,
}

#[derive(Debug)]
struct Held {
    name: String,
    feed: Feed,
    gone: bool,
}

type Feeds = BTreeMap<ServiceNumber, Held>;

#[derive(Debug)]
struct UnderWay {
    batch: Batch,
    failures: u32,
    /// It was tried in another version before.
    switched: bool,
    /// When it is sent again; `None` while an answer is awaited.
    again: Option<Nanos>,
}

/// Rows in, requests out. See the module's documentation.
#[derive(Debug)]
pub struct Shipper {
    settings: ShipperSettings,
    feeds: Feeds,
    names: BTreeMap<String, ServiceNumber>,
    ends: BTreeMap<String, UnixNanos>,
    /// Of services that are gone, and of which nothing is left to be sent.
    former: [Books; 2],
    former_replayed: u64,
    queue: Queue,
    encoder: Encoder,
    numbers: SeriesNumbers,
    last_service: u32,
    version: Version,
    confirmed: bool,
    fell_back: Option<Nanos>,
    under_way: Option<UnderWay>,
    counters: Counters,
    /// The interval of the baseline in which services were read last, counted from 1970.
    read: Option<u64>,
    /// What one call puts into the queue; kept for its memory.
    points: Vec<Point>,
}

/// How many traces stand beside `points`.
fn exemplars(points: &[Point]) -> u64 {
    points.iter().filter_map(|point| point.beside.as_ref()).map(|beside| beside.exemplars() as u64).sum()
}

/// `points` are lost, for `why`. Marks stand in no books.
fn lose(feeds: &mut Feeds, counters: &mut Counters, why: LostSample, points: &[Point]) {
    counters.lost_exemplars += exemplars(points);
    for point in points.iter().filter(|point| !point.is_mark()) {
        let owner = point.series.owner;
        if let Some(held) = feeds.get_mut(&owner.service) {
            held.feed.ledger_mut(owner.series).lose(why, 1);
        }
    }
}

impl Shipper {
    /// Nothing to send yet.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] for what is out of range.
    pub fn new(settings: ShipperSettings) -> Result<Self, SettingsError> {
        settings.rule.check()?;
        let queue = Queue::new(settings.queue)?;
        let version = match settings.version {
            Wanted::Negotiated => Version::V2,
            Wanted::Only(version) => version,
        };
        Ok(Self {
            settings,
            feeds: Feeds::new(),
            names: BTreeMap::new(),
            ends: BTreeMap::new(),
            former: [Books::default(); 2],
            former_replayed: 0,
            queue,
            encoder: Encoder::new(),
            numbers: SeriesNumbers::default(),
            last_service: 0,
            version,
            confirmed: false,
            fell_back: None,
            under_way: None,
            counters: Counters::default(),
            read: None,
            points: Vec::new(),
        })
    }

    /// A service is watched, or watched again, with a row every `interval`.
    pub fn service(&mut self, name: &str, interval: Interval) -> ServiceNumber {
        if let Some(&number) = self.names.get(name) {
            if let Some(held) = self.feeds.get_mut(&number) {
                held.gone = false;
            }
            return number;
        }
        self.last_service += 1;
        let service = ServiceNumber(self.last_service);
        let target = Target {
            job: name.to_owned(),
            instance: self.settings.instance.clone(),
            labels: self.settings.labels.clone(),
            is_otlp: self.version == Version::Otlp,
        };
        let (began, not_before) = (self.settings.began, self.ends.get(name).copied().unwrap_or_default());
        let start = FeedStart { service, target, rule: self.settings.rule, interval, began, not_before };
        // The rule was checked when it came.
        if let Ok(feed) = Feed::new(start) {
            self.feeds.insert(service, Held { name: name.to_owned(), feed, gone: false });
            self.names.insert(name.to_owned(), service);
        }
        service
    }

    /// The columns of a service's rows from now on.
    pub fn set_columns(&mut self, service: ServiceNumber, columns: &[Column], interval: Interval, at: At) {
        let Self { feeds, numbers, points, .. } = self;
        let Some(held) = feeds.get_mut(&service) else { return };
        held.feed.set_columns(columns, interval, at.unix, numbers, points);
        self.put(service, at.own);
    }

    /// A row of a service came.
    pub fn row(&mut self, service: ServiceNumber, row: &Row<'_>, at: At) {
        let Some(held) = self.feeds.get_mut(&service) else { return };
        match held.feed.row(row, at.unix, &mut self.points) {
            Ok(()) => self.put(service, at.own),
            Err(WidthError { .. }) => self.counters.misfits += 1,
        }
    }

    /// Whether services are to be read: at the first call, then once in each interval of the baseline.
    pub fn is_reading_due(&mut self, at: UnixNanos) -> bool {
        let round = at.0 / self.settings.rule.baseline.0.max(1);
        self.read.replace(round) != Some(round)
    }

    /// Something was read of a service that is made of no rows. A service that is gone is not there to be read.
    pub fn read(&mut self, service: ServiceNumber, reading: &Reading, at: At) {
        let Self { feeds, numbers, points, .. } = self;
        let Some(held) = feeds.get_mut(&service).filter(|held| !held.gone) else { return };
        held.feed.read(reading, at.unix, numbers, points);
        self.put(service, at.own);
    }

    /// Whether a service is in alarm.
    pub fn set_alarm(&mut self, service: ServiceNumber, alarm: bool) {
        self.queue.set_alarm(service, alarm);
    }

    /// A service is gone: its series end.
    pub fn end(&mut self, service: ServiceNumber, at: At) {
        let Self { feeds, numbers, points, ends, .. } = self;
        let Some(held) = feeds.get_mut(&service).filter(|held| !held.gone) else { return };
        held.gone = true;
        let last = held.feed.gone(at.unix, numbers, points);
        ends.retain(|_, end| at.unix.since(*end) < REMEMBERED);
        ends.insert(held.name.clone(), last);
        self.put(service, at.own);
        self.queue.set_alarm(service, false);
    }

    /// What is to be done now. Call it after every other call, and when the time that it returned has come.
    pub fn poll(&mut self, now: Nanos) -> Step<'_> {
        let Self { queue, feeds, counters, .. } = self;
        queue.expire(now, |points| lose(feeds, counters, LostSample::TooOld, points));
        self.give_up(now);
        self.forget();
        if self.under_way.is_none() {
            let due = self.queue.due();
            match due {
                None => return Step::Wait(Nanos::NEVER),
                Some(due) if due > now => return Step::Wait(due),
                Some(_) => self.begin(now),
            }
        }
        match &mut self.under_way {
            Some(UnderWay { again: None, .. }) | None => Step::Wait(Nanos::NEVER),
            Some(UnderWay { again: Some(again), .. }) if *again > now => Step::Wait(*again),
            Some(under_way) => {
                under_way.again = None;
                let failures = under_way.failures;
                self.counters.requests += 1;
                // A block of Snappy holds 4 GiB, and a request is bounded far below: an empty body, which is refused, if that were ever wrong.
                let body = self.encoder.body(self.version, &under_way.batch.points).unwrap_or_default();
                self.counters.bytes += body.len() as u64;
                Step::Send(Request { version: self.version, body, failures })
            }
        }
    }

    /// What came back for the request under way. `random` is uniform in \[0, 1).
    pub fn answered(&mut self, answer: &Answer, at: At, random: f64) -> Heard {
        let Some(mut under_way) = self.under_way.take_if(|under_way| under_way.again.is_none()) else {
            return Heard::Unasked;
        };
        let points = under_way.batch.points.len() as u64;
        let asked = Asked {
            points,
            version: self.version,
            negotiable: self.settings.version == Wanted::Negotiated && !under_way.switched,
            confirmed: self.confirmed,
            failures: under_way.failures + 1,
        };
        match meaning(asked, answer, &self.settings.backoff, at.unix, random) {
            Meaning::Again(pause) => {
                self.counters.failed += 1;
                under_way.failures += 1;
                under_way.again = Some(at.own.plus(pause));
                self.under_way = Some(under_way);
                Heard::Again(pause)
            }
            Meaning::OtherVersion => {
                self.counters.fallbacks += 1;
                self.version = Version::V1;
                self.fell_back = Some(at.own);
                under_way.switched = true;
                under_way.failures = 0;
                under_way.again = Some(at.own);
                self.under_way = Some(under_way);
                Heard::OtherVersion(self.version)
            }
            Meaning::Written(written) => {
                self.learn(answer);
                self.settle_exemplars(&under_way.batch, written, answer);
                self.settle(&under_way.batch, written);
                if written == points {
                    return Heard::Taken(written);
                }
                self.counters.refused += 1;
                Heard::Refused { written, refused: points - written }
            }
        }
    }

    /// Nothing waits for others to travel with any more: this process is about to end.
    pub const fn hurry(&mut self) {
        self.queue.hurry();
    }

    /// What became of all samples of `series`.
    #[must_use]
    pub fn books(&self, series: Resolution) -> Books {
        let mut books = self.former[series as usize];
        self.feeds.values().for_each(|held| books.add(held.feed.ledger(series)));
        books
    }

    /// The services that are there, or of which something is left to be sent, each with the books of its baseline and of its dense series.
    pub fn services(&self) -> impl Iterator<Item = (&str, &Ledger, &Ledger)> {
        self.feeds
            .values()
            .map(|held| (&*held.name, held.feed.ledger(Resolution::Baseline), held.feed.ledger(Resolution::Dense)))
    }

    /// What was done.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Rows that came again, or were a predecessor's, and were not counted, and columns that are not sent since another has their name.
    #[must_use]
    pub fn replayed_and_hidden(&self) -> (u64, usize) {
        self.feeds.values().fold((self.former_replayed, 0), |(replayed, hidden), held| {
            (replayed + held.feed.replayed(), hidden + held.feed.hidden())
        })
    }

    /// Memory of samples that wait or are under way.
    #[must_use]
    pub const fn waiting_bytes(&self) -> usize {
        self.queue.bytes()
    }

    /// The version that is spoken.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// What is in `points` goes into the queue.
    fn put(&mut self, service: ServiceNumber, now: Nanos) {
        let Self { queue, feeds, points, counters, .. } = self;
        if !points.is_empty() {
            counters.exemplars += exemplars(points);
            queue.push(service, points, now, |points| lose(feeds, counters, LostSample::QueueFull, points));
            points.clear();
        }
    }

    /// Services that are gone, and of which nothing is left to be sent, are forgotten.
    fn forget(&mut self) {
        let Self { feeds, names, former, former_replayed, queue, .. } = self;
        feeds.retain(|&number, held| {
            let ledgers = RESOLUTIONS.map(|series| held.feed.ledger(series));
            if !held.gone || queue.holds(number) || ledgers.iter().any(|ledger| ledger.handed > 0) {
                return true;
            }
            former.iter_mut().zip(ledgers).for_each(|(books, ledger)| books.add(ledger));
            *former_replayed += held.feed.replayed();
            names.remove(&held.name);
            queue.forget(number);
            false
        });
    }

    fn begin(&mut self, now: Nanos) {
        if self.fell_back.is_some_and(|when| now.since(when).is_some_and(|since| since >= ASK_AGAIN)) {
            (self.version, self.confirmed, self.fell_back) = (Version::V2, false, None);
        }
        let batch = self.queue.take();
        self.under_way = batch.map(|batch| UnderWay { batch, failures: 0, switched: false, again: Some(now) });
    }

    /// What is sent again and again is lost when it has waited too long.
    fn give_up(&mut self, now: Nanos) {
        let age = self.settings.queue.age;
        let old = |under_way: &UnderWay| {
            under_way.again.is_some() && now.since(under_way.batch.since).is_some_and(|waited| waited > age)
        };
        if let Some(under_way) = self.under_way.take_if(|under_way| old(under_way)) {
            lose(&mut self.feeds, &mut self.counters, LostSample::TooOld, &under_way.batch.points);
            self.queue.release(&under_way.batch);
        }
    }

    /// What an answer says about the versions that the receiver knows.
    fn learn(&mut self, answer: &Answer) {
        let Answer::Answered { status, any_written, .. } = answer else { return };
        if self.version == Version::V2 {
            self.confirmed |= any_written;
        } else if *status == 415 && self.settings.version == Wanted::Negotiated {
            // It does not know 1.0: what it refused of 2.0 was about the samples.
            (self.version, self.confirmed, self.fell_back) = (Version::V2, true, None);
        }
    }

    /// A receiver of 2.0 says how many exemplars it took; of another one only is known that it refused nothing, or something.
    fn settle_exemplars(&mut self, batch: &Batch, written: u64, answer: &Answer) {
        let all = exemplars(&batch.points);
        let said = match answer {
            Answer::Answered { exemplars_written, .. } => *exemplars_written,
            Answer::Exported { .. } | Answer::Failed { .. } | Answer::None => None,
        };
        let whole = self.version != Version::V2 && written == batch.points.len() as u64;
        let taken = said.unwrap_or(if whole { all } else { 0 }).min(all);
        self.counters.sent_exemplars += taken;
        self.counters.lost_exemplars += all - taken;
    }

    /// `written` of the batch were taken, and the rest refused. Which ones is not said: services share in proportion.
    fn settle(&mut self, batch: &Batch, written: u64) {
        let all = batch.points.len() as u64;
        let share = |before: u64| (u128::from(before) * u128::from(written) / u128::from(all.max(1))) as u64;
        let mut before = 0;
        for points in batch
            .points
            .chunk_by(|one, next| one.is_mark() == next.is_mark() && one.series.number == next.series.number)
        {
            let count = points.len() as u64;
            let taken = share(before + count) - share(before);
            before += count;
            let owner = points[0].series.owner;
            if let Some(held) = self.feeds.get_mut(&owner.service).filter(|_| !points[0].is_mark()) {
                let ledger = held.feed.ledger_mut(owner.series);
                ledger.acknowledge(taken);
                ledger.lose(LostSample::Refused, count - taken);
            }
        }
        self.queue.release(batch);
    }
}

/// When something happens, by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// By one's own, which never goes back.
    pub own: Nanos,
    /// The time of day, which may jump.
    pub unix: UnixNanos,
}
