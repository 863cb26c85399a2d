//! The interval of an LMAP as operators set it, and how often it is fetched while something seems wrong.

use wire::id::LmapId;
use wire::time::{Interval, Nanos};

use super::{ControlPlane, OperatorError};

/// Rows that a detector learns from before it is armed, unless its worker is configured otherwise.
const LEARNT_ROWS: u32 = 120;

/// How often an LMAP is fetched while something seems wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FastestChoice {
    /// As the configuration says.
    #[default]
    Default,
    /// For its rows only.
    Never,
    /// At most this often.
    AtMost(Interval),
}

impl FastestChoice {
    /// Least time between two fetches if the configuration says `configured`; `None`: for its rows only.
    #[must_use]
    pub fn in_effect(self, configured: Option<Interval>) -> Option<Interval> {
        match self {
            Self::Default => configured,
            Self::Never => None,
            Self::AtMost(fastest) => Some(fastest),
        }
    }
}

/// The interval that an operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntervalChoice {
    /// As its metrics and the configuration say.
    Default,
    /// This one, whatever they say.
    Of(Interval),
}

/// A change that an operator asks for. What is `None` stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalChange {
    /// The interval of its rows.
    pub interval: Option<IntervalChoice>,
    /// How often it is fetched while something seems wrong.
    pub fastest: Option<FastestChoice>,
    /// The operator who asks.
    pub by: String,
}

/// What is in effect after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntervalInEffect {
    /// The interval before.
    pub before: Interval,
    /// The interval from now on.
    pub interval: Interval,
    /// Least time between two fetches while something seems wrong.
    pub fastest: Option<Interval>,
    /// The interval at which rows are judged until it is learnt; `None`: none are.
    pub judged: Option<Interval>,
    /// Rows that have to be learnt first.
    pub rows_needed: u32,
}

impl ControlPlane {
    /// Sets the interval of an LMAP, or how often it is fetched while something seems wrong. The LMAP stays until it is
    /// deleted, even without replicas.
    ///
    /// # Errors
    ///
    /// [`OperatorError::NoLmap`], [`OperatorError::Interval`].
    pub fn set_interval(
        &mut self,
        now: Nanos,
        id: LmapId,
        change: &IntervalChange,
    ) -> Result<IntervalInEffect, OperatorError> {
        let (fastest, slowest) = self.settings.operator_bounds;
        let least = self.settings.adaptive.map_or(fastest, |adaptive| adaptive.min(fastest));
        let within = |asked: Option<Interval>, fastest: Interval, key| match asked {
            Some(asked) if asked < fastest || slowest < asked => {
                Err(OperatorError::Interval { asked, fastest, slowest, key })
            }
            _ => Ok(()),
        };
        let asked = match change.interval {
            Some(IntervalChoice::Of(interval)) => Some(interval),
            Some(IntervalChoice::Default) | None => None,
        };
        within(asked, fastest, "lmap.fastest_ms and lmap.slowest_ms")?;
        if let Some(FastestChoice::AtMost(asked)) = change.fastest {
            within(Some(asked), least, "lmap.adaptive.fastest_ms, lmap.fastest_ms and lmap.slowest_ms")?;
        }
        let service = &self.lmaps.get(&id).ok_or(OperatorError::NoLmap(id))?.service;
        let usual = self.interval_of(service);
        let lmap = self.lmaps.get_mut(&id).ok_or(OperatorError::NoLmap(id))?;
        let before = lmap.interval;
        match change.interval {
            None => {}
            Some(IntervalChoice::Of(interval)) => {
                (lmap.interval, lmap.usual_interval, lmap.interval_by) = (interval, None, change.by.clone());
            }
            Some(IntervalChoice::Default) => {
                (lmap.interval, lmap.usual_interval, lmap.interval_by) = (usual, Some(usual), String::new());
            }
        }
        lmap.fastest = change.fastest.unwrap_or(lmap.fastest);
        lmap.pinned = true;
        let declared = self.declared_interval(id).filter(|_| change.interval == Some(IntervalChoice::Default));
        if let Some((lmap, declared)) = self.lmaps.get_mut(&id).zip(declared) {
            lmap.interval = declared;
        }
        self.changed(id, now);
        self.interval_in_effect(id, before)
    }

    fn interval_in_effect(&self, id: LmapId, before: Interval) -> Result<IntervalInEffect, OperatorError> {
        let lmap = self.lmaps.get(&id).ok_or(OperatorError::NoLmap(id))?;
        let interval = lmap.interval;
        let summary = lmap.health.summary.as_ref().filter(|_| lmap.is_armed());
        let judged = summary.map(|summary| Interval::new(Nanos::from_micros(summary.interval_us)).unwrap_or(before));
        let is_known = judged == Some(interval) || self.kept.get(&lmap.service, interval).is_some();
        let fastest = lmap.fastest.in_effect(self.settings.adaptive);
        let (judged, rows_needed) = if is_known { (Some(interval), 0) } else { (judged, LEARNT_ROWS) };
        Ok(IntervalInEffect { before, interval, fastest, judged, rows_needed })
    }
}
