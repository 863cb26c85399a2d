//! Messages of the host agent: configurations, subscriptions, requests.
//!
//! Every change has the epoch after the last one; its acknowledgement says that it is in effect. A welcome starts a
//! session: all configurations end, and the host agent sends them again. What the detectors have learned is retained by
//! the name of the service, so that it survives a restart of the host agent.

use core::num::NonZeroU32;

use agent_runtime::shares::ShareError;
use wire::control::{LmapSpec, MAX_LMAPS, MAX_STREAM_ADDRESSES, MAX_STREAMS};
use wire::id::{Epoch, Incarnation, LmapId, Owner};
use wire::proto::control::host_message::Message;
use wire::proto::control::{self as proto, HostMessage};
use wire::rdma::TRANSPORT;
use wire::time::Nanos;

use super::{Effect, Link, MAX_DEFERRED, Worker};
use crate::error::{UnexpectedMessage, chain};
use crate::lmap_runtime::LmapRuntime;
use crate::region_claim::RegionClaim;
use crate::region_limits::RegionsError;
use crate::retained_lmap::RetainedLmap;
use crate::settings::Fetching;

/// The shortest period of summaries, however short the lease.
const MIN_SUMMARY_PERIOD: Nanos = Nanos::from_millis(10);

/// A configuration that can be used, and why replicas of one owner are left out of it.
type CheckedLmap = (LmapSpec, Option<ShareError<Owner>>);

impl Worker {
    /// Takes a message of the host agent. While a batch is in flight, the message is deferred until
    /// [`Worker::fetched`], so an acknowledgement means that no READ of an earlier epoch is in flight.
    ///
    /// # Errors
    ///
    /// [`UnexpectedMessage`] if the message is rejected, in whole or in part. It has been counted, and the worker
    /// continues.
    pub fn on_host(&mut self, now: Nanos, message: HostMessage) -> Result<(), UnexpectedMessage> {
        let outcome = if self.in_flight.is_none() {
            self.handle(now, message)
        } else if self.deferred.len() < MAX_DEFERRED {
            self.deferred.push_back(message);
            Ok(())
        } else {
            self.close("too many messages arrived while a batch was in flight".to_owned());
            Err(UnexpectedMessage::Flood(MAX_DEFERRED))
        };
        self.counters.unexpected_messages += u64::from(outcome.is_err());
        outcome
    }

    fn handle(&mut self, now: Nanos, message: HostMessage) -> Result<(), UnexpectedMessage> {
        let epoch = Epoch(message.epoch);
        match (self.link, message.message) {
            (Link::Greeting, Some(Message::Welcome(welcome))) => self.welcome(now, &welcome),
            (Link::Greeting | Link::Up, Some(Message::Refusal(refusal))) => {
                // A worker that was fenced must not read by its configuration any more, and has to come back as another
                // run.
                self.retain_all(now);
                self.incarnation = Incarnation(self.seeds.draw());
                self.close(format!("refused: {}", refusal.reason));
                Err(UnexpectedMessage::Refused(refusal.reason))
            }
            (Link::Up, Some(Message::Welcome(_))) => Err(UnexpectedMessage::Unknown),
            (Link::Up, Some(Message::QueuePair(answer))) => {
                let effect = self.queue_pair.reply(now, answer, &mut self.seeds)?;
                if let Some(effect) = effect {
                    self.attachments.push(Effect::QueuePair(effect));
                }
                Ok(())
            }
            (Link::Up, Some(Message::SubscribeRows(subscribe))) => self.subscribe_rows(subscribe),
            (Link::Up, Some(Message::SetLowestShare(set))) => {
                self.set_lowest_share(set.share);
                Ok(())
            }
            (Link::Up, Some(Message::SetStreams(set))) => self.set_streams(set),
            (Link::Up, Some(Message::GiveModel(give))) => {
                self.handover.ask(LmapId(give.lmap));
                Ok(())
            }
            (Link::Up, Some(Message::Goodbye(_))) => {
                self.handover.goodbye();
                Ok(())
            }
            (Link::Up, None) => {
                self.begin(epoch)?;
                Err(UnexpectedMessage::Unknown)
            }
            (Link::Up, Some(change)) => {
                self.begin(epoch)?;
                let done = self.change(now, epoch, change);
                self.shared.outbox.acknowledge(epoch);
                done
            }
            (Link::Gone { .. } | Link::Greeting | Link::Closing, _) => Err(UnexpectedMessage::TooEarly),
        }
    }

    /// Passes on which streams of packets are to be measured, if they are within the bounds.
    fn set_streams(&mut self, set: proto::SetStreams) -> Result<(), UnexpectedMessage> {
        let addresses = set.streams.iter().map(|stream| stream.addresses.len()).max().unwrap_or_default();
        if set.streams.len() > MAX_STREAMS || addresses > MAX_STREAM_ADDRESSES {
            return Err(UnexpectedMessage::Streams { streams: set.streams.len(), addresses });
        }
        self.attachments.push(Effect::SetStreams(set));
        Ok(())
    }

