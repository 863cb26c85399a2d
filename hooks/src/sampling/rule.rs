//! What is sent densely, and how much of it.

use wire::time::Nanos;

/// When a row, or a column of it, is sent densely.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SamplingPolicy {
    /// Always. For comparison.
    Every,
    /// A column that is not what was sent of it last. For comparison.
    OnChange,
    /// A column that moved by more than this many of its deviations since it was sent last.
    DeadBand {
        /// δ.
        delta: f64,
    },
    /// The whole row, while the service's score is above this share of γ (μView's sampler).
    Score {
        /// θ.
        theta: f64,
    },
    /// The whole row by its score, else the columns that moved: sends anomalies as the score does, and loses as little as the dead band
    /// (`tests/recordings.rs`).
    Either {
        /// θ.
        theta: f64,
        /// δ.
        delta: f64,
    },
}

impl SamplingPolicy {
    /// θ, where the score counts.
    #[must_use]
    pub const fn theta(self) -> Option<f64> {
        match self {
            Self::Score { theta } | Self::Either { theta, .. } => Some(theta),
            _ => None,
        }
    }

    /// δ, where a column's own movement counts; 0 for any change.
    #[must_use]
    pub const fn delta(self) -> Option<f64> {
        match self {
            Self::OnChange => Some(0.0),
            Self::DeadBand { delta } | Self::Either { delta, .. } => Some(delta),
            Self::Every | Self::Score { .. } => None,
        }
    }

    /// As a label of a metric.
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
    /// Between two samples of the baseline. 30 s by default, 60 s at most: a range query over five minutes needs some.
    pub baseline: Nanos,
    /// What is dense.
    pub policy: SamplingPolicy,
    /// The share of all samples that may be dense, at any time since the beginning. θ and δ are steered towards it, from what the policy says;
    /// where both count, towards half of it each.
    pub budget: Option<f64>,
    /// Rows that are still sent after the score fell below θ. 5 by default.
    pub hold_rows: u32,
    /// Rows from before the score rose above θ that are sent as well. 30 by default.
    pub pre_trigger_rows: usize,
}

impl Default for SamplingRule {
    /// Either, at γ and at one deviation, steered to 5 %.
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

/// A rule that nothing can be sampled by.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// Range queries would find nothing.
    #[error("a baseline of {0} is not between 1 ms and 60 s")]
    Baseline(Nanos),
    /// Not a share.
    #[error("a budget of {0} of all samples is not above 0 and at most 1")]
    Budget(f64),
    /// Not a threshold.
    #[error("a threshold of {0} is not finite, or below 0")]
    Threshold(f64),
    /// More rows than a service has memory for.
    #[error("{0} rows before a trigger are more than 10,000")]
    PreTrigger(usize),
}

impl SamplingRule {
    /// The longest baseline interval.
    pub const LONGEST_BASELINE: Nanos = Nanos::from_secs(60);
    /// The most rows before a trigger.
    pub const MOST_PRE_TRIGGER: usize = 10_000;

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
        if self.pre_trigger_rows > Self::MOST_PRE_TRIGGER {
            return Err(RuleError::PreTrigger(self.pre_trigger_rows));
        }
        Ok(())
    }
}
