//! What is sent densely, and how much of it.

use wire::time::Nanos;

/// Which rows, or columns of them, are sent densely.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SamplingPolicy {
    /// Every row. For comparison.
    Every,
    /// Columns that changed since they were sent last. For comparison.
    OnChange,
    /// Columns that moved by more than `delta` standard deviations since they were sent last.
    DeadBand {
        /// δ in standard deviations, at least 0.
        delta: f64,
    },
    /// The whole row, while the service's score is above the share `theta` of γ (μView's sampler).
    Score {
        /// θ as a share of γ, at least 0.
        theta: f64,
    },
    /// The whole row by its score, else the columns that moved. Sends as many anomalous rows as the score, and loses as
    /// little as the dead band (`tests/recordings.rs`).
    Either {
        /// θ as a share of γ, at least 0.
        theta: f64,
        /// δ in standard deviations, at least 0.
        delta: f64,
    },
}

impl SamplingPolicy {
    /// θ, if the policy uses the score.
    #[must_use]
    pub const fn theta(self) -> Option<f64> {
        match self {
            Self::Score { theta } | Self::Either { theta, .. } => Some(theta),
            _ => None,
        }
    }

    /// δ, if the policy uses the movement of columns; 0 for any change.
    #[must_use]
    pub const fn delta(self) -> Option<f64> {
        match self {
            Self::OnChange => Some(0.0),
            Self::DeadBand { delta } | Self::Either { delta, .. } => Some(delta),
            Self::Every | Self::Score { .. } => None,
        }
    }

    /// Its name as a label value.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Every => "every",
            Self::OnChange => "on_change",
            Self::DeadBand { .. } => "dead_band",
            Self::Score { .. } => "score",
            Self::Either { .. } => "either",
        }
    }
}

/// How one service is sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingRule {
    /// Interval of the baseline. 30 s by default, 1 ms to 60 s: a range query over five minutes needs a few samples.
    pub baseline: Nanos,
    /// What is sent densely.
    pub policy: SamplingPolicy,
    /// Largest share of dense samples among all samples since the beginning, above 0 and at most 1. θ and δ are steered
    /// towards it from their configured values; if both are used, towards half of it each.
    pub budget: Option<f64>,
    /// Rows that are still sent after the score fell below θ. 5 by default.
    pub hold_rows: u32,
    /// Rows from before the score rose above θ that are sent as well. 30 by default, at most 10,000.
    pub pre_trigger_rows: usize,
}

impl Default for SamplingRule {
    /// Score above γ or one standard deviation, steered to 5 %.
    fn default() -> Self {
        Self {
            baseline: Nanos::from_secs(30),
            policy: SamplingPolicy::Either { theta: 1.0, delta: 1.0 },
            budget: Some(0.05),
            hold_rows: 5,
            pre_trigger_rows: 30,
        }
    }
}

/// An invalid rule.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The baseline's interval is out of range.
    #[error("a baseline interval of {0} is not between 1 ms and 60 s")]
    Baseline(Nanos),
    /// The budget is no share above 0.
    #[error("a budget of {0} of all samples: it must be above 0 and at most 1")]
    Budget(f64),
    /// θ or δ is negative, or not a number.
    #[error("a threshold of {0}: it must be finite and at least 0")]
    Threshold(f64),
    /// Too many rows before a trigger.
    #[error("{0} rows before a trigger are more than 10,000")]
    PreTrigger(usize),
}

impl SamplingRule {
    /// The longest baseline interval.
    pub const LONGEST_BASELINE: Nanos = Nanos::from_secs(60);
    /// The most rows before a trigger.
    pub const MAX_PRE_TRIGGER: usize = 10_000;

    /// Checks all ranges.
    ///
    /// # Errors
    ///
    /// [`RuleError`] for what is out of range.
    pub fn check(&self) -> Result<(), RuleError> {
        if !(Nanos::from_millis(1) <= self.baseline && self.baseline <= Self::LONGEST_BASELINE) {
            return Err(RuleError::Baseline(self.baseline));
        }
        if let Some(budget) = self.budget.filter(|budget| !(0.0 < *budget && *budget <= 1.0)) {
            return Err(RuleError::Budget(budget));
        }
        let thresholds = [self.policy.theta(), self.policy.delta()];
        if let Some(wrong) = thresholds.into_iter().flatten().find(|value| !(value.is_finite() && *value >= 0.0)) {
            return Err(RuleError::Threshold(wrong));
        }
        if self.pre_trigger_rows > Self::MAX_PRE_TRIGGER {
            return Err(RuleError::PreTrigger(self.pre_trigger_rows));
        }
        Ok(())
    }
}
