//! Messages of services, and their effects.

use std::sync::Arc;

use wire::id::{Owner as Payer, RegionId};
use wire::layout::{RegionSize, VERSION};
use wire::metric::Declaration;
use wire::name::{InstanceName, ServiceName};
use wire::proto::registration as proto;
use wire::registration::{Hello, PlacedSeries, RefusedSeries, ServiceMessage, SlotRun, Subject};
use wire::time::{Interval, Nanos};

use super::action::{Action, ConnectionId, Deletion};
use super::catalogue::Owner;
use super::lmap::Lmap;
use super::pod_identity::PodIdentity;
use super::refusal::{HelloRefusal, RegionRefusal, SeriesRefusal};
use super::refused_requests::refused;
use super::release::Release;
use super::replica::{Replica, ReplicaRegion, SeriesKey, SeriesPlace, SeriesPlacement};
use super::settings::Peer;
use super::state::{ControlPlane, Service};

/// The descriptor that came with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Descriptor {
    /// The message had no descriptor.
    None,
    /// A valid region, kept by the edge under this id until [`Action::DropRegion`].
    Accepted(RegionId),
    /// Not a valid region, with the reason. The edge has closed it.
    Refused(String),
}

/// Refused series of one message that are reported one by one; the rest is reported as a number.
const MAX_REFUSALS_SENT: usize = 16;

impl ControlPlane {
    /// A service connected.
    pub fn service_connected(&mut self, now: Nanos, connection: ConnectionId, peer: Peer) {
        self.counters.service_connections += 1;
        self.shares.set_time(now);
        if let Err(refusal) = self.shares.connect(peer.owner()) {
            self.counters.refused_connections += 1;
            self.refuse(connection, "hello", &refusal);
            self.actions.push(Action::CloseService { connection });
            return;
        }
        self.connections.open(connection, peer, now.plus(self.settings.hello_within));
    }

    /// What its pod says about the process of `connection`. Before its first message.
    pub fn set_pod(&mut self, connection: ConnectionId, pod: PodIdentity) {
        self.connections.set_pod(connection, pod);
    }

    /// A service sent `message`. Ignored if the connection is closed.
    pub fn service_message(
        &mut self,
        now: Nanos,
        connection: ConnectionId,
        message: ServiceMessage,
        descriptor: &Descriptor,
    ) {
        let Some(registered) = self.connections.count_message(connection) else {
            return self.drop_surplus(descriptor);
        };
        self.shares.set_time(now);
        let region = matches!(message, ServiceMessage::AddRegion { .. } | ServiceMessage::AddSpanRing { .. });
        if !(region && registered) {
            self.drop_surplus(descriptor);
        }
        match message {
            ServiceMessage::Hello(hello) if !registered => {
                if let Err(refusal) = self.accept_hello(connection, hello) {
                    self.reject(now, connection, &refusal);
                }
            }
            ServiceMessage::Hello(_) => self.reject(now, connection, &HelloRefusal::Twice),
            ServiceMessage::AddRegion { region, size, layout_version } if registered => {
                let added = self.add_region(connection, region, size, layout_version, descriptor);
                if let Err(refusal) = added {
                    self.counters.refused_regions += 1;
                    self.drop_accepted(descriptor);
                    self.refuse_until(connection, &format!("region {region}"), &refusal, refusal.retry_after());
                }
            }
            ServiceMessage::AddSpanRing { size, layout_version, first_ticket } if registered => {
                let added = self.add_span_ring(connection, size, layout_version, first_ticket, descriptor);
                if let Err(refusal) = added {
                    self.counters.refused_regions += 1;
                    self.drop_accepted(descriptor);
                    self.refuse(connection, "span ring", &refusal);
                }
            }
            ServiceMessage::AddSeries(series) if registered => self.add_series(now, connection, series),
            ServiceMessage::Retire(runs) if registered => self.retire(now, connection, runs),
            ServiceMessage::Subjects(subjects) if registered => self.set_subjects(connection, subjects),
            _ => self.reject(now, connection, &HelloRefusal::Missing),
        }
        self.connections.acknowledge_later(connection);
    }

