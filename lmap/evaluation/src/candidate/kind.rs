//! Which detectors are compared, by name, and how each is trained.

use lmap::{ScoreForm, Settings};

#[cfg(feature = "competitors")]
use super::pca::Pca;
use super::peer::PeerDetector;
use super::pipeline::{Lmap, PreparedPaper};
#[cfg(feature = "competitors")]
use super::rcf::Rcf;
use super::size::{MaxZ, NormZ};
use super::{Candidate, TrainError};
use crate::unit::Unit;

/// The detectors to compare, in the order of tables. *Prepared*: over rows made as the LMAP makes its own (levels by
/// their increments, constants left out, floor of deviations, soft clip), with scores smoothed over the same span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The LMAP of this project.
    Lmap,
    /// The pipeline as the paper has it, absolute score.
    LmapPaper,
    /// The same, prepared.
    LmapPaperPrepared,
    /// Static principal components.
    #[cfg(feature = "competitors")]
    Pca,
    /// The same, prepared.
    #[cfg(feature = "competitors")]
    PcaPrepared,
    /// The largest deviation of any metric.
    MaxZ,
    /// The same, prepared.
    MaxZPrepared,
    /// The norm of all deviations.
    NormZ,
    /// The same, prepared.
    NormZPrepared,
    /// A Random Cut Forest.
    #[cfg(feature = "competitors")]
    Rcf,
    /// The same, prepared.
    #[cfg(feature = "competitors")]
    RcfPrepared,
}

impl Kind {
    /// All detectors, in table order.
    #[cfg(feature = "competitors")]
    pub const ALL: [Self; 11] = [
        Self::Lmap,
        Self::LmapPaper,
        Self::LmapPaperPrepared,
        Self::Pca,
        Self::PcaPrepared,
        Self::MaxZ,
        Self::MaxZPrepared,
        Self::NormZ,
        Self::NormZPrepared,
        Self::Rcf,
        Self::RcfPrepared,
    ];

    /// The name in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lmap => "lmap",
            Self::LmapPaper => "lmap-paper",
            Self::LmapPaperPrepared => "lmap-paper+prepared",
            #[cfg(feature = "competitors")]
            Self::Pca => "pca",
            #[cfg(feature = "competitors")]
            Self::PcaPrepared => "pca+prepared",
            Self::MaxZ => "max-z",
            Self::MaxZPrepared => "max-z+prepared",
            Self::NormZ => "norm-z",
            Self::NormZPrepared => "norm-z+prepared",
            #[cfg(feature = "competitors")]
            Self::Rcf => "rcf",
            #[cfg(feature = "competitors")]
            Self::RcfPrepared => "rcf+prepared",
        }
    }

    /// Whether the settings of the LMAP matter to it: to our own as a whole, to a prepared one for its rows.
    #[must_use]
    pub fn takes_settings(self) -> bool {
        self == Self::Lmap || self.name().ends_with("+prepared")
    }

    /// Whether one run takes as long as dozens of the others: a forest of 50 trees scores and learns every row.
    #[must_use]
    pub fn is_slow(self) -> bool {
        self.name().starts_with("rcf")
    }

    /// Trains a detector of this kind on the training rows of `unit`. `settings`: those of the LMAP, and of the
    /// preparation.
    ///
    /// # Errors
    ///
    /// [`TrainError`]: too few rows, or nothing in them.
    pub fn train(self, unit: &Unit, settings: &Settings) -> Result<Box<dyn Candidate>, TrainError> {
        Ok(match self {
            Self::Lmap => Box::new(Lmap::train(unit, settings)?),
            Self::LmapPaper => Box::new(Lmap::train(unit, &Settings::paper(ScoreForm::PaperAbsolute))?),
            Self::LmapPaperPrepared => Box::new(PreparedPaper::train(unit, settings)?),
            #[cfg(feature = "competitors")]
            Self::Pca => Box::new(PeerDetector::<Pca>::bare(unit)?),
            #[cfg(feature = "competitors")]
            Self::PcaPrepared => Box::new(PeerDetector::<Pca>::prepared(unit, settings)?),
            Self::MaxZ => Box::new(PeerDetector::<MaxZ>::bare(unit)?),
            Self::MaxZPrepared => Box::new(PeerDetector::<MaxZ>::prepared(unit, settings)?),
            Self::NormZ => Box::new(PeerDetector::<NormZ>::bare(unit)?),
            Self::NormZPrepared => Box::new(PeerDetector::<NormZ>::prepared(unit, settings)?),
            #[cfg(feature = "competitors")]
            Self::Rcf => Box::new(PeerDetector::<Rcf>::bare(unit)?),
            #[cfg(feature = "competitors")]
            Self::RcfPrepared => Box::new(PeerDetector::<Rcf>::prepared(unit, settings)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::Columns;
    use crate::table::read;

    #[test]
    fn no_value_is_too_large_for_any_detector() {
        // Their distance overflows, and so does the square of either.
        let row = |row: u32| format!("{}1.7e308,{}", if row % 7 == 6 { "" } else { "-" }, row % 5);
        let lines = |end: &str| (0..60).map(|at| row(at) + end + "\n").collect::<String>();
        let train = read(format!("a,b\n{}", lines("")).as_bytes()).unwrap();
        let test = read(format!("a,b,label\n{}", lines(",0")).as_bytes()).unwrap();
        let columns = Columns::gauges(&train.metrics, |_| 0);
        let unit = Unit::new("u".to_owned(), (&train, &test), &columns, &[]).unwrap();

        for kind in Kind::ALL {
            let mut candidate = kind.train(&unit, &Settings::default()).unwrap();
            assert!(candidate.gamma().is_finite(), "{kind:?}");
            for (row, gap) in unit.test.iter() {
                let judged = candidate.step(row, gap);
                assert!(judged.score.is_finite() && judged.own.is_finite(), "{kind:?}: {judged:?}");
                assert!(candidate.named(3).len() <= 3);
            }
        }
    }
}