    /// The runner says what came of the streams that the host agent asked for last.
    pub fn streams_changed(&mut self, states: proto::StreamStates) {
        // A new session begins with streams that are asked for anew.
        if self.link == Link::Up {
            self.shared.outbox.stream_states(states);
        }
    }

    fn change(&mut self, now: Nanos, epoch: Epoch, change: Message) -> Result<(), UnexpectedMessage> {
        match change {
            Message::SetLmap(lmap) => {
                let set = self.set_lmap(now, epoch, &lmap);
                if let Err(problem) = &set {
                    self.shared.outbox.lmap_problem(LmapId(lmap.lmap), chain(problem));
                }
                set
            }
            Message::RemoveLmap(remove) => {
                self.remove_lmap(now, LmapId(remove.lmap));
                Ok(())
            }
            Message::FitAgain(fit) => {
                let id = LmapId(fit.lmap);
                let runtime = self.runtimes.get_mut(&id).ok_or(UnexpectedMessage::UnknownLmap(id))?;
                runtime.fit_again(&mut self.shared.jobs);
                Ok(())
            }
            Message::Welcome(_)
            | Message::Refusal(_)
            | Message::SubscribeRows(_)
            | Message::SetLowestShare(_)
            | Message::GiveModel(_)
            | Message::Goodbye(_)
            | Message::SetStreams(_)
            | Message::QueuePair(_) => Err(UnexpectedMessage::Unknown),
        }
    }

    /// Checks that a change has the epoch after the last one. A gap means that a message was lost, which only a new
    /// connection repairs.
    fn begin(&mut self, epoch: Epoch) -> Result<(), UnexpectedMessage> {
        match self.epoch {
            Some(last) if epoch != last.next() => {
                let error = UnexpectedMessage::Epoch { found: epoch, last };
                self.close(error.to_string());
                Err(error)
            }
            _ => {
                self.epoch = Some(epoch);
                Ok(())
            }
        }
    }

    fn close(&mut self, reason: String) {
        self.link = Link::Closing;
        self.attachments.push(Effect::Disconnect { reason });
    }

    fn welcome(&mut self, now: Nanos, welcome: &proto::HostWelcome) -> Result<(), UnexpectedMessage> {
        let transport = self.chosen(&welcome.transport).map(str::to_owned);
        let Some(transport) = transport else {
            let error = UnexpectedMessage::Transport(welcome.transport.chars().take(64).collect());
            self.close(error.to_string());
            return Err(error);
        };
        let host = Incarnation(welcome.host_incarnation);
        self.retain_all(now);
        if host != self.host {
            self.shared.outbox.forget();
            self.retained.values_mut().for_each(RetainedLmap::forget_host);
        }
        if welcome.takes_retained {
            self.tell_retained();
        }
        (self.host, self.epoch, self.link) = (host, None, Link::Up);
        self.set_lowest_share(welcome.lowest_share);
        let lease = Nanos::from_millis(u64::from(welcome.lease_ms));
        self.counters.welcomes += 1;
        self.handover.welcomed(welcome.models_every_s);
        self.period = self.settings.summary;
        if lease != Nanos::ZERO {
            self.period = self.period.min(Nanos(lease.0 / 3)).max(MIN_SUMMARY_PERIOD);
        }
        self.next_summary = self.next_summary.min(self.summary_after(now));
        let fetching = if transport == TRANSPORT { Fetching::Verbs } else { Fetching::Memory };
        if transport != self.transport {
            self.attachments.push(Effect::Use(fetching));
        }
        (self.transport, self.fetching) = (transport, fetching);
        self.queue_pair.welcomed(now, fetching == Fetching::Verbs);
        Ok(())
    }

    /// Sets the share of γ from which verdicts are sent. An invalid share means the worker's own setting.
    fn set_lowest_share(&mut self, share: f64) {
        self.shared.lowest_share = if share.is_finite() && share >= 0.0 { share } else { self.settings.lowest_share };
    }

    /// The transport that a welcome chooses. A host agent that names none supports shared memory only.
    fn chosen(&self, name: &str) -> Option<&str> {
        let mut offered = self.settings.transports.iter().map(String::as_str);
        if name.is_empty() { offered.find(|name| *name != TRANSPORT) } else { offered.find(|own| *own == name) }
    }

