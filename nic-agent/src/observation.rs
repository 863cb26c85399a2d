//! The observation of a region in a tick, and when series are read.

use wire::id::{RegionId, ReplicaId};
use wire::layout::{Slot, sampled_at};
use wire::metric::TickDivider;
use wire::time::{Interval, Nanos};

/// The state of a region in this tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Observation {
    /// Its words are of this tick and of the known layout.
    Fresh,
    /// As fresh, but the region is written periodically by a sampler; the number counts its writes. A region that was
    /// not written since the last observation has no new value. So a counter's increment does not alternate between 0
    /// and twice its value when two clocks beat against each other, and does not drop to 0 when the sampler stops.
    Sampled(u64),
    /// Likewise, and the number tells [when](sampled_at) the values were sampled: a sampler may change its pace.
    Timed(u64),
    /// As fresh, but its sampler, which will say when it wrote, has not written yet: its words are no values. Its time
    /// would be that of the clock's start: what the first sample has counted would be spread over all the time since.
    Unsampled,
    /// It could not be read. Earlier values stay valid: a counter's next increment is spread over the time between.
    Unread,
    /// Its slots may have another meaning. Earlier values are discarded.
    Discarded,
    /// Its replica is silent: the words are not written any more. Earlier values are discarded.
    Silent,
}

impl Observation {
    /// Whether its region could be read.
    pub(crate) fn is_read(self) -> bool {
        matches!(self, Self::Fresh | Self::Sampled(_) | Self::Timed(_) | Self::Unsampled)
    }

    /// Whether earlier values are discarded.
    pub(crate) fn forgets(self) -> bool {
        matches!(self, Self::Discarded | Self::Silent)
    }
}

/// Where a series of a replica is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SeriesLocation {
    pub(crate) replica: ReplicaId,
    pub(crate) region: RegionId,
    pub(crate) first: Slot,
}

/// The time of an observation, and the interval between ticks.
///
/// An increment is what was added *per interval*: it is divided by the intervals since the last observation. So a late
/// tick, a region that could not be read, and a metric that is read every n ticks do not look like load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObservationTime {
    pub(crate) at: Nanos,
    pub(crate) interval: Interval,
    /// Parts of an interval to which times are rounded: 1 for rows, more for a row that covers a part of an interval.
    pub(crate) parts: u32,
    /// The part of the interval that the row covers; 1 for all but partial rows.
    pub(crate) covers: f64,
}

impl ObservationTime {
    /// A tick at which a row is due.
    pub(crate) const fn of_row(at: Nanos, interval: Interval) -> Self {
        Self { at, interval, parts: 1, covers: 1.0 }
    }

    /// Intervals since `before`, rounded to parts, at least one part; `None` if no time has passed. Without rounding, a
    /// tick that is a little late or early would make a constant count look variable.
    pub(crate) fn intervals_since(self, before: Nanos) -> Option<f64> {
        let elapsed = self.at.since(before).filter(|elapsed| *elapsed != Nanos::ZERO)?;
        let part = self.part();
        let rounded = (elapsed.0.saturating_add(part / 2) / part).max(1) as f64;
        Some(if self.parts > 1 { rounded / f64::from(self.parts) } else { rounded })
    }

    /// A part of the interval, in ns.
    fn part(self) -> u64 {
        (self.interval.nanos().get() / u64::from(self.parts.max(1))).max(1)
    }
}

/// When the values of a region were written, as far as an observation of it tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueTime {
    time: ObservationTime,
    source: TimeSource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeSource {
    /// They are written at any time: they are of the time of the fetch.
    Fetch,
    /// A sampler has written them, it does not say when: about once since the row before, or not at all.
    Unknown,
    /// The sampler says when.
    Sampler,
}

impl ValueTime {
    /// A sampler's time that is a multiple of a part but for this share of a part is taken for one.
    const ROUNDED: u64 = 20;

    /// The time of what is observed so, in an observation at `time`.
    pub(crate) fn of(observation: Observation, time: ObservationTime) -> Self {
        match observation {
            Observation::Timed(word) => {
                Self { time: ObservationTime { at: sampled_at(word), ..time }, source: TimeSource::Sampler }
            }
            Observation::Sampled(_) => Self { time, source: TimeSource::Unknown },
            _ => Self { time, source: TimeSource::Fetch },
        }
    }

    /// The time, of the clock that tells it.
    pub(crate) const fn at(self) -> Nanos {
        self.time.at
    }

