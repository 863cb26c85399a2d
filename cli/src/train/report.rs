//! The report of a training as text and as JSON. Pure.

use std::fmt;
use std::path::Path;

use evaluation::redundancy::{self, RedundantColumn};
use evaluation::table::Label;
use evaluation::training::{QuietStats, Split, TrialOutcome};
use lmap::{ColumnRole, ModelSummary, QUANTILES, Settings};
use serde::Serialize;
use wire::quantity::{number, quantity};

use super::trials::Outcome;
use crate::figures::duration_ms;
use crate::input::Input;

/// The most metric names in a line of text.
const LISTED: usize = 4;
/// With fewer normal rows there is a warning.
const FEW_ROWS: usize = 120;
/// There is a warning if γ of the final model differs by more than this factor from γ of the evaluated one.
const GAMMA_FACTOR: f64 = 1.5;
/// There is a warning if held-out rows score more than this factor higher than training rows: k is too large.
const OVERFIT: f64 = 1.5;

/// The result of a training.
#[derive(Clone, Copy, Debug)]
pub struct Training<'a> {
    /// The rows of the training.
    pub input: &'a Input,
    /// Seconds between rows.
    pub interval: f64,
    /// The split into training and held-out rows.
    pub split: &'a Split,
    /// The point of the grid that was chosen.
    pub chosen: &'a TrialOutcome,
    /// The outcomes of all points.
    pub outcome: &'a Outcome,
    /// Whether a grid was searched.
    pub searched: bool,
    /// The settings other than k, l and q.
    pub base: &'a Settings,
    /// The final model, trained on all normal rows.
    pub model: &'a ModelSummary,
    /// The path of the model file.
    pub out: &'a Path,
    /// Size of the model file in bytes.
    pub bytes: usize,
    /// The roles of the metrics.
    pub metrics: &'a Metrics,
}

/// The roles of the metrics, as indices into the metrics of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Metrics {
    /// Metrics that are constant.
    pub constant: Vec<usize>,
    /// Metrics without any value.
    pub absent: Vec<usize>,
    /// Metrics that are scored by their increments.
    pub levels: Vec<usize>,
    /// Metrics that follow another one; `None` if there are too many metrics to compare.
    pub redundant: Option<Vec<RedundantColumn>>,
}

impl Metrics {
    /// The roles of the metrics in a model of the normal rows of `split`. O(m² n).
    #[must_use]
    pub fn of(model: &ModelSummary, split: &Split) -> Self {
        let columns = &model.columns;
        let with = |role: ColumnRole| {
            columns.iter().enumerate().filter(|(_, c)| c.role == role).map(|(place, _)| place).collect::<Vec<_>>()
        };
        Self {
            constant: with(ColumnRole::Constant),
            absent: with(ColumnRole::Unwatched),
            levels: columns.iter().enumerate().filter(|(_, c)| c.level).map(|(place, _)| place).collect(),
            redundant: redundancy::redundant(&split.normal, columns.len()),
        }
    }
}

