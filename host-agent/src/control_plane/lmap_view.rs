//! A read-only view of LMAPs, for the consumers of their rows.

use std::collections::BTreeSet;
use std::sync::Arc;

use wire::control::MetricSpec;
use wire::id::LmapId;
use wire::name::ServiceName;
use wire::time::Interval;

use super::connections::Connection;
use super::lmap::Lmap;
use super::state::ControlPlane;
use super::worker::Worker;

/// One LMAP, as a consumer of its rows sees it.
#[derive(Clone, Copy, Debug)]
pub struct LmapView<'a> {
    /// The service it watches.
    pub service: &'a ServiceName,
    /// Whether it watches several services, and `service` is its own name.
    pub is_over_several: bool,
    /// Interval between rows.
    pub interval: Interval,
    /// Column titles as sent to the worker, and the metrics they are made of; `None` while no worker runs it.
    pub sent: Option<(&'a Arc<[String]>, &'a [MetricSpec])>,
    /// Whether it is in an alarm.
    pub alarm: bool,
    /// Whether an LMAP over several services is in an alarm that concerns its service.
    pub is_concerned: bool,
    /// γ of the latest summary; `None` while there is none.
    pub gamma: Option<f64>,
    /// Whether a replica of the service is registered and measured. `None` if unknown: no summary yet, or the service
    /// is known by spans only.
    pub up: Option<bool>,
}

impl ControlPlane {
    /// All LMAPs, in the order of their ids.
    pub fn lmap_views(&self) -> impl Iterator<Item = (LmapId, LmapView<'_>)> {
        let over_several = self.over_several.iter().filter_map(|id| self.lmaps.get(id));
        let concerned: BTreeSet<&ServiceName> = over_several.flat_map(|lmap| &lmap.health.concerned).collect();
        self.lmaps.values().map(move |lmap| {
            let gamma = lmap.health.summary.as_ref().map(|summary| summary.gamma).filter(|gamma| *gamma > 0.0);
            let sent = lmap.sent.as_ref().map(|sent| (&sent.columns, &sent.metrics[..]));
            let (service, interval, alarm) = (&lmap.service, lmap.interval, lmap.health.alarm);
            let (is_over_several, is_concerned) = (lmap.members.is_some(), concerned.contains(service));
            let up = self.up(lmap);
            (lmap.id, LmapView { service, is_over_several, interval, sent, alarm, is_concerned, gamma, up })
        })
    }

    /// Whether a replica of its service is registered and measured.
    fn up(&self, lmap: &Lmap) -> Option<bool> {
        let connections = self.services.get(&lmap.service).into_iter().flat_map(|service| &service.replicas);
        let connections = connections.filter_map(|&connection| self.connections.get(connection));
        // The agent's own replicas say nothing about the service's health.
        let others = connections.filter(|connection| !connection.is_own);
        let mut replicas = others.filter_map(Connection::replica).peekable();
        if replicas.peek().is_none() {
            return lmap.pinned.then_some(false);
        }
        let measured = lmap.worker.and_then(|worker| self.workers.get(&worker)).is_some_and(Worker::is_connected);
        if !measured {
            return Some(false);
        }
        let silent = &lmap.health.summary.as_ref()?.silent_replicas;
        Some(replicas.any(|replica| !silent.contains(&replica.id.0)))
    }

    /// The view of one LMAP.
    #[must_use]
    pub fn lmap_view(&self, id: LmapId) -> Option<LmapView<'_>> {
        self.lmap_views().find(|(known, _)| *known == id).map(|(_, watched)| watched)
    }
}
