//! What the control plane knows of a node: services, LMAPs, workers, and what is to be done about them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agent_runtime::shares::Shares;
use wire::id::{LmapId, Owner, WorkerId};
use wire::name::{MetricName, ServiceName};
use wire::time::Nanos;

use super::action::{Action, ConnectionId, Deletion};
use super::catalogue::Catalogue;
use super::connections::Connections;
use super::counters::Counters;
use super::incidents::Incidents;
use super::kept_models::KeptModels;
use super::lmap::{Lmap, ProblemLog};
use super::lmap_options::MAX_MODELS_BYTES;
use super::move_times::MoveTimes;
use super::numbers::Numbers;
use super::paces::Paces;
use super::rdma_access::RdmaAccess;
use super::release::{Release, Releases};
use super::settings::{self, AggregationRule, IdentityRule, Settings};
use super::shares::NodeShares;
use super::wanted_streams::WantedStreams;
use super::worker::Worker;

/// A service on this node.
#[derive(Debug, Default)]
pub(super) struct Service {
    pub(super) replicas: BTreeSet<ConnectionId>,
    pub(super) catalogue: Catalogue,
    pub(super) lmap: Option<LmapId>,
    /// Earlier LMAPs, which workers may still know.
    pub(super) former: Vec<LmapId>,
    /// An operator deleted its LMAP.
    pub(super) unwatched: bool,
}

/// The state of a node, and all decisions about it, by the rules of [`control_plane`](super).
#[derive(Debug)]
pub struct ControlPlane {
    pub(super) settings: Settings,
    pub(super) connections: Connections,
    pub(super) services: BTreeMap<ServiceName, Service>,
    pub(super) lmaps: BTreeMap<LmapId, Lmap>,
    /// LMAPs over several services, also deleted ones that workers may still know.
    pub(super) over_several: BTreeSet<LmapId>,
    pub(super) incidents: Incidents,
    pub(super) workers: BTreeMap<WorkerId, Worker>,
    /// Changed LMAPs, and when their workers are sent the change.
    pub(super) due: BTreeMap<LmapId, Nanos>,
    pub(super) releases: Releases,
    pub(super) actions: Vec<Action>,
    pub(super) counters: Counters,
    pub(super) shares: NodeShares,
    /// Bytes of models, by operator.
    pub(super) models: Shares<String>,
    pub(super) problems: ProblemLog,
    pub(super) rdma: RdmaAccess,
    /// Lowest share of γ at which a hook wants verdicts.
    pub(super) wanted_share: f64,
    /// What detectors have learnt, for the next worker that runs their LMAP.
    pub(super) kept: KeptModels,
    pub(super) move_times: MoveTimes,
    pub(super) numbers: Numbers,
    pub(super) streams: WantedStreams,
    /// Services that are fetched faster, as was told last.
    pub(super) paces: Paces,
}

impl ControlPlane {
    /// A control plane without services and workers.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            kept: KeptModels::new(settings.model_bytes),
            shares: NodeShares::new(&settings.limits),
            models: Shares::new("bytes of operators' models", "a limit of the program", MAX_MODELS_BYTES),
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
            paces: Paces::default(),
        }
    }

    /// The settings from the start.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Lets processes register as services by these rules from now on. Who has registered stays.
    pub fn set_identities(&mut self, rules: Arc<[IdentityRule]>) {
        self.settings.identities = rules;
    }

    /// The rules of now: others after each change.
    #[must_use]
    pub fn identities(&self) -> Arc<[IdentityRule]> {
        Arc::clone(&self.settings.identities)
    }

    /// What the configuration leaves open from now on, in words.
    pub fn set_warnings(&mut self, warnings: Vec<String>) {
        self.settings.warnings = warnings;
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

    /// Does what is due at `now`: closes connections without a hello, fences workers whose lease expired, takes longer
    /// intervals that were waited for, sends changes that have settled, tells which services are fetched faster, and
    /// releases slots and regions. Returns when to call again at the latest; [`Nanos::NEVER`] if nothing is due.
    pub fn poll(&mut self, now: Nanos) -> Nanos {
        self.close_late(now);
        self.shares.expire(now);
        self.expire_leases(now);
        self.move_lmaps(now);
        self.dismiss_leaving();
        self.slow_down(now);
        self.send_due(now);
        self.tell_paces();
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
        [hello, due, lease, self.next_move(), self.next_slowdown()].into_iter().flatten().min().unwrap_or(Nanos::NEVER)
    }

    /// The LMAP changed: its worker gets the change once it has settled.
    pub(super) fn changed(&mut self, lmap: LmapId, now: Nanos) {
        let at = now.plus(self.settings.settle);
        self.due.entry(lmap).and_modify(|due| *due = at.min(*due)).or_insert(at);
    }

    /// The LMAP changed: its worker gets the change with the next poll.
    pub(super) fn changed_now(&mut self, lmap: LmapId, now: Nanos) {
        self.due.insert(lmap, now);
    }

    /// Creates an LMAP for `service`, which has none.
    pub(super) fn create_lmap(&mut self, service: &ServiceName, now: Nanos) -> LmapId {
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

    /// Who pays for the replica of `connection`.
    pub(super) fn owner_of(&self, connection: ConnectionId) -> Option<Owner> {
        Some(self.connections.replica(connection)?.owner)
    }

    pub(super) fn service_of(&self, connection: ConnectionId) -> Option<ServiceName> {
        Some(self.connections.replica(connection)?.service.clone())
    }

    /// Removes an LMAP. Its worker is told with the next poll.
    pub(super) fn remove_lmap(&mut self, id: LmapId, now: Nanos, deletion: Deletion) {
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
    pub(super) fn defer_release(&mut self, service: &ServiceName, release: Release) {
        let lmaps = self
            .services
            .get(service)
            .map_or_else(Vec::new, |service| service.former.iter().copied().chain(service.lmap).collect::<Vec<_>>());
        let lmaps = lmaps.into_iter().chain(self.over_several.iter().copied()).collect();
        self.releases.defer(release, lmaps);
    }
}