    /// A malformed or oversized frame. The connection is closed.
    pub fn service_garbage(&mut self, now: Nanos, connection: ConnectionId, reason: &str) {
        if self.connections.get(connection).is_none() {
            return;
        }
        self.counters.refused_frames += 1;
        self.record_problem(connection, "frame", reason);
        self.actions.push(Action::ToService { connection, message: refused("frame".into(), reason.into(), None) });
        self.close(now, connection);
    }

    /// A service's connection ended.
    pub fn service_gone(&mut self, now: Nanos, connection: ConnectionId) {
        let Some(closed) = self.connections.close(connection) else {
            return;
        };
        if !closed.is_own {
            self.shares.disconnect(closed.peer.owner());
        }
        let Some(replica) = closed.into_replica() else { return };
        self.shares.leave(replica.owner, &replica);
        self.actions.push(Action::ReplicaLeft { connection });
        self.replica_left(now, connection, &replica);
    }

    /// Adds a replica of `service` on the agent's own account (span metrics), without a heartbeat, until
    /// [`Self::service_gone`]. Its series come by [`Self::agent_region`]. It does not count towards the limit of
    /// connections.
    pub fn agent_replica(&mut self, connection: ConnectionId, service: ServiceName, instance: InstanceName) {
        let number = self.numbers.next_replica();
        let replica = Replica::new(number, service.clone(), instance, Payer::Agent);
        self.services.entry(service).or_default().replicas.insert(connection);
        self.connections.open_own(connection, replica);
    }

    /// All values of an [agent's replica](Self::agent_replica) change every `every`.
    pub fn agent_changes_every(&mut self, connection: ConnectionId, every: Option<Interval>) {
        if let Some(replica) = self.connections.replica_mut(connection) {
            replica.changes_every = every;
        }
    }

    /// What the agent samples of a replica it can sample as often as every `fastest`, if the service is fetched as
    /// often.
    pub fn agent_fastest(&mut self, connection: ConnectionId, fastest: Interval) {
        if let Some(replica) = self.connections.replica_mut(connection) {
            replica.fastest = Some(replica.fastest.map_or(fastest, |known| known.min(fastest)));
        }
    }

    /// Adds a region with the agent's own `series` about the replica of `connection` (process metrics), at most two.
    /// Their [`PlacedSeries::region`] is ignored. Series over a limit are left out and counted.
    pub fn agent_region(
        &mut self,
        now: Nanos,
        connection: ConnectionId,
        region: RegionId,
        size: RegionSize,
        series: Vec<PlacedSeries>,
    ) {
        let replica = self.connections.replica_mut(connection);
        let Some(Ok(number)) = replica.map(|r| r.add_agent_region(ReplicaRegion { id: region, size })) else {
            self.actions.push(Action::DropRegion(region));
            return;
        };
        self.register_own(now, connection, number, series);
    }

    /// Adds further `series` in the first region of [`Self::agent_region`].
    pub fn agent_series(&mut self, now: Nanos, connection: ConnectionId, series: Vec<PlacedSeries>) {
        self.register_own(now, connection, Replica::AGENT_REGION, series);
    }

    fn register_own(&mut self, now: Nanos, connection: ConnectionId, region: u32, series: Vec<PlacedSeries>) {
        for mut placed in series {
            placed.region = region;
            if self.register(now, connection, placed, Owner::Agent).is_err() {
                self.counters.refused_process_series += 1;
            }
        }
    }

    /// Closes connections without a hello in time.
    pub(super) fn close_late(&mut self, now: Nanos) {
        while let Some(connection) = self.connections.late(now) {
            self.counters.late_hellos += 1;
            self.refuse(connection, "hello", &HelloRefusal::Late);
            self.close(now, connection);
        }
    }

    /// Tells services how many of their messages are in effect.
    pub(super) fn send_accepted(&mut self) {
        for (connection, messages) in self.connections.take_unacknowledged() {
            let accepted = proto::agent_message::Message::Acknowledgement(proto::Acknowledgement { messages });
            let message = proto::AgentMessage { message: Some(accepted) };
            self.actions.push(Action::ToService { connection, message });
        }
    }

