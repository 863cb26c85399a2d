//! Rows of a budget, with what the agent counts of each: what it keeps of what it may.

use std::collections::BTreeMap;

use super::{Bound, Budget};

/// What an amount is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of memory.
    Bytes,
    /// Things, such as series.
    Number,
}

/// What metrics of the agent count of a row of its budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metered {
    /// How the row begins.
    pub row: &'static str,
    /// What is counted, such as "regions".
    pub what: &'static str,
    /// Names of the metrics without the agent's prefix. Their values are added.
    pub metrics: &'static [&'static str],
    /// What there may be; `None`: as many bytes as the row has.
    pub most: Option<u64>,
    /// What the values are of.
    pub unit: Unit,
}

impl Metered {
    /// What is counted by now, if a `value` of one of the metrics is known.
    fn counted(&self, value: &impl Fn(&str) -> Option<u64>) -> Option<UsageCount> {
        let used = self.metrics.iter().filter_map(|name| value(name)).reduce(u64::saturating_add)?;
        Some(UsageCount { row: self.row, what: self.what, used, most: self.most, unit: self.unit })
    }
}

/// What the agent counts of a row of its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageCount {
    /// How the row begins.
    pub row: &'static str,
    /// What is counted.
    pub what: &'static str,
    /// How much there is.
    pub used: u64,
    /// How much there may be; `None`: as many bytes as the row has.
    pub most: Option<u64>,
    /// What both are of.
    pub unit: Unit,
}

/// What is used of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// What is counted.
    pub what: &'static str,
    /// How much there is.
    pub used: u64,
    /// How much there may be.
    pub most: u64,
    /// What both are of.
    pub unit: Unit,
}

/// A row of a budget, and what is used of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedBound<'a> {
    /// The row itself.
    pub bound: &'a Bound,
    /// What is counted of it.
    pub uses: Vec<Use>,
    /// The row's metric as it is exported, and its value; `None` if it has none.
    pub metric: Option<(String, u64)>,
}

impl Budget {
    /// The rows, with what is `counted` of them, and then what the agent's metrics count: `values` by their names as
    /// they are exported.
    #[must_use]
    pub fn used(
        &self,
        counted: &[UsageCount],
        metered: &[Metered],
        values: &BTreeMap<String, u64>,
    ) -> Vec<UsedBound<'_>> {
        let value = |name: &str| values.get(&format!("{}_{name}", self.prefix)).copied();
        let of_metrics = metered.iter().filter_map(|metered| metered.counted(&value));
        let all: Vec<UsageCount> = counted.iter().copied().chain(of_metrics).collect();
        let used = self.bounds.iter().map(|bound| {
            let of_row = all.iter().filter(|counted| bound.what.starts_with(counted.row));
            let uses = of_row.map(|&UsageCount { what, used, most, unit, .. }| {
                let most = most.unwrap_or(bound.bytes);
                Use { what, used, most, unit }
            });
            let metric = value(bound.metric).map(|value| (format!("{}_{}", self.prefix, bound.metric), value));
            UsedBound { bound, uses: uses.collect(), metric }
        });
        used.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_what_is_counted_of_it_and_the_value_of_its_metric() {
        let bound = |what, bytes, metric| Bound { what, bytes, from: "", payer: "", full: "", metric };
        let bounds = vec![bound("rows for hooks", 100, "lost_rows"), bound("models", 50, "(others wait)")];
        let budget = Budget { agent: "NIC agent", prefix: "uview_nic", load: None, bounds, on_disk: Vec::new() };
        let counted = [UsageCount { row: "models", what: "files", used: 3, most: Some(8), unit: Unit::Number }];
        let metered = |what, metrics: &'static [&'static str], most| {
            let (row, unit) = ("rows", Unit::Bytes);
            Metered { row, what, metrics, most, unit }
        };
        let metered = [
            metered("queued", &["row_bytes", "verdict_bytes", "unknown"], None),
            metered("others", &["unknown"], Some(1)),
        ];
        let values = [("row_bytes", 20), ("verdict_bytes", 5), ("lost_rows", 7)];
        let values: BTreeMap<_, _> = values.map(|(name, value)| (format!("uview_nic_{name}"), value)).into();

        let used = budget.used(&counted, &metered, &values);

        let [rows, models] = &used[..] else { unreachable!("{used:?}") };
        assert_eq!(rows.uses, [Use { what: "queued", used: 25, most: 100, unit: Unit::Bytes }], "others are not known");
        assert_eq!(rows.metric, Some(("uview_nic_lost_rows".to_owned(), 7)));
        assert_eq!(models.uses, [Use { what: "files", used: 3, most: 8, unit: Unit::Number }]);
        assert_eq!((models.bound.bytes, &models.metric), (50, &None));
    }
}
