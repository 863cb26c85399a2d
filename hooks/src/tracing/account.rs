//! What became of every span: seen = waiting + kept + dropped + lost, in spans and in bytes, at all times.

use std::collections::BTreeMap;

use crate::id::ServiceId;

/// So many spans, and the bytes that they came in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many spans.
    pub spans: u64,
    /// Their encoded bytes.
    pub bytes: u64,
}

impl Tally {
    /// One span of `bytes`.
    #[must_use]
    pub const fn one(bytes: usize) -> Self {
        Self { spans: 1, bytes: bytes as u64 }
    }

    /// Both together.
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

/// Why a span is dropped: the buffer worked, and nobody wanted the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dropped {
    /// Its trace waited as long as traces wait.
    Aged,
    /// Its trace had been dropped when it came.
    Late,
}

/// Why a span is lost: it would have waited, had there been room or sense in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Loss {
    /// Its trace gave way to others of higher rank.
    Evicted,
    /// Its trace ranks below those that gave way already.
    Refused,
    /// Its trace had given way when it came.
    Late,
    /// Its trace has as many bytes as one may have.
    TraceFull,
    /// It could not be read, or names no trace.
    Malformed,
    /// It waited when its process was killed.
    Killed,
    /// It waited when its process ended in order.
    Ended,
    /// It is of a resource that is new while there are too many.
    Crowded,
}

impl Dropped {
    /// All of them.
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

impl Loss {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Evicted,
        Self::Refused,
        Self::Late,
        Self::TraceFull,
        Self::Malformed,
        Self::Killed,
        Self::Ended,
        Self::Crowded,
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
            Self::Crowded => "crowded",
        }
    }
}

/// Why a span is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gone {
    /// Nobody wanted it.
    Dropped(Dropped),
    /// It would have waited.
    Lost(Loss),
}

impl Gone {
    /// How many reasons there are.
    pub const COUNT: usize = Dropped::ALL.len() + Loss::ALL.len();

    /// All of them, each at its [`place`](Self::place).
    pub fn all() -> impl Iterator<Item = Self> {
        Dropped::ALL.into_iter().map(Self::Dropped).chain(Loss::ALL.into_iter().map(Self::Lost))
    }

    /// Its place in a table of [`COUNT`](Self::COUNT) places: dropped first.
    #[must_use]
    pub const fn place(self) -> usize {
        match self {
            Self::Dropped(why) => why as usize,
            Self::Lost(why) => Dropped::ALL.len() + why as usize,
        }
    }
}

/// What went without being kept, of each service. Memory: 180 bytes for each service of which something went since the last
/// [`Departed::take`].
#[derive(Debug, Default)]
pub struct Departed(BTreeMap<ServiceId, [Tally; Gone::COUNT]>);

impl Departed {
    /// Nothing went.
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub(super) fn add(&mut self, service: ServiceId, why: Gone, tally: Tally) {
        self.0.entry(service).or_default()[why.place()] += tally;
    }

    /// Takes all that went since the last time, in the order of services; what did not happen is left out.
    pub fn take(&mut self) -> impl Iterator<Item = (ServiceId, Gone, Tally)> + use<> {
        let each = |(service, of): (ServiceId, [Tally; Gone::COUNT])| {
            Gone::all().map(move |why| (service, why, of[why.place()])).filter(|(.., tally)| tally.spans > 0)
        };
        core::mem::take(&mut self.0).into_iter().flat_map(each)
    }
}

/// The books of one buffer, from its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Everything that came.
    pub seen: Tally,
    /// What is undecided.
    pub waiting: Tally,
    /// What was handed out to be sent on.
    pub kept: Tally,
    dropped: [Tally; Dropped::ALL.len()],
    lost: [Tally; Loss::ALL.len()],
}

impl Account {
    /// What was dropped for this reason.
    #[must_use]
    pub const fn dropped(&self, why: Dropped) -> Tally {
        self.dropped[why as usize]
    }

    /// What was lost for this reason.
    #[must_use]
    pub const fn lost(&self, why: Loss) -> Tally {
        self.lost[why as usize]
    }

    /// Whether everything seen stands in exactly one place. Always true; for tests and for a monitor that trusts nobody.
    #[must_use]
    pub fn balances(&self) -> bool {
        let placed = [self.waiting, self.kept].into_iter().chain(self.dropped).chain(self.lost);
        placed.fold(Tally::default(), Tally::plus) == self.seen
    }

    /// The books that a successor begins with, after a process with these was killed: what waited is lost, the rest stands.
    #[must_use]
    pub fn after_kill(mut self) -> Self {
        let waited = core::mem::take(&mut self.waiting);
        self.add_lost(Loss::Killed, waited);
        self
    }

    pub(super) fn add_dropped(&mut self, why: Dropped, tally: Tally) {
        self.dropped[why as usize] += tally;
    }

    pub(super) fn add_lost(&mut self, why: Loss, tally: Tally) {
        self.lost[why as usize] += tally;
    }
}
