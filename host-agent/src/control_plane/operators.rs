//! What operators ask for (μView, Table 4.2).

use std::sync::Arc;

use wire::control::DetectorSpec;
use wire::id::{LmapId, MetricId};
use wire::metric::Kind;
use wire::name::ServiceName;
use wire::proto::control as proto;
use wire::proto::control::host_message::Message;
use wire::time::{Interval, Nanos};

use super::selection::{Choice, Selection};
use super::{ControlPlane, Service};

/// The largest model that an LMAP is given.
const MAX_MODEL_BYTES: usize = 8 << 20;
/// The most choices and exclusions that operators make for one LMAP.
const MAX_CHOICES: usize = 2 * wire::control::MAX_METRICS;

/// Why an operator's call was not done. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OperatorError {
    /// No such LMAP.
    #[error("there is no {0}; the list call names those that there are")]
    NoLmap(LmapId),
    /// The service has one.
    #[error("{service} has {lmap} already: configure that one, or delete it first")]
    Exists {
        /// Which service.
        service: ServiceName,
        /// What it has.
        lmap: LmapId,
    },
    /// The LMAP has no such metric.
    #[error("{lmap} does not watch {metric}")]
    NoMetric {
        /// Which LMAP.
        lmap: LmapId,
        /// Which metric.
        metric: MetricId,
    },
    /// No replica registered a metric of this name.
    #[error("no replica of {service} has registered {metric}")]
    NotRegistered {
        /// Which service.
        service: ServiceName,
        /// Which name.
        metric: String,
    },
    /// The metric is of another type.
    #[error("{metric} is registered as a {known}, not as a {asked}")]
    Type {
        /// Which metric.
        metric: String,
        /// What it is.
        known: String,
        /// What was asked.
        asked: String,
    },
    /// No worker runs the LMAP now.
    #[error("{0} runs on no worker now: start a NIC agent, or wait until it is back")]
    NotRunning(LmapId),
    /// Too much of something.
    #[error("{found} {what} are more than {limit}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        found: usize,
        /// How many there may be.
        limit: usize,
    },
}

/// What an operator wants of a new LMAP; the default is what one has that nobody asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// The local scraping interval; the agent's default if `None`.
    pub interval: Option<Interval>,
    /// A trained model; empty: it arms itself.
    pub model: Vec<u8>,
    /// How it judges.
    pub detector: DetectorSpec,
}

fn bounded(what: &'static str, found: usize, limit: usize) -> Result<(), OperatorError> {
    if found > limit { Err(OperatorError::TooMany { what, found, limit }) } else { Ok(()) }
}

/// A kind's name in an operator's call.
fn type_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter => "counter",
        Kind::UpDownCounter => "up_down_counter",
        Kind::Gauge => "gauge",
        Kind::Histogram(_) => "histogram",
    }
}

impl ControlPlane {
    /// `newLMAP`: watches `service` as it was `asked` for. The LMAP is kept until it is deleted, also without replicas.
    ///
    /// # Errors
    ///
    /// [`OperatorError::Exists`] if it has one, [`OperatorError::TooMany`] for a model over 8 MiB.
    pub fn new_lmap(&mut self, now: Nanos, service: &ServiceName, asked: Asked) -> Result<LmapId, OperatorError> {
        bounded("bytes of a model", asked.model.len(), MAX_MODEL_BYTES)?;
        bounded("LMAPs", self.lmaps.len() + 1, wire::control::MAX_LMAPS * self.settings.limits.workers as usize)?;
        if let Some(lmap) = self.services.get(service).and_then(|service| service.lmap) {
            return Err(OperatorError::Exists { service: service.clone(), lmap });
        }
        let id = self.make_lmap(service, now);
        if let Some(lmap) = self.lmaps.get_mut(&id) {
            lmap.interval = asked.interval.unwrap_or(lmap.interval);
            (lmap.model, lmap.detector) = (asked.model, asked.detector);
            lmap.kept = true;
        }
        Ok(id)
    }

    /// `configLMAP`: watches these metrics only; all if there are none.
    ///
    /// # Errors
    ///
    /// [`OperatorError::NoLmap`], [`OperatorError::TooMany`].
    pub fn config_lmap(&mut self, now: Nanos, id: LmapId, choices: Vec<Choice>) -> Result<(), OperatorError> {
        bounded("metrics", choices.len(), wire::control::MAX_METRICS)?;
        let lmap = self.lmaps.get_mut(&id).ok_or(OperatorError::NoLmap(id))?;
        lmap.selection = Selection::of(choices);
        self.selected(id, now);
        Ok(())
    }

    /// `deleteLMAP`: stops watching its service until [`Self::new_lmap`].
    ///
    /// # Errors
    ///
    /// [`OperatorError::NoLmap`].
    pub fn delete_lmap(&mut self, now: Nanos, id: LmapId) -> Result<(), OperatorError> {
        let service = self.lmaps.get(&id).ok_or(OperatorError::NoLmap(id))?.service.clone();
        self.free_lmap(id, now);
        self.services.entry(service).or_default().unwatched = true;
        Ok(())
    }

