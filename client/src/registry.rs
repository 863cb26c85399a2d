//! All series of a service: their slots, and what the agent knows about them.
//!
//! The registry creates regions and does no other I/O. The I/O thread sends what [`Registry::next_message`] returns.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use region::{OwnedRegion, SlotRun};
use wire::id::Generation;
use wire::layout::{RegionSize, Slot, VERSION};
use wire::metric::{Declaration, Kind, Series};
use wire::name::{Labels, MetricName, NameError, Unit};
use wire::registration::{self, PlacedSeries, ServiceMessage, Shards};
use wire::time::Nanos;

use crate::free_slots::{FreeSlots, SlotAllocation};
use crate::handles::{Binding, SeriesId};
use crate::metric_spec::MetricSpec;
use crate::problem::{Cause, Problems, shortened};
use crate::service::Limits;

/// Upper bound for the size of further regions: 1 MiB. Each is twice as large as the one before.
const MAX_REGION_BYTES: usize = 1 << 20;
/// Series per message. 64 series with the longest names and labels fill less than half a frame.
const SERIES_PER_MESSAGE: usize = 64;
/// Retired runs per message, at most 20 bytes each.
const RUNS_PER_MESSAGE: usize = 4_096;
/// The label set shared by all label sets beyond the limit, as in OpenTelemetry.
const OVERFLOW_LABEL: (&str, &str) = ("otel.metric.overflow", "true");

/// Kind, unit and scale: the same for all series of one metric name.
#[derive(Clone, Debug)]
struct MetricType {
    kind: Kind,
    unit: Option<Unit>,
    parts_per_unit: NonZeroU64,
    shards: Shards,
}

#[derive(Debug)]
struct Metric {
    value_type: MetricType,
    label_sets: HashMap<Labels, SeriesId>,
    overflow: Option<SeriesId>,
}

#[derive(Debug)]
struct LiveSeries {
    placed: PlacedSeries,
    run: SlotRun,
    /// Whether an agent may know the series, so that a worker may read its slots.
    announced: bool,
}

/// A region and the slots that are free in it.
#[derive(Debug)]
struct RegionSlots {
    memory: Arc<OwnedRegion>,
    free: FreeSlots,
    generation: Generation,
}

/// What is not yet sent on the open connection.
#[derive(Debug, Default)]
struct Outbox {
    /// The first region that was not sent.
    next_region: usize,
    series: BTreeSet<SeriesId>,
    retired: BTreeSet<registration::SlotRun>,
}

/// All series of a service.
#[derive(Debug)]
pub(crate) struct Registry {
    limits: Limits,
    memory_name: String,
    regions: Vec<RegionSlots>,
    metrics: HashMap<MetricName, Metric>,
    live: BTreeMap<SeriesId, LiveSeries>,
    next: u64,
    /// Removed, not yet released by the agent: a worker may still read these slots.
    retired: BTreeMap<registration::SlotRun, SlotRun>,
    /// Released by the agent; free as soon as the last handle is dropped.
    released: Vec<(registration::SlotRun, SlotRun)>,
    /// `None` without a connection. A new connection starts with everything in the outbox.
    outbox: Option<Outbox>,
    detached: u64,
    pub(crate) problems: Problems,
}

impl Registry {
    /// An empty registry. `service` becomes part of the memory's name in `/proc/PID/maps`.
    pub(crate) fn new(service: &str, limits: Limits) -> Self {
        Self {
            limits,
            memory_name: format!("uview:{}", shortened(service, 128).replace('\0', "")),
            regions: Vec::new(),
            metrics: HashMap::new(),
            live: BTreeMap::new(),
            next: 0,
            retired: BTreeMap::new(),
            released: Vec::new(),
            outbox: None,
            detached: 0,
            problems: Problems::default(),
        }
    }

    /// Binds a handle to slots. If the metric cannot be registered, the handle is detached, and the
    /// problem is recorded. In a forked child (`forked`), only existing series are bound: parent and child would give
    /// the same slots to different series.
    /// The cause comes with a detached binding only.
    pub(crate) fn bind(&mut self, spec: &MetricSpec, forked: bool) -> (Binding, Option<Cause>) {
        match self.try_register(spec, forked) {
            Ok(binding) => (binding, None),
            Err(cause) => {
                self.problems.note(cause.clone());
                self.detached += 1;
                (Binding { run: SlotRun::detached(spec.slots()), series: None }, Some(cause))
            }
        }
    }

