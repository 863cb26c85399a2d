//! The detector settings of one LMAP: what an operator requested for it, and else the worker's configuration.

use lmap::{AlarmBudget, ScoreForm, Settings};
use wire::control::{DetectorSpec, ScoreForm as RequestedForm};

/// The settings of an LMAP with a row every `interval` seconds: those `requested`, and else those `configured`. A form
/// of score other than the configured one has its own defaults. The caller checks the result.
pub(crate) fn settings(configured: &Settings, requested: &DetectorSpec, interval: f64) -> Settings {
    let form = requested.score.map_or(configured.score, form);
    let base = if form == configured.score { configured.clone() } else { of_form(form) };
    let settings = Settings {
        rank: requested.rank.map(|rank| rank as usize).or(base.rank),
        sketch_rows: requested.sketch_rows.map(|rows| rows as usize).or(base.sketch_rows),
        percentile: requested.percentile.unwrap_or(base.percentile),
        learning_rate: requested.learning_rate.unwrap_or(base.learning_rate),
        rows_kept: requested.rows_kept.map_or(base.rows_kept, |rows| rows as usize),
        ..base
    };
    // What was requested is in rows, and counts whatever the interval.
    let settings = at_interval(settings, interval);
    Settings {
        stride: requested.stride.unwrap_or(settings.stride),
        episode_margin: requested.margin.unwrap_or(settings.episode_margin),
        ..settings
    }
}

/// `settings` with a row every `interval` seconds: the margin of alarms, the stride, and what lasts.
pub(crate) fn at_interval(settings: Settings, interval: f64) -> Settings {
    settings.every(interval).lasting(interval)
}

/// The alarm budget by which γ is adjusted, with a row every `interval` seconds: the alarms per day that were
/// `requested`, else those `configured`. 0 means no budget.
pub(crate) fn budget(configured: Option<f64>, requested: &DetectorSpec, interval: f64) -> Option<AlarmBudget> {
    let alarms = requested.alarms_per_day.or(configured).filter(|alarms| *alarms > 0.0);
    alarms.map(|alarms| AlarmBudget::per_day(alarms, interval))
}

/// The default settings of a form of score.
pub(crate) fn of_form(form: ScoreForm) -> Settings {
    match form {
        // The kinds of columns are known here: a gauge is a state. And services are monitored from their start.
        ScoreForm::Scaled => Settings::live(1.0),
        ScoreForm::PaperAbsolute | ScoreForm::PaperRelative => Settings::paper(form),
    }
}

const fn form(requested: RequestedForm) -> ScoreForm {
    match requested {
        RequestedForm::Scaled => ScoreForm::Scaled,
        RequestedForm::Absolute => ScoreForm::PaperAbsolute,
        RequestedForm::Relative => ScoreForm::PaperRelative,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live() -> Settings {
        of_form(ScoreForm::Scaled)
    }

    #[test]
    fn what_is_not_requested_is_as_configured_with_the_margin_of_the_interval() {
        let configured = Settings { rank: Some(5), percentile: 98.0, ..live() };

        let expected = configured.clone().every(0.5).lasting(0.5);
        assert_eq!(settings(&configured, &DetectorSpec::default(), 0.5), expected);
        let requested = DetectorSpec { percentile: Some(99.9), stride: Some(2), ..DetectorSpec::default() };
        let expected = Settings { percentile: 99.9, stride: 2, ..configured.clone().lasting(1.0) };
        assert_eq!(settings(&configured, &requested, 1.0), expected);
    }

    #[test]
    fn what_lasts_counts_in_the_default_form_only() {
        let of = |score| {
            let requested = DetectorSpec { score: Some(score), ..DetectorSpec::default() };
            let found = settings(&live(), &requested, 0.1);
            (found.long_rows, found.pool_rows, found.load_rows)
        };

        assert_eq!(of(RequestedForm::Scaled), (Some(10), Some(20), Some(20)));
        assert_eq!(of(RequestedForm::Absolute), (None, None, None));
    }

    #[test]
    fn a_requested_margin_counts_whatever_the_interval() {
        let requested = DetectorSpec { margin: Some(1.1), ..DetectorSpec::default() };

        assert_eq!(settings(&live(), &requested, 0.001).episode_margin, 1.1);
    }

    #[test]
    fn short_rows_are_learnt_by_time_unless_a_stride_is_requested() {
        let requested = DetectorSpec { stride: Some(5), ..DetectorSpec::default() };

        assert_eq!(settings(&live(), &DetectorSpec::default(), 0.01).stride, 50);
        assert_eq!(settings(&live(), &requested, 0.01).stride, 5);
        assert_eq!(settings(&live(), &DetectorSpec::default(), 1.0).stride, live().stride);
    }

    #[test]
    fn a_requested_budget_goes_before_the_configured_one_and_zero_is_none() {
        let requested = |alarms_per_day| DetectorSpec { alarms_per_day, ..DetectorSpec::default() };
        let per_day = |alarms| Some(AlarmBudget::per_day(alarms, 0.5));

        assert_eq!(budget(None, &requested(None), 0.5), None);
        assert_eq!(budget(Some(3.0), &requested(None), 0.5), per_day(3.0));
        assert_eq!(budget(Some(3.0), &requested(Some(7.0)), 0.5), per_day(7.0));
        assert_eq!(budget(Some(3.0), &requested(Some(0.0)), 0.5), None);
    }

    #[test]
    fn another_form_of_score_brings_its_own_defaults() {
        let configured = Settings { rank: Some(5), percentile: 98.0, ..live() };
        let absolute = DetectorSpec { score: Some(RequestedForm::Absolute), ..DetectorSpec::default() };

        assert_eq!(settings(&configured, &absolute, 1.0), Settings::paper(ScoreForm::PaperAbsolute));
        let scaled = DetectorSpec { score: Some(RequestedForm::Scaled), rank: Some(2), ..DetectorSpec::default() };
        let expected = Settings { rank: Some(2), ..configured.clone().lasting(1.0) };
        assert_eq!(settings(&configured, &scaled, 1.0), expected, "the same form");
        let paper = Settings::paper(ScoreForm::PaperRelative);
        assert_eq!(settings(&paper, &scaled, 1.0), Settings { rank: Some(2), ..live().lasting(1.0) });
    }

    #[test]
    fn no_detector_refuses_what_the_wire_lets_through() {
        let least = DetectorSpec {
            score: None,
            rank: Some(1),
            sketch_rows: Some(2),
            stride: Some(1),
            percentile: Some(f64::MIN_POSITIVE),
            learning_rate: Some(0.0),
            margin: Some(1.0),
            alarms_per_day: Some(0.0),
            rows_kept: Some(0),
        };
        let most = DetectorSpec {
            score: None,
            rank: Some(4096),
            sketch_rows: Some(8192),
            stride: Some(1_000_000),
            percentile: Some(100.0),
            learning_rate: Some(1.0),
            margin: Some(1000.0),
            alarms_per_day: Some(1e6),
            rows_kept: Some(10_000),
        };
        for score in [None, Some(RequestedForm::Scaled), Some(RequestedForm::Absolute), Some(RequestedForm::Relative)] {
            for spec in [DetectorSpec::default(), least, most] {
                let spec = DetectorSpec { score, ..spec };
                assert_eq!(spec.checked(), Ok(spec));
                let settings = settings(&live(), &spec, 0.1);
                let settings = Settings { budget: budget(Some(3.0), &spec, 0.1), ..settings };
                assert!(settings.checked().is_ok(), "{spec:?}");
            }
        }
    }
}
