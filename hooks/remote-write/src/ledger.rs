//! Counters of the shipper, and the sums of all services' ledgers.

use hooks::sampling::{Ledger, SampleLossReason, SuppressionReason};

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests, each attempt counted.
    pub requests: u64,
    /// Attempts to be retried: no reply, 429, 5xx.
    pub failed: u64,
    /// Requests with samples refused for good.
    pub refused: u64,
    /// Changes of the protocol version.
    pub fallbacks: u64,
    /// Bytes of request bodies.
    pub bytes: u64,
    /// Rows whose number of values differs from the number of columns.
    pub misfits: u64,
    /// Exemplars queued, sent or lost.
    pub exemplars: u64,
    /// Exemplars that the receiver accepted, as far as it says.
    pub sent_exemplars: u64,
    /// Exemplars refused, or lost with their samples.
    pub lost_exemplars: u64,
}

/// Account of all samples of one of the two series, over all services, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerTotals {
    /// Values in rows.
    pub seen: u64,
    /// Buffered rows before a trigger: sent only if something happens next.
    pub waiting: u64,
    /// Queued or in flight.
    pub queued: u64,
    /// Accepted by the receiver.
    pub sent: u64,
    /// Not sent by choice, by reason, in the order of [`SuppressionReason::ALL`].
    pub suppressed: [u64; SuppressionReason::ALL.len()],
    /// Lost by failure, by reason, in the order of [`SampleLossReason::ALL`].
    pub lost: [u64; SampleLossReason::ALL.len()],
}

impl LedgerTotals {
    pub(crate) fn add(&mut self, ledger: &Ledger) {
        self.seen += ledger.seen;
        self.waiting += ledger.waiting;
        self.queued += ledger.in_flight;
        self.sent += ledger.sent;
        for (sum, why) in self.suppressed.iter_mut().zip(SuppressionReason::ALL) {
            *sum += ledger.suppressed(why);
        }
        for (sum, why) in self.lost.iter_mut().zip(SampleLossReason::ALL) {
            *sum += ledger.lost(why);
        }
    }

    /// Whether every sample is in exactly one state: seen = waiting + queued + sent + suppressed + lost.
    #[must_use]
    pub fn balances(&self) -> bool {
        let elsewhere: u64 = self.suppressed.iter().chain(&self.lost).sum();
        self.seen == self.waiting + self.queued + self.sent + elsewhere
    }
}
