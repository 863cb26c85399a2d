//! The detector settings of a replay: those of the NIC agent, of the library, or of the paper's forms. Pure.

use clap::ValueEnum;
use lmap::{AlarmBudget, ScoreForm, Settings, Threshold};

use crate::failure::Failure;

/// Where the settings come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SettingsSource {
    /// The NIC agent's settings: gauges latch, the first 20 rows are not learnt, alarms have a margin that grows with
    /// intervals below a second
    Agent,
    /// The library's defaults, for metrics of unknown kinds
    Library,
}

/// The form of the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// The form of the agents: scaled residuals and coordinates
    Default,
    /// The paper's absolute form: the length of the residual
    Absolute,
    /// The paper's relative form: of rows scaled to unit length
    Relative,
}

/// Detector arguments of `uview replay`.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Rules {
    /// Settings of the default form [default: agent]
    #[arg(long, value_enum)]
    settings: Option<SettingsSource>,
    /// Form of the pipeline: that of the agents, or one of the paper's with the paper's settings [default: default]
    #[arg(long, value_enum, conflicts_with = "model")]
    form: Option<Form>,
    /// Number k of directions of the basis [default: as many as explain enough of the variance]
    #[arg(long, value_name = "K", conflicts_with = "model")]
    rank: Option<usize>,
    /// Number l of rows of the sketch [default: 25, or 2k if that is more]
    #[arg(long, value_name = "L", conflicts_with = "model")]
    sketch_rows: Option<usize>,
    /// Percentile q of the training scores that is γ [default: 99]
    #[arg(long, value_name = "Q", conflicts_with = "model")]
    percentile: Option<f64>,
    /// Probability η that a row above γ is learnt [default: 0.01; 0 in the paper's forms]
    #[arg(long, value_name = "ETA", conflicts_with = "model")]
    learning_rate: Option<f64>,
    /// Alarm budget in alarms a day: γ is adjusted slowly, between half and twice its first value [default: γ is fixed]
    #[arg(long, value_name = "PER_DAY")]
    alarm_budget: Option<f64>,
    /// Training scores that γ is a percentile of [default: crosswise; in-sample in the paper's forms]
    #[arg(long, value_enum, conflicts_with = "model")]
    threshold: Option<ThresholdRule>,
}

/// The training scores that γ is a percentile of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ThresholdRule {
    /// Scores of the training rows, and of each half of them by a basis of the other half
    Crosswise,
    /// Scores of the training rows: optimistic, as in the paper
    InSample,
    /// Scores of the last fifth of the rows, by a basis of the first four fifths
    HeldOut,
}

impl ThresholdRule {
    fn rule(self) -> Threshold {
        match self {
            Self::Crosswise => Threshold::Crosswise,
            Self::InSample => Threshold::InSample,
            Self::HeldOut => Threshold::HeldOutTail,
        }
    }
}

impl Rules {
    /// The settings of a detector with a row every `interval` seconds.
    ///
    /// # Errors
    ///
    /// [`Failure`] with the argument and its range.
    pub fn settings(&self, interval: f64) -> Result<Settings, Failure> {
        let refused = || Failure::to("use these arguments");
        let base = match (self.form.unwrap_or(Form::Default), self.settings) {
            (Form::Default, None | Some(SettingsSource::Agent)) => Settings::live(interval).lasting(interval),
            (Form::Default, Some(SettingsSource::Library)) => Settings::default(),
            (_, Some(_)) => {
                let failure = refused().because("the paper's forms have settings of their own");
                return Err(failure.advice("leave --settings out, or --form"));
            }
            (Form::Absolute, None) => Settings::paper(ScoreForm::PaperAbsolute),
            (Form::Relative, None) => Settings::paper(ScoreForm::PaperRelative),
        };
        let settings = Settings {
            rank: self.rank.or(base.rank),
            sketch_rows: self.sketch_rows.or(base.sketch_rows),
            percentile: self.percentile.unwrap_or(base.percentile),
            learning_rate: self.learning_rate.unwrap_or(base.learning_rate),
            threshold: self.threshold.map_or(base.threshold, ThresholdRule::rule),
            budget: self.alarm_budget.map(|alarms| AlarmBudget::per_day(alarms, interval)),
            ..base
        };
        if let Some(alarms) = self.alarm_budget.filter(|alarms| !(*alarms > 0.0 && alarms.is_finite())) {
            let failure = refused().because(format!("--alarm-budget is {alarms}"));
            return Err(failure.advice("a number above 0"));
        }
        settings
            .checked()
            .map_err(|error| refused().caused_by(&error).advice("`uview replay --help` describes the arguments"))
    }
}

/// The settings as text.
#[must_use]
pub fn describe(settings: &Settings) -> String {
    let form = match settings.score {
        ScoreForm::Scaled => "scaled residuals and coordinates",
        ScoreForm::PaperAbsolute => "the paper's absolute form",
        ScoreForm::PaperRelative => "the paper's relative form",
    };
    let latch = match settings.latch_rows {
        Some(rows) => format!("gauges latch after {rows} rows"),
        None => "no gauge latches".to_owned(),
    };
    let budget = match settings.budget {
        Some(budget) => format!("; γ is adjusted to one alarm in {:.0} rows", budget.rows_per_alarm),
        None => String::new(),
    };
    format!("judged by {form}; an episode begins at {:.2} γ; {latch}{budget}", settings.episode_margin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_flags_it_judges_as_the_agent_does() {
        let settings = Rules::default().settings(0.125).unwrap();

        assert_eq!(settings, Settings::live(0.125).lasting(0.125));
        assert!(settings.episode_margin > 1.0 && settings.long_rows == Some(8) && settings.pool_rows.is_some());
        let expected =
            "judged by scaled residuals and coordinates; an episode begins at 1.00 γ; gauges latch after 60 rows";
        assert_eq!(describe(&Settings::live(1.0)), expected);
    }

    #[test]
    fn the_library_and_the_papers_forms_have_no_margin() {
        let library = Rules { settings: Some(SettingsSource::Library), ..Rules::default() };
        let paper = Rules { form: Some(Form::Relative), rank: Some(5), ..Rules::default() };

        assert_eq!(library.settings(0.1).unwrap(), Settings::default());
        let expected = Settings { rank: Some(5), ..Settings::paper(ScoreForm::PaperRelative) };
        assert_eq!(paper.settings(0.1).unwrap(), expected);
    }

    #[test]
    fn an_alarm_budget_is_converted_to_rows_and_shown() {
        let rules = Rules { alarm_budget: Some(3.0), threshold: Some(ThresholdRule::HeldOut), ..Rules::default() };
        let settings = rules.settings(0.125).unwrap();

        assert_eq!(settings.budget, Some(AlarmBudget::one_in(230_400.0)));
        assert_eq!(settings.threshold, Threshold::HeldOutTail);
        assert!(describe(&settings).ends_with("; γ is adjusted to one alarm in 230400 rows"));
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let rules = Rules { alarm_budget: Some(wrong), ..Rules::default() };
            assert!(rules.settings(1.0).unwrap_err().to_string().contains("--alarm-budget is"));
        }
    }

    #[test]
    fn a_flag_outside_its_range_is_refused_by_name() {
        let outside = Rules { percentile: Some(120.0), ..Rules::default() };
        let both = Rules { settings: Some(SettingsSource::Agent), form: Some(Form::Absolute), ..Rules::default() };

        assert!(outside.settings(1.0).unwrap_err().to_string().contains("percentile is 120"));
        assert!(both.settings(1.0).unwrap_err().to_string().contains("leave --settings out"));
    }
}
