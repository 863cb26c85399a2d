//! Names in Prometheus' alphabet.
//!
//! Names match `[a-zA-Z_:][a-zA-Z0-9_:]*` (labels: without the colon), as OpenTelemetry's exporters write them: each
//! other character becomes `_`, and several in a row one. UTF-8 names, which newer receivers accept, are not used: a
//! 1.0 receiver refuses them, and a series must not change its name when its receiver is updated. The help text has the
//! service's own name. Label values are any UTF-8.

use std::collections::BTreeMap;

use wire::metric::{Kind, Series, Statistic};

/// UCUM units, and Prometheus' names for them.
const UNITS: [(&str, &str); 22] = [
    ("d", "days"),
    ("h", "hours"),
    ("min", "minutes"),
    ("s", "seconds"),
    ("ms", "milliseconds"),
    ("us", "microseconds"),
    ("ns", "nanoseconds"),
    ("By", "bytes"),
    ("KiBy", "kibibytes"),
    ("MiBy", "mebibytes"),
    ("GiBy", "gibibytes"),
    ("kBy", "kilobytes"),
    ("MBy", "megabytes"),
    ("GBy", "gigabytes"),
    ("m", "meters"),
    ("V", "volts"),
    ("A", "amperes"),
    ("J", "joules"),
    ("W", "watts"),
    ("g", "grams"),
    ("Cel", "celsius"),
    ("Hz", "hertz"),
];

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MetricType {
    /// Monotonic: only increases.
    Counter,
    /// May rise and fall.
    Gauge,
    /// One of the series of a histogram, all monotonic.
    Histogram,
}

/// Name, type, unit and help of a metric in Prometheus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Legal name, with unit and suffix.
    pub name: String,
    /// Type, for metadata.
    pub kind: MetricType,
    /// Unit in Prometheus' words; empty if there is none.
    pub unit: String,
    /// Help text, with the name that the service gave it.
    pub help: String,
}

/// Replaces each character of `name` that is not `legal` by `_`, and several in a row by one.
fn replaced(name: &str, legal: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(name.len() + 1);
    for c in name.chars() {
        let c = if legal(c) { c } else { '_' };
        if !(c == '_' && out.ends_with('_')) {
            out.push(c);
        }
    }
    if out.starts_with(|c: char| c.is_ascii_digit()) {
        out.insert(0, '_');
    }
    out
}

