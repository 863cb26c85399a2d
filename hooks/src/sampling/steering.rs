//! Keeps dense samples within their share: an allowance that is never overdrawn, and thresholds that are moved until it need not be asked.

/// By how much a row that is sent whole raises the thresholds, as a logarithm.
const STEP: f64 = 0.2;
/// Thresholds are never more than this times what the policy says, nor less than its inverse.
const FURTHEST: f64 = 1e3;

#[derive(Debug)]
pub(super) struct Steering {
    budget: Option<f64>,
    /// Samples seen and sent: exact, so that the share holds to the last sample.
    seen: u64,
    sent: u64,
    log_factor: f64,
}

impl Steering {
    pub(super) const fn new(budget: Option<f64>) -> Self {
        Self { budget, seen: 0, sent: 0, log_factor: 0.0 }
    }

    /// What θ and δ are multiplied with.
    pub(super) fn factor(&self) -> f64 {
        self.log_factor.exp()
    }

    /// How many samples may be sent now.
    pub(super) fn affordable(&self) -> u64 {
        self.budget.map_or(u64::MAX, |budget| ((self.seen as f64 * budget) as u64).saturating_sub(self.sent))
    }

    pub(super) const fn see(&mut self, samples: u64) {
        self.seen += samples;
    }

    pub(super) const fn spend(&mut self, samples: u64) {
        self.sent += samples;
    }

    /// A row of `of` samples is over, of which the policy wanted `wanted`. The factor rests where it wants the budgeted share on average
    /// (Robbins, Monro 1951).
    pub(super) fn step(&mut self, wanted: u64, of: u64) {
        let Some(budget) = self.budget else { return };
        if of == 0 {
            return;
        }
        let share = wanted as f64 / of as f64;
        self.log_factor = (self.log_factor + STEP * (share - budget)).clamp(-FURTHEST.ln(), FURTHEST.ln());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_factor_rests_where_the_budgeted_share_is_wanted() {
        let mut steering = Steering::new(Some(0.1));

        // Thresholds of a uniform score: the share above θ is 1 − θ.
        let (mut state, mut wanted) = (1_u64, 0);
        for row in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let score = (state >> 40) as f64 / f64::from(1 << 24);
            let above = u64::from(score > 0.2 * steering.factor());
            wanted += if row >= 1_000 { above } else { 0 };
            steering.step(above * 10, 10);
        }

        let share = wanted as f64 / 19_000.0;
        assert!((share - 0.1).abs() < 0.01, "{share}");
    }

    #[test]
    fn without_a_budget_everything_is_affordable_and_nothing_is_steered() {
        let mut steering = Steering::new(None);
        steering.step(10, 10);

        assert_eq!(steering.affordable(), u64::MAX);
        assert_eq!(steering.factor(), 1.0);
    }
}
