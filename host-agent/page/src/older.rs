//! Scores and alarms older than the history, as a Prometheus has them: what it is asked, and what it answers.
//!
//! The agent exports the last score of each LMAP over its threshold γ, and whether it is in alarm
//! (`uview_lmap_score_ratio`, `uview_lmap_alarm`, docs/metrics.md). Of what was scraped, the largest of each step is
//! asked for.

use core::fmt::Write as _;
use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use wire::time::UnixNanos;

/// The gauges that are asked for, and what a label of the answer says that a series is of.
const GAUGES: [(&str, &str); 2] = [("score", "uview_lmap_score_ratio"), ("alarm", "uview_lmap_alarm")];
/// What is not written as it is within the query of an address.
const OTHERS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Bytes of an answer at most: a week has 672 values of 30 bytes, of each gauge.
pub const MAX_ANSWER_BYTES: usize = 256 << 10;
/// Values that are taken of an answer.
const MAX_VALUES: usize = 1_000;
/// Characters that are taken of an error.
const MAX_ERROR: usize = 200;

/// How far back is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// A day, in steps of two minutes, as the history has them.
    Day,
    /// Seven days, in steps of a quarter of an hour.
    Week,
}

impl Reach {
    /// The reach of so many seconds; `None` if there is no such one.
    #[must_use]
    pub fn of(seconds: &str) -> Option<Self> {
        [Self::Day, Self::Week].into_iter().find(|reach| reach.seconds().to_string() == seconds)
    }

    /// Its length in seconds.
    #[must_use]
    pub const fn seconds(self) -> u32 {
        match self {
            Self::Day => 86_400,
            Self::Week => 7 * 86_400,
        }
    }

    /// Seconds of a step.
    #[must_use]
    pub const fn step(self) -> u32 {
        match self {
            Self::Day => 120,
            Self::Week => 900,
        }
    }
}

/// The query of a request to `/api/v1/query_range` for the scores of `lmap` up to `now`, the largest of each step, and
/// for whether there was an alarm in it. `labels` select the series of this node.
#[must_use]
pub fn query(lmap: &str, labels: &BTreeMap<String, String>, reach: Reach, now: UnixNanos) -> String {
    let step = reach.step();
    // Whole steps: the same ones are asked for again.
    let end = now.0 / 1_000_000_000 / u64::from(step) * u64::from(step);
    let start = end.saturating_sub(u64::from(reach.seconds()));
    let mut selector = format!("lmap={}", quoted(lmap));
    for (name, value) in labels {
        // A text takes whatever is written to it.
        _ = write!(selector, ",{name}={}", quoted(value));
    }
    let wanted = GAUGES.map(|(of, gauge)| {
        // A maximum has no labels: one more says what it is of. Whatever stood in the empty label is replaced.
        format!("label_replace(max(max_over_time({gauge}{{{selector}}}[{step}s])),\"of\",\"{of}\",\"\",\"\")")
    });
    let wanted = wanted.join(" or ");
    let wanted = utf8_percent_encode(&wanted, OTHERS);
    format!("query={wanted}&start={start}&end={end}&step={step}")
}

/// Whether `name` can be a label's name.
#[must_use]
pub fn is_label(name: &str) -> bool {
    let is_legal =
        |at: usize, byte: u8| byte == b'_' || byte.is_ascii_alphabetic() || (at > 0 && byte.is_ascii_digit());
    !name.is_empty() && name != "lmap" && name.bytes().enumerate().all(|(at, byte)| is_legal(at, byte))
}

/// A text of PromQL.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\n' => quoted.push_str("\\n"),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// The largest score of a step, over γ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// First second of the step, since 1970.
    pub second: u32,
    /// The score, a multiple of γ.
    pub ratio: f32,
}

/// An alarm, as far as steps show it: from the first step with an alarm in it to the end of the last one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PastAlarm {
    /// First second of its first step, since 1970.
    pub from: u32,
    /// First second after its last step.
    pub to: u32,
    /// The largest score in it, a multiple of γ; `None`: there was none.
    pub peak: Option<f32>,
}

