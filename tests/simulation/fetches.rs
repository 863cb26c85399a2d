//! A second, independent evaluation of the words that a worker fetches. For every LMAP and tick it computes which
//! regions give values and which are discarded, by reason; and the expected value of every cell that can be determined.
//! The worker's counters and rows must agree.
//!
//! An increment is the amount added since the last fetch, per interval; where a sampler says when it has written, per
//! interval of its own time. A counter's fetches join without a gap: every
//! addition is in exactly one of them, unless a fetch was discarded, which is counted. Cells cannot be determined if a
//! replica's heartbeat has stopped for so long that the worker may treat it as silent, or if a sum may contain a
//! replica's previous value.

use std::collections::{BTreeMap, VecDeque};

use transport::{FetchStatus, RegionBuffer};
use wire::control::{LmapSpec, MetricPlace, MetricSpec, RegionSpec};
use wire::id::{Generation, MetricId, RegionId};
use wire::layout::{Header, Slot, sampled_at};
use wire::metric::{Kind, TickDivider};
use wire::proto::control::host_message::Message as ToWorker;
use wire::proto::control::worker_message::Message as ToHost;
use wire::proto::control::{HostMessage, WorkerMessage};
use wire::time::Nanos;

use crate::values;

/// Time without a heartbeat after which the worker may treat a replica as silent. It does after 300 ms.
const DOUBT: Nanos = Nanos::from_millis(200);
/// Rows of an LMAP that may still be sent.
const ROWS: usize = 512;

/// Discarded samples by reason: changed layout, invalid header, failed fetch.
pub type Discarded = [u64; 3];

/// The expected value of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Expected {
    /// Cannot be determined.
    Unknown,
    /// This value; missing if NaN.
    Exactly(f64),
    /// An increment of this amount over at most so many intervals: the region is sampled by another clock.
    Added(f64, u64),
}

/// Who writes a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    /// The service, at any time.
    Service,
    /// A sampler that does not say when.
    Sampler,
    /// A sampler that does.
    TimedSampler,
}

/// The result of fetching a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FetchedRegion<'a> {
    /// Valid values, of this time by the clock that tells it. In a sampled region they are `new`, or the same as at the
    /// last fetch.
    Fresh { words: &'a [u64], at: Nanos, writer: Writer, new: bool, doubtful: bool },
    /// The fetch failed.
    Unread { doubtful: bool },
    /// The words have an unknown layout.
    Discarded,
}

#[derive(Clone, Copy, Debug, Default)]
struct Region {
    generation: Option<Generation>,
    heartbeat: Option<u64>,
    /// Time of the last change of the heartbeat.
    beat: Option<Nanos>,
    /// The layout changed while the worker had no host agent.
    stale: bool,
    /// First fetched while the worker had no host agent, so that its layout may have changed before.
    unvouched: bool,
}

/// The last words of a series in one replica, for comparison with the next fetch.
#[derive(Clone, Debug, Default)]
enum PreviousSample {
    /// No sample yet.
    #[default]
    Absent,
    /// Unknown whether the worker still has the previous sample.
    Uncertain,
    Read(Nanos, Vec<u64>),
}

/// One replica's contribution to a cell.
#[derive(Clone, Debug)]
enum ReplicaValue {
    Unknown,
    /// No value of this tick.
    Missing,
    /// The words now with their time, and the previous ones with theirs.
    New {
        words: Vec<u64>,
        at: Nanos,
        before: Option<(Nanos, Vec<u64>)>,
        writer: Writer,
    },
}

#[derive(Debug)]
struct Lmap {
    spec: LmapSpec,
    regions: BTreeMap<RegionId, Region>,
    series: BTreeMap<(MetricId, RegionId, Slot), PreviousSample>,
    rows: VecDeque<(u64, Vec<Expected>)>,
}

/// The ledger of one worker's fetches.
#[derive(Debug, Default)]
pub struct FetchLedger {
    lmaps: BTreeMap<u32, Lmap>,
    discarded: Discarded,
    /// The host agent has fenced this worker, which does not know it yet: slots that it still reads may be reused
    /// already. Its messages are dropped.
    pub is_fenced: bool,
    /// Number of checked places: slots compared with the metric that they belong to.
    pub places: u64,
    /// Number of compared cells of rows.
    pub compared: u64,
}