    /// Binds a handle and leaves the cause to the status.
    #[cfg(test)]
    pub(crate) fn register(&mut self, spec: &MetricSpec, forked: bool) -> Binding {
        self.bind(spec, forked).0
    }

    fn try_register(&mut self, spec: &MetricSpec, forked: bool) -> Result<Binding, Cause> {
        let mut series = check(spec).map_err(|cause| Cause::Name { metric: shortened(&spec.name, 64), cause })?;
        let declared = spec.declaration();
        let declared = declared.map_err(|cause| Cause::Aggregation { metric: series.name.to_string(), cause })?;
        let mut overflows = false;
        if let Some(metric) = self.metrics.get(&series.name) {
            metric.value_type.check_compatible(&series, spec.shards)?;
            if let Some(id) = metric.label_sets.get(&series.labels) {
                self.check_declaration(*id, &declared)?;
                return Ok(self.binding(*id));
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
                return Ok(self.binding(id));
            }
            series.labels = Labels::new([OVERFLOW_LABEL]).unwrap_or_default();
            // The service may have registered that label set itself.
            if let Some(metric) = self.metrics.get_mut(&series.name)
                && let Some(&id) = metric.label_sets.get(&series.labels)
            {
                metric.overflow = Some(id);
                return Ok(self.binding(id));
            }
        }
        let id = self.add_series(series, spec.shards, declared, overflows)?;
        Ok(self.binding(id))
    }

    /// Checks that a further handle to a series declares the same, if anything.
    fn check_declaration(&self, id: SeriesId, declared: &Declaration) -> Result<(), Cause> {
        let Some(PlacedSeries { series, declared: known, .. }) = self.live.get(&id).map(|live| &live.placed) else {
            return Ok(());
        };
        if *declared == Declaration::NONE || declared == known {
            return Ok(());
        }
        let metric = series.name.to_string();
        Err(Cause::Conflict { metric, registered: known.to_string(), requested: declared.to_string() })
    }

    /// A handle's binding to a live series.
    fn binding(&self, id: SeriesId) -> Binding {
        let live = self.live.get(&id).expect("every id in a metric's label sets is of a live series");
        Binding { run: live.run.clone(), series: Some(id) }
    }

    /// Gives a new series its slots and its id.
    fn add_series(
        &mut self,
        series: Series,
        shards: Shards,
        declared: Declaration,
        overflow: bool,
    ) -> Result<SeriesId, Cause> {
        if self.live.len() >= self.limits.series {
            return Err(Cause::Series { limit: self.limits.series });
        }
        let (region, first, run) = self.take_slots(shards.slots(series.kind))?;
        let id = SeriesId(self.next);
        self.next += 1;
        let metric = self.metrics.entry(series.name.clone()).or_insert_with(|| Metric {
            value_type: MetricType::of(&series, shards),
            label_sets: HashMap::new(),
            overflow: None,
        });
        metric.label_sets.insert(series.labels.clone(), id);
        if overflow {
            metric.overflow = Some(id);
        }
        let placed = PlacedSeries { series, region, first, shards, declared };
        self.live.insert(id, LiveSeries { placed, run, announced: false });
        if let Some(outbox) = &mut self.outbox {
            outbox.series.insert(id);
        }
        Ok(id)
    }

    /// Removes a handle's series for all of its handles. No agent reads values that they write afterwards.
    pub(crate) fn remove(&mut self, binding: &Binding) {
        let Some(id) = binding.series else { return };
        let Some(live) = self.live.get(&id).filter(|live| live.run.same(&binding.run)) else { return };
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
        if let Some(outbox) = &mut self.outbox {
            outbox.series.remove(&id);
            if live.announced {
                outbox.retired.insert(place);
            }
        }
        if live.announced {
            self.retired.insert(place, live.run);
        } else {
            self.released.push((place, live.run));
        }
    }

