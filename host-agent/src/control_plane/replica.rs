//! One replica's registration: regions, and slot runs in them, each of a series or retired.

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::id::{Owner, RegionId, ReplicaId};
use wire::layout::{RegionSize, Slot};
use wire::metric::{Declaration, Series};
use wire::name::{InstanceName, Labels, MetricName, ServiceName};
use wire::registration::{MAX_SUBJECTS, PlacedSeries, SPAN_RING_REGION, Shards, SlotRun, Subject};
use wire::time::Interval;

use super::footprint::{of_labels, of_tree};
use super::refusal::{RegionRefusal, SeriesRefusal};

/// Key of a series within a service: its name and labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeriesKey {
    pub name: MetricName,
    pub labels: Labels,
}

impl SeriesKey {
    pub fn of(series: &Series) -> Self {
        Self { name: series.name.clone(), labels: series.labels.clone() }
    }

    /// How many series of its owner's share it is: one for each shard, and one more for each further 256 bytes of text.
    pub fn weight(&self, shards: Shards) -> u64 {
        let further = self.text_bytes().div_ceil(TEXT_BYTES).saturating_sub(1);
        further as u64 + u64::from(shards.count())
    }

    /// Bytes of the name and the labels.
    pub fn text_bytes(&self) -> usize {
        self.name.as_str().len() + self.labels.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>()
    }

    /// Bytes that a shared key takes, as they are asked for.
    pub fn kept_bytes(&self) -> usize {
        SHARE_COUNTS + size_of::<Self>() + self.name.as_str().len() + of_labels(&self.labels)
    }
}

/// Bytes of name and labels that one series may have. With more, it counts as several in its owner's share.
const TEXT_BYTES: usize = 256;
/// Bytes of an `Arc` besides what it shares.
const SHARE_COUNTS: usize = 2 * size_of::<usize>();

/// A region of a replica.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaRegion {
    pub id: RegionId,
    pub size: RegionSize,
}

/// Where a series is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesPlace {
    /// Number of the service's region.
    pub region: u32,
    first: Slot,
    shards: Shards,
}

impl SeriesPlace {
    pub fn of(placed: &PlacedSeries) -> Self {
        Self { region: placed.region, first: placed.first, shards: placed.shards }
    }

    /// The first slot of each word or run of words that is read separately.
    pub fn slots(self) -> impl Iterator<Item = Slot> {
        self.shards.places(self.first)
    }
}

/// Slots that cannot be given to another series: used by one, or retired and not yet released.
#[derive(Clone, Debug)]
struct OccupiedSlots {
    slots: u32,
    series: Option<Arc<SeriesKey>>,
    /// How many series of its owner's share it is.
    weight: u64,
}

/// A registered replica. It places series in its own regions; this records them and checks for contradictions.
#[derive(Debug)]
pub struct Replica {
    pub id: ReplicaId,
    pub service: ServiceName,
    pub instance: InstanceName,
    /// Interval at which its values change, and its heartbeat words with them. `None`: its heartbeat word beats by
    /// itself.
    pub changes_every: Option<Interval>,
    /// The shortest time between two samples by whatever samples it, while something seems wrong with its service.
    /// `None`: nothing that samples it changes its pace.
    pub fastest: Option<Interval>,
    /// Whether it tells itself when its values were sampled.
    is_sampler: bool,
    regions: BTreeMap<u32, ReplicaRegion>,
    /// Read by this agent; workers do not read it.
    span_ring: Option<RegionSize>,
    occupied: BTreeMap<(u32, Slot), OccupiedSlots>,
    series: BTreeMap<Arc<SeriesKey>, SeriesPlace>,
    /// What it declares about series, if anything.
    declared: BTreeMap<Arc<SeriesKey>, Declaration>,
    /// What values of its metrics are about, of at most [`MAX_SUBJECTS`].
    subjects: BTreeMap<MetricName, Subject>,
    /// Who pays for it.
    pub owner: Owner,
    /// The process that its metrics are of, as it says, if that is not the sender.
    pub observed: Option<u32>,
}

/// Result of placing a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesPlacement {
    /// The series is already registered at this place.
    Existing,
    /// The series is new and its slots are free.
    Free,
}

impl Replica {
    /// Number of the region with the agent's own values about this replica.
    pub const AGENT_REGION: u32 = u32::MAX;
    /// Number of another one, with values that the agent samples at other times. Between them is that of span rings.
    const SECOND_AGENT_REGION: u32 = SPAN_RING_REGION - 1;

