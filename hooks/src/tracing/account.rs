//! What became of every span: seen = waiting + kept + dropped + lost, in spans and in bytes, at all times.

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
    pub const ALL: [Self; 6] =
        [Self::Evicted, Self::Refused, Self::Late, Self::TraceFull, Self::Malformed, Self::Killed];

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
        }
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
