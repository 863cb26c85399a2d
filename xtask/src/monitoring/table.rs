//! The table of metrics, and whether a query keeps to it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};

/// Labels that Prometheus adds.
const OF_PROMETHEUS: [&str; 2] = ["instance", "job"];

/// A metric of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name without the suffix of its type.
    pub name: String,
    /// Keys of its labels, sorted.
    pub labels: Vec<String>,
    /// `counter`, `gauge` or `info`.
    pub kind: String,
    /// What it is.
    pub help: String,
}

impl Metric {
    /// Its name as Prometheus stores it.
    pub fn series(&self) -> String {
        match self.kind.as_str() {
            "counter" => format!("{}_total", self.name),
            "info" => format!("{}_info", self.name),
            _ => self.name.clone(),
        }
    }
}

/// All metrics that both agents export, by the name of their series.
#[derive(Debug)]
pub struct Table(BTreeMap<String, Metric>);

impl Table {
    /// Reads the tables of a page: `| name{labels} | type | help |`, and those where the name comes second.
    pub fn read(page: &str) -> Result<Self> {
        let metrics = page.lines().filter_map(row).map(|metric| (metric.series(), metric));
        let table = Self(metrics.collect());
        ensure!(table.len() > 200, "docs/metrics.md has {} rows only", table.len());
        Ok(table)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// All whose name begins with `prefix`.
    pub fn of<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a Metric> {
        self.0.values().filter(move |metric| metric.name.starts_with(prefix))
    }

    /// The metric called `name`, without suffix.
    pub fn named(&self, name: &str) -> Result<&Metric> {
        self.0.values().find(|metric| metric.name == name).with_context(|| format!("no agent exports {name}"))
    }

    /// Fails unless each metric of `query` is exported, with the labels that the query uses.
    pub fn check(&self, query: &str) -> Result<()> {
        let series: Vec<&str> = words(query).filter(|word| word.starts_with("uview_")).collect();
        let mut labels: BTreeSet<&str> = OF_PROMETHEUS.into();
        for name in &series {
            let Some(metric) = self.0.get(*name) else { bail!("no agent exports {name}: {query}") };
            labels.extend(metric.labels.iter().map(String::as_str));
        }
        ensure!(!series.is_empty(), "it names no metric: {query}");
        let unknown: Vec<_> = used_labels(query).into_iter().filter(|label| !labels.contains(label)).collect();
        ensure!(unknown.is_empty(), "its metrics have no label {unknown:?}: {query}");
        Ok(())
    }
}

fn words(query: &str) -> impl Iterator<Item = &str> {
    query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Labels in `by (…)` and `{…}`.
fn used_labels(query: &str) -> BTreeSet<&str> {
    let inside = |open: &'static str, close: char| {
        query.split(open).skip(1).filter_map(move |rest| rest.split_once(close)).map(|(list, _)| list)
    };
    let grouped = inside("by (", ')').flat_map(|list| list.split(','));
    let matched = inside("{", '}').flat_map(|list| list.split(',')).filter_map(|pair| pair.split(['=', '!']).next());
    grouped.chain(matched).map(str::trim).filter(|label| !label.is_empty()).collect()
}

/// The metric of a row; `None` for other lines.
fn row(line: &str) -> Option<Metric> {
    let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
    let [first, second, third] = cells.as_slice() else { return None };
    let (name, kind, help) = if first.starts_with("`uview_") { (first, second, third) } else { (second, third, first) };
    let name = name.strip_prefix('`')?.strip_suffix('`').filter(|name| name.starts_with("uview_"))?;
    let (name, labels) = name.strip_suffix('}').and_then(|name| name.split_once('{')).unwrap_or((name, ""));
    let labels = labels.split(',').filter(|label| !label.is_empty()).map(Into::into).collect();
    Some(Metric { name: name.into(), labels, kind: (*kind).into(), help: (*help).into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let rows = [
            "| `uview_a{reason}` | counter | As. |",
            "| `uview_b` | gauge | Bs. |",
            "| ratio | `uview_c{lmap}` | gauge |",
        ];
        Table(rows.into_iter().filter_map(row).map(|metric| (metric.series(), metric)).collect())
    }

    #[test]
    fn a_query_that_names_something_else_is_refused() {
        let table = table();

        for right in [
            "uview_b == 0",
            "sum by (instance, reason) (rate(uview_a_total{reason=\"x\"}[5m])) > 0",
            "uview_c{lmap=\"a\"}",
        ] {
            table.check(right).unwrap();
        }
        for wrong in [
            "uview_a",
            "uview_b_total",
            "sum by (reason) (uview_b)",
            "uview_c{instance=~\"x\",service=\"a\"}",
            "up == 0",
        ] {
            assert!(table.check(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rows_of_both_kinds_are_read_and_others_are_not() {
        let lmap = row("| last | `uview_c{lmap}` | gauge |").unwrap();

        assert_eq!(
            (lmap.name.as_str(), lmap.labels.as_slice(), lmap.help.as_str()),
            ("uview_c", &["lmap".to_owned()][..], "last")
        );
        assert_eq!(
            (row("| `network.loss` | 1 | network |"), row("| --- | --- | --- |"), row("text")),
            (None, None, None)
        );
    }
}
