//! What a second pair of eyes makes of the words that a worker fetches. For every LMAP and tick: which regions bring values, and which are
//! discarded, by reason; and, where no doubt is left, what every cell of the row has to be. The worker's counters and rows must agree.
//!
//! An increment is what was added since the last look, per interval. So a counter's looks join without a gap: what is added is in exactly
//! one of them, unless a look was discarded, and that is counted. In doubt is a replica whose heartbeat has stood still for so long that
//! the worker may hold it for silent, and a sum in which a replica may stand with its value of before.

use std::collections::{BTreeMap, VecDeque};

use transport::{FetchStatus, RegionBuffer};
use wire::control::{LmapSpec, MetricSpec, Place, RegionSpec};
use wire::id::{Generation, MetricId, RegionId};
use wire::layout::{Header, Slot};
use wire::metric::{Every, Kind};
use wire::proto::control::host_message::Message as ToWorker;
use wire::proto::control::worker_message::Message as ToHost;
use wire::proto::control::{HostMessage, WorkerMessage};
use wire::time::Nanos;

use crate::values;

/// Without a heartbeat for so long, a replica may be held for silent. It is after 300 ms.
const DOUBT: Nanos = Nanos::from_millis(200);
/// Rows of an LMAP that may still be sent.
const ROWS: usize = 512;

/// Samples that were not used: the layout changed, the header is none, not fetched.
pub type Discarded = [u64; 3];

/// What a cell has to be.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Expected {
    /// Whatever it is.
    Unknown,
    /// This, or missing if NaN.
    Exactly(f64),
    /// This was added, in at most so many intervals: who samples it has a clock of his own.
    Added(f64, u64),
}

/// How a region came out of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look<'a> {
    /// With values. Of a region that is sampled, they are `new` or those of before.
    Fresh { words: &'a [u64], sampled: bool, new: bool, doubtful: bool },
    /// Not fetched.
    Unread { doubtful: bool },
    /// With words that nobody can tell the meaning of.
    Discarded,
}

#[derive(Clone, Copy, Debug, Default)]
struct Region {
    generation: Option<Generation>,
    heartbeat: Option<u64>,
    /// When the heartbeat was last seen to change.
    beat: Option<Nanos>,
    /// The layout changed while no host agent could say how.
    stale: bool,
    /// It was seen for the first time while no host agent could say whether it is still as it was told.
    unvouched: bool,
}

/// What was read of a series in one replica, to be compared with the next look.
#[derive(Clone, Debug, Default)]
enum Before {
    /// Nothing.
    #[default]
    Nothing,
    /// Nobody knows whether the worker remembers.
    Doubt,
    Read(Nanos, Vec<u64>),
}

/// What one replica brings to a cell.
#[derive(Clone, Debug)]
enum Part {
    Unknown,
    /// No value of this tick.
    Missing,
    /// The words now, and what they were when.
    New {
        words: Vec<u64>,
        before: Option<(Nanos, Vec<u64>)>,
        sampled: bool,
    },
}

#[derive(Debug)]
struct Lmap {
    spec: LmapSpec,
    regions: BTreeMap<RegionId, Region>,
    series: BTreeMap<(MetricId, RegionId, Slot), Before>,
    rows: VecDeque<(u64, Vec<Expected>)>,
}

/// The books on what one worker reads.
#[derive(Debug, Default)]
pub struct Looks {
    lmaps: BTreeMap<u32, Lmap>,
    discarded: Discarded,
    /// The host agent has let this run go, which does not know it yet: slots that it still reads as it was told may be others' by now. What it
    /// makes of them nobody takes.
    pub is_let_go: bool,
    /// Places that were compared with whose words are in them.
    pub places: u64,
    /// Cells of rows that were compared.
    pub compared: u64,
}

impl Looks {
    /// The worker has taken `message`.
    pub fn told(&mut self, message: &HostMessage) {
        match &message.message {
            Some(ToWorker::SetLmap(lmap)) => {
                let spec = LmapSpec::decode(lmap).expect("the worker has taken it");
                let old = self.lmaps.remove(&lmap.lmap);
                self.lmaps.insert(lmap.lmap, Lmap::new(spec, old));
            }
            Some(ToWorker::RemoveLmap(remove)) => _ = self.lmaps.remove(&remove.lmap),
            _ => {}
        }
    }

