//! What was sent, and what became of every sample.

use hooks::sampling::{Ledger, LostSample, Suppressed};

/// What was done since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests, each attempt.
    pub requests: u64,
    /// Attempts that have to be made again: no answer, 429, 5xx.
    pub failed: u64,
    /// Requests of which something was refused for good.
    pub refused: u64,
    /// Times that the version was changed.
    pub fallbacks: u64,
    /// Bytes of bodies.
    pub bytes: u64,
    /// Rows of another width than was said.
    pub misfits: u64,
    /// Exemplars that were to be sent: queued, sent or lost.
    pub exemplars: u64,
    /// Those of them that were taken, as far as the receiver says.
    pub sent_exemplars: u64,
    /// Those of them that went with samples which were lost, or that were refused.
    pub lost_exemplars: u64,
}

/// What became of all samples of one of the two series, of all services since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Every value that a row had.
    pub seen: u64,
    /// Kept for the case that something happens next.
    pub waiting: u64,
    /// To be sent.
    pub handed: u64,
    /// Acknowledged.
    pub sent: u64,
    /// By reason, in the order of [`Suppressed::ALL`].
    pub suppressed: [u64; Suppressed::ALL.len()],
    /// By reason, in the order of [`LostSample::ALL`].
    pub lost: [u64; LostSample::ALL.len()],
}

impl Books {
    pub(crate) fn add(&mut self, ledger: &Ledger) {
        self.seen += ledger.seen;
        self.waiting += ledger.waiting;
        self.handed += ledger.handed;
        self.sent += ledger.sent;
        for (sum, why) in self.suppressed.iter_mut().zip(Suppressed::ALL) {
            *sum += ledger.suppressed(why);
        }
        for (sum, why) in self.lost.iter_mut().zip(LostSample::ALL) {
            *sum += ledger.lost(why);
        }
    }

    /// Whether every sample stands in exactly one place.
    #[must_use]
    pub fn balances(&self) -> bool {
        let elsewhere: u64 = self.suppressed.iter().chain(&self.lost).sum();
        self.seen == self.waiting + self.handed + self.sent + elsewhere
    }
}