    /// Sets the configuration of an LMAP. An invalid one ends the earlier one, too: that one is not in effect any more,
    /// and reading by it could mix up metrics.
    fn set_lmap(&mut self, now: Nanos, epoch: Epoch, lmap: &proto::Lmap) -> Result<(), UnexpectedMessage> {
        let id = LmapId(lmap.lmap);
        let mut old = self.runtimes.remove(&id);
        let (spec, left_out) = match self.checked(lmap, old.as_ref()) {
            Ok(checked) => checked,
            Err(refused) => {
                if let Some(old) = &mut old {
                    self.release(now, old);
                    self.drop_orphaned_jobs();
                }
                return Err(refused);
            }
        };
        let intervals = old.as_ref().map(LmapRuntime::intervals);
        let (retained, unreadable) = if let Some(old) = &mut old {
            let mut retained = old.hand_over(now);
            let unreadable = retained.learn_from(lmap, &spec);
            (Some(retained), unreadable)
        } else {
            self.retained_for(now, lmap, &spec)
        };
        self.shared.replica_scratch.reserve(spec.replicas.len());
        let (mut runtime, refused) = LmapRuntime::new(&spec, epoch, &self.settings, retained, &mut self.shared.factory);
        for interval in runtime.intervals().into_iter().flatten() {
            self.schedule.join(interval, now);
        }
        let mut attached = Vec::new();
        for region in runtime.regions.claims() {
            attached.push((region.spec.id, self.attachments.acquire(self.host, region)));
        }
        runtime.begin_digest(now, self.period);
        if let Some(mut old) = old {
            for interval in intervals.into_iter().flatten().flatten() {
                self.schedule.leave(interval, now);
            }
            self.extra.release(old.go_slow().unwrap_or_default());
            for region in old.regions.claims() {
                self.attachments.release(region);
            }
            runtime = runtime.take_over(old, &mut self.shared.outbox);
        }
        for (region, attached) in attached {
            runtime.regions.set_attached(region, attached);
        }
        // What it went on with is handed over at once: nobody else may have it.
        if self.handover.every().is_some_and(|every| runtime.model_is_due(now, every)) {
            self.handover.ask(id);
        }
        self.runtimes.insert(id, runtime);
        self.drop_orphaned_jobs();
        let left_out = left_out.map_or(Ok(()), |source| Err(UnexpectedMessage::ReplicasLeftOut { lmap: id, source }));
        refused.and(unreadable).and(left_out)
    }

    /// What an LMAP that this worker does not run starts with: what it retained of the service, or what another worker
    /// has handed over, whichever is newer. With why that could not be read.
    fn retained_for(
        &mut self,
        now: Nanos,
        lmap: &proto::Lmap,
        spec: &LmapSpec,
    ) -> (Option<RetainedLmap>, Result<(), UnexpectedMessage>) {
        let own = self.retained.remove(&spec.service);
        match (own, RetainedLmap::of_another(lmap, spec, now)) {
            (Some(own), (Some(other), _)) if own.is_older_than(&other) => (Some(other), Ok(())),
            (Some(own), (_, unreadable)) => (Some(own), unreadable),
            (None, other) => other,
        }
    }

    /// Decodes and checks a configuration, before anything is changed. Replicas of owners who would have more than
    /// their shares are left out, if there are others.
    fn checked(&self, lmap: &proto::Lmap, old: Option<&LmapRuntime>) -> Result<CheckedLmap, UnexpectedMessage> {
        let id = LmapId(lmap.lmap);
        let mut spec = LmapSpec::decode(lmap).map_err(|source| UnexpectedMessage::Lmap { lmap: id, source })?;
        if old.is_none() && self.runtimes.len() >= MAX_LMAPS {
            return Err(UnexpectedMessage::TooMany(id));
        }
        let mut left_out = None;
        loop {
            let claims = RegionClaim::of(&spec);
            let replaced = old.into_iter().flat_map(|old| old.regions.claims());
            let source = match self.attachments.check(claims.iter(), replaced) {
                Ok(()) => return Ok((spec, left_out)),
                Err(RegionsError::Share(share)) if spec.replicas.iter().any(|replica| replica.owner != share.owner) => {
                    spec.replicas.retain(|replica| replica.owner != share.owner);
                    left_out = Some(share);
                    continue;
                }
                Err(source) => source,
            };
            return Err(UnexpectedMessage::Regions { lmap: id, source });
        }
    }

    /// Removes an LMAP. After a welcome, the host agent removes LMAPs of the earlier session, which the worker no
    /// longer has. The learned model is retained for the service's next start.
    fn remove_lmap(&mut self, now: Nanos, id: LmapId) {
        let Some(mut runtime) = self.runtimes.remove(&id) else { return };
        self.release(now, &mut runtime);
        if let Some((service, retained)) = runtime.into_model(now) {
            self.retained.insert(service, retained);
        }
        self.drop_orphaned_jobs();
    }

    fn subscribe_rows(&mut self, subscribe: proto::SubscribeRows) -> Result<(), UnexpectedMessage> {
        let id = LmapId(subscribe.lmap);
        let runtime = self.runtimes.get_mut(&id).ok_or(UnexpectedMessage::UnknownLmap(id))?;
        (runtime.gives.features, runtime.gives.columns) = (subscribe.features, subscribe.columns);
        runtime.subscribe(NonZeroU32::new(subscribe.every), &mut self.shared.outbox);
        Ok(())
    }
}
