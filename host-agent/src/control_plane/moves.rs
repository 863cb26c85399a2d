//! Moves of LMAPs between workers, and the models that go with them.
//!
//! A move has no gap. The LMAP's worker hands over its model; the next worker gets the configuration and the model;
//! when it reports that it has read rows, with all regions, its verdicts count, and the first one is told to stop.

use wire::control::MAX_LMAPS;
use wire::id::{Epoch, LmapId, Owner, WorkerId};
use wire::proto::control as proto;
use wire::proto::control::host_message::Message;
use wire::time::{Interval, Nanos};

use super::kept_models::KeptModel;
use super::lmap::Lmap;
use super::lmap_move::{Move, Stage};
use super::placement::{Loads, least_loaded};
use super::state::ControlPlane;
use super::worker::{Departure, Worker};

/// Time for a worker to hand over a model.
pub(super) const MODEL_WITHIN: Nanos = Nanos::from_secs(2);
/// Time for the next worker to read rows, besides two intervals of the LMAP.
const ROWS_WITHIN: Nanos = Nanos::from_secs(10);
/// So long before the end of that time, rows that lack a region count, too: that one can be attached nowhere, maybe.
const PARTS_BEFORE: Nanos = Nanos::from_secs(5);
/// Pause before LMAPs are moved that could not be moved before: they were learning, or in alarm.
pub(super) const AGAIN_AFTER: Nanos = Nanos::from_secs(10);
/// Loads that differ by less than this share of the larger one are equal: a move has its price.
const EQUAL_SHARE: f64 = 0.1;

/// An LMAP that may move: its worker and its load.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MovableLmap {
    lmap: LmapId,
    worker: WorkerId,
    load: f64,
}

/// The moves from the workers with the most to do to those with the least, until none makes a difference.
fn plan(mut loads: Loads, mut movable: Vec<MovableLmap>) -> Vec<(LmapId, WorkerId)> {
    let mut moves = Vec::new();
    loop {
        let by_load =
            |one: &(&WorkerId, &(f64, usize)), other: &(&WorkerId, &(f64, usize))| one.1.0.total_cmp(&other.1.0);
        let room = loads.iter().filter(|(_, (_, lmaps))| *lmaps < MAX_LMAPS);
        let least = room.min_by(by_load).map(|(&id, &(load, _))| (id, load));
        let most = loads.iter().max_by(by_load).map(|(&id, &(load, _))| (id, load));
        let (Some((to, least)), Some((from, most))) = (least, most) else { return moves };
        let gap = most - least;
        if from == to || gap <= EQUAL_SHARE * most {
            return moves;
        }
        // The best move leaves both with the same load.
        let rest = |of: &MovableLmap| (gap - 2.0 * of.load).abs();
        let candidates = movable.iter().enumerate().filter(|(_, of)| of.worker == from && rest(of) < gap);
        let best = candidates.min_by(|(_, one), (_, other)| rest(one).total_cmp(&rest(other))).map(|(at, _)| at);
        let Some(best) = best else { return moves };
        let MovableLmap { lmap, load, .. } = movable.swap_remove(best);
        for (worker, change, count) in [(from, -load, -1), (to, load, 1)] {
            if let Some((load, lmaps)) = loads.get_mut(&worker) {
                (*load, *lmaps) = (*load + change, lmaps.saturating_add_signed(count));
            }
        }
        moves.push((lmap, to));
    }
}

impl ControlPlane {
    /// A worker joined: LMAPs move to it once all that come together are there.
    pub(super) fn rebalance_at(&mut self, at: Nanos) {
        self.move_times.rebalance_at(at);
    }

    pub(super) fn next_move(&self) -> Option<Nanos> {
        let awaited = self.lmaps.values().filter_map(|lmap| match lmap.moving.as_ref()?.stage {
            Stage::AwaitingModel { until } | Stage::Preparing { until, .. } => Some(until),
        });
        awaited.chain(self.move_times.next()).min()
    }

