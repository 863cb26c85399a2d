//! Which services are fetched faster than their rows are due, since something seems wrong with them: whatever samples
//! them follows.
//!
//! A worker decides by itself how often it fetches an LMAP. Its summaries say how often that is, once a second at most.
//! So the verdict about a row above γ counts at once: from that row on the worker fetches faster, unless it may not,
//! which its next summary says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wire::control::Verdict;
use wire::id::{LmapId, WorkerId};
use wire::name::ServiceName;
use wire::proto::control as proto;
use wire::time::{Interval, Nanos};

use super::action::Action;
use super::lmap::Lmap;
use super::members::Members;
use super::paces::bounded;
use super::state::ControlPlane;
use super::worker::{SampledWords, Worker};

/// What a summary says about the time between two fetches; `None`: the LMAP is fetched for its rows.
fn pace(summary: &proto::LmapSummary) -> Option<Interval> {
    let is_fast = 0 < summary.fetch_us && summary.fetch_us < summary.interval_us;
    Interval::new(Nanos::from_micros(summary.fetch_us)).ok().filter(|_| is_fast)
}

/// The services that it watches.
fn watched_by(lmap: &Lmap) -> impl Iterator<Item = &ServiceName> {
    let own = lmap.members.is_none().then_some(&lmap.service);
    own.into_iter().chain(lmap.members.iter().flat_map(Members::names))
}

impl ControlPlane {
    /// Least time between two fetches of `lmap` while something seems wrong; `None`: it is fetched for its rows only.
    /// As long as there are no replicas, as it was asked for.
    pub(super) fn fastest_of(&self, lmap: &Lmap) -> Option<Interval> {
        let asked = lmap.fastest.in_effect(self.settings.adaptive);
        let mut replicas = watched_by(lmap).flat_map(|service| self.replicas_of(service)).peekable();
        if replicas.peek().is_none() { asked } else { bounded(asked, replicas) }
    }

    /// A summary says how often `worker` fetches an LMAP.
    pub(super) fn take_pace(&mut self, worker: WorkerId, summary: &proto::LmapSummary) {
        let reads_times = self.reads_sample_times(worker);
        if let Some(lmap) = self.lmaps.get_mut(&LmapId(summary.lmap)) {
            lmap.pace = pace(summary).filter(|_| reads_times);
        }
    }

    /// A row outside of an alarm is above γ: `worker` fetches its LMAP faster from now on, if it may.
    pub(super) fn hurry(&mut self, worker: WorkerId, verdict: &Verdict) {
        let is_over = verdict.row.is_some() && self.reads_sample_times(worker);
        let lmap =
            self.lmaps.get_mut(&verdict.lmap).filter(|lmap| is_over && !lmap.health.alarm && lmap.pace.is_none());
        let Some(lmap) = lmap else { return };
        let learns = lmap.health.summary.as_ref().is_some_and(|summary| summary.learning_us > 0);
        let Some(sent) = lmap.sent.as_ref().filter(|_| !learns) else { return };
        let parts = sent.fastest.and_then(|fastest| sent.interval.parts(fastest));
        lmap.pace = parts.map(|parts| sent.interval.part(parts));
    }

    /// Tells which services are fetched faster, if these are others than before, or their paces are. O(LMAPs).
    pub(super) fn tell_paces(&mut self) {
        let is_any = self.lmaps.values().any(|lmap| lmap.pace.is_some());
        let counted = if is_any { self.counted_services() } else { BTreeSet::new() };
        let mut paces: BTreeMap<ServiceName, Interval> = BTreeMap::new();
        for (lmap, pace) in self.lmaps.values().filter_map(|lmap| Some((lmap, lmap.pace?))) {
            for service in watched_by(lmap).filter(|service| !counted.contains(service)) {
                let known = paces.entry(service.clone()).or_insert(pace);
                *known = pace.min(*known);
            }
        }
        if paces != *self.paces {
            self.paces = Arc::new(paces);
            self.actions.push(Action::Paces(Arc::clone(&self.paces)));
        }
    }

    /// Services of which a worker of an earlier release has an LMAP, too. What samples a service has one pace for all
    /// who read it, and that worker would take another one for another load.
    fn counted_services(&self) -> BTreeSet<&ServiceName> {
        let counts = |(id, worker): (&WorkerId, &Worker)| {
            let session = worker.session.as_ref();
            session.filter(|session| session.sampled_words == SampledWords::Counts).map(|_| *id)
        };
        let lmaps_of = |worker: WorkerId| self.lmaps.values().filter(move |lmap| lmap.is_on(worker));
        self.workers.iter().filter_map(counts).flat_map(lmaps_of).flat_map(watched_by).collect()
    }

    /// Whether `worker` computes increments by the times of samples: they may come at another pace.
    fn reads_sample_times(&self, worker: WorkerId) -> bool {
        let session = self.workers.get(&worker).and_then(|worker| worker.session.as_ref());
        session.is_some_and(|session| session.sampled_words == SampledWords::Times)
    }
}