    /// Whether the agent's own values are in its region `number`.
    pub const fn is_agents(number: u32) -> bool {
        matches!(number, Self::AGENT_REGION | Self::SECOND_AGENT_REGION)
    }

    pub fn new(id: ReplicaId, service: ServiceName, instance: InstanceName, owner: Owner) -> Self {
        Self {
            id,
            owner,
            service,
            instance,
            changes_every: None,
            fastest: None,
            is_sampler: false,
            observed: None,
            regions: BTreeMap::new(),
            span_ring: None,
            occupied: BTreeMap::new(),
            series: BTreeMap::new(),
            declared: BTreeMap::new(),
            subjects: BTreeMap::new(),
        }
    }

    /// It samples its values itself, as often as every `fastest`, and tells when it did.
    pub fn samples_itself(&mut self, fastest: Interval) {
        (self.fastest, self.is_sampler) = (Some(fastest), true);
    }

    /// Whether it has values that it writes at any time.
    pub fn writes_itself(&self) -> bool {
        self.changes_every.is_none() && self.regions.keys().any(|number| !Self::is_agents(*number))
    }

    /// Whether the heartbeat word of its region `number` tells when values were sampled: the agent's does.
    pub fn tells_times(&self, number: u32) -> bool {
        self.is_sampler || Self::is_agents(number)
    }

    pub fn regions(&self) -> impl Iterator<Item = (u32, ReplicaRegion)> {
        self.regions.iter().map(|(&number, &region)| (number, region))
    }

    pub fn series(&self) -> &BTreeMap<Arc<SeriesKey>, SeriesPlace> {
        &self.series
    }

    /// What it declares about a series.
    pub fn declared(&self, key: &SeriesKey) -> Declaration {
        self.declared.get(key).cloned().unwrap_or(Declaration::NONE)
    }

    /// What the values of its metrics are about at present, of at most [`MAX_SUBJECTS`].
    pub fn subjects(&self) -> impl Iterator<Item = (&MetricName, &str)> {
        self.subjects.iter().map(|(metric, subject)| (metric, subject.text()))
    }

    /// Takes a subject; one without text takes that of its metric away. Metrics beyond the limit have none.
    pub fn set_subject(&mut self, subject: Subject) {
        if subject.text().is_empty() {
            self.subjects.remove(&subject.metric);
        } else if self.subjects.len() < MAX_SUBJECTS || self.subjects.contains_key(&subject.metric) {
            self.subjects.insert(subject.metric.clone(), subject);
        }
    }

    pub fn region(&self, number: u32) -> Option<ReplicaRegion> {
        self.regions.get(&number).copied()
    }

    /// The size of its span ring.
    pub const fn span_ring(&self) -> Option<RegionSize> {
        self.span_ring
    }

    /// What the service's series are of its owner's share, with those that are retired and have still their places.
    pub fn own_series(&self) -> u64 {
        let own = self.occupied.iter().filter(|((region, _), _)| !Self::is_agents(*region));
        own.map(|(_, occupied)| occupied.weight).sum()
    }

    /// Bytes of all regions that the service brought.
    pub fn bytes(&self) -> u64 {
        let regions = self.regions().filter(|&(number, _)| !Self::is_agents(number)).map(|(_, region)| region.size);
        regions.chain(self.span_ring).map(|size| size.bytes() as u64).sum()
    }

    /// Bytes that its series take here besides their keys, as they were asked for.
    pub fn kept_bytes(&self) -> usize {
        of_tree::<(u32, Slot), OccupiedSlots>(self.occupied.len())
            + of_tree::<Arc<SeriesKey>, SeriesPlace>(self.series.len())
            + of_tree::<Arc<SeriesKey>, Declaration>(self.declared.len())
    }

    /// Adds a span ring, at most one.
    pub fn add_span_ring(&mut self, size: RegionSize) -> Result<(), RegionRefusal> {
        if self.span_ring.is_some() {
            return Err(RegionRefusal::Twice);
        }
        self.span_ring = Some(size);
        Ok(())
    }

    pub fn add_region(&mut self, number: u32, region: ReplicaRegion, limit: usize) -> Result<(), RegionRefusal> {
        if self.regions.contains_key(&number) {
            return Err(RegionRefusal::Twice);
        }
        let own = self.regions.keys().filter(|number| !Self::is_agents(**number)).count();
        if own >= limit && !Self::is_agents(number) {
            return Err(RegionRefusal::TooMany { limit });
        }
        self.regions.insert(number, region);
        Ok(())
    }

