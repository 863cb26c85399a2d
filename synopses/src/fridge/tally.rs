//! Output of a fridge: a report for each answered request, and counts of all events.

/// Logarithm of the largest weight, e⁶⁰. Larger weights are clamped and counted.
pub(super) const LARGEST_LN_WEIGHT: f64 = 60.0;

/// A sample: a request that got its response.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "an unused report is a lost sample"]
pub struct Report {
    /// Index of the fridge that it was in; 0 for a single one.
    pub fridge: u8,
    /// Delay from request to response in nanoseconds, rounded to a tick.
    pub delay_ns: u64,
    /// x, the number of counted insertions that it survived.
    pub insertions: u32,
    pub(super) ln_weight: f64,
    pub(super) ln_total: f64,
}

impl Report {
    /// 1/q, the inverse of its chance to survive in its fridge. At least 1/p, at most e⁶⁰.
    #[must_use]
    pub fn weight(&self) -> f64 {
        libm::exp(self.ln_weight)
    }

    /// 1/Σ qₖ, the inverse of its chance to survive in any of the fridges. The same as [`Self::weight`] for a single
    /// one.
    #[must_use]
    pub fn total_weight(&self) -> f64 {
        libm::exp(self.ln_total)
    }
}

/// Counts of events since the fridge was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests, including copies.
    pub requests: u64,
    /// Requests that entered, without copies of pending ones.
    pub admitted: u64,
    /// Copies of pending requests.
    pub duplicate_requests: u64,
    /// Pending requests that were evicted by others.
    pub evicted: u64,
    /// Number of responses.
    pub responses: u64,
    /// Responses that gave a sample.
    pub matched: u64,
    /// Responses without a pending request: it was evicted, not admitted, answered before, or never seen.
    pub unmatched: u64,
    /// Responses to a request with copies, so that it is unknown which copy they belong to.
    pub ambiguous: u64,
    /// Responses with a timestamp before that of their request, which give no sample.
    pub clock_anomaly: u64,
    /// Samples whose weight was clamped.
    pub weight_clamped: u64,
}

impl Tally {
    /// All counts, in the order of the encoding.
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

    /// `ln_weight`, clamped to the largest weight.
    pub(super) fn clamped(&mut self, ln_weight: f64) -> f64 {
        // False for a NaN, which no chance gives.
        if ln_weight <= LARGEST_LN_WEIGHT {
            return ln_weight;
        }
        self.weight_clamped += 1;
        LARGEST_LN_WEIGHT
    }
}
