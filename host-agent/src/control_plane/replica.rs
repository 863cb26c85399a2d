//! What one replica of a service has registered: regions, and in them runs of slots, each a series or retired.

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::id::{RegionId, ReplicaId};
use wire::layout::{RegionSize, Slot};
use wire::metric::Series;
use wire::name::{InstanceName, Labels, MetricName, ServiceName};
use wire::registration::{PlacedSeries, SlotRun};
use wire::time::Interval;

use super::refusal::{RegionRefusal, SeriesRefusal};

/// What identifies a series within a service: its name and labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeriesKey {
    pub name: MetricName,
    pub labels: Labels,
}

impl SeriesKey {
    pub fn of(series: &Series) -> Self {
        Self { name: series.name.clone(), labels: series.labels.clone() }
    }

    /// Bytes of its text.
    pub fn text_bytes(&self) -> usize {
        self.name.as_str().len() + self.labels.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>()
    }
}

/// A region of a replica.
#[derive(Clone, Copy, Debug)]
pub struct OwnRegion {
    pub id: RegionId,
    pub size: RegionSize,
}

/// Slots that may not be given to another series: in use by one, or retired and not yet forgotten by every worker.
#[derive(Clone, Debug)]
struct Taken {
    slots: u32,
    by: Option<Arc<SeriesKey>>,
}

/// A registered replica. It places its series itself, in regions that it owns; here is kept what it said, and that it does not
/// contradict itself.
#[derive(Debug)]
pub struct Replica {
    pub id: ReplicaId,
    pub service: ServiceName,
    pub instance: InstanceName,
    /// Its values change only so often, and its heartbeat words with them.
    pub changes_every: Option<Interval>,
    regions: BTreeMap<u32, OwnRegion>,
    /// Read by this agent, and by no worker.
    span_ring: Option<RegionSize>,
    taken: BTreeMap<(u32, Slot), Taken>,
    series: BTreeMap<Arc<SeriesKey>, (u32, Slot)>,
}

/// What placing a series would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// It is there already, at this place.
    Known,
    /// It is new and its slots are free.
    Free,
}

impl Replica {
    /// The number of the region in which the agent keeps its own values about this replica.
    pub const AGENT_REGION: u32 = u32::MAX;

    pub fn new(id: ReplicaId, service: ServiceName, instance: InstanceName) -> Self {
        Self {
            id,
            service,
            instance,
            changes_every: None,
            regions: BTreeMap::new(),
            span_ring: None,
            taken: BTreeMap::new(),
            series: BTreeMap::new(),
        }
    }

    pub fn regions(&self) -> impl Iterator<Item = (u32, OwnRegion)> {
        self.regions.iter().map(|(&number, &region)| (number, region))
    }

    pub fn series(&self) -> &BTreeMap<Arc<SeriesKey>, (u32, Slot)> {
        &self.series
    }

    pub fn region(&self, number: u32) -> Option<OwnRegion> {
        self.regions.get(&number).copied()
    }

    /// Bytes of all regions that the service itself brought.
    pub fn bytes(&self) -> u64 {
        let regions = self.regions().filter(|&(number, _)| number != Self::AGENT_REGION).map(|(_, region)| region.size);
        regions.chain(self.span_ring).map(|size| size.bytes() as u64).sum()
    }

    /// It has a span ring from now on; once.
    pub fn add_span_ring(&mut self, size: RegionSize) -> Result<(), RegionRefusal> {
        if self.span_ring.is_some() {
            return Err(RegionRefusal::Twice);
        }
        self.span_ring = Some(size);
        Ok(())
    }

    pub fn add_region(&mut self, number: u32, region: OwnRegion, limit: usize) -> Result<(), RegionRefusal> {
        if self.regions.contains_key(&number) {
            return Err(RegionRefusal::Twice);
        }
        if self.regions.len() >= limit && number != Self::AGENT_REGION {
            return Err(RegionRefusal::TooMany { limit });
        }
        self.regions.insert(number, region);
        Ok(())
    }

