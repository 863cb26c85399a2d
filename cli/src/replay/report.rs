//! The result of a replay as text and as JSON. Rows are counted from 1, without the header line.

use std::fmt::Write as _;

use lmap::{Detector, Reason};
use serde::Serialize;
use wire::quantity::number;

use super::judge::{Judgement, Outcome};
use super::rules;
use super::sampling::{CurveView, Curves};
use super::timeline::{Alarm, Timeline};
use crate::figures::{bar, duration_ms, height, largest_of_parts, score};
use evaluation::columns::Columns;
use evaluation::table::Table;

/// The most episodes (those with the highest peaks) and labelled events listed as text; JSON has all of them.
const LISTED: usize = 30;

/// The most metrics listed per episode as text.
const NAMED: usize = 3;

/// The result of a replay.
#[derive(Debug)]
pub struct Replay<'a> {
    /// The name of the file.
    pub name: &'a str,
    /// The rows of the file.
    pub table: &'a Table,
    /// Kind and group of each metric.
    pub columns: &'a Columns,
    /// Seconds between rows.
    pub interval: f64,
    /// The detector after the last row.
    pub detector: &'a Detector,
    /// Scores and episodes of all rows.
    pub timeline: &'a Timeline,
    /// The comparison with the labels, if there are any.
    pub judgement: Option<&'a Judgement>,
}

