//! Tests of the settings: ranges, and what an interval makes of them.

use super::*;

#[test]
fn the_defaults_and_the_papers_settings_are_valid() {
    assert!(Settings::default().checked().is_ok());
    assert!(Settings::paper(ScoreForm::PaperAbsolute).checked().is_ok());
    assert!(Settings::paper(ScoreForm::PaperRelative).checked().is_ok());
}

#[test]
fn a_live_service_has_a_margin_that_grows_below_a_second() {
    let margin = |interval| Settings::live(interval).episode_margin;

    assert_eq!([margin(60.0), margin(1.0), margin(0.5), margin(0.125)], [1.0, 1.0, 1.15, 1.45]);
    assert!(Settings::live(0.001).checked().is_ok());
}

#[test]
fn rows_below_a_tenth_of_a_second_are_learnt_by_time_and_longer_ones_as_before() {
    let stride = |interval| Settings::live(interval).stride;

    assert_eq!([stride(60.0), stride(1.0), stride(0.1)], [STRIDE; 3]);
    assert_eq!([stride(0.05), stride(0.01), stride(0.001)], [10, 50, 500]);
    assert_eq!(Settings::live(0.01).every(0.01).stride, 50, "once is as good as twice");
    assert_eq!(Settings { stride: 70, ..Settings::default() }.every(0.01).stride, 70);
    assert_eq!(Settings { stride: 1, ..Settings::default() }.every(0.2).stride, 1);
    assert_eq!(Settings::paper(ScoreForm::PaperAbsolute).every(0.001).stride, 1);
    assert!(Settings::live(0.0).stride <= 1_000_000_000);
}

#[test]
fn the_cap_is_above_the_margin_whatever_the_interval_and_as_before_from_a_tenth_of_a_second_on() {
    for interval in [60.0, 1.0, 0.5, 0.2, 0.1] {
        assert_eq!(Settings::live(interval).cap(), 2.0, "{interval} s");
    }
    for interval in [0.05, 0.01, 0.001] {
        let settings = Settings::live(interval);
        assert!(settings.cap() > 1.3 * settings.episode_margin, "{interval} s");
    }
    assert_eq!(Settings { episode_cap: 1.0, ..Settings::default() }.cap(), 1.0);
}

#[test]
fn a_budget_of_alarms_a_day_is_one_of_rows() {
    assert_eq!(AlarmBudget::per_day(3.0, 0.125), AlarmBudget::one_in(230_400.0));
    assert_eq!(AlarmBudget::per_day(1e9, 60.0).rows_per_alarm, 1.0);
    let settings = Settings { budget: Some(AlarmBudget::per_day(1e-12, 0.001)), ..Settings::default() };
    assert!(settings.checked().is_ok());
}

#[test]
fn an_error_names_the_field_and_its_range() {
    let error = Settings { clip: f64::NAN, ..Settings::default() }.checked().unwrap_err();

    assert_eq!(error.to_string(), "clip is NaN, it must be from 1 to 1000000000000");
}

#[test]
fn a_range_is_said_in_few_words() {
    let error = |settings: Settings| settings.checked().unwrap_err().to_string();

    let percentile = error(Settings { percentile: 0.0, ..Settings::default() });
    let cap = error(Settings { episode_cap: 0.5, ..Settings::default() });

    assert_eq!(percentile, "percentile is 0, it must be above 0 and at most 100");
    assert_eq!(cap, "episode_cap is 0.5, it must be 1 or more");
}

#[test]
fn a_fit_that_comes_before_the_one_before_is_refused() {
    let settings = Settings { fit_again_rows: vec![600, 300], ..Settings::default() };

    assert!(matches!(settings.checked(), Err(SettingsError::Range { field: "fit_again_rows", .. })));
}

#[test]
fn an_automatic_fit_needs_rows_to_fit_on() {
    let settings = Settings { automatic_fit_rows: Some(600), ..Settings::default() };

    assert!(matches!(settings.checked(), Err(SettingsError::Range { field: "rows_kept", .. })));
}