    /// Gives slots back to a service.
    pub(super) fn release_runs(&mut self, connection: ConnectionId, runs: Vec<SlotRun>) {
        let Some(replica) = self.connections.replica_mut(connection) else {
            return;
        };
        let freed = runs.iter().map(|&run| replica.free(run)).sum();
        self.shares.release_series(replica.owner, freed);
        self.counters.released_slot_runs += runs.len() as u64;
        let released = proto::SlotRelease { runs: runs.into_iter().map(proto::SlotRun::from).collect() };
        let message = proto::AgentMessage { message: Some(proto::agent_message::Message::Release(released)) };
        self.actions.push(Action::ToService { connection, message });
    }

    fn accept_hello(&mut self, connection: ConnectionId, hello: Hello) -> Result<(), HelloRefusal> {
        if self.is_over_several(&hello.service) {
            return Err(HelloRefusal::OverSeveral { service: hello.service });
        }
        let Some(entry) = self.connections.get(connection) else {
            return Ok(());
        };
        let observed = hello.observed();
        let Hello { service, instance, process_metrics, changes_every, fastest, .. } = hello;
        let pid = entry.peer.pid;
        let (service, instance) = entry.pod.names(service, instance)?;
        if !entry.pod.is_verified() && !self.settings.may_be(&entry.peer, &service) {
            return Err(HelloRefusal::Identity { service, pid, uid: entry.peer.uid });
        }
        let limit = self.settings.limits.replicas_per_service;
        if self.services.get(&service).is_some_and(|known| known.replicas.len() >= limit) {
            return Err(HelloRefusal::Replicas { service, limit });
        }
        let owner = entry.peer.owner();
        self.shares.join(owner, &service)?;
        let replica = self.numbers.next_replica();
        let mut taken = Replica::new(replica, service.clone(), instance.clone(), owner);
        (taken.changes_every, taken.observed) = (changes_every, observed);
        if let Some(fastest) = fastest.filter(|_| changes_every.is_some()) {
            taken.samples_itself(fastest);
        }
        self.connections.register(connection, taken);
        self.services.entry(service.clone()).or_default().replicas.insert(connection);
        let welcome = proto::Welcome {
            agent_incarnation: self.settings.incarnation.0,
            heartbeat_ms: self.settings.heartbeat.as_millis() as u32,
            awaits_changes: changes_every.is_some(),
            takes_subjects: true,
        };
        let message = proto::AgentMessage { message: Some(proto::agent_message::Message::Welcome(welcome)) };
        self.actions.push(Action::ToService { connection, message });
        self.actions.push(Action::ReplicaJoined { connection, replica, service, instance, pid, process_metrics });
        Ok(())
    }

    fn set_subjects(&mut self, connection: ConnectionId, subjects: Vec<Subject>) {
        let replica = self.connections.replica_mut(connection);
        if let Some(replica) = replica {
            for subject in subjects {
                replica.set_subject(subject);
            }
        }
    }

    fn add_region(
        &mut self,
        connection: ConnectionId,
        number: u32,
        size: RegionSize,
        layout_version: u64,
        descriptor: &Descriptor,
    ) -> Result<(), RegionRefusal> {
        let id = match descriptor {
            Descriptor::None => return Err(RegionRefusal::NoDescriptor),
            Descriptor::Refused(reason) => return Err(RegionRefusal::Descriptor(reason.clone())),
            Descriptor::Accepted(id) => *id,
        };
        if layout_version > VERSION {
            return Err(RegionRefusal::Layout(layout_version));
        }
        if Replica::is_agents(number) {
            return Err(RegionRefusal::Number);
        }
        let limits = &self.settings.limits;
        let Some(service) = self.service_of(connection) else {
            return Ok(());
        };
        let registered = self.replicas_of(&service).map(Replica::bytes).sum::<u64>();
        let bytes = registered + size.bytes() as u64;
        if bytes > limits.bytes_per_service {
            return Err(RegionRefusal::Bytes { bytes, limit: limits.bytes_per_service });
        }
        let Some(owner) = self.owner_of(connection) else { return Ok(()) };
        self.shares.check_region(owner, size)?;
        if let Some(replica) = self.connections.replica_mut(connection) {
            replica.add_region(number, ReplicaRegion { id, size }, limits.regions_per_replica)?;
            self.shares.add_region(owner, size);
            self.counters.accepted_regions += 1;
        }
        Ok(())
    }

