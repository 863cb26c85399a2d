//! One metric of the explanation of a verdict.

use std::collections::BTreeMap;

use serde::Serialize;
use wire::metric::Statistic;
use wire::proto::operators as proto;

/// A column that explains a score, with its values. An agent that says the title only leaves its parts empty.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reason {
    /// Metric, statistic and labels, in one title.
    pub column: String,
    /// Name of the metric.
    pub metric: String,
    /// Which statistic of a histogram; empty: the metric itself.
    pub statistic: String,
    /// Labels of the series, by key.
    pub labels: BTreeMap<String, String>,
    /// Its group: service, cpu, memory, io, network.
    pub group: String,
    /// Its unit; may be empty.
    pub unit: String,
    /// Its share of the squared score, 0 to 1.
    pub share: f64,
    /// The measured value.
    pub seen: f64,
    /// The value expected from the other metrics.
    pub expected: f64,
}

impl Reason {
    /// Whether it counts the values of a histogram.
    #[must_use]
    pub fn is_count(&self) -> bool {
        self.statistic == Statistic::Count.name()
    }

    /// Whether its label `key` has this value.
    #[must_use]
    pub fn has_label(&self, key: &str, value: &str) -> bool {
        self.labels.get(key).is_some_and(|of| of == value)
    }

    /// Its labels as pairs of key and value.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

impl From<proto::Reason> for Reason {
    fn from(reason: proto::Reason) -> Self {
        let proto::Reason { column, metric, statistic, labels, group, unit, share, seen, expected, .. } = reason;
        let labels = labels.into_iter().map(|proto::Label { key, value }| (key, value)).collect();
        Self { column, metric, statistic, labels, group, unit, share, seen, expected }
    }
}
