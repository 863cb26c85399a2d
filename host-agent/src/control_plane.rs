//! All decisions about services, LMAPs and workers. Does no I/O.
//!
//! A deterministic state machine. Events go in with the time; actions come out of [`ControlPlane::take_actions`]. Call
//! [`ControlPlane::poll`] after each event, and at the time that it returns. Everything is processed in the order of
//! ids.
//!
//! Rules (μView, Sec. 4.2; decisions D1, D2, D4):
//! - An LMAP is created with the first series of a service's first replica. It is deleted with the last replica, unless
//!   an operator created or configured it. After an operator has deleted it, it stays deleted until an operator creates
//!   it again.
//! - It runs on the connected worker with the least load (values per second). It moves when that worker leaves or is
//!   fenced, and to a worker that joins and has less to do. A worker that an operator drains loses all, and gets none.
//! - Each configuration change sent to a worker has an epoch of that worker. Slots and regions are released after every
//!   worker that may know them has acknowledged an epoch without them, or was fenced: its lease expired, another run
//!   took its number, or it acknowledged an epoch that was never sent.
//! - Messages about an outdated configuration are dropped and counted.

mod action;
mod catalogue;
mod connections;
pub(crate) mod container;
mod counters;
mod declarations;
mod declared;
mod drains;
mod incidents;
mod interval;
mod kept_models;
mod lmap;
mod lmap_move;
mod lmap_view;
mod members;
mod model_handover;
mod move_times;
mod moves;
mod numbers;
mod operators;
mod over_several;
mod placement;
mod pod_identity;
mod refusal;
mod release;
mod replica;
mod replica_facts;
mod report;
mod scores;
mod selection;
mod sent_config;
mod services;
mod settings;
mod shares;
mod span_rings;
mod streams;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod unregistered_regions;
mod verdicts;
mod worker;
mod workers;

use std::collections::{BTreeMap, BTreeSet};

use wire::id::{LmapId, Owner, WorkerId};
use wire::name::{MetricName, ServiceName};
use wire::time::{Interval, Nanos};

pub use self::incidents::Suspicion;
pub use action::{Action, ConnectionId, Deletion, Event, NamedReason, RowBatch};
pub use agent_runtime::access::Identity;
use agent_runtime::shares::Shares;
pub use counters::Counters;
pub use declared::DeclaredSettings;
pub use interval::{FastestChoice, IntervalChange, IntervalChoice, IntervalInEffect};
pub(crate) use kept_models::MAX_KEPT_MODELS;
pub use kept_models::{KeptModel, ModelKey};
pub use lmap_view::LmapView;
pub(crate) use members::{MAX_MEMBER_SERIES, MAX_MEMBER_TEXT};
pub use operators::{LmapOptions, MemberChoices, OperatorError, TrainedModel};
pub(crate) use operators::{MAX_CHOICE_BYTES, MAX_MODELS_BYTES};
pub(crate) use over_several::{MAX_MEMBER_REGIONS, MAX_OVER_SEVERAL};
pub use pod_identity::PodIdentity;
pub use refusal::{HelloRefusal, RegionRefusal, SeriesRefusal};
pub use replica_facts::ReplicaFacts;
pub use report::WorkerReadiness;
pub(crate) use report::group_shares;
pub use scores::LmapScore;
pub use selection::Choice;
pub use services::Descriptor;
pub use settings::{AggregationRule, IdentityRule, Limits, Peer, Settings};
pub use streams::StreamOutcome;
pub use worker::Drain;

use self::incidents::Incidents;
use catalogue::Catalogue;
use connections::Connections;
use kept_models::KeptModels;
use lmap::{Lmap, ProblemLog};
use move_times::MoveTimes;
use numbers::Numbers;
use release::{Release, Releases};
use shares::NodeShares;
use streams::WantedStreams;
use unregistered_regions::RdmaAccess;
use worker::Worker;

/// A service on this node.
#[derive(Debug, Default)]
struct Service {
    replicas: BTreeSet<ConnectionId>,
    catalogue: Catalogue,
    lmap: Option<LmapId>,
    /// Earlier LMAPs, which workers may still know.
    former: Vec<LmapId>,
    /// An operator deleted its LMAP.
    unwatched: bool,
}

