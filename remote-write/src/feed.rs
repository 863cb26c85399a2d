//! One service: rows in, samples of its two series out.
//!
//! # Counters
//! A row has what a counter grew by, in whole intervals (D5). What is sent is the sum: a counter that begins with this agent and never falls, so
//! that `rate` and `increase` work as ever, whichever replicas come and go. Its beginning is its start timestamp. Ticks that were missed are made
//! up for, since a row says what it was per interval; rows that were lost likewise, up to [`LONGEST_GAP`], for they cannot be told apart.
//! Whether a counter is worth a dense sample is decided by what it grew by, not by the sum.
//!
//! # Times
//! No row from before the agent's start is sent: what its predecessor sent is not known. Nor is one from before the end of the same service, which
//! is lost. A worker that connects again sends rows that were there already: they are known by their times, and count once.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use hooks::sampling::{self, ColumnId, Ledger, LostSample, Row, RuleError, Sampler, SamplingRule, WidthError};
use hooks::time::UnixNanos;
use wire::metric::{Series as WireSeries, Statistic};
use wire::time::{Interval, Nanos};

use crate::naming;
use crate::series::{About, Owner, Point, Series, ServiceNumber};
use crate::steady::{Reading, Steady};

/// More whole intervals than this between two rows are not made up for: a counter grows by one interval's worth then.
pub const LONGEST_GAP: u64 = 10;
/// A row that is further ahead of this machine's clock is not sent: a receiver would take nothing older from anybody after it.
const MOST_AHEAD: Nanos = Nanos::from_secs(60);
/// Rows whose times are known, so that they count once.
const REMEMBERED: usize = 1024;

/// One column of a service's rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The series that it is made of.
    pub series: WireSeries,
    /// What of it.
    pub statistic: Statistic,
}

/// What all series of a service say of themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// `job`: the service.
    pub job: String,
    /// `instance`: the node.
    pub instance: String,
    /// What else the operator wants to be said.
    pub labels: Vec<(String, String)>,
    /// Names are OTLP's, and all of the above stands in the resource.
    pub is_otlp: bool,
}

impl Target {
    /// What OTLP's resource says.
    fn resource(&self) -> Arc<[(String, String)]> {
        let own = [("service.name", &self.job), ("host.name", &self.instance)];
        let own = own.map(|(key, value)| (key.to_owned(), value.clone()));
        let others = self.labels.iter().filter(|(key, _)| own.iter().all(|(name, _)| name != key)).cloned();
        own.iter().cloned().chain(others).collect()
    }
}

/// Gives out numbers of series. One for all feeds whose samples travel together.
#[derive(Debug, Default)]
pub struct SeriesNumbers(u64);

impl SeriesNumbers {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

#[derive(Debug)]
struct Known {
    id: ColumnId,
    /// What is sent is the sum of what rows say.
    counts: bool,
    total: f64,
    baseline: Arc<Series>,
    dense: Arc<Series>,
    /// Another column has its name and labels: it is not sent.
    hidden: bool,
}

impl Known {
    fn series(&self, of: sampling::Series) -> &Arc<Series> {
        match of {
            sampling::Series::Baseline => &self.baseline,
            sampling::Series::Dense => &self.dense,
        }
    }
}

/// One service. Memory: that of its [`Sampler`], about 1.5 KiB per column for names, and 8 bytes per counter and row before a trigger.
#[derive(Debug)]
pub struct Feed {
    service: ServiceNumber,
    target: Target,
    /// Empty, but for OTLP.
    resource: Arc<[(String, String)]>,
    sampler: Sampler,
    columns: Vec<Known>,
    titles: BTreeMap<String, usize>,
    places: HashMap<ColumnId, usize>,
    /// Sums at the rows that the sampler may still send.
    sums: VecDeque<(u64, Box<[f64]>)>,
    rows_kept: usize,
    interval: Interval,
    last_row: Option<UnixNanos>,
    times: VecDeque<u64>,
    /// Rows up to this time are a predecessor's.
    began_ms: u64,
    /// Rows up to this time are lost.
    not_before_ms: u64,
    last_ms: u64,
    last_column: u64,
    values: Vec<f64>,
    replayed: u64,
    steady: Steady,
}

/// How a feed begins.
#[derive(Clone, Debug)]
pub struct FeedStart {
    /// Its number.
    pub service: ServiceNumber,
    /// What its series say of themselves.
    pub target: Target,
    /// How it is sampled.
    pub rule: SamplingRule,
    /// How often there is a row.
    pub interval: Interval,
    /// When this agent began: rows up to this time were its predecessor's.
    pub began: UnixNanos,
    /// Rows up to this time, when the service last ended, are not sent.
    pub not_before: UnixNanos,
}

impl Feed {
    /// A service without columns.
    ///
    /// # Errors
    ///
    /// [`RuleError`] for a rule that nothing can be sampled by.
    pub fn new(start: FeedStart) -> Result<Self, RuleError> {
        let began_ms = start.began.millis();
        let not_before_ms = start.not_before.millis().max(began_ms);
        Ok(Self {
            service: start.service,
            resource: if start.target.is_otlp { start.target.resource() } else { [].into() },
            target: start.target,
            sampler: Sampler::new(start.rule)?,
            columns: Vec::new(),
            titles: BTreeMap::new(),
            places: HashMap::new(),
            sums: VecDeque::new(),
            rows_kept: start.rule.pre_trigger_rows + 1,
            interval: start.interval,
            last_row: None,
            times: VecDeque::new(),
            began_ms,
            not_before_ms,
            last_ms: not_before_ms,
            last_column: 0,
            values: Vec::new(),
            replayed: 0,
            steady: Steady::new(not_before_ms),
        })
    }

