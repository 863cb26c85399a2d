//! Settings of one LMAP's detector, as an operator configures them: names and ranges. The detector defines their
//! effect.

use crate::proto::{control, operators};

/// How a score is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScoreForm {
    /// Residuals and coordinates, each in units of its own standard deviation.
    Scaled,
    /// The length of the residual, as in μView.
    Absolute,
    /// The length of the residual of rows scaled to unit length.
    Relative,
}

impl ScoreForm {
    const ALL: [Self; 3] = [Self::Scaled, Self::Absolute, Self::Relative];

    /// Its name in messages, output and configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scaled => "scaled",
            Self::Absolute => "absolute",
            Self::Relative => "relative",
        }
    }
}

/// Settings of one LMAP's detector. `None` is as the worker is configured. A form of score other than the worker's has
/// its own defaults, and ignores the worker's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DetectorSpec {
    /// The form of the score.
    pub score: Option<ScoreForm>,
    /// Rank k of the basis, 1 to 4,096.
    pub rank: Option<u32>,
    /// Rows l of the sketch, 2 to 8,192, above the rank.
    pub sketch_rows: Option<u32>,
    /// Every n-th row is learnt: n from 1 to 1,000,000.
    pub stride: Option<u32>,
    /// γ is this percentile q of the scores in training: above 0, at most 100.
    pub percentile: Option<f64>,
    /// Probability η that a row above γ is learnt, 0 to 1.
    pub learning_rate: Option<f64>,
    /// Factor on γ for alarms, 1 to 1,000.
    pub margin: Option<f64>,
    /// Alarms a day to which γ is steered, at most 1,000,000; 0: γ is fixed, whatever the worker's configuration.
    pub alarms_per_day: Option<f64>,
    /// Rows that are stored, so that a requested fit is made at once: 0, or 120 to 10,000, of 8 bytes per column.
    pub rows_kept: Option<u32>,
}

/// Invalid settings of a detector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DetectorSpecError {
    /// An unknown form of score.
    #[error("score {0:?} is unknown: scaled, absolute and relative are possible")]
    Score(String),
    /// A value out of range, or not a number.
    #[error("{field} is {found}: {wanted}")]
    Range {
        /// Name of the setting.
        field: &'static str,
        /// The given value.
        found: String,
        /// The allowed range.
        wanted: &'static str,
    },
}

fn range(
    holds: bool,
    field: &'static str,
    found: &dyn ToString,
    wanted: &'static str,
) -> Result<(), DetectorSpecError> {
    if holds { Ok(()) } else { Err(DetectorSpecError::Range { field, found: found.to_string(), wanted }) }
}

impl DetectorSpec {
    /// Whether no setting is given.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The same settings, if every value is in range.
    ///
    /// # Errors
    ///
    /// [`DetectorSpecError`] names the first one that is not.
    pub fn checked(self) -> Result<Self, DetectorSpecError> {
        let Self { rank, sketch_rows, stride, percentile, learning_rate, margin, alarms_per_day, rows_kept, .. } = self;
        if let Some(rank) = rank {
            range((1..=4096).contains(&rank), "rank", &rank, "1 to 4096 are possible")?;
        }
        if let Some(rows) = sketch_rows {
            range((2..=8192).contains(&rows), "sketch_rows", &rows, "2 to 8192 are possible")?;
            range(rank.is_none_or(|rank| rank < rows), "sketch_rows", &rows, "more than the rank is needed")?;
        }
        if let Some(stride) = stride {
            range((1..=1_000_000).contains(&stride), "stride", &stride, "1 to 1000000 are possible")?;
        }
        if let Some(share) = percentile {
            range(share > 0.0 && share <= 100.0, "percentile", &share, "above 0 up to 100 is possible")?;
        }
        if let Some(rate) = learning_rate {
            range((0.0..=1.0).contains(&rate), "learning_rate", &rate, "a probability from 0 to 1 is needed")?;
        }
        if let Some(margin) = margin {
            range((1.0..=1000.0).contains(&margin), "margin", &margin, "1 to 1000 is possible")?;
        }
        if let Some(alarms) = alarms_per_day {
            range((0.0..=1e6).contains(&alarms), "alarms_per_day", &alarms, "0 to 1000000 is possible")?;
        }
        if let Some(rows) = rows_kept {
            let kept = rows == 0 || (120..=10_000).contains(&rows);
            range(kept, "rows_kept", &rows, "0, and 120 to 10000 are possible")?;
        }
        Ok(self)
    }
}

