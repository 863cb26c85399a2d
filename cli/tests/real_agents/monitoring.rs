//! Dashboards and alerts of `deploy` with a real Prometheus that scrapes running agents: each query gives data, and an
//! alarm fires. `promtool` checks the rules, and the metrics of both agents.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::page::older::{self, Reach};
use agent_runtime::clock::unix_now;
use support::harness::not_run;
use support::prometheus::{Prometheus, alerts, panels};
use wire::time::Nanos;

use crate::WAIT;
use crate::hostile_text::ODD;
use crate::incidents::Replica;
use crate::metrics::{agents, page_at};

/// Counters that are not in seconds; to rename them would break who reads them.
const ABBREVIATED: [&str; 2] = ["uview_host_raised_probabilities_wait_ms_total ", "uview_host_scrape_us_total "];

/// Waits until `prometheus` has scores of the LMAP of `service`, and says whether it is in alarm, asked for as the live
/// page does.
fn gives_scores(prometheus: &Prometheus, service: &str) {
    let labels = [("job".to_owned(), "lmaps".to_owned())].into();
    let scores = WAIT.until("scores of the past", || {
        // The step that goes on, too: a page has it from its own history.
        let end = unix_now().plus(Nanos::from_secs(u64::from(Reach::Day.step())));
        let answer = prometheus.answer(&format!("query_range?{}", older::query(service, &labels, Reach::Day, end)))?;
        assert!(answer.contains(r#""of":"alarm""#) || !answer.contains(r#""of":"score""#), "{answer}");
        Some(older::past(answer.as_bytes(), Reach::Day).unwrap().scores).filter(|scores| !scores.is_empty())
    });
    assert!(scores.iter().all(|score| score.ratio >= 0.0), "{scores:?}");
}

/// OpenMetrics in Prometheus's older text format, which promtool reads: names of series in place of families, info as
/// gauge, neither exemplars nor EOF.
fn as_text(page: &str) -> String {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let types: BTreeMap<&str, &str> = types.collect();
    let mut text = String::new();
    for line in page.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            _ = writeln!(text, "{}", line.split_once(" # ").map_or(line, |(sample, _)| sample));
            continue;
        };
        let mut words = comment.splitn(3, ' ');
        let (Some(what), Some(name), Some(rest)) = (words.next(), words.next(), words.next()) else { continue };
        let suffix = match types.get(name) {
            Some(&"counter") => "_total",
            Some(&"info") => "_info",
            _ => "",
        };
        let rest = if (what, rest) == ("TYPE", "info") { "gauge" } else { rest };
        _ = writeln!(text, "# {what} {name}{suffix} {rest}");
    }
    text
}

/// What promtool says, unless it is satisfied.
fn promtool(arguments: &[&str], input: &str) {
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    process.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    // 3: lint only.
    let said = String::from_utf8(output.stderr).unwrap();
    let is_known = |line: &str| ABBREVIATED.iter().any(|name| line.starts_with(name) && line.contains("abbreviated"));
    let is_fine = output.status.success() || output.status.code() == Some(3) && said.lines().all(is_known);
    assert!(is_fine, "promtool {arguments:?}: {:?}: {said}", output.status);
}

#[test]
fn each_panel_and_each_alert_gets_data_from_a_real_prometheus() {
    let broken = Arc::new(AtomicBool::new(false));
    let folder = tempfile::tempdir().unwrap();
    let (_agents, host, nic) = agents(folder.path());
    let Some(prometheus) = Prometheus::start(folder.path(), &host, &nic) else {
        return not_run("dashboards and alerts: it needs prometheus and promtool");
    };
    let _payment = Replica::start(folder.path().join("run/services.sock"), "payment-1", ODD, &broken);

    promtool(&["check", "rules", alerts().to_str().unwrap()], "");
    for (address, path) in [(&host, "/metrics"), (&host, "/metrics/lmaps"), (&nic, "/metrics")] {
        let text = WAIT.until("metrics with a sample", || {
            page_at(address, path).filter(|text| text.lines().any(|line| line.starts_with("uview_")))
        });
        promtool(&["check", "metrics"], &as_text(&text));
    }
    for query in panels() {
        prometheus.gives_data(&query);
    }
    gives_scores(&prometheus, "payment");
    prometheus.gives_data_to_rules(|_| true);
    assert!(!prometheus.firing().contains(&("UviewServiceInAlarm".to_owned(), "payment".to_owned())));
    broken.store(true, Ordering::Relaxed);
    WAIT.until("the alert of the service in alarm", || {
        prometheus.firing().contains(&("UviewServiceInAlarm".to_owned(), "payment".to_owned())).then_some(())
    });
}