    /// The worker has let everything go.
    pub fn forget(&mut self) {
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
            if !self.is_let_go {
                self.places += lmap.check_places(&looks);
            }
            lmap.tick(now, unix_ns, &looks);
        }
        assert!(batch.next().is_none(), "a region is fetched that nothing is configured for");
    }

    /// Compares with what the worker has counted.
    pub fn check(&self, discarded: Discarded) {
        assert_eq!(discarded, self.discarded, "what is discarded is counted once, by its reason");
    }

    /// The worker sends `message`.
    pub fn sends(&mut self, message: &WorkerMessage) {
        let Some(ToHost::Rows(rows)) = &message.message else { return };
        let Some(lmap) = self.lmaps.get(&rows.lmap) else { return };
        for row in &rows.rows {
            // Rows from before the LMAP was taken away and came back are of nobody's interest.
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
    ) -> Look<'a> {
        let still = self.beat.and_then(|beat| now.since(beat)).is_some_and(|length| length >= DOUBT);
        let doubtful = spec.heartbeat && still;
        let Some(words) = words else {
            discarded[2] += 1;
            return Look::Unread { doubtful };
        };
        let Ok(header) = Header::decode(words) else {
            discarded[1] += 1;
            return Look::Discarded;
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
            return Look::Discarded;
        }
        // Values of a replica that lives are all new. One that is back may have been forgotten meanwhile.
        let new = new || spec.heartbeat && !doubtful;
        Look::Fresh { words, sampled: !spec.heartbeat, new, doubtful }
    }
}

impl Lmap {
    /// Goes on where `old` was, with every region and every series that is still in its place.
    fn new(spec: LmapSpec, old: Option<Self>) -> Self {
        let Some(mut old) = old else {
            return Self { spec, regions: BTreeMap::new(), series: BTreeMap::new(), rows: VecDeque::new() };
        };
        let kind = |spec: &LmapSpec, id| spec.metrics.iter().find(|metric| metric.id == id).map(|m| m.series.kind);
        let replicas = || spec.replicas.iter();
        let places: Vec<Place> = replicas().flat_map(|replica| replica.places.iter().copied()).collect();
        let is_there = |&(metric, region, first): &(MetricId, RegionId, Slot)| {
            let known = kind(&spec, metric);
            known == kind(&old.spec, metric) && places.contains(&Place { metric, region, first })
        };
        old.series.retain(|key, _| is_there(key));
        let regions: Vec<RegionId> = replicas().flat_map(|r| r.regions.iter().map(|region| region.id)).collect();
        old.regions.retain(|id, _| regions.contains(id));
        old.regions.values_mut().for_each(|region| (region.stale, region.unvouched) = (false, false));
        Self { spec, ..old }
    }

