//! A figure: two values, their ratio, and what is required of it.

use serde::{Deserialize, Serialize};

use super::pair::Pair;

/// One figure, as in `docs/figures.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// Its unique name.
    pub name: String,
    /// Median of uview's values, in `unit`.
    pub value: f64,
    /// Unit of both values.
    pub unit: String,
    /// What uview is compared with.
    pub peer: String,
    /// Median of the peer's values, in `unit`.
    pub peer_value: f64,
    /// Median of the pairs' ratios, uview over the peer.
    pub ratio: f64,
    /// The number of measured pairs; 1 if it is counted, or measured once.
    pub pairs: usize,
    /// What is required, as text.
    pub goal: String,
    /// Whether it is met; `None` where nothing is required.
    pub met: Option<bool>,
    /// Command that measures it again.
    pub command: String,
    /// Further observations; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// The required ratio of a figure.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// The ratio may be at most this.
    AtMost(f64),
    /// No requirement: the figure is only stated.
    Stated,
}

impl Figure {
    /// The figure `name` of what was measured.
    pub fn new(name: &str, unit: &str, peer: &str, measured: Pair, goal: Goal) -> Self {
        let (goal, met) = match goal {
            Goal::AtMost(bar) => (format!("ratio ≤ {bar}"), Some(measured.ratio <= bar)),
            Goal::Stated => ("stated".to_owned(), None),
        };
        Self {
            name: name.to_owned(),
            value: measured.ours,
            unit: unit.to_owned(),
            peer: peer.to_owned(),
            peer_value: measured.peer,
            ratio: measured.ratio,
            pairs: measured.pairs,
            goal,
            met,
            command: format!("cargo lab figures {name}"),
            note: String::new(),
        }
    }
    /// The same with a requirement that is not a ratio.
    pub fn judged(self, goal: &str, met: bool, note: String) -> Self {
        println!("{}: {:.3} {} ({goal}: {})", self.name, self.value, self.unit, if met { "yes" } else { "NO" });
        Self { goal: goal.to_owned(), met: Some(met), note, ..self }
    }
}
