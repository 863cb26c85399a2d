//! Studies of the LMAP against itself: the effect of each part of the pipeline, of the number of training rows, and of
//! the episode rule. Pure.

use std::fmt;

use lmap::{AlarmBudget, EpisodeRule, LevelRule, ScoreForm, Settings, Threshold};

use crate::candidate::{Candidate, Lmap, TrainError};
use crate::choice::RowSettings;
use crate::episodes::Episodes;
use crate::protocol::Outcome;
use crate::unit::Unit;

/// One change of the settings.
pub struct Variant {
    /// The change, in words.
    pub name: String,
    change: Box<dyn Fn(&mut Settings) + Send + Sync>,
    /// Train only on this many of the last training rows; `None`: on all.
    pub rows: Option<usize>,
}

impl fmt::Debug for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Variant").field("name", &self.name).field("rows", &self.rows).finish_non_exhaustive()
    }
}

/// The figures of a variant on one unit.
#[derive(Clone, Debug, PartialEq)]
pub struct VariantOutcome {
    /// Figures of scores, row by row.
    pub outcome: Outcome,
    /// Figures of episodes.
    pub episodes: Episodes,
}

impl Variant {
    fn new(name: &str, change: impl Fn(&mut Settings) + Send + Sync + 'static) -> Self {
        Self { name: name.to_owned(), change: Box::new(change), rows: None }
    }

    /// `base` with the change.
    #[must_use]
    pub fn settings(&self, base: &Settings) -> Settings {
        let mut settings = base.clone();
        (self.change)(&mut settings);
        settings
    }

    /// Trains with the change to `base`, and evaluates; `None` if `unit` has fewer than the required rows.
    ///
    /// # Errors
    ///
    /// [`TrainError`] if the unit cannot be trained on.
    pub fn run(&self, unit: &Unit, base: &RowSettings) -> Result<Option<VariantOutcome>, TrainError> {
        let cut = match self.rows {
            Some(rows) if unit.train.len() < rows => return Ok(None),
            Some(rows) => Some(unit.with_last(rows)),
            None => None,
        };
        let unit = cut.as_ref().unwrap_or(unit);
        let settings = base.changed(&self.change);
        let train = |settings: &Settings| Ok(Box::new(Lmap::train(unit, settings)?) as Box<dyn Candidate>);
        let course = settings.run(unit, train)?;
        let quiet = settings.first().episode.quiet as usize;
        Ok(Some(VariantOutcome { outcome: Outcome::of(unit, &course), episodes: Episodes::of(unit, &course, quiet) }))
    }
}

/// No change, then each part left out or changed. Some are no change of the default, but of settings chosen otherwise.
#[must_use]
pub fn ablation() -> Vec<Variant> {
    vec![
        Variant::new("**no change**", |_| {}),
        Variant::new("no levels", |s| s.levels = None),
        Variant::new("levels", |s| s.levels = Some(LevelRule::default())),
        Variant::new("constants that move: not counted", |s| (s.constant_weight, s.constant_share) = (0.0, 0.0)),
        Variant::new("constants that move: 5 deviations, whatever γ is", |s| {
            (s.constant_weight, s.constant_share) = (5.0, 0.0);
        }),
        Variant::new("constants that move: γ", |s| (s.constant_weight, s.constant_share) = (5.0, 1.0)),
        Variant::new("no smoothing", |s| s.smoothing_span = 1.0),
        Variant::new("smoothing over 3 rows", |s| s.smoothing_span = 3.0),
        Variant::new("smoothing over 7 rows", |s| s.smoothing_span = 7.0),
        Variant::new("γ in sample", |s| s.threshold = Threshold::InSample),
        Variant::new("γ crosswise", |s| s.threshold = Threshold::Crosswise),
        Variant::new("γ from a held-out tail", |s| s.threshold = Threshold::HeldOutTail),
        Variant::new("γ knows nothing of unseen rows", |s| s.held_out_every = 0),
        Variant::new("soft clip at 5", |s| s.clip = 5.0),
        Variant::new("soft clip at 20", |s| s.clip = 20.0),
        Variant::new("soft clip at 50", |s| s.clip = 50.0),
        Variant::new("no clip", |s| s.clip = 1e12),
        Variant::new("no floor of deviations", |s| s.deviation_floor = 0.0),
        Variant::new("floor of deviations .05", |s| s.deviation_floor = 0.05),
        Variant::new("constant: nothing that moves", |s| s.constant_below = 0.0),
        Variant::new("constant: what moves by half a thousandth", |s| s.constant_below = 0.0005),
        Variant::new("constant: what moves by a thousandth", |s| s.constant_below = 0.001),
        Variant::new("no floor of residuals", |s| s.residual_floor = 1e-6),
        Variant::new("floor of residuals .05", |s| s.residual_floor = 0.05),
        Variant::new("floor of residuals .2", |s| s.residual_floor = 0.2),
        Variant::new("k at 90 % of the variance", |s| s.variance_share = 0.9),
        Variant::new("k at 95 % of the variance", |s| s.variance_share = 0.95),
        Variant::new("every row learnt", |s| s.stride = 1),
        Variant::new("every 5th row learnt", |s| s.stride = 5),
        Variant::new("every 50th row learnt", |s| s.stride = 50),
        Variant::new("nothing learnt", |s| s.stride = 1_000_000_000),
        Variant::new("η 0", |s| s.learning_rate = 0.0),
        Variant::new("η .1", |s| s.learning_rate = 0.1),
        Variant::new("V and T stay when the basis turns", |s| s.renew_variances = false),
        Variant::new("variances grow without a limit", |s| s.variance_growth = f64::MAX),
        Variant::new("variances grow by 2 % at the most", |s| s.variance_growth = 1.02),
        Variant::new("variances grow by 10 % at the most", |s| s.variance_growth = 1.1),
        Variant::new("no growth", |s| s.growth_rows = 0),
        Variant::new("episodes: no cap on single rows", |s| s.episode_cap = f64::MAX),
        Variant::new("episodes: margin 1.5, the NIC agent's at 100 ms (else 1)", |s| s.episode_margin = 1.5),
        Variant::new("episodes: another one within, by what is new; the NIC agent's", |s| s.novelty = true),
        Variant::new("paper, absolute", |s| *s = Settings::paper(ScoreForm::PaperAbsolute)),
        Variant::new("paper, relative", |s| *s = Settings::paper(ScoreForm::PaperRelative)),
    ]
}

