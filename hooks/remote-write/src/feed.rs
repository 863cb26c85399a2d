//! One service: rows in, samples of its two series out.
//!
//! # Counters
//! A row has the increment of a counter, in whole intervals (D5). Samples have the sum: a counter that starts with this
//! agent and never falls, so that `rate` and `increase` work as usual, even if replicas come and go. Its start is the
//! start timestamp. Missed ticks are made up for, since a row has increments per interval; so are lost rows, up to
//! [`LONGEST_GAP`], since the two cannot be told apart. Whether a counter gets a dense sample depends on its increment,
//! not on the sum.
//!
//! # Times
//! Rows from before the agent's start are not sent: what its predecessor sent is unknown. Rows from before the end of
//! the same service are not sent either, and count as lost. A worker that reconnects sends rows again: they are
//! recognised by their timestamps, and count once. If the wall clock is set back by more than a minute, samples go on
//! at its times: the receiver decides whether it takes them.

mod clock;
pub(crate) mod series_factory;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use hooks::sampling::{self, ColumnId, Ledger, Row, RuleError, SampleLossReason, Sampler, SamplingRule, WidthError};
use wire::metric::{Series as WireSeries, Statistic};
use wire::time::{Interval, Nanos, UnixNanos};

use crate::naming;
use crate::reading::{Reading, ReadingSeries};
use crate::series::{Point, Series, SeriesMetadata, ServiceNumber};
use series_factory::SeriesFactory;

pub use series_factory::{DENSE, RESOLUTION, SeriesNumbers, Target};

/// Longest gap between two rows, in whole intervals, that is made up for. After a longer one a counter grows by one
/// interval's worth.
pub const LONGEST_GAP: u64 = 10;
/// Maximum lead of a row over this machine's clock. A receiver would accept nothing older after such a sample.
pub(crate) const MAX_AHEAD: Nanos = Nanos::from_secs(60);
/// Number of rows whose timestamps are remembered, so that they count once.
const REMEMBERED: usize = 1024;

/// A column of a service's rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Metric series that it is made of.
    pub series: WireSeries,
    /// Statistic of the series.
    pub statistic: Statistic,
}

#[derive(Debug)]
struct ColumnState {
    id: ColumnId,
    /// Samples have the sum of the rows' values.
    counts: bool,
    total: f64,
    baseline: Arc<Series>,
    dense: Arc<Series>,
    /// Another column has the same name and labels: this one is not sent.
    hidden: bool,
}

impl ColumnState {
    fn series(&self, of: sampling::Series) -> &Arc<Series> {
        match of {
            sampling::Series::Baseline => &self.baseline,
            sampling::Series::Dense => &self.dense,
        }
    }
}

/// One service. Memory: that of its [`Sampler`], about 1.5 KiB per column for names, and 8 bytes per counter and row
/// before a trigger.
#[derive(Debug)]
pub struct Feed {
    service: ServiceNumber,
    target: Target,
    /// Empty except for OTLP.
    resource: Arc<[(String, String)]>,
    sampler: Sampler,
    columns: Vec<ColumnState>,
    titles: BTreeMap<String, usize>,
    places: HashMap<ColumnId, usize>,
    /// Sums at the rows that the sampler may still send.
    sums: VecDeque<(u64, Box<[f64]>)>,
    rows_kept: usize,
    interval: Interval,
    last_row: Option<UnixNanos>,
    times: VecDeque<u64>,
    /// Rows up to this time belong to a predecessor.
    began_ms: u64,
    /// Rows up to this time count as lost.
    not_before_ms: u64,
    last_ms: u64,
    last_column: u64,
    values: Vec<f64>,
    replayed: u64,
    readings: ReadingSeries,
}

/// Settings of a new feed.
#[derive(Clone, Debug)]
pub struct FeedStart {
    /// Number of the service.
    pub service: ServiceNumber,
    /// Labels that its series share.
    pub target: Target,
    /// How values become baseline and dense samples.
    pub rule: SamplingRule,
    /// Interval between rows.
    pub interval: Interval,
    /// Start of this agent: rows up to this time were its predecessor's.
    pub began: UnixNanos,
    /// Time when the service last ended: rows up to it are not sent.
    pub not_before: UnixNanos,
}

