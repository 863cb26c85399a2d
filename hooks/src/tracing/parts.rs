//! What a row of an LMAP says by itself, and about which operation: a smoothed score says neither.

use std::collections::BTreeMap;

use wire::control::RowScore;
use wire::id::MetricId;
use wire::metric::Series;

use crate::paths::OTHER;

/// The label with which a series says which operation it counts.
const OPERATION: &str = "span.name";
/// Operations of which parts are kept: as many as a verdict tells of, for some verdicts of one second.
const MOST: usize = 256;

/// How far a service was out of the ordinary by its newest rows alone, not smoothed, by what that is about. A part is the score over γ that a row would
/// have if nothing but the columns of this part differed from what was expected: squares of all parts add up to the square of the row's score over γ.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parts {
    /// Columns about no one operation: processor time, memory.
    pub whole: f64,
    /// Columns about one operation of the service, by its name.
    pub operations: BTreeMap<Box<str>, f64>,
}

impl Parts {
    /// What `row` says of its service at the threshold `gamma`; `series` names metrics. A metric counts for the operation that its label `span.name`
    /// names; without one, or without a name, for all. If there were too many metrics to tell of them all, the rest counts for all.
    #[must_use]
    pub fn of<'a>(row: &RowScore, gamma: f64, series: impl Fn(MetricId) -> Option<&'a Series>) -> Self {
        let (mut told, mut whole) = (0.0, 0.0);
        let mut operations: BTreeMap<Box<str>, f64> = BTreeMap::new();
        for share in &row.shares {
            told += share.share;
            let operation = series(share.metric).and_then(|series| series.labels.get(OPERATION));
            match operation {
                Some(operation) => *operations.entry(operation.into()).or_default() += share.share,
                None => whole += share.share,
            }
        }
        if row.cut {
            whole += (1.0 - told).max(0.0);
        }
        let part = |share: f64| row.score / gamma * share.sqrt();
        let operations = operations.into_iter().map(|(name, share)| (name, part(share))).collect();
        Self { whole: part(whole), operations }
    }

    /// What concerns requests for `operations`: their columns, those that are about no one operation, and those of operations that are not told apart.
    #[must_use]
    pub fn about<'a>(&self, operations: impl Iterator<Item = &'a str>) -> f64 {
        let of = |name: &str| self.operations.get(name).map_or(0.0, |part| part * part);
        let all = operations.filter(|name| *name != OTHER).map(of).sum::<f64>();
        (self.whole * self.whole + of(OTHER) + all).sqrt()
    }

    /// Adds what another row says: of each part the larger one counts. What is beyond 256 operations counts for all.
    pub fn join(&mut self, other: &Self) {
        self.whole = self.whole.max(other.whole);
        for (operation, part) in &other.operations {
            if let Some(known) = self.operations.get_mut(operation) {
                *known = known.max(*part);
            } else if self.operations.len() < MOST {
                self.operations.insert(operation.clone(), *part);
            } else {
                self.whole = self.whole.max(*part);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(whole: f64, operations: &[(&str, f64)]) -> Parts {
        let operations = operations.iter().map(|(name, part)| ((*name).into(), *part)).collect();
        Parts { whole, operations }
    }

    #[test]
    fn a_request_is_concerned_by_its_operations_and_by_what_is_about_all() {
        let row = parts(3.0, &[("Charge", 4.0), ("History", 0.5), (OTHER, 12.0)]);

        assert_eq!(row.about(["Charge"].into_iter()), 13.0);
        assert_eq!(row.about([OTHER, "unheard of"].into_iter()), 153.0_f64.sqrt());
        assert_eq!(parts(0.0, &[("Charge", 4.0)]).about(["History"].into_iter()), 0.0);
        assert_eq!(parts(0.0, &[("a", 3.0), ("b", 4.0)]).about(["a", "b"].into_iter()), 5.0);
    }

    #[test]
    fn of_several_rows_the_furthest_counts_and_what_is_too_much_counts_for_all() {
        let mut rows = parts(0.5, &[("a", 1.0), ("b", 2.0)]);
        rows.join(&parts(0.25, &[("a", 3.0), ("c", 0.75)]));
        assert_eq!(rows, parts(0.5, &[("a", 3.0), ("b", 2.0), ("c", 0.75)]));

        for number in 0..2 * MOST {
            rows.join(&parts(0.0, &[(&number.to_string(), 9.0)]));
        }
        assert_eq!((rows.operations.len(), rows.whole), (MOST, 9.0));
    }
}
