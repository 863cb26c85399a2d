//! LMAPs over several services (μView, Table 4.2: `configLMAP(LMAPID, Dict<ServiceID, List<MetricConfig>>)`).
//!
//! Rules (decision D33):
//! - It has a name that is no service's: its models, verdicts, alarms and hooks go by that name. A service that wants
//!   to register under it is refused.
//! - It has no replicas of its own: its configuration has those of all members. It is one LMAP, so one worker reads all
//!   of it, in one batch.
//! - It stays until an operator deletes it, whichever members come and go.
//! - Workers charge what they keep for it to the agent, not to the members' owners.
//! - Slots and regions of any service are released after all workers have acknowledged the latest change of every LMAP
//!   over several, also of one that has forgotten the service.

use std::collections::BTreeMap;
use std::sync::Arc;

use lmap::{ExpressionError, Name};
use wire::control::{LmapSpec, MAX_REPLICAS, MetricSpec, ReplicaSpec};
use wire::id::{LmapId, MetricId, Owner};
use wire::metric::Series;
use wire::name::{MetricName, ServiceName};
use wire::time::Nanos;

use super::catalogue::Catalogue;
use super::lmap::Lmap;
use super::lmap_options::MemberChoices;
use super::members::{MAX_MEMBER_SERIES, MemberSeries, MemberState, Members};
use super::operator_error::{OperatorError, bounded};
use super::operators::MAX_EXPRESSIONS;
use super::paces;
use super::replica::{Replica, SeriesKey};
use super::selection::{Choice, Selection, stands_for};
use super::state::ControlPlane;
use super::trained_model::TrainedModel;

/// LMAPs over several services.
pub const MAX_OVER_SEVERAL: usize = 32;
/// Regions of the replicas of all members, and places of their series: further replicas are left out.
pub const MAX_MEMBER_REGIONS: usize = 1_024;
const MAX_PLACES: usize = 1 << 17;

impl ControlPlane {
    /// `configLMAP` with several services: from now on the LMAP watches these metrics of these services.
    ///
    /// # Errors
    ///
    /// [`OperatorError::NoLmap`]; [`OperatorError::OwnService`] if it is the LMAP of a service, unless that is the only
    /// one in `members`; [`OperatorError::NoService`], [`OperatorError::Nested`], [`OperatorError::Column`] for
    /// services that cannot be members; those of [`Self::config_lmap`].
    pub fn config_members(
        &mut self,
        now: Nanos,
        id: LmapId,
        mut members: Vec<MemberChoices>,
    ) -> Result<(), OperatorError> {
        let lmap = self.lmaps.get(&id).ok_or(OperatorError::NoLmap(id))?;
        if lmap.members.is_none() && members.iter().all(|member| member.service == lmap.service) {
            let choices = members.drain(..).flat_map(|member| member.choices).collect();
            return self.config_lmap(now, id, choices);
        }
        let service = lmap.service.clone();
        let (members, selection) = self.check_members(now, Some(id), &service, members)?;
        self.set_members(now, id, members, selection);
        Ok(())
    }

    /// Checks what an operator asks of the LMAP `id`, or of a new one, over several services.
    ///
    /// # Errors
    ///
    /// [`OperatorError::OwnService`] if `name` is a service's, [`OperatorError::NoService`] for a member that is none;
    /// [`OperatorError::TooMany`], [`OperatorError::Nested`], [`OperatorError::Column`],
    /// [`OperatorError::Expression`].
    pub(super) fn check_members(
        &self,
        now: Nanos,
        id: Option<LmapId>,
        name: &ServiceName,
        members: Vec<MemberChoices>,
    ) -> Result<(Members, Selection), OperatorError> {
        if self.services.get(name).is_some_and(|service| !service.replicas.is_empty()) && !self.is_over_several(name) {
            return Err(OperatorError::OwnService(name.clone()));
        }
        let is_none = |member: &&MemberChoices| member.service == *name || self.is_over_several(&member.service);
        if let Some(none) = members.iter().find(is_none) {
            return Err(OperatorError::NoService(none.service.clone()));
        }
        let others = self.lmaps.values().filter(|lmap| lmap.members.is_some() && Some(lmap.id) != id);
        bounded("LMAPs over several services", others.count() + 1, MAX_OVER_SEVERAL)?;
        let (members, selection) = Members::new(members, now)?;
        bounded("metrics", selection.len(), MAX_MEMBER_SERIES)?;
        self.check_choices(selection.bytes())?;
        selection.derived().try_for_each(|(choice, _)| self.check_names(&members, choice))?;
        self.check_expressions(id, selection.expressions())?;
        debug_assert!(MAX_EXPRESSIONS.0 <= MAX_MEMBER_SERIES, "each has a column");
        Ok((members, selection))
    }

