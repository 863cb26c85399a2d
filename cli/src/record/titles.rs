//! Unit, group and kind of the columns of an LMAP's rows. The rows themselves have only titles. Pure.

use recording::{Column, ColumnKind};
use wire::metric::Statistic;
use wire::proto::operators::MetricInfo;

/// A column of a metric.
pub(super) fn known(metric: &MetricInfo, title: &str, statistic: Statistic) -> Column {
    Column {
        title: title.to_owned(),
        unit: if statistic == Statistic::Count { String::new() } else { metric.unit.clone() },
        group: metric.group.clone(),
        kind: match statistic {
            Statistic::Increment | Statistic::Count => ColumnKind::Increment,
            Statistic::Value => ColumnKind::Gauge,
            Statistic::Mean | Statistic::P99 => ColumnKind::Statistic,
        },
    }
}

/// A column that is unknown: a gauge without unit and group.
pub(super) fn unknown(title: &str) -> Column {
    Column { title: title.to_owned(), unit: String::new(), group: String::new(), kind: ColumnKind::Gauge }
}

#[cfg(test)]
mod tests {
    use wire::proto::operators::LmapInfo;

    use super::*;
    use crate::columns::Titles;

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
        let titles = Titles::of(&LmapInfo { metrics: vec![metric], ..LmapInfo::default() }, known);
        let requested = [
            "http.server.request.duration.count{route=\"/pay\"}",
            "http.server.request.duration.p99{route=\"/pay\"}",
            "x",
        ];
        let requested = requested.map(str::to_owned);

        let columns = titles.columns(&requested, unknown);

        let facts: Vec<(&str, ColumnKind)> = columns.iter().map(|column| (column.unit.as_str(), column.kind)).collect();
        assert_eq!(facts, [("", ColumnKind::Increment), ("s", ColumnKind::Statistic), ("", ColumnKind::Gauge)]);
        assert!(titles.know(&requested[..2]) && !titles.know(&requested));
    }
}