impl Replay<'_> {
    /// The whole report, at most about `width` characters wide.
    #[must_use]
    pub fn text(&self, width: usize) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "{}", self.input_line());
        let _ = writeln!(text, "{}", rules::describe(self.detector.settings()));
        let _ = writeln!(text, "{}", self.learning_line());
        if let Some(line) = self.threshold_line() {
            let _ = writeln!(text, "{line}");
        }
        self.sparklines(&mut text, width.saturating_sub(10).clamp(20, 160));
        self.episodes(&mut text);
        self.events(&mut text);
        text
    }

    fn input_line(&self) -> String {
        let table = self.table;
        let (rows, metrics, counters) = (table.rows().len(), table.metrics.len(), self.columns.counters.len());
        let interval = duration_ms((self.interval * 1000.0).round() as u64);
        let mut line =
            format!("{}: {rows} rows of {metrics} metrics ({counters} counters), every {interval}", self.name);
        let others = [
            (table.missing, "empty cells"),
            (table.not_finite, "cells that are not finite (taken as missing)"),
            (self.timeline.gaps, "gaps in time"),
            (self.timeline.resets as usize, "resets of counters"),
        ];
        for (count, what) in others.into_iter().filter(|(count, _)| *count > 0) {
            let _ = write!(line, "; {what}: {count}");
        }
        line
    }

    fn learning_line(&self) -> String {
        let Some((rank, rows)) = self.detector.shape() else {
            let refused = self.detector.counts().fits_refused;
            return format!("never armed: {refused} fits were refused, since these rows vary too little");
        };
        let (levels, constants) = (self.detector.levels().count(), self.detector.constants().count());
        let from = match (self.timeline.armed, self.timeline.fits.first()) {
            (Some(0), _) => "armed from the first row by the model".to_owned(),
            (Some(armed), _) => format!("learnt from rows 1 to {armed}"),
            (None, _) => "not armed yet".to_owned(),
        };
        let later: Vec<String> = self
            .timeline
            .fits
            .iter()
            .filter(|fit| self.timeline.armed.is_some_and(|armed| **fit >= armed))
            .map(|fit| (fit + 1).to_string())
            .collect();
        let again =
            if later.is_empty() { String::new() } else { format!(", fitted again at row {}", later.join(", ")) };
        format!("{from}{again}; rank {rank} of {rows} rows, {levels} levels, {constants} constants")
    }

    /// The range of γ over the judged rows.
    fn threshold_line(&self) -> Option<String> {
        let armed = self.timeline.armed?;
        let (over, judged) = (self.timeline.over, self.timeline.gammas.len() - armed);
        let gammas = || self.timeline.gammas[armed..].iter().copied();
        let (least, most) = (gammas().fold(f64::INFINITY, f64::min), gammas().fold(0.0, f64::max));
        let range =
            if score(least) == score(most) { score(least) } else { format!("{} to {}", score(least), score(most)) };
        let share = 100.0 * over as f64 / judged as f64;
        Some(format!("γ {range}; {over} of {judged} rows ({share:.1} %) at or over it"))
    }

    fn sparklines(&self, text: &mut String, width: usize) {
        let shares: Vec<f64> =
            self.timeline.scores.iter().zip(&self.timeline.gammas).map(|(score, gamma)| score / gamma).collect();
        let parts = largest_of_parts(&shares, width);
        let bars: String =
            parts.iter().map(|share| if share.is_nan() { '·' } else { bar(height(*share, 1.0)) }).collect();
        let _ = writeln!(text, "\nscore against γ (· learning; upper half of the bars: over γ)\n          {bars}");
        let rows = shares.len();
        let marks = |inside: &dyn Fn(usize) -> bool| {
            let part = |i: usize| i * rows / parts.len()..(i + 1) * rows / parts.len();
            let mark = |i: usize| if part(i).any(inside) { '━' } else { ' ' };
            (0..parts.len()).map(mark).collect::<String>().trim_end().to_owned()
        };
        let alarms = &self.timeline.alarms;
        let _ = writeln!(text, "episodes  {}", marks(&|row| alarms.iter().any(|a| a.first <= row && row <= a.last)));
        if let Some(judgement) = self.judgement {
            let events = &judgement.events;
            let _ =
                writeln!(text, "labelled  {}", marks(&|row| events.iter().any(|e| e.first <= row && row <= e.last)));
        }
    }

    fn episodes(&self, text: &mut String) {
        let alarms = &self.timeline.alarms;
        let _ = match alarms.len() {
            0 => writeln!(text, "\nno episode"),
            1 => writeln!(text, "\n1 episode"),
            many => writeln!(text, "\n{many} episodes"),
        };
        let mut highest: Vec<&Alarm> = alarms.iter().collect();
        if alarms.len() > LISTED {
            let _ = writeln!(text, "  the {LISTED} with the highest peaks; --json FILE has all of them");
            highest.sort_by(|a, b| (b.score / b.gamma).total_cmp(&(a.score / a.gamma)));
            highest.truncate(LISTED);
            highest.sort_by_key(|alarm| alarm.first);
        }
        for alarm in highest {
            let _ = writeln!(text, "{}", self.episode_line(alarm));
            for reason in alarm.reasons.iter().take(NAMED) {
                let _ = writeln!(text, "    {}", self.reason_line(alarm.peak, reason));
            }
        }
    }

    fn episode_line(&self, alarm: &Alarm) -> String {
        let at = duration_ms(self.milliseconds(alarm.first));
        let lasts = if alarm.open { ", still on at the end" } else { "" };
        let (first, last, peak) = (alarm.first + 1, alarm.last + 1, alarm.score / alarm.gamma);
        let fault = self.fault_of(alarm).map_or_else(String::new, |fault| format!("   {fault}"));
        let group = alarm.groups.first().filter(|(group, _)| !self.columns.groups[usize::from(*group)].is_empty());
        let group = group.map_or_else(String::new, |(group, share)| {
            format!(", {} {:.0} %", self.columns.groups[usize::from(*group)], 100.0 * share)
        });
        format!("  rows {first} to {last} (after {at}{lasts}), peak {peak:.1} γ{group}{fault}")
    }

    fn reason_line(&self, peak: usize, reason: &Reason) -> String {
        let (seen, expected) = (number(reason.seen), number(reason.expected));
        let added = if self.columns.counters.contains(&reason.column) { " per row" } else { "" };
        let since = match reason.since_rows {
            0 => String::new(),
            rows => format!(", since row {}", (peak + 1).saturating_sub(rows as usize)),
        };
        format!(
            "{:>3.0} %  {}: seen {seen}{added}, expected {expected}{since}",
            100.0 * reason.share,
            self.table.metrics[reason.column]
        )
    }

    /// The fault that the episode overlaps, or "outside of every label" if it has normal rows only.
    fn fault_of(&self, alarm: &Alarm) -> Option<String> {
        let judgement = self.judgement?;
        let overlapping = judgement.events.iter().find(|event| event.first <= alarm.last && alarm.first <= event.last);
        let outside = || self.timeline.alarms.iter().position(|other| other == alarm);
        match overlapping {
            Some(event) if event.fault.is_empty() => Some("labelled".to_owned()),
            Some(event) => Some(event.fault.clone()),
            None if outside().is_some_and(|number| judgement.outside.contains(&number)) => {
                Some("outside of every label".to_owned())
            }
            None => None,
        }
    }

    fn events(&self, text: &mut String) {
        let Some(judgement) = self.judgement else { return };
        let (found, judged) = judgement.found();
        let (outside, quiet) = (judgement.outside.len(), judgement.quiet_rows);
        let _ =
            writeln!(text, "\nlabels: {found} of {judged} events found, {outside} episodes in {quiet} rows outside");
        for event in judgement.events.iter().take(LISTED) {
            let outcome = match event.outcome {
                Outcome::Found { rows: 0 } => "found at once".to_owned(),
                Outcome::Found { rows: 1 } => "found after 1 row".to_owned(),
                Outcome::Found { rows } => format!("found after {rows} rows"),
                Outcome::Missed => "missed".to_owned(),
                Outcome::NotJudged => "not judged: the detector was still learning".to_owned(),
            };
            let _ = writeln!(text, "  rows {} to {} {}: {outcome}", event.first + 1, event.last + 1, event.fault);
        }
        if judgement.events.len() > LISTED {
            let _ = writeln!(text, "  … and {} more; --json FILE has all of them", judgement.events.len() - LISTED);
        }
    }

    fn milliseconds(&self, row: usize) -> u64 {
        let seconds = match &self.table.times {
            Some(times) => times[row] - times[0],
            None => row as f64 * self.interval,
        };
        (seconds * 1000.0).max(0.0) as u64
    }

    /// The result as JSON.
    #[must_use]
    pub fn view(&self, sampling: Option<&Curves>) -> View<'_> {
        let name = |column: usize| self.table.metrics[column].as_str();
        View {
            file: self.name,
            rows: self.table.rows().len(),
            metrics: self.table.metrics.len(),
            interval_ms: self.interval * 1000.0,
            missing_cells: self.table.missing,
            not_finite_cells: self.table.not_finite,
            gaps: self.timeline.gaps,
            counter_resets: self.timeline.resets,
            armed_row: self.timeline.armed.map(|row| row + 1),
            judged_by: rules::describe(self.detector.settings()),
            episode_margin: self.detector.settings().episode_margin,
            gamma: self.detector.gamma(),
            rank: self.detector.shape().map(|shape| shape.0),
            sketch_rows: self.detector.shape().map(|shape| shape.1),
            levels: self.detector.levels().map(name).collect(),
            constants: self.detector.constants().map(name).collect(),
            rows_over: self.timeline.over,
            episodes: self.timeline.alarms.iter().map(|alarm| self.episode(alarm)).collect(),
            labels: self.judgement.map(labels),
            sampling: sampling.map(Curves::view),
            scores: &self.timeline.scores,
            gammas: &self.timeline.gammas,
        }
    }

    fn episode(&self, alarm: &Alarm) -> EpisodeView<'_> {
        let reason = |reason: &Reason| ReasonView {
            metric: &self.table.metrics[reason.column],
            share: reason.share,
            seen: reason.seen,
            expected: reason.expected,
            deviations: reason.z,
            since_row: (alarm.peak + 1).saturating_sub(reason.since_rows as usize),
        };
        EpisodeView {
            first_row: alarm.first + 1,
            last_row: alarm.last + 1,
            started_ms: self.milliseconds(alarm.first),
            open: alarm.open,
            peak_row: alarm.peak + 1,
            peak_score: alarm.score,
            peak_gamma: alarm.gamma,
            top_metrics: alarm.reasons.iter().map(reason).collect(),
        }
    }
}