    /// Begins the moves that are due, and goes on with those whose model did not come.
    pub(super) fn move_lmaps(&mut self, now: Nanos) {
        let is_late = |lmap: &&Lmap| match lmap.moving.as_ref().map(|moving| &moving.stage) {
            Some(Stage::AwaitingModel { until } | Stage::Preparing { until, .. }) => *until <= now,
            None => false,
        };
        let late: Vec<LmapId> = self.lmaps.values().filter(is_late).map(|lmap| lmap.id).collect();
        for id in late {
            let stage = self.lmaps.get(&id).and_then(|lmap| lmap.moving.as_ref()).map(|moving| &moving.stage);
            match stage {
                Some(Stage::AwaitingModel { .. }) => self.prepare_move(id, now),
                _ => self.cancel_move(id, now),
            }
        }
        self.drain_lmaps(now);
        if !self.move_times.take_rebalance(now) {
            return;
        }
        let loads = self.loads();
        let movable = |can_move: bool| {
            let of = self.lmaps.values().filter(move |lmap| !can_move || lmap.may_move());
            of.filter_map(|lmap| Some(MovableLmap { lmap: lmap.id, worker: lmap.worker?, load: lmap.load() }))
        };
        let moves = plan(loads.clone(), movable(true).collect());
        if moves.len() < plan(loads, movable(false).collect()).len() {
            self.move_times.rebalance_again(now.plus(AGAIN_AFTER));
        }
        for (lmap, to) in moves {
            self.begin_move(lmap, Some(to), now);
        }
    }

    /// Begins to move an LMAP that a worker runs.
    pub(super) fn begin_move(&mut self, id: LmapId, to: Option<WorkerId>, now: Nanos) {
        let Some(lmap) = self.lmaps.get_mut(&id) else { return };
        let Some(from) = lmap.worker else { return };
        lmap.move_begun = now;
        lmap.moving = Some(Move { to, stage: Stage::AwaitingModel { until: now.plus(MODEL_WITHIN) } });
        let session = self.workers.get(&from).and_then(|worker| worker.session.as_ref());
        if session.is_some_and(|session| session.hands_over_models && session.departure == Departure::No) {
            let epoch = self.workers.get(&from).map_or(0, |worker| worker.epoch.0);
            self.send(from, epoch, Message::GiveModel(proto::GiveModel { lmap: id.0 }));
        } else {
            self.prepare_move(id, now);
        }
    }

    /// Sends the configuration to the LMAP's next worker; takes it off its worker if there is none.
    fn prepare_move(&mut self, id: LmapId, now: Nanos) {
        let Some(lmap) = self.lmaps.get(&id) else { return };
        let Some(moving) = &lmap.moving else { return };
        if self.would_lose(lmap) {
            return self.cancel_move(id, now);
        }
        let Some(to) = moving.to else {
            return self.take_off(id, now);
        };
        let can_take = self.workers.get(&to).is_some_and(Worker::takes_lmaps);
        let spec = if can_take { self.spec_of(id) } else { None };
        match spec.and_then(|spec| self.send_spec(to, spec)) {
            Some(sent) => {
                if let Some(lmap) = self.lmaps.get_mut(&id) {
                    let until = now.plus(ROWS_WITHIN).plus(Nanos(2 * lmap.interval.length().0));
                    lmap.moving = Some(Move { to: Some(to), stage: Stage::Preparing { sent, until } });
                }
            }
            None => self.cancel_move(id, now),
        }
    }

    /// Takes an LMAP off its worker. It waits until another one takes it.
    fn take_off(&mut self, id: LmapId, now: Nanos) {
        let Some(lmap) = self.lmaps.get_mut(&id) else { return };
        let from = lmap.worker;
        lmap.moving = None;
        lmap.unplace();
        // One may have joined meanwhile.
        self.changed_now(id, now);
        if let Some(from) = from {
            self.send_removal_to(from, id);
        }
        self.drain_on(from, now);
    }

    /// Gives up a move. Its next worker forgets the LMAP.
    pub(super) fn cancel_move(&mut self, id: LmapId, now: Nanos) {
        let Some(lmap) = self.lmaps.get_mut(&id) else { return };
        let Some(moving) = lmap.moving.take() else { return };
        let from = lmap.worker;
        self.counters.cancelled_moves += 1;
        self.move_times.rebalance_again(now.plus(AGAIN_AFTER));
        self.drain_on(from, now.plus(AGAIN_AFTER));
        if let (Some(to), Stage::Preparing { .. }) = (moving.to, moving.stage) {
            self.send_removal_to(to, id);
        }
    }

