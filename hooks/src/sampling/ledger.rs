//! Accounting of samples of one of the two series. At all times: seen = waiting + in flight + sent + suppressed + lost.

/// Why a sample is not sent on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SuppressionReason {
    /// The policy did not select it; for the baseline, it was between two instants.
    Policy,
    /// The policy selected it, and the budget was spent.
    Budget,
}

/// Why a sample is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SampleLossReason {
    /// Its time is not after that of the sample before: a clock was set back, or two rows share a millisecond.
    OutOfOrder,
    /// Its time is so far ahead of the sender's clock that a receiver would accept no earlier sample after it.
    Ahead,
    /// The queue to the remote monitor was full.
    QueueFull,
    /// It was in the queue for too long.
    TooOld,
    /// The remote monitor refused it.
    Refused,
}

impl SuppressionReason {
    /// All reasons, by index.
    pub const ALL: [Self; 2] = [Self::Policy, Self::Budget];

    /// Its name as a label value.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Budget => "budget",
        }
    }
}

impl SampleLossReason {
    /// All reasons, by index.
    pub const ALL: [Self; 5] = [Self::OutOfOrder, Self::Ahead, Self::QueueFull, Self::TooOld, Self::Refused];

    /// Its name as a label value.
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

/// Accounting of one service's baseline, or of its dense series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// All values of rows.
    pub seen: u64,
    /// Values that are stored in case an anomaly follows.
    pub waiting: u64,
    /// Samples that were handed out for sending, without a result yet.
    pub in_flight: u64,
    /// Samples that the remote monitor acknowledged.
    pub sent: u64,
    suppressed: [u64; SuppressionReason::ALL.len()],
    lost: [u64; SampleLossReason::ALL.len()],
}

impl Ledger {
    /// Samples suppressed for the reason `why`.
    #[must_use]
    pub const fn suppressed(&self, why: SuppressionReason) -> u64 {
        self.suppressed[why as usize]
    }

    /// Samples lost for the reason `why`.
    #[must_use]
    pub const fn lost(&self, why: SampleLossReason) -> u64 {
        self.lost[why as usize]
    }

    /// Whether every sample seen is accounted for exactly once. Always true; for tests and for independent monitoring.
    #[must_use]
    pub fn balances(&self) -> bool {
        let suppressed: u64 = self.suppressed.iter().sum();
        let lost: u64 = self.lost.iter().sum();
        self.seen == self.waiting + self.in_flight + self.sent + suppressed + lost
    }

    /// The remote monitor acknowledged `samples`. At most those in flight count.
    pub fn acknowledge(&mut self, samples: u64) {
        let samples = samples.min(self.in_flight);
        self.in_flight -= samples;
        self.sent += samples;
    }

    /// `samples` in flight did not arrive.
    pub fn lose(&mut self, why: SampleLossReason, samples: u64) {
        let samples = samples.min(self.in_flight);
        self.in_flight -= samples;
        self.lost[why as usize] += samples;
    }

    pub(super) fn add_suppressed(&mut self, why: SuppressionReason, samples: u64) {
        self.suppressed[why as usize] += samples;
    }

    pub(super) fn add_lost(&mut self, why: SampleLossReason, samples: u64) {
        self.lost[why as usize] += samples;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_the_samples_in_flight_are_acknowledged() {
        let mut ledger = Ledger { seen: 10, in_flight: 10, ..Ledger::default() };

        ledger.acknowledge(6);
        ledger.lose(SampleLossReason::Refused, 1_000);
        ledger.acknowledge(1_000);

        assert_eq!((ledger.sent, ledger.in_flight, ledger.lost(SampleLossReason::Refused)), (6, 0, 4));
        assert!(ledger.balances());
    }
}
