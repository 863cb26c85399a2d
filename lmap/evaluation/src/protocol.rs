//! The protocol: train, score every test row once and in order, compute the figures. Pure.
//!
//! Figures count row by row; rows that do not count are left out. The figures of a set are means over its units with an
//! event; shares of events and segments are over all units together.

use crate::candidate::{Candidate, RowScore};
use crate::ranking::{Point, Ranking};
use crate::surface::vus_pr;
use crate::table::Label;
use crate::unit::Unit;

/// False-positive rate at whose threshold events are counted as found.
const RATE: f64 = 0.01;
/// Number of named metrics that count.
const TOP: usize = 3;

/// The scores of a unit's test rows by one detector.
#[derive(Clone, Debug, PartialEq)]
pub struct DetectorRun {
    /// One score per test row.
    pub judged: Vec<RowScore>,
    /// The detector's threshold.
    pub gamma: f64,
    /// For each segment of the unit, the columns named in its row with the highest own score, largest first.
    pub named: Vec<Vec<usize>>,
}

impl DetectorRun {
    /// The same run with scores in units of γ, to be compared with those of another detector.
    pub(crate) fn in_gammas(mut self) -> Self {
        for judged in &mut self.judged {
            judged.score = (judged.score / self.gamma).min(f64::MAX);
        }
        self.gamma = 1.0;
        self
    }
}

/// Scores the test rows of `unit` with `candidate`.
pub fn run(candidate: &mut dyn Candidate, unit: &Unit) -> DetectorRun {
    let mut judged: Vec<RowScore> = Vec::with_capacity(unit.test.len());
    let mut named = vec![(f64::NEG_INFINITY, Vec::new()); unit.segments.len()];
    for (row, (values, gap)) in unit.test.iter().enumerate() {
        let score = candidate.step(values, gap);
        for (segment, (highest, columns)) in unit.segments.iter().zip(&mut named) {
            if segment.rows.contains(&row) && score.own > *highest {
                *highest = score.own;
                *columns = candidate.named(TOP);
            }
        }
        judged.push(score);
    }
    DetectorRun { judged, gamma: candidate.gamma(), named: named.into_iter().map(|(_, columns)| columns).collect() }
}

/// Figures of one unit, or of a set. All in \[0, 1\].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// F1 at the best threshold, in hindsight.
    pub best_f1: f64,
    /// F1 at γ.
    pub f1_at_gamma: f64,
    /// Share of normal rows at or above γ.
    pub fpr_at_gamma: f64,
    /// Area under the precision-recall curve: average precision.
    pub auc_pr: f64,
    /// Area under the ROC curve.
    pub auc_roc: f64,
    /// Precision by rows, recall by events, at the best threshold.
    pub composite_f1: f64,
    /// Volume under the surface of range-based precision and recall.
    pub vus_pr: f64,
}

/// A count out of a total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Times that it happened.
    pub yes: usize,
    /// Times that it could have happened.
    pub all: usize,
}

impl Count {
    /// yes / all; `None` if `all` is 0.
    #[must_use]
    pub fn share(self) -> Option<f64> {
        (self.all > 0).then(|| self.yes as f64 / self.all as f64)
    }

    /// Adds another count.
    pub fn add(&mut self, other: Self) {
        self.yes += other.yes;
        self.all += other.all;
    }
}

/// The figures of one detector on one unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// `None` if no row is labelled anomalous: the unit does not count.
    pub figures: Option<Figures>,
    /// Events found at a false-positive rate of 1 %.
    pub events: Count,
    /// Segments whose first metric named is responsible.
    pub first: Count,
    /// Segments where any of the first three is.
    pub any: Count,
}

impl Outcome {
    /// Compares scores with labels.
    #[must_use]
    pub fn of(unit: &Unit, course: &DetectorRun) -> Self {
        let (points, events) = points(unit, course);
        let scores: Vec<f64> = points.iter().map(|point| point.score).collect();
        let ranking = Ranking::new(points);
        let found =
            Count { yes: (ranking.events_found(RATE) * events.len() as f64).round() as usize, all: events.len() };
        let hits = |top: usize| {
            let right = |(segment, named): &(&crate::unit::Segment, &Vec<usize>)| {
                named.iter().take(top).any(|column| segment.responsible.contains(column))
            };
            let segments = unit.segments.iter().zip(&course.named);
            Count { yes: segments.filter(right).count(), all: unit.segments.len() }
        };
        let figures = || {
            let (f1_at_gamma, fpr_at_gamma) = ranking.at(course.gamma);
            Figures {
                best_f1: ranking.best_f1(),
                f1_at_gamma,
                fpr_at_gamma,
                auc_pr: ranking.auc_pr(),
                auc_roc: ranking.auc_roc(),
                composite_f1: ranking.best_composite_f1(),
                vus_pr: vus_pr(&scores, &events),
            }
        };
        Self { figures: (ranking.anomalous() > 0).then(figures), events: found, first: hits(1), any: hits(TOP) }
    }
}

/// The rows of a run that count, in the order of their scores.
#[must_use]
pub fn ranking(unit: &Unit, course: &DetectorRun) -> Ranking {
    Ranking::new(points(unit, course).0)
}

/// The rows that count, and the ranges of the events among them.
fn points(unit: &Unit, course: &DetectorRun) -> (Vec<Point>, Vec<(usize, usize)>) {
    let mut points = Vec::with_capacity(unit.labels.len());
    let mut events: Vec<(usize, usize)> = Vec::new();
    let mut inside = false;
    for (label, judged) in unit.labels.iter().zip(&course.judged) {
        let here = points.len();
        let event = match (label, inside) {
            (Label::Anomalous, false) => {
                events.push((here, here + 1));
                Some(events.len() - 1)
            }
            (Label::Anomalous, true) => {
                let last = events.len() - 1;
                events[last].1 = here + 1;
                Some(last)
            }
            _ => None,
        };
        inside = *label == Label::Anomalous;
        if *label != Label::Ignored {
            points.push(Point { score: judged.score, event });
        }
    }
    (points, events)
}

/// The figures of one detector on a set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Mean over the units that count.
    pub figures: Figures,
    /// Share of events found at a false-positive rate of 1 %, over all units.
    pub events_found: f64,
    /// Share of segments whose first metric named is responsible; `None` without labelled segments.
    pub hit1: Option<f64>,
    /// The same for any of the first three.
    pub hit3: Option<f64>,
}

impl Summary {
    /// Combines units; `None` if no unit counts.
    #[must_use]
    pub fn of(outcomes: &[Outcome]) -> Option<Self> {
        let counted: Vec<Figures> = outcomes.iter().filter_map(|outcome| outcome.figures).collect();
        if counted.is_empty() {
            return None;
        }
        let mean = |figure: fn(&Figures) -> f64| counted.iter().map(figure).sum::<f64>() / counted.len() as f64;
        let (mut events, mut first, mut any) = (Count::default(), Count::default(), Count::default());
        for outcome in outcomes {
            events.add(outcome.events);
            first.add(outcome.first);
            any.add(outcome.any);
        }
        Some(Self {
            figures: Figures {
                best_f1: mean(|f| f.best_f1),
                f1_at_gamma: mean(|f| f.f1_at_gamma),
                fpr_at_gamma: mean(|f| f.fpr_at_gamma),
                auc_pr: mean(|f| f.auc_pr),
                auc_roc: mean(|f| f.auc_roc),
                composite_f1: mean(|f| f.composite_f1),
                vus_pr: mean(|f| f.vus_pr),
            },
            events_found: events.share().unwrap_or(0.0),
            hit1: first.share(),
            hit3: any.share(),
        })
    }
}
