//! Dashboards: one of what matters first, and one of each agent with every metric of the table.

use anyhow::Result;
use serde_json::{Value, json};

use super::table::{Metric, Table};

/// A panel's title, and the metrics that it draws.
type Drawn = (&'static str, &'static [&'static str]);

/// Rows of the first dashboard, with their panels.
const FIRST: [(&str, &[Drawn]); 6] = [
    (
        "Services",
        &[
            ("Score over γ", &["uview_lmap_score_ratio"]),
            ("In alarm", &["uview_lmap_alarm"]),
            ("Services, replicas, LMAPs", &["uview_host_services", "uview_host_replicas", "uview_host_lmaps"]),
            ("LMAPs by state", &["uview_nic_lmaps"]),
        ],
    ),
    (
        "Who judges",
        &[
            ("Workers and unplaced LMAPs", &["uview_host_workers", "uview_host_unplaced_lmaps"]),
            ("Connected to the host agent", &["uview_nic_host_connected"]),
            ("Late ticks", &["uview_nic_late_ticks"]),
            ("Silent replicas", &["uview_nic_silent_replicas"]),
        ],
    ),
    (
        "Reading",
        &[
            ("Region fetches", &["uview_nic_fetched_regions", "uview_nic_failed_regions"]),
            ("Discarded samples", &["uview_nic_discarded_samples"]),
            ("Bytes of detectors", &["uview_nic_lmap_bytes"]),
            ("CPU of the NIC agent", &["uview_nic_cpu_seconds"]),
        ],
    ),
    (
        "Traces",
        &[
            ("Items by OTLP", &["uview_host_otlp_items"]),
            ("Spans kept", &["uview_host_kept_spans"]),
            ("Spans dropped", &["uview_host_dropped_spans"]),
            ("Spans lost", &["uview_host_lost_spans"]),
        ],
    ),
    (
        "Samples to Prometheus",
        &[
            ("Seen and sent", &["uview_host_seen_samples", "uview_host_sent_samples"]),
            ("Left out", &["uview_host_suppressed_samples"]),
            ("Lost", &["uview_host_lost_samples"]),
            ("Queued", &["uview_host_queued_samples"]),
        ],
    ),
    (
        "Losses and refusals",
        &[
            ("Verdicts and rows lost by slow hooks", &["uview_host_lost_verdicts", "uview_host_lost_rows"]),
            ("Verdicts lost by the NIC agent", &["uview_nic_lost_verdicts"]),
            ("Refused over a share", &["uview_host_refused_over_share"]),
            ("Configuration refused", &["uview_host_configuration_rejected", "uview_nic_configuration_rejected"]),
        ],
    ),
];

/// Panels in a row.
const ACROSS: usize = 4;
/// Width and height of a panel, in units of Grafana's grid of 24.
const SIZE: (usize, usize) = (24 / ACROSS, 7);

/// All dashboards with the names of their files.
pub fn all(table: &Table) -> Result<Vec<(&'static str, Value)>> {
    let mut first = Vec::new();
    for (title, panels) in FIRST {
        first.push(Panel::Row(title.to_owned()));
        for (title, names) in panels {
            let metrics = names.iter().map(|name| table.named(name)).collect::<Result<Vec<_>>>()?;
            first.push(Panel::Chart((*title).to_owned(), metrics));
        }
    }
    let every = |prefix: &'static str| {
        let metrics = table.of(prefix);
        metrics
            .map(|metric| Panel::Chart(metric.name.trim_start_matches(prefix).replace('_', " "), vec![metric]))
            .collect::<Vec<_>>()
    };
    Ok(vec![
        ("uview", dashboard("uview", "uview", &first)),
        (
            "uview-host-agent",
            dashboard("uview-host-agent", "uview: every metric of the host agent", &every("uview_host_")),
        ),
        ("uview-nic-agent", dashboard("uview-nic-agent", "uview: every metric of the NIC agent", &every("uview_nic_"))),
    ])
}

/// What is on a dashboard.
enum Panel<'a> {
    /// A heading over charts.
    Row(String),
    /// A chart of metrics.
    Chart(String, Vec<&'a Metric>),
}

/// The query of a metric: what a counter adds per second, what a gauge says.
fn query(metric: &Metric) -> String {
    let of = r#"{instance=~"$instance"}"#;
    let series = metric.series();
    if metric.kind == "counter" {
        let by: Vec<&str> = std::iter::once("instance").chain(metric.labels.iter().map(String::as_str)).collect();
        return format!("sum by ({}) (rate({series}{of}[$__rate_interval]))", by.join(", "));
    }
    format!("{series}{of}")
}

fn unit(metric: &Metric) -> &'static str {
    let is_rate = metric.kind == "counter";
    match metric.name.rsplit('_').next() {
        Some("bytes") if is_rate => "Bps",
        Some("bytes") => "bytes",
        // Seconds of CPU a second are a share.
        Some("seconds") if is_rate => "percentunit",
        Some("seconds") => "s",
        Some("share") => "percentunit",
        _ if is_rate => "cps",
        _ => "short",
    }
}

