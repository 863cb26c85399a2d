//! How and when the slots of regions are looked at.

use wire::id::{RegionId, ReplicaId};
use wire::layout::Slot;
use wire::metric::Every;
use wire::time::{Interval, Nanos};

/// How a region came out of this tick's fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Its words are of this tick, and of the layout that is known.
    Fresh,
    /// Likewise, but it is written from time to time by somebody who samples: so often so far. What has not been written since the last
    /// look has no new value, so that a counter's increment is neither 0 nor twice itself when two clocks beat against each other, and
    /// does not stop when the sampler does.
    Sampled(u64),
    /// It could not be read. What was read before still stands: a counter's next increment is spread over the time between.
    Unread,
    /// Its words may mean something else by now: what was read before is forgotten.
    Discarded,
    /// Its replica is silent: the words are there, but nobody writes them. What was read before is forgotten.
    Silent,
}

/// Where a series of a replica lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) replica: ReplicaId,
    pub(crate) region: RegionId,
    pub(crate) first: Slot,
}

/// When a look is, and how often there is one.
///
/// An increment is what was added *per interval*: it is divided by the intervals since the last look, so that a late tick, a region that
/// could not be read, and a metric that is looked at every n ticks do not look like load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) at: Nanos,
    pub(crate) interval: Interval,
}

impl Moment {
    /// How many intervals have passed since `before`, at least 1; `None` if no time has passed. Whole intervals count: a tick that is a little
    /// late or early would else turn a count that never changes into one that always does.
    pub(crate) fn intervals_since(self, before: Nanos) -> Option<f64> {
        let elapsed = self.at.since(before).filter(|elapsed| *elapsed != Nanos::ZERO)?;
        let whole = self.interval.nanos().get();
        let rounded = elapsed.0.saturating_add(whole / 2);
        Some((rounded / whole).max(1) as f64)
    }
}

/// Whether what is looked at every `every` ticks is, in tick number `ticks`.
pub(crate) fn is_due(every: Every, ticks: u64) -> bool {
    every == Every::MIN || ticks.is_multiple_of(u64::from(every.get()))
}
