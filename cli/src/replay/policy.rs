//! `--policy`: runs the same rows with several sets of settings, and compares what each would have caught and at what
//! cost.

use std::fmt::Write as _;
use std::path::Path;

use evaluation::columns::Columns;
use evaluation::table::Table;
use lmap::{AlarmBudget, Detector, EpisodeRule, ScoreForm, Settings};
use serde::{Deserialize, Serialize};

use super::judge::{Judgement, Outcome};
use super::timeline::{self, Timeline};
use super::{ReplayArgs, SEED};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::figures::duration_ms;
use crate::output::{self, json};

/// Larger files are refused.
const MAX_BYTES: u64 = 1 << 20;
/// Longer lists are refused.
const MAX_POLICIES: usize = 1000;

/// The rows that every policy is applied to.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// The name of the file.
    pub name: &'a str,
    /// The rows of the file.
    pub table: &'a Table,
    /// Kind and group of each metric.
    pub columns: &'a Columns,
    /// Seconds between rows.
    pub interval: f64,
}

/// The settings that a policy is based on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Base {
    /// Those of the NIC agent.
    #[default]
    Agent,
    /// Those of the library.
    Library,
    /// The paper's absolute form: the length of the residual.
    Absolute,
    /// The paper's relative form: of rows scaled to unit length.
    Relative,
}

/// When rows become an episode. Missing fields are those of the base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct EpisodePolicy {
    need: Option<u32>,
    of: Option<u32>,
    quiet: Option<u32>,
}

/// The rows that are sent to a remote monitor (μView, 4.7.2): those whose score is at least a share of γ, and a few
/// others.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DensePolicy {
    /// The share of γ from which rows are sent.
    from: f64,
    /// Rows that are sent after such a row.
    hold_rows: usize,
    /// In addition, every `pull_every`th row is sent; 0 sends none.
    pull_every: usize,
}

impl Default for DensePolicy {
    fn default() -> Self {
        Self { from: 0.5, hold_rows: 0, pull_every: 100 }
    }
}

/// One named set of settings. Missing fields are those of `base`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Policy {
    name: String,
    base: Base,
    rank: Option<usize>,
    sketch_rows: Option<usize>,
    percentile: Option<f64>,
    learning_rate: Option<f64>,
    stride: Option<u32>,
    smoothing_span: Option<f64>,
    clip: Option<f64>,
    warm_up_rows: Option<usize>,
    episode_margin: Option<f64>,
    episode: EpisodePolicy,
    /// The alarm budget: γ is adjusted towards one alarm in this many rows.
    rows_per_alarm: Option<f64>,
    dense: DensePolicy,
}

impl Policy {
    fn settings(&self, interval: f64) -> Settings {
        let base = match self.base {
            Base::Agent => Settings::live(interval).lasting(interval),
            Base::Library => Settings::default(),
            Base::Absolute => Settings::paper(ScoreForm::PaperAbsolute),
            Base::Relative => Settings::paper(ScoreForm::PaperRelative),
        };
        let warm_up_rows = self.warm_up_rows.unwrap_or(base.warm_up_rows);
        Settings {
            rank: self.rank.or(base.rank),
            sketch_rows: self.sketch_rows.or(base.sketch_rows),
            percentile: self.percentile.unwrap_or(base.percentile),
            learning_rate: self.learning_rate.unwrap_or(base.learning_rate),
            stride: self.stride.unwrap_or(base.stride),
            smoothing_span: self.smoothing_span.unwrap_or(base.smoothing_span),
            clip: self.clip.unwrap_or(base.clip),
            // Further fits cannot come before arming.
            provisional_rows: base.provisional_rows.filter(|rows| *rows < warm_up_rows),
            fit_again_rows: base.fit_again_rows.iter().copied().filter(|rows| *rows > warm_up_rows).collect(),
            warm_up_rows,
            episode_margin: self.episode_margin.unwrap_or(base.episode_margin),
            episode: EpisodeRule {
                need: self.episode.need.unwrap_or(base.episode.need),
                of: self.episode.of.unwrap_or(base.episode.of),
                quiet: self.episode.quiet.unwrap_or(base.episode.quiet),
            },
            budget: self.rows_per_alarm.map(AlarmBudget::one_in).or(base.budget),
            ..base
        }
    }
}

/// What a policy would have caught, and its cost. Field names are part of the command's interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyResult {
    policy: String,
    /// The first judged row, from 1; `null` if the detector never armed.
    armed_row: Option<usize>,
    rank: Option<usize>,
    gamma: Option<f64>,
    judged_rows: usize,
    rows_over_gamma: usize,
    /// Number of episodes; each is one notification.
    alarms: usize,
    alarms_per_hour: f64,
    rows_in_alarm: usize,
    /// Rows that are sent to a remote monitor.
    rows_sent: usize,
    share_sent: f64,
    /// This and the following fields are `null` without labels.
    events_found: Option<usize>,
    events_judged: Option<usize>,
    /// The median delay from the beginning of an event to its first alarm.
    delay_rows: Option<usize>,
    alarms_outside: Option<usize>,
}

