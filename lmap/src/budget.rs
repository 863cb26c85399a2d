//! The alarm budget: adjusts γ slowly towards a rate of alarms.
//!
//! # Guarantee
//! The factor on γ always lies within the bounds of the budget. So a score above the upper bound times γ (and its
//! margin) is in alarm, whatever happened before. The factor rises only when an episode begins, by one step, and falls
//! only outside of episodes. At the budgeted rate of alarms it stays constant on average.

use crate::episode::Episode;
use crate::settings::AlarmBudget;

/// The current factor on γ, as a logarithm.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budget {
    log_factor: f64,
}

impl Budget {
    /// The factor on γ, between the bounds of the budget; 1 without one.
    pub(crate) fn factor(&self) -> f64 {
        self.log_factor.exp()
    }

    /// The beginning of an episode raises γ, every row outside lowers it. The length of an episode does not matter, so
    /// a long fault is not absorbed. Returns the factor.
    pub(crate) fn step(&mut self, budget: AlarmBudget, episode: Episode) -> f64 {
        match episode {
            Episode::Began => self.log_factor = (self.log_factor + budget.step).min(budget.highest.ln()),
            Episode::On => {}
            Episode::Quiet | Episode::Ended => {
                self.log_factor = (self.log_factor - budget.step / budget.rows_per_alarm).max(budget.lowest.ln());
            }
        }
        self.factor()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_episode_per_budgeted_rows_leaves_gamma_where_it_was() {
        let (mut budget, rule) = (Budget::default(), AlarmBudget::one_in(100.0));

        for _ in 0..5 {
            budget.step(rule, Episode::Began);
            (0..100).for_each(|_| _ = budget.step(rule, Episode::Quiet));
        }

        assert!((budget.factor() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn gamma_stays_within_its_bounds() {
        let (mut budget, rule) = (Budget::default(), AlarmBudget::one_in(10.0));

        (0..100).for_each(|_| _ = budget.step(rule, Episode::Began));
        assert!((budget.factor() - 2.0).abs() < 1e-9);
        (0..10_000).for_each(|_| _ = budget.step(rule, Episode::Quiet));
        assert!((budget.factor() - 0.5).abs() < 1e-9);
    }

    fn episode() -> impl Strategy<Value = Episode> {
        prop_oneof![
            6 => Just(Episode::Quiet),
            2 => Just(Episode::Began),
            2 => Just(Episode::On),
            1 => Just(Episode::Ended)
        ]
    }

    /// Any budget that settings allow.
    fn budget() -> impl Strategy<Value = AlarmBudget> {
        (1.0..1e6, 1e-6..10.0, 1e-3..1.0, 1.0..1e3).prop_map(|(rows_per_alarm, step, lowest, highest)| AlarmBudget {
            rows_per_alarm,
            step,
            lowest,
            highest,
        })
    }

    fn after(rule: AlarmBudget, episodes: &[Episode]) -> f64 {
        let mut budget = Budget::default();
        for episode in episodes {
            budget.step(rule, *episode);
        }
        budget.factor()
    }

    proptest! {
        #[test]
        fn whatever_happens_gamma_is_bounded_and_moves_by_no_more_than_a_step(
            rule in budget(), episodes in prop::collection::vec(episode(), 0..300),
        ) {
            let (mut budget, mut before) = (Budget::default(), 1.0);
            for episode in episodes {
                let factor = budget.step(rule, episode);
                prop_assert!(factor >= rule.lowest * (1.0 - 1e-12) && factor <= rule.highest * (1.0 + 1e-12));
                let moved: f64 = (factor / before).ln();
                prop_assert!(moved <= rule.step + 1e-9 && moved >= -rule.step / rule.rows_per_alarm - 1e-9);
                let allowed = match episode {
                    Episode::Began => moved >= -1e-12,
                    Episode::On => moved.abs() <= 1e-12,
                    Episode::Quiet | Episode::Ended => moved <= 1e-12,
                };
                prop_assert!(allowed, "{episode:?} moved γ by {moved}");
                before = factor;
            }
        }

        #[test]
        fn more_alarms_never_lower_gamma_and_a_larger_budget_never_raises_it(
            rule in budget(), episodes in prop::collection::vec(episode(), 1..200), place in any::<prop::sample::Index>(),
        ) {
            let mut more = episodes.clone();
            *place.get_mut(&mut more) = Episode::Began;
            prop_assert!(after(rule, &more) >= after(rule, &episodes) * (1.0 - 1e-12));

            let generous = AlarmBudget { rows_per_alarm: (rule.rows_per_alarm / 2.0).max(1.0), ..rule };
            prop_assert!(after(generous, &episodes) <= after(rule, &episodes) * (1.0 + 1e-12));
        }
    }
}
