//! What each LMAP watches, for whoever takes its rows.

use std::sync::Arc;

use wire::control::MetricSpec;
use wire::id::LmapId;
use wire::name::ServiceName;
use wire::time::Interval;

use super::ControlPlane;

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
}

impl ControlPlane {
    /// All LMAPs, in the order of their ids.
    pub fn watched(&self) -> impl Iterator<Item = (LmapId, Watched<'_>)> {
        self.lmaps.values().map(|lmap| {
            let gamma = lmap.health.summary.as_ref().map(|summary| summary.gamma).filter(|gamma| *gamma > 0.0);
            let told = lmap.told.as_ref().map(|told| (&told.columns, &told.metrics[..]));
            let (service, interval, alarm) = (&lmap.service, lmap.interval, lmap.health.alarm);
            (lmap.id, Watched { service, interval, told, alarm, gamma })
        })
    }

    /// The same of one LMAP.
    #[must_use]
    pub fn watched_by(&self, id: LmapId) -> Option<Watched<'_>> {
        self.watched().find(|(known, _)| *known == id).map(|(_, watched)| watched)
    }
}
