//! The figures of all detectors as a table and as JSON.

use std::fmt;

use evaluation::candidate::Kind;
use evaluation::data_set::DataSet;
use evaluation::protocol::{Outcome, Summary};
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};

/// The figures of all detectors on all sets that have an event.
#[derive(Clone, Debug)]
pub struct Report {
    sets: Vec<SetReport>,
}

#[derive(Clone, Debug)]
struct SetReport {
    name: String,
    units: usize,
    events: usize,
    segments: usize,
    detectors: Vec<(&'static str, Summary)>,
}

/// The figures of one detector on one set, with the field names of the JSON.
#[derive(Clone, Copy, Debug, Serialize)]
struct View {
    best_f1: f64,
    f1_at_gamma: f64,
    fpr_at_gamma: f64,
    auc_pr: f64,
    auc_roc: f64,
    events_found: f64,
    vus_pr: f64,
    /// `null` without an interpretation.csv.
    hit1: Option<f64>,
    hit3: Option<f64>,
}

impl View {
    fn of(summary: &Summary) -> Self {
        let Summary { figures, events_found, hit1, hit3 } = *summary;
        Self {
            best_f1: figures.best_f1,
            f1_at_gamma: figures.f1_at_gamma,
            fpr_at_gamma: figures.fpr_at_gamma,
            auc_pr: figures.auc_pr,
            auc_roc: figures.auc_roc,
            events_found,
            vus_pr: figures.vus_pr,
            hit1,
            hit3,
        }
    }
}

impl Report {
    /// Summarizes the outcomes of every detector (in the order of [`Kind::ALL`]) on every unit of every set.
    #[must_use]
    pub fn new(sets: &[DataSet], outcomes: &[Vec<Vec<Outcome>>]) -> Self {
        let set = |(set, units): (&DataSet, &Vec<Vec<Outcome>>)| {
            let of = |(place, kind): (usize, &Kind)| {
                let outcomes: Vec<Outcome> = units.iter().map(|unit| unit[place]).collect();
                Summary::of(&outcomes).map(|summary| (kind.name(), summary))
            };
            let first = |count: fn(&Outcome) -> usize| units.iter().map(|unit| count(&unit[0])).sum();
            Some(SetReport {
                name: set.name.clone(),
                units: units.iter().filter(|unit| unit[0].figures.is_some()).count(),
                events: first(|outcome| outcome.events.all),
                segments: first(|outcome| outcome.first.all),
                detectors: Kind::ALL.iter().enumerate().map(of).collect::<Option<_>>()?,
            })
        };
        Self { sets: sets.iter().zip(outcomes).filter_map(set).collect() }
    }

    /// Whether no set has an event.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Whether the report has a set of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.sets.iter().any(|set| set.name == name)
    }
}

/// As JSON: set, then detector, then figures.
impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.sets.len()))?;
        for set in &self.sets {
            let detectors: std::collections::BTreeMap<&str, View> =
                set.detectors.iter().map(|(name, summary)| (*name, View::of(summary))).collect();
            map.serialize_entry(&set.name, &detectors)?;
        }
        map.end()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for set in &self.sets {
            writeln!(f, "{}: {} units with {} events", set.name, set.units, set.events)?;
            let names = ["best F1", "F1 at γ", "FPR at γ", "AUC-PR", "AUC-ROC", "comp. F1", "events", "VUS-PR"];
            write!(f, "{:12}", "")?;
            names.iter().try_for_each(|name| write!(f, "{name:>10}"))?;
            writeln!(f, "{}", if set.segments > 0 { "     named   of 3" } else { "" })?;
            for (name, summary) in &set.detectors {
                let figures = summary.figures;
                write!(f, "  {name:10}")?;
                let values = [
                    figures.best_f1,
                    figures.f1_at_gamma,
                    figures.fpr_at_gamma,
                    figures.auc_pr,
                    figures.auc_roc,
                    figures.composite_f1,
                    summary.events_found,
                    figures.vus_pr,
                ];
                values.iter().try_for_each(|value| write!(f, "{value:>10.3}"))?;
                if let (Some(hit1), Some(hit3)) = (summary.hit1, summary.hit3) {
                    write!(f, "{hit1:>10.3}{hit3:>7.3}")?;
                }
                writeln!(f)?;
            }
            writeln!(f)?;
        }
        writeln!(f, "events: share of events with a row above 99 % of the normal test rows")?;
        if self.sets.iter().any(|set| set.segments > 0) {
            writeln!(f, "named: share in which the first metric named is responsible; of 3: any of the first three")?;
        }
        Ok(())
    }
}