    fn add_series(&mut self, now: Nanos, connection: ConnectionId, all: Vec<Result<PlacedSeries, RefusedSeries>>) {
        let (mut refusals, mut unknown) = (Vec::new(), Vec::new());
        for series in all {
            let outcome = match series {
                Err(malformed) => Err((malformed.title.clone(), SeriesRefusal::Malformed(malformed))),
                Ok(mut placed) => {
                    let title = placed.series.title();
                    unknown.extend(placed.declared.take_unknown().map(|error| (title.clone(), error)));
                    self.register(now, connection, placed, Owner::Service).map_err(|refusal| (title, refusal))
                }
            };
            match outcome {
                Ok(()) => self.counters.accepted_series += 1,
                Err(refusal) => refusals.push(refusal),
            }
        }
        self.refuse_declared(connection, &unknown);
        self.counters.refused_series += refusals.len() as u64;
        for (title, refusal) in refusals.iter().take(MAX_REFUSALS_SENT) {
            self.refuse_until(connection, title, refusal, refusal.retry_after());
        }
        if let Some(more @ [(title, refusal), others @ ..]) = refusals.get(MAX_REFUSALS_SENT..) {
            let retry_after = more.iter().filter_map(|(_, refusal)| refusal.retry_after()).min();
            self.refuse_until(connection, &format!("{title} and {} more", others.len()), refusal, retry_after);
        }
    }

    /// Registers one series of the replica of `connection`. Creates the service's LMAP with the first one.
    fn register(
        &mut self,
        now: Nanos,
        connection: ConnectionId,
        placed: PlacedSeries,
        owner: Owner,
    ) -> Result<(), SeriesRefusal> {
        let Some(replica) = self.connections.replica_mut(connection) else {
            return Ok(());
        };
        if owner == Owner::Service && Replica::is_agents(placed.region) {
            return Err(SeriesRefusal::NoRegion { region: placed.region });
        }
        let key = SeriesKey::of(&placed.series);
        if replica.check(&key, &placed)? == SeriesPlacement::Existing {
            return Ok(());
        }
        let service = self.services.entry(replica.service.clone()).or_default();
        service.catalogue.check(&key, &placed.series, owner, &self.settings.limits)?;
        if owner == Owner::Service {
            self.shares.take_series(replica.owner, key.weight(placed.shards))?;
        }
        let (place, run) = (SeriesPlace::of(&placed), placed.run());
        let (key, _) = service.catalogue.add(key, placed.series, (replica.owner, &placed.declared));
        replica.place(key.clone(), place, run, placed.declared);
        let name = replica.service.clone();
        let lmap = service.lmap;
        let watched = !service.unwatched;
        match lmap {
            Some(id) => {
                let of_service = self.lmaps.get_mut(&id).filter(|lmap| lmap.members.is_none());
                match (of_service, service.catalogue.get(&key)) {
                    (Some(lmap), Some(series)) => lmap.series_added(&key, series),
                    _ => self
                        .problems
                        .push(&format!("{name} is not watched: an LMAP over several services has its name")),
                }
                self.changed(id, now);
            }
            None if watched => drop(self.create_lmap(&name, now)),
            None => {}
        }
        self.members_changed(&name, now);
        Ok(())
    }

