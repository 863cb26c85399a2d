//! What this agent may keep in memory and what it keeps of it, for the host agent, whose page shows it.

use std::collections::BTreeMap;

use agent_runtime::budget::{Budget, Load, Metered, Unit, Use, UsedBound};
use wire::proto::control as proto;

/// The rows of the agent's budget, and what its metrics count of them.
#[derive(Debug)]
pub(crate) struct MemoryRows {
    budget: Budget,
    metered: [Metered; 7],
}

impl MemoryRows {
    /// The rows of `budget`. `regions` can be attached.
    pub(crate) fn new(budget: Budget, regions: usize) -> Self {
        let row = |begin: &str| budget.bounds.iter().find(|bound| bound.what.starts_with(begin));
        // One metric counts both.
        let judged: u64 = [DETECTORS, ROWS].into_iter().filter_map(row).map(|bound| bound.bytes).sum();
        let bytes = |row, what, metrics: &'static [&'static str], most| {
            let unit = Unit::Bytes;
            Metered { row, what, metrics, most, unit }
        };
        let metered = [
            bytes(DETECTORS, "with rows for subscribers", &["lmap_bytes"], Some(judged)),
            bytes("descriptions of columns", "columns", &["column_bytes"], None),
            bytes("buffers of regions", "buffers", &["buffer_bytes"], None),
            Metered {
                row: "attached regions",
                what: "regions",
                metrics: &["attached_regions"],
                most: Some(regions as u64),
                unit: Unit::Number,
            },
            bytes("columns of LMAPs that are fetched faster", "columns", &["fast_bytes"], None),
            bytes("detectors of services without", "detectors", &["retained_detector_bytes"], None),
            bytes("models of services that are gone", "models", &["retained_model_bytes"], None),
        ];
        Self { budget, metered }
    }

    /// The rows that are on, with `values` of the agent's metrics.
    pub(crate) fn account(&self, values: &BTreeMap<String, u64>) -> proto::MemoryAccount {
        let Load { services, columns } = self.budget.load.unwrap_or_default();
        let rows = self.budget.used(&[], &self.metered, values).into_iter();
        let resident = values.get(&format!("{}_resident_bytes", self.budget.prefix));
        proto::MemoryAccount {
            services,
            columns,
            rows: rows.filter(|of| of.bound.bytes > 0).map(row).collect(),
            resident_bytes: resident.copied().unwrap_or_default(),
        }
    }
}

const DETECTORS: &str = "detectors of services that are running";
const ROWS: &str = "rows for subscribers";

fn row(UsedBound { bound, uses, metric }: UsedBound<'_>) -> proto::MemoryRow {
    let (metric, value) = metric.unwrap_or_default();
    let of = |Use { what, used, most, unit }| proto::MemoryUse {
        what: what.to_owned(),
        used,
        most,
        in_bytes: unit == Unit::Bytes,
    };
    proto::MemoryRow {
        what: bound.what.to_owned(),
        bytes: bound.bytes,
        full: bound.full.to_owned(),
        uses: uses.into_iter().map(of).collect(),
        metric,
        value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::budget;
    use crate::config::Config;

    fn rows() -> MemoryRows {
        MemoryRows::new(budget(&Config::default(), Load::default()), 10)
    }

    #[test]
    fn what_is_counted_belongs_to_one_row_of_the_budget_each() {
        let MemoryRows { budget, metered } = rows();

        for row in metered.iter().map(|metered| metered.row).chain([ROWS]) {
            let fitting = budget.bounds.iter().filter(|bound| bound.what.starts_with(row)).count();
            assert_eq!(fitting, 1, "{row}");
        }
    }

    #[test]
    fn an_account_has_the_rows_of_the_budget_with_what_is_used_and_what_says_that_it_is_full() {
        let rows = rows();
        let values = [("lmap_bytes", 5_000), ("attached_regions", 3), ("evicted_models", 2), ("resident_bytes", 9)];
        let values: BTreeMap<_, _> = values.map(|(name, value)| (format!("uview_nic_{name}"), value)).into();

        let account = rows.account(&values);

        let total: u64 = account.rows.iter().map(|row| row.bytes).sum();
        assert_eq!((total, account.resident_bytes), (rows.budget.total(), 9));
        assert_eq!((account.services, account.columns), (600, 100));
        let row = |begin: &str| account.rows.iter().find(|row| row.what.starts_with(begin)).unwrap();
        let used = |begin: &str| row(begin).uses.iter().map(|of| (of.used, of.most, of.in_bytes)).collect::<Vec<_>>();
        let judged = row(DETECTORS).bytes + row(ROWS).bytes;
        assert_eq!(used(DETECTORS), [(5_000, judged, true)]);
        assert_eq!(used("attached regions"), [(3, 10, false)]);
        assert_eq!(used("descriptions"), [], "its metric is not there");
        let models = row("models of services that are gone");
        assert_eq!((models.metric.as_str(), models.value), ("uview_nic_evicted_models", 2));
        assert_eq!(row("a fit in progress").metric, "", "nothing is lost");
        let off = |row: &proto::MemoryRow| row.what.starts_with("requests of other NIC agents");
        assert!(!account.rows.iter().any(off), "what is off is not there");
    }
}