    /// Intervals in which a counter has grown since `before`, a time of the same clock; `None` if that is not known: no
    /// time has passed, or the row is partial and the sampler does not say when it wrote. A sampler's time is not
    /// rounded, unless it is hardly late or early: when it changes its pace, it is none of whole parts.
    pub(crate) fn intervals_since(self, before: Nanos) -> Option<f64> {
        let rounded = self.time.intervals_since(before)?;
        match self.source {
            TimeSource::Fetch => Some(rounded),
            TimeSource::Unknown => Some(rounded).filter(|_| self.time.parts <= 1),
            TimeSource::Sampler => {
                let (elapsed, part) = (self.time.at.since(before)?.0, self.time.part());
                let fewest = self.time.covers - 1.5 / f64::from(self.time.parts);
                if self.time.parts > 1 && (elapsed as f64) < fewest * self.time.interval.nanos().get() as f64 {
                    // Of a shorter time than the row: it would count as if all of it had been like that.
                    return None;
                }
                let off = elapsed.abs_diff((elapsed.saturating_add(part / 2) / part).max(1).saturating_mul(part));
                let is_near = off.saturating_mul(Self::ROUNDED) <= part;
                Some(if is_near { rounded } else { elapsed as f64 / self.time.interval.nanos().get() as f64 })
            }
        }
    }

    /// Whether what rises and falls tells in this row how it has moved since `before`, a time of the same clock. In a
    /// partial row it has to have been sampled at the fetch before that began, too, or hardly earlier: a move is taken
    /// for one within the part.
    pub(crate) fn tells_moves(self, before: Option<Nanos>) -> bool {
        if self.time.parts <= 1 {
            return true;
        }
        match self.source {
            TimeSource::Fetch => true,
            TimeSource::Unknown => false,
            TimeSource::Sampler => before.is_none_or(|before| {
                let longest = self.time.covers + 1.5 / f64::from(self.time.parts);
                self.intervals_since(before).is_some_and(|elapsed| elapsed <= longest)
            }),
        }
    }
}

/// Whether a metric that is read every `every` ticks is read in tick number `ticks`.
pub(crate) fn is_due(every: TickDivider, ticks: u64) -> bool {
    every == TickDivider::MIN || ticks.is_multiple_of(u64::from(every.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLIS: fn(u64) -> Nanos = Nanos::from_millis;

    fn interval() -> Interval {
        Interval::new(MILLIS(1_000)).unwrap()
    }

    fn of_row(at: u64) -> ObservationTime {
        ObservationTime::of_row(MILLIS(at), interval())
    }

    /// Of a row that covers `tenths` of an interval that is fetched ten times.
    fn of_part(tenths: u32) -> ObservationTime {
        ObservationTime { parts: 10, covers: f64::from(tenths) / 10.0, ..of_row(9_000 + 100 * u64::from(tenths)) }
    }

    /// What was sampled at this millisecond.
    fn timed(millis: u64) -> Observation {
        Observation::Timed(millis * 1_000)
    }

    #[test]
    fn what_a_sampler_has_counted_is_per_interval_of_its_own_time() {
        let since = |before, at| ValueTime::of(timed(at), of_row(9_000)).intervals_since(MILLIS(before));

        assert_eq!((since(7_950, 8_950), since(6_950, 8_950)), (Some(1.0), Some(2.0)));
        assert_eq!((since(7_950, 8_999), since(7_950, 8_901)), (Some(1.0), Some(1.0)), "a little late, and early");
        // It has become faster, or was late.
        assert_eq!((since(7_350, 8_950), since(8_550, 8_950)), (Some(1.6), Some(0.4)));
        assert_eq!((since(8_950, 8_950), since(8_951, 8_950)), (None, None));
    }

    #[test]
    fn of_a_partial_row_it_is_per_interval_too_and_unknown_if_the_sampler_does_not_say_when() {
        let since = |observation, before| ValueTime::of(observation, of_part(4)).intervals_since(MILLIS(before));

        assert_eq!((since(timed(9_380), 8_980), since(timed(9_383), 8_980)), (Some(0.4), Some(0.4)));
        assert_eq!(since(timed(9_380), 8_350), Some(1.03), "the sample before is older than the row");
        assert_eq!((since(timed(9_380), 9_280), since(timed(9_380), 9_120)), (None, Some(0.26)), "too short a time");
        assert_eq!(since(Observation::Sampled(7), 9_000), None);
        assert_eq!(since(Observation::Fresh, 9_000), Some(0.4));
        assert_eq!(ValueTime::of(Observation::Sampled(7), of_row(9_000)).intervals_since(MILLIS(8_000)), Some(1.0));
    }

    #[test]
    fn a_level_that_was_last_sampled_long_before_a_partial_row_tells_no_move_in_it() {
        let tells = |observation, before| ValueTime::of(observation, of_part(2)).tells_moves(Some(MILLIS(before)));

        assert!(tells(timed(9_190), 8_990) && tells(timed(9_190), 8_890));
        assert!(!tells(timed(9_190), 8_600) && !tells(Observation::Sampled(7), 9_000));
        assert!(tells(Observation::Fresh, 9_000));
        assert!(ValueTime::of(timed(9_190), of_part(2)).tells_moves(None), "nothing was known before");
        assert!(ValueTime::of(Observation::Sampled(7), of_row(9_000)).tells_moves(Some(MILLIS(100))));
    }
}