/// The form of this name; none if it is empty.
fn score(name: &str) -> Result<Option<ScoreForm>, DetectorSpecError> {
    if name.is_empty() {
        return Ok(None);
    }
    let found = ScoreForm::ALL.into_iter().find(|form| form.name() == name);
    found.map(Some).ok_or_else(|| DetectorSpecError::Score(name.chars().take(32).collect()))
}

macro_rules! travels_as {
    ($($message:ty),+) => {$(
        impl From<&DetectorSpec> for $message {
            fn from(spec: &DetectorSpec) -> Self {
                let DetectorSpec { rank, sketch_rows, stride, percentile, learning_rate, margin, .. } = *spec;
                let DetectorSpec { alarms_per_day, rows_kept, .. } = *spec;
                let score = spec.score.map_or("", ScoreForm::name).to_owned();
                Self { score, rank, sketch_rows, stride, percentile, learning_rate, margin, alarms_per_day, rows_kept }
            }
        }

        impl TryFrom<&$message> for DetectorSpec {
            type Error = DetectorSpecError;

            /// Reads and checks settings.
            fn try_from(message: &$message) -> Result<Self, DetectorSpecError> {
                Self {
                    score: score(&message.score)?,
                    rank: message.rank,
                    sketch_rows: message.sketch_rows,
                    stride: message.stride,
                    percentile: message.percentile,
                    learning_rate: message.learning_rate,
                    margin: message.margin,
                    alarms_per_day: message.alarms_per_day,
                    rows_kept: message.rows_kept,
                }
                .checked()
            }
        }
    )+};
}

travels_as!(control::Detector, operators::Detector);

#[cfg(test)]
mod tests {
    use super::*;

    fn everything() -> DetectorSpec {
        DetectorSpec {
            score: Some(ScoreForm::Relative),
            rank: Some(3),
            sketch_rows: Some(40),
            stride: Some(2),
            percentile: Some(99.5),
            learning_rate: Some(0.0),
            margin: Some(1.5),
            alarms_per_day: Some(3.0),
            rows_kept: Some(500),
        }
    }

    #[test]
    fn settings_survive_both_ways() {
        for spec in [DetectorSpec::default(), everything()] {
            assert_eq!(DetectorSpec::try_from(&control::Detector::from(&spec)), Ok(spec));
            assert_eq!(DetectorSpec::try_from(&operators::Detector::from(&spec)), Ok(spec));
        }
        assert!(DetectorSpec::default().is_default() && !everything().is_default());
    }

    #[test]
    fn what_is_out_of_range_is_refused_with_its_field_value_and_range() {
        let nothing = DetectorSpec::default;
        for (spec, error) in [
            (DetectorSpec { rank: Some(0), ..nothing() }, "rank is 0: 1 to 4096"),
            (DetectorSpec { sketch_rows: Some(1), ..nothing() }, "sketch_rows is 1: 2 to 8192"),
            (
                DetectorSpec { rank: Some(30), sketch_rows: Some(30), ..nothing() },
                "sketch_rows is 30: more than the rank",
            ),
            (DetectorSpec { stride: Some(0), ..nothing() }, "stride is 0: 1 to"),
            (DetectorSpec { percentile: Some(0.0), ..nothing() }, "percentile is 0: above 0"),
            (DetectorSpec { percentile: Some(f64::NAN), ..nothing() }, "percentile is NaN"),
            (DetectorSpec { learning_rate: Some(1.1), ..nothing() }, "learning_rate is 1.1"),
            (DetectorSpec { margin: Some(0.9), ..nothing() }, "margin is 0.9: 1 to 1000"),
            (DetectorSpec { margin: Some(f64::INFINITY), ..nothing() }, "margin is inf"),
            (DetectorSpec { alarms_per_day: Some(-0.5), ..nothing() }, "alarms_per_day is -0.5: 0 to"),
            (DetectorSpec { alarms_per_day: Some(f64::NAN), ..nothing() }, "alarms_per_day is NaN"),
            (DetectorSpec { rows_kept: Some(119), ..nothing() }, "rows_kept is 119: 0, and 120 to"),
            (DetectorSpec { rows_kept: Some(10_001), ..nothing() }, "rows_kept is 10001"),
        ] {
            let refused = DetectorSpec::try_from(&control::Detector::from(&spec)).unwrap_err().to_string();
            assert!(refused.contains(error), "{refused}");
        }
    }

    #[test]
    fn a_score_that_is_none_is_named_and_cut() {
        let message = operators::Detector { score: "p".repeat(1000), ..operators::Detector::default() };

        let refused = DetectorSpec::try_from(&message).unwrap_err();

        assert_eq!(refused, DetectorSpecError::Score("p".repeat(32)));
        assert!(refused.to_string().contains("scaled, absolute and relative"));
    }
}