impl Training<'_> {
    /// Normal, anomalous and ignored rows of the whole input.
    fn counts(&self) -> (usize, usize, usize) {
        let labels = self.input.table.labels.as_deref().unwrap_or_default();
        let of = |label: Label| labels.iter().filter(|other| **other == label).count();
        let rows = self.input.table.rows().len();
        let (anomalous, ignored) = (of(Label::Anomalous), of(Label::Ignored));
        (rows - anomalous - ignored, anomalous, ignored)
    }

    /// Reasons not to rely on the model, one line of text each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut out = Vec::new();
        let (normal, ..) = self.counts();
        let (metrics, chosen) = (self.metrics, self.chosen);
        if normal < FEW_ROWS {
            out.push(format!("{normal} normal rows are few: an LMAP arms itself after {FEW_ROWS}"));
        }
        if metrics.constant.len() + metrics.absent.len() == self.model.columns.len() {
            out.push("no metric changes: the model can only detect that one does".to_owned());
        }
        if chosen.held_out_factor() > OVERFIT {
            let factor = chosen.held_out_factor();
            out.push(format!(
                "held-out rows score {factor:.1} times as high as training rows: use fewer directions (--ranks), or more rows"
            ));
        }
        let times = self.model.gamma / chosen.gamma;
        if !(1.0 / GAMMA_FACTOR..=GAMMA_FACTOR).contains(&times) {
            out.push(format!(
                "γ of the final model is {times:.1} times that of the figures above: the held-out rows differ from the training rows; \
                 inspect them with `uview replay`, and label what is not normal"
            ));
        }
        if chosen.quiet.rate() > 0.05 {
            out.push(format!(
                "{:.0} % of the held-out quiet rows are over γ: the load has changed, or a fault is not labelled",
                100.0 * chosen.quiet.rate()
            ));
        }
        if self.outcome.untried > 0 {
            out.push(format!("{} points of the grid were not tried: --time-limit-s", self.outcome.untried));
        }
        if self.input.table.not_finite > 0 {
            out.push(format!("{} values are not finite and count as missing", self.input.table.not_finite));
        }
        out
    }

    /// The names of the first few of these metrics.
    #[must_use]
    pub fn names(&self, places: &[usize]) -> String {
        let metrics = &self.input.table.metrics;
        let mut names: Vec<&str> = places.iter().take(LISTED).map(|place| metrics[*place].as_str()).collect();
        if places.len() > LISTED {
            names.push("…");
        }
        names.join(", ")
    }

    /// Alarms per hour on quiet rows: observed, and the upper bound at 95 % confidence.
    #[must_use]
    pub fn alarms_per_hour(&self) -> (f64, f64) {
        let quiet = &self.chosen.quiet;
        let rows = 3600.0 / self.interval;
        (quiet.alarms as f64 / quiet.rows.max(1) as f64 * rows, quiet.most_alarms_per_row() * rows)
    }

    fn rows_line(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (normal, anomalous, ignored) = self.counts();
        let interval = duration_ms((self.interval * 1000.0).round() as u64);
        let metrics = self.input.table.metrics.len();
        writeln!(
            f,
            "{}: {} rows of {metrics} metrics, every {interval}",
            self.input.service,
            self.input.table.rows().len()
        )?;
        let held_out = self.chosen.quiet.rows;
        write!(f, "  {normal} normal rows: {} for training, {held_out} held out", self.split.unit.train.len())?;
        match (anomalous, self.input.table.labels.is_some()) {
            (0, false) => writeln!(f, "; no labels: all rows count as normal"),
            (0, true) => writeln!(f, "; {ignored} ignored; none is labelled as a fault"),
            _ => writeln!(f, "; {anomalous} labelled as faults, {ignored} ignored"),
        }
    }

    fn chosen_line(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TrialOutcome { rank, sketch_rows, trial, gamma, .. } = self.chosen;
        let took = duration_ms(self.outcome.took.as_millis() as u64);
        let how = if self.searched {
            let by = if self.split.has_faults { "F1 on the labelled faults" } else { "the rate of quiet rows over γ" };
            format!("the best of {} points by {by}, in {took}", self.outcome.tried.len())
        } else {
            "k by explained variance".to_owned()
        };
        writeln!(f, "  k = {rank}, l = {sketch_rows}, q = {}, γ = {gamma:.2}: {how}", number(trial.percentile))
    }

    fn scores(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = [50.0, 90.0, 99.0, 100.0];
        write!(f, "\n  {:28}", "scores in units of γ")?;
        for percent in shown {
            write!(f, "{:>9}", format!("{percent} %"))?;
        }
        for (name, scores) in
            [("training rows", &self.chosen.training), ("held-out quiet rows", &self.chosen.quiet.scores)]
        {
            write!(f, "\n  {name:28}")?;
            for (_, score) in QUANTILES.iter().zip(scores).filter(|(percent, _)| shown.contains(percent)) {
                write!(f, "{:>9.2}", score / self.chosen.gamma)?;
            }
        }
        writeln!(f)
    }

    fn quality(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let QuietStats { rows, over, alarms, .. } = self.chosen.quiet;
        let length = duration_ms((rows as f64 * self.interval * 1000.0) as u64);
        let (_, most) = self.alarms_per_hour();
        writeln!(f, "\n  quiet:  {over} of {rows} rows at or over γ ({:.1} %)", 100.0 * self.chosen.quiet.rate())?;
        writeln!(
            f,
            "          {} in {length}: at most {} an hour with 95 % confidence",
            counted(alarms, "alarm"),
            number(most)
        )?;
        if let Some(faults) = self.chosen.faults {
            let events = self.chosen.events;
            let delay = self.chosen.delay.map_or_else(|| "–".to_owned(), |rows| format!("{rows} rows"));
            writeln!(f, "  faults: {} of {} with an alarm, median delay {delay}", events.yes, events.all)?;
            writeln!(
                f,
                "          of rows: precision {:.2}, recall {:.2}, F1 {:.2} (best {:.2}); AUC-PR {:.2}, AUC-ROC {:.2}",
                faults.precision, faults.recall, faults.f1, faults.best_f1, faults.auc_pr, faults.auc_roc
            )?;
        }
        Ok(())
    }

    fn metrics_lines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let metrics = self.metrics;
        writeln!(f)?;
        for (what, places) in
            [("constant", &metrics.constant), ("no values", &metrics.absent), ("by increment", &metrics.levels)]
        {
            if !places.is_empty() {
                writeln!(f, "  {what}: {} ({})", counted(places.len(), "metric"), self.names(places))?;
            }
        }
        match &metrics.redundant {
            None => writeln!(f, "  redundant: unknown, too many metrics to compare"),
            Some(found) if found.is_empty() => Ok(()),
            Some(found) => {
                let places: Vec<usize> = found.iter().map(|redundant| redundant.column).collect();
                writeln!(f, "  redundant: {} ({})", counted(found.len(), "metric"), self.names(&places))
            }
        }
    }
}