    /// Its number.
    #[must_use]
    pub const fn service(&self) -> ServiceNumber {
        self.service
    }

    /// The columns of rows from `at` on, one every `interval`. Series of columns that stay go on; those of others end. Marks go to `out`.
    pub fn set_columns(
        &mut self,
        columns: &[Column],
        interval: Interval,
        at: UnixNanos,
        numbers: &mut SeriesNumbers,
        out: &mut Vec<Point>,
    ) {
        self.interval = interval;
        let mut old: HashMap<String, Known> = HashMap::new();
        let mut before: Vec<Option<Known>> = core::mem::take(&mut self.columns).into_iter().map(Some).collect();
        for (title, place) in core::mem::take(&mut self.titles) {
            old.extend(before.get_mut(place).and_then(Option::take).map(|known| (title, known)));
        }
        let series = |known: &Known| [Arc::clone(&known.baseline), Arc::clone(&known.dense)];
        let ended: HashMap<ColumnId, _> = old.values().map(|known| (known.id, series(known))).collect();
        let mut names = HashSet::new();
        for (place, column) in columns.iter().enumerate() {
            let title = column.series.column_title(column.statistic);
            // Of the same title and of another kind is another metric.
            let counts = matches!(column.statistic, Statistic::Increment | Statistic::Count);
            let known = old.remove(&title).filter(|known| known.counts == counts);
            let mut known = known.unwrap_or_else(|| self.make(column, counts, numbers));
            known.hidden = !names.insert(known.baseline.encoded_labels().to_vec());
            self.columns.push(known);
            self.titles.insert(title, place);
        }
        self.places = self.columns.iter().enumerate().map(|(place, known)| (known.id, place)).collect();
        self.sums.clear();
        let ids: Vec<_> = self.columns.iter().map(|known| known.id).collect();
        // A mark is after everything that was sent, by this feed or by the one before it.
        let at = at.max(UnixNanos((self.last_ms + 1).saturating_mul(1_000_000)));
        let last_ms = &mut self.last_ms;
        self.sampler.set_columns(&ids, at, |sample| {
            let Some(series) = ended.get(&sample.column) else { return };
            let series = &series[sample.series as usize];
            *last_ms = (*last_ms).max(sample.at_ms);
            out.push(Point::new(Arc::clone(series), sample.at_ms as i64, None));
        });
    }

    /// The service is gone: its series end. Returns the time of the last sample or mark: nothing up to it is to be sent of a service of this
    /// name again.
    pub fn gone(&mut self, at: UnixNanos, numbers: &mut SeriesNumbers, out: &mut Vec<Point>) -> UnixNanos {
        self.set_columns(&[], self.interval, at, numbers, out);
        self.steady.end(at, out);
        UnixNanos(self.last_ms.max(self.steady.last_ms()).saturating_mul(1_000_000))
    }

