//! What a fridge gives out: one report per answered request, and counts of everything else.

/// The logarithm of the largest weight: e⁶⁰. What would weigh more is clamped, and counted.
pub(super) const LARGEST_LN_WEIGHT: f64 = 60.0;

/// A request that was answered.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "a report that nobody takes is a sample lost"]
pub struct Report {
    /// Which fridge it was in, from 0; always 0 for a single one.
    pub fridge: u8,
    /// From request to response, in nanoseconds, to a tick.
    pub delay_ns: u64,
    /// x, the insertions that it survived, as the fridge's counter counts them.
    pub insertions: u32,
    pub(super) ln_weight: f64,
    pub(super) ln_total: f64,
}

impl Report {
    /// 1/q, the inverse of its chance of being answered from the fridge it was in. At least 1/p, at most e⁶⁰.
    #[must_use]
    pub fn weight(&self) -> f64 {
        libm::exp(self.ln_weight)
    }

    /// 1/Σ qₖ, the inverse of its chance of being answered from any of the fridges; that of [`Self::weight`] for a single one.
    #[must_use]
    pub fn total_weight(&self) -> f64 {
        libm::exp(self.ln_total)
    }
}

/// What happened, in events since the fridge was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests, copies too.
    pub requests: u64,
    /// Requests that entered, without copies of those that were there.
    pub admitted: u64,
    /// Requests that were still there when they came again.
    pub duplicate_requests: u64,
    /// Waiting requests that another took the place of.
    pub evicted: u64,
    /// Responses.
    pub responses: u64,
    /// Responses that gave a sample.
    pub matched: u64,
    /// Responses to nothing that was there: evicted, never admitted, answered before, never asked.
    pub unmatched: u64,
    /// Responses to a request of which it is not known which copy was answered.
    pub ambiguous: u64,
    /// Responses before their request: no sample.
    pub clock_anomaly: u64,
    /// Samples whose weight was too large.
    pub weight_clamped: u64,
}

impl Tally {
    /// The words, in the order in which they are encoded.
    pub(super) fn words(&mut self) -> [&mut u64; 10] {
        [
            &mut self.requests,
            &mut self.admitted,
            &mut self.duplicate_requests,
            &mut self.evicted,
            &mut self.responses,
            &mut self.matched,
            &mut self.unmatched,
            &mut self.ambiguous,
            &mut self.clock_anomaly,
            &mut self.weight_clamped,
        ]
    }

    /// `ln_weight` as far as it is allowed.
    pub(super) fn clamped(&mut self, ln_weight: f64) -> f64 {
        // False for a NaN, which no chance gives.
        if ln_weight <= LARGEST_LN_WEIGHT {
            return ln_weight;
        }
        self.weight_clamped += 1;
        LARGEST_LN_WEIGHT
    }
}