    /// `addMetric`: watches all series of one more name. `kind` is the type that the operator thinks it has. Returns the series' ids.
    ///
    /// # Errors
    ///
    /// [`OperatorError::NoLmap`], [`OperatorError::NotRegistered`], [`OperatorError::Type`], [`OperatorError::TooMany`].
    pub fn add_metric(
        &mut self,
        now: Nanos,
        id: LmapId,
        choice: Choice,
        kind: Option<&str>,
    ) -> Result<Vec<MetricId>, OperatorError> {
        let lmap = self.lmaps.get_mut(&id).ok_or(OperatorError::NoLmap(id))?;
        let service = self.services.get(&lmap.service).ok_or(OperatorError::NoLmap(id))?;
        let name = choice.metric.clone();
        let Some((_, series)) = service.catalogue.named(&name).next() else {
            return Err(OperatorError::NotRegistered { service: lmap.service.clone(), metric: name.to_string() });
        };
        let known = type_name(series.kind);
        if let Some(asked) = kind.filter(|asked| *asked != known) {
            let asked = asked.chars().take(32).collect();
            return Err(OperatorError::Type { metric: name.to_string(), known: known.to_owned(), asked });
        }
        bounded("choices", lmap.selection.len() + 1, MAX_CHOICES)?;
        lmap.selection.add(choice);
        self.selected(id, now);
        let numbers = self.lmaps.get(&id).map(super::Lmap::numbers).into_iter().flatten();
        Ok(numbers.filter(|(key, _)| key.name == name).map(|(_, &number)| number).collect())
    }

    /// `deleteMetric`: watches one series less.
    ///
    /// # Errors
    ///
    /// [`OperatorError::NoLmap`], [`OperatorError::NoMetric`], [`OperatorError::TooMany`].
    pub fn delete_metric(&mut self, now: Nanos, id: LmapId, metric: MetricId) -> Result<(), OperatorError> {
        let lmap = self.lmaps.get_mut(&id).ok_or(OperatorError::NoLmap(id))?;
        let key = lmap.key_of(metric).map(Arc::clone).ok_or(OperatorError::NoMetric { lmap: id, metric })?;
        bounded("choices", lmap.selection.len() + 1, MAX_CHOICES)?;
        lmap.selection.remove(key);
        self.selected(id, now);
        Ok(())
    }

    /// What the LMAP calls an anomaly is normal now: its worker fits it again.
    ///
    /// # Errors
    ///
    /// [`OperatorError::NoLmap`], [`OperatorError::NotRunning`] if no connected worker runs it.
    pub fn fit_again(&mut self, id: LmapId) -> Result<(), OperatorError> {
        let lmap = self.lmaps.get(&id).ok_or(OperatorError::NoLmap(id))?;
        let running = lmap.worker.filter(|_| lmap.told.is_some() && !self.due.contains_key(&id));
        let worker_id = running.ok_or(OperatorError::NotRunning(id))?;
        let worker = self.workers.get_mut(&worker_id).filter(|worker| worker.is_connected());
        let worker = worker.ok_or(OperatorError::NotRunning(id))?;
        worker.epoch = worker.epoch.next();
        let epoch = worker.epoch.0;
        self.counters.sent_changes += 1;
        self.send(worker_id, epoch, Message::FitAgain(proto::FitAgain { lmap: id.0 }));
        Ok(())
    }

    /// Every `every`-th raw row of the LMAP is wanted from now on; 0 ends it. Holds over reconnects and moves.
    ///
    /// # Errors
    ///
    /// [`OperatorError::NoLmap`].
    pub fn subscribe_rows(&mut self, id: LmapId, every: u32) -> Result<(), OperatorError> {
        let lmap = self.lmaps.get_mut(&id).ok_or(OperatorError::NoLmap(id))?;
        if core::mem::replace(&mut lmap.rows_every, every) == every {
            return Ok(());
        }
        // If it is due to be told, to a worker that has come back perhaps, the subscription goes along.
        if let Some(worker) = lmap.worker.filter(|_| lmap.told.is_some() && !self.due.contains_key(&id)) {
            let epoch = self.workers.get(&worker).map_or(0, |worker| worker.epoch.0);
            self.send(worker, epoch, Message::SubscribeRows(proto::SubscribeRows { lmap: id.0, every }));
        }
        Ok(())
    }

    /// The LMAP's selection changed.
    fn selected(&mut self, id: LmapId, now: Nanos) {
        let Some(lmap) = self.lmaps.get_mut(&id) else {
            return;
        };
        lmap.kept = true;
        if let Some(Service { catalogue, .. }) = self.services.get(&lmap.service) {
            lmap.select_again(catalogue);
        }
        self.changed(id, now);
    }
}