    /// Sets what was checked.
    pub(super) fn set_members(&mut self, now: Nanos, id: LmapId, members: Members, selection: Selection) {
        let Some(lmap) = self.lmaps.get_mut(&id) else { return };
        let before = lmap.members.take();
        lmap.members = Some(members.instead_of(before));
        (lmap.selection, lmap.pinned) = (selection, true);
        self.over_several.insert(id);
        self.join_members(id, now);
        self.changed(id, now);
    }

    /// Whether this is the name of an LMAP over several services.
    pub(super) fn is_over_several(&self, name: &ServiceName) -> bool {
        let lmap = self.services.get(name).and_then(|service| service.lmap).and_then(|id| self.lmaps.get(&id));
        lmap.is_some_and(|lmap| lmap.members.is_some())
    }

    /// Series or replicas of `service` have changed: so do LMAPs of which it is a member.
    pub(super) fn members_changed(&mut self, service: &ServiceName, now: Nanos) {
        let has_it = |id: &&LmapId| self.members_of(**id).is_some_and(|members| members.has(service));
        let of_it: Vec<LmapId> = self.over_several.iter().filter(has_it).copied().collect();
        for id in of_it {
            self.changed(id, now);
        }
    }

    /// Forgets deleted LMAPs over several services that no worker knows any more.
    pub(super) fn forget_over_several(&mut self) {
        let Self { over_several, lmaps, due, workers, .. } = self;
        let may_know = |id| workers.values().any(|worker| worker.may_know(id));
        over_several.retain(|id| lmaps.contains_key(id) || due.contains_key(id) || may_know(*id));
    }

    /// Finds the series of an LMAP over several services anew.
    pub(super) fn join_members(&mut self, id: LmapId, now: Nanos) {
        let Self { lmaps, services, connections, settings, .. } = self;
        let Some(lmap) = lmaps.get_mut(&id) else { return };
        let Some(mut members) = lmap.members.take() else { return };
        let registered = |service: &ServiceName| {
            let service = services.get(service);
            let replicas: Vec<&Replica> =
                service.into_iter().flat_map(|service| connections.replicas_of(&service.replicas)).collect();
            (service.map(|service| &service.catalogue), replicas)
        };
        let watch = |of: (&ServiceName, Option<&Choice>),
                     (key, series): (&SeriesKey, &Series),
                     catalogue: &Catalogue,
                     replicas: &[&Replica]| {
            let mut watch = lmap.watch_of(of, (key, series), catalogue, settings);
            watch.every = watch.every.max(lmap.changes_every(key, replicas));
            watch
        };
        members.join(&lmap.selection, registered, watch, now);
        lmap.number_only(members.series().keys());
        let is_registered = |name: &MetricName| {
            let (service, metric) = members.find(name.as_str())?;
            let metric = MetricName::new(metric).ok()?;
            services.get(service)?.catalogue.named(&metric).next().map(drop)
        };
        lmap.selection.find_pending_in(|name| is_registered(name).is_some(), now);
        lmap.members = Some(members);
    }

    /// The configuration of an LMAP over several services; `None` if no replica has any of its series.
    pub(super) fn spec_of_members(&self, lmap: &Lmap, members: &Members) -> Option<LmapSpec> {
        let number = |key: &Arc<SeriesKey>| lmap.numbers().get(key).copied();
        let watched = |(key, of): (&Arc<SeriesKey>, &MemberSeries)| {
            let (series, aggregation, every) = (of.series.clone(), of.watch.aggregation.clone(), of.watch.every);
            Some(MetricSpec { id: number(key)?, series, aggregation, every })
        };
        let mut metrics: Vec<MetricSpec> = members.series().iter().filter_map(watched).chain(lmap.derived()).collect();
        metrics.sort_by_key(|metric| metric.id);
        let (replicas, _) = self.member_replicas(lmap, members);
        let all = members.names().flat_map(|service| self.replicas_of(service));
        let fastest = paces::bounded(lmap.fastest.in_effect(self.settings.adaptive), all);
        let placed = replicas.iter().any(|replica| !replica.places.is_empty());
        placed.then(|| LmapSpec {
            id: lmap.id,
            service: lmap.service.clone(),
            interval: lmap.interval,
            heartbeat: self.settings.heartbeat,
            metrics,
            replicas,
            model: lmap.model_in_use().map(TrainedModel::to_vec).unwrap_or_default(),
            detector: lmap.detector,
            several_services: true,
            fastest,
        })
    }