impl FetchLedger {
    /// The worker has accepted `message`.
    pub fn on_host_message(&mut self, message: &HostMessage) {
        match &message.message {
            Some(ToWorker::SetLmap(lmap)) => {
                let spec = LmapSpec::decode(lmap).expect("the worker has accepted it");
                let old = self.lmaps.remove(&lmap.lmap);
                self.lmaps.insert(lmap.lmap, Lmap::new(spec, old));
            }
            Some(ToWorker::RemoveLmap(remove)) => _ = self.lmaps.remove(&remove.lmap),
            _ => {}
        }
    }

    /// The worker has dropped all LMAPs.
    pub fn clear(&mut self) {
        self.lmaps.clear();
    }

    /// LMAPs whose interval is one of `due` were fetched in `batch`; `alone` without a host agent.
    pub fn fetched(&mut self, now: Nanos, unix_ns: u64, batch: &[RegionBuffer], alone: bool, due: &[u64]) {
        let mut batch = batch.iter().peekable();
        for lmap in self.lmaps.values_mut().filter(|lmap| due.contains(&(lmap.spec.interval.length().0 / 1000))) {
            let mut looks = BTreeMap::new();
            for region in lmap.spec.replicas.iter().flat_map(|replica| &replica.regions) {
                let buffer = batch.next_if(|buffer| buffer.region == region.id);
                let fetched = buffer.filter(|buffer| buffer.status == FetchStatus::Fetched);
                let words = fetched.map(|buffer| &*buffer.words);
                let known = lmap.regions.entry(region.id).or_default();
                looks.insert(region.id, known.look(now, words, region, alone, &mut self.discarded));
            }
            if !self.is_fenced {
                self.places += lmap.check_places(&looks);
            }
            lmap.tick(unix_ns, &looks);
        }
        assert!(batch.next().is_none(), "a region is fetched that nothing is configured for");
    }

    /// Compares with the worker's counters.
    pub fn check(&self, discarded: Discarded) {
        assert_eq!(discarded, self.discarded, "every discarded sample is counted once, by its reason");
    }

    /// The worker sends `message`.
    pub fn sent(&mut self, message: &WorkerMessage) {
        let Some(ToHost::Rows(rows)) = &message.message else { return };
        let Some(lmap) = self.lmaps.get(&rows.lmap) else { return };
        for row in &rows.rows {
            // Ignores rows from before the LMAP was removed and configured again.
            let Some((_, expected)) = lmap.rows.iter().rev().find(|(unix_ns, _)| *unix_ns == row.at_unix_ns) else {
                continue;
            };
            assert_eq!(row.values.len(), expected.len(), "a row has a cell for each column");
            for (&value, &expected) in row.values.iter().zip(expected) {
                assert!(holds(value, expected), "{value} where {expected:?} was read: {row:?} of {:?}", lmap.spec);
                self.compared += u64::from(expected != Expected::Unknown);
            }
        }
    }
}

fn holds(value: f64, expected: Expected) -> bool {
    let is = |wanted: f64| (value - wanted).abs() <= 1e-9 * wanted.abs();
    match expected {
        Expected::Unknown => true,
        Expected::Exactly(wanted) if wanted.is_nan() => value.is_nan(),
        Expected::Exactly(wanted) => is(wanted),
        Expected::Added(added, most) => (1..=most).any(|intervals| is(added / intervals as f64)),
    }
}

impl Region {
    fn look<'a>(
        &mut self,
        now: Nanos,
        words: Option<&'a [u64]>,
        spec: &RegionSpec,
        alone: bool,
        discarded: &mut Discarded,
    ) -> FetchedRegion<'a> {
        let still = self.beat.and_then(|beat| now.since(beat)).is_some_and(|length| length >= DOUBT);
        let doubtful = spec.heartbeat && still;
        let Some(words) = words else {
            discarded[2] += 1;
            return FetchedRegion::Unread { doubtful };
        };
        let Ok(header) = Header::decode(words) else {
            discarded[1] += 1;
            return FetchedRegion::Discarded;
        };
        let new = self.heartbeat.replace(header.heartbeat) != Some(header.heartbeat);
        if new {
            self.beat = Some(now);
        }
        self.unvouched |= alone && self.generation.is_none();
        let changed = self.generation.replace(header.generation).is_some_and(|before| before != header.generation);
        self.stale |= changed && alone;
        if changed || self.stale {
            discarded[0] += 1;
            return FetchedRegion::Discarded;
        }
        // Values of a live replica are always new. After an interruption the worker may have dropped its state.
        let new = new || spec.heartbeat && !doubtful;
        let (at, writer) = match (spec.heartbeat, spec.sample_times) {
            (true, _) => (now, Writer::Service),
            (false, false) => (now, Writer::Sampler),
            (false, true) => (sampled_at(header.heartbeat), Writer::TimedSampler),
        };
        FetchedRegion::Fresh { words, at, writer, new, doubtful }
    }
}