/// Runs the rows with every policy of the file at `path`, and prints the comparison.
///
/// # Errors
///
/// [`Failure`] with the policy and the field that is not valid.
pub fn run(path: &Path, args: &ReplayArgs, rows: &Rows<'_>) -> Result<Exit, Failure> {
    let policies = read(path)?;
    let progress = super::progress_bar(policies.len() * rows.table.rows().len());
    let mut results = Vec::new();
    for policy in &policies {
        results.push(judge(policy, rows, path)?);
        progress.inc(rows.table.rows().len() as u64);
    }
    progress.finish_and_clear();
    let text = json(&View { file: rows.name, rows: rows.table.rows().len(), policies: &results })?;
    match args.json.as_deref() {
        Some(path) if path == Path::new("-") => return output::print(&text).map(|()| Exit::Fine),
        Some(path) => {
            let refused = |error| Failure::to(format!("write the result {}", path.display())).caused_by(&error);
            std::fs::write(path, text).map_err(refused)?;
        }
        None => {}
    }
    output::print(&table(rows, &results)).map(|()| Exit::Fine)
}

#[derive(Debug, Serialize)]
struct View<'a> {
    file: &'a str,
    rows: usize,
    policies: &'a [PolicyResult],
}

fn read(path: &Path) -> Result<Vec<Policy>, Failure> {
    let refused = || Failure::to(format!("use the policies {}", path.display()));
    let advice = "a YAML list like `- {name: stricter, percentile: 99.9}`; docs/training.md describes the fields";
    let text = std::fs::metadata(path).and_then(|found| {
        if found.len() > MAX_BYTES {
            return Err(std::io::Error::other(format!("it has more than {MAX_BYTES} bytes")));
        }
        std::fs::read_to_string(path)
    });
    let text = text.map_err(|error| refused().caused_by(&error).advice("is the path right, and can you read it?"))?;
    let policies: Vec<Policy> = serde_saphyr::from_str(&text)
        .map_err(|error| refused().because(error.without_snippet().to_string()).advice(advice))?;
    if !(1..=MAX_POLICIES).contains(&policies.len()) {
        let cause = format!("it lists {} policies; 1 to {MAX_POLICIES} are possible", policies.len());
        return Err(refused().because(cause).advice(advice));
    }
    for (place, policy) in policies.iter().enumerate() {
        if policy.name.is_empty() {
            return Err(refused().because(format!("policy {} has no name", place + 1)).advice(advice));
        }
        if policies[..place].iter().any(|other| other.name == policy.name) {
            return Err(refused().because(format!("two policies are called `{}`", policy.name)).advice(advice));
        }
        if !(policy.dense.from >= 0.0 && policy.dense.from.is_finite()) {
            let cause = format!("`{}`: dense.from is {}, but must be at least 0", policy.name, policy.dense.from);
            return Err(refused().because(cause).advice(advice));
        }
    }
    Ok(policies)
}

fn judge(policy: &Policy, rows: &Rows<'_>, path: &Path) -> Result<PolicyResult, Failure> {
    let refused = || Failure::to(format!("run policy `{}` of {}", policy.name, path.display()));
    let mut detector =
        Detector::new(rows.columns.columns.clone(), policy.settings(rows.interval), SEED).map_err(|error| {
            refused().caused_by(&error).advice("docs/training.md describes the fields and their ranges")
        })?;
    let timeline = timeline::run(rows.table, rows.columns, rows.interval, &mut detector, |_| {})
        .map_err(|error| refused().caused_by(&error))?;
    let judgement = Judgement::of(rows.table, &timeline);
    Ok(result(policy, rows, &detector, &timeline, judgement.as_ref()))
}

fn result(
    policy: &Policy,
    rows: &Rows<'_>,
    detector: &Detector,
    timeline: &Timeline,
    judgement: Option<&Judgement>,
) -> PolicyResult {
    let all = timeline.scores.len();
    let judged_rows = all - timeline.armed.unwrap_or(all);
    let sent = sent(&timeline.scores, &timeline.gammas, &policy.dense);
    let mut delays: Vec<usize> = judgement.map_or_else(Vec::new, |judgement| {
        let delay = |outcome| if let Outcome::Found { rows } = outcome { Some(rows) } else { None };
        judgement.events.iter().filter_map(|event| delay(event.outcome)).collect()
    });
    delays.sort_unstable();
    PolicyResult {
        policy: policy.name.clone(),
        armed_row: timeline.armed.map(|row| row + 1),
        rank: detector.shape().map(|shape| shape.0),
        gamma: detector.gamma(),
        judged_rows,
        rows_over_gamma: timeline.over,
        alarms: timeline.alarms.len(),
        alarms_per_hour: timeline.alarms.len() as f64 * 3600.0 / (judged_rows.max(1) as f64 * rows.interval),
        rows_in_alarm: timeline.alarms.iter().map(|alarm| alarm.last + 1 - alarm.first).sum(),
        rows_sent: sent,
        share_sent: sent as f64 / all.max(1) as f64,
        events_found: judgement.map(|judgement| judgement.found().0),
        events_judged: judgement.map(|judgement| judgement.found().1),
        delay_rows: delays.get(delays.len().saturating_sub(1) / 2).copied(),
        alarms_outside: judgement.map(|judgement| judgement.outside.len()),
    }
}