    /// The agent reports that no worker reads these slots any more. Runs that were not retired, or whose retirement was
    /// not sent, are ignored.
    pub(crate) fn released(&mut self, runs: impl IntoIterator<Item = registration::SlotRun>) {
        for place in runs {
            let unsent = self.outbox.as_ref().is_none_or(|outbox| outbox.retired.contains(&place));
            if !unsent && let Some(run) = self.retired.remove(&place) {
                self.released.push((place, run));
            }
        }
        self.reclaim();
    }

    /// Frees released slots to which no handle exists any more.
    fn reclaim(&mut self) {
        let regions = &mut self.regions;
        self.released.retain_mut(|(place, run)| {
            let sole = run.is_sole();
            if sole && let Some(region) = regions.get_mut(place.region as usize) {
                region.free.release(place.first, place.slots);
            }
            !sole
        });
    }

    /// Allocates slots for a new series: the region, the first slot, and the handle that keeps the memory.
    fn take_slots(&mut self, count: u32) -> Result<(u32, Slot, SlotRun), Cause> {
        self.reclaim();
        let found = (0..).zip(&mut self.regions).find_map(|(number, region)| Some((number, region.take(count)?)));
        if let Some((number, (first, run))) = found {
            return Ok((number, first, run));
        }
        if self.regions.len() >= self.limits.regions {
            return Err(Cause::Regions { limit: self.limits.regions });
        }
        let mut region = self.create_region(count)?;
        let (first, run) = region.take(count).ok_or(Cause::Regions { limit: self.limits.regions })?;
        self.regions.push(region);
        Ok(((self.regions.len() - 1) as u32, first, run))
    }

    /// Creates a region, twice as large as the last one, and large enough for `count` slots.
    fn create_region(&self, count: u32) -> Result<RegionSlots, Cause> {
        let unfit = |error: &dyn std::error::Error| Cause::Memory(error.to_string());
        let needed = RegionSize::for_slots(count).map_err(|error| unfit(&error))?;
        let usual = self.regions.last().map_or(self.limits.first_region, |region| {
            let twice = (region.memory.size().bytes() * 2).min(MAX_REGION_BYTES.max(region.memory.size().bytes()));
            RegionSize::new(twice as u64).unwrap_or(region.memory.size())
        });
        let memory = OwnedRegion::create(&self.memory_name, usual.max(needed))
            .map_err(|error| Cause::Memory(format!("{error}: {}", error.cause)))?;
        Ok(RegionSlots {
            free: FreeSlots::new(memory.size().slots()),
            memory: Arc::new(memory),
            generation: Generation(1),
        })
    }

