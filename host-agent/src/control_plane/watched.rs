//! What each LMAP watches, for whoever takes its rows.

use std::sync::Arc;

use wire::control::MetricSpec;
use wire::id::LmapId;
use wire::name::ServiceName;
use wire::time::Interval;

use super::ControlPlane;
use super::lmap::Lmap;
use super::worker::Worker;

/// One LMAP.
#[derive(Clone, Copy, Debug)]
pub struct Watched<'a> {
    /// Whose service it is.
    pub service: &'a ServiceName,
    /// How often there is a row.
    pub interval: Interval,
    /// Titles of the columns as its worker was told them, and the metrics that they are made of; `None` while it runs nowhere.
    pub told: Option<(&'a Arc<[String]>, &'a [MetricSpec])>,
    /// Whether it is in an alarm.
    pub alarm: bool,
    /// γ, as it was said last; `None` while there is none.
    pub gamma: Option<f64>,
    /// Whether a replica of the service is there and measured; `None` if that cannot be said: nothing is known yet, or only spans speak of it.
    pub up: Option<bool>,
}

impl ControlPlane {
    /// All LMAPs, in the order of their ids.
    pub fn watched(&self) -> impl Iterator<Item = (LmapId, Watched<'_>)> {
        self.lmaps.values().map(|lmap| {
            let gamma = lmap.health.summary.as_ref().map(|summary| summary.gamma).filter(|gamma| *gamma > 0.0);
            let told = lmap.told.as_ref().map(|told| (&told.columns, &told.metrics[..]));
            let (service, interval, alarm) = (&lmap.service, lmap.interval, lmap.health.alarm);
            (lmap.id, Watched { service, interval, told, alarm, gamma, up: self.up(lmap) })
        })
    }

    /// Whether a replica of its service is there and measured.
    fn up(&self, lmap: &Lmap) -> Option<bool> {
        let connections = self.services.get(&lmap.service).into_iter().flat_map(|service| &service.replicas);
        // Those that the agent stands for say nothing of whether the service lives.
        let others = connections.filter(|connection| !self.agent_replicas.contains(connection));
        let mut replicas =
            others.filter_map(|connection| self.connections.get(connection)?.replica.as_ref()).peekable();
        if replicas.peek().is_none() {
            return lmap.kept.then_some(false);
        }
        let measured = lmap.worker.and_then(|worker| self.workers.get(&worker)).is_some_and(Worker::is_connected);
        if !measured {
            return Some(false);
        }
        let silent = &lmap.health.summary.as_ref()?.silent_replicas;
        Some(replicas.any(|replica| !silent.contains(&replica.id.0)))
    }

    /// The same of one LMAP.
    #[must_use]
    pub fn watched_by(&self, id: LmapId) -> Option<Watched<'_>> {
        self.watched().find(|(known, _)| *known == id).map(|(_, watched)| watched)
    }
}
