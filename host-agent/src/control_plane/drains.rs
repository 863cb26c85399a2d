//! Workers that operators drain. Their LMAPs move to other workers, as planned moves without a gap, and they get no
//! others until the order is taken back. The order is about the number of a worker, whoever runs it: its next run is
//! drained, too.

use wire::id::{LmapId, WorkerId};
use wire::time::Nanos;

use super::lmap::Lmap;
use super::moves::AGAIN_AFTER;
use super::operator_error::OperatorError;
use super::placement::least_loaded;
use super::state::ControlPlane;
use super::worker::{Drain, Worker};

/// LMAPs of one worker that move at a time. Their models reach the host agent within [`super::moves::MODEL_WITHIN`],
/// and as few LMAPs run on two workers.
pub(super) const AT_ONCE: usize = 64;
/// Most characters kept of who gave an order.
const MAX_NAME: usize = 256;

impl ControlPlane {
    /// `drainWorker`: moves all LMAPs of a worker to others, and places none on it until [`Self::undrain_worker`].
    /// Without `forced`, LMAPs that are learning or in alarm stay until they are not. Returns how many LMAPs it runs
    /// now. An order that stands is kept, and may become a forced one.
    ///
    /// # Errors
    ///
    /// [`OperatorError::NoWorker`]; [`OperatorError::LastWorker`] if no other worker takes LMAPs, unless `forced`.
    pub fn drain_worker(&mut self, now: Nanos, id: WorkerId, forced: bool, by: &str) -> Result<usize, OperatorError> {
        let has_other = self.workers.iter().any(|(other, worker)| *other != id && worker.takes_lmaps());
        let worker = self.workers.get_mut(&id).ok_or(OperatorError::NoWorker(id))?;
        match &mut worker.drain {
            Some(drain) => drain.forced |= forced,
            None if has_other || forced => {
                worker.drain = Some(Drain { by: by.chars().take(MAX_NAME).collect(), forced });
            }
            None => return Err(OperatorError::LastWorker(id)),
        }
        self.cancel_moves_to(id, now);
        self.move_times.drain_by(now);
        Ok(self.lmaps_on(id))
    }

    /// `undrainWorker`: LMAPs may be placed on a worker again, and it takes its share.
    ///
    /// # Errors
    ///
    /// [`OperatorError::NoWorker`].
    pub fn undrain_worker(&mut self, now: Nanos, id: WorkerId) -> Result<(), OperatorError> {
        let worker = self.workers.get_mut(&id).ok_or(OperatorError::NoWorker(id))?;
        if worker.drain.take().is_some() {
            self.place_unplaced(now);
            self.rebalance_at(now);
        }
        Ok(())
    }

    /// The orders that stand.
    pub fn drained_workers(&self) -> impl Iterator<Item = (WorkerId, &Drain)> {
        self.workers.iter().filter_map(|(&id, worker)| Some((id, worker.drain.as_ref()?)))
    }

    /// An order of an earlier run of the agent, before any worker has connected.
    pub fn restore_drain(&mut self, id: WorkerId, drain: Drain) {
        if id.0 < self.settings.limits.workers {
            self.workers.entry(id).or_insert_with(Worker::new).drain = Some(drain);
        }
    }

    /// Number of LMAPs that a worker runs.
    pub(super) fn lmaps_on(&self, id: WorkerId) -> usize {
        self.lmaps.values().filter(|lmap| lmap.worker == Some(id)).count()
    }

    /// Begins moves away from drained workers. What cannot move is tried again later.
    pub(super) fn drain_lmaps(&mut self, now: Nanos) {
        if !self.move_times.take_drain(now) {
            return;
        }
        // One that leaves hands everything over by itself. One without a connection has no model to give: it comes
        // back, or is fenced.
        let drained = self.workers.iter().filter(|(_, worker)| worker.is_connected() && !worker.leaves());
        let drained: Vec<_> = drained.filter_map(|(&id, worker)| Some((id, worker.drain.as_ref()?.forced))).collect();
        for (id, forced) in drained {
            self.drain_step(id, forced, now);
        }
    }

    fn drain_step(&mut self, id: WorkerId, forced: bool, now: Nanos) {
        let of_it = self.lmaps.values().filter(|lmap| lmap.worker == Some(id));
        let moving = of_it.clone().filter(|lmap| lmap.moving.is_some()).count();
        let staying = of_it.filter(|lmap| lmap.moving.is_none());
        let mut remaining = staying.clone().count();
        let mut may_move: Vec<&Lmap> = staying.filter(|lmap| forced || self.may_leave(lmap)).collect();
        // Those whose moves were given up do not stand in the way of others.
        may_move.sort_by_key(|lmap| lmap.move_begun);
        let may_move = may_move.into_iter().take(AT_ONCE.saturating_sub(moving));
        let may_move: Vec<(LmapId, f64)> = may_move.map(|lmap| (lmap.id, lmap.load())).collect();
        let mut loads = self.loads();
        loads.retain(|other, _| forced || self.workers.get(other).is_some_and(Worker::hands_over_models));
        for (lmap, load) in may_move {
            let to = least_loaded(&loads);
            if let Some((sum, lmaps)) = to.and_then(|to| loads.get_mut(&to)) {
                (*sum, *lmaps) = (*sum + load, *lmaps + 1);
            }
            if to.is_some() || forced {
                self.begin_move(lmap, to, now);
                remaining -= 1;
            }
        }
        if remaining > 0 {
            self.move_times.drain_again(now.plus(AGAIN_AFTER));
        }
    }

    /// Whether an LMAP of a drained worker goes on elsewhere with what it has learnt, or has hardly begun.
    fn may_leave(&self, lmap: &Lmap) -> bool {
        let hands_over =
            lmap.worker.and_then(|worker| self.workers.get(&worker)).is_some_and(Worker::hands_over_models);
        lmap.may_move() && (hands_over || !lmap.is_armed())
    }

    /// Whether a move off a drained worker would lose what was learnt: the worker gave no model, and none is kept.
    pub(super) fn would_lose(&self, lmap: &Lmap) -> bool {
        let worker = lmap.worker.and_then(|worker| self.workers.get(&worker));
        let drain = worker.filter(|worker| worker.is_connected() && !worker.leaves()).and_then(|w| w.drain.as_ref());
        let is_kept = self.kept.has_of(&lmap.service, lmap.id);
        drain.is_some_and(|drain| !drain.forced) && lmap.is_armed() && lmap.model_in_use().is_none() && !is_kept
    }

    /// Goes on with draining after a move from `from` ended.
    pub(super) fn drain_on(&mut self, from: Option<WorkerId>, at: Nanos) {
        if from.and_then(|from| self.workers.get(&from)).is_some_and(|worker| worker.drain.is_some()) {
            self.move_times.drain_by(at);
        }
    }

    /// Why nothing new can be watched, if every connected worker is drained.
    pub(super) fn drained_problem(&self) -> Option<String> {
        let takes = self.workers.values().any(Worker::takes_lmaps);
        let drained = self.workers.iter().filter(|(_, worker)| worker.is_connected() && worker.drain.is_some());
        let (first, _) = drained.min_by_key(|(id, _)| id.0)?;
        let how = format!("start another NIC agent, or `uview undrain {}`", first.0);
        (!takes).then(|| format!("every connected worker is drained, and LMAPs without a worker watch nothing: {how}"))
    }
}
