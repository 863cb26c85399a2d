//! Ties everything together: rows in, requests out, replies in. Pure: time and randomness are arguments.
//!
//! One request is in flight at a time. A failed one is retried before anything else, so timestamps always increase
//! within a series. A refused request is never sent again.

use std::collections::BTreeMap;

use hooks::sampling::{Ledger, Row, RuleError, SampleLossReason, SamplingRule, Series as Resolution, WidthError};
use wire::backoff::RetryRule;
use wire::time::{Interval, Nanos, UnixNanos};

mod clock;
mod settlement;

pub use self::clock::ClockBehind;
pub use crate::ledger::{Counters, LedgerTotals};
pub use wire::time::Timestamp;

use crate::encoding::{Encoder, Version};
use crate::feed::{Column, Feed, FeedStart, SeriesNumbers, Target};
use crate::queue::{Batch, LimitError, Queue, QueueLimits};
use crate::reading::Reading;
use crate::reply::{Reply, ReplyAction, RequestContext, interpret};
use crate::series::{Point, ServiceNumber};

/// How long a receiver that does not support 2.0 is not offered it again.
const RETRY_V2_AFTER: Nanos = Nanos::from_secs(3600);
/// How long the end of a service is remembered.
const REMEMBERED: Nanos = Nanos::from_secs(3600);

/// In the order of [`Shipper::totals`].
const RESOLUTIONS: [Resolution; 2] = [Resolution::Baseline, Resolution::Dense];

/// Choice of the protocol version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VersionPolicy {
    /// 2.0, and 1.0 if the receiver does not support it; 2.0 is tried again each hour.
    #[default]
    Negotiated,
    /// This version only.
    Only(Version),
}

/// Settings of a shipper.
#[derive(Clone, Debug, PartialEq)]
pub struct ShipperSettings {
    /// Label `instance` of all series.
    pub instance: String,
    /// Further labels of all series, with legal names.
    pub labels: Vec<(String, String)>,
    /// How values become baseline and dense samples.
    pub rule: SamplingRule,
    /// Limits of the queue.
    pub queue: QueueLimits,
    /// Negotiated or fixed protocol version.
    pub version: VersionPolicy,
    /// When a failed request is sent again.
    pub retry: RetryRule,
    /// Start of this process: rows up to this time were its predecessor's.
    pub began: UnixNanos,
}

/// Invalid settings of a shipper.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The sampling rule is invalid.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// A limit of the queue is invalid.
    #[error(transparent)]
    Queue(#[from] LimitError),
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Step<'a> {
    /// Send this request, then call [`Shipper::complete`] with the reply.
    Send(Request<'a>),
    /// Nothing until then, or until there are more rows; [`Nanos::NEVER`] if nothing is queued, or a request is in
    /// flight.
    Wait(Nanos),
}

/// A request to be sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Message type of the body.
    pub version: Version,
    /// Encoded and compressed body.
    pub body: &'a [u8],
    /// Failed attempts with the same samples.
    pub failures: u32,
}

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// All samples were accepted.
    Accepted(u64),
    /// Some samples were accepted, the rest was refused for good.
    Refused {
        /// Number of accepted samples.
        written: u64,
        /// Number of refused samples.
        refused: u64,
    },
    /// The receiver needs the other version: the same samples follow in it.
    OtherVersion(Version),
    /// The same samples are sent again after this pause.
    Retry(Nanos),
    /// No request was in flight.
    Unexpected,
}

#[derive(Debug)]
struct ServiceFeed {
    name: String,
    feed: Feed,
    ended: bool,
}

type Feeds = BTreeMap<ServiceNumber, ServiceFeed>;

#[derive(Debug)]
struct InFlight {
    batch: Batch,
    failures: u32,
    /// It was sent in another version before.
    switched: bool,
    /// When it is sent again; `None` while a reply is pending.
    retry_at: Option<Nanos>,
}