    /// Whether `placed` could be placed as it says.
    pub fn check(&self, key: &SeriesKey, placed: &PlacedSeries) -> Result<Placing, SeriesRefusal> {
        let SlotRun { region, first, slots } = placed.run();
        let size = self.regions.get(&region).ok_or(SeriesRefusal::NoRegion { region })?.size;
        if !size.holds(first, slots) {
            return Err(SeriesRefusal::Outside { region, first: first.0, slots, held: size.slots() });
        }
        if let Some(&place) = self.series.get(key) {
            return if place == (region, first) { Ok(Placing::Known) } else { Err(SeriesRefusal::Elsewhere) };
        }
        let end = first.0 + slots; // holds() checked that it does not overflow
        let before = self.taken.range((region, Slot(0))..(region, Slot(end))).next_back();
        match before {
            Some((&(_, at), taken)) if at.0 + taken.slots > first.0 => {
                Err(SeriesRefusal::Occupied { region, first: at.0, retired: taken.by.is_none() })
            }
            _ => Ok(Placing::Free),
        }
    }

    /// Places a series that [`Self::check`] found free.
    pub fn place(&mut self, key: Arc<SeriesKey>, run: SlotRun) {
        self.taken.insert((run.region, run.first), Taken { slots: run.slots, by: Some(Arc::clone(&key)) });
        self.series.insert(key, (run.region, run.first));
    }

    /// Retires all series within `run`, or, if it cuts one or takes in something retired already, none.
    ///
    /// # Errors
    ///
    /// The first slot of what is in the way.
    pub fn retire(&mut self, run: SlotRun) -> Result<Vec<Arc<SeriesKey>>, Slot> {
        let end = run.first.0.saturating_add(run.slots);
        let touched: Vec<(Slot, Taken)> = self
            .taken
            .range((run.region, Slot(0))..(run.region, Slot(end)))
            .rev()
            .take_while(|((_, at), taken)| at.0 + taken.slots > run.first.0)
            .map(|(&(_, at), taken)| (at, taken.clone()))
            .collect();
        let whole = |at: Slot, taken: &Taken| {
            run.first <= at && at.0 + taken.slots <= end && taken.by.is_some() && run.region != Self::AGENT_REGION
        };
        if let Some((at, _)) = touched.iter().find(|(at, taken)| !whole(*at, taken)) {
            return Err(*at);
        }
        let mut retired = Vec::new();
        for (at, taken) in touched {
            if let Some(key) = taken.by {
                self.series.remove(&key);
                self.taken.insert((run.region, at), Taken { slots: taken.slots, by: None });
                retired.push(key);
            }
        }
        Ok(retired)
    }

    /// Makes the retired slots within `run` free again.
    pub fn free(&mut self, run: SlotRun) {
        let end = run.first.0.saturating_add(run.slots);
        let within = (run.region, run.first)..(run.region, Slot(end));
        let freed: Vec<_> =
            self.taken.range(within).filter(|(_, taken)| taken.by.is_none()).map(|(&at, _)| at).collect();
        for at in freed {
            self.taken.remove(&at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{counter, histogram, placed};
    use super::*;

    fn replica() -> Replica {
        let mut replica =
            Replica::new(ReplicaId(1), ServiceName::new("cart").unwrap(), InstanceName::new("cart-1").unwrap());
        replica.add_region(0, OwnRegion { id: RegionId(1), size: RegionSize::ONE_PAGE }, 2).unwrap();
        replica
    }

    fn add(replica: &mut Replica, placed: &PlacedSeries) -> Result<Placing, SeriesRefusal> {
        let key = SeriesKey::of(&placed.series);
        let placing = replica.check(&key, placed)?;
        if placing == Placing::Free {
            replica.place(Arc::new(key), placed.run());
        }
        Ok(placing)
    }

    #[test]
    fn regions_are_bounded_and_named_once() {
        let mut replica = replica();
        let region = OwnRegion { id: RegionId(2), size: RegionSize::ONE_PAGE };

        assert!(matches!(replica.add_region(0, region, 2), Err(RegionRefusal::Twice)));
        assert!(replica.add_region(1, region, 2).is_ok());
        assert!(matches!(replica.add_region(2, region, 2), Err(RegionRefusal::TooMany { limit: 2 })));
        assert!(replica.add_region(Replica::AGENT_REGION, region, 2).is_ok());
    }

    #[test]
    fn a_series_lies_inside_a_region_on_slots_of_its_own() {
        let mut replica = replica();

        assert_eq!(add(&mut replica, &placed(counter("a"), 0, 3)).unwrap(), Placing::Free);
        assert_eq!(add(&mut replica, &placed(counter("a"), 0, 3)).unwrap(), Placing::Known);
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
