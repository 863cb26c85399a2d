//! Calls of operators (μView, Table 4.2).

use std::collections::BTreeSet;
use std::sync::Arc;

use agent_runtime::shares::ShareError;
use lmap::{ExpressionError, ModelError, Name};
use wire::control::DetectorSpec;
use wire::id::{Epoch, LmapId, MetricId, WorkerId};
use wire::metric::Kind;
use wire::name::{NameError, ServiceName};
use wire::proto::control as proto;
use wire::proto::control::host_message::Message;
use wire::time::{Interval, Nanos};

use super::selection::{Choice, Selection, stands_for};
use super::{ControlPlane, Deletion, Service};

/// Size limit of an LMAP's model.
const MAX_MODEL_BYTES: usize = 8 << 20;
/// Most bytes of all operators' models. Each is kept here, and by the worker that runs its LMAP.
pub const MAX_MODELS_BYTES: u64 = 256 << 20;
/// Limit of choices and exclusions for one LMAP.
const MAX_CHOICES: usize = 2 * wire::control::MAX_METRICS;
/// Limits of expressions: of one LMAP, since they are computed for every row, and of all LMAPs.
pub(super) const MAX_EXPRESSIONS: (usize, usize) = (256, 4_096);
/// Memory of the choices of all LMAPs.
pub const MAX_CHOICE_BYTES: usize = 32 << 20;

/// Why an operator's call failed. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OperatorError {
    /// No such LMAP.
    #[error("there is no {0}: use the list call to find LMAPs")]
    NoLmap(LmapId),
    /// The service already has an LMAP.
    #[error("{service} already has {lmap}: configure it, or delete it first")]
    Exists {
        /// The service in the call.
        service: ServiceName,
        /// The LMAP that it has.
        lmap: LmapId,
    },
    /// An LMAP over several services needs a name of its own.
    #[error("{0} is a service: make an LMAP of another name for metrics of several services")]
    OwnService(ServiceName),
    /// A member of an LMAP over several services is an LMAP itself.
    #[error("{0} is an LMAP over several services: name the services themselves")]
    NoService(ServiceName),
    /// Columns of two members could have the same name.
    #[error("columns of {service} and {other} cannot be told apart: leave one of them out")]
    Nested {
        /// One of the members.
        service: ServiceName,
        /// A member whose name begins with the other one's and a slash.
        other: ServiceName,
    },
    /// A column of a member cannot have a name.
    #[error("columns of {service}: {error}")]
    Column {
        /// The member that has them.
        service: ServiceName,
        /// What is wrong with `service/metric`.
        error: NameError,
    },
    /// Metrics without the service that they are of.
    #[error("{0} watches several services: say of which one each metric is")]
    WhichService(LmapId),
    /// The LMAP has no such metric.
    #[error("{lmap} does not watch {metric}")]
    NoMetric {
        /// The LMAP in the call.
        lmap: LmapId,
        /// The unknown metric.
        metric: MetricId,
    },
    /// No replica of the service registered a metric of this name.
    #[error("no replica of {service} has registered {metric}")]
    NotRegistered {
        /// The service of the LMAP, or its name if it watches several.
        service: ServiceName,
        /// The metric's name.
        metric: String,
    },
    /// The metric has another type.
    #[error("{metric} is a {known}, not a {asked}")]
    Type {
        /// The metric's name.
        metric: String,
        /// Type of the registered metric.
        known: String,
        /// The type in the call.
        asked: String,
    },
    /// A derived column names what is no column.
    #[error("{metric}: {error}")]
    Expression {
        /// Name of the column.
        metric: String,
        /// What is wrong, and where.
        error: ExpressionError,
    },
    /// No connected worker runs the LMAP.
    #[error("{0} runs on no worker: start a NIC agent, or wait until it reconnects")]
    NotRunning(LmapId),
    /// No such worker.
    #[error("there is no worker {}: `uview status` lists them", .0.0)]
    NoWorker(WorkerId),
    /// No other worker takes LMAPs.
    #[error(
        "no other worker takes the LMAPs of worker {}, and nothing would be watched: start another NIC agent first, or use force",
        .0.0
    )]
    LastWorker(WorkerId),
    /// The interval is out of bounds.
    #[error("an interval of {} is outside {} to {}: {key} of the configuration set these bounds", asked.length(), fastest.length(), slowest.length())]
    Interval {
        /// The interval in the call.
        asked: Interval,
        /// The shortest that is allowed.
        fastest: Interval,
        /// The longest that is allowed.
        slowest: Interval,
        /// The keys that set the bounds.
        key: &'static str,
    },
    /// The operator's share of bytes of models is taken.
    #[error(transparent)]
    Share(#[from] ShareError<String>),
    /// A limit is exceeded.
    #[error("{found} {what} exceed the limit of {limit}")]
    TooMany {
        /// What the limit is about.
        what: &'static str,
        /// The number in the call.
        found: usize,
        /// The limit that is exceeded.
        limit: usize,
    },
}

/// A trained model as bytes; empty: there is none. What is not empty decodes as a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrainedModel(Vec<u8>);

impl TrainedModel {
    /// The model in `bytes`. Decodes them, which takes milliseconds for a large one: not for a thread that others wait
    /// for.
    ///
    /// # Errors
    ///
    /// [`ModelError`] unless they are empty or a model file.
    pub fn new(bytes: Vec<u8>) -> Result<Self, ModelError> {
        if !bytes.is_empty() {
            lmap::Model::decode(&bytes)?;
        }
        Ok(Self(bytes))
    }

    /// Its length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Its bytes, for a worker.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.0.clone()
    }
}

/// Options of a new LMAP. The defaults are those of LMAPs that no operator asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LmapOptions {
    /// The local scraping interval; the agent's default if `None`.
    pub interval: Option<Interval>,
    /// A trained model; empty: the LMAP learns by itself.
    pub model: TrainedModel,
    /// Settings of the detector.
    pub detector: DetectorSpec,
    /// The operator who asks, and who pays for the model.
    pub by: String,
    /// The services of an LMAP over several; empty: one of its own name.
    pub members: Vec<MemberChoices>,
}

/// Metrics of one service for an LMAP over several (an entry of the dictionary of `configLMAP`).
#[derive(Clone, Debug, PartialEq)]
pub struct MemberChoices {
    /// Name of the service.
    pub service: ServiceName,
    /// Its metrics, by their own names; without any but derived columns, all of them.
    pub choices: Vec<Choice>,
}

pub(super) fn bounded(what: &'static str, found: usize, limit: usize) -> Result<(), OperatorError> {
    if found > limit { Err(OperatorError::TooMany { what, found, limit }) } else { Ok(()) }
}

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
    /// [`OperatorError::Exists`], [`OperatorError::TooMany`] for a model over 8 MiB, [`OperatorError::Share`]; with
    /// members, those of [`Self::config_members`].
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
        let numbers = self.lmaps.get(&id).map(super::Lmap::numbers).into_iter().flatten();
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

    /// Checks whether choices of all LMAPs may take so many bytes `more`. O(choices): operators are few.
    pub(super) fn check_choices(&self, more: usize) -> Result<(), OperatorError> {
        let bytes: usize = self.lmaps.values().map(|lmap| lmap.selection.bytes()).sum();
        bounded("bytes of chosen metrics", bytes + more, MAX_CHOICE_BYTES)
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
