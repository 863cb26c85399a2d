//! The digest of a summary period of one LMAP.

use wire::control::GroupShare;
use wire::time::Nanos;

use crate::detector_slot::Reason;

/// Number of parts of a period.
const PARTS: usize = 16;

/// The largest score of each part of a period, and the reasons of the largest score over γ.
#[derive(Debug, Default)]
pub(crate) struct Digest {
    began: Nanos,
    period: Nanos,
    scores: [Option<f32>; PARTS],
    worst: f64,
    worst_at: Nanos,
    reasons: Vec<Reason>,
    groups: Vec<GroupShare>,
}

impl Digest {
    /// Starts a new period at `now`, of length `period`.
    pub(crate) fn restart(&mut self, now: Nanos, period: Nanos) {
        (self.began, self.period) = (now, period);
        self.scores = [None; PARTS];
        self.worst = 0.0;
        self.reasons.clear();
        self.groups.clear();
    }

    /// Adds a score. Never allocates.
    pub(crate) fn score(&mut self, now: Nanos, score: f64) {
        let since = now.since(self.began).unwrap_or(Nanos::ZERO).0;
        let part = (since.saturating_mul(PARTS as u64) / self.period.0.max(1)).min(PARTS as u64 - 1);
        let score = score.min(f64::from(f32::MAX)) as f32;
        if let Some(most) = self.scores.get_mut(part as usize) {
            *most = Some(most.map_or(score, |most| most.max(score)));
        }
    }

    /// Stores the reasons and group shares of a row over γ if its score is the largest so far.
    pub(crate) fn over(&mut self, now: Nanos, score: f64, reasons: &[Reason], groups: &[GroupShare]) {
        if score >= self.worst {
            (self.worst, self.worst_at) = (score, now);
            self.reasons.clear();
            self.reasons.extend_from_slice(reasons);
            self.groups.clear();
            self.groups.extend_from_slice(groups);
        }
    }

    /// The largest score of each part with a score, oldest first.
    pub(crate) fn scores(&self) -> Vec<f32> {
        self.scores.iter().flatten().copied().collect()
    }

    /// The reasons of the row with the largest score over γ; empty if there was none.
    pub(crate) fn reasons(&self) -> &[Reason] {
        &self.reasons
    }

    /// The group shares of the row with the largest score over γ; empty if there was none.
    pub(crate) fn groups(&self) -> &[GroupShare] {
        &self.groups
    }

    /// The age of the row with the largest score over γ.
    pub(crate) fn age(&self, now: Nanos) -> Nanos {
        now.since(self.worst_at).unwrap_or(Nanos::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use wire::metric::Group;

    use super::*;

    #[test]
    fn a_second_keeps_the_largest_score_of_each_part() {
        let mut digest = Digest::default();
        digest.restart(Nanos::from_secs(5), Nanos::from_secs(1));

        for milli in 0..1000 {
            let score = if milli == 437 { 9.0 } else { 1.0 };
            digest.score(Nanos::from_millis(5000 + milli), score);
        }

        let scores = digest.scores();
        assert_eq!(scores.len(), 16);
        assert_eq!(scores.iter().position(|score| *score == 9.0), Some(437 * 16 / 1000));
    }

    #[test]
    fn parts_without_a_score_are_left_out_and_late_scores_belong_to_the_last() {
        let mut digest = Digest::default();
        digest.restart(Nanos::ZERO, Nanos::from_secs(1));

        digest.score(Nanos::from_millis(100), 1.0);
        digest.score(Nanos::from_millis(1900), f64::MAX);

        assert_eq!(digest.scores(), [1.0, f32::MAX]);
    }

    #[test]
    fn the_worst_rows_reasons_are_kept() {
        let reason = |column| Reason { column, share: 1.0, seen: 0.0, expected: 0.0, since_rows: 0, replica: None };
        let mut digest = Digest::default();

        let share = |share| GroupShare { group: Group::Cpu, share };

        digest.over(Nanos::from_millis(100), 5.0, &[reason(1)], &[share(0.1)]);
        digest.over(Nanos::from_millis(200), 9.0, &[reason(2)], &[share(0.2)]);
        digest.over(Nanos::from_millis(300), 7.0, &[reason(3)], &[share(0.3)]);

        assert_eq!(digest.reasons(), [reason(2)]);
        assert_eq!(digest.groups(), [share(0.2)]);
        assert_eq!(digest.age(Nanos::from_millis(900)), Nanos::from_millis(700));
    }
}
