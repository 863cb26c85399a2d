//! Accounting of spans. At all times, in spans and in bytes: seen = waiting + kept + dropped + lost.

use crate::id::ServiceId;

/// A number of spans and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of spans.
    pub spans: u64,
    /// Encoded bytes of these spans, as received.
    pub bytes: u64,
}

impl Tally {
    /// One span of `bytes`.
    #[must_use]
    pub const fn one(bytes: usize) -> Self {
        Self { spans: 1, bytes: bytes as u64 }
    }

    /// The sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { spans: self.spans + other.spans, bytes: self.bytes + other.bytes }
    }
}

impl core::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        *self = self.plus(other);
    }
}

impl core::ops::SubAssign for Tally {
    fn sub_assign(&mut self, other: Self) {
        debug_assert!(self.spans >= other.spans && self.bytes >= other.bytes, "more leaves than came");
        self.spans = self.spans.saturating_sub(other.spans);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }
}

/// Why a span is dropped: no policy wanted its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    /// Its trace was buffered for the full age.
    Aged,
    /// It arrived after its trace had been dropped.
    Late,
}

/// Why a span is lost: it would have been buffered, but there was no memory, or it was invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LossReason {
    /// Its trace was evicted in favour of traces of higher rank.
    Evicted,
    /// Its trace ranks below those that are being evicted.
    Refused,
    /// It arrived after its trace had been evicted.
    Late,
    /// Its trace has reached the limit of bytes per trace.
    TraceFull,
    /// It could not be decoded, or has no trace id.
    Malformed,
    /// It was buffered when its process was killed.
    Killed,
    /// It was buffered when its process shut down.
    Ended,
    /// It has a new resource while there are too many resources.
    OverLimit,
    /// Its trace was kept, and there was no budget for what followed.
    OverBudget,
}

impl DropReason {
    /// All reasons, by index.
    pub const ALL: [Self; 2] = [Self::Aged, Self::Late];

    /// As a label of a metric.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aged => "aged",
            Self::Late => "late",
        }
    }
}

impl LossReason {
    /// All reasons, by index.
    pub const ALL: [Self; 9] = [
        Self::Evicted,
        Self::Refused,
        Self::Late,
        Self::TraceFull,
        Self::Malformed,
        Self::Killed,
        Self::Ended,
        Self::OverLimit,
        Self::OverBudget,
    ];

    /// As a label of a metric.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Evicted => "evicted",
            Self::Refused => "refused",
            Self::Late => "late",
            Self::TraceFull => "trace_full",
            Self::Malformed => "malformed",
            Self::Killed => "killed",
            Self::Ended => "ended",
            Self::OverLimit => "over_limit",
            Self::OverBudget => "over_budget",
        }
    }
}

/// Why a span is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DiscardReason {
    /// No policy wanted it.
    Dropped(DropReason),
    /// There was no memory for it, or it was invalid.
    Lost(LossReason),
}

impl DiscardReason {
    /// Number of reasons.
    pub const COUNT: usize = DropReason::ALL.len() + LossReason::ALL.len();

    /// All reasons, each at its [`place`](Self::place).
    pub fn all() -> impl Iterator<Item = Self> {
        DropReason::ALL.into_iter().map(Self::Dropped).chain(LossReason::ALL.into_iter().map(Self::Lost))
    }

    /// Its index in a table of [`COUNT`](Self::COUNT) elements: reasons for dropping come first.
    #[must_use]
    pub const fn place(self) -> usize {
        match self {
            Self::Dropped(why) => why as usize,
            Self::Lost(why) => DropReason::ALL.len() + why as usize,
        }
    }
}

/// Spans that were dropped or lost, by service. Memory: 24 bytes for each service and reason of the most that there
/// were between two calls of [`DiscardedSpans::take`]: it is used again, so that a trace that gives way allocates
/// nothing.
#[derive(Debug, Default)]
pub struct DiscardedSpans(Vec<(ServiceId, DiscardReason, Tally)>);

impl DiscardedSpans {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn add(&mut self, service: ServiceId, why: DiscardReason, tally: Tally) {
        match self.0.binary_search_by_key(&(service, why), |&(service, why, _)| (service, why)) {
            Ok(place) => self.0[place].2 += tally,
            Err(place) => self.0.insert(place, (service, why, tally)),
        }
    }

    /// Takes everything since the last call, ordered by service, without zeros.
    pub fn take(&mut self) -> impl Iterator<Item = (ServiceId, DiscardReason, Tally)> {
        self.0.drain(..).filter(|(.., tally)| tally.spans > 0)
    }
}

/// Accounting of one buffer, since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// All spans that arrived.
    pub seen: Tally,
    /// Buffered spans, which are undecided.
    pub waiting: Tally,
    /// Spans that were handed out for export.
    pub kept: Tally,
    dropped: [Tally; DropReason::ALL.len()],
    lost: [Tally; LossReason::ALL.len()],
}

impl Account {
    /// Spans dropped for the reason `why`.
    #[must_use]
    pub const fn dropped(&self, why: DropReason) -> Tally {
        self.dropped[why as usize]
    }

    /// Spans lost for the reason `why`.
    #[must_use]
    pub const fn lost(&self, why: LossReason) -> Tally {
        self.lost[why as usize]
    }

    /// Whether every span seen is accounted for exactly once. Always true; for tests and for independent monitoring.
    #[must_use]
    pub fn balances(&self) -> bool {
        let placed = [self.waiting, self.kept].into_iter().chain(self.dropped).chain(self.lost);
        placed.fold(Tally::default(), Tally::plus) == self.seen
    }

    /// The account with which a successor begins after a process with this one was killed: buffered spans are lost, the
    /// rest stays.
    #[must_use]
    pub fn after_kill(mut self) -> Self {
        let waited = core::mem::take(&mut self.waiting);
        self.add_lost(LossReason::Killed, waited);
        self
    }

    pub(super) fn add_dropped(&mut self, why: DropReason, tally: Tally) {
        self.dropped[why as usize] += tally;
    }

    pub(super) fn add_lost(&mut self, why: LossReason, tally: Tally) {
        self.lost[why as usize] += tally;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_discarded_is_summed_by_service_and_reason_and_taken_once_in_order() {
        let (aged, late) = (DiscardReason::Dropped(DropReason::Aged), DiscardReason::Lost(LossReason::Late));
        let mut discarded = DiscardedSpans::new();
        for (service, why, bytes) in [(7, late, 1), (3, late, 10), (7, aged, 100), (3, late, 1_000)] {
            discarded.add(ServiceId(service), why, Tally::one(bytes));
        }
        discarded.add(ServiceId(5), aged, Tally::default());

        let taken: Vec<_> = discarded.take().collect();

        let sum = Tally { spans: 2, bytes: 1_010 };
        assert_eq!(taken, [(3, late, sum), (7, aged, Tally::one(100)), (7, late, Tally::one(1))].map(of_service));
        assert_eq!(discarded.take().count(), 0);
    }

    fn of_service((service, why, tally): (u32, DiscardReason, Tally)) -> (ServiceId, DiscardReason, Tally) {
        (ServiceId(service), why, tally)
    }
}