    fn retire(&mut self, now: Nanos, connection: ConnectionId, runs: Vec<SlotRun>) {
        let mut retired = Vec::new();
        for run in runs {
            let Some(replica) = self.connections.replica_mut(connection) else {
                return;
            };
            match replica.retire(run) {
                Ok(keys) => {
                    retired.push(run);
                    let (name, owner) = (replica.service.clone(), replica.owner);
                    self.series_gone(now, (&name, owner), &keys);
                }
                Err(at) => {
                    self.counters.refused_retirements += 1;
                    let reason = format!(
                        "slot {} belongs to a series that is not wholly in the run, or is already retired",
                        at.0
                    );
                    let what =
                        format!("run of slots from {}, {} long, in region {}", run.first.0, run.slots, run.region);
                    self.record_problem(connection, &what, &reason);
                    self.actions.push(Action::ToService { connection, message: refused(what, reason, None) });
                }
            }
        }
        if let (false, Some(service)) = (retired.is_empty(), self.service_of(connection)) {
            self.defer_release(&service, Release::Runs(connection, retired));
        }
    }

    /// One replica of the service `name`, whose owner this is, no longer has these series.
    fn series_gone(
        &mut self,
        now: Nanos,
        (name, owner): (&ServiceName, wire::id::Owner),
        gone: &[(Arc<SeriesKey>, Declaration)],
    ) {
        let Some(service) = self.services.get_mut(name) else {
            return;
        };
        let mut lmap = service.lmap.and_then(|id| self.lmaps.get_mut(&id)).filter(|lmap| lmap.members.is_none());
        for (key, declared) in gone {
            let last = service.catalogue.remove(key, (owner, declared));
            if let (true, Some(lmap)) = (last, &mut lmap) {
                lmap.series_removed(key);
            }
        }
        if let Some(lmap) = lmap {
            lmap.selection.find_pending(&service.catalogue, now);
        }
        if let Some(id) = service.lmap {
            self.changed(id, now);
        }
        self.members_changed(name, now);
    }

    fn replica_left(&mut self, now: Nanos, connection: ConnectionId, replica: &Replica) {
        let name = &replica.service;
        let gone: Vec<_> = replica.series().keys().map(|key| (Arc::clone(key), replica.declared(key))).collect();
        self.series_gone(now, (name, replica.owner), &gone);
        for (number, region) in replica.regions() {
            let payer = (!Replica::is_agents(number)).then_some((replica.owner, region.size));
            self.defer_release(name, Release::Region(region.id, payer));
        }
        let Some(service) = self.services.get_mut(name) else {
            return;
        };
        service.replicas.remove(&connection);
        self.forget_without_replicas(name, now);
    }

    /// Forgets a service that has no replicas, unless an operator wants its LMAP, or wants it to have none.
    pub(super) fn forget_without_replicas(&mut self, name: &ServiceName, now: Nanos) {
        let Some(service) = self.services.get(name).filter(|service| service.replicas.is_empty()) else {
            return;
        };
        let kept = service.lmap.filter(|id| self.lmaps.get(id).is_some_and(Lmap::outlives_replicas));
        let is_unwatched = service.unwatched;
        if let (None, Some(id)) = (kept, service.lmap) {
            self.remove_lmap(id, now, Deletion::LastReplica);
        }
        if kept.is_none() && !(is_unwatched && self.remembers_unwatched()) {
            self.services.remove(name);
        }
    }

    /// Whether it is still remembered that an LMAP was deleted once no replica of its service is left. What operators
    /// can have remembered is bounded, too.
    pub(super) fn remembers_unwatched(&self) -> bool {
        let is_absent = |service: &&Service| service.unwatched && service.replicas.is_empty();
        // One of them is the service that is asked about.
        self.services.values().filter(is_absent).count() <= self.settings.limits.unwatched_services
    }

    fn drop_surplus(&mut self, descriptor: &Descriptor) {
        if *descriptor != Descriptor::None {
            self.counters.surplus_descriptors += 1;
        }
        self.drop_accepted(descriptor);
    }

    fn drop_accepted(&mut self, descriptor: &Descriptor) {
        if let Descriptor::Accepted(region) = descriptor {
            self.actions.push(Action::DropRegion(*region));
        }
    }

    fn reject(&mut self, now: Nanos, connection: ConnectionId, refusal: &HelloRefusal) {
        self.counters.refused_hellos += 1;
        self.refuse(connection, "hello", refusal);
        self.close(now, connection);
    }

    fn close(&mut self, now: Nanos, connection: ConnectionId) {
        self.service_gone(now, connection);
        self.actions.push(Action::CloseService { connection });
    }
}
