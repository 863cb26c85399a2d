//! All series of a service and where they lie: what was asked for, what an agent was told, what it has released.
//!
//! Makes regions, and does nothing else to the world: whoever sends asks [`Registry::next_message`] what is left to say.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use region::{OwnedRegion, SlotRun};
use wire::id::Generation;
use wire::layout::{RegionSize, Slot, VERSION};
use wire::metric::{Kind, Series};
use wire::name::{Labels, MetricName, NameError, Unit};
use wire::registration::{self, PlacedSeries, ServiceMessage};

use crate::free_slots::{FreeSlots, Taken};
use crate::handles::Parts;
use crate::problem::{Cause, Problems, shortened};
use crate::registration::Asked;
use crate::service::Limits;

/// The largest region that is made when a service outgrows the ones it has.
const LARGEST: usize = 1 << 20;
/// How many series are told in one message. 64 of the longest names and labels are below half a frame.
const SERIES_PER_MESSAGE: usize = 64;
/// How many retired runs are told in one message: 20 bytes each at most.
const RUNS_PER_MESSAGE: usize = 4_096;
/// What the label set of all label sets beyond the limit is called (as in OpenTelemetry).
const OVERFLOW: (&str, &str) = ("otel.metric.overflow", "true");

/// Names a series within one client. Given out by the registry, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SeriesId(u64);

/// What all series of a name have in common.
#[derive(Clone, Debug)]
struct Meaning {
    kind: Kind,
    unit: Option<Unit>,
    parts_per_unit: NonZeroU64,
}

#[derive(Debug)]
struct Metric {
    meaning: Meaning,
    label_sets: HashMap<Labels, SeriesId>,
    overflow: Option<SeriesId>,
}

#[derive(Debug)]
struct Live {
    placed: PlacedSeries,
    run: SlotRun,
    /// Whether some agent may know it, and a worker may read it.
    told: bool,
}

#[derive(Debug)]
struct Room {
    region: Arc<OwnedRegion>,
    free: FreeSlots,
    generation: Generation,
}

/// What is still to be said on the connection that is open.
#[derive(Debug, Default)]
struct Unsaid {
    /// Regions from this one on.
    regions: usize,
    series: BTreeSet<SeriesId>,
    retired: BTreeSet<registration::SlotRun>,
}

/// All series of a service.
#[derive(Debug)]
pub(crate) struct Registry {
    limits: Limits,
    memory_name: String,
    rooms: Vec<Room>,
    metrics: HashMap<MetricName, Metric>,
    live: BTreeMap<SeriesId, Live>,
    next: u64,
    /// Not ours to use again: some worker may still read them.
    retired: BTreeMap<registration::SlotRun, SlotRun>,
    /// Ours again as soon as the last handle is dropped.
    released: Vec<(registration::SlotRun, SlotRun)>,
    /// None while there is no connection: there, everything is to be said anew.
    unsaid: Option<Unsaid>,
    detached: u64,
    pub(crate) problems: Problems,
}

impl Registry {
    /// Nothing registered. `service` shows in the memory's name.
    pub(crate) fn new(service: &str, limits: Limits) -> Self {
        Self {
            limits,
            memory_name: format!("uview:{}", shortened(service, 128).replace('\0', "")),
            rooms: Vec::new(),
            metrics: HashMap::new(),
            live: BTreeMap::new(),
            next: 0,
            retired: BTreeMap::new(),
            released: Vec::new(),
            unsaid: None,
            detached: 0,
            problems: Problems::default(),
        }
    }

    /// A place for what is asked, and whether anybody has to be told of it. In a forked child (`forked`), nothing new gets one: parent and
    /// child would give the same slots to different series.
    pub(crate) fn register(&mut self, asked: &Asked, forked: bool) -> Parts {
        self.try_register(asked, forked).unwrap_or_else(|cause| {
            self.problems.note(cause);
            self.detached += 1;
            Parts { run: SlotRun::detached(asked.kind.slots()), series: None }
        })
    }

    fn try_register(&mut self, asked: &Asked, forked: bool) -> Result<Parts, Cause> {
        let mut series = check(asked).map_err(|cause| Cause::Name { metric: shortened(&asked.name, 64), cause })?;
        let mut overflows = false;
        if let Some(metric) = self.metrics.get(&series.name) {
            metric.meaning.agrees(&series)?;
            if let Some(id) = metric.label_sets.get(&series.labels) {
                return Ok(self.parts(*id));
            }
            overflows =
                metric.label_sets.len() - usize::from(metric.overflow.is_some()) >= self.limits.label_sets_per_metric;
        }
        if forked {
            return Err(Cause::Forked);
        }
        if overflows {
            let limit = self.limits.label_sets_per_metric;
            self.problems.note(Cause::LabelSets { metric: series.name.to_string(), limit });
            if let Some(id) = self.metrics.get(&series.name).and_then(|metric| metric.overflow) {
                return Ok(self.parts(id));
            }
            series.labels = Labels::new([OVERFLOW]).unwrap_or_default();
        }
        let id = self.place(series, overflows)?;
        Ok(self.parts(id))
    }

