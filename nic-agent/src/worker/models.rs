//! What the detectors have learnt, for the next worker that runs their LMAPs: the host agent keeps it. And the end of a
//! worker in good order, which hands everything over first.

use std::collections::VecDeque;

use wire::control::MAX_LMAPS;
use wire::id::LmapId;
use wire::proto::control::worker_message::Message;
use wire::proto::control::{self as proto, WorkerMessage};
use wire::time::Nanos;

use super::{Link, Worker};
use crate::detector_slot::Detectors;

/// Pause between two models: each is copied and encoded on the worker's thread, between ticks.
const PAUSE: Nanos = Nanos::from_millis(2);

/// Time for models to go before the host agent is told that the worker leaves: others take over within what is left.
const MODELS_WITHIN: Nanos = Nanos::from_secs(1);

/// How far a worker is with leaving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Leaving {
    #[default]
    No,
    /// The models go first, until then.
    Asked(Nanos),
    /// The host agent knows.
    Told,
    /// The host agent lets it go.
    Done,
}

/// Models that are due to be handed over.
#[derive(Debug, Default)]
pub(super) struct Handover {
    /// How often the host agent wants models; `None`: never.
    every: Option<Nanos>,
    due: VecDeque<LmapId>,
    /// When the next one may be sent.
    next: Nanos,
    leaving: Leaving,
}

impl Handover {
    /// A session began, whose host agent wants a model every `every` seconds; 0: never.
    pub(super) fn welcomed(&mut self, every: u32) {
        self.every = (every > 0).then(|| Nanos::from_secs(u64::from(every)));
        self.due.clear();
    }

    /// How often the host agent wants the model of an LMAP.
    pub(super) fn every(&self) -> Option<Nanos> {
        self.every
    }

    /// The model of `lmap` is due.
    pub(super) fn ask(&mut self, lmap: LmapId) {
        if !self.due.contains(&lmap) {
            self.due.push_back(lmap);
        }
    }

    /// When to try the next message; [`Nanos::NEVER`] without one. One that is overdue waits for the network.
    pub(super) fn deadline(&self, now: Nanos) -> Nanos {
        if self.due.is_empty() && !matches!(self.leaving, Leaving::Asked(_)) {
            Nanos::NEVER
        } else if self.next > now {
            self.next
        } else {
            now.plus(PAUSE)
        }
    }

    /// The host agent lets the worker go.
    pub(super) fn goodbye(&mut self) {
        if self.leaving == Leaving::Told {
            self.leaving = Leaving::Done;
        }
    }
}

impl Worker {
    /// Hands over all models, and then says that the worker is about to end. It ticks on until [`Worker::has_left`].
    /// Returns false if nobody takes them: it may end at once.
    #[must_use]
    pub fn leave(&mut self) -> bool {
        if self.link != Link::Up || self.handover.every.is_none() {
            return false;
        }
        for id in self.runtimes.keys() {
            self.handover.ask(*id);
        }
        self.handover.leaving = Leaving::Asked(self.now.plus(MODELS_WITHIN));
        true
    }

    /// Whether the host agent has let the leaving worker go, or is gone.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.handover.leaving == Leaving::Done || self.link != Link::Up
    }

    /// The next model, or the message that the worker leaves. At most one per [`PAUSE`].
    pub(super) fn next_model(&mut self) -> Option<WorkerMessage> {
        if self.now < self.handover.next {
            return None;
        }
        let due = &self.handover.due;
        let tells = matches!(self.handover.leaving, Leaving::Asked(until) if due.is_empty() || self.now >= until);
        let message = if tells {
            self.handover.leaving = Leaving::Told;
            Message::Leaving(proto::Leaving {})
        } else {
            self.handover.due.pop_front().map(|id| self.learnt_model(id))?
        };
        self.handover.next = self.now.plus(PAUSE);
        Some(WorkerMessage { message: Some(message) })
    }

    /// Tells the host agent which services it could go on with, so that it gets their LMAPs again.
    pub(super) fn tell_retained(&mut self) {
        let of = self.retained.iter().filter(|(_, retained)| retained.detectors().is_some()).take(MAX_LMAPS);
        let services: Vec<String> = of.map(|(service, _)| service.to_string()).collect();
        if !services.is_empty() {
            self.shared.outbox.retained(services);
        }
    }

    fn learnt_model(&mut self, id: LmapId) -> Message {
        let model = self.runtimes.get(&id).and_then(|runtime| runtime.detectors()).and_then(Detectors::learned_model);
        if let Some(runtime) = self.runtimes.get_mut(&id).filter(|_| model.is_none()) {
            // A decomposition is in flight: it is tried again soon, and not only after the usual time.
            runtime.model_is_missing();
        }
        let model = model.map(|model| model.encode()).unwrap_or_default();
        let interval_us = self.runtimes.get(&id).map_or(0, |runtime| runtime.interval().length().0 / 1000);
        let epoch = self.epoch.map_or(0, |epoch| epoch.0);
        Message::LearntModel(proto::LearntModel { lmap: id.0, epoch, model, interval_us })
    }
}