/// The number of rows that are sent to a remote monitor.
fn sent(scores: &[f64], gammas: &[f64], policy: &DensePolicy) -> usize {
    let mut held = 0;
    let mut count = 0;
    for (row, (score, gamma)) in scores.iter().zip(gammas).enumerate() {
        let dense = *score >= policy.from * gamma; // false while learning: both are NaN
        let pulled = policy.pull_every > 0 && row % policy.pull_every == 0;
        count += usize::from(dense || held > 0 || pulled);
        held = if dense { policy.hold_rows } else { held.saturating_sub(1) };
    }
    count
}

fn table(rows: &Rows<'_>, results: &[PolicyResult]) -> String {
    let interval = duration_ms((rows.interval * 1000.0).round() as u64);
    let mut text = format!(
        "{}: {} rows every {interval}, judged by {} policies\n\n",
        rows.name,
        rows.table.rows().len(),
        results.len()
    );
    let width = results.iter().map(|result| result.policy.chars().count()).max().unwrap_or(0).max(6);
    let head =
        ["caught", "delay", "alarms", "outside", "per hour", "rows over γ", "rows in alarm", "rows sent", "k", "γ"];
    let widths = [9, 6, 7, 8, 9, 12, 14, 16, 4, 8];
    let _ = write!(text, "{:width$}", "policy");
    for (title, width) in head.iter().zip(widths) {
        let _ = write!(text, "{title:>width$}");
    }
    for result in results {
        let _ = write!(text, "\n{:width$}", result.policy);
        for (cell, width) in cells(result).iter().zip(widths) {
            let _ = write!(text, "{cell:>width$}");
        }
    }
    text += "\n\ncaught: labelled events with an alarm, of those judged; delay: median number of rows to the alarm;\noutside: alarms in normal rows only\n";
    text
}

fn cells(result: &PolicyResult) -> [String; 10] {
    let or_dash = |value: Option<usize>| value.map_or_else(|| "–".to_owned(), |value| value.to_string());
    let caught = match (result.events_found, result.events_judged) {
        (Some(found), Some(judged)) => format!("{found} of {judged}"),
        _ => "–".to_owned(),
    };
    [
        caught,
        or_dash(result.delay_rows),
        result.alarms.to_string(),
        or_dash(result.alarms_outside),
        format!("{:.1}", result.alarms_per_hour),
        result.rows_over_gamma.to_string(),
        result.rows_in_alarm.to_string(),
        format!("{} ({:.1} %)", result.rows_sent, 100.0 * result.share_sent),
        or_dash(result.rank),
        result.gamma.map_or_else(|| "–".to_owned(), |gamma| format!("{gamma:.2}")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_fields_of_a_policy_are_those_of_the_agent() {
        let policies: Vec<Policy> =
            serde_saphyr::from_str("- name: a\n- {name: b, base: relative, rank: 5, episode: {need: 3, of: 5}}\n")
                .unwrap();

        assert_eq!(policies[0].settings(0.1), Settings::live(0.1).lasting(0.1));
        let second = policies[1].settings(0.1);
        assert_eq!((second.score, second.rank), (ScoreForm::PaperRelative, Some(5)));
        assert_eq!((second.episode.need, second.episode.of, second.episode.quiet), (3, 5, 5));
    }

    #[test]
    fn fits_that_a_longer_warm_up_overtakes_are_left_out() {
        let policy = Policy { warm_up_rows: Some(700), ..Policy::default() };
        let short = Policy { warm_up_rows: Some(20), ..Policy::default() };

        assert_eq!(policy.settings(1.0).fit_again_rows, [2000]);
        assert_eq!(short.settings(1.0).provisional_rows, None);
        assert!(policy.settings(1.0).checked().is_ok() && short.settings(1.0).checked().is_ok());
    }

    #[test]
    fn rows_are_sent_while_the_score_is_high_for_a_while_after_and_every_so_often() {
        let scores = [f64::NAN, 0.0, 6.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        let gammas = [f64::NAN, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0];
        let sent = |from, hold_rows, pull_every| sent(&scores, &gammas, &DensePolicy { from, hold_rows, pull_every });

        assert_eq!(sent(0.5, 0, 0), 1);
        assert_eq!(sent(0.5, 2, 0), 3);
        assert_eq!(sent(0.7, 2, 4), 2); // rows 0 and 4
        assert_eq!(sent(0.0, 0, 0), 7);
    }

    #[test]
    fn an_unknown_field_is_refused() {
        let error = serde_saphyr::from_str::<Vec<Policy>>("- {name: a, percentil: 3}\n").unwrap_err().to_string();

        assert!(error.contains("percentil"), "{error}");
    }
}
