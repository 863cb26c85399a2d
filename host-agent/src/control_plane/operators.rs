//! Calls of operators (μView, Table 4.2).

use std::collections::BTreeSet;
use std::sync::Arc;

use lmap::{ExpressionError, Name};
use wire::id::{Epoch, LmapId, MetricId};
use wire::metric::Kind;
use wire::name::ServiceName;
use wire::proto::control as proto;
use wire::proto::control::host_message::Message;
use wire::time::Nanos;

use super::action::Deletion;
use super::lmap::Lmap;
use super::lmap_options::LmapOptions;
use super::operator_error::{OperatorError, bounded};
use super::operator_models::{MAX_MODEL_BYTES, check_interval};
use super::selection::{Choice, Selection, stands_for};
use super::state::{ControlPlane, Service};

/// Limit of choices and exclusions for one LMAP.
const MAX_CHOICES: usize = 2 * wire::control::MAX_METRICS;
/// Limits of expressions: of one LMAP, since they are computed for every row, and of all LMAPs.
pub(super) const MAX_EXPRESSIONS: (usize, usize) = (256, 4_096);
/// Memory of the choices of all LMAPs.
pub const MAX_CHOICE_BYTES: usize = 32 << 20;

/// A kind's name in the operators' API.
fn type_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter => "counter",
        Kind::UpDownCounter => "up_down_counter",
        Kind::Gauge => "gauge",
        Kind::Histogram(_) => "histogram",
    }
}

impl ControlPlane {
    /// `newLMAP`: watches `service` with `options`. The LMAP stays until it is deleted, even without replicas.
    ///
    /// # Errors
    ///
    /// [`OperatorError::Exists`], [`OperatorError::TooMany`] for a model over 8 MiB, [`OperatorError::ModelInterval`],
    /// [`OperatorError::Share`]; with members, those of [`Self::config_members`].
    pub fn new_lmap(
        &mut self,
        now: Nanos,
        service: &ServiceName,
        mut options: LmapOptions,
    ) -> Result<LmapId, OperatorError> {
        bounded("bytes of a model", options.model.bytes(), MAX_MODEL_BYTES)?;
        bounded("LMAPs", self.lmaps.len() + 1, self.settings.limits.services + wire::control::MAX_LMAPS)?;
        if let Some(lmap) = self.services.get(service).and_then(|service| service.lmap) {
            return Err(OperatorError::Exists { service: service.clone(), lmap });
        }
        check_interval(service, options.interval.unwrap_or_else(|| self.interval_of(service)), &options.model)?;
        let members = core::mem::take(&mut options.members);
        let is_over_several = !members.is_empty();
        let members = is_over_several.then(|| self.check_members(now, None, service, members)).transpose()?;
        self.models.take(options.by.clone(), options.model.bytes() as u64)?;
        let id = self.create_lmap(service, now);
        if let Some(lmap) = self.lmaps.get_mut(&id) {
            if let Some(interval) = options.interval {
                (lmap.interval, lmap.usual_interval) = (interval, None);
            }
            (lmap.model, lmap.model_by, lmap.detector) = (options.model, options.by, options.detector);
            lmap.pinned = true;
        }
        if let Some((members, selection)) = members {
            self.set_members(now, id, members, selection);
        }
        Ok(id)
    }

    /// `configLMAP`: watches only these metrics; all if `choices` is empty.
    ///
    /// # Errors
    ///
    /// [`OperatorError::NoLmap`], [`OperatorError::TooMany`], [`OperatorError::Expression`],
    /// [`OperatorError::WhichService`] if it watches several services.
    pub fn config_lmap(&mut self, now: Nanos, id: LmapId, choices: Vec<Choice>) -> Result<(), OperatorError> {
        bounded("metrics", choices.len(), wire::control::MAX_METRICS)?;
        if self.members_of(id).is_some() {
            return Err(OperatorError::WhichService(id));
        }
        self.check_choices(choices.iter().map(Choice::bytes).sum())?;
        choices.iter().try_for_each(|choice| self.check_derived(id, choice))?;
        self.check_expressions(Some(id), choices.iter().filter(|choice| choice.has_expression()).count())?;
        let lmap = self.lmaps.get_mut(&id).ok_or(OperatorError::NoLmap(id))?;
        lmap.selection = Selection::of(choices);
        self.selected(id, now);
        Ok(())
    }

    /// `deleteLMAP`: the service is not watched until [`Self::new_lmap`]. Without replicas, it is forgotten if
    /// [`Limits::unwatched_services`](super::Limits::unwatched_services) others are remembered.
    ///
    /// # Errors
    ///
    /// [`OperatorError::NoLmap`].
    pub fn delete_lmap(&mut self, now: Nanos, id: LmapId) -> Result<(), OperatorError> {
        let lmap = self.lmaps.get(&id).ok_or(OperatorError::NoLmap(id))?;
        let (service, watches_it) = (lmap.service.clone(), lmap.members.is_none());
        self.remove_lmap(id, now, Deletion::Operator);
        self.kept.forget(&service);
        let entry = self.services.entry(service.clone()).or_default();
        entry.unwatched = watches_it;
        if entry.replicas.is_empty() && (!watches_it || !self.remembers_unwatched()) {
            self.services.remove(&service);
        }
        Ok(())
    }

