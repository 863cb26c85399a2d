//! `cargo xtask figures`: every figure that the documentation claims, as a ratio against a named peer measured in the same run.
//!
//! The two sides of a figure alternate, so that a neighbour's load hits both; the ratio is the median of the pairs' ratios. Results go to
//! `docs/figures.json` and, as a table, to `docs/figures.md`. A run of some figures keeps the others as they were.

mod instrumentation;
mod pair;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::proto::workspace;

/// One figure, as it stands in `docs/figures.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// What is measured; unique.
    pub name: String,
    /// Ours: the median, in `unit`.
    pub value: f64,
    /// Of both values.
    pub unit: String,
    /// Against what.
    pub peer: String,
    /// The peer's: the median, in `unit`.
    pub peer_value: f64,
    /// Ours over the peer's: the median of the pairs' ratios.
    pub ratio: f64,
    /// The bar, in words.
    pub goal: String,
    /// Whether the ratio meets it.
    pub met: bool,
    /// What measures it again.
    pub command: String,
}

/// What a ratio has to be.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// At most so much.
    AtMost(f64),
    /// No bar: stated, not judged.
    Stated,
}

impl Figure {
    fn new(name: &str, unit: &str, peer: &str, measured: pair::Pair, goal: Goal) -> Self {
        let (goal, met) = match goal {
            Goal::AtMost(bar) => (format!("ratio ≤ {bar}"), measured.ratio <= bar),
            Goal::Stated => ("stated".to_owned(), true),
        };
        Self {
            name: name.to_owned(),
            value: measured.ours,
            unit: unit.to_owned(),
            peer: peer.to_owned(),
            peer_value: measured.peer,
            ratio: measured.ratio,
            goal,
            met,
            command: format!("cargo xtask figures {name}"),
        }
    }
}

/// Measures the figure of this name.
type Measure = fn(&str) -> Figure;

/// Every figure by name.
const FIGURES: &[(&str, Measure)] = &[
    ("counter-add", instrumentation::counter_add),
    ("gauge-set", instrumentation::gauge_set),
    ("histogram-observe", instrumentation::histogram_observe),
];

/// Measures the figures in `names`, or all if there is none, and writes `docs/figures.json` and `docs/figures.md`.
///
/// # Errors
///
/// An unknown name, or files that cannot be written. A bar that is missed is written down, and is no error.
pub fn run(names: &[String]) -> Result<()> {
    if let Some(unknown) = names.iter().find(|name| FIGURES.iter().all(|(known, _)| known != name)) {
        let known: Vec<_> = FIGURES.iter().map(|(name, _)| *name).collect();
        bail!("no figure is called {unknown:?}; there are: {}", known.join(", "));
    }
    let file = workspace().join("docs/figures.json");
    let mut figures: BTreeMap<String, Figure> = match fs::read_to_string(&file) {
        Ok(text) => {
            let known: Vec<Figure> = serde_json::from_str(&text).with_context(|| file.display().to_string())?;
            known.into_iter().map(|figure| (figure.name.clone(), figure)).collect()
        }
        Err(_) => BTreeMap::new(),
    };
    for (name, measure) in FIGURES {
        if names.is_empty() || names.iter().any(|wanted| wanted == name) {
            println!("measuring {name}");
            figures.insert((*name).to_owned(), measure(name));
        }
    }
    figures.retain(|name, _| FIGURES.iter().any(|(known, _)| known == name));
    let figures: Vec<_> = figures.into_values().collect();
    fs::write(&file, serde_json::to_string_pretty(&figures)? + "\n")?;
    let table = table(&figures);
    print!("{table}");
    fs::write(workspace().join("docs/figures.md"), format!("{HEAD}{table}"))?;
    Ok(())
}

const HEAD: &str = "# Figures

Measured by `cargo xtask figures`, which writes this page and `figures.json`. Each is a ratio against a named peer in the same run: the two
sides alternate, the ratio is the median of the pairs' ratios. Absolute values are of the machine that ran it last.

";

fn table(figures: &[Figure]) -> String {
    let mut text = String::from(
        "| figure | ours | peer | theirs | ratio | goal | met |\n| --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for figure in figures {
        let Figure { name, value, unit, peer, peer_value, ratio, goal, met, .. } = figure;
        let met = if *met { "yes" } else { "**no**" };
        let _ = writeln!(
            text,
            "| {name} | {value:.3} {unit} | {peer} | {peer_value:.3} {unit} | {ratio:.3} | {goal} | {met} |"
        );
    }
    text
}
