//! One LMAP in the control plane: what it watches, which worker runs it, and its latest summary.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use wire::control::{DetectorSpec, LmapSpec, MetricPlace, MetricSpec, Reason, RegionSpec, ReplicaSpec};
use wire::id::{Epoch, LmapId, MetricId, Owner, WorkerId};
use wire::metric::{Aggregation, Series, TickDivider, stride};
use wire::name::ServiceName;
use wire::printable;
use wire::proto::control as proto;
use wire::time::{Interval, Nanos, UnixNanos};

use super::catalogue::Catalogue;
use super::declarations::Declarations;
use super::footprint;
use super::interval_choice::FastestChoice;
use super::lmap_move::Move;
use super::members::{Members, concerned_by};
use super::paces;
use super::replica::{Replica, SeriesKey};
use super::selection::{Choice, Selection, WatchRule};
use super::sent_config::SentConfig;
use super::settings::Settings;
use super::slowdown::Slowdown;
use super::trained_model::TrainedModel;

/// The latest state that a worker reported.
#[derive(Debug, Default)]
pub struct Health {
    pub summary: Option<proto::LmapSummary>,
    pub at: UnixNanos,
    /// The score of the last row that was judged; summaries come more often than rows may.
    pub last_score: Option<f32>,
    pub alarm: bool,
    pub alarms: u64,
    /// Of an LMAP over several services, in alarm: those that its last verdict concerned.
    pub concerned: Vec<ServiceName>,
}

/// One LMAP, placed on a worker or not.
#[derive(Debug)]
pub struct Lmap {
    pub id: LmapId,
    /// The service that it watches, or its own name if it watches several.
    pub service: ServiceName,
    /// The services that it watches, if they are several.
    pub members: Option<Members>,
    pub interval: Interval,
    /// Its interval if no metric asks for another; `None`: an operator set the interval.
    pub usual_interval: Option<Interval>,
    /// Its way back to a longer interval.
    pub slowdown: Slowdown,
    /// The operator who set the interval; empty: nobody did, or with `NewLmap`.
    pub interval_by: String,
    /// How often it is fetched while something seems wrong.
    pub fastest: FastestChoice,
    /// Time between two fetches now, if it is fetched faster than its rows are due.
    pub pace: Option<Interval>,
    pub model: TrainedModel,
    /// The operator who brought the model.
    pub model_by: String,
    pub detector: DetectorSpec,
    /// An operator created or configured it: it outlives the last replica.
    pub pinned: bool,
    pub selection: Selection,
    numbers: BTreeMap<Arc<SeriesKey>, MetricId>,
    last_number: u32,
    pub worker: Option<WorkerId>,
    pub sent: Option<SentConfig>,
    /// Its move to another worker.
    pub moving: Option<Move>,
    /// When its last move began.
    pub move_begun: Nanos,
    /// The epoch of its worker in which an operator had it fitted again.
    pub refitted: Epoch,
    /// Row stride of the subscription; 0 is none.
    pub rows_every: u32,
    /// Whether its verdicts carry their row.
    pub features: bool,
    /// Whether its summaries carry each column, for somebody who looks at it.
    pub looked_at: bool,
    pub health: Health,
}

impl Lmap {
    pub fn new(id: LmapId, service: ServiceName, interval: Interval) -> Self {
        Self {
            id,
            service,
            members: None,
            interval,
            usual_interval: Some(interval),
            slowdown: Slowdown::default(),
            interval_by: String::new(),
            fastest: FastestChoice::Default,
            pace: None,
            model: TrainedModel::default(),
            model_by: String::new(),
            detector: DetectorSpec::default(),
            pinned: false,
            selection: Selection::default(),
            numbers: BTreeMap::new(),
            last_number: 0,
            worker: None,
            sent: None,
            moving: None,
            move_begun: Nanos::ZERO,
            refitted: Epoch::NONE,
            rows_every: 0,
            features: false,
            looked_at: false,
            health: Health::default(),
        }
    }

    /// What its worker is asked for beside verdicts and summaries; `None`: nothing.
    pub fn subscription(&self) -> Option<proto::SubscribeRows> {
        let Self { id, rows_every: every, features, looked_at: columns, .. } = *self;
        (every > 0 || features || columns).then_some(proto::SubscribeRows { lmap: id.0, every, features, columns })
    }