/// Rows in, requests out. See the module's documentation.
#[derive(Debug)]
pub struct Shipper {
    settings: ShipperSettings,
    feeds: Feeds,
    names: BTreeMap<String, ServiceNumber>,
    ends: BTreeMap<String, UnixNanos>,
    /// Sums of services that are gone and have nothing left to send.
    ended_totals: [LedgerTotals; 2],
    ended_replayed: u64,
    queue: Queue,
    encoder: Encoder,
    numbers: SeriesNumbers,
    last_service: u32,
    version: Version,
    confirmed: bool,
    fell_back: Option<Nanos>,
    in_flight: Option<InFlight>,
    counters: Counters,
    /// The baseline interval in which services were last read, counted from 1970.
    read: Option<u64>,
    clock_step: Option<clock::ClockStep>,
    /// Samples of the current call; kept for its memory.
    points: Vec<Point>,
}

/// Number of exemplars of `points`.
fn exemplars(points: &[Point]) -> u64 {
    points.iter().filter_map(|point| point.attachment.as_ref()).map(|attachment| attachment.exemplars() as u64).sum()
}

/// Counts `points` as lost, for `why`. Stale markers are in no ledger.
fn lose(feeds: &mut Feeds, counters: &mut Counters, why: SampleLossReason, points: &[Point]) {
    counters.lost_exemplars += exemplars(points);
    for point in points.iter().filter(|point| !point.is_stale_marker()) {
        let owner = point.series.owner;
        if let Some(entry) = feeds.get_mut(&owner.service) {
            entry.feed.ledger_mut(owner.series).lose(why, 1);
        }
    }
}

impl Shipper {
    /// Makes a shipper without services.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if a setting is out of range.
    pub fn new(settings: ShipperSettings) -> Result<Self, SettingsError> {
        settings.rule.check()?;
        let queue = Queue::new(settings.queue)?;
        let version = match settings.version {
            VersionPolicy::Negotiated => Version::V2,
            VersionPolicy::Only(version) => version,
        };
        Ok(Self {
            settings,
            feeds: Feeds::new(),
            names: BTreeMap::new(),
            ends: BTreeMap::new(),
            ended_totals: [LedgerTotals::default(); 2],
            ended_replayed: 0,
            queue,
            encoder: Encoder::new(),
            numbers: SeriesNumbers::default(),
            last_service: 0,
            version,
            confirmed: false,
            fell_back: None,
            in_flight: None,
            counters: Counters::default(),
            read: None,
            clock_step: None,
            points: Vec::new(),
        })
    }