/// Increasing numbers of training rows, the last ones before the test. Every row is learnt, so that only training
/// differs. γ is crosswise, which is for few rows; then the same in sample, and with the variances of training kept.
#[must_use]
pub fn warm_up() -> Vec<Variant> {
    let curve = |what: &str, threshold: Threshold, renew: bool| {
        let rows = [30, 60, 120, 300, 600, 1000, 2000].map(Some).into_iter().chain([None]);
        let variant = |rows: Option<usize>| {
            let name = rows.map_or_else(|| format!("all{what}"), |rows| format!("{rows}{what}"));
            let change = move |settings: &mut Settings| {
                (settings.stride, settings.threshold, settings.renew_variances) = (1, threshold, renew);
            };
            Variant { rows, ..Variant::new(&name, change) }
        };
        rows.map(variant).collect::<Vec<_>>()
    };
    let curves = [
        curve("", Threshold::Crosswise, true),
        curve(", γ in sample", Threshold::InSample, true),
        curve(", V and T stay", Threshold::Crosswise, false),
    ];
    curves.into_iter().flatten().collect()
}

/// Episode rules, with and without a cap on single rows, and alarm budgets.
#[must_use]
pub fn episodes() -> Vec<Variant> {
    let rule = |need, of, cap, budget: Option<f64>, name: &str| {
        Variant::new(name, move |settings| {
            settings.episode = EpisodeRule { need, of, ..EpisodeRule::default() };
            settings.episode_cap = cap;
            settings.budget = budget.map(AlarmBudget::one_in);
        })
    };
    let none = f64::MAX;
    vec![
        rule(1, 1, none, None, "1 row"),
        rule(2, 3, none, None, "2 of 3"),
        rule(3, 5, none, None, "3 of 5"),
        rule(2, 3, none, Some(2_000.0), "2 of 3, budget 1 in 2,000 rows"),
        rule(2, 3, none, Some(500.0), "2 of 3, budget 1 in 500 rows"),
        rule(1, 1, 2.0, None, "1 row, no row counts for more than 2γ"),
        rule(2, 3, 2.0, None, "**2 of 3, no row counts for more than 2γ** (default)"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_has_valid_settings_and_a_name_of_its_own() {
        let base = Settings::default();
        for variants in [ablation(), warm_up(), episodes()] {
            for (place, variant) in variants.iter().enumerate() {
                assert!(variant.settings(&base).checked().is_ok(), "{}", variant.name);
                assert!(variants[..place].iter().all(|other| other.name != variant.name), "{}", variant.name);
            }
        }
        assert_eq!(ablation()[0].settings(&base), base);
    }
}