    /// Adds a region with the agent's own values, at most two, and returns its number.
    pub fn add_agent_region(&mut self, region: ReplicaRegion) -> Result<u32, RegionRefusal> {
        let is_first = !self.regions.contains_key(&Self::AGENT_REGION);
        let number = if is_first { Self::AGENT_REGION } else { Self::SECOND_AGENT_REGION };
        self.add_region(number, region, usize::MAX).map(|()| number)
    }

    /// Whether `placed` can be placed.
    pub fn check(&self, key: &SeriesKey, placed: &PlacedSeries) -> Result<SeriesPlacement, SeriesRefusal> {
        let SlotRun { region, first, slots } = placed.run();
        let size = self.regions.get(&region).ok_or(SeriesRefusal::NoRegion { region })?.size;
        if !size.holds(first, slots) {
            return Err(SeriesRefusal::Outside { region, first: first.0, slots, held: size.slots() });
        }
        if let Some(&place) = self.series.get(key) {
            return if place == SeriesPlace::of(placed) {
                Ok(SeriesPlacement::Existing)
            } else {
                Err(SeriesRefusal::Elsewhere)
            };
        }
        let end = first.0 + slots; // holds() checked that it does not overflow
        let before = self.occupied.range((region, Slot(0))..(region, Slot(end))).next_back();
        match before {
            Some((&(_, at), occupied)) if at.0 + occupied.slots > first.0 => {
                Err(SeriesRefusal::Occupied { region, first: at.0, retired: occupied.series.is_none() })
            }
            _ => Ok(SeriesPlacement::Free),
        }
    }

    /// Places a series after [`Self::check`] returned [`SeriesPlacement::Free`].
    pub fn place(&mut self, key: Arc<SeriesKey>, place: SeriesPlace, run: SlotRun, declared: Declaration) {
        if declared != Declaration::NONE {
            self.declared.insert(Arc::clone(&key), declared);
        }
        let (slots, weight) = (run.slots, key.weight(place.shards));
        self.occupied.insert((run.region, run.first), OccupiedSlots { slots, series: Some(Arc::clone(&key)), weight });
        self.series.insert(key, place);
    }

    /// Retires all series within `run`, and returns them with what was declared about them. Retires none if `run` cuts
    /// a series or contains retired slots.
    ///
    /// # Errors
    ///
    /// The first slot in the way.
    pub fn retire(&mut self, run: SlotRun) -> Result<Vec<(Arc<SeriesKey>, Declaration)>, Slot> {
        let end = run.first.0.saturating_add(run.slots);
        let touched: Vec<(Slot, OccupiedSlots)> = self
            .occupied
            .range((run.region, Slot(0))..(run.region, Slot(end)))
            .rev()
            .take_while(|((_, at), occupied)| at.0 + occupied.slots > run.first.0)
            .map(|(&(_, at), occupied)| (at, occupied.clone()))
            .collect();
        let whole = |at: Slot, occupied: &OccupiedSlots| {
            run.first <= at && at.0 + occupied.slots <= end && occupied.series.is_some() && !Self::is_agents(run.region)
        };
        if let Some((at, _)) = touched.iter().find(|(at, occupied)| !whole(*at, occupied)) {
            return Err(*at);
        }
        let mut retired = Vec::new();
        for (at, occupied) in touched {
            if let Some(key) = occupied.series.clone() {
                self.series.remove(&key);
                self.occupied.insert((run.region, at), OccupiedSlots { series: None, ..occupied });
                let declared = self.declared.remove(&key).unwrap_or(Declaration::NONE);
                retired.push((key, declared));
            }
        }
        Ok(retired)
    }