    /// Whatever is used of a look was written by the metrics that it is taken for, but where a run that may be fenced looks for the first time:
    /// it has no generation to compare with, and nobody takes what it makes of that. How many places there were.
    fn check_places(&self, looks: &BTreeMap<RegionId, Look<'_>>) -> u64 {
        let mut places = 0;
        for place in self.spec.replicas.iter().flat_map(|replica| &replica.places) {
            let metric = self.spec.metrics.iter().find(|metric| metric.id == place.metric);
            let metric = &metric.expect("a place is one of a metric").series;
            if let Look::Fresh { words, .. } = looks[&place.region]
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

    fn tick(&mut self, now: Nanos, unix_ns: u64, looks: &BTreeMap<RegionId, Look<'_>>) {
        let Self { spec, series, rows, .. } = self;
        let mut row = Vec::new();
        for metric in &spec.metrics {
            let mut parts = Vec::new();
            for place in spec.replicas.iter().flat_map(|replica| &replica.places) {
                if place.metric == metric.id {
                    let before = series.entry((place.metric, place.region, place.first)).or_default();
                    let first = place.first.word();
                    let run = first..first + metric.series.kind.slots() as usize;
                    parts.push(before.step(now, looks[&place.region], run, metric.every == Every::MIN));
                }
            }
            row.extend(cells(metric, &parts, now, spec.interval.nanos().get()));
        }
        rows.push_back((unix_ns, row));
        if rows.len() > ROWS {
            rows.pop_front();
        }
    }
}

impl Before {
    fn step(&mut self, now: Nanos, look: Look<'_>, run: core::ops::Range<usize>, every_tick: bool) -> Part {
        let was = core::mem::take(self);
        if !every_tick {
            *self = Self::Doubt;
            return Part::Unknown;
        }
        match look {
            Look::Discarded => Part::Missing,
            Look::Unread { doubtful } => {
                *self = if doubtful { Self::Doubt } else { was };
                Part::Missing
            }
            Look::Fresh { new: false, doubtful, words, .. } => {
                // Silent by now, or not; or written by somebody who samples, and not since.
                *self = match was {
                    Self::Nothing if !doubtful => Self::Read(now, words[run].to_vec()),
                    was if !doubtful => was,
                    _ => Self::Doubt,
                };
                Part::Unknown
            }
            Look::Fresh { words, sampled, doubtful, .. } => {
                let words = words[run].to_vec();
                *self = Self::Read(now, words.clone());
                match was {
                    Self::Read(at, before) if !doubtful => Part::New { words, before: Some((at, before)), sampled },
                    Self::Nothing => Part::New { words, before: None, sampled },
                    _ => Part::Unknown,
                }
            }
        }
    }
}

/// What the columns of `metric` have to be, put together from `parts`.
fn cells(metric: &MetricSpec, parts: &[Part], now: Nanos, interval: u64) -> Vec<Expected> {
    let kind = metric.series.kind;
    let all = |cell| vec![cell; kind.statistics().len()];
    let (mut values, mut increments) = (Vec::new(), Vec::new());
    let mut is_sampled = false;
    for part in parts {
        match part {
            Part::New { words, before, sampled } => {
                values.push(words[0]);
                increments.extend(before.as_ref().map(|(at, before)| Increment::of(kind, words, before, *at, now)));
                is_sampled |= sampled;
            }
            // What others add up to without it, or with its value of before, is not said here.
            Part::Missing if parts.len() == 1 => return all(Expected::Exactly(f64::NAN)),
            Part::Missing | Part::Unknown => return all(Expected::Unknown),
        }
    }
    match kind {
        _ if values.is_empty() => all(Expected::Unknown),
        Kind::Gauge => {
            let sum: f64 = values.iter().map(|word| f64::from_bits(*word)).sum();
            all(Expected::Exactly(sum / values.len() as f64))
        }
        Kind::UpDownCounter => all(Expected::Exactly(values.iter().map(|word| word.cast_signed() as f64).sum())),
        // A first look tells of no increment; beside others it is left out.
        Kind::Counter | Kind::Histogram(_) if increments.len() < parts.len() => {
            all(if parts.len() == 1 { Expected::Exactly(f64::NAN) } else { Expected::Unknown })
        }
        Kind::Counter | Kind::Histogram(_) if is_sampled => match &*increments {
            [one] => all(Expected::Added(one.count as f64, one.elapsed / interval + 2)),
            _ => all(Expected::Unknown),
        },
        Kind::Counter | Kind::Histogram(_) => {
            let rate = |one: &Increment| one.count as f64 / ((one.elapsed + interval / 2) / interval).max(1) as f64;
            let count: u64 = increments.iter().map(|one| one.count).sum();
            let sum: u64 = increments.iter().map(|one| one.sum).sum();
            // The tail is known to a bucket only.
            let cells = [increments.iter().map(rate).sum(), sum as f64 / count as f64];
            let cells = cells.into_iter().map(Expected::Exactly).chain([Expected::Unknown]);
            cells.take(kind.statistics().len()).collect()
        }
    }
}

/// What was added to a counter or a histogram between two looks.
#[derive(Clone, Copy, Debug)]
struct Increment {
    count: u64,
    sum: u64,
    elapsed: u64,
}

impl Increment {
    fn of(kind: Kind, words: &[u64], before: &[u64], at: Nanos, now: Nanos) -> Self {
        let elapsed = now.since(at).expect("time goes on").0;
        let mut added: Vec<u64> = words.iter().zip(before).map(|(now, before)| now.wrapping_sub(*before)).collect();
        let sum = if let Kind::Histogram(_) = kind { added.pop().unwrap_or(0) } else { 0 };
        Self { count: added.iter().sum(), sum, elapsed }
    }
}
