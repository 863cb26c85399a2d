//! What the receipt adds up to. Pure.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// Spans of all services and days.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    pub seen: u64,
    pub kept: u64,
    pub dropped: u64,
    /// By cause, such as `ended`: they were buffered when the agent ended in good order.
    pub lost: BTreeMap<String, u64>,
    pub waiting: u64,
    /// Whether each run of the agent has ended in good order, the present one, which has not, last.
    pub runs: Vec<bool>,
}

impl Ledger {
    /// Reads what `uview receipt --json` prints.
    ///
    /// # Errors
    ///
    /// It has no days, or does not add up.
    pub fn of(receipt: &Value) -> Result<Self> {
        let days = receipt["days"].as_array().context("the receipt has days")?;
        let count = |key: &str| days.iter().filter_map(|day| day["total"][key].as_u64()).sum::<u64>();
        let mut lost: BTreeMap<String, u64> = BTreeMap::new();
        for (cause, spans) in days.iter().flat_map(|day| causes(&day["total"]["lost_spans"])) {
            *lost.entry(cause).or_default() += spans;
        }
        let dropped = days.iter().flat_map(|day| causes(&day["total"]["dropped_spans"]));
        let waiting = causes(&receipt["waiting_spans"]).map(|(_, spans)| spans).sum();
        let runs = receipt["runs"].as_array().context("the receipt has runs")?;
        let ledger = Self {
            seen: count("seen_spans"),
            kept: count("kept_spans"),
            dropped: dropped.map(|(_, spans)| spans).sum(),
            lost,
            waiting,
            runs: runs.iter().map(|run| run["ended_in_order"] == true).collect(),
        };
        let accounted = ledger.kept + ledger.dropped + ledger.lost.values().sum::<u64>() + ledger.waiting;
        ensure!(ledger.seen == accounted, "{accounted} spans are accounted for: {ledger:?}");
        Ok(ledger)
    }

    /// Spans that were lost for this cause.
    pub fn lost_for(&self, cause: &str) -> u64 {
        self.lost.get(cause).copied().unwrap_or_default()
    }
}

fn causes(counts: &Value) -> impl Iterator<Item = (String, u64)> {
    let counts = counts.as_object().into_iter().flatten();
    counts.filter_map(|(cause, spans)| Some((cause.clone(), spans.as_u64()?)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn receipt(seen: u64) -> Value {
        let total = |spans: u64| {
            json!({"seen_spans": spans, "kept_spans": 3, "dropped_spans": {"aged": 4, "late": 1},
                   "lost_spans": {"ended": 2}})
        };
        json!({
            "runs": [{"ended_in_order": true}, {"ended_in_order": false}],
            "waiting_spans": {"shop/cart": 5, "shop/store": 1},
            "days": [{"total": total(10)}, {"total": total(seen)}],
        })
    }

    #[test]
    fn days_add_up() {
        let ledger = Ledger::of(&receipt(16)).unwrap();

        assert_eq!((ledger.seen, ledger.kept, ledger.dropped, ledger.waiting), (26, 6, 10, 6));
        assert_eq!((ledger.lost_for("ended"), ledger.lost_for("killed")), (4, 0));
        assert_eq!(ledger.runs, [true, false]);
    }

    #[test]
    fn a_span_that_is_missing_is_an_error() {
        assert!(Ledger::of(&receipt(17)).is_err());
        assert!(Ledger::of(&json!({})).is_err());
    }
}