impl Lmap {
    /// Keeps the state of `old` for every region and series whose place is unchanged.
    fn new(spec: LmapSpec, old: Option<Self>) -> Self {
        let Some(mut old) = old else {
            return Self { spec, regions: BTreeMap::new(), series: BTreeMap::new(), rows: VecDeque::new() };
        };
        let kind = |spec: &LmapSpec, id| spec.metrics.iter().find(|metric| metric.id == id).map(|m| m.series.kind);
        let replicas = || spec.replicas.iter();
        let places: Vec<MetricPlace> = replicas().flat_map(|replica| replica.places.iter().copied()).collect();
        let is_there = |&(metric, region, first): &(MetricId, RegionId, Slot)| {
            let known = kind(&spec, metric);
            known == kind(&old.spec, metric) && places.contains(&MetricPlace { metric, region, first })
        };
        old.series.retain(|key, _| is_there(key));
        let regions: Vec<RegionId> = replicas().flat_map(|r| r.regions.iter().map(|region| region.id)).collect();
        old.regions.retain(|id, _| regions.contains(id));
        old.regions.values_mut().for_each(|region| (region.stale, region.unvouched) = (false, false));
        Self { spec, ..old }
    }

    /// Checks that all used words were written by the metrics to which they are attributed. Skips regions that a
    /// possibly fenced worker fetched for the first time: it has no generation to compare with, and its messages are
    /// dropped. Returns the number of checked places.
    fn check_places(&self, looks: &BTreeMap<RegionId, FetchedRegion<'_>>) -> u64 {
        let mut places = 0;
        for place in self.spec.replicas.iter().flat_map(|replica| &replica.places) {
            let metric = self.spec.metrics.iter().find(|metric| metric.id == place.metric);
            let metric = &metric.expect("a place is one of a metric").series;
            if let FetchedRegion::Fresh { words, .. } = looks[&place.region]
                && !self.regions[&place.region].unvouched
            {
                let first = place.first.word();
                let words = &words[first..first + metric.kind.slots() as usize];
                assert!(values::can_be(values::number(&metric.name), words), "{words:?} stands under {}", metric.name);
                places += 1;
            }
        }
        places
    }

    fn tick(&mut self, unix_ns: u64, looks: &BTreeMap<RegionId, FetchedRegion<'_>>) {
        let Self { spec, series, rows, .. } = self;
        let mut row = Vec::new();
        for metric in &spec.metrics {
            let mut parts = Vec::new();
            for place in spec.replicas.iter().flat_map(|replica| &replica.places) {
                if place.metric == metric.id {
                    let before = series.entry((place.metric, place.region, place.first)).or_default();
                    let first = place.first.word();
                    let run = first..first + metric.series.kind.slots() as usize;
                    parts.push(before.step(looks[&place.region], run, metric.every == TickDivider::MIN));
                }
            }
            row.extend(cells(metric, &parts, spec.interval.nanos().get()));
        }
        rows.push_back((unix_ns, row));
        if rows.len() > ROWS {
            rows.pop_front();
        }
    }
}

impl PreviousSample {
    fn step(&mut self, look: FetchedRegion<'_>, run: core::ops::Range<usize>, every_tick: bool) -> ReplicaValue {
        let was = core::mem::take(self);
        if !every_tick {
            *self = Self::Uncertain;
            return ReplicaValue::Unknown;
        }
        match look {
            FetchedRegion::Discarded => ReplicaValue::Missing,
            FetchedRegion::Unread { doubtful } => {
                *self = if doubtful { Self::Uncertain } else { was };
                ReplicaValue::Missing
            }
            FetchedRegion::Fresh { new: false, doubtful, words, at, .. } => {
                // The replica may be silent, or the region is sampled and has no new sample.
                *self = match was {
                    Self::Absent if !doubtful => Self::Read(at, words[run].to_vec()),
                    was if !doubtful => was,
                    _ => Self::Uncertain,
                };
                ReplicaValue::Unknown
            }
            FetchedRegion::Fresh { words, at, writer, doubtful, .. } => {
                let words = words[run].to_vec();
                *self = Self::Read(at, words.clone());
                match was {
                    Self::Read(then, before) if !doubtful => {
                        ReplicaValue::New { words, at, before: Some((then, before)), writer }
                    }
                    Self::Absent => ReplicaValue::New { words, at, before: None, writer },
                    _ => ReplicaValue::Unknown,
                }
            }
        }
    }
}