fn chart(title: &str, metrics: &[&Metric], id: usize, (x, y): (usize, usize)) -> Value {
    let target = |(at, metric): (usize, &&Metric)| {
        let labels: Vec<_> = metric.labels.iter().map(|label| format!(" {{{{{label}}}}}")).collect();
        let labels = labels.concat();
        let name =
            if metrics.len() > 1 { format!(" {}", metric.name.trim_start_matches("uview_")) } else { String::new() };
        let letter = char::from(b'A' + at as u8).to_string();
        json!({ "refId": letter, "expr": query(metric), "legendFormat": format!("{{{{instance}}}}{name}{labels}") })
    };
    let targets: Vec<_> = metrics.iter().enumerate().map(target).collect();
    let help: Vec<_> = metrics.iter().map(|metric| format!("{}: {}", metric.series(), metric.help)).collect();
    json!({
        "id": id, "title": title, "type": "timeseries", "description": help.join("\n"),
        "datasource": { "type": "prometheus", "uid": "${datasource}" },
        "gridPos": { "x": x, "y": y, "w": SIZE.0, "h": SIZE.1 }, "targets": targets,
        "fieldConfig": { "defaults": { "unit": metrics.first().map_or("short", |metric| unit(metric)), "min": 0 }, "overrides": [] },
        "options": { "legend": { "displayMode": "list", "placement": "bottom" }, "tooltip": { "mode": "multi" } },
    })
}

fn dashboard(uid: &str, title: &str, panels: &[Panel<'_>]) -> Value {
    let (mut x, mut y, mut drawn) = (0, 0, Vec::new());
    for (at, panel) in panels.iter().enumerate() {
        match panel {
            Panel::Row(title) => {
                y += if x > 0 { SIZE.1 } else { 0 };
                drawn.push(json!({ "id": at + 1, "title": title, "type": "row", "collapsed": false, "panels": [], "gridPos": { "x": 0, "y": y, "w": 24, "h": 1 } }));
                (x, y) = (0, y + 1);
            }
            Panel::Chart(title, metrics) => {
                drawn.push(chart(title, metrics, at + 1, (x, y)));
                x += SIZE.0;
                if x >= 24 {
                    (x, y) = (0, y + SIZE.1);
                }
            }
        }
    }
    let agent = if uid == "uview-nic-agent" { "uview_nic_build_info" } else { "uview_host_build_info" };
    // One dashboard of both agents has instances of both.
    let instances = if uid == "uview" { "{__name__=~\"uview_(host|nic)_build_info\"}" } else { agent };
    json!({
        "uid": uid, "title": title, "tags": ["uview"], "schemaVersion": 39, "editable": true, "refresh": "10s",
        "time": { "from": "now-1h", "to": "now" }, "panels": drawn,
        "templating": { "list": [
            { "name": "datasource", "type": "datasource", "query": "prometheus" },
            { "name": "instance", "type": "query", "datasource": { "type": "prometheus", "uid": "${datasource}" },
              "query": format!("label_values({instances}, instance)"), "includeAll": true, "multi": true, "allValue": ".*",
              "current": { "text": "All", "value": "$__all" }, "refresh": 2 },
        ] },
    })
}
