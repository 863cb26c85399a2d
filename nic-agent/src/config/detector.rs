//! Settings of the detectors: the form of the score, sizes and rates.

use lmap::{ScoreForm, Settings, Threshold};
use serde::Deserialize;

use super::ConfigError;
use crate::settings::WorkerSettings;

/// The form of the score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Score {
    /// Residuals and coordinates, each divided by its own standard deviation.
    #[default]
    Scaled,
    /// μView's score: the length of the residual, with the settings of its section 4.4.
    Absolute,
    /// μView's score for rows that are scaled to unit length.
    Relative,
}

/// Settings of the detectors. The settings of a trained model take precedence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DetectorConfig {
    /// The form of the score.
    pub score: Score,
    /// Rank k of the basis, 1 to 4,096; if `None`, enough to explain 95 % of the variance (90 % with μView's scores).
    pub rank: Option<usize>,
    /// Rows l of the sketch, above the rank, 2 to 8,192; if `None`, 25, or 2k if that is more.
    pub sketch_rows: Option<usize>,
    /// γ is this percentile q of the training scores, above 0 and at most 100; 99 if `None`.
    pub percentile: Option<f64>,
    /// Probability η that a row above γ is learned, 0 to 1; if `None`, 0.01 (0 with μView's scores).
    pub learning_rate: Option<f64>,
    /// The training scores from which γ is computed; if `None`, crosswise (in-sample with μView's scores).
    pub threshold: Option<ThresholdOf>,
    /// Target number of alarms per day and service, above 0, by which γ is adjusted; if `None`, γ does not move.
    pub alarms_per_day: Option<f64>,
}

/// The training scores from which γ is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThresholdOf {
    /// Of the rows that the basis was learned from, and of each half under a basis of the other half.
    Crosswise,
    /// Of the rows that the basis was learned from.
    InSample,
    /// Of the last fifth, under a basis of the first four.
    HeldOut,
}

impl DetectorConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let refused = |key, found: String, wanted| Err(ConfigError::Range { key, found, wanted });
        let Self { rank, sketch_rows, percentile, learning_rate, alarms_per_day, .. } = *self;
        if let Some(rank) = rank.filter(|rank| !(1..=4096).contains(rank)) {
            return refused("detector.rank", rank.to_string(), "1 to 4096 are possible");
        }
        if let Some(rows) = sketch_rows.filter(|rows| !(2..=8192).contains(rows)) {
            return refused("detector.sketch_rows", rows.to_string(), "2 to 8192 are possible");
        }
        if let (Some(rank), Some(rows)) = (rank, sketch_rows)
            && rank >= rows
        {
            return refused("detector.sketch_rows", rows.to_string(), "more than detector.rank is needed");
        }
        if let Some(share) = percentile.filter(|share| !(*share > 0.0 && *share <= 100.0)) {
            return refused("detector.percentile", share.to_string(), "above 0 up to 100 is possible");
        }
        if let Some(rate) = learning_rate.filter(|rate| !(0.0..=1.0).contains(rate)) {
            return refused("detector.learning_rate", rate.to_string(), "a probability from 0 to 1 is needed");
        }
        if let Some(alarms) = alarms_per_day.filter(|alarms| !(*alarms > 0.0 && alarms.is_finite())) {
            return refused("detector.alarms_per_day", alarms.to_string(), "a number above 0 is needed");
        }
        Ok(())
    }

    /// The settings of every detector. Each detector adds the alarm margin for an interval below one second.
    pub(super) fn settings(&self) -> Settings {
        let base = match self.score {
            Score::Scaled => WorkerSettings::default().detector,
            Score::Absolute => Settings::paper(ScoreForm::PaperAbsolute),
            Score::Relative => Settings::paper(ScoreForm::PaperRelative),
        };
        Settings {
            rank: self.rank.or(base.rank),
            sketch_rows: self.sketch_rows.or(base.sketch_rows),
            percentile: self.percentile.unwrap_or(base.percentile),
            learning_rate: self.learning_rate.unwrap_or(base.learning_rate),
            threshold: match self.threshold {
                None => base.threshold,
                Some(ThresholdOf::Crosswise) => Threshold::Crosswise,
                Some(ThresholdOf::InSample) => Threshold::InSample,
                Some(ThresholdOf::HeldOut) => Threshold::HeldOutTail,
            },
            ..base
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn detector(keys: &str) -> Result<Settings, String> {
        let lines: Vec<_> = keys.split(' ').map(|key| format!("  {}\n", key.replace('=', ": "))).collect();
        Config::parse(&format!("detector:\n{}", lines.concat()))
            .map(|config| config.settings().detector)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_configured_reaches_the_detectors_and_the_rest_is_as_it_was() {
        let live = WorkerSettings::default().detector;
        assert_eq!(Config::default().settings().detector, live);

        let own = detector("rank=3 sketch_rows=40 percentile=99.5 learning_rate=0.5").unwrap();
        let expected = Settings { rank: Some(3), sketch_rows: Some(40), percentile: 99.5, learning_rate: 0.5, ..live };
        assert_eq!(own, expected);
        assert_eq!(detector("score=absolute").unwrap(), Settings::paper(ScoreForm::PaperAbsolute));
        assert_eq!(detector("threshold=held-out").unwrap().threshold, Threshold::HeldOutTail);
        assert_eq!(detector("threshold=in-sample").unwrap().threshold, Threshold::InSample);
        let budget = Config::parse("detector: {alarms_per_day: 3}").unwrap().settings().alarms_per_day;
        assert_eq!((budget, Config::default().settings().alarms_per_day), (Some(3.0), None));
        let relative = Settings { learning_rate: 0.1, ..Settings::paper(ScoreForm::PaperRelative) };
        assert_eq!(detector("score=relative learning_rate=0.1").unwrap(), relative);
    }

    #[test]
    fn what_is_out_of_range_is_refused_with_its_key() {
        for (keys, error) in [
            ("rank=0", "detector.rank is 0: 1 to 4096"),
            ("sketch_rows=9000", "detector.sketch_rows is 9000: 2 to 8192"),
            ("rank=30 sketch_rows=30", "detector.sketch_rows is 30: more than detector.rank"),
            ("percentile=0", "detector.percentile is 0: above 0"),
            ("percentile=100.1", "detector.percentile is 100.1"),
            ("percentile=.nan", "detector.percentile is NaN"),
            ("learning_rate=-0.1", "detector.learning_rate is -0.1"),
            ("alarms_per_day=0", "detector.alarms_per_day is 0: a number above 0"),
            ("score=paper", "line 2"),
            ("threshold=crosswise alarms_per_day=many", "line 3"),
        ] {
            let refused = detector(keys).unwrap_err();
            assert!(refused.contains(error), "{keys}: {refused}");
        }
    }

    #[test]
    fn no_detector_refuses_what_is_taken_here() {
        for keys in [
            "rank=1 sketch_rows=2",
            "rank=4096",
            "rank=4096 sketch_rows=8192",
            "percentile=1e-9 learning_rate=0",
            "score=relative percentile=100 learning_rate=1",
        ] {
            assert!(detector(keys).unwrap().checked().is_ok(), "{keys}");
        }
    }
}
