//! The claims with their bars: figures of one seed, what the publication says, and what would have to come out.

use super::run::{Outcome, Policy, Shares};
use super::table::{interval, percent};

/// How a figure is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A share of traces, in percent.
    Share,
    /// A difference of shares, in percentage points.
    Points,
    /// A ratio of two shares.
    Times,
}

/// One claim about each series.
pub struct Bar {
    pub id: &'static str,
    pub claim: &'static str,
    /// The published figure, of the publication's own shop.
    pub published: &'static str,
    /// Whether the definition and the policy are the publication's.
    pub is_published: bool,
    /// The bar in words.
    pub text: &'static str,
    /// Every seed has at least this, or at most.
    limit: f64,
    is_least: bool,
    unit: Unit,
    /// The figure of one seed.
    pub value: fn(&Outcome) -> f64,
    /// Why the bar may be missed.
    pub why: &'static str,
}

const WHY_COVERS: &str = "the CPU hog and errors of one operation are missed in part: at 100 ms a row has ten requests, so that a small change takes \
                          long to show.";
const WHY_SYMPTOMATIC: &str = "by the publication's definition one in a hundred requests is symptomatic at any time, whether there is a fault or not. \
                               An LMAP judges a second of a service and lets most of these pass.";
const WHY_ORACLE: &str = "what is symptomatic outside of faults no oracle of faults can cover.";
const WHY_BEYOND: &str = "a verdict keeps all requests for what it is about, of the time of its row and the second before it, whether the fault hit \
                          them or not.";
const WHY_REMARKABLE: &str = "what a fault hit by little, or of which not all has arrived when it is dropped, looks as nine of ten requests for its operation \
                              do, which is known to 6 %.";
const WHY_TOGETHER: &str =
    "what LMAPs miss is left to the latency policy, whose quantile is learnt from what came before and known to 6 %.";

fn of(outcome: &Outcome, policy: Policy) -> Shares {
    outcome.shares.get(&policy).copied().unwrap_or_default()
}

const HEAD_20: Policy = Policy::Head(200);

