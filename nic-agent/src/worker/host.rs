//! What the host agent says: configurations, subscriptions, requests.
//!
//! Every message is a change with the epoch after the last one; the acknowledgement says that it is in effect. A welcome begins anew: all
//! configurations are let go, and come again. What the detectors have learnt is kept by the name of the service, so that learning survives
//! a host agent's restart.

use core::num::NonZeroU32;

use wire::control::{LmapSpec, MAX_LMAPS};
use wire::id::{Epoch, Incarnation, LmapId};
use wire::proto::control::host_message::Message;
use wire::proto::control::{self as proto, HostMessage};
use wire::rdma::TRANSPORT;
use wire::time::Nanos;

use super::{Effect, Link, MOST_DEFERRED, Worker};
use crate::alarm::Alarm;
use crate::error::{ForeignMessage, told};
use crate::settings::Fetching;
use crate::watch::Watch;

/// A worker says something at least this often, however short its lease.
const SHORTEST_SUMMARY: Nanos = Nanos::from_millis(10);

impl Worker {
    /// Takes in what the host agent says. While a batch is out it waits for [`Worker::fetched`], so that an acknowledgement means that no
    /// READ of an earlier epoch is in flight.
    ///
    /// # Errors
    ///
    /// [`ForeignMessage`]: what was not taken. It has been counted, and the worker goes on.
    pub fn on_host(&mut self, now: Nanos, message: HostMessage) -> Result<(), ForeignMessage> {
        let taken = if self.out.is_none() {
            self.take_in(now, message)
        } else if self.deferred.len() < MOST_DEFERRED {
            self.deferred.push_back(message);
            Ok(())
        } else {
            self.close("too many messages came while a batch was out".to_owned());
            Err(ForeignMessage::Flood(MOST_DEFERRED))
        };
        self.counted.foreign_messages += u64::from(taken.is_err());
        taken
    }

