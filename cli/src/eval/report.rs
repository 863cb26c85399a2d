//! The figures of all detectors as a table and as JSON.

use std::fmt;

use evaluation::candidate::{Kind, TrainError};
use evaluation::choice::RowSettings;
use evaluation::data_set::DataSet;
use evaluation::folds::UnitIndex;
use evaluation::protocol::{Outcome, Summary};
use evaluation::unit::Unit;
use lmap::Settings;
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};

use super::held_out::Basis;
use super::work::{self, WorkError};

/// Where the settings come from by which an entry's rows are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SettingsOrigin {
    /// Those of the basis: held out with folds, otherwise the default.
    Basis,
    /// The default, beside folds: in sample where it was chosen on the same data.
    Default,
    /// Those chosen on all folds together.
    Hindsight,
}

impl SettingsOrigin {
    const ALL: [Self; 3] = [Self::Basis, Self::Default, Self::Hindsight];

    const fn suffix(self) -> &'static str {
        match self {
            Self::Basis => "",
            Self::Default => ", default",
            Self::Hindsight => ", in hindsight",
        }
    }
}

/// A detector of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    kind: Kind,
    origin: SettingsOrigin,
}

impl Entry {
    /// In table order: all detectors; with folds, those to which settings matter three times.
    fn all(basis: &Basis) -> Vec<Self> {
        let ways =
            |kind: Kind| if basis.chosen(kind).is_some() { &SettingsOrigin::ALL[..] } else { &[SettingsOrigin::Basis] };
        let entries = |kind: Kind| ways(kind).iter().map(move |origin| Self { kind, origin: *origin });
        Kind::ALL.into_iter().flat_map(entries).collect()
    }

    fn name(self) -> String {
        format!("{}{}", self.kind.name(), self.origin.suffix())
    }

    /// Whether it has a line in a set's table: the others are in the table of pairs and in the JSON.
    fn has_line(self) -> bool {
        self.origin == SettingsOrigin::Basis || self.kind == Kind::Lmap
    }

    fn run(self, place: UnitIndex, unit: &Unit, basis: &Basis) -> Result<Outcome, TrainError> {
        let settings = match self.origin {
            SettingsOrigin::Basis => basis.of(self.kind, place, unit),
            SettingsOrigin::Default => RowSettings::all(Settings::default()),
            SettingsOrigin::Hindsight => {
                let chosen = basis.chosen(self.kind).map(|choices| choices.on_all.clone());
                RowSettings::all(chosen.unwrap_or_default())
            }
        };
        let course = settings.run(unit, |settings| self.kind.train(unit, settings))?;
        Ok(Outcome::of(unit, &course))
    }
}

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
    detectors: Vec<(Entry, Summary)>,
}

impl SetReport {
    /// What the set's table has a line for.
    fn lines(&self) -> impl Iterator<Item = &(Entry, Summary)> {
        self.detectors.iter().filter(|(entry, _)| entry.has_line())
    }

