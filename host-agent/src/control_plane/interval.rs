//! The interval of an LMAP: as operators set it, else as its metrics ask for it.

use wire::id::LmapId;
use wire::name::ServiceName;
use wire::time::{Interval, Nanos};

use super::interval_choice::{FastestChoice, IntervalChange, IntervalChoice, IntervalInEffect};
use super::lmap::Lmap;
use super::operator_error::OperatorError;
use super::slowdown;
use super::state::ControlPlane;

/// Rows that a detector learns from before it is armed, unless its worker is configured otherwise.
const LEARNT_ROWS: u32 = 120;

/// The interval of an LMAP whose interval is `usual` if nothing is declared. `periods` has what each series of the
/// service declares. The shortest counts, as `usual` does if a series declares nothing; within `bounds`, which services
/// cannot leave, though `usual` may.
fn interval_for(
    usual: Interval,
    periods: impl Iterator<Item = Option<Interval>>,
    (fastest, slowest): (Interval, Interval),
) -> Interval {
    let asked = periods.map(|period| period.unwrap_or(usual)).min().unwrap_or(usual);
    asked.clamp(fastest.min(usual), slowest.max(usual))
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
        if change.interval.is_some() {
            lmap.slowdown.cancel();
        }
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
        let is_kept = self.kept.get(&lmap.service, interval).is_some();
        let is_known = judged == Some(interval) || is_kept || lmap.has_model_of(interval);
        let fastest = lmap.fastest.in_effect(self.settings.adaptive);
        let (judged, rows_needed) = if is_known { (Some(interval), 0) } else { (judged, LEARNT_ROWS) };
        Ok(IntervalInEffect { before, interval, fastest, judged, rows_needed })
    }

    /// Default interval of an LMAP of `service`: one row per change of what changes most often, but not below the
    /// configured interval. Values that change less often hold between rows. Replicas without a value count if there
    /// are no others: for one that has just come back, the kept model is of the interval that it will have.
    pub(super) fn interval_of(&self, service: &ServiceName) -> Interval {
        let usual = self.settings.interval;
        let each = || {
            let replicas = self.replicas_of(service);
            replicas.map(|of| (of.series().is_empty(), of.changes_every.map_or(usual, |every| every.max(usual))))
        };
        let with_values = each().filter(|(is_empty, _)| !is_empty).map(|(_, every)| every).min();
        with_values.or_else(|| each().map(|(_, every)| every).min()).unwrap_or(usual)
    }

    /// Takes the interval that the LMAP's metrics ask for, and at which its replicas change, unless an operator has set
    /// one. One that runs becomes faster at once, for what a fast source adds, and slower after a wait: in the time
    /// that it needs to learn the longer interval anew, a source may come back.
    pub(super) fn follow_declared(&mut self, id: LmapId, now: Nanos) {
        let by_itself = self.lmaps.get(&id).filter(|lmap| lmap.usual_interval.is_some() && lmap.members.is_none());
        let usual = by_itself.map(|lmap| self.interval_of(&lmap.service));
        if let Some((lmap, usual)) = self.lmaps.get_mut(&id).zip(usual) {
            lmap.usual_interval = Some(usual);
        }
        let asked = self.declared_interval(id);
        let Some(lmap) = self.lmaps.get_mut(&id) else { return };
        let Some(asked) = asked else { return lmap.slowdown.cancel() };
        if lmap.sent.is_none() {
            lmap.slowdown.cancel();
            lmap.interval = asked;
            return;
        }
        let is_kept = self.kept.get(&lmap.service, asked).is_some_and(|kept| kept.detector == lmap.detector);
        let is_known = is_kept || lmap.has_model_of(asked);
        let learning = Nanos(asked.length().0.saturating_mul(u64::from(LEARNT_ROWS)));
        let least = if is_known { slowdown::WAIT } else { slowdown::WAIT.max(learning) };
        lmap.interval = lmap.slowdown.follow(now, (lmap.interval, asked), least, lmap.health.alarm);
    }

    /// When the next LMAP may take a longer interval.
    pub(super) fn next_slowdown(&self) -> Option<Nanos> {
        self.lmaps.values().filter_map(|lmap| lmap.slowdown.due()).min()
    }

    /// Looks again at the LMAPs that may take a longer interval.
    pub(super) fn slow_down(&mut self, now: Nanos) {
        let is_due = |lmap: &&mut Lmap| lmap.slowdown.due().is_some_and(|due| due <= now);
        let mut ready = Vec::new();
        for lmap in self.lmaps.values_mut().filter(is_due) {
            if lmap.health.alarm {
                lmap.slowdown.postpone(now);
            } else {
                ready.push(lmap.id);
            }
        }
        for id in ready {
            self.changed_now(id, now);
        }
    }

    /// The interval that the LMAP's metrics ask for; `None` if an operator has set one.
    pub(super) fn declared_interval(&self, id: LmapId) -> Option<Interval> {
        let Self { lmaps, services, settings, .. } = self;
        let lmap = lmaps.get(&id)?;
        let (service, usual) = (services.get(&lmap.service)?, lmap.usual_interval?);
        // The agent's own metrics follow.
        let is_own = |name| settings.periods.contains_key(name);
        let watched = lmap.numbers().keys().filter(|key| !is_own(&key.name));
        let periods = watched.map(|key| service.catalogue.declared(key).and_then(|declared| declared.in_effect().1));
        Some(interval_for(usual, periods, settings.interval_bounds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(millis: u64) -> Interval {
        Interval::new(Nanos::from_millis(millis)).unwrap()
    }

    #[test]
    fn the_interval_is_the_shortest_that_is_asked_for_within_bounds() {
        let bounds = (interval(100), interval(10_000));
        let of = |periods: &[Option<u64>]| {
            interval_for(interval(1000), periods.iter().map(|period| period.map(interval)), bounds).length()
        };

        assert_eq!(of(&[]), Nanos::from_secs(1));
        assert_eq!(of(&[None]), Nanos::from_secs(1));
        assert_eq!(of(&[Some(5000), Some(7000)]), Nanos::from_secs(5));
        assert_eq!(of(&[Some(5000), None]), Nanos::from_secs(1), "what declares nothing is read as usual");
        assert_eq!(of(&[Some(200), None]), Nanos::from_millis(200));
        assert_eq!(of(&[Some(1)]), Nanos::from_millis(100), "no faster than operators allow");
        assert_eq!(of(&[Some(3_600_000)]), Nanos::from_secs(10), "nor slower");
        // An operator's own interval is no matter of these bounds.
        let slow = interval_for(interval(60_000), [Some(interval(90_000))].into_iter(), bounds);
        assert_eq!(slow.length(), Nanos::from_secs(60));
    }
}
