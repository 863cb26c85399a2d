//! Unit, group and kind of the columns of an LMAP's rows. The rows themselves have only titles. Pure.

use std::collections::HashMap;

use recording::{Column, ColumnKind};
use wire::metric::Statistic;
use wire::proto::operators::{LmapInfo, MetricInfo};

/// Unit, group and kind of columns, by title.
#[derive(Clone, Debug, Default)]
pub struct Titles(HashMap<String, Column>);

impl Titles {
    /// The columns of an LMAP, from the agent's list of its metrics.
    #[must_use]
    pub fn of(lmap: &LmapInfo) -> Self {
        Self(lmap.metrics.iter().flat_map(columns).map(|column| (column.title.clone(), column)).collect())
    }

    /// Whether all of `titles` are known.
    #[must_use]
    pub fn know(&self, titles: &[String]) -> bool {
        titles.iter().all(|title| self.0.contains_key(title))
    }

    /// The columns with these titles. An unknown one is a gauge without unit and group.
    #[must_use]
    pub fn columns(&self, titles: &[String]) -> Vec<Column> {
        let unknown = |title: &String| Column {
            title: title.clone(),
            unit: String::new(),
            group: String::new(),
            kind: ColumnKind::Gauge,
        };
        titles.iter().map(|title| self.0.get(title).cloned().unwrap_or_else(|| unknown(title))).collect()
    }
}

/// The columns of a metric, with the titles of [`wire::metric::Series::column_title`].
fn columns(metric: &MetricInfo) -> Vec<Column> {
    let statistics: &[Statistic] = match metric.kind.as_str() {
        "counter" => &[Statistic::Increment],
        "histogram" => &[Statistic::Count, Statistic::Mean, Statistic::P99],
        _ => &[Statistic::Value],
    };
    let column = |statistic: &Statistic| Column {
        title: format!("{}{}{}", metric.name, statistic.suffix(), metric.labels),
        unit: if *statistic == Statistic::Count { String::new() } else { metric.unit.clone() },
        group: metric.group.clone(),
        kind: match statistic {
            Statistic::Increment | Statistic::Count => ColumnKind::Increment,
            Statistic::Value => ColumnKind::Gauge,
            Statistic::Mean | Statistic::P99 => ColumnKind::Statistic,
        },
    };
    statistics.iter().map(column).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_has_three_columns_and_unknown_titles_are_gauges() {
        let metric = MetricInfo {
            name: "http.server.request.duration".to_owned(),
            labels: "{route=\"/pay\"}".to_owned(),
            kind: "histogram".to_owned(),
            unit: "s".to_owned(),
            group: "service".to_owned(),
            ..MetricInfo::default()
        };
        let titles = Titles::of(&LmapInfo { metrics: vec![metric], ..LmapInfo::default() });
        let requested = [
            "http.server.request.duration.count{route=\"/pay\"}",
            "http.server.request.duration.p99{route=\"/pay\"}",
            "x",
        ];
        let requested = requested.map(str::to_owned);

        let columns = titles.columns(&requested);

        let facts: Vec<(&str, ColumnKind)> = columns.iter().map(|column| (column.unit.as_str(), column.kind)).collect();
        assert_eq!(facts, [("", ColumnKind::Increment), ("s", ColumnKind::Statistic), ("", ColumnKind::Gauge)]);
        assert!(titles.know(&requested[..2]) && !titles.know(&requested));
    }
}