    /// Adds a service, or restores one that was ended, with a row every `interval`.
    pub fn service(&mut self, name: &str, interval: Interval) -> ServiceNumber {
        if let Some(&number) = self.names.get(name) {
            if let Some(entry) = self.feeds.get_mut(&number) {
                entry.ended = false;
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
        // The rule was checked in `new`.
        if let Ok(feed) = Feed::new(start) {
            self.feeds.insert(service, ServiceFeed { name: name.to_owned(), feed, ended: false });
            self.names.insert(name.to_owned(), service);
        }
        service
    }

    /// Sets the columns of a service's rows from now on.
    pub fn set_columns(&mut self, service: ServiceNumber, columns: &[Column], interval: Interval, at: Timestamp) {
        self.follow_clock(service, at.wall);
        let Self { feeds, numbers, points, .. } = self;
        let Some(entry) = feeds.get_mut(&service) else { return };
        entry.feed.set_columns(columns, interval, at.wall, numbers, points);
        self.put(service, at.monotonic);
    }

    /// Adds a row of a service.
    pub fn row(&mut self, service: ServiceNumber, row: &Row<'_>, at: Timestamp) {
        self.follow_clock(service, at.wall);
        let Some(entry) = self.feeds.get_mut(&service) else { return };
        let late = |feed: &Feed| feed.ledger(Resolution::Baseline).lost(SampleLossReason::OutOfOrder);
        let late_before = late(&entry.feed);
        match entry.feed.row(row, at.wall, &mut self.points) {
            Ok(()) => {
                let lost = late(&entry.feed) - late_before;
                if lost > 0 {
                    self.note_loss(service, at.wall, RESOLUTIONS.len() as u64 * lost);
                }
                self.put(service, at.monotonic);
            }
            Err(WidthError { .. }) => self.counters.misfits += 1,
        }
    }

    /// Whether services are to be read now: at the first call, then once per baseline interval.
    pub fn is_reading_due(&mut self, at: UnixNanos) -> bool {
        self.forget_step(at);
        let round = at.0 / self.settings.rule.baseline.0.max(1);
        self.read.replace(round) != Some(round)
    }

    /// Adds values of a service that are not in rows. Ignored for a service that has ended.
    pub fn read(&mut self, service: ServiceNumber, reading: &Reading, at: Timestamp) {
        self.follow_clock(service, at.wall);
        let Self { feeds, numbers, points, .. } = self;
        let Some(entry) = feeds.get_mut(&service).filter(|entry| !entry.ended) else { return };
        entry.feed.read(reading, at.wall, numbers, points);
        self.put(service, at.monotonic);
    }

    /// Sets whether a service is in alarm.
    pub fn set_alarm(&mut self, service: ServiceNumber, alarm: bool) {
        self.queue.set_alarm(service, alarm);
    }

    /// A service is gone: its series end.
    pub fn end(&mut self, service: ServiceNumber, at: Timestamp) {
        self.follow_clock(service, at.wall);
        let Self { feeds, numbers, points, ends, .. } = self;
        let Some(entry) = feeds.get_mut(&service).filter(|entry| !entry.ended) else { return };
        entry.ended = true;
        let last = entry.feed.end(at.wall, numbers, points);
        ends.retain(|_, end| at.wall.since(*end) < REMEMBERED);
        ends.insert(entry.name.clone(), last);
        self.put(service, at.monotonic);
        self.queue.set_alarm(service, false);
    }

    /// Returns what to do now. Call it after every other call, and at the time that it returned.
    pub fn poll(&mut self, now: Nanos) -> Step<'_> {
        let Self { queue, feeds, counters, .. } = self;
        queue.expire(now, |points| lose(feeds, counters, SampleLossReason::TooOld, points));
        self.give_up(now);
        self.forget();
        if self.in_flight.is_none() {
            let due = self.queue.due();
            match due {
                None => return Step::Wait(Nanos::NEVER),
                Some(due) if due > now => return Step::Wait(due),
                Some(_) => self.begin(now),
            }
        }
        match &mut self.in_flight {
            Some(InFlight { retry_at: None, .. }) | None => Step::Wait(Nanos::NEVER),
            Some(InFlight { retry_at: Some(at), .. }) if *at > now => Step::Wait(*at),
            Some(in_flight) => {
                in_flight.retry_at = None;
                let failures = in_flight.failures;
                self.counters.requests += 1;
                // A block of Snappy holds 4 GiB, and a request is bounded far below. If that ever failed, the body
                // would be empty, and refused.
                let body = self.encoder.body(self.version, &in_flight.batch.points).unwrap_or_default();
                self.counters.bytes += body.len() as u64;
                Step::Send(Request { version: self.version, body, failures })
            }
        }
    }

    /// Handles the reply to the request in flight. `random` is uniform in \[0, 1).
    pub fn complete(&mut self, reply: &Reply, at: Timestamp, random: f64) -> Delivery {
        let Some(mut in_flight) = self.in_flight.take_if(|in_flight| in_flight.retry_at.is_none()) else {
            return Delivery::Unexpected;
        };
        let points = in_flight.batch.points.len() as u64;
        let context = RequestContext {
            points,
            version: self.version,
            negotiable: self.settings.version == VersionPolicy::Negotiated && !in_flight.switched,
            confirmed: self.confirmed,
            failures: in_flight.failures + 1,
        };
        match interpret(context, reply, &self.settings.retry, at.wall, random) {
            ReplyAction::Retry(pause) => {
                self.counters.failed += 1;
                in_flight.failures += 1;
                in_flight.retry_at = Some(at.monotonic.plus(pause));
                self.in_flight = Some(in_flight);
                Delivery::Retry(pause)
            }
            ReplyAction::OtherVersion => {
                self.counters.fallbacks += 1;
                self.version = Version::V1;
                self.fell_back = Some(at.monotonic);
                in_flight.switched = true;
                in_flight.failures = 0;
                in_flight.retry_at = Some(at.monotonic);
                self.in_flight = Some(in_flight);
                Delivery::OtherVersion(self.version)
            }
            ReplyAction::Written(written) => {
                self.learn(reply);
                self.settle_exemplars(&in_flight.batch, written, reply);
                self.settle(&in_flight.batch, written);
                if written == points {
                    return Delivery::Accepted(written);
                }
                self.counters.refused += 1;
                Delivery::Refused { written, refused: points - written }
            }
        }
    }

    /// From now on samples are not held back: this process is about to end.
    pub const fn stop_lingering(&mut self) {
        self.queue.stop_lingering();
    }

    /// Sums of the ledgers of `series` over all services.
    #[must_use]
    pub fn totals(&self, series: Resolution) -> LedgerTotals {
        let mut totals = self.ended_totals[series as usize];
        self.feeds.values().for_each(|entry| totals.add(entry.feed.ledger(series)));
        totals
    }

    /// All services with samples left to send, each with the ledgers of its baseline and its dense series.
    pub fn services(&self) -> impl Iterator<Item = (&str, &Ledger, &Ledger)> {
        self.feeds
            .values()
            .map(|entry| (&*entry.name, entry.feed.ledger(Resolution::Baseline), entry.feed.ledger(Resolution::Dense)))
    }

    /// Counters of requests.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Rows that arrived again or belong to a predecessor, and columns that are not sent because another one has their
    /// name.
    #[must_use]
    pub fn replayed_and_hidden(&self) -> (u64, usize) {
        self.feeds.values().fold((self.ended_replayed, 0), |(replayed, hidden), entry| {
            (replayed + entry.feed.replayed(), hidden + entry.feed.hidden())
        })
    }

    /// Memory of samples queued or in flight.
    #[must_use]
    pub const fn queued_bytes(&self) -> usize {
        self.queue.bytes()
    }

    /// Current protocol version.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Queues the samples in `points`.
    fn put(&mut self, service: ServiceNumber, now: Nanos) {
        let Self { queue, feeds, points, counters, .. } = self;
        if !points.is_empty() {
            counters.exemplars += exemplars(points);
            queue.push(service, points, now, |points| lose(feeds, counters, SampleLossReason::QueueFull, points));
            points.clear();
        }
    }

    /// Removes services that are gone and have nothing left to send.
    fn forget(&mut self) {
        let Self { feeds, names, ended_totals, ended_replayed, queue, .. } = self;
        feeds.retain(|&number, entry| {
            let ledgers = RESOLUTIONS.map(|series| entry.feed.ledger(series));
            if !entry.ended || queue.holds(number) || ledgers.iter().any(|ledger| ledger.in_flight > 0) {
                return true;
            }
            ended_totals.iter_mut().zip(ledgers).for_each(|(totals, ledger)| totals.add(ledger));
            *ended_replayed += entry.feed.replayed();
            names.remove(&entry.name);
            queue.forget(number);
            false
        });
    }

    fn begin(&mut self, now: Nanos) {
        if self.fell_back.is_some_and(|when| now.since(when).is_some_and(|since| since >= RETRY_V2_AFTER)) {
            (self.version, self.confirmed, self.fell_back) = (Version::V2, false, None);
        }
        let batch = self.queue.take();
        self.in_flight = batch.map(|batch| InFlight { batch, failures: 0, switched: false, retry_at: Some(now) });
    }

    /// Gives up a request that is retried beyond the maximum age.
    fn give_up(&mut self, now: Nanos) {
        let age = self.settings.queue.age;
        let old = |in_flight: &InFlight| {
            in_flight.retry_at.is_some() && now.since(in_flight.batch.since).is_some_and(|waited| waited > age)
        };
        if let Some(in_flight) = self.in_flight.take_if(|in_flight| old(in_flight)) {
            lose(&mut self.feeds, &mut self.counters, SampleLossReason::TooOld, &in_flight.batch.points);
            self.queue.release(&in_flight.batch);
        }
    }

    /// Learns from a reply which versions the receiver supports.
    fn learn(&mut self, reply: &Reply) {
        let Reply::Http { status, any_written, .. } = reply else { return };
        if self.version == Version::V2 {
            self.confirmed |= any_written;
        } else if *status == 415 && self.settings.version == VersionPolicy::Negotiated {
            // It does not support 1.0: what it refused in 2.0 was about the samples.
            (self.version, self.confirmed, self.fell_back) = (Version::V2, true, None);
        }
    }
}