    /// `addMetric`: also watches all series of one name. `kind` is the type that the operator expects. Returns the
    /// series' ids.
    ///
    /// # Errors
    ///
    /// [`OperatorError::NoLmap`], [`OperatorError::NotRegistered`], [`OperatorError::Type`],
    /// [`OperatorError::TooMany`].
    pub fn add_metric(
        &mut self,
        now: Nanos,
        id: LmapId,
        choice: Choice,
        kind: Option<&str>,
    ) -> Result<Vec<MetricId>, OperatorError> {
        self.check_choices(choice.bytes())?;
        self.check_derived(id, &choice)?;
        let before = self.lmaps.get(&id).map_or(0, |lmap| lmap.selection.expressions());
        self.check_expressions(Some(id), before + usize::from(choice.has_expression()))?;
        let lmap = self.lmaps.get(&id).ok_or(OperatorError::NoLmap(id))?;
        let name = choice.metric.clone();
        let Some(series) = choice.derived_series().or_else(|| self.registered(lmap, &name)) else {
            return Err(OperatorError::NotRegistered { service: lmap.service.clone(), metric: name.to_string() });
        };
        let known = type_name(series.kind);
        if let Some(asked) = kind.filter(|asked| *asked != known) {
            let asked = asked.chars().take(32).collect();
            return Err(OperatorError::Type { metric: name.to_string(), known: known.to_owned(), asked });
        }
        bounded("choices", lmap.selection.len() + 1, MAX_CHOICES)?;
        if let Some(lmap) = self.lmaps.get_mut(&id) {
            lmap.selection.add(choice);
        }
        self.selected(id, now);
        let numbers = self.lmaps.get(&id).map(Lmap::numbers).into_iter().flatten();
        Ok(numbers.filter(|(key, _)| key.name == name).map(|(_, &number)| number).collect())
    }

    /// `deleteMetric`: stops watching one series.
    ///
    /// # Errors
    ///
    /// [`OperatorError::NoLmap`], [`OperatorError::NoMetric`], [`OperatorError::TooMany`].
    pub fn delete_metric(&mut self, now: Nanos, id: LmapId, metric: MetricId) -> Result<(), OperatorError> {
        self.check_choices(0)?;
        let lmap = self.lmaps.get_mut(&id).ok_or(OperatorError::NoLmap(id))?;
        let key = lmap.key_of(metric).map(Arc::clone).ok_or(OperatorError::NoMetric { lmap: id, metric })?;
        bounded("choices", lmap.selection.len() + 1, MAX_CHOICES)?;
        lmap.selection.remove(key);
        self.selected(id, now);
        Ok(())
    }

    /// Declares the current behaviour normal: the worker refits the LMAP.
    ///
    /// # Errors
    ///
    /// [`OperatorError::NoLmap`], [`OperatorError::NotRunning`].
    pub fn fit_again(&mut self, now: Nanos, id: LmapId) -> Result<(), OperatorError> {
        // The next worker would go on with what was normal before.
        self.cancel_move(id, now);
        let lmap = self.lmaps.get(&id).ok_or(OperatorError::NoLmap(id))?;
        let running = lmap.worker.filter(|_| lmap.sent.is_some() && !self.due.contains_key(&id));
        let worker_id = running.ok_or(OperatorError::NotRunning(id))?;
        let worker = self.workers.get_mut(&worker_id).filter(|worker| worker.is_connected());
        let worker = worker.ok_or(OperatorError::NotRunning(id))?;
        worker.epoch = worker.epoch.next();
        let epoch = worker.epoch.0;
        self.counters.sent_changes += 1;
        // What was normal before is not what the operator means.
        self.kept.forget(&lmap.service);
        if let Some(lmap) = self.lmaps.get_mut(&id) {
            lmap.refitted = Epoch(epoch);
        }
        self.send(worker_id, epoch, Message::FitAgain(proto::FitAgain { lmap: id.0 }));
        Ok(())
    }

    /// Subscribes to every `every`-th raw row of the LMAP; 0 ends the subscription. Survives reconnects and moves.
    ///
    /// # Errors
    ///
    /// [`OperatorError::NoLmap`].
    pub fn subscribe_rows(&mut self, id: LmapId, every: u32) -> Result<(), OperatorError> {
        let features = self.lmaps.get(&id).is_some_and(|lmap| lmap.features);
        self.subscribe(id, every, features)
    }

