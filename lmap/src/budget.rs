//! The alarm budget: moves γ slowly, by when episodes begin.

use crate::episode::Episode;
use crate::settings::AlarmBudget;

/// What γ is multiplied with at the moment, as a logarithm.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budget {
    log_factor: f64,
}

impl Budget {
    /// The factor on γ, between the bounds of the budget; 1 without one.
    pub(crate) fn factor(&self) -> f64 {
        self.log_factor.exp()
    }

    /// An episode's beginning raises γ, every row outside lowers it; an episode's length does not matter, so that a long
    /// fault is not swallowed.
    pub(crate) fn step(&mut self, budget: Option<AlarmBudget>, episode: Episode) {
        let Some(budget) = budget else { return };
        match episode {
            Episode::Began => self.log_factor = (self.log_factor + budget.step).min(budget.highest.ln()),
            Episode::On => {}
            Episode::Quiet | Episode::Ended => {
                self.log_factor = (self.log_factor - budget.step / budget.rows_per_alarm).max(budget.lowest.ln());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_episode_per_budgeted_rows_leaves_gamma_where_it_was() {
        let (mut budget, rule) = (Budget::default(), Some(AlarmBudget::one_in(100.0)));

        for _ in 0..5 {
            budget.step(rule, Episode::Began);
            (0..100).for_each(|_| budget.step(rule, Episode::Quiet));
        }

        assert!((budget.factor() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn gamma_stays_within_its_bounds() {
        let (mut budget, rule) = (Budget::default(), Some(AlarmBudget::one_in(10.0)));

        (0..100).for_each(|_| budget.step(rule, Episode::Began));
        assert!((budget.factor() - 2.0).abs() < 1e-9);
        (0..10_000).for_each(|_| budget.step(rule, Episode::Quiet));
        assert!((budget.factor() - 0.5).abs() < 1e-9);
    }
}