    /// A live series as a handle needs it.
    fn parts(&self, id: SeriesId) -> Parts {
        let live = self.live.get(&id).expect("every id in a metric's label sets is of a live series");
        Parts { run: live.run.clone(), series: Some(id) }
    }

    /// Gives a new series its slots and its id.
    fn place(&mut self, series: Series, overflow: bool) -> Result<SeriesId, Cause> {
        if self.live.len() >= self.limits.series {
            return Err(Cause::Series { limit: self.limits.series });
        }
        let (region, first, run) = self.take_slots(series.kind.slots())?;
        let id = SeriesId(self.next);
        self.next += 1;
        let metric = self.metrics.entry(series.name.clone()).or_insert_with(|| Metric {
            meaning: Meaning::of(&series),
            label_sets: HashMap::new(),
            overflow: None,
        });
        metric.label_sets.insert(series.labels.clone(), id);
        if overflow {
            metric.overflow = Some(id);
        }
        self.live.insert(id, Live { placed: PlacedSeries { series, region, first }, run, told: false });
        if let Some(unsaid) = &mut self.unsaid {
            unsaid.series.insert(id);
        }
        Ok(id)
    }

    /// Takes back a handle's series, for all of its handles. What goes on writing through one of them is read by nobody.
    pub(crate) fn remove(&mut self, parts: &Parts) {
        let Some(id) = parts.series else { return };
        let Some(live) = self.live.get(&id).filter(|live| live.run.same(&parts.run)) else { return };
        let name = &live.placed.series.name;
        let Some(metric) = self.metrics.get_mut(name) else { return };
        if metric.overflow == Some(id) {
            return; // Others count there too.
        }
        metric.label_sets.remove(&live.placed.series.labels);
        if metric.label_sets.is_empty() {
            self.metrics.remove(name);
        }
        let Some(live) = self.live.remove(&id) else { return };
        let place = live.placed.run();
        if let Some(unsaid) = &mut self.unsaid {
            unsaid.series.remove(&id);
            if live.told {
                unsaid.retired.insert(place);
            }
        }
        if live.told {
            self.retired.insert(place, live.run);
        } else {
            self.released.push((place, live.run));
        }
    }

    /// The agent says that nobody reads these any more. What was not retired, or what it was not told of, stays as it is.
    pub(crate) fn released(&mut self, runs: impl IntoIterator<Item = registration::SlotRun>) {
        for place in runs {
            let unsaid = self.unsaid.as_ref().is_none_or(|unsaid| unsaid.retired.contains(&place));
            if !unsaid && let Some(run) = self.retired.remove(&place) {
                self.released.push((place, run));
            }
        }
        self.reclaim();
    }

    /// Makes free what nobody reads and nobody writes.
    fn reclaim(&mut self) {
        let rooms = &mut self.rooms;
        self.released.retain_mut(|(place, run)| {
            let sole = run.is_sole();
            if sole && let Some(room) = rooms.get_mut(place.region as usize) {
                room.free.give_back(place.first, place.slots);
            }
            !sole
        });
    }

    /// Slots for a new series: which region, which first slot, and the handle that keeps them.
    fn take_slots(&mut self, count: u32) -> Result<(u32, Slot, SlotRun), Cause> {
        self.reclaim();
        let found = (0..).zip(&mut self.rooms).find_map(|(number, room)| room.take(count).map(|taken| (number, taken)));
        if let Some((number, (first, run))) = found {
            return Ok((number, first, run));
        }
        if self.rooms.len() >= self.limits.regions {
            return Err(Cause::Regions { limit: self.limits.regions });
        }
        let mut room = self.make_room(count)?;
        let (first, run) = room.take(count).ok_or(Cause::Regions { limit: self.limits.regions })?;
        self.rooms.push(room);
        Ok(((self.rooms.len() - 1) as u32, first, run))
    }

    /// A further region, twice as large as the last one, and large enough for `count` slots.
    fn make_room(&self, count: u32) -> Result<Room, Cause> {
        let unfit = |error: &dyn std::error::Error| Cause::Memory(error.to_string());
        let needed = RegionSize::for_slots(count).map_err(|error| unfit(&error))?;
        let usual = self.rooms.last().map_or(self.limits.first_region, |room| {
            let twice = (room.region.size().bytes() * 2).min(LARGEST.max(room.region.size().bytes()));
            RegionSize::new(twice as u64).unwrap_or(room.region.size())
        });
        let region = OwnedRegion::create(&self.memory_name, usual.max(needed))
            .map_err(|error| Cause::Memory(format!("{error}: {}", error.cause)))?;
        Ok(Room { free: FreeSlots::new(region.size().slots()), region: Arc::new(region), generation: Generation(1) })
    }

