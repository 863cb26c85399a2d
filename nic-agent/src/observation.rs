//! The observation of a region in a tick, and when series are read.

use wire::id::{RegionId, ReplicaId};
use wire::layout::Slot;
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
    /// It could not be read. Earlier values stay valid: a counter's next increment is spread over the time between.
    Unread,
    /// Its slots may have another meaning. Earlier values are discarded.
    Discarded,
    /// Its replica is silent: the words are not written any more. Earlier values are discarded.
    Silent,
}

impl Observation {
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
}

impl ObservationTime {
    /// A tick at which a row is due.
    pub(crate) const fn of_row(at: Nanos, interval: Interval) -> Self {
        Self { at, interval, parts: 1 }
    }

    /// Intervals since `before`, rounded to parts, at least one part; `None` if no time has passed. Without rounding, a
    /// tick that is a little late or early would make a constant count look variable.
    pub(crate) fn intervals_since(self, before: Nanos) -> Option<f64> {
        let elapsed = self.at.since(before).filter(|elapsed| *elapsed != Nanos::ZERO)?;
        let part = (self.interval.nanos().get() / u64::from(self.parts.max(1))).max(1);
        let rounded = (elapsed.0.saturating_add(part / 2) / part).max(1) as f64;
        Some(if self.parts > 1 { rounded / f64::from(self.parts) } else { rounded })
    }
}

/// Whether a metric that is read every `every` ticks is read in tick number `ticks`.
pub(crate) fn is_due(every: TickDivider, ticks: u64) -> bool {
    every == TickDivider::MIN || ticks.is_multiple_of(u64::from(every.get()))
}