    fn take_in(&mut self, now: Nanos, message: HostMessage) -> Result<(), ForeignMessage> {
        let epoch = Epoch(message.epoch);
        match (self.link, message.message) {
            (Link::Greeting, Some(Message::Welcome(welcome))) => self.welcome(now, &welcome),
            (Link::Greeting | Link::Up, Some(Message::Refusal(refusal))) => {
                // Whoever is fenced must not read on by its configuration, and is welcome as another run only.
                self.park_all(now);
                self.incarnation = Incarnation(self.seeds.draw());
                self.close(format!("refused: {}", refusal.reason));
                Err(ForeignMessage::Refused(refusal.reason))
            }
            (Link::Up, Some(Message::Welcome(_))) => Err(ForeignMessage::Unknown),
            (Link::Up, Some(Message::QueuePair(answer))) => {
                let effect = self.queue_pair.answer(now, answer, &mut self.seeds)?;
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
            (Link::Up, None) => {
                self.begin(epoch)?;
                Err(ForeignMessage::Unknown)
            }
            (Link::Up, Some(change)) => {
                self.begin(epoch)?;
                let done = self.change(now, epoch, change);
                self.shared.outbox.acknowledge(epoch);
                done
            }
            (Link::Gone { .. } | Link::Greeting | Link::Closing, _) => Err(ForeignMessage::TooEarly),
        }
    }

    fn change(&mut self, now: Nanos, epoch: Epoch, change: Message) -> Result<(), ForeignMessage> {
        match change {
            Message::SetLmap(lmap) => {
                let set = self.set_lmap(now, epoch, &lmap);
                if let Err(problem) = &set {
                    self.shared.outbox.lmap_problem(LmapId(lmap.lmap), told(problem));
                }
                set
            }
            Message::RemoveLmap(remove) => {
                self.remove_lmap(now, LmapId(remove.lmap));
                Ok(())
            }
            Message::FitAgain(fit) => {
                let id = LmapId(fit.lmap);
                let watch = self.watches.get_mut(&id).ok_or(ForeignMessage::UnknownLmap(id))?;
                watch.fit_again(&mut self.shared.jobs);
                Ok(())
            }
            Message::Welcome(_)
            | Message::Refusal(_)
            | Message::SubscribeRows(_)
            | Message::SetLowestShare(_)
            | Message::QueuePair(_) => Err(ForeignMessage::Unknown),
        }
    }

    /// Every change has the epoch after the one before: a gap means that something was lost, and only a new connection mends that.
    fn begin(&mut self, epoch: Epoch) -> Result<(), ForeignMessage> {
        match self.epoch {
            Some(last) if epoch != last.next() => {
                let error = ForeignMessage::Epoch { found: epoch, last };
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

    fn welcome(&mut self, now: Nanos, welcome: &proto::HostWelcome) -> Result<(), ForeignMessage> {
        let transport = self.chosen(&welcome.transport).map(str::to_owned);
        let Some(transport) = transport else {
            let error = ForeignMessage::Transport(welcome.transport.chars().take(64).collect());
            self.close(error.to_string());
            return Err(error);
        };
        let host = Incarnation(welcome.host_incarnation);
        self.park_all(now);
        if host != self.host {
            self.shared.outbox.forget();
            // Another run has heard of no alarm yet.
            for parked in self.parked.values_mut() {
                parked.alarm = Alarm::default();
            }
        }
        (self.host, self.epoch, self.link) = (host, None, Link::Up);
        self.set_lowest_share(welcome.lowest_share);
        let lease = Nanos::from_millis(u64::from(welcome.lease_ms));
        self.counted.welcomes += 1;
        self.period = self.settings.summary;
        if lease != Nanos::ZERO {
            self.period = self.period.min(Nanos(lease.0 / 3)).max(SHORTEST_SUMMARY);
        }
        self.next_summary = self.next_summary.min(now.plus(self.period));
        let fetching = if transport == TRANSPORT { Fetching::Verbs } else { Fetching::Memory };
        if transport != self.transport {
            self.attachments.push(Effect::Use(fetching));
        }
        (self.transport, self.fetching) = (transport, fetching);
        self.queue_pair.welcomed(now, fetching == Fetching::Verbs);
        Ok(())
    }

    /// A share that is none means the worker's own.
    fn set_lowest_share(&mut self, share: f64) {
        self.shared.lowest_share = if share.is_finite() && share >= 0.0 { share } else { self.settings.lowest_share };
    }

    /// The transport that a welcome means. One that names none is of a host agent that knows of shared memory only.
    fn chosen(&self, name: &str) -> Option<&str> {
        let mut offered = self.settings.transports.iter().map(String::as_str);
        if name.is_empty() { offered.find(|name| *name != TRANSPORT) } else { offered.find(|own| *own == name) }
    }

    /// A configuration that does not hold replaces the one before all the same: that one is not in effect any more, and to read by it
    /// would take one metric for another.
    fn set_lmap(&mut self, now: Nanos, epoch: Epoch, lmap: &proto::Lmap) -> Result<(), ForeignMessage> {
        let id = LmapId(lmap.lmap);
        let mut old = self.watches.remove(&id);
        let spec = match self.checked(lmap, old.as_ref()) {
            Ok(spec) => spec,
            Err(refused) => {
                if let Some(old) = &old {
                    self.let_go(old);
                    self.forget_jobs();
                }
                return Err(refused);
            }
        };
        let parked = match &mut old {
            Some(old) => Some(old.lend(now)),
            None => self.parked.remove(&spec.service),
        };
        let (mut watch, refused) = Watch::new(&spec, epoch, &self.settings, parked, &mut self.shared.maker);
        self.schedule.join(spec.interval, now);
        let mut attached = Vec::new();
        for region in watch.regions.specs() {
            attached.push((region.id, self.attachments.acquire(self.host, region)));
        }
        watch.begin_digest(now, self.period);
        if let Some(old) = old {
            self.let_go(&old);
            watch = watch.take_over(old, &mut self.shared.outbox);
        }
        for (region, attached) in attached {
            watch.regions.set_attached(region, attached);
        }
        self.watches.insert(id, watch);
        self.forget_jobs();
        refused
    }

    /// What of a configuration can be taken, before anything is done by it.
    fn checked(&self, lmap: &proto::Lmap, old: Option<&Watch>) -> Result<LmapSpec, ForeignMessage> {
        let id = LmapId(lmap.lmap);
        let spec = LmapSpec::decode(lmap).map_err(|source| ForeignMessage::Lmap { lmap: id, source })?;
        if old.is_none() && self.watches.len() >= MAX_LMAPS {
            return Err(ForeignMessage::TooMany(id));
        }
        let regions = spec.replicas.iter().flat_map(|replica| &replica.regions);
        let replaced = old.into_iter().flat_map(|old| old.regions.specs());
        self.attachments.check(regions, replaced).map_err(|source| ForeignMessage::Regions { lmap: id, source })?;
        Ok(spec)
    }

    /// After a welcome the host agent takes back what it told this worker before, which the worker has let go already. What was learnt of the
    /// service is kept for its next start.
    fn remove_lmap(&mut self, now: Nanos, id: LmapId) {
        let Some(watch) = self.watches.remove(&id) else { return };
        self.let_go(&watch);
        if let Some((service, parked)) = watch.leave(now) {
            self.parked.insert(service, parked);
        }
        self.forget_jobs();
    }

    fn subscribe_rows(&mut self, subscribe: proto::SubscribeRows) -> Result<(), ForeignMessage> {
        let id = LmapId(subscribe.lmap);
        let watch = self.watches.get_mut(&id).ok_or(ForeignMessage::UnknownLmap(id))?;
        watch.subscribe(NonZeroU32::new(subscribe.every), &mut self.shared.outbox);
        Ok(())
    }
}
