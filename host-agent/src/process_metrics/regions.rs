//! Where the values of one process go.

use std::sync::atomic::Ordering;

use region::{CreateError, OwnedRegion};
use wire::layout::RegionSize;
use wire::registration::PlacedSeries;
use wire::time::Nanos;

use super::measures::{self, Values};
use super::process::SLOW_AT;
use crate::sampling_times::FASTEST;

/// The regions of one process. Each says when all of its values were sampled.
pub(super) struct ProcessRegions {
    usual: OwnedRegion,
    /// That of expensive values, where some samples have them and others do not: an increment would be divided by the
    /// time between two samples of the others.
    expensive: Option<OwnedRegion>,
}

/// Whether expensive values have a region of their own if samples come every `interval`. Where all samples have these
/// values, or none ever comes faster, one time is enough: then the values are always as old, or as new.
fn are_apart(interval: Nanos) -> bool {
    FASTEST < interval && interval < SLOW_AT
}

impl ProcessRegions {
    /// Regions for process `pid`, which is sampled every `interval`, or more often.
    ///
    /// # Errors
    ///
    /// There is no memory for them.
    pub(super) fn create(pid: u32, interval: Nanos) -> Result<Self, CreateError> {
        let create = || OwnedRegion::create(&format!("uview-process-{pid}"), RegionSize::ONE_PAGE);
        let expensive = if are_apart(interval) { Some(create()?) } else { None };
        Ok(Self { usual: create()?, expensive })
    }

    /// Writes what was sampled at `now`.
    pub(super) fn store(&self, values: &Values, now: Nanos) {
        let mut is_any_expensive = false;
        for (measure, value) in values.iter() {
            is_any_expensive |= measure.is_expensive();
            let apart = self.expensive.as_ref().filter(|_| measure.is_expensive());
            if let Some(slot) = apart.unwrap_or(&self.usual).slot(measure.slot()) {
                // Relaxed: values are independent of each other.
                slot.store(value, Ordering::Relaxed);
            }
        }
        self.usual.sampled(now);
        if let Some(expensive) = self.expensive.as_ref().filter(|_| is_any_expensive) {
            expensive.sampled(now);
        }
    }

    /// Each region with the series of `values` that are in it, if there are any.
    pub(super) fn placed(&self, values: &Values) -> impl Iterator<Item = (&OwnedRegion, Vec<PlacedSeries>)> {
        let is_apart = self.expensive.is_some();
        let of = |expensive: bool| {
            let all = values.iter().map(|(measure, _)| measure);
            measures::placed(all.filter(|measure| (is_apart && measure.is_expensive()) == expensive))
        };
        let apart = self.expensive.as_ref().map(|region| (region, of(true)));
        let all = core::iter::once((&self.usual, of(false))).chain(apart);
        all.filter(|(_, series)| !series.is_empty())
    }

    /// When the values of both were sampled last, in µs.
    #[cfg(test)]
    pub(super) fn times(&self) -> (u64, Option<u64>) {
        (self.usual.heartbeat(), self.expensive.as_ref().map(OwnedRegion::heartbeat))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expensive_values_are_apart_where_some_samples_have_none_and_samples_may_come_faster() {
        let apart = [100, 101, 500, 949, 950, 1_000].map(|millis| are_apart(Nanos::from_millis(millis)));

        assert_eq!(apart, [false, true, true, true, false, false]);
    }
}