    /// Gives up the moves to a worker that takes no more LMAPs.
    pub(super) fn cancel_moves_to(&mut self, id: WorkerId, now: Nanos) {
        let to_it = self.lmaps.values().filter(|lmap| lmap.moving.as_ref().is_some_and(|moving| moving.to == Some(id)));
        let to_it: Vec<LmapId> = to_it.map(|lmap| lmap.id).collect();
        for lmap in to_it {
            self.cancel_move(lmap, now);
        }
    }

    /// The configuration changed while the LMAP moves: its next worker gets it, too.
    pub(super) fn resend_move(&mut self, id: LmapId, now: Nanos) {
        let stage = self.lmaps.get(&id).and_then(|lmap| lmap.moving.as_ref()).map(|moving| &moving.stage);
        if matches!(stage, Some(Stage::Preparing { .. })) {
            self.prepare_move(id, now);
        }
    }

    /// What `worker` says of an LMAP. If the LMAP was to move there and is read there as it is here, it has moved.
    pub(super) fn finish_move(&mut self, worker: WorkerId, id: LmapId, summary: &proto::LmapSummary, now: Nanos) {
        let Some(lmap) = self.lmaps.get_mut(&id) else { return };
        let is_silent = |summary: &proto::LmapSummary| summary.state() == proto::State::Silent;
        // With a region that is not attached yet, a replica would seem to be missing, and then to be silent.
        let is_whole = summary.pending_regions == 0
            && (!is_silent(summary) || lmap.health.summary.as_ref().is_some_and(is_silent));
        let ready = lmap.moving.take_if(|moving| {
            let Stage::Preparing { sent, until } = &moving.stage else { return false };
            let is_read = moving.to == Some(worker) && sent.epoch.0 <= summary.epoch && summary.samples > 0;
            is_read && (is_whole || now.plus(PARTS_BEFORE) >= *until)
        });
        let Some(Move { stage: Stage::Preparing { sent, .. }, .. }) = ready else { return };
        let from = lmap.worker;
        lmap.unplace();
        (lmap.worker, lmap.sent) = (Some(worker), Some(sent));
        self.counters.moved_lmaps += 1;
        if let Some(from) = from {
            self.send_removal_to(from, id);
        }
        self.drain_on(from, now);
    }

    /// The worker to which the LMAP moves, if it has its configuration.
    pub(super) fn prepared_worker(&self, id: LmapId) -> Option<WorkerId> {
        let moving = self.lmaps.get(&id)?.moving.as_ref()?;
        moving.to.filter(|_| matches!(moving.stage, Stage::Preparing { .. }))
    }

    /// A worker's run ended. LMAPs that were moving to it stay; those that were moving from it are where they were
    /// moving to.
    pub(super) fn end_moves(&mut self, ended: WorkerId) {
        for lmap in self.lmaps.values_mut() {
            let (from_it, to) = (lmap.worker == Some(ended), lmap.moving.as_ref().and_then(|moving| moving.to));
            if to == Some(ended) {
                lmap.moving = None;
                self.counters.cancelled_moves += 1;
                // What is on a drained worker still is moved elsewhere with the next poll.
                self.move_times.drain_by(Nanos::ZERO);
            } else if from_it && let Some(Move { to, stage }) = lmap.moving.take() {
                lmap.unplace();
                if let Stage::Preparing { sent, .. } = stage {
                    (lmap.worker, lmap.sent) = (to, Some(sent));
                }
            }
        }
    }

    /// A worker says that it is about to end.
    pub(super) fn leave(&mut self, id: WorkerId, now: Nanos) {
        let Some(session) = self.workers.get_mut(&id).and_then(|worker| worker.session.as_mut()) else { return };
        session.departure = Departure::Announced;
        self.cancel_moves_to(id, now);
        let mut loads = self.loads();
        let of_it = self.lmaps.values().filter(|lmap| lmap.worker == Some(id) && lmap.moving.is_none());
        let of_it: Vec<(LmapId, f64)> = of_it.map(|lmap| (lmap.id, lmap.load())).collect();
        for (lmap, load) in of_it {
            let Some(to) = least_loaded(&loads) else { break };
            if let Some((sum, lmaps)) = loads.get_mut(&to) {
                (*sum, *lmaps) = (*sum + load, *lmaps + 1);
            }
            self.begin_move(lmap, Some(to), now);
        }
    }