/// The expected values of the columns of `metric`, aggregated from `parts`.
fn cells(metric: &MetricSpec, parts: &[ReplicaValue], interval: u64) -> Vec<Expected> {
    let kind = metric.series.kind;
    let all = |cell| vec![cell; kind.statistics().len()];
    let (mut values, mut increments) = (Vec::new(), Vec::new());
    let mut is_sampled = false;
    for part in parts {
        match part {
            ReplicaValue::New { words, at, before, writer } => {
                values.push(words[0]);
                let increment = before.as_ref().map(|(then, before)| Increment::of(kind, words, before, *then, *at));
                let is_timed = *writer == Writer::TimedSampler;
                increments.extend(increment.map(|increment| Increment { is_timed, ..increment }));
                is_sampled |= *writer == Writer::Sampler;
            }
            // The sum of the others, without it or with its previous value, is not determined.
            ReplicaValue::Missing if parts.len() == 1 => return all(Expected::Exactly(f64::NAN)),
            ReplicaValue::Missing | ReplicaValue::Unknown => return all(Expected::Unknown),
        }
    }
    match kind {
        _ if values.is_empty() => all(Expected::Unknown),
        Kind::Gauge => {
            let sum: f64 = values.iter().map(|word| f64::from_bits(*word)).sum();
            all(Expected::Exactly(sum / values.len() as f64))
        }
        Kind::UpDownCounter => all(Expected::Exactly(values.iter().map(|word| word.cast_signed() as f64).sum())),
        // A first fetch gives no increment; among several replicas it is left out.
        Kind::Counter | Kind::Histogram(_) if increments.len() < parts.len() => {
            all(if parts.len() == 1 { Expected::Exactly(f64::NAN) } else { Expected::Unknown })
        }
        Kind::Counter | Kind::Histogram(_) if is_sampled => match &*increments {
            [one] => all(Expected::Added(one.count as f64, one.elapsed / interval + 2)),
            _ => all(Expected::Unknown),
        },
        Kind::Counter | Kind::Histogram(_) => {
            let rate = |one: &Increment| one.count as f64 / one.intervals(interval);
            let count: u64 = increments.iter().map(|one| one.count).sum();
            let sum: u64 = increments.iter().map(|one| one.sum).sum();
            // The tail is known to a bucket only.
            let cells = [increments.iter().map(rate).sum(), sum as f64 / count as f64];
            let cells = cells.into_iter().map(Expected::Exactly).chain([Expected::Unknown]);
            cells.take(kind.statistics().len()).collect()
        }
    }
}

/// The amount added to a counter or a histogram between two fetches.
#[derive(Clone, Copy, Debug)]
struct Increment {
    count: u64,
    sum: u64,
    elapsed: u64,
    /// `elapsed` is of a sampler's clock.
    is_timed: bool,
}

impl Increment {
    /// Whole intervals; a sampler's time is that, too, only if it is off by a twentieth of one at most.
    fn intervals(self, interval: u64) -> f64 {
        let whole = ((self.elapsed + interval / 2) / interval).max(1);
        let is_near = 20 * self.elapsed.abs_diff(whole * interval) <= interval;
        if self.is_timed && !is_near { self.elapsed as f64 / interval as f64 } else { whole as f64 }
    }

    fn of(kind: Kind, words: &[u64], before: &[u64], then: Nanos, at: Nanos) -> Self {
        let elapsed = at.since(then).expect("time goes on").0;
        let mut added: Vec<u64> = words.iter().zip(before).map(|(now, before)| now.wrapping_sub(*before)).collect();
        let sum = if let Kind::Histogram(_) = kind { added.pop().unwrap_or(0) } else { 0 };
        Self { count: added.iter().sum(), sum, elapsed, is_timed: false }
    }
}
