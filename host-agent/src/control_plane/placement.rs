//! Places LMAPs on workers and sends them their configuration.

use std::collections::BTreeMap;

use wire::control::{LmapSpec, MAX_LMAPS};
use wire::id::{LmapId, WorkerId};
use wire::proto::control as proto;
use wire::proto::control::host_message::Message;
use wire::time::Nanos;

use super::action::Action;
use super::kept_models::KeptModel;
use super::release::Release;
use super::sent_config::SentConfig;
use super::state::ControlPlane;

/// Load and number of LMAPs by worker.
pub(super) type Loads = BTreeMap<WorkerId, (f64, usize)>;

/// The worker with the least load among those with room for an LMAP; the first of equals.
pub(super) fn least_loaded(loads: &Loads) -> Option<WorkerId> {
    loads
        .iter()
        .filter(|(_, (_, lmaps))| *lmaps < MAX_LMAPS)
        .min_by(|(_, (a, _)), (_, (b, _))| a.total_cmp(b))
        .map(|(&worker, _)| worker)
}

impl ControlPlane {
    /// Sends the changes that have settled.
    pub(super) fn send_due(&mut self, now: Nanos) {
        let due: Vec<LmapId> = self.due.iter().filter(|(_, at)| **at <= now).map(|(&id, _)| id).collect();
        if due.is_empty() {
            return;
        }
        let mut loads = self.loads();
        for id in due {
            self.due.remove(&id);
            self.send_config(id, &mut loads, now);
            self.resend_move(id, now);
        }
    }

    /// Collects the epochs to be acknowledged for releases whose changes are sent by now. Releases at once what no
    /// worker knows.
    pub(super) fn track_unsent_releases(&mut self) {
        let (due, workers) = (&self.due, &self.workers);
        let outstanding = |lmaps: &[LmapId]| {
            let waiting = workers.iter().filter_map(|(&id, worker)| {
                let epoch = lmaps.iter().filter_map(|&lmap| worker.outstanding(lmap)).max()?;
                Some((id, epoch))
            });
            waiting.collect()
        };
        for release in self.releases.changes_sent(|lmap| due.contains_key(&lmap), outstanding) {
            self.release(release);
        }
    }

    pub(super) fn release(&mut self, release: Release) {
        match release {
            Release::Runs(connection, runs) => self.release_runs(connection, runs),
            Release::Region(region, payer) => {
                if let Some((owner, size)) = payer {
                    self.shares.release_region(owner, size);
                }
                self.counters.released_regions += 1;
                self.actions.push(Action::DropRegion(region));
            }
        }
    }

    /// Schedules LMAPs without a worker to be placed at `at`.
    pub(super) fn place_unplaced(&mut self, at: Nanos) {
        let unplaced: Vec<LmapId> =
            self.lmaps.values().filter(|lmap| lmap.worker.is_none()).map(|lmap| lmap.id).collect();
        for id in unplaced {
            self.due.entry(id).or_insert(at);
        }
    }

    /// Sends a message without a new epoch.
    pub(super) fn send(&mut self, worker: WorkerId, epoch: u64, message: Message) {
        if let Some(connection) = self.workers.get(&worker).and_then(super::worker::Worker::connection) {
            let message = proto::HostMessage { epoch, message: Some(message) };
            self.actions.push(Action::ToWorker { connection, worker, message });
        }
    }

    /// Load and number of LMAPs of each worker that takes LMAPs. An LMAP that moves counts where it moves to.
    pub(super) fn loads(&self) -> Loads {
        let taking = self.workers.iter().filter(|(_, worker)| worker.takes_lmaps());
        let mut loads: Loads = taking.map(|(&id, _)| (id, (0.0, 0))).collect();
        for lmap in self.lmaps.values() {
            let worker = lmap.moving.as_ref().map_or(lmap.worker, |moving| moving.to);
            if let Some((load, lmaps)) = worker.and_then(|worker| loads.get_mut(&worker)) {
                *load += lmap.load();
                *lmaps += 1;
            }
        }
        loads
    }

    /// The LMAP's configuration; `None` if there is nothing to watch.
    pub(super) fn spec_of(&self, id: LmapId) -> Option<LmapSpec> {
        let lmap = self.lmaps.get(&id)?;
        if let Some(members) = &lmap.members {
            return self.spec_of_members(lmap, members);
        }
        let service = self.services.get(&lmap.service)?;
        let replicas = self.connections.replicas_of(&service.replicas);
        lmap.spec(&service.catalogue, replicas, &self.settings)
    }