    /// The watched series, with their metric ids.
    pub fn numbers(&self) -> &BTreeMap<Arc<SeriesKey>, MetricId> {
        &self.numbers
    }

    /// Bytes that its metric ids and the configurations that were sent take, as they were asked for.
    pub fn kept_bytes(&self) -> usize {
        let sent = self.sent.iter().chain(self.moving.as_ref().and_then(Move::sent));
        footprint::of_tree::<Arc<SeriesKey>, MetricId>(self.numbers.len())
            + sent.map(SentConfig::kept_bytes).sum::<usize>()
    }

    /// The series of `metric`.
    pub fn key_of(&self, metric: MetricId) -> Option<&Arc<SeriesKey>> {
        self.numbers.iter().find(|(_, number)| **number == metric).map(|(key, _)| key)
    }

    /// Load on its worker: values per second.
    pub fn load(&self) -> f64 {
        self.numbers.len().max(1) as f64 / self.interval.length().as_secs_f64()
    }

    /// A series was registered. If it is watched, it gets a metric id.
    pub fn series_added(&mut self, key: &Arc<SeriesKey>, series: &Series) {
        self.selection.registered(&key.name);
        if self.selection.watches(series) {
            self.number(key);
        }
    }

    /// Only these series are watched, and derived columns.
    pub fn number_only<'a>(&mut self, keys: impl Iterator<Item = &'a Arc<SeriesKey>>) {
        let derived = self.selection.derived().map(|(_, series)| Arc::new(SeriesKey::of(&series)));
        let watched: BTreeSet<Arc<SeriesKey>> = keys.cloned().chain(derived).collect();
        self.numbers.retain(|key, _| watched.contains(key));
        for key in &watched {
            self.number(key);
        }
    }

    fn number(&mut self, key: &Arc<SeriesKey>) {
        if !self.numbers.contains_key(key) {
            self.last_number += 1;
            self.numbers.insert(Arc::clone(key), MetricId(self.last_number));
        }
    }

    /// A series was removed from all replicas.
    pub fn series_removed(&mut self, key: &SeriesKey) {
        if self.selection.choice(&key.name).is_none_or(|choice| choice.derived_series().is_none()) {
            self.numbers.remove(key);
        }
    }

    /// Applies a changed selection.
    pub fn reselect(&mut self, catalogue: &Catalogue) {
        let Self { numbers, selection, .. } = self;
        let derived: Vec<_> = selection.derived().map(|(_, series)| Arc::new(SeriesKey::of(&series))).collect();
        numbers.retain(|key, _| {
            derived.contains(key) || catalogue.get(key).is_some_and(|series| selection.watches(series))
        });
        for (key, series) in catalogue.iter() {
            self.series_added(key, series);
        }
        for key in &derived {
            self.number(key);
        }
    }

    /// How `series` is watched: as an operator chose, else as the configuration has it, else as the service declares,
    /// else by its kind.
    pub fn watch(&self, key: &SeriesKey, series: &Series, catalogue: &Catalogue, settings: &Settings) -> WatchRule {
        let chosen = self.selection.choice(&series.name);
        self.watch_of((&self.service, chosen), (key, series), catalogue, settings)
    }

    /// The same for a series of `service`, for which an operator has `chosen` that.
    pub fn watch_of(
        &self,
        (service, chosen): (&ServiceName, Option<&Choice>),
        (key, series): (&SeriesKey, &Series),
        catalogue: &Catalogue,
        settings: &Settings,
    ) -> WatchRule {
        let declared = catalogue.declared(key).map(Declarations::in_effect);
        let (declared, period) = declared.unwrap_or_default();
        let by = |decided_by: &'static str| move |aggregation: Aggregation| (aggregation, decided_by);
        let (aggregation, decided_by) = chosen
            .and_then(|choice| choice.aggregation.clone().map(by("operator")))
            .or_else(|| settings.aggregation(service, &series.name).cloned().map(by("configuration")))
            .or_else(|| declared.map(by("service")))
            .unwrap_or_else(|| (Aggregation::default_for(series.kind), "kind"));
        let asked = chosen.and_then(|choice| choice.every);
        let asked = asked.or_else(|| period.map(|period| stride(period.length(), self.interval)));
        let every = asked.unwrap_or(TickDivider::MIN).max(settings.every(&series.name, self.interval));
        WatchRule { aggregation, every, decided_by }
    }

    /// The columns that are derived from others, with their metric ids.
    pub fn derived(&self) -> impl Iterator<Item = MetricSpec> {
        self.selection.derived().filter_map(|(choice, series)| {
            let id = *self.numbers.get(&SeriesKey::of(&series))?;
            let aggregation = choice.aggregation.clone()?;
            Some(MetricSpec { id, series, aggregation, every: TickDivider::MIN })
        })
    }

    /// Of an LMAP over several services, as it was sent: those whose columns are among `reasons`, all if none is.
    pub fn concerned(&self, reasons: &[Reason]) -> Vec<ServiceName> {
        let Some(sent) = &self.sent else { return Vec::new() };
        let metrics = reasons.iter().filter_map(|reason| sent.metric(reason.metric));
        let of = metrics.flat_map(|of| concerned_by(&sent.services, of.series.name.as_str(), &of.aggregation));
        let of: BTreeSet<ServiceName> = of.collect();
        if of.is_empty() { sent.services.clone() } else { of.into_iter().collect() }
    }

    /// Whether `worker` runs it, or it is moving there.
    pub fn is_on(&self, worker: WorkerId) -> bool {
        self.worker == Some(worker) || self.moving.as_ref().is_some_and(|moving| moving.to == Some(worker))
    }

    /// Whether a move costs nothing that was learnt: its detector is armed, or has hardly begun. Not during an alarm.
    pub fn may_move(&self) -> bool {
        let state = self.health.summary.as_ref().map(|summary| (summary.state(), summary.rows, summary.rows_needed));
        let is_costless = match state {
            None | Some((proto::State::Armed | proto::State::Drifted, ..)) => true,
            Some((_, rows, needed)) => rows * 4 < needed,
        };
        // Its worker alone knows the interval that judges until another one is learnt.
        let learns = self.health.summary.as_ref().is_some_and(|summary| summary.learning_us > 0);
        is_costless && !learns && !self.health.alarm && self.moving.is_none()
    }

    /// Whether it stays when the last replica of its service has gone.
    pub fn outlives_replicas(&self) -> bool {
        self.pinned || !self.model.is_empty()
    }

    /// Whether an operator has given it a model of rows every `interval`.
    pub fn has_model_of(&self, interval: Interval) -> bool {
        !self.model.is_empty() && self.model.is_of(interval)
    }

    /// The operator's model by which it judges; `None`: it has none, or one of rows at another interval.
    pub fn model_in_use(&self) -> Option<&TrainedModel> {
        self.has_model_of(self.interval).then_some(&self.model)
    }

    /// Whether it judges rows, as far as is known.
    pub fn is_armed(&self) -> bool {
        let state = self.health.summary.as_ref().map(proto::LmapSummary::state);
        matches!(state, Some(proto::State::Armed | proto::State::Drifted | proto::State::Silent))
    }

    /// Takes the LMAP off its worker.
    pub fn unplace(&mut self) {
        self.worker = None;
        self.sent = None;
        self.refitted = Epoch::NONE;
        self.pace = None;
        self.health.alarm = false;
        self.health.concerned = Vec::new();
        self.health.summary = None;
        self.health.last_score = None;
    }

    /// The configuration for a worker; `None` if there is nothing to watch.
    pub fn spec<'a>(
        &self,
        catalogue: &Catalogue,
        replicas: impl Iterator<Item = &'a Replica>,
        settings: &Settings,
    ) -> Option<LmapSpec> {
        let replicas: Vec<&Replica> = replicas.collect();
        let mut metrics: Vec<MetricSpec> = self
            .numbers
            .iter()
            .filter_map(|(key, &id)| {
                let series = catalogue.get(key)?.clone();
                let WatchRule { aggregation, every, .. } = self.watch(key, &series, catalogue, settings);
                let every = every.max(self.changes_every(key, &replicas));
                Some(MetricSpec { id, series, aggregation, every })
            })
            .filter(|metric| !matches!(metric.aggregation, Aggregation::Derived(_)))
            .chain(self.derived())
            .collect();
        metrics.sort_by_key(|metric| metric.id);
        let number = |key: &SeriesKey| self.numbers.get(key).copied();
        let fastest = paces::bounded(self.fastest.in_effect(settings.adaptive), replicas.iter().copied());
        let replicas: Vec<_> =
            replicas.into_iter().map(|replica| Self::replica_spec(replica, number, replica.owner)).collect();
        let placed = replicas.iter().any(|replica| !replica.places.is_empty());
        placed.then(|| LmapSpec {
            id: self.id,
            service: self.service.clone(),
            interval: self.interval,
            heartbeat: settings.heartbeat,
            metrics,
            replicas,
            model: self.model_in_use().map(TrainedModel::to_vec).unwrap_or_default(),
            detector: self.detector,
            several_services: false,
            fastest,
        })
    }

    /// Stride at which a series is read whose replicas all change more slowly than rows are made: it holds its value
    /// between, instead of missing.
    pub fn changes_every(&self, key: &SeriesKey, replicas: &[&Replica]) -> TickDivider {
        let row = self.interval.nanos().get();
        let period = |replica: &&Replica| replica.changes_every.map_or(0, |every| every.nanos().get());
        if replicas.iter().all(|replica| period(replica) <= row) {
            return TickDivider::MIN;
        }
        let of = replicas.iter().filter(|replica| replica.series().contains_key(key));
        let fastest = of.map(period).min().unwrap_or(0);
        TickDivider::new(fastest.div_ceil(row) as u32).unwrap_or(TickDivider::MIN)
    }

    /// The regions with series that have a `number`, for which `payer` pays, and the first region for its heartbeat. A
    /// replica with `changes_every` has no heartbeat: its word announces changed values, and workers read it like the
    /// agent's own regions.
    pub fn replica_spec(
        replica: &Replica,
        number: impl Fn(&SeriesKey) -> Option<MetricId>,
        payer: Owner,
    ) -> ReplicaSpec {
        let mut places: Vec<_> = replica
            .series()
            .iter()
            .filter_map(|(key, place)| {
                let metric = number(key)?;
                let region = replica.region(place.region)?.id;
                Some(place.slots().map(move |first| MetricPlace { metric, region, first }))
            })
            .flatten()
            .collect();
        places.sort_by_key(|place| (place.metric, place.first));
        let watched: BTreeSet<_> = places.iter().map(|place| place.region).collect();
        let first = replica.regions().map(|(number, _)| number).find(|&number| !Replica::is_agents(number));
        let first = first.filter(|_| replica.changes_every.is_none());
        let regions = replica
            .regions()
            .map(|(number, region)| (Some(number) == first, number, region))
            .filter(|(heartbeat, _, region)| *heartbeat || watched.contains(&region.id))
            .map(|(heartbeat, number, region)| {
                let (id, size, sample_times) = (region.id, region.size, replica.tells_times(number));
                RegionSpec { id, size, heartbeat, address: 0, rkey: 0, sample_times }
            })
            .collect();
        ReplicaSpec { id: replica.id, instance: replica.instance.clone(), owner: payer, regions, places }
    }
}

/// The latest problems, a bounded number.
#[derive(Debug, Default)]
pub struct ProblemLog(VecDeque<String>);

impl ProblemLog {
    const LIMIT: usize = 64;

    /// Adds a line. Its control characters are written out: services and workers have a say in it.
    pub fn push(&mut self, line: &str) {
        let line = printable::line(line).into_owned();
        // Repeated failures have the same text: keep one line, at the newest position.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_that_others_have_a_say_in_are_one_line_without_control_characters_and_bounded() {
        let mut problems = ProblemLog::default();

        for at in 0..100 {
            problems.push(&format!("cart: \u{1b}[2Jseries {at}\nall is well\u{9b}\u{202e}"));
        }

        assert_eq!(problems.lines().len(), ProblemLog::LIMIT);
        assert_eq!(problems.lines()[63], "cart: \\u{1b}[2Jseries 99\\u{a}all is well\\u{9b}\\u{202e}");
    }
}