impl Feed {
    /// Makes a feed without columns.
    ///
    /// # Errors
    ///
    /// [`RuleError`] if the rule is invalid.
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
            readings: ReadingSeries::new(not_before_ms),
        })
    }

    /// Number of the service.
    #[must_use]
    pub const fn service(&self) -> ServiceNumber {
        self.service
    }

    /// Sets the columns of rows from `at` on, one row every `interval`. Series of remaining columns continue, the
    /// others end. Stale markers go to `out`.
    pub fn set_columns(
        &mut self,
        columns: &[Column],
        interval: Interval,
        at: UnixNanos,
        numbers: &mut SeriesNumbers,
        out: &mut Vec<Point>,
    ) {
        self.interval = interval;
        let mut old: HashMap<String, ColumnState> = HashMap::new();
        let mut before: Vec<Option<ColumnState>> = core::mem::take(&mut self.columns).into_iter().map(Some).collect();
        for (title, place) in core::mem::take(&mut self.titles) {
            old.extend(before.get_mut(place).and_then(Option::take).map(|column| (title, column)));
        }
        let series = |column: &ColumnState| [Arc::clone(&column.baseline), Arc::clone(&column.dense)];
        let ended: HashMap<ColumnId, _> = old.values().map(|column| (column.id, series(column))).collect();
        let mut names = HashSet::new();
        for (place, column) in columns.iter().enumerate() {
            let title = column.series.column_title(column.statistic);
            // The same title with another kind is another metric.
            let counts = matches!(column.statistic, Statistic::Increment | Statistic::Count);
            let state = old.remove(&title).filter(|state| state.counts == counts);
            let mut state = state.unwrap_or_else(|| self.new_column(column, counts, numbers));
            state.hidden = !names.insert(state.baseline.encoded_labels().to_vec());
            self.columns.push(state);
            self.titles.insert(title, place);
        }
        self.places = self.columns.iter().enumerate().map(|(place, column)| (column.id, place)).collect();
        self.sums.clear();
        let ids: Vec<_> = self.columns.iter().map(|column| column.id).collect();
        // A stale marker is later than everything that this feed and its predecessor sent.
        let at = at.max(UnixNanos((self.last_ms + 1).saturating_mul(1_000_000)));
        let last_ms = &mut self.last_ms;
        self.sampler.set_columns(&ids, at, |sample| {
            let Some(series) = ended.get(&sample.column) else { return };
            let series = &series[sample.series as usize];
            *last_ms = (*last_ms).max(sample.at_ms);
            out.push(Point::new(Arc::clone(series), sample.at_ms as i64, None));
        });
    }

    /// The service is gone: its series end. Returns the time of the last sample or stale marker: for a service of this
    /// name, nothing up to it may be sent again.
    pub fn end(&mut self, at: UnixNanos, numbers: &mut SeriesNumbers, out: &mut Vec<Point>) -> UnixNanos {
        self.set_columns(&[], self.interval, at, numbers, out);
        self.readings.end(at, out);
        UnixNanos(self.last_ms.max(self.readings.last_ms()).saturating_mul(1_000_000))
    }

    /// Adds values that were read at `at` and are not in rows. Their samples belong to the baseline, and go to `out`.
    pub fn read(&mut self, reading: &Reading, at: UnixNanos, numbers: &mut SeriesNumbers, out: &mut Vec<Point>) {
        let mut factory =
            SeriesFactory { service: self.service, target: &self.target, resource: &self.resource, numbers };
        let ledger = self.sampler.ledger_mut(sampling::Series::Baseline);
        self.readings.read(reading, at, &mut factory, ledger, out);
    }

    /// Adds a row at the wall-clock time `now`. Samples to be sent go to `out`, in order of time within each series.
    ///
    /// # Errors
    ///
    /// [`WidthError`] unless the row has a value for each column. Then nothing is counted.
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
        self.values.extend(shown.map(|(column, &value)| if column.hidden { f64::NAN } else { value }));
        let at_ms = row.at.millis();
        if at_ms <= self.not_before_ms {
            self.count_as_lost(SampleLossReason::OutOfOrder);
            return Ok(());
        }
        if row.at > now.plus(MAX_AHEAD) {
            self.count_as_lost(SampleLossReason::Ahead);
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
            let column = &columns[place];
            // The sums of every row that the sampler may still send are remembered.
            let sum = || sum_at(sums, sample.at_ms, place).unwrap_or(column.total);
            let value = if column.counts { Some(sum()) } else { sample.value };
            out.push(Point::new(Arc::clone(column.series(sample.series)), sample.at_ms as i64, value));
        })
    }

    /// Ledger of `series`.
    #[must_use]
    pub const fn ledger(&self, series: sampling::Series) -> &Ledger {
        match series {
            sampling::Series::Baseline => self.sampler.baseline(),
            sampling::Series::Dense => self.sampler.dense(),
        }
    }

    /// Ledger of `series`, to record what the receiver accepted.
    pub const fn ledger_mut(&mut self, series: sampling::Series) -> &mut Ledger {
        self.sampler.ledger_mut(series)
    }

    /// Rows that arrived again, or belong to a predecessor: not counted.
    #[must_use]
    pub const fn replayed(&self) -> u64 {
        self.replayed
    }

    /// Columns that are not sent because another one has the same name and labels in Prometheus' alphabet.
    #[must_use]
    pub fn hidden(&self) -> usize {
        self.columns.iter().filter(|column| column.hidden).count()
    }

    /// Whether whole rows are sent because of the score.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.sampler.is_on()
    }

    fn new_column(&mut self, column: &Column, counts: bool, numbers: &mut SeriesNumbers) -> ColumnState {
        self.last_column += 1;
        let metric = if self.target.is_otlp { naming::otlp_metric } else { naming::metric };
        let metric = metric(&column.series, column.statistic);
        // All further samples are later than the last one sent. 0 would mean none.
        let start_ms = if counts { self.last_ms.max(1) as i64 } else { 0 };
        let mut factory =
            SeriesFactory { service: self.service, target: &self.target, resource: &self.resource, numbers };
        let mut series = |of: sampling::Series| {
            let theirs = column.series.labels.iter();
            let metadata =
                SeriesMetadata { kind: metric.kind, unit: metric.unit.clone(), help: metric.help.clone(), start_ms };
            factory.series(of, &metric.name, theirs, metadata)
        };
        let baseline = series(sampling::Series::Baseline);
        let dense = series(sampling::Series::Dense);
        ColumnState { id: ColumnId(self.last_column), counts, total: 0.0, baseline, dense, hidden: false }
    }

    /// Adds the current row to the sums, and remembers them.
    fn add_up(&mut self, at: UnixNanos) {
        let intervals = self.last_row.map_or(1, |last| {
            let length = self.interval.nanos().get();
            let intervals = (at.since(last).0 + length / 2) / length;
            if (1..=LONGEST_GAP).contains(&intervals) { intervals } else { 1 }
        });
        for (column, value) in self.columns.iter_mut().zip(&self.values) {
            if column.counts && value.is_finite() && *value > 0.0 {
                column.total += value * intervals as f64;
            }
        }
        self.last_row = Some(at);
        if self.times.len() >= REMEMBERED {
            self.times.pop_front();
        }
        self.times.push_back(at.0);
        let reused = if self.sums.len() >= self.rows_kept { self.sums.pop_front() } else { None };
        let sums = self.columns.iter().map(|column| if column.counts { column.total } else { f64::NAN });
        let row = match reused.filter(|(_, row)| row.len() == self.columns.len()) {
            Some((_, mut row)) => {
                row.iter_mut().zip(sums).for_each(|(place, sum)| *place = sum);
                row
            }
            None => sums.collect(),
        };
        self.sums.push_back((at.millis(), row));
    }

    /// Counts the current row as lost, for `why`.
    fn count_as_lost(&mut self, why: SampleLossReason) {
        let present = self.values.iter().filter(|value| !value.is_nan()).count() as u64;
        for series in [sampling::Series::Baseline, sampling::Series::Dense] {
            let ledger = self.sampler.ledger_mut(series);
            ledger.seen += present;
            ledger.in_flight += present;
            ledger.lose(why, present);
        }
    }
}

/// The sum of a column at a remembered row.
fn sum_at(sums: &VecDeque<(u64, Box<[f64]>)>, at_ms: u64, place: usize) -> Option<f64> {
    let row = sums.binary_search_by_key(&at_ms, |(at, _)| *at).ok()?;
    sums.get(row)?.1.get(place).copied()
}
