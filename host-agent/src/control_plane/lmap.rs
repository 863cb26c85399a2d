//! One LMAP as the control plane knows it: what it watches, who runs it, and what it last said.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use wire::control::{DetectorSpec, LmapSpec, MetricSpec, Place, RegionSpec, ReplicaSpec};
use wire::id::{Epoch, LmapId, MetricId, ReplicaId, WorkerId};
use wire::metric::{Aggregation, Every, Series};
use wire::name::{InstanceName, ServiceName};
use wire::proto::control as proto;
use wire::time::Interval;

use super::catalogue::Catalogue;
use super::replica::{Replica, SeriesKey};
use super::selection::Selection;
use super::settings::Settings;

/// The configuration that a worker was last told.
#[derive(Debug)]
pub struct Told {
    pub epoch: Epoch,
    /// In the order of their ids.
    pub metrics: Vec<MetricSpec>,
    pub replicas: BTreeMap<ReplicaId, InstanceName>,
    /// Titles of the columns, in the order of a row.
    pub columns: Arc<[String]>,
}

/// What an LMAP last said.
#[derive(Debug, Default)]
pub struct Health {
    pub summary: Option<proto::LmapSummary>,
    pub at_unix_ns: u64,
    pub alarm: bool,
    pub alarms: u64,
}

/// One LMAP.
#[derive(Debug)]
pub struct Lmap {
    pub id: LmapId,
    pub service: ServiceName,
    pub interval: Interval,
    pub model: Vec<u8>,
    pub detector: DetectorSpec,
    /// An operator made or configured it: it outlives the last replica.
    pub kept: bool,
    pub selection: Selection,
    numbers: BTreeMap<Arc<SeriesKey>, MetricId>,
    last_number: u32,
    pub worker: Option<WorkerId>,
    pub told: Option<Told>,
    /// Every so many rows are subscribed to; 0 is none.
    pub rows_every: u32,
    pub health: Health,
}

impl Lmap {
    pub fn new(id: LmapId, service: ServiceName, interval: Interval) -> Self {
        Self {
            id,
            service,
            interval,
            model: Vec::new(),
            detector: DetectorSpec::default(),
            kept: false,
            selection: Selection::default(),
            numbers: BTreeMap::new(),
            last_number: 0,
            worker: None,
            told: None,
            rows_every: 0,
            health: Health::default(),
        }
    }

    /// The series that it watches and their numbers.
    pub fn numbers(&self) -> &BTreeMap<Arc<SeriesKey>, MetricId> {
        &self.numbers
    }

    /// The series of `metric`.
    pub fn key_of(&self, metric: MetricId) -> Option<&Arc<SeriesKey>> {
        self.numbers.iter().find(|(_, number)| **number == metric).map(|(key, _)| key)
    }

    /// What its worker has to do: values per second.
    pub fn load(&self) -> f64 {
        self.numbers.len().max(1) as f64 / self.interval.length().as_secs_f64()
    }

    /// A series was registered: it gets a number if it is watched.
    pub fn appeared(&mut self, key: &Arc<SeriesKey>) {
        if self.selection.watches(key) && !self.numbers.contains_key(key) {
            self.last_number += 1;
            self.numbers.insert(Arc::clone(key), MetricId(self.last_number));
        }
    }

    /// A series is gone from every replica.
    pub fn vanished(&mut self, key: &SeriesKey) {
        self.numbers.remove(key);
    }

    /// The selection changed.
    pub fn select_again(&mut self, catalogue: &Catalogue) {
        let Self { numbers, selection, .. } = self;
        numbers.retain(|key, _| selection.watches(key));
        for (key, _) in catalogue.iter() {
            self.appeared(key);
        }
    }

    /// How `series` is watched.
    pub fn how(&self, series: &Series, settings: &Settings) -> (Aggregation, Every) {
        let (aggregation, every) = self.selection.how(&series.name, series.kind);
        (aggregation, every.max(settings.every(&series.name, self.interval)))
    }

    /// It runs nowhere any more.
    pub fn unplace(&mut self) {
        self.worker = None;
        self.told = None;
        self.health.alarm = false;
        self.health.summary = None;
    }

    /// Its configuration; `None` if there is nothing to watch.
    pub fn spec<'a>(
        &self,
        catalogue: &Catalogue,
        replicas: impl Iterator<Item = &'a Replica>,
        settings: &Settings,
    ) -> Option<LmapSpec> {
        let mut metrics: Vec<MetricSpec> = self
            .numbers
            .iter()
            .filter_map(|(key, &id)| {
                let series = catalogue.get(key)?.clone();
                let (aggregation, every) = self.how(&series, settings);
                Some(MetricSpec { id, series, aggregation, every })
            })
            .collect();
        metrics.sort_by_key(|metric| metric.id);
        let replicas: Vec<_> = replicas.map(|replica| self.replica_spec(replica)).collect();
        let placed = replicas.iter().any(|replica| !replica.places.is_empty());
        placed.then(|| LmapSpec {
            id: self.id,
            service: self.service.clone(),
            interval: self.interval,
            heartbeat: settings.heartbeat,
            metrics,
            replicas,
            model: self.model.clone(),
            detector: self.detector,
        })
    }

    /// The regions with something watched in them, and the first one for its heartbeat: not where that word says that values have changed, and a worker
    /// reads them as it reads what the agent itself samples.
    fn replica_spec(&self, replica: &Replica) -> ReplicaSpec {
        let mut places: Vec<_> = replica
            .series()
            .iter()
            .filter_map(|(key, &(number, first))| {
                let metric = *self.numbers.get(key)?;
                Some(Place { metric, region: replica.region(number)?.id, first })
            })
            .collect();
        places.sort_by_key(|place| place.metric);
        let watched: std::collections::BTreeSet<_> = places.iter().map(|place| place.region).collect();
        let first = replica.regions().map(|(number, _)| number).find(|&number| number != Replica::AGENT_REGION);
        let first = first.filter(|_| replica.changes_every.is_none());
        let regions = replica
            .regions()
            .map(|(number, region)| (Some(number) == first, region))
            .filter(|(heartbeat, region)| *heartbeat || watched.contains(&region.id))
            .map(|(heartbeat, region)| RegionSpec { id: region.id, size: region.size, heartbeat, address: 0, rkey: 0 })
            .collect();
        ReplicaSpec { id: replica.id, instance: replica.instance.clone(), regions, places }
    }
}

impl Told {
    pub fn new(epoch: Epoch, spec: LmapSpec) -> Self {
        let columns = spec
            .metrics
            .iter()
            .flat_map(|m| m.series.kind.statistics().iter().map(|&statistic| m.series.column_title(statistic)))
            .collect();
        let replicas = spec.replicas.into_iter().map(|replica| (replica.id, replica.instance)).collect();
        Self { epoch, metrics: spec.metrics, replicas, columns }
    }

    /// What it was told of `metric`.
    pub fn metric(&self, metric: MetricId) -> Option<&MetricSpec> {
        let at = self.metrics.binary_search_by_key(&metric, |spec| spec.id).ok()?;
        self.metrics.get(at)
    }
}

/// The last lines of something, bounded.
#[derive(Debug, Default)]
pub struct Latest(VecDeque<String>);

impl Latest {
    const LIMIT: usize = 64;

    pub fn push(&mut self, line: String) {
        // What is tried again and again fails with the same words: once is enough, where the newest is.
        self.0.retain(|known| *known != line);
        if self.0.len() == Self::LIMIT {
            self.0.pop_front();
        }
        self.0.push_back(line);
    }

    pub fn lines(&self) -> Vec<String> {
        self.0.iter().cloned().collect()
    }
}
