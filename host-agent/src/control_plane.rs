//! Decides everything about services, LMAPs and workers; does nothing itself.
//!
//! A deterministic state machine: what happened goes in with the time, what is to be done comes out of [`ControlPlane::take_actions`]. Call
//! [`ControlPlane::poll`] after each event and when the time that it returns has come. The order of everything is that of ids.
//!
//! Rules (μView, Sec. 4.2; ARCHITECTURE.md, D1, D2, D4):
//! - An LMAP is made when the first series of a service's first replica comes, and freed when its last replica is gone, unless an
//!   operator made or configured it. A deleted one stays deleted until an operator makes it again.
//! - It runs on the connected worker with the least load (values per second) and stays there until that worker is fenced.
//! - Each change that a worker is told has an epoch of that worker. Slots and regions are released only after each worker that may know
//!   them has acknowledged an epoch without them, or was fenced: its lease ran out, another run took its number, or it acknowledged
//!   what was never sent.
//! - What is said about another configuration than the present one is dropped and counted.

mod action;
mod catalogue;
mod counters;
mod incidents;
mod lmap;
mod operators;
mod placement;
mod refusal;
mod release;
mod replica;
mod report;
mod selection;
mod services;
mod settings;
mod span_rings;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod unregistered;
mod verdicts;
mod watched;
mod worker;
mod workers;

use std::collections::{BTreeMap, BTreeSet};

use wire::id::{LmapId, WorkerId};
use wire::name::ServiceName;
use wire::time::{Interval, Nanos};

pub use action::{Action, ConnectionId, Event, NamedReason, RowBatch};
pub use counters::Counters;
pub use incidents::Suspicion;
pub use operators::{Asked, OperatorError};
pub use refusal::{HelloRefusal, RegionRefusal, SeriesRefusal};
pub(crate) use report::group_shares;
pub use selection::Choice;
pub use services::Descriptor;
pub use settings::{IdentityRule, Limits, Peer, Settings};
pub use watched::Watched;

use catalogue::Catalogue;
use incidents::Incidents;
use lmap::{Latest, Lmap};
use release::{Held, Releases};
use replica::Replica;
use unregistered::Unregistered;
use worker::Worker;

/// A service's connection.
#[derive(Debug)]
struct Connection {
    peer: Peer,
    /// Frames that came.
    messages: u64,
    replica: Option<Replica>,
}

/// A service on this node.
#[derive(Debug, Default)]
struct Service {
    replicas: BTreeSet<ConnectionId>,
    catalogue: Catalogue,
    lmap: Option<LmapId>,
    /// LMAPs that it had before; workers may still know them.
    former: Vec<LmapId>,
    /// An operator deleted its LMAP.
    unwatched: bool,
}

/// What waits until the changes of these LMAPs were told, for it is known only then who has to acknowledge.
#[derive(Debug)]
struct Untold {
    lmaps: Vec<LmapId>,
    held: Held,
}

/// The state of a node. See the module's documentation.
#[derive(Debug)]
pub struct ControlPlane {
    settings: Settings,
    connections: BTreeMap<ConnectionId, Connection>,
    /// Those of them at which the agent itself is.
    agent_replicas: BTreeSet<ConnectionId>,
    awaiting_hello: BTreeSet<(Nanos, ConnectionId)>,
    services: BTreeMap<ServiceName, Service>,
    lmaps: BTreeMap<LmapId, Lmap>,
    incidents: Incidents,
    workers: BTreeMap<WorkerId, Worker>,
    links: BTreeMap<ConnectionId, WorkerId>,
    /// Changed LMAPs, and when their workers are told.
    due: BTreeMap<LmapId, Nanos>,
    untold: Vec<Untold>,
    releases: Releases,
    accepted: BTreeSet<ConnectionId>,
    actions: Vec<Action>,
    counters: Counters,
    problems: Latest,
    unregistered: Unregistered,
    /// Workers that their devices do not shut out, and why.
    unfenced: BTreeMap<WorkerId, String>,
    /// The least share of γ of which somebody wants verdicts.
    wanted_share: f64,
    last_replica: u32,
    last_lmap: u32,
}