    /// Something was read at `at` that is made of no rows. Its samples are the baseline's, and go to `out`.
    pub fn read(&mut self, reading: &Reading, at: UnixNanos, numbers: &mut SeriesNumbers, out: &mut Vec<Point>) {
        let mut naming = Naming { service: self.service, target: &self.target, resource: &self.resource, numbers };
        let books = self.sampler.ledger_mut(sampling::Series::Baseline);
        self.steady.read(reading, at, &mut naming, books, out);
    }

    /// A row came at the time of day `now`. What is to be sent goes to `out`, in the order of time within each series.
    ///
    /// # Errors
    ///
    /// [`WidthError`] unless it has a value for each column. Nothing is counted then.
    pub fn row(&mut self, row: &Row<'_>, now: UnixNanos, out: &mut Vec<Point>) -> Result<(), WidthError> {
        let (expected, found) = (self.columns.len(), row.values.len());
        if expected != found {
            return Err(WidthError { expected, found });
        }
        if row.at.millis() <= self.began_ms || self.times.binary_search(&row.at.0).is_ok() {
            self.replayed += 1;
            return Ok(());
        }
        self.values.clear();
        let shown = self.columns.iter().zip(row.values);
        self.values.extend(shown.map(|(known, &value)| if known.hidden { f64::NAN } else { value }));
        let at_ms = row.at.millis();
        if at_ms <= self.not_before_ms {
            self.count_as_lost(LostSample::OutOfOrder);
            return Ok(());
        }
        if row.at > now.plus(MOST_AHEAD) {
            self.count_as_lost(LostSample::Ahead);
            return Ok(());
        }
        if at_ms > self.last_ms {
            self.add_up(row.at);
        }
        self.last_ms = self.last_ms.max(at_ms);
        let Self { sampler, columns, places, sums, values, .. } = self;
        let row = Row { at: row.at, values, score: row.score };
        sampler.row(&row, |sample| {
            let Some(&place) = places.get(&sample.column) else { return };
            let known = &columns[place];
            // Every row that the sampler may still send is remembered.
            let sum = || sum_at(sums, sample.at_ms, place).unwrap_or(known.total);
            let value = if known.counts { Some(sum()) } else { sample.value };
            out.push(Point::new(Arc::clone(known.series(sample.series)), sample.at_ms as i64, value));
        })
    }

    /// The books of `series`.
    #[must_use]
    pub const fn ledger(&self, series: sampling::Series) -> &Ledger {
        match series {
            sampling::Series::Baseline => self.sampler.baseline(),
            sampling::Series::Dense => self.sampler.dense(),
        }
    }

    /// The books of `series`, for whoever knows what arrived.
    pub const fn ledger_mut(&mut self, series: sampling::Series) -> &mut Ledger {
        self.sampler.ledger_mut(series)
    }

    /// Rows that came again, or were a predecessor's, and were not counted.
    #[must_use]
    pub const fn replayed(&self) -> u64 {
        self.replayed
    }

    /// Columns that are not sent because another one has the same name and labels in Prometheus' alphabet.
    #[must_use]
    pub fn hidden(&self) -> usize {
        self.columns.iter().filter(|known| known.hidden).count()
    }

    /// Whether whole rows are sent because of the score.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.sampler.is_on()
    }

    fn make(&mut self, column: &Column, counts: bool, numbers: &mut SeriesNumbers) -> Known {
        self.last_column += 1;
        let metric = if self.target.is_otlp { naming::otlp_metric } else { naming::metric };
        let metric = metric(&column.series, column.statistic);
        // Everything that is sent is later than what was sent last. 0 would be none.
        let start_ms = if counts { self.last_ms.max(1) as i64 } else { 0 };
        let mut naming = Naming { service: self.service, target: &self.target, resource: &self.resource, numbers };
        let mut series = |of: sampling::Series| {
            let theirs = column.series.labels.iter();
            let about = About { kind: metric.kind, unit: metric.unit.clone(), help: metric.help.clone(), start_ms };
            naming.series(of, &metric.name, theirs, about)
        };
        let baseline = series(sampling::Series::Baseline);
        let dense = series(sampling::Series::Dense);
        Known { id: ColumnId(self.last_column), counts, total: 0.0, baseline, dense, hidden: false }
    }

