//! Durations from spans as OpenMetrics histograms, with kept traces as exemplars.

use core::fmt::{self, Write as _};

use remote_write::naming::{label_name, metric_name, unit_name};
use remote_write::reading::Histogram;
use remote_write::series::INCIDENT;

use super::encoding::escaped;
use crate::span_metrics::ByService;

/// The text for `all`, whose histograms have one name; empty if there are none.
pub(super) fn text(all: &ByService) -> String {
    let mut page = String::new();
    let mut histograms = all.values().flatten().peekable();
    let Some(first) = histograms.peek() else { return page };
    let unit = unit_name(first.unit);
    let name = format!("{}_{unit}", metric_name(first.name));
    // Writing into a string cannot fail.
    _ = write!(page, "# HELP {name} {}\n# TYPE {name} histogram\n# UNIT {name} {unit}\n", first.help);
    for histogram in histograms {
        _ = write_one(&mut page, &name, histogram);
    }
    page
}

fn write_one(page: &mut String, name: &str, histogram: &Histogram) -> fmt::Result {
    let label = |(key, value): &(String, String)| format!("{}=\"{}\"", label_name(key), escaped(value));
    let labels = histogram.labels.iter().map(label).collect::<Vec<_>>().join(",");
    let bounds = histogram.bounds.iter().map(|bound| format!("{bound:?}")).chain(["+Inf".to_owned()]);
    let mut below = 0_u64;
    for ((bound, count), exemplar) in bounds.zip(&histogram.counts).zip(&histogram.exemplars) {
        below = below.saturating_add(*count);
        write!(page, "{name}_bucket{{{labels},le=\"{bound}\"}} {below}")?;
        if let Some(exemplar) = exemplar {
            let at = exemplar.at_ms as f64 / 1e3;
            write!(page, " # {{trace_id=\"{}\"", exemplar.trace())?;
            if !exemplar.incident().is_empty() {
                write!(page, ",{INCIDENT}=\"{}\"", escaped(exemplar.incident()))?;
            }
            write!(page, "}} {:?} {at:.3}", exemplar.value)?;
        }
        page.push('\n');
    }
    writeln!(page, "{name}_count{{{labels}}} {below}\n{name}_sum{{{labels}}} {:?}", histogram.sum)
}

#[cfg(test)]
mod tests {
    use remote_write::series::Exemplar;

    use super::*;

    #[test]
    fn a_histogram_reads_as_open_metrics_has_it() {
        let histogram = Histogram {
            name: "a.duration",
            unit: "s",
            help: "How long.",
            labels: vec![("span.name".into(), "GET \"\\\"".into())],
            bounds: [0.0001, 1.0].into(),
            counts: vec![2, 0, 1],
            sum: 2.5,
            exemplars: vec![
                Some(Exemplar::new("abc", 0.00005, 1_700_000_000_250)),
                None,
                Some(Exemplar::new("def", 2.0, 1_700_000_000_250).with_incident("node-\"3\"/20261127-064215-123")),
            ],
        };

        let page = text(&[("a".to_owned(), vec![histogram])].into());

        let expected = r#"# HELP a_duration_seconds How long.
# TYPE a_duration_seconds histogram
# UNIT a_duration_seconds seconds
a_duration_seconds_bucket{span_name="GET \"\\\"",le="0.0001"} 2 # {trace_id="abc"} 5e-5 1700000000.250
a_duration_seconds_bucket{span_name="GET \"\\\"",le="1.0"} 2
a_duration_seconds_bucket{span_name="GET \"\\\"",le="+Inf"} 3 # {trace_id="def",uview_incident="node-\"3\"/20261127-064215-123"} 2.0 1700000000.250
a_duration_seconds_count{span_name="GET \"\\\""} 3
a_duration_seconds_sum{span_name="GET \"\\\""} 2.5
"#;
        assert_eq!(page, expected);
        assert_eq!(text(&ByService::new()), "");
    }
}