    /// As [`Self::subscribe_rows`]; with `features`, verdicts carry the row that was judged and its residuals.
    ///
    /// # Errors
    ///
    /// [`OperatorError::NoLmap`].
    pub fn subscribe(&mut self, id: LmapId, every: u32, features: bool) -> Result<(), OperatorError> {
        let lmap = self.lmaps.get_mut(&id).ok_or(OperatorError::NoLmap(id))?;
        let columns = lmap.looked_at;
        if (lmap.rows_every, lmap.features) != (every, features) {
            (lmap.rows_every, lmap.features) = (every, features);
            self.send_subscription(id, proto::SubscribeRows { lmap: id.0, every, features, columns });
        }
        Ok(())
    }

    /// Somebody looks at these LMAPs: their summaries carry each column, and those of all others do not. Survives
    /// reconnects and moves. O(LMAPs).
    pub fn look_at(&mut self, looked: &BTreeSet<LmapId>) {
        let mut changed = Vec::new();
        for lmap in self.lmaps.values_mut() {
            let columns = looked.contains(&lmap.id);
            if lmap.looked_at != columns {
                lmap.looked_at = columns;
                let (every, features) = (lmap.rows_every, lmap.features);
                changed.push(proto::SubscribeRows { lmap: lmap.id.0, every, features, columns });
            }
        }
        for subscription in changed {
            self.send_subscription(LmapId(subscription.lmap), subscription);
        }
    }

    /// Whether these LMAPs, as far as they are there, and no others are looked at.
    #[must_use]
    pub fn is_looked_at(&self, looked: &BTreeSet<LmapId>) -> bool {
        self.lmaps.values().all(|lmap| lmap.looked_at == looked.contains(&lmap.id))
    }

    fn send_subscription(&mut self, id: LmapId, subscription: proto::SubscribeRows) {
        let Some(lmap) = self.lmaps.get(&id) else { return };
        // An LMAP that is due to be sent gets the subscription with it.
        let running = lmap.worker.filter(|_| lmap.sent.is_some() && !self.due.contains_key(&id));
        for worker in running.into_iter().chain(self.prepared_worker(id)) {
            let epoch = self.workers.get(&worker).map_or(0, |worker| worker.epoch.0);
            self.send(worker, epoch, Message::SubscribeRows(subscription));
        }
    }

    /// Whether the metrics that a derived column names are registered. Without a replica, nobody can say.
    fn check_derived(&self, id: LmapId, choice: &Choice) -> Result<(), OperatorError> {
        let Some(expression) = choice.derived() else { return Ok(()) };
        let lmap = self.lmaps.get(&id).ok_or(OperatorError::NoLmap(id))?;
        if let Some(members) = &lmap.members {
            return self.check_names(members, choice);
        }
        let catalogue = self.services.get(&lmap.service).map(|service| &service.catalogue);
        let Some(catalogue) = catalogue.filter(|catalogue| catalogue.iter().next().is_some()) else { return Ok(()) };
        for Name { text, at } in expression.names() {
            let mut registered = catalogue.iter().map(|(_, series)| series);
            if text == choice.metric.as_str() || !registered.any(|series| stands_for(text, series)) {
                let known = format!("columns of {} are, such as requests or duration.p99", lmap.service);
                let error = ExpressionError::Name { at: *at, name: text.clone(), known };
                return Err(OperatorError::Expression { metric: choice.metric.to_string(), error });
            }
        }
        Ok(())
    }

    /// Checks whether the LMAP may have so many expressions.
    pub(super) fn check_expressions(&self, id: Option<LmapId>, expressions: usize) -> Result<(), OperatorError> {
        let others = self.lmaps.values().filter(|lmap| Some(lmap.id) != id).map(|lmap| lmap.selection.expressions());
        bounded("expressions of one LMAP", expressions, MAX_EXPRESSIONS.0)?;
        bounded("expressions of all LMAPs", others.sum::<usize>() + expressions, MAX_EXPRESSIONS.1)
    }

    /// Bytes of the metrics that operators have chosen. O(choices): operators are few.
    #[must_use]
    pub fn choice_bytes(&self) -> usize {
        self.lmaps.values().map(|lmap| lmap.selection.bytes()).sum()
    }

    /// Checks whether choices of all LMAPs may take so many bytes `more`.
    pub(super) fn check_choices(&self, more: usize) -> Result<(), OperatorError> {
        bounded("bytes of chosen metrics", self.choice_bytes() + more, MAX_CHOICE_BYTES)
    }

    /// The LMAP's selection changed.
    fn selected(&mut self, id: LmapId, now: Nanos) {
        let Some(lmap) = self.lmaps.get_mut(&id) else {
            return;
        };
        lmap.pinned = true;
        if lmap.members.is_some() {
            self.join_members(id, now);
        } else if let Some(Service { catalogue, .. }) = self.services.get(&lmap.service) {
            lmap.reselect(catalogue);
            lmap.selection.find_pending(catalogue, now);
        }
        self.changed(id, now);
    }
}