    /// The heartbeat of every region.
    #[cfg(test)]
    pub(crate) fn heartbeats(&self) -> impl Iterator<Item = u64> + '_ {
        self.rooms.iter().map(|room| room.region.heartbeat())
    }

    /// Raises the heartbeat of every region.
    pub(crate) fn beat(&self) {
        self.rooms.iter().for_each(|room| room.region.beat());
    }

    /// A connection is there: everything is to be said on it.
    pub(crate) fn opened(&mut self) {
        self.problems.forget_refusals();
        self.unsaid = Some(Unsaid {
            regions: 0,
            series: self.live.keys().copied().collect(),
            retired: self.retired.keys().copied().collect(),
        });
    }

    /// The connection is gone.
    pub(crate) fn closed(&mut self) {
        self.unsaid = None;
    }

    /// Whether there is nothing left to say on the connection; false if there is none.
    pub(crate) fn all_said(&self) -> bool {
        self.unsaid.as_ref().is_some_and(|unsaid| {
            unsaid.regions == self.rooms.len() && unsaid.series.is_empty() && unsaid.retired.is_empty()
        })
    }

    /// What to say next on the connection, and the region whose descriptor goes with it. Regions come before the series in them, retired
    /// slots before a series that takes their name.
    pub(crate) fn next_message(&mut self) -> Option<(ServiceMessage, Option<Arc<OwnedRegion>>)> {
        let unsaid = self.unsaid.as_mut()?;
        if let Some(room) = self.rooms.get(unsaid.regions) {
            let region = unsaid.regions as u32;
            unsaid.regions += 1;
            let message = ServiceMessage::AddRegion { region, size: room.region.size(), layout_version: VERSION };
            return Some((message, Some(Arc::clone(&room.region))));
        }
        if !unsaid.retired.is_empty() {
            let runs = (0..RUNS_PER_MESSAGE).map_while(|_| unsaid.retired.pop_first()).collect();
            return Some((ServiceMessage::Retire(runs), None));
        }
        let mut series = Vec::new();
        while series.len() < SERIES_PER_MESSAGE
            && let Some(id) = unsaid.series.pop_first()
        {
            if let Some(live) = self.live.get_mut(&id) {
                live.told = true;
                series.push(Ok(live.placed.clone()));
            }
        }
        (!series.is_empty()).then_some((ServiceMessage::AddSeries(series), None))
    }

    /// How many regions there are, and their bytes.
    pub(crate) fn regions(&self) -> (usize, usize) {
        (self.rooms.len(), self.rooms.iter().map(|room| room.region.size().bytes()).sum())
    }

    /// How many series an agent is told of.
    pub(crate) fn series(&self) -> usize {
        self.live.len()
    }

    /// How many removed series wait for the agent, or for their last handle.
    pub(crate) fn waiting(&self) -> usize {
        self.retired.len() + self.released.len()
    }

    /// How many handles were given out that nobody reads.
    pub(crate) const fn detached(&self) -> u64 {
        self.detached
    }
}

impl Room {
    /// Takes `count` slots, all zero.
    fn take(&mut self, count: u32) -> Option<(Slot, SlotRun)> {
        let Taken { first, reused } = self.free.take(count)?;
        let run = self.region.run(first, count)?;
        if reused {
            self.raise_generation();
            run.words().iter().for_each(|word| word.store(0, Relaxed));
            self.raise_generation();
        }
        Some((first, run))
    }

    fn raise_generation(&mut self) {
        self.generation = Generation(self.generation.0 + 1);
        self.region.set_generation(self.generation);
    }
}

impl Meaning {
    fn of(series: &Series) -> Self {
        Self { kind: series.kind, unit: series.unit.clone(), parts_per_unit: series.parts_per_unit }
    }

    /// Whether a further series of the same name may mean what it says: the same kind in the same unit, if it states one.
    fn agrees(&self, series: &Series) -> Result<(), Cause> {
        let asked = Self::of(series);
        let same_unit = asked.unit.is_none() || asked.unit == self.unit;
        if asked.kind == self.kind && asked.parts_per_unit == self.parts_per_unit && same_unit {
            return Ok(());
        }
        Err(Cause::Conflict { metric: series.name.to_string(), registered: self.to_string(), asked: asked.to_string() })
    }
}

impl fmt::Display for Meaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {}", self.kind)?;
        if let Kind::Histogram(scale) = self.kind {
            write!(f, " of 2^{} buckets per power of two up to 2^{}", scale.sub_bits(), scale.max_bits())?;
        }
        match (&self.unit, self.parts_per_unit.get()) {
            (None, 1) => Ok(()),
            (None, parts) => write!(f, " in 1/{parts}"),
            (Some(unit), 1) => write!(f, " in {unit}"),
            (Some(unit), parts) => write!(f, " in 1/{parts} {unit}"),
        }
    }
}

fn check(asked: &Asked) -> Result<Series, NameError> {
    Ok(Series {
        name: MetricName::new(&asked.name)?,
        labels: Labels::new(asked.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())))?,
        kind: asked.kind,
        unit: asked.unit.as_deref().map(Unit::new).transpose()?,
        group: asked.group,
        parts_per_unit: NonZeroU64::new(asked.parts_per_unit).unwrap_or(NonZeroU64::MIN),
    })
}

#[cfg(test)]
#[cfg(not(miri))] // Memory of the system, which Miri does not have.
mod tests;