/// The state of a node. See the module's documentation.
#[derive(Debug)]
pub struct ControlPlane {
    settings: Settings,
    connections: Connections,
    services: BTreeMap<ServiceName, Service>,
    lmaps: BTreeMap<LmapId, Lmap>,
    /// LMAPs over several services, also deleted ones that workers may still know.
    over_several: BTreeSet<LmapId>,
    incidents: Incidents,
    workers: BTreeMap<WorkerId, Worker>,
    /// Changed LMAPs, and when their workers are sent the change.
    due: BTreeMap<LmapId, Nanos>,
    releases: Releases,
    actions: Vec<Action>,
    counters: Counters,
    shares: NodeShares,
    /// Bytes of models, by operator.
    models: Shares<String>,
    problems: ProblemLog,
    rdma: RdmaAccess,
    /// Lowest share of γ at which a hook wants verdicts.
    wanted_share: f64,
    /// What detectors have learnt, for the next worker that runs their LMAP.
    kept: KeptModels,
    move_times: MoveTimes,
    numbers: Numbers,
    streams: WantedStreams,
}

impl ControlPlane {
    /// A control plane without services and workers.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            kept: KeptModels::new(settings.model_bytes),
            shares: NodeShares::new(&settings.limits),
            models: Shares::new("bytes of operators' models", "a limit of the program", operators::MAX_MODELS_BYTES),
            settings,
            connections: Connections::default(),
            services: BTreeMap::new(),
            lmaps: BTreeMap::new(),
            over_several: BTreeSet::new(),
            incidents: Incidents::default(),
            workers: BTreeMap::new(),
            due: BTreeMap::new(),
            releases: Releases::default(),
            actions: Vec::new(),
            counters: Counters::default(),
            problems: ProblemLog::default(),
            rdma: RdmaAccess::default(),
            wanted_share: f64::INFINITY,
            move_times: MoveTimes::default(),
            numbers: Numbers::default(),
            streams: WantedStreams::default(),
        }
    }

    /// The settings from the start.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Lets processes register as services by these rules from now on. Who has registered stays.
    pub fn set_identities(&mut self, rules: Vec<IdentityRule>) {
        self.settings.identities = rules;
    }

    /// Aggregates replicas by these rules from now on. LMAPs with a metric that is aggregated in another way than
    /// before go to their workers anew.
    pub fn set_aggregations(&mut self, now: Nanos, rules: Vec<AggregationRule>) {
        let before = core::mem::replace(&mut self.settings.aggregations, rules);
        let differs = |service: &ServiceName, name: &MetricName| {
            self.settings.aggregation(service, name) != settings::aggregation(&before, service, name)
        };
        let changed = self.lmaps.iter().filter(|(_, lmap)| match &lmap.members {
            None => lmap.numbers().keys().any(|key| differs(&lmap.service, &key.name)),
            // Each of its columns belongs to one of several services.
            Some(_) => before != self.settings.aggregations,
        });
        let changed: Vec<LmapId> = changed.map(|(id, _)| *id).collect();
        for id in changed {
            self.changed(id, now);
        }
    }

    /// The counters since the start.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What was refused since the start because its owner had its share, by bound.
    pub fn over_share(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.shares.refused()
    }

    /// What services hold of each bound of the node, by its name, and what there is of it.
    pub(crate) fn held(&self) -> [(&'static str, u64, u64); 5] {
        self.shares.held().map(|(bound, used, limit)| (bound.name(), used, limit))
    }

    /// Bytes of the models that operators have sent.
    pub fn model_bytes(&self) -> u64 {
        self.models.used()
    }

    /// Does what is due at `now`: closes connections without a hello, fences workers whose lease expired, sends changes
    /// that have settled, and releases slots and regions. Returns when to call again at the latest; [`Nanos::NEVER`] if
    /// nothing is due.
    pub fn poll(&mut self, now: Nanos) -> Nanos {
        self.close_late(now);
        self.shares.expire(now);
        self.expire_leases(now);
        self.move_lmaps(now);
        self.dismiss_leaving();
        self.send_due(now);
        self.track_unsent_releases();
        self.next_deadline()
    }

    /// Takes the pending actions, in order.
    #[must_use]
    pub fn take_actions(&mut self) -> Vec<Action> {
        self.send_accepted();
        core::mem::take(&mut self.actions)
    }

    /// Number of slot runs and regions that workers have yet to forget.
    #[must_use]
    pub fn pending_releases(&self) -> usize {
        self.releases.len()
    }

    fn next_deadline(&self) -> Nanos {
        let hello = self.connections.next_hello();
        let due = self.due.values().min().copied();
        let lease = self.lease_deadline();
        [hello, due, lease, self.next_move()].into_iter().flatten().min().unwrap_or(Nanos::NEVER)
    }

    /// The LMAP changed: its worker gets the change once it has settled.
    fn changed(&mut self, lmap: LmapId, now: Nanos) {
        let at = now.plus(self.settings.settle);
        self.due.entry(lmap).and_modify(|due| *due = at.min(*due)).or_insert(at);
    }

    /// The LMAP changed: its worker gets the change with the next poll.
    fn changed_now(&mut self, lmap: LmapId, now: Nanos) {
        self.due.insert(lmap, now);
    }

    /// Creates an LMAP for `service`, which has none.
    fn create_lmap(&mut self, service: &ServiceName, now: Nanos) -> LmapId {
        let id = self.numbers.next_lmap();
        let mut lmap = Lmap::new(id, service.clone(), self.interval_of(service));
        let entry = self.services.entry(service.clone()).or_default();
        entry.unwatched = false;
        entry.lmap = Some(id);
        lmap.reselect(&entry.catalogue);
        self.lmaps.insert(id, lmap);
        self.counters.created_lmaps += 1;
        self.actions.push(Action::LmapCreated { lmap: id, service: service.clone() });
        self.changed(id, now);
        id
    }

    /// Default interval of an LMAP of `service`: one row per change of what changes most often, but not below the
    /// configured interval. Values that change less often hold between rows. Replicas without a value count if there
    /// are no others: for one that has just come back, the kept model is of the interval that it will have.
    fn interval_of(&self, service: &ServiceName) -> Interval {
        let usual = self.settings.interval;
        let each = || {
            let replicas = self.replicas_of(service);
            replicas.map(|of| (of.series().is_empty(), of.changes_every.map_or(usual, |every| every.max(usual))))
        };
        let with_values = each().filter(|(is_empty, _)| !is_empty).map(|(_, every)| every).min();
        with_values.or_else(|| each().map(|(_, every)| every).min()).unwrap_or(usual)
    }

    /// Who pays for the replica of `connection`.
    fn owner_of(&self, connection: ConnectionId) -> Option<Owner> {
        Some(self.connections.replica(connection)?.owner)
    }

    fn service_of(&self, connection: ConnectionId) -> Option<ServiceName> {
        Some(self.connections.replica(connection)?.service.clone())
    }

    /// Removes an LMAP. Its worker is told with the next poll.
    fn remove_lmap(&mut self, id: LmapId, now: Nanos, deletion: Deletion) {
        let Some(lmap) = self.lmaps.remove(&id) else {
            return;
        };
        self.models.release(&lmap.model_by, lmap.model.bytes() as u64);
        self.counters.deleted_lmaps += 1;
        self.actions.push(Action::LmapDeleted { lmap: id, service: lmap.service.clone(), deletion });
        self.changed_now(id, now);
        self.forget_over_several();
        let workers = &self.workers;
        let due = &self.due;
        if let Some(service) = self.services.get_mut(&lmap.service) {
            service.lmap = None;
            let may_be_known =
                |id: &LmapId| due.contains_key(id) || workers.values().any(|worker| worker.may_know(*id));
            service.former.push(id);
            service.former.retain(may_be_known);
        }
    }

    /// Defers a release until every worker that knows an LMAP of `service` has forgotten it. One over several services
    /// may have had it, whichever it has now.
    fn defer_release(&mut self, service: &ServiceName, release: Release) {
        let lmaps = self
            .services
            .get(service)
            .map_or_else(Vec::new, |service| service.former.iter().copied().chain(service.lmap).collect::<Vec<_>>());
        let lmaps = lmaps.into_iter().chain(self.over_several.iter().copied()).collect();
        self.releases.defer(release, lmaps);
    }
}
