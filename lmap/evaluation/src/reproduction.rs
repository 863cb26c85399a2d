//! Compares published claims with this implementation: the measurements behind `docs/reproduction`. Pure.
//!
//! # Source
//! μView, chapter 4: Sec. 4.4.3 (memory), 4.8.2 (k, l, γ), 4.8.4 (dynamic sampling).

pub mod sampling;
pub mod sweep;

use core::fmt;

use lmap::{Column, ColumnKind, Detector, DetectorError, Settings};

/// The verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Within the tolerance.
    Holds,
    /// Outside of the tolerance.
    Fails,
    /// Cannot be measured here; `ours` says what is missing.
    NotComputable,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Holds => "holds",
            Self::Fails => "fails",
            Self::NotComputable => "not computable",
        })
    }
}

/// A published claim and its verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Identifies the claim, the same in every run.
    pub id: &'static str,
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
    pub fn found(self, ours: String, holds: bool) -> Self {
        Self { ours, verdict: if holds { Verdict::Holds } else { Verdict::Fails }, ..self }
    }

    /// A claim that cannot be computed: `missing` says what would be needed.
    #[must_use]
    pub fn without(
        id: &'static str,
        claim: &'static str,
        published: &'static str,
        tolerance: &'static str,
        missing: &str,
    ) -> Self {
        Self { id, claim, published, ours: missing.to_owned(), tolerance, verdict: Verdict::NotComputable }
    }
}

/// Memory of detectors, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The bases alone: metrics · k · 8.
    pub bases: usize,
    /// Whole armed detectors, with sketch, variances and row buffers.
    pub detectors: usize,
}

/// Memory of `services` detectors of `metrics` columns and rank `rank`, each trained on `rows` rows.
///
/// # Errors
///
/// [`DetectorError`] if there is no such detector.
pub fn memory(services: usize, metrics: usize, rank: usize, rows: usize) -> Result<Memory, DetectorError> {
    let columns = (0..metrics as u64).map(|name| Column::new(ColumnKind::Increment, name)).collect();
    let settings = Settings {
        rank: Some(rank),
        provisional_rows: None,
        warm_up_rows: rows,
        fit_again_rows: Vec::new(),
        held_out_every: 0,
        ..Settings::default()
    };
    let mut detector = Detector::new(columns, settings, 1)?;
    for tick in 0..rows {
        let load = (tick as f64 / 9.0).sin();
        let value = |column: usize| load * (column % 7) as f64 + ((tick * (column + 3)) % 11) as f64;
        let row: Vec<f64> = (0..metrics).map(value).collect();
        let _ = detector.score(&row); // a row has one value per column
        if let Some(job) = detector.learn() {
            let _ = detector.install(job.run()); // run in place: never stale
        }
    }
    Ok(Memory { bases: services * metrics * rank * size_of::<f64>(), detectors: services * detector.memory_bytes() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bases_of_the_chapters_example_are_eight_megabytes_and_detectors_are_more() {
        let found = memory(100, 1_000, 10, 40).unwrap();

        assert_eq!(found.bases, 8_000_000);
        // l = 25: 2l rows of sketch, k of basis, 10 of one per column, 8 spare ones.
        let expected = 100.0 * (50.0 + 10.0 + 10.0 + 8.0) * 8_000.0;
        assert!((found.detectors as f64 / expected - 1.0).abs() < 0.1, "{} of {expected}", found.detectors);
    }

    #[test]
    fn a_claim_without_a_measurement_says_what_is_missing() {
        let claim = Claim::without("x", "it is so", "5 %", "± 1 %", "no card");

        assert_eq!((claim.verdict.to_string().as_str(), claim.ours.as_str()), ("not computable", "no card"));
        assert_eq!(claim.clone().found("4 %".to_owned(), true).verdict, Verdict::Holds);
        assert_eq!(claim.found("9 %".to_owned(), false).verdict.to_string(), "fails");
    }
}