/// The claims, by the publication's definition and then by ours.
pub const BARS: [Bar; 14] = [
    Bar {
        id: "published-covers",
        claim: "LMAP alone covers the symptomatic traces",
        published: "nearly total coverage",
        is_published: true,
        text: "≥ 90 %",
        limit: 0.9,
        is_least: true,
        unit: Unit::Share,
        value: |seed| of(seed, Policy::Lmap).symptomatic,
        why: WHY_SYMPTOMATIC,
    },
    Bar {
        id: "published-overhead",
        claim: "LMAP alone keeps of the traces that are not symptomatic",
        published: "5 %",
        is_published: true,
        text: "≤ 5 %",
        limit: 0.05,
        is_least: false,
        unit: Unit::Share,
        value: |seed| of(seed, Policy::Lmap).overhead,
        why: WHY_BEYOND,
    },
    Bar {
        id: "published-head-20",
        claim: "LMAP alone covers so many times the symptomatic traces that head sampling at 20 % covers",
        published: "5",
        is_published: true,
        text: "≥ 4.5",
        limit: 4.5,
        is_least: true,
        unit: Unit::Times,
        value: |seed| of(seed, Policy::Lmap).symptomatic / of(seed, HEAD_20).symptomatic,
        why: WHY_SYMPTOMATIC,
    },
    Bar {
        id: "published-gain",
        claim: "LMAP alone covers so much more of the symptomatic traces than head sampling at 20 %",
        published: "more than 70 %",
        is_published: true,
        text: "≥ 70 points",
        limit: 0.7,
        is_least: true,
        unit: Unit::Points,
        value: |seed| of(seed, Policy::Lmap).symptomatic - of(seed, HEAD_20).symptomatic,
        why: WHY_SYMPTOMATIC,
    },
    Bar {
        id: "published-oracle-covers",
        claim: "the publication's oracle, which keeps everything during faults, covers the symptomatic traces",
        published: "–",
        is_published: false,
        text: "≥ 90 %",
        limit: 0.9,
        is_least: true,
        unit: Unit::Share,
        value: |seed| of(seed, Policy::PublishedOracle).symptomatic,
        why: WHY_ORACLE,
    },
    Bar {
        id: "published-oracle-times",
        claim: "LMAP alone covers so many times the symptomatic traces that the publication's oracle covers",
        published: "–",
        is_published: false,
        text: "≥ 0.9",
        limit: 0.9,
        is_least: true,
        unit: Unit::Times,
        value: |seed| of(seed, Policy::Lmap).symptomatic / of(seed, Policy::PublishedOracle).symptomatic,
        why: WHY_COVERS,
    },
    Bar {
        id: "published-oracle-overhead",
        claim: "LMAP alone keeps so many times the traces that are not symptomatic that the publication's oracle keeps",
        published: "–",
        is_published: false,
        text: "≤ 1",
        limit: 1.0,
        is_least: false,
        unit: Unit::Times,
        value: |seed| of(seed, Policy::Lmap).overhead / of(seed, Policy::PublishedOracle).overhead,
        why: WHY_BEYOND,
    },
    Bar {
        id: "published-together-covers",
        claim: "all together cover the symptomatic traces",
        published: "–",
        is_published: false,
        text: "≥ 99 %",
        limit: 0.99,
        is_least: true,
        unit: Unit::Share,
        value: |seed| of(seed, Policy::All).symptomatic,
        why: WHY_TOGETHER,
    },
    Bar {
        id: "lmap-covers",
        claim: "LMAP alone covers the hit requests",
        published: "–",
        is_published: false,
        text: "≥ 90 %",
        limit: 0.9,
        is_least: true,
        unit: Unit::Share,
        value: |seed| of(seed, Policy::Lmap).covered,
        why: WHY_COVERS,
    },
    Bar {
        id: "lmap-beyond",
        claim: "LMAP alone keeps, beyond the hit requests, of all traces",
        published: "–",
        is_published: false,
        text: "≤ 5 %",
        limit: 0.05,
        is_least: false,
        unit: Unit::Share,
        value: |seed| of(seed, Policy::Lmap).beyond,
        why: WHY_BEYOND,
    },
    Bar {
        id: "remarkable-covers",
        claim: "LMAP alone, of what looks as usual for its operation one in twenty (`unremarkable: 0.05`), covers the hit requests",
        published: "–",
        is_published: false,
        text: "≥ 90 %",
        limit: 0.9,
        is_least: true,
        unit: Unit::Share,
        value: |seed| of(seed, Policy::Remarkable).covered,
        why: WHY_REMARKABLE,
    },
    Bar {
        id: "remarkable-beyond",
        claim: "LMAP alone, of what looks as usual for its operation one in twenty, keeps, beyond the hit requests, of all traces",
        published: "–",
        is_published: false,
        text: "≤ 5 %",
        limit: 0.05,
        is_least: false,
        unit: Unit::Share,
        value: |seed| of(seed, Policy::Remarkable).beyond,
        why: WHY_REMARKABLE,
    },
    Bar {
        id: "lmap-head-20",
        claim: "LMAP alone covers so many times the hit requests that head sampling at 20 % covers",
        published: "–",
        is_published: false,
        text: "≥ 4.5",
        limit: 4.5,
        is_least: true,
        unit: Unit::Times,
        value: |seed| of(seed, Policy::Lmap).covered / of(seed, HEAD_20).covered,
        why: WHY_COVERS,
    },
    Bar {
        id: "together-covers",
        claim: "all together cover the hit requests",
        published: "–",
        is_published: false,
        text: "≥ 99 %",
        limit: 0.99,
        is_least: true,
        unit: Unit::Share,
        value: |seed| of(seed, Policy::All).covered,
        why: WHY_TOGETHER,
    },
];

impl Bar {
    /// Whether the figure of a seed meets the bar.
    pub fn is_met(&self, value: f64) -> bool {
        if self.is_least { value >= self.limit } else { value <= self.limit }
    }

    /// The figures of all seeds in words: mean, interval, and the worst seed.
    pub fn figure(&self, values: &[f64]) -> String {
        let worst = values.iter().copied().reduce(if self.is_least { f64::min } else { f64::max }).unwrap_or(f64::NAN);
        let missed = values.iter().filter(|value| !self.is_met(**value)).count();
        let (mean, half) = interval(values);
        let figure = match self.unit {
            Unit::Share => format!("{}; worst seed {:.2} %", percent((mean, half)), 100.0 * worst),
            Unit::Points => {
                format!("{:.2} ± {:.2} points; worst seed {:.2}", 100.0 * mean, 100.0 * half, 100.0 * worst)
            }
            Unit::Times => format!("{mean:.2} ± {half:.2}; worst seed {worst:.2}"),
        };
        if missed > 0 { format!("{figure}; missed in {missed} of {}", values.len()) } else { figure }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_seed_is_the_farthest_on_the_wrong_side_of_the_bar() {
        let [covers, overhead] = [&BARS[0], &BARS[1]];

        assert_eq!(covers.figure(&[0.95, 0.85]), "90.00 ± 63.53 %; worst seed 85.00 %; missed in 1 of 2");
        assert!(covers.is_met(0.9) && !covers.is_met(0.89));
        assert!(overhead.figure(&[0.01, 0.04]).ends_with("worst seed 4.00 %"));
        assert!(overhead.is_met(0.05) && !overhead.is_met(0.06));
    }

    #[test]
    fn every_claim_has_a_name_of_its_own() {
        let mut ids: Vec<_> = BARS.iter().map(|bar| bar.id).collect();
        ids.sort_unstable();
        ids.dedup();

        assert_eq!(ids.len(), BARS.len());
    }
}