/// Legal name of a metric, without unit and suffix.
#[must_use]
pub fn metric_name(name: &str) -> String {
    replaced(name, |c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
}

/// Legal name of a label. Never starts with two underscores, which Prometheus reserves.
#[must_use]
pub fn label_name(name: &str) -> String {
    replaced(name, |c| c.is_ascii_alphanumeric() || c == '_')
}

/// A UCUM unit in Prometheus' words: `s` is `seconds`, `By/s` is `bytes_per_second`; empty for dimensionless ones (`1`,
/// `{request}`).
#[must_use]
pub fn unit_name(unit: &str) -> String {
    let word = |unit: &str| {
        let unit = unit.split('{').next().unwrap_or_default();
        let known = UNITS.iter().find(|(ucum, _)| *ucum == unit);
        known.map_or_else(|| if unit == "1" { String::new() } else { label_name(unit) }, |(_, name)| (*name).to_owned())
    };
    match unit.split_once('/') {
        None if unit == "%" => "percent".to_owned(),
        None => word(unit),
        Some((above, below)) => {
            let (above, below) = (word(above), word(below));
            let one = below.strip_suffix('s').unwrap_or(&below);
            match (above.is_empty(), one.is_empty()) {
                (_, true) => above,
                (true, false) => format!("per_{one}"),
                (false, false) => format!("{above}_per_{one}"),
            }
        }
    }
}

/// Appends `_suffix` to `name`, unless it is empty or already there.
fn with_suffix(mut name: String, suffix: &str) -> String {
    let has = name.strip_suffix(suffix).is_some_and(|rest| rest.is_empty() || rest.ends_with('_'));
    if !(suffix.is_empty() || has) {
        if !name.ends_with('_') {
            name.push('_');
        }
        name.push_str(suffix);
    }
    name
}

/// Prometheus' name of the column for `statistic` of `series`: with the unit, and `_total` for a counter, `_count`,
/// `_mean` or `_p99` for what an LMAP (local metrics analysis pipeline) sees of a histogram.
#[must_use]
pub fn metric(series: &Series, statistic: Statistic) -> Metric {
    let unit = series.unit.as_ref().map(|unit| unit_name(unit.as_str())).unwrap_or_default();
    let base = metric_name(series.name.as_str());
    // `requests_total` of unit `seconds` is `requests_seconds_total`.
    let base = match (series.kind, base.strip_suffix("_total")) {
        (Kind::Counter, Some(rest)) if !rest.is_empty() => rest.to_owned(),
        _ => base,
    };
    let base = with_suffix(base, &unit);
    let (suffix, kind, what) = match statistic {
        Statistic::Increment => ("total", MetricType::Counter, "since this agent began to watch it"),
        Statistic::Count => ("count", MetricType::Counter, "values taken since this agent began to watch it"),
        Statistic::Mean => ("mean", MetricType::Gauge, "mean of the scraping interval"),
        Statistic::P99 => ("p99", MetricType::Gauge, "99th percentile of the scraping interval"),
        Statistic::Value => ("", MetricType::Gauge, "last value"),
    };
    // A count has no unit, whatever is counted.
    let unit = if statistic == Statistic::Count { String::new() } else { unit };
    Metric { name: with_suffix(base, suffix), kind, unit, help: format!("{}: {what}", series.name) }
}

/// OTLP's name of the column for `statistic` of `series`: the service's own name, with a suffix for a histogram's
/// statistic, and the unit in UCUM.
#[must_use]
pub fn otlp_metric(series: &Series, statistic: Statistic) -> Metric {
    let in_prometheus = metric(series, statistic);
    let suffix = match statistic {
        Statistic::Count => ".count",
        Statistic::Mean => ".mean",
        Statistic::P99 => ".p99",
        Statistic::Increment | Statistic::Value => "",
    };
    let unit = series.unit.as_ref().filter(|_| statistic != Statistic::Count);
    let unit = unit.map(|unit| unit.as_str().to_owned()).unwrap_or_default();
    Metric { name: format!("{}{suffix}", series.name), unit, ..in_prometheus }
}

/// Labels of a series, sorted by name: those of the metric, and `own`, which take precedence. A label of the metric
/// with the name of one of `own` becomes `exported_…`. If names become equal, their values are joined with `;`. Empty
/// values are omitted.
#[must_use]
pub fn labels<'own, 'metric>(
    own: impl IntoIterator<Item = (&'own str, &'own str)>,
    metric: impl IntoIterator<Item = (&'metric str, &'metric str)>,
) -> Vec<(String, String)> {
    let own: BTreeMap<String, String> =
        own.into_iter().filter(|(_, value)| !value.is_empty()).map(|(key, value)| (key.into(), value.into())).collect();
    let mut theirs: BTreeMap<String, String> = BTreeMap::new();
    for (key, value) in metric.into_iter().filter(|(_, value)| !value.is_empty()) {
        let mut name = label_name(key);
        while own.contains_key(&name) {
            name.insert_str(0, "exported_");
        }
        theirs
            .entry(name)
            .and_modify(|known| {
                known.push(';');
                known.push_str(value);
            })
            .or_insert_with(|| value.to_owned());
    }
    theirs.extend(own);
    theirs.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU64;

    use proptest::prelude::*;
    use wire::histogram::Scale;
    use wire::metric::Group;
    use wire::name::{Labels, MetricName, Unit};

    use super::*;

    fn series(name: &str, kind: Kind, unit: Option<&str>) -> Series {
        Series {
            name: MetricName::new(name).unwrap(),
            labels: Labels::default(),
            kind,
            unit: unit.map(|unit| Unit::new(unit).unwrap()),
            group: Group::Service,
            parts_per_unit: NonZeroU64::MIN,
        }
    }

    fn named(name: &str, kind: Kind, unit: Option<&str>, statistic: Statistic) -> (String, String) {
        let metric = metric(&series(name, kind, unit), statistic);
        (metric.name, metric.unit)
    }

    #[test]
    fn a_metric_has_its_unit_and_its_suffix_once() {
        let histogram = Kind::Histogram(Scale::DEFAULT);
        for (name, kind, unit, statistic, expected, expected_unit) in [
            (
                "http.server.requests",
                Kind::Counter,
                Some("{request}"),
                Statistic::Increment,
                "http_server_requests_total",
                "",
            ),
            ("a.requests_total", Kind::Counter, None, Statistic::Increment, "a_requests_total", ""),
            (
                "process.cpu.time",
                Kind::Counter,
                Some("s"),
                Statistic::Increment,
                "process_cpu_time_seconds_total",
                "seconds",
            ),
            ("busy_seconds_total", Kind::Counter, Some("s"), Statistic::Increment, "busy_seconds_total", "seconds"),
            ("process.memory.usage", Kind::Gauge, Some("By"), Statistic::Value, "process_memory_usage_bytes", "bytes"),
            ("queue-length", Kind::UpDownCounter, None, Statistic::Value, "queue_length", ""),
            ("a.b/c--d", Kind::Gauge, Some("1"), Statistic::Value, "a_b_c_d", ""),
            ("rpc.duration", histogram, Some("s"), Statistic::P99, "rpc_duration_seconds_p99", "seconds"),
            ("rpc.duration", histogram, Some("s"), Statistic::Count, "rpc_duration_seconds_count", ""),
            ("disk.io", Kind::Gauge, Some("By/s"), Statistic::Value, "disk_io_bytes_per_second", "bytes_per_second"),
        ] {
            let found = named(name, kind, unit, statistic);
            assert_eq!(found, (expected.to_owned(), expected_unit.to_owned()), "{name}");
        }
    }

    #[test]
    fn units_are_words() {
        for (unit, word) in
            [("%", "percent"), ("{thread}", ""), ("1/s", "per_second"), ("By{x}", "bytes"), ("odd!", "odd_")]
        {
            assert_eq!(unit_name(unit), word, "{unit}");
        }
    }

    #[test]
    fn labels_are_sorted_and_none_is_lost_or_stands_twice() {
        let own = [("__name__", "x"), ("job", "shop"), ("instance", "")];
        let theirs = [("http.route", "/pay"), ("job", "theirs"), ("a.b", "1"), ("a-b", "2"), ("empty", "")];

        let labels = labels(own, theirs);

        let expected =
            [("__name__", "x"), ("a_b", "1;2"), ("exported_job", "theirs"), ("http_route", "/pay"), ("job", "shop")];
        assert_eq!(labels, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }

    proptest! {
        #[test]
        fn whatever_the_name_the_result_is_legal(name in "[a-zA-Z_][a-zA-Z0-9_.:/-]{0,30}", any in "\\PC{1,20}") {
            for name in [&name, &any] {
                let metric = metric_name(name);
                prop_assert!(metric.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == ':'));
                prop_assert!(metric.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':'));
                let label = label_name(name);
                prop_assert!(label.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'));
                prop_assert!(label.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
                prop_assert!(!label.starts_with("__"));
            }
        }
    }
}
