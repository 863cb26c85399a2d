//! What became of every sample, for one of the two series: seen = waiting + handed + sent + suppressed + lost, at all times.

/// Why a sample is not sent although everything works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Suppressed {
    /// The policy did not want it; of the baseline: it lay between two instants.
    Policy,
    /// The policy wanted it, and there was no budget.
    Budget,
}

/// Why a sample is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LostSample {
    /// Its time is not after that of the sample before: a clock was set back, or two rows share a millisecond.
    OutOfOrder,
    /// Its time is so far ahead of the clock of whoever sends that a receiver would take nothing older after it.
    Ahead,
    /// It did not fit into the queue to the remote monitor.
    QueueFull,
    /// It waited too long for the remote monitor.
    TooOld,
    /// The remote monitor refused it.
    Refused,
}

impl Suppressed {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Policy, Self::Budget];

    /// As a label of a metric.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Budget => "budget",
        }
    }
}

impl LostSample {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::OutOfOrder, Self::Ahead, Self::QueueFull, Self::TooOld, Self::Refused];

    /// As a label of a metric.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OutOfOrder => "out_of_order",
            Self::Ahead => "ahead",
            Self::QueueFull => "queue_full",
            Self::TooOld => "too_old",
            Self::Refused => "refused",
        }
    }
}

/// The books of one service's baseline, or of its dense series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Every value that a row had.
    pub seen: u64,
    /// Kept for the case that something happens next.
    pub waiting: u64,
    /// Given out to be sent, and not heard of since.
    pub handed: u64,
    /// Acknowledged by the remote monitor.
    pub sent: u64,
    suppressed: [u64; Suppressed::ALL.len()],
    lost: [u64; LostSample::ALL.len()],
}

impl Ledger {
    /// What was suppressed for this reason.
    #[must_use]
    pub const fn suppressed(&self, why: Suppressed) -> u64 {
        self.suppressed[why as usize]
    }

    /// What was lost for this reason.
    #[must_use]
    pub const fn lost(&self, why: LostSample) -> u64 {
        self.lost[why as usize]
    }

    /// Whether every sample seen stands in exactly one place. Always true; for tests and for a monitor that trusts nobody.
    #[must_use]
    pub fn balances(&self) -> bool {
        let suppressed: u64 = self.suppressed.iter().sum();
        let lost: u64 = self.lost.iter().sum();
        self.seen == self.waiting + self.handed + self.sent + suppressed + lost
    }

    /// The remote monitor took `samples`. No more than were handed out are believed.
    pub fn acknowledge(&mut self, samples: u64) {
        let samples = samples.min(self.handed);
        self.handed -= samples;
        self.sent += samples;
    }

    /// `samples` that were handed out did not arrive.
    pub fn lose(&mut self, why: LostSample, samples: u64) {
        let samples = samples.min(self.handed);
        self.handed -= samples;
        self.lost[why as usize] += samples;
    }

    pub(super) fn add_suppressed(&mut self, why: Suppressed, samples: u64) {
        self.suppressed[why as usize] += samples;
    }

    pub(super) fn add_lost(&mut self, why: LostSample, samples: u64) {
        self.lost[why as usize] += samples;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_was_handed_out_is_not_believed() {
        let mut ledger = Ledger { seen: 10, handed: 10, ..Ledger::default() };

        ledger.acknowledge(6);
        ledger.lose(LostSample::Refused, 1_000);
        ledger.acknowledge(1_000);

        assert_eq!((ledger.sent, ledger.handed, ledger.lost(LostSample::Refused)), (6, 0, 4));
        assert!(ledger.balances());
    }
}
