//! What detectors have learnt, before the agent ends and after it began: its directory of models asks.

use std::collections::BTreeSet;

use wire::control::MAX_LMAPS;
use wire::id::{LmapId, WorkerId};
use wire::name::ServiceName;
use wire::proto::control as proto;
use wire::proto::control::host_message::Message;
use wire::time::Nanos;

use super::kept_models::{KeptModel, ModelKey};
use super::state::ControlPlane;

impl ControlPlane {
    /// Keeps a model of an earlier run of the agent. Returns its place in the order of arrivals; it is dropped at once
    /// if it alone is over the limit of bytes.
    pub fn restore_model(&mut self, service: &ServiceName, model: KeptModel) -> u64 {
        self.counters.dropped_models += self.kept.put(service, model);
        self.kept.last_arrival()
    }

    /// All models that are kept, by service and interval, each with its place in the order of arrivals.
    pub fn kept_models(&self) -> impl Iterator<Item = (&ModelKey, u64, &KeptModel)> {
        self.kept.iter()
    }

    /// A worker could go on with these services: it ran their LMAPs for an earlier run of the agent. It gets them, also
    /// those that another worker has hardly begun to learn.
    pub(super) fn take_retained(&mut self, id: WorkerId, retained: &proto::Retained, now: Nanos) {
        let names = retained.services.iter().take(MAX_LMAPS).filter_map(|name| ServiceName::new(name).ok());
        let names: BTreeSet<ServiceName> = names.collect();
        let elsewhere = self.lmaps.values().filter(|lmap| {
            names.contains(&lmap.service)
                && lmap.worker.is_some_and(|worker| worker != id)
                && lmap.may_move()
                && !lmap.is_armed()
        });
        let elsewhere: Vec<LmapId> = elsewhere.map(|lmap| lmap.id).collect();
        let Some(worker) = self.workers.get_mut(&id) else { return };
        if let Some(session) = &mut worker.session {
            session.retained = names;
        }
        if worker.takes_lmaps() {
            for lmap in elsewhere {
                self.begin_move(lmap, Some(id), now);
            }
        }
    }

    /// Asks all workers for what they have learnt: the agent is about to end.
    pub fn ask_for_models(&mut self) {
        let placed = self.lmaps.values().filter_map(|lmap| Some((lmap.id, lmap.worker?)));
        let asked: Vec<(LmapId, WorkerId)> = placed.filter(|(_, worker)| self.may_give_models(*worker)).collect();
        for (lmap, worker) in asked {
            self.kept.asked(lmap);
            let epoch = self.workers.get(&worker).map_or(0, |worker| worker.epoch.0);
            self.send(worker, epoch, Message::GiveModel(proto::GiveModel { lmap: lmap.0 }));
        }
    }

    /// Number of models that were asked for and may still come.
    pub fn awaited_models(&self) -> usize {
        let worker = |id: &&LmapId| self.lmaps.get(id).and_then(|lmap| lmap.worker);
        self.kept.awaited().filter(|id| worker(id).is_some_and(|worker| self.may_give_models(worker))).count()
    }

    fn may_give_models(&self, worker: WorkerId) -> bool {
        let session = self.workers.get(&worker).and_then(|worker| worker.session.as_ref());
        session.is_some_and(|session| session.hands_over_models && session.connection.is_some())
    }
}
