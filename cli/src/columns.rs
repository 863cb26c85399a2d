//! The columns that a metric of an agent's list has, with the titles that rows carry. Pure.

use std::collections::HashMap;

use wire::metric::Statistic;
use wire::proto::operators::{LmapInfo, MetricInfo};

/// The columns of `metric` by title, as [`wire::metric::Series::column_title`] writes it.
pub(crate) fn of(metric: &MetricInfo) -> impl Iterator<Item = (String, Statistic)> {
    let statistics: &[Statistic] = match metric.kind.as_str() {
        "counter" => &[Statistic::Increment],
        "histogram" => &[Statistic::Count, Statistic::Mean, Statistic::P99],
        _ => &[Statistic::Value],
    };
    statistics
        .iter()
        .map(move |&statistic| (format!("{}{}{}", metric.name, statistic.suffix(), metric.labels), statistic))
}

/// What is known of an LMAP's columns, by title: rows have only titles.
#[derive(Clone, Debug)]
pub(crate) struct Titles<T>(HashMap<String, T>);

impl<T: Clone> Titles<T> {
    /// The columns of an LMAP, from the agent's list of its metrics; of each, `known` says what it is.
    pub(crate) fn of(lmap: &LmapInfo, known: impl Fn(&MetricInfo, &str, Statistic) -> T) -> Self {
        let mut titles = HashMap::new();
        for metric in &lmap.metrics {
            titles.extend(of(metric).map(|(title, statistic)| {
                let column = known(metric, &title, statistic);
                (title, column)
            }));
        }
        Self(titles)
    }

    /// Whether all of `titles` are known.
    pub(crate) fn know(&self, titles: &[String]) -> bool {
        titles.iter().all(|title| self.0.contains_key(title))
    }

    /// The columns with these titles.
    pub(crate) fn columns(&self, titles: &[String], unknown: impl Fn(&str) -> T) -> Vec<T> {
        titles.iter().map(|title| self.0.get(title).cloned().unwrap_or_else(|| unknown(title))).collect()
    }
}
