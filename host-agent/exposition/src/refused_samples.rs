//! Why samples of a scrape are not looked at.

/// Samples of a scrape that were not looked at, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusedSamples {
    /// There are as many as are looked at.
    pub too_many: usize,
    /// Their names and labels are longer than is kept.
    pub too_long: usize,
    /// The scrape has another sample of the same name and labels, which counts.
    pub duplicate: usize,
    /// Their series is known with another type.
    pub other_type: usize,
}

impl RefusedSamples {
    /// Names of the reasons, in the order of [`Self::counts`].
    pub const REASONS: [&'static str; 4] = ["too_many", "too_long", "duplicate", "other_type"];

    /// The number of each reason.
    #[must_use]
    pub const fn counts(self) -> [usize; 4] {
        [self.too_many, self.too_long, self.duplicate, self.other_type]
    }
}