    /// Sends the LMAP's configuration to its worker, after placing it if it has none; or its removal, if there is
    /// nothing to watch.
    fn send_config(&mut self, id: LmapId, loads: &mut Loads, now: Nanos) {
        self.follow_declared(id, now);
        self.join_members(id, now);
        let spec = self.spec_of(id);
        let Some(lmap) = self.lmaps.get_mut(&id) else {
            return self.send_removal(id);
        };
        let Some(spec) = spec else {
            lmap.unplace();
            lmap.moving = None;
            return self.send_removal(id);
        };
        // Where its detectors are, from before this run of the agent, or where there is least to do.
        let workers = &self.workers;
        let has_it = |id: &WorkerId| workers.get(id).is_some_and(|worker| worker.retains(&lmap.service));
        let retaining = || loads.iter().find(|(id, (_, lmaps))| *lmaps < MAX_LMAPS && has_it(id)).map(|(&id, _)| id);
        let Some(worker) = lmap.worker.or_else(retaining).or_else(|| least_loaded(loads)) else {
            return;
        };
        if lmap.worker.is_none() {
            lmap.worker = Some(worker);
            let sessions = self.workers.values_mut().filter_map(|worker| worker.session.as_mut());
            sessions.for_each(|session| _ = session.retained.remove(&lmap.service));
            let (load, lmaps) = loads.entry(worker).or_default();
            *load += lmap.load();
            *lmaps += 1;
        }
        let sent = self.send_spec(worker, spec);
        let Some(lmap) = self.lmaps.get_mut(&id) else { return };
        match sent {
            Some(sent) => lmap.sent = Some(sent),
            None => lmap.unplace(),
        }
    }

    /// Sends a configuration to a worker; `None` if the worker has no session. A worker that does not have the LMAP
    /// yet, or that judged by an operator's model, gets what earlier detectors have learnt.
    pub(super) fn send_spec(&mut self, worker: WorkerId, spec: LmapSpec) -> Option<SentConfig> {
        let id = spec.id;
        let of_worker = self.workers.get_mut(&worker)?;
        let is_known = of_worker.knows(id);
        let epoch = of_worker.next_epoch(id, true)?;
        let uses_models = of_worker.session.as_ref().is_some_and(|session| session.hands_over_models);
        self.counters.sent_changes += 1;
        let mut message = proto::Lmap::from(&spec);
        let sent = self.lmaps.get(&id).and_then(|lmap| lmap.sent.as_ref());
        let has_it = is_known && sent.is_none_or(|sent| sent.interval == spec.interval && !sent.has_model);
        let kept = if has_it || !uses_models { None } else { self.kept.get(&spec.service, spec.interval) };
        // An operator's model goes first.
        let is_alike = |kept: &&KeptModel| kept.detector == spec.detector;
        if let Some(kept) = kept.filter(is_alike).filter(|_| spec.model.is_empty()) {
            (message.learnt, message.continues) = (kept.bytes.to_vec(), kept.lmap == Some(id));
        }
        self.send(worker, epoch.0, Message::SetLmap(message));
        if let Some(subscription) = self.lmaps.get(&id).and_then(super::lmap::Lmap::subscription) {
            self.send(worker, epoch.0, Message::SubscribeRows(subscription));
        }
        let members = self.members_of(id).map_or_else(Vec::new, |members| members.names().cloned().collect());
        Some(SentConfig::new(epoch, spec, members))
    }

    fn send_removal(&mut self, id: LmapId) {
        self.rdma.forget_lmap(id);
        let knowing = self.workers.iter().filter(|(_, worker)| worker.knows(id));
        let knowing: Vec<WorkerId> = knowing.map(|(&worker, _)| worker).collect();
        for worker in knowing {
            self.send_removal_to(worker, id);
        }
    }

    /// Tells a worker to forget an LMAP.
    pub(super) fn send_removal_to(&mut self, worker: WorkerId, id: LmapId) {
        self.rdma.forget(worker, id);
        let epoch = self.workers.get_mut(&worker).and_then(|worker| worker.next_epoch(id, false));
        if let Some(epoch) = epoch {
            self.counters.sent_changes += 1;
            self.send(worker, epoch.0, Message::RemoveLmap(proto::RemoveLmap { lmap: id.0 }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worker_with_the_least_load_and_room_is_chosen() {
        let loads = |entries: &[(u32, f64, usize)]| {
            entries.iter().map(|&(id, load, lmaps)| (WorkerId(id), (load, lmaps))).collect::<BTreeMap<_, _>>()
        };

        assert_eq!(least_loaded(&loads(&[])), None);
        assert_eq!(least_loaded(&loads(&[(0, 5.0, 1), (1, 2.0, 9), (2, 2.0, 0)])), Some(WorkerId(1)));
        assert_eq!(least_loaded(&loads(&[(0, 5.0, 1), (1, 2.0, MAX_LMAPS)])), Some(WorkerId(0)));
        assert_eq!(least_loaded(&loads(&[(1, 2.0, MAX_LMAPS)])), None);
    }
}
