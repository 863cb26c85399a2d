//! Compares published claims with this implementation: the measurements behind `docs/reproduction`. Pure.
//!
//! # Source
//! μView, chapter 4: Sec. 4.4.3 (memory), 4.8.2 (k, l, γ), 4.8.4 (dynamic sampling).

pub mod memory;
pub mod sampling;
pub mod sweep;
mod verdict;

pub use self::verdict::Verdict;

/// A published claim and its verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Identifies the claim, the same in every run.
    pub id: String,
    /// The claim in words.
    pub claim: &'static str,
    /// The published figure, as published.
    pub published: &'static str,
    /// Our figure, or what is missing to compute it.
    pub ours: String,
    /// The tolerance, in words.
    pub tolerance: &'static str,
    /// Whether our figure is within the tolerance.
    pub verdict: Verdict,
}

impl Claim {
    /// Sets our figure and the verdict.
    #[must_use]
    pub fn with(self, ours: String, verdict: Verdict) -> Self {
        Self { ours, verdict, ..self }
    }

    /// A claim that cannot be computed: `missing` says what would be needed.
    #[must_use]
    pub fn without(
        id: impl Into<String>,
        claim: &'static str,
        published: &'static str,
        tolerance: &'static str,
        missing: &str,
    ) -> Self {
        Self { id: id.into(), claim, published, ours: missing.to_owned(), tolerance, verdict: Verdict::NotComputable }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_without_a_measurement_says_what_is_missing() {
        let claim = Claim::without("x", "it is so", "5 %", "± 1 %", "no card");

        assert_eq!((claim.verdict, claim.ours.as_str()), (Verdict::NotComputable, "no card"));
        let failed = claim.with("9 %".to_owned(), Verdict::judged(false));
        assert_eq!((failed.verdict, failed.ours.as_str()), (Verdict::Fails, "9 %"));
    }
}
