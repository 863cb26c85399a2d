//! One row's own score, split by operation. A smoothed score shows neither the row nor the operation.

use std::collections::BTreeMap;

use wire::control::RowScore;
use wire::id::MetricId;
use wire::metric::Series;

use crate::paths::OTHER;

/// Label that names the operation which a series measures.
const OPERATION: &str = "span.name";
/// Operations for which scores are kept: as many as a few verdicts of one second name.
const MAX: usize = 256;

/// How far the newest rows of a service alone are out of the ordinary, not smoothed, by what their columns measure. A
/// part is the score over γ that a row would have if only the columns of this part differed from what was expected. The
/// squares of all parts add up to the square of the row's score over γ.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScoreBreakdown {
    /// Columns that concern no single operation: processor time, memory.
    pub service_wide: f64,
    /// Columns that concern one operation of the service, by its name.
    pub operations: BTreeMap<Box<str>, f64>,
}

impl ScoreBreakdown {
    /// The breakdown of `row` at the threshold `gamma`; `series` resolves metrics. A metric counts for the operation in
    /// its label `span.name`, else for the whole service. If the row names only some of its metrics, the rest counts
    /// for the whole service.
    #[must_use]
    pub fn of<'a>(row: &RowScore, gamma: f64, series: impl Fn(MetricId) -> Option<&'a Series>) -> Self {
        let (mut named, mut service_wide) = (0.0, 0.0);
        let mut operations: BTreeMap<Box<str>, f64> = BTreeMap::new();
        for share in &row.shares {
            named += share.share;
            let operation = series(share.metric).and_then(|series| series.labels.get(OPERATION));
            match operation {
                Some(operation) => *operations.entry(operation.into()).or_default() += share.share,
                None => service_wide += share.share,
            }
        }
        if row.cut {
            service_wide += (1.0 - named).max(0.0);
        }
        let part = |share: f64| row.score / gamma * share.sqrt();
        let operations = operations.into_iter().map(|(name, share)| (name, part(share))).collect();
        Self { service_wide: part(service_wide), operations }
    }

    /// The score that concerns requests for `operations`: their columns, service-wide ones, and those of operations
    /// that are not told apart.
    #[must_use]
    pub fn about<'a>(&self, operations: impl Iterator<Item = &'a str>) -> f64 {
        let of = |name: &str| self.operations.get(name).map_or(0.0, |part| part * part);
        let all = operations.filter(|name| *name != OTHER).map(of).sum::<f64>();
        (self.service_wide * self.service_wide + of(OTHER) + all).sqrt()
    }

    /// Merges another row: of each part the larger one counts. Operations beyond 256 count for the whole service.
    pub fn join(&mut self, other: &Self) {
        self.service_wide = self.service_wide.max(other.service_wide);
        for (operation, part) in &other.operations {
            if let Some(known) = self.operations.get_mut(operation) {
                *known = known.max(*part);
            } else if self.operations.len() < MAX {
                self.operations.insert(operation.clone(), *part);
            } else {
                self.service_wide = self.service_wide.max(*part);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breakdown(service_wide: f64, operations: &[(&str, f64)]) -> ScoreBreakdown {
        let operations = operations.iter().map(|(name, part)| ((*name).into(), *part)).collect();
        ScoreBreakdown { service_wide, operations }
    }

    #[test]
    fn a_request_is_scored_by_its_operations_and_by_service_wide_columns() {
        let row = breakdown(3.0, &[("Charge", 4.0), ("History", 0.5), (OTHER, 12.0)]);

        assert_eq!(row.about(["Charge"].into_iter()), 13.0);
        assert_eq!(row.about([OTHER, "unheard of"].into_iter()), 153.0_f64.sqrt());
        assert_eq!(breakdown(0.0, &[("Charge", 4.0)]).about(["History"].into_iter()), 0.0);
        assert_eq!(breakdown(0.0, &[("a", 3.0), ("b", 4.0)]).about(["a", "b"].into_iter()), 5.0);
    }

    #[test]
    fn of_several_rows_the_largest_part_counts_and_excess_operations_count_for_the_service() {
        let mut rows = breakdown(0.5, &[("a", 1.0), ("b", 2.0)]);
        rows.join(&breakdown(0.25, &[("a", 3.0), ("c", 0.75)]));
        assert_eq!(rows, breakdown(0.5, &[("a", 3.0), ("b", 2.0), ("c", 0.75)]));

        for number in 0..2 * MAX {
            rows.join(&breakdown(0.0, &[(&number.to_string(), 9.0)]));
        }
        assert_eq!((rows.operations.len(), rows.service_wide), (MAX, 9.0));
    }
}