fn labels(judgement: &Judgement) -> LabelsView<'_> {
    let (found, judged) = judgement.found();
    let event = |event: &'_ super::judge::Event| -> (usize, usize, Option<usize>, bool) {
        let rows = if let Outcome::Found { rows } = event.outcome { Some(rows) } else { None };
        (event.first + 1, event.last + 1, rows, event.outcome != Outcome::NotJudged)
    };
    let events = judgement.events.iter().map(|source| {
        let (first_row, last_row, found_after_rows, judged) = event(source);
        EventView { fault: &source.fault, first_row, last_row, judged, found_after_rows }
    });
    LabelsView {
        events_found: found,
        events_judged: judged,
        episodes_outside: judgement.outside.len(),
        quiet_rows: judgement.quiet_rows,
        events: events.collect(),
    }
}

/// What `--json` writes. Field names are part of the command's interface; rows count from 1, null means unknown.
#[derive(Debug, Serialize)]
pub struct View<'a> {
    file: &'a str,
    rows: usize,
    metrics: usize,
    interval_ms: f64,
    missing_cells: usize,
    not_finite_cells: usize,
    gaps: usize,
    counter_resets: u64,
    armed_row: Option<usize>,
    judged_by: String,
    episode_margin: f64,
    gamma: Option<f64>,
    rank: Option<usize>,
    sketch_rows: Option<usize>,
    levels: Vec<&'a str>,
    constants: Vec<&'a str>,
    rows_over: usize,
    episodes: Vec<EpisodeView<'a>>,
    labels: Option<LabelsView<'a>>,
    /// The curves of dynamic sampling, only if they are requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    sampling: Option<Vec<CurveView>>,
    scores: &'a [f64],
    gammas: &'a [f64],
}

#[derive(Debug, Serialize)]
struct EpisodeView<'a> {
    first_row: usize,
    last_row: usize,
    started_ms: u64,
    open: bool,
    peak_row: usize,
    peak_score: f64,
    peak_gamma: f64,
    top_metrics: Vec<ReasonView<'a>>,
}

#[derive(Debug, Serialize)]
struct ReasonView<'a> {
    metric: &'a str,
    share: f64,
    seen: f64,
    expected: f64,
    deviations: f64,
    /// The row since which the metric deviates, counted from 1.
    since_row: usize,
}

#[derive(Debug, Serialize)]
struct LabelsView<'a> {
    events_found: usize,
    events_judged: usize,
    episodes_outside: usize,
    quiet_rows: usize,
    events: Vec<EventView<'a>>,
}

#[derive(Debug, Serialize)]
struct EventView<'a> {
    fault: &'a str,
    first_row: usize,
    last_row: usize,
    judged: bool,
    found_after_rows: Option<usize>,
}