    /// Frees the retired slots within `run`. Returns what they were of the owner's share of series.
    pub fn free(&mut self, run: SlotRun) -> u64 {
        let end = run.first.0.saturating_add(run.slots);
        let within = (run.region, run.first)..(run.region, Slot(end));
        let freed: Vec<_> =
            self.occupied.range(within).filter(|(_, occupied)| occupied.series.is_none()).map(|(&at, _)| at).collect();
        freed.iter().filter_map(|at| self.occupied.remove(at)).map(|occupied| occupied.weight).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{counter, histogram, placed};
    use super::*;

    fn replica() -> Replica {
        let mut replica = Replica::new(
            ReplicaId(1),
            ServiceName::new("cart").unwrap(),
            InstanceName::new("cart-1").unwrap(),
            Owner::Agent,
        );
        replica.add_region(0, ReplicaRegion { id: RegionId(1), size: RegionSize::ONE_PAGE }, 2).unwrap();
        replica
    }

    fn add(replica: &mut Replica, placed: &PlacedSeries) -> Result<SeriesPlacement, SeriesRefusal> {
        let key = SeriesKey::of(&placed.series);
        let placing = replica.check(&key, placed)?;
        if placing == SeriesPlacement::Free {
            replica.place(Arc::new(key), SeriesPlace::of(placed), placed.run(), Declaration::NONE);
        }
        Ok(placing)
    }

    #[test]
    fn regions_are_bounded_and_named_once() {
        let mut replica = replica();
        let region = ReplicaRegion { id: RegionId(2), size: RegionSize::ONE_PAGE };

        assert!(matches!(replica.add_region(0, region, 2), Err(RegionRefusal::Twice)));
        assert!(replica.add_region(1, region, 2).is_ok());
        assert!(matches!(replica.add_region(2, region, 2), Err(RegionRefusal::TooMany { limit: 2 })));
        let agents = [(); 3].map(|()| replica.add_agent_region(region).ok());
        assert_eq!(agents, [Some(u32::MAX), Some(u32::MAX - 2), None], "they take no place from its own");
        assert!(replica.add_region(2, region, 3).is_ok());
        assert_eq!((replica.bytes(), replica.writes_itself()), (3 * 4_096, true));
    }

    #[test]
    fn a_series_lies_inside_a_region_on_slots_of_its_own() {
        let mut replica = replica();

        assert_eq!(add(&mut replica, &placed(counter("a"), 0, 3)).unwrap(), SeriesPlacement::Free);
        assert_eq!(add(&mut replica, &placed(counter("a"), 0, 3)).unwrap(), SeriesPlacement::Existing);
        assert!(matches!(add(&mut replica, &placed(counter("a"), 0, 4)), Err(SeriesRefusal::Elsewhere)));
        assert!(matches!(
            add(&mut replica, &placed(counter("b"), 0, 3)),
            Err(SeriesRefusal::Occupied { first: 3, retired: false, .. })
        ));
        assert!(matches!(add(&mut replica, &placed(histogram("h"), 0, 0)), Err(SeriesRefusal::Occupied { .. })));
        assert!(matches!(add(&mut replica, &placed(histogram("h"), 0, 503)), Err(SeriesRefusal::Outside { .. })));
        assert!(matches!(add(&mut replica, &placed(counter("c"), 7, 0)), Err(SeriesRefusal::NoRegion { region: 7 })));
        assert!(add(&mut replica, &placed(histogram("h"), 0, 4)).is_ok());
        assert!(matches!(
            add(&mut replica, &placed(counter("d"), 0, 100)),
            Err(SeriesRefusal::Occupied { first: 4, .. })
        ));
    }

    #[test]
    fn retired_slots_stay_taken_until_they_are_freed() {
        let mut replica = replica();
        add(&mut replica, &placed(counter("a"), 0, 3)).unwrap();
        let run = SlotRun { region: 0, first: Slot(3), slots: 1 };

        assert_eq!(replica.retire(run).unwrap().len(), 1);

        assert_eq!(replica.retire(run), Err(Slot(3)));
        assert!(matches!(
            add(&mut replica, &placed(counter("b"), 0, 3)),
            Err(SeriesRefusal::Occupied { retired: true, .. })
        ));
        replica.free(run);
        assert!(add(&mut replica, &placed(counter("b"), 0, 3)).is_ok());
    }

    #[test]
    fn a_run_that_cuts_a_series_retires_nothing() {
        let mut replica = replica();
        add(&mut replica, &placed(counter("a"), 0, 0)).unwrap();
        add(&mut replica, &placed(histogram("h"), 0, 1)).unwrap();

        assert_eq!(replica.retire(SlotRun { region: 0, first: Slot(0), slots: 5 }), Err(Slot(1)));

        assert_eq!(replica.series().len(), 2);
        assert_eq!(replica.retire(SlotRun { region: 0, first: Slot(0), slots: 504 }).unwrap().len(), 2);
    }
}