/// What a Prometheus has of an LMAP, oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PastScores {
    /// Scores, one of each step.
    pub scores: Vec<Score>,
    /// Alarms, as steps show them.
    pub alarms: Vec<PastAlarm>,
}

/// Why an answer cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// It is no JSON, or not that of this API.
    #[error("its answer is not that of /api/v1/query_range: {0}")]
    Json(#[from] serde_json::Error),
    /// It says that it failed.
    #[error("it says: {0}")]
    Failed(String),
}

#[derive(Debug, Deserialize)]
struct Answer {
    status: String,
    #[serde(default)]
    error: String,
    #[serde(default)]
    data: Data,
}

#[derive(Debug, Default, Deserialize)]
struct Data {
    #[serde(default)]
    result: Vec<Series>,
}

#[derive(Debug, Deserialize)]
struct Series {
    #[serde(default)]
    metric: Labels,
    #[serde(default)]
    values: Vec<(f64, String)>,
}

#[derive(Debug, Default, Deserialize)]
struct Labels {
    #[serde(default)]
    of: Gauge,
}

/// What a series is of, by the words of [`GAUGES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Gauge {
    Score,
    Alarm,
    #[default]
    #[serde(other)]
    Other,
}

/// What an answer has; nothing if the Prometheus knows nothing. Values that are no numbers are left out, and those
/// whose time does not rise.
///
/// # Errors
///
/// [`AnswerError`] if it is not the answer of a Prometheus, or says that it failed.
pub fn past(answer: &[u8], reach: Reach) -> Result<PastScores, AnswerError> {
    let Answer { status, error, data } = serde_json::from_slice(answer)?;
    if status != "success" {
        return Err(AnswerError::Failed(error.chars().take(MAX_ERROR).collect()));
    }
    let of = |gauge: Gauge| data.result.iter().find(|series| series.metric.of == gauge);
    let steps = |gauge: Gauge| of(gauge).map(|series| steps(&series.values, reach)).unwrap_or_default();
    let scores = steps(Gauge::Score);
    let alarms = alarms(&steps(Gauge::Alarm), &scores, reach);
    Ok(PastScores { scores, alarms })
}

/// The steps that `values` are of.
fn steps(values: &[(f64, String)], reach: Reach) -> Vec<Score> {
    let mut steps: Vec<Score> = Vec::new();
    for (end, value) in values {
        // A value is of the step that ends at its time.
        let begin = end - f64::from(reach.step());
        let (second, ratio) = (begin as u32, value.parse().unwrap_or(f32::NAN));
        let is_after = steps.last().is_none_or(|last| last.second < second);
        if begin >= 0.0 && ratio.is_finite() && is_after && steps.len() < MAX_VALUES {
            steps.push(Score { second, ratio });
        }
    }
    steps
}