    /// AUC-PR, bare and prepared: `0.515 → 0.575`. Where nothing was chosen, it is the same however judged.
    fn pair(&self, kind: Kind, origin: SettingsOrigin) -> String {
        let prepared = format!("{}+prepared", kind.name());
        let of = |name: &str| {
            let figure = |origin: SettingsOrigin| {
                self.detectors.iter().find(|(e, _)| e.kind.name() == name && e.origin == origin)
            };
            let (_, summary) = figure(origin).or_else(|| figure(SettingsOrigin::Basis))?;
            Some(format!("{:.3}", summary.figures.auc_pr))
        };
        let figures: Vec<String> = [kind.name(), &prepared].into_iter().filter_map(of).collect();
        figures.join(" → ")
    }
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
    /// Trains and runs every detector on every unit of `sets`, and summarizes.
    ///
    /// # Errors
    ///
    /// [`WorkError`] of the first unit that cannot be read or trained on.
    pub fn run(sets: &[DataSet], basis: &Basis) -> Result<Self, WorkError> {
        let entries = Entry::all(basis);
        let outcomes = work::on_all_units(sets, entries.len() as u64, |place, unit, step| {
            let one = |entry: &Entry| {
                let name = entry.name();
                step(&name);
                entry.run(place, unit, basis).map_err(|error| work::untrained(&name, unit, &error))
            };
            entries.iter().map(one).collect::<Result<Vec<_>, _>>()
        })?;
        Ok(Self { sets: sets.iter().zip(&outcomes).filter_map(|(set, units)| summary(set, units, &entries)).collect() })
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

/// `units`: the outcomes of each unit, in the order of `entries`; `None` without an event.
fn summary(set: &DataSet, units: &[Vec<Outcome>], entries: &[Entry]) -> Option<SetReport> {
    let of = |(place, entry): (usize, &Entry)| {
        let outcomes: Vec<Outcome> = units.iter().map(|unit| unit[place]).collect();
        Summary::of(&outcomes).map(|summary| (*entry, summary))
    };
    let first = |count: fn(&Outcome) -> usize| units.iter().map(|unit| count(&unit[0])).sum();
    Some(SetReport {
        name: set.name.clone(),
        units: units.iter().filter(|unit| unit[0].figures.is_some()).count(),
        events: first(|outcome| outcome.events.all),
        segments: first(|outcome| outcome.first.all),
        detectors: entries.iter().enumerate().map(of).collect::<Option<_>>()?,
    })
}

/// As JSON: set, then detector, then figures.
impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.sets.len()))?;
        for set in &self.sets {
            let detectors: std::collections::BTreeMap<String, View> =
                set.detectors.iter().map(|(entry, summary)| (entry.name(), View::of(summary))).collect();
            map.serialize_entry(&set.name, &detectors)?;
        }
        map.end()
    }
}

impl Report {
    /// AUC-PR of each detector, bare and prepared, as a Markdown table.
    fn pairs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bare: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| !kind.name().ends_with("+prepared")).collect();
        write!(f, "AUC-PR, bare → prepared\n\n| |")?;
        bare.iter().try_for_each(|kind| write!(f, " {} |", kind.name()))?;
        writeln!(f, "\n| --- |{}", " --- |".repeat(bare.len()))?;
        for set in &self.sets {
            let is_folded = set.detectors.iter().any(|(entry, _)| entry.origin == SettingsOrigin::Default);
            let rows = if is_folded { &SettingsOrigin::ALL[..] } else { &[SettingsOrigin::Basis] };
            for origin in rows {
                let suffix = if is_folded && *origin == SettingsOrigin::Basis { ", held out" } else { origin.suffix() };
                write!(f, "| {}{suffix} |", set.name)?;
                bare.iter().try_for_each(|kind| write!(f, " {} |", set.pair(*kind, *origin)))?;
                writeln!(f)?;
            }
        }
        writeln!(f)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pairs(f)?;
        let longest = |set: &SetReport| set.lines().map(|(entry, _)| entry.name().len()).max();
        let width = self.sets.iter().filter_map(longest).max().unwrap_or(0);
        for set in &self.sets {
            writeln!(f, "{}: {} units with {} events", set.name, set.units, set.events)?;
            let names = ["best F1", "F1 at γ", "FPR at γ", "AUC-PR", "AUC-ROC", "comp. F1", "events", "VUS-PR"];
            write!(f, "  {:width$}", "")?;
            names.iter().try_for_each(|name| write!(f, "{name:>9}"))?;
            writeln!(f, "{}", if set.segments > 0 { "    named   of 3" } else { "" })?;
            for (entry, summary) in set.lines() {
                write!(f, "  {:width$}", entry.name())?;
                line(f, summary)?;
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

fn line(f: &mut fmt::Formatter<'_>, summary: &Summary) -> fmt::Result {
    let figures = summary.figures;
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
    values.iter().try_for_each(|value| write!(f, "{value:>9.3}"))?;
    if let (Some(hit1), Some(hit3)) = (summary.hit1, summary.hit3) {
        write!(f, "{hit1:>9.3}{hit3:>7.3}")?;
    }
    writeln!(f)
}