    /// The row at hand is added to the sums, and remembered.
    fn add_up(&mut self, at: UnixNanos) {
        let intervals = self.last_row.map_or(1, |last| {
            let length = self.interval.nanos().get();
            let intervals = (at.since(last).0 + length / 2) / length;
            if (1..=LONGEST_GAP).contains(&intervals) { intervals } else { 1 }
        });
        for (known, value) in self.columns.iter_mut().zip(&self.values) {
            if known.counts && value.is_finite() && *value > 0.0 {
                known.total += value * intervals as f64;
            }
        }
        self.last_row = Some(at);
        if self.times.len() >= REMEMBERED {
            self.times.pop_front();
        }
        self.times.push_back(at.0);
        let reused = if self.sums.len() >= self.rows_kept { self.sums.pop_front() } else { None };
        let sums = self.columns.iter().map(|known| if known.counts { known.total } else { f64::NAN });
        let row = match reused.filter(|(_, row)| row.len() == self.columns.len()) {
            Some((_, mut row)) => {
                row.iter_mut().zip(sums).for_each(|(place, sum)| *place = sum);
                row
            }
            None => sums.collect(),
        };
        self.sums.push_back((at.millis(), row));
    }

    /// The row at hand is not to be sent, for `why`.
    fn count_as_lost(&mut self, why: LostSample) {
        let present = self.values.iter().filter(|value| !value.is_nan()).count() as u64;
        for series in [sampling::Series::Baseline, sampling::Series::Dense] {
            let ledger = self.sampler.ledger_mut(series);
            ledger.seen += present;
            ledger.handed += present;
            ledger.lose(why, present);
        }
    }
}

/// Whose series are made, and what they say of it.
#[derive(Debug)]
pub(crate) struct Naming<'a> {
    service: ServiceNumber,
    target: &'a Target,
    resource: &'a Arc<[(String, String)]>,
    numbers: &'a mut SeriesNumbers,
}

impl Naming<'_> {
    /// A series `name` with labels of the service's own.
    pub(crate) fn series<'a>(
        &mut self,
        of: sampling::Series,
        name: &str,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
        about: About,
    ) -> Arc<Series> {
        let owner = Owner { service: self.service, series: of };
        if self.target.is_otlp {
            return Arc::new(self.otlp_series(owner, name, labels, about));
        }
        let Target { job, instance, labels: outer, .. } = self.target;
        let resolution = if of == sampling::Series::Dense { DENSE } else { "" };
        let own = OWN.into_iter().zip([name, job.as_str(), instance.as_str(), resolution]);
        let outer = outer.iter().map(|(key, value)| (&**key, &**value));
        // A name that belongs to us is not the operator's to give, nor the service's, even where it is not said.
        let own = outer.filter(|(key, _)| !OWN.contains(key)).chain(own);
        let theirs = labels.into_iter().filter(|(key, _)| naming::label_name(key) != RESOLUTION);
        Arc::new(Series::new(self.numbers.next(), owner, naming::labels(own, theirs), about))
    }

    /// In OTLP attributes are as the service has them. Both series have one that tells them apart: there, what lacks an attribute is not what has it
    /// empty.
    fn otlp_series<'a>(
        &mut self,
        owner: Owner,
        name: &str,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
        about: About,
    ) -> Series {
        let resolution = if owner.series == sampling::Series::Dense { DENSE } else { BASELINE };
        let own = [("__name__", name), (OTLP_RESOLUTION, resolution)];
        let theirs = labels.into_iter().filter(|(key, _)| own.iter().all(|(name, _)| name != key));
        let mut labels: Vec<_> = theirs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        labels.extend(own.map(|(key, value)| (key.to_owned(), value.to_owned())));
        Series::new(self.numbers.next(), owner, labels, about).of_resource(self.resource)
    }

    /// Whether names are OTLP's.
    pub(crate) const fn is_otlp(&self) -> bool {
        self.target.is_otlp
    }
}

/// The label that dense series have.
pub const RESOLUTION: &str = "uview_resolution";
/// Its value.
pub const DENSE: &str = "dense";
/// The attribute that all series of OTLP have.
const OTLP_RESOLUTION: &str = "uview.resolution";
/// Its value, if it is not the former.
const BASELINE: &str = "baseline";
/// Labels that nobody else gives.
const OWN: [&str; 4] = ["__name__", "job", "instance", RESOLUTION];

/// A column's sum at a row that is still remembered.
fn sum_at(sums: &VecDeque<(u64, Box<[f64]>)>, at_ms: u64, place: usize) -> Option<f64> {
    let row = sums.binary_search_by_key(&at_ms, |(at, _)| *at).ok()?;
    sums.get(row)?.1.get(place).copied()
}
