//! What a replay judges by: the NIC agent's settings, the library's, or the paper's forms. Pure.

use clap::ValueEnum;
use lmap::{AlarmBudget, ScoreForm, Settings, Threshold};

use crate::failure::Failure;

/// Whose settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Owner {
    /// As the NIC agent judges a live service: gauges latch, the first 20 rows are not learnt, alarms have a margin that grows below a second.
    Agent,
    /// The library's defaults, for rows whose kinds nobody knows.
    Library,
}

/// The pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// What the agents use: scaled residuals and coordinates.
    Default,
    /// The paper's, by the length of the residual.
    Absolute,
    /// The paper's, of rows scaled to unit length.
    Relative,
}

/// Flags of `uview replay`.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Rules {
    /// Whose settings judge, with the default form [default: agent]
    #[arg(long, value_enum)]
    settings: Option<Owner>,
    /// The pipeline: what the agents use, or one of the paper's forms with the paper's settings [default: default]
    #[arg(long, value_enum, conflicts_with = "model")]
    form: Option<Form>,
    /// Directions k of the basis [default: as many as explain enough of the variance]
    #[arg(long, value_name = "K", conflicts_with = "model")]
    rank: Option<usize>,
    /// Rows l of the sketch [default: 25, or 2k if that is more]
    #[arg(long, value_name = "L", conflicts_with = "model")]
    sketch_rows: Option<usize>,
    /// γ is this percentile q of the training scores [default: 99]
    #[arg(long, value_name = "Q", conflicts_with = "model")]
    percentile: Option<f64>,
    /// Probability η that a row above γ is learnt [default: 0.01; 0 in the paper's forms]
    #[arg(long, value_name = "ETA", conflicts_with = "model")]
    learning_rate: Option<f64>,
    /// Alarms a day that are wanted: γ is moved slowly, between half and twice its first value [default: γ stays]
    #[arg(long, value_name = "PER_DAY")]
    alarm_budget: Option<f64>,
    /// Which scores of training γ is the percentile of [default: crosswise; in-sample in the paper's forms]
    #[arg(long, value_enum, conflicts_with = "model")]
    threshold: Option<ThresholdOf>,
}

/// Which scores of training γ is the percentile of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ThresholdOf {
    /// Of rows that the basis was made of, and of each half by the other.
    Crosswise,
    /// Of rows that the basis was made of: optimistic, and the paper's.
    InSample,
    /// Of the last fifth, by a basis of the four before.
    HeldOut,
}

impl ThresholdOf {
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
    /// [`Failure`] with the flag and its range.
    pub fn settings(&self, interval: f64) -> Result<Settings, Failure> {
        let refused = || Failure::to("judge by these flags");
        let base = match (self.form.unwrap_or(Form::Default), self.settings) {
            (Form::Default, None | Some(Owner::Agent)) => Settings::live(interval),
            (Form::Default, Some(Owner::Library)) => Settings::default(),
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
            threshold: self.threshold.map_or(base.threshold, ThresholdOf::rule),
            budget: self.alarm_budget.map(|alarms| AlarmBudget::per_day(alarms, interval)),
            ..base
        };
        if let Some(alarms) = self.alarm_budget.filter(|alarms| !(*alarms > 0.0 && alarms.is_finite())) {
            let failure = refused().because(format!("--alarm-budget is {alarms}"));
            return Err(failure.advice("a number of alarms a day above 0"));
        }
        settings
            .checked()
            .map_err(|error| refused().caused_by(&error).advice("`uview replay --help` tells what each flag is"))
    }
}

/// What `settings` are, in words.
#[must_use]
pub fn words(settings: &Settings) -> String {
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
        Some(budget) => format!("; γ is steered to an alarm in {:.0} rows", budget.rows_per_alarm),
        None => String::new(),
    };
    format!("judged by {form}; an episode begins from {:.2} γ; {latch}{budget}", settings.episode_margin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_flags_it_judges_as_the_agent_does() {
        let settings = Rules::default().settings(0.125).unwrap();

        assert_eq!(settings, Settings::live(0.125));
        assert!(settings.episode_margin > 1.0);
        let expected =
            "judged by scaled residuals and coordinates; an episode begins from 1.00 γ; gauges latch after 60 rows";
        assert_eq!(words(&Settings::live(1.0)), expected);
    }

    #[test]
    fn the_library_and_the_papers_forms_have_no_margin() {
        let library = Rules { settings: Some(Owner::Library), ..Rules::default() };
        let paper = Rules { form: Some(Form::Relative), rank: Some(5), ..Rules::default() };

        assert_eq!(library.settings(0.1).unwrap(), Settings::default());
        let expected = Settings { rank: Some(5), ..Settings::paper(ScoreForm::PaperRelative) };
        assert_eq!(paper.settings(0.1).unwrap(), expected);
    }

    #[test]
    fn a_budget_is_one_of_rows_and_said() {
        let rules = Rules { alarm_budget: Some(3.0), threshold: Some(ThresholdOf::HeldOut), ..Rules::default() };
        let settings = rules.settings(0.125).unwrap();

        assert_eq!(settings.budget, Some(AlarmBudget::one_in(230_400.0)));
        assert_eq!(settings.threshold, Threshold::HeldOutTail);
        assert!(words(&settings).ends_with("; γ is steered to an alarm in 230400 rows"));
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let rules = Rules { alarm_budget: Some(wrong), ..Rules::default() };
            assert!(rules.settings(1.0).unwrap_err().to_string().contains("--alarm-budget is"));
        }
    }

    #[test]
    fn a_flag_outside_its_range_is_refused_by_name() {
        let outside = Rules { percentile: Some(120.0), ..Rules::default() };
        let both = Rules { settings: Some(Owner::Agent), form: Some(Form::Absolute), ..Rules::default() };

        assert!(outside.settings(1.0).unwrap_err().to_string().contains("percentile is 120"));
        assert!(both.settings(1.0).unwrap_err().to_string().contains("leave --settings out"));
    }
}