/// Alarms of the steps `in_alarm` whose value is not 0: neighbours are one.
fn alarms(in_alarm: &[Score], scores: &[Score], reach: Reach) -> Vec<PastAlarm> {
    let mut alarms: Vec<PastAlarm> = Vec::new();
    for Score { second, .. } in in_alarm.iter().filter(|step| step.ratio > 0.0) {
        let to = second.saturating_add(reach.step());
        match alarms.last_mut() {
            Some(last) if last.to >= *second => last.to = to,
            _ => alarms.push(PastAlarm { from: *second, to, peak: None }),
        }
    }
    for alarm in &mut alarms {
        let inside = scores.iter().filter(|score| (alarm.from..alarm.to).contains(&score.second));
        alarm.peak = inside.map(|score| score.ratio).reduce(f32::max);
    }
    alarms
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixNanos = UnixNanos::from_secs(1_700_000_059);

    #[test]
    fn the_largest_score_of_each_step_is_asked_for_whatever_a_service_is_called() {
        let labels = BTreeMap::from([("instance".to_owned(), "node 1".to_owned())]);

        let query = query("a\"} or up{x=\"\\", &labels, Reach::Day, NOW);

        let selector = r#"{lmap="a\"} or up{x=\"\\",instance="node 1"}"#;
        let of = |of: &str, gauge: &str| {
            format!("label_replace(max(max_over_time({gauge}{selector}[120s])),\"of\",\"{of}\",\"\",\"\")")
        };
        let wanted = format!("{} or {}", of("score", "uview_lmap_score_ratio"), of("alarm", "uview_lmap_alarm"));
        let wanted = utf8_percent_encode(&wanted, OTHERS);
        assert_eq!(query, format!("query={wanted}&start=1699913640&end=1700000040&step=120"));
        assert!(query.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"'), "{query}");
    }

    #[test]
    fn labels_are_those_of_prometheus_and_not_the_service() {
        assert!(["instance", "_a1"].into_iter().all(is_label));
        assert!(!["", "1a", "a-b", "a=\"\"}", "lmap", "ä"].into_iter().any(is_label));
    }

    /// An answer with a series of each of these.
    fn answer(series: &[(&str, &str)]) -> String {
        let one = |(of, values): &(&str, &str)| format!(r#"{{"metric":{{"of":"{of}"}},"values":[{values}]}}"#);
        let series: Vec<_> = series.iter().map(one).collect();
        format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":[{}]}}}}"#, series.join(","))
    }

    #[test]
    fn scores_are_of_the_step_that_ends_at_their_time() {
        let values =
            r#"[1700000040,"0.5"],[1700000160,"NaN"],[1700000280.0,"31.25"],[1700000280,"7"],[-5,"1"],[1e300,"2"]"#;
        let answer = answer(&[("else", r#"[1700000040,"9"]"#), ("score", values)]);

        let PastScores { scores, alarms } = past(answer.as_bytes(), Reach::Day).unwrap();

        let score = |second, ratio| Score { second, ratio };
        assert_eq!(scores, [score(1_699_999_920, 0.5), score(1_700_000_160, 31.25), score(u32::MAX, 2.0)]);
        assert_eq!(alarms, []);
    }

    #[test]
    fn steps_with_an_alarm_that_follow_each_other_are_one_with_its_largest_score() {
        let values = |values: &[(u32, f32)]| {
            let texts: Vec<_> = values.iter().map(|(end, value)| format!(r#"[{end},"{value}"]"#)).collect();
            texts.join(",")
        };
        let scores = values(&[(1_120, 0.5), (1_240, 3.0), (1_360, 7.0), (1_480, 9.0)]);
        let alarm = values(&[(1_120, 0.0), (1_240, 1.0), (1_360, 1.0), (1_480, 0.0), (9_000, 1.0)]);
        let answer = answer(&[("alarm", &alarm), ("score", &scores)]);

        let past = past(answer.as_bytes(), Reach::Day).unwrap();

        let alarms = [
            PastAlarm { from: 1_120, to: 1_360, peak: Some(7.0) },
            // A replica was silent: nothing was judged.
            PastAlarm { from: 8_880, to: 9_000, peak: None },
        ];
        assert_eq!((past.scores.len(), &past.alarms[..]), (4, &alarms[..]));
    }

    #[test]
    fn what_a_prometheus_does_not_know_is_empty_and_an_error_is_said() {
        let none = br#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#;
        let failed = br#"{"status":"error","errorType":"bad_data","error":"too many points"}"#;

        assert_eq!(past(none, Reach::Week).unwrap(), PastScores::default());
        assert_eq!(past(failed, Reach::Week).unwrap_err().to_string(), "it says: too many points");
        let error = past(b"<html>", Reach::Week).unwrap_err().to_string();
        assert!(error.starts_with("its answer is not that of /api/v1/query_range: "), "{error}");
    }

    #[test]
    fn reaches_are_a_day_and_a_week() {
        assert_eq!((Reach::of("86400"), Reach::of("604800")), (Some(Reach::Day), Some(Reach::Week)));
        assert_eq!((Reach::of("1"), Reach::of("086400"), Reach::of("")), (None, None, None));
    }
}