impl ControlPlane {
    /// A node without services and workers.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            connections: BTreeMap::new(),
            agent_replicas: BTreeSet::new(),
            awaiting_hello: BTreeSet::new(),
            services: BTreeMap::new(),
            lmaps: BTreeMap::new(),
            incidents: Incidents::default(),
            workers: BTreeMap::new(),
            links: BTreeMap::new(),
            due: BTreeMap::new(),
            untold: Vec::new(),
            releases: Releases::default(),
            accepted: BTreeSet::new(),
            actions: Vec::new(),
            counters: Counters::default(),
            problems: Latest::default(),
            unregistered: Unregistered::default(),
            unfenced: BTreeMap::new(),
            wanted_share: f64::INFINITY,
            last_replica: 0,
            last_lmap: 0,
        }
    }

    /// What it was told at its start.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What it counted.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Does what is due at `now`: closes connections without a hello, fences workers whose lease ran out, tells workers of changes that
    /// have settled, releases what nobody knows any more. Returns when to call again at the latest; [`Nanos::NEVER`] if nothing is due.
    pub fn poll(&mut self, now: Nanos) -> Nanos {
        self.close_late(now);
        self.expire_leases(now);
        self.tell_due(now);
        self.hold_untold();
        self.next_deadline()
    }

    /// What is to be done, in order. Empty when called again.
    #[must_use]
    pub fn take_actions(&mut self) -> Vec<Action> {
        self.say_accepted();
        core::mem::take(&mut self.actions)
    }

    /// How many slot runs and regions wait for workers to forget them.
    #[must_use]
    pub fn waiting_releases(&self) -> usize {
        self.untold.len() + self.releases.len()
    }

    fn next_deadline(&self) -> Nanos {
        let hello = self.awaiting_hello.first().map(|&(at, _)| at);
        let due = self.due.values().min().copied();
        let lease = self.lease_deadline();
        [hello, due, lease].into_iter().flatten().min().unwrap_or(Nanos::NEVER)
    }

    /// The LMAP changed: its worker is told when the change has settled.
    fn changed(&mut self, lmap: LmapId, now: Nanos) {
        let at = now.plus(self.settings.settle);
        self.due.entry(lmap).and_modify(|due| *due = at.min(*due)).or_insert(at);
    }

    /// The LMAP changed, and its worker is told with the next poll.
    fn changed_now(&mut self, lmap: LmapId, now: Nanos) {
        self.due.insert(lmap, now);
    }

    /// Makes an LMAP for `service`, which has none.
    fn make_lmap(&mut self, service: &ServiceName, now: Nanos) -> LmapId {
        self.last_lmap += 1;
        let id = LmapId(self.last_lmap);
        let mut lmap = Lmap::new(id, service.clone(), self.interval_of(service));
        let entry = self.services.entry(service.clone()).or_default();
        entry.unwatched = false;
        entry.lmap = Some(id);
        lmap.select_again(&entry.catalogue);
        self.lmaps.insert(id, lmap);
        self.counters.made_lmaps += 1;
        self.changed(id, now);
        id
    }

    /// The local scraping interval of an LMAP of `service` for which none was asked: a row each time that values change, if they do not change more often than rows come.
    fn interval_of(&self, service: &ServiceName) -> Interval {
        let replicas = self.services.get(service).into_iter().flat_map(|service| &service.replicas);
        let periods = replicas.filter_map(|c| self.connections.get(c)?.replica.as_ref()?.changes_every);
        periods.fold(self.settings.interval, Interval::max)
    }

    /// Frees an LMAP: whoever runs it is told with the next poll.
    fn free_lmap(&mut self, id: LmapId, now: Nanos) {
        let Some(lmap) = self.lmaps.remove(&id) else {
            return;
        };
        self.counters.freed_lmaps += 1;
        self.changed_now(id, now);
        let workers = &self.workers;
        let due = &self.due;
        if let Some(service) = self.services.get_mut(&lmap.service) {
            service.lmap = None;
            let may_be_known = |id: &LmapId| {
                due.contains_key(id)
                    || workers.values().any(|worker| worker.session.as_ref().is_some_and(|s| s.knows.contains_key(id)))
            };
            service.former.push(id);
            service.former.retain(may_be_known);
        }
    }

    /// Something that every worker who knows an LMAP of `service` has to forget.
    fn hold(&mut self, service: &ServiceName, held: Held) {
        let lmaps = self
            .services
            .get(service)
            .map_or_else(Vec::new, |service| service.former.iter().copied().chain(service.lmap).collect());
        self.untold.push(Untold { lmaps, held });
    }
}