    /// The heartbeat counter of every region.
    #[cfg(test)]
    pub(crate) fn heartbeats(&self) -> impl Iterator<Item = u64> + '_ {
        self.regions.iter().map(|region| region.memory.heartbeat())
    }

    /// Increments the heartbeat counter of every region.
    pub(crate) fn beat(&self) {
        self.regions.iter().for_each(|region| region.memory.beat());
    }

    /// Has the heartbeat word of every region tell that all values were measured at `time`.
    pub(crate) fn sampled(&self, time: Nanos) {
        self.regions.iter().for_each(|region| region.memory.sampled(time));
    }

    /// A connection was established: everything has to be sent on it.
    pub(crate) fn opened(&mut self) {
        self.problems.forget_refusals();
        self.outbox = Some(Outbox {
            next_region: 0,
            series: self.live.keys().copied().collect(),
            retired: self.retired.keys().copied().collect(),
        });
    }

    /// The agent may take what it has refused: all series are sent again. Those that it has are no news to it.
    pub(crate) fn announce_again(&mut self) {
        if let Some(outbox) = &mut self.outbox {
            outbox.series = self.live.keys().copied().collect();
            self.problems.forget_refusals();
        }
    }

    /// The connection was lost.
    pub(crate) fn closed(&mut self) {
        self.outbox = None;
    }

    /// Whether everything was sent on the connection; false without one.
    pub(crate) fn is_synced(&self) -> bool {
        self.outbox.as_ref().is_some_and(|outbox| {
            outbox.next_region == self.regions.len() && outbox.series.is_empty() && outbox.retired.is_empty()
        })
    }

    /// The next message for the connection, and the region whose descriptor is sent with it. Regions come before the
    /// series in them, retired slots before a series that takes over their name.
    pub(crate) fn next_message(&mut self) -> Option<(ServiceMessage, Option<Arc<OwnedRegion>>)> {
        let outbox = self.outbox.as_mut()?;
        if let Some(RegionSlots { memory, .. }) = self.regions.get(outbox.next_region) {
            let region = outbox.next_region as u32;
            outbox.next_region += 1;
            let message = ServiceMessage::AddRegion { region, size: memory.size(), layout_version: VERSION };
            return Some((message, Some(Arc::clone(memory))));
        }
        if !outbox.retired.is_empty() {
            let runs = (0..RUNS_PER_MESSAGE).map_while(|_| outbox.retired.pop_first()).collect();
            return Some((ServiceMessage::Retire(runs), None));
        }
        let mut series = Vec::new();
        while series.len() < SERIES_PER_MESSAGE
            && let Some(id) = outbox.series.pop_first()
        {
            if let Some(live) = self.live.get_mut(&id) {
                live.announced = true;
                series.push(Ok(live.placed.clone()));
            }
        }
        (!series.is_empty()).then_some((ServiceMessage::AddSeries(series), None))
    }

    /// The number of regions, and their size in bytes.
    pub(crate) fn regions(&self) -> (usize, usize) {
        (self.regions.len(), self.regions.iter().map(|region| region.memory.size().bytes()).sum())
    }

    /// The number of registered series.
    pub(crate) fn series(&self) -> usize {
        self.live.len()
    }

    /// The number of removed series that wait for the agent's release, or for their last handle to be dropped.
    pub(crate) fn pending_release(&self) -> usize {
        self.retired.len() + self.released.len()
    }

    /// The number of detached handles given out.
    pub(crate) const fn detached(&self) -> u64 {
        self.detached
    }
}

impl RegionSlots {
    /// Allocates `count` slots and sets them to zero; `None` if no run of that length is free.
    fn take(&mut self, count: u32) -> Option<(Slot, SlotRun)> {
        let SlotAllocation { first, reused } = self.free.allocate(count)?;
        let run = self.memory.run(first, count)?;
        if reused {
            self.raise_generation();
            run.words().iter().for_each(|word| word.store(0, Relaxed));
            self.raise_generation();
        }
        Some((first, run))
    }

    fn raise_generation(&mut self) {
        self.generation = Generation(self.generation.0 + 1);
        self.memory.set_generation(self.generation);
    }
}

impl MetricType {
    fn of(series: &Series, shards: Shards) -> Self {
        Self { kind: series.kind, unit: series.unit.clone(), parts_per_unit: series.parts_per_unit, shards }
    }

    /// Checks that a further series of the same name has the same kind, scale and shards, and the same unit if it
    /// states one.
    fn check_compatible(&self, series: &Series, shards: Shards) -> Result<(), Cause> {
        let spec = Self::of(series, shards);
        let same_unit = spec.unit.is_none() || spec.unit == self.unit;
        let same_words = spec.kind == self.kind && spec.shards == self.shards;
        if same_words && spec.parts_per_unit == self.parts_per_unit && same_unit {
            return Ok(());
        }
        Err(Cause::Conflict {
            metric: series.name.to_string(),
            registered: self.to_string(),
            requested: spec.to_string(),
        })
    }
}

impl fmt::Display for MetricType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let article = if matches!(self.kind, Kind::UpDownCounter) { "an" } else { "a" };
        write!(f, "{article} {}", self.kind)?;
        if self.shards > Shards::ONE {
            write!(f, " of {} shards", self.shards.count())?;
        }
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

fn check(spec: &MetricSpec) -> Result<Series, NameError> {
    Ok(Series {
        name: MetricName::new(&spec.name)?,
        labels: Labels::new(spec.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())))?,
        kind: spec.kind,
        unit: spec.unit.as_deref().map(Unit::new).transpose()?,
        group: spec.group,
        parts_per_unit: NonZeroU64::new(spec.parts_per_unit).unwrap_or(NonZeroU64::MIN),
    })
}

#[cfg(test)]
#[cfg(not(miri))] // Memory of the system, which Miri does not have.
mod tests;
