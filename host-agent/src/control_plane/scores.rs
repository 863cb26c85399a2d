//! Scores and alarms of LMAPs that judge, for who scales services by them.

use ::incidents::streams::PREFIX;
use wire::id::LmapId;
use wire::proto::control as proto;

use super::lmap::Lmap;
use super::state::ControlPlane;

/// What an LMAP that judges says now.
#[derive(Clone, Debug, PartialEq)]
pub struct LmapScore {
    /// The service that it watches, or its own name if it watches several.
    pub lmap: String,
    /// Score of the last row over γ; `None` while a replica is silent, since no row is judged then.
    pub ratio: Option<f64>,
    /// Whether it is in alarm.
    pub alarm: bool,
}

impl ControlPlane {
    /// LMAPs of streams of packets, with the names of their services.
    pub fn packet_streams(&self) -> impl Iterator<Item = (LmapId, &str)> {
        let all = self.lmaps.values().map(|lmap| (lmap.id, lmap.service.as_str()));
        all.filter(|(_, service)| service.starts_with(PREFIX))
    }

    /// LMAPs that judge. One that learns, or whose worker is away, is not among them: nothing is known of it.
    pub fn scores(&self) -> impl Iterator<Item = LmapScore> {
        let is_connected = |lmap: &Lmap| {
            lmap.worker.and_then(|worker| self.workers.get(&worker)).is_some_and(super::worker::Worker::is_connected)
        };
        self.lmaps.values().filter(move |lmap| lmap.is_armed() && is_connected(lmap)).map(|lmap| LmapScore {
            lmap: lmap.service.to_string(),
            ratio: last_ratio(lmap),
            alarm: lmap.health.alarm,
        })
    }

    /// Score of the last row of `id` over γ; `None` while no row is judged.
    #[must_use]
    pub fn last_ratio(&self, id: LmapId) -> Option<f64> {
        last_ratio(self.lmaps.get(&id)?)
    }
}

/// Score of the last row over γ.
fn last_ratio(lmap: &Lmap) -> Option<f64> {
    let summary = lmap.health.summary.as_ref().filter(|_| lmap.is_armed())?;
    let judges = summary.state() != proto::State::Silent && summary.gamma > 0.0;
    let score = lmap.health.last_score.filter(|_| judges)?;
    Some(f64::from(score) / summary.gamma)
}