    /// The replicas of all members, and how many are left out.
    fn member_replicas(&self, lmap: &Lmap, members: &Members) -> (Vec<ReplicaSpec>, usize) {
        let numbered = members.series().iter().filter_map(|(key, of)| Some((of, *lmap.numbers().get(key)?)));
        let numbers: BTreeMap<(&ServiceName, &SeriesKey), MetricId> =
            numbered.map(|(of, number)| ((&of.service, &*of.key), number)).collect();
        let (mut replicas, mut left_out) = (Vec::new(), 0);
        let (mut regions, mut places) = (0, 0);
        for replica in members.names().flat_map(|service| self.replicas_of(service)) {
            let number = |key: &SeriesKey| numbers.get(&(&replica.service, key)).copied();
            let spec = Lmap::replica_spec(replica, number, Owner::Agent);
            let with_it = (regions + spec.regions.len(), places + spec.places.len());
            if replicas.len() >= MAX_REPLICAS || with_it.0 > MAX_MEMBER_REGIONS || with_it.1 > MAX_PLACES {
                left_out += 1;
            } else {
                (regions, places) = with_it;
                replicas.push(spec);
            }
        }
        (replicas, left_out)
    }

    /// The members of an LMAP over several services.
    pub(super) fn members_of(&self, id: LmapId) -> Option<&Members> {
        self.lmaps.get(&id)?.members.as_ref()
    }

    /// What operators see of the members of an LMAP, each with its number of replicas; none if it watches one service.
    pub(super) fn member_states(&self, id: LmapId) -> impl Iterator<Item = (MemberState, usize)> {
        let states = self.members_of(id).into_iter().flat_map(Members::states);
        states.map(|state| {
            let replicas = self.services.get(&state.service).map_or(0, |service| service.replicas.len());
            (state, replicas)
        })
    }

    /// The replicas of a service.
    pub(super) fn replicas_of(&self, service: &ServiceName) -> impl Iterator<Item = &Replica> {
        let service = self.services.get(service).into_iter();
        service.flat_map(|service| self.connections.replicas_of(&service.replicas))
    }

    /// A registered series with the name of a column.
    pub(super) fn registered(&self, lmap: &Lmap, name: &MetricName) -> Option<Series> {
        let first =
            |catalogue: &Catalogue, name: &MetricName| catalogue.named(name).next().map(|(_, series)| series.clone());
        match &lmap.members {
            None => first(&self.services.get(&lmap.service)?.catalogue, name),
            Some(members) => {
                let (service, metric) = members.find(name.as_str())?;
                first(&self.services.get(service)?.catalogue, &MetricName::new(metric).ok()?)
            }
        }
    }

    /// Whether the metrics that a derived column names are registered. Of a service that is missing, nobody can say.
    pub(super) fn check_names(&self, members: &Members, choice: &Choice) -> Result<(), OperatorError> {
        let Some(expression) = choice.derived() else { return Ok(()) };
        for Name { text, at } in expression.names() {
            let catalogue = |service| self.services.get(service).map(|service| &service.catalogue);
            let is_known = match members.find(text) {
                None => false,
                Some((service, column)) => match catalogue(service).filter(|of| of.iter().next().is_some()) {
                    None => true,
                    Some(catalogue) => catalogue.iter().any(|(_, series)| stands_for(column, series)),
                },
            };
            if text == choice.metric.as_str() || !is_known {
                let known = "columns of the services are, in backquotes, such as `payment/requests`".to_owned();
                let error = ExpressionError::Name { at: *at, name: text.clone(), known };
                return Err(OperatorError::Expression { metric: choice.metric.to_string(), error });
            }
        }
        Ok(())
    }

    /// Series that LMAPs over several services leave out.
    #[must_use]
    pub fn left_out_series(&self) -> usize {
        self.lmaps.values().filter_map(|lmap| lmap.members.as_ref()).map(Members::left_out).sum()
    }

    /// Status lines about LMAPs over several services of which series or replicas are left out.
    pub(super) fn left_out(&self) -> Vec<String> {
        let over_several = self.lmaps.values().filter_map(|lmap| Some((lmap, lmap.members.as_ref()?)));
        let lines = over_several.flat_map(|(lmap, members)| {
            let (series, (_, replicas)) = (members.left_out(), self.member_replicas(lmap, members));
            let series = (series > 0).then(|| {
                format!("{series} series are left out: at most {MAX_MEMBER_SERIES} are watched, with names of 255 bytes")
            });
            let replicas = (replicas > 0).then(|| {
                format!("{replicas} replicas are left out: at most {MAX_MEMBER_REGIONS} regions of all its services are read")
            });
            series.into_iter().chain(replicas).map(|line| format!("{}: {line}", lmap.service))
        });
        lines.collect()
    }
}
