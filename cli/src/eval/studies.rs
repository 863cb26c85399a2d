//! Compares variants of uview's detector on every unit, as a Markdown table for `docs/reproduction/detection.md`.

use std::fmt::Write as _;

use clap::ValueEnum;
use evaluation::candidate::Kind;
use evaluation::data_set::DataSet;
use evaluation::episodes::Episodes;
use evaluation::protocol::{Outcome, Summary};
use evaluation::study::{self, Variant, VariantOutcome};

use super::held_out::Basis;
use super::work::{self, WorkError};

/// What a study varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Study {
    /// One part of the pipeline at a time
    Ablation,
    /// The number of training rows
    WarmUp,
    /// When rows become an episode
    Episodes,
}

impl Study {
    fn variants(self) -> Vec<Variant> {
        match self {
            Self::Ablation => study::ablation(),
            Self::WarmUp => study::warm_up(),
            Self::Episodes => study::episodes(),
        }
    }

    /// The legend of a cell.
    const fn legend(self) -> &'static str {
        match self {
            Self::Ablation => {
                "AUC-PR, best F1, F1 at γ, FPR at γ; events with an episode, false episodes per 1,000 normal rows"
            }
            Self::WarmUp => "AUC-PR, FPR at γ (units that have so many rows)",
            Self::Episodes => "events with an episode, false episodes per 1,000 normal rows, median delay in rows",
        }
    }

    fn cell(self, summary: &Summary, episodes: &Episodes, units: usize) -> String {
        let figures = summary.figures;
        let found = episodes.found.share().unwrap_or(0.0);
        let false_alarms = episodes.false_per_thousand();
        match self {
            Self::Ablation => format!(
                "{:.3} {:.3} {:.3} {:.3}; {found:.2} {false_alarms:.2}",
                figures.auc_pr, figures.best_f1, figures.f1_at_gamma, figures.fpr_at_gamma
            ),
            Self::WarmUp => format!("{:.3} {:.3} ({units})", figures.auc_pr, figures.fpr_at_gamma),
            Self::Episodes => {
                let delay = episodes.median_delay().map_or("–".to_owned(), |rows| rows.to_string());
                format!("{found:.2} {false_alarms:.2} {delay}")
            }
        }
    }
}

/// Runs every variant of `study` on every unit of `sets`, each a change of the settings that `basis` has for a row.
/// Leaves out those that change nothing, but for the first.
///
/// # Errors
///
/// [`WorkError`] of the first unit that cannot be read or trained on.
pub fn run(study: Study, sets: &[DataSet], basis: &Basis) -> Result<String, WorkError> {
    let bases = basis.settings();
    let mut variants = study.variants();
    let changes = |variant: &Variant| bases.iter().any(|base| variant.settings(base) != *base);
    let mut first = true;
    variants.retain(|variant| std::mem::take(&mut first) || study != Study::Ablation || changes(variant));
    let reached = work::on_all_units(sets, variants.len() as u64, |place, unit, step| {
        let base = basis.of(Kind::Lmap, place, unit);
        let one = |variant: &Variant| {
            step(&variant.name);
            variant.run(unit, &base).map_err(|error| work::untrained(&variant.name, unit, &error))
        };
        variants.iter().map(one).collect::<Result<Vec<_>, _>>()
    })?;
    let mut table = format!("Each cell: {}.\n\n| |", study.legend());
    for set in sets {
        let _ = write!(table, " {} |", set.name);
    }
    let _ = write!(table, "\n| --- |{}", " --- |".repeat(sets.len()));
    for (place, variant) in variants.iter().enumerate() {
        let _ = write!(table, "\n| {} |", variant.name);
        for units in &reached {
            let reached: Vec<&VariantOutcome> = units.iter().filter_map(|unit| unit[place].as_ref()).collect();
            let _ = write!(table, " {} |", cell(study, &reached));
        }
    }
    table.push_str("\n\n");
    Ok(table)
}

/// The cell of one set; a dash if no unit has figures.
fn cell(study: Study, reached: &[&VariantOutcome]) -> String {
    let outcomes: Vec<Outcome> = reached.iter().map(|reached| reached.outcome).collect();
    let mut episodes = Episodes::default();
    for reached in reached {
        episodes.add(&reached.episodes);
    }
    let counted = outcomes.iter().filter(|outcome| outcome.figures.is_some()).count();
    Summary::of(&outcomes).map_or("–".to_owned(), |summary| study.cell(&summary, &episodes, counted))
}