    /// Lets leaving workers end of which nothing is on the move any more.
    pub(super) fn dismiss_leaving(&mut self) {
        let is_moving = |id: WorkerId| self.lmaps.values().any(|lmap| lmap.worker == Some(id) && lmap.moving.is_some());
        let waits =
            |worker: &Worker| worker.session.as_ref().is_some_and(|session| session.departure == Departure::Announced);
        let waiting = self.workers.iter().filter(|(id, worker)| waits(worker) && !is_moving(**id));
        let waiting: Vec<WorkerId> = waiting.map(|(&id, _)| id).collect();
        for id in waiting {
            if let Some(session) = self.workers.get_mut(&id).and_then(|worker| worker.session.as_mut()) {
                session.departure = Departure::Granted;
            }
            let epoch = self.workers.get(&id).map_or(0, |worker| worker.epoch.0);
            self.send(id, epoch, Message::Goodbye(proto::Goodbye {}));
        }
    }

    /// A worker hands over what the detectors of an LMAP have learnt: the one that runs it, or the next one, which may
    /// go on with what it learnt for an earlier run of the host agent, and says so once.
    pub(super) fn take_model(&mut self, worker: WorkerId, learnt: proto::LearntModel, now: Nanos) {
        let id = LmapId(learnt.lmap);
        self.kept.arrived(id);
        let is_next = self.prepared_worker(id) == Some(worker);
        let Some(lmap) = self.lmaps.get(&id).filter(|lmap| is_next || lmap.worker == Some(worker)) else {
            self.counters.unexpected_messages += 1;
            return;
        };
        if is_next && self.kept.has_of(&lmap.service, id) {
            // It has begun with that one, and says its own once the LMAP is there.
            return;
        }
        // One from before an operator had it fitted again is not what is normal now.
        if !learnt.model.is_empty() && Epoch(learnt.epoch) >= lmap.refitted {
            self.counters.taken_models += 1;
            let Lmap { interval, detector, .. } = *lmap;
            // The worker may judge at another interval as long as the present one is learnt.
            let interval = Interval::new(Nanos::from_micros(learnt.interval_us)).unwrap_or(interval);
            let replicas = self.services.get(&lmap.service).map(|service| &service.replicas);
            let first = replicas.and_then(|replicas| replicas.first().copied());
            let owner = first.and_then(|connection| self.owner_of(connection)).unwrap_or(Owner::Agent);
            let model = KeptModel { bytes: learnt.model.into(), lmap: Some(id), interval, detector, owner };
            self.counters.dropped_models += self.kept.put(&lmap.service, model);
        }
        let awaited = lmap.moving.as_ref().is_some_and(|moving| matches!(moving.stage, Stage::AwaitingModel { .. }));
        if awaited {
            self.prepare_move(id, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(of: &[(u32, f64)]) -> Loads {
        of.iter().map(|&(id, load)| (WorkerId(id), (load, 1))).collect()
    }

    fn lmaps(of: &[(u32, u32, f64)]) -> Vec<MovableLmap> {
        of.iter()
            .map(|&(lmap, worker, load)| MovableLmap { lmap: LmapId(lmap), worker: WorkerId(worker), load })
            .collect()
    }

    #[test]
    fn a_worker_that_joins_takes_its_share() {
        let moves =
            plan(loads(&[(0, 40.0), (1, 0.0)]), lmaps(&[(1, 0, 10.0), (2, 0, 10.0), (3, 0, 10.0), (4, 0, 10.0)]));

        assert_eq!(moves.len(), 2);
        assert!(moves.iter().all(|(_, to)| *to == WorkerId(1)));
    }

    #[test]
    fn nothing_moves_that_would_make_no_difference() {
        let one = lmaps(&[(1, 0, 40.0)]);
        assert_eq!(plan(loads(&[(0, 40.0), (1, 0.0)]), one.clone()), [], "the only LMAP would only change its place");
        assert_eq!(plan(loads(&[(0, 40.0)]), one), []);
        let small = lmaps(&[(1, 0, 1.0), (2, 0, 39.0)]);
        assert_eq!(plan(loads(&[(0, 40.0), (1, 37.0)]), small), []);
        assert_eq!(plan(loads(&[(0, 40.0), (1, 0.0)]), Vec::new()), [], "none may move");
    }

    #[test]
    fn the_move_that_evens_out_best_is_made() {
        let of = lmaps(&[(1, 0, 30.0), (2, 0, 20.0), (3, 0, 2.0)]);
        assert_eq!(plan(loads(&[(0, 52.0), (1, 0.0)]), of), [(LmapId(1), WorkerId(1))]);
    }
}