impl fmt::Display for Training<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rows_line(f)?;
        self.chosen_line(f)?;
        self.scores(f)?;
        self.quality(f)?;
        self.metrics_lines(f)?;
        for warning in self.warnings() {
            writeln!(f, "  ! {warning}")?;
        }
        let size = quantity(self.bytes as f64, "By");
        writeln!(
            f,
            "\n  {}: {size}, trained on all {} normal rows, γ = {:.2}",
            self.out.display(),
            self.model.rows,
            self.model.gamma
        )
    }
}

/// `count` and `what`, with an s for the plural.
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// What `--json` writes. Field names are part of the command's interface.
#[derive(Clone, Debug, Serialize)]
pub struct View<'a> {
    service: &'a str,
    rows: usize,
    normal_rows: usize,
    anomalous_rows: usize,
    metrics: usize,
    interval_ms: f64,
    learnt_rows: usize,
    chosen: PointView,
    searched: bool,
    points: Vec<PointView>,
    points_not_tried: usize,
    alarms_per_hour: f64,
    most_alarms_per_hour: f64,
    /// Percentile, score of training rows, score of held-out quiet rows.
    scores: Vec<(f64, f64, f64)>,
    constant: Vec<&'a str>,
    never_there: Vec<&'a str>,
    levels: Vec<&'a str>,
    /// A metric, the one it follows, their correlation; `null` if there are too many metrics.
    redundant: Option<Vec<(&'a str, &'a str, f64)>>,
    warnings: Vec<String>,
    model_gamma: f64,
    model_rows: usize,
}

/// A point of the grid.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PointView {
    rank: usize,
    sketch_rows: usize,
    percentile: f64,
    gamma: f64,
    quiet_rows: usize,
    quiet_over: usize,
    quiet_alarms: usize,
    held_out_factor: f64,
    events_found: usize,
    events: usize,
    precision: Option<f64>,
    recall: Option<f64>,
    f1: Option<f64>,
    best_f1: Option<f64>,
    auc_pr: Option<f64>,
    auc_roc: Option<f64>,
}

impl PointView {
    fn of(tried: &TrialOutcome) -> Self {
        let faults = tried.faults;
        Self {
            rank: tried.rank,
            sketch_rows: tried.sketch_rows,
            percentile: tried.trial.percentile,
            gamma: tried.gamma,
            quiet_rows: tried.quiet.rows,
            quiet_over: tried.quiet.over,
            quiet_alarms: tried.quiet.alarms,
            held_out_factor: tried.held_out_factor(),
            events_found: tried.events.yes,
            events: tried.events.all,
            precision: faults.map(|faults| faults.precision),
            recall: faults.map(|faults| faults.recall),
            f1: faults.map(|faults| faults.f1),
            best_f1: faults.map(|faults| faults.best_f1),
            auc_pr: faults.map(|faults| faults.auc_pr),
            auc_roc: faults.map(|faults| faults.auc_roc),
        }
    }
}

impl Training<'_> {
    /// The training as JSON.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        let name = |place: &usize| self.input.table.metrics[*place].as_str();
        let (normal_rows, anomalous_rows, _) = self.counts();
        let metrics = self.metrics;
        let (alarms_per_hour, most_alarms_per_hour) = self.alarms_per_hour();
        let scores = QUANTILES.iter().zip(self.chosen.training).zip(self.chosen.quiet.scores);
        let redundant = |found: &RedundantColumn| (name(&found.column), name(&found.like), found.correlation);
        View {
            service: &self.input.service,
            rows: self.input.table.rows().len(),
            normal_rows,
            anomalous_rows,
            metrics: self.input.table.metrics.len(),
            interval_ms: self.interval * 1000.0,
            learnt_rows: self.split.unit.train.len(),
            chosen: PointView::of(self.chosen),
            searched: self.searched,
            points: self.outcome.tried.iter().map(PointView::of).collect(),
            points_not_tried: self.outcome.untried,
            alarms_per_hour,
            most_alarms_per_hour,
            scores: scores.map(|((percent, learnt), quiet)| (*percent, learnt, quiet)).collect(),
            constant: metrics.constant.iter().map(name).collect(),
            never_there: metrics.absent.iter().map(name).collect(),
            levels: metrics.levels.iter().map(name).collect(),
            redundant: metrics.redundant.as_ref().map(|found| found.iter().map(redundant).collect()),
            warnings: self.warnings(),
            model_gamma: self.model.gamma,
            model_rows: self.model.rows,
        }
    }
}
