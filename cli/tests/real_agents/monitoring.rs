//! Dashboards and alerts of `deploy` with a real Prometheus that scrapes running agents: each query gives data.
//! `promtool` checks the rules, and the metrics of both agents.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use ::page::older::{self, Reach};
use serde_json::Value;
use wire::time::{Nanos, UnixNanos};

use crate::live_page::serve;
use crate::metrics::{agents, page};
use crate::{eventually, free_port};

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

/// Counters that are not in seconds; to rename them would break who reads them.
const ABBREVIATED: [&str; 2] = ["uview_host_raised_probabilities_wait_ms_total ", "uview_host_scrape_us_total "];

/// A Prometheus, ended with its test.
struct Prometheus {
    process: Child,
    address: SocketAddr,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

impl Prometheus {
    /// Scrapes the agents each second; `None` where there is no such program.
    fn start(folder: &Path, host: &str, nic: &str) -> Option<Self> {
        let address = free_port();
        let rules = deploy().join("prometheus/uview-alerts.yaml");
        let job = |name: &str, path: &str, target: &str| {
            format!("  - job_name: {name}\n    metrics_path: {path}\n    static_configs: [{{targets: ['{target}']}}]\n")
        };
        let jobs =
            [job("host", "/metrics", host), job("lmaps", "/metrics/lmaps", host), job("nic", "/metrics", nic)].concat();
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{}']\nscrape_configs:\n{jobs}",
            rules.display()
        );
        let file = folder.join("prometheus.yml");
        std::fs::write(&file, config).unwrap();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
        command.arg(format!("--web.listen-address={address}")).stdout(Stdio::null()).stderr(Stdio::null());
        Some(Self { process: command.spawn().ok()?, address })
    }

    /// The body of what its API answers; `None` until it does.
    fn answer(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        // Without chunks: HTTP 1.0.
        write!(stream, "GET /api/v1/{path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer.split_once("\r\n\r\n")?.1.to_owned())
    }

    /// The data that its API answers with; `None` until it does.
    fn get(&self, path: &str) -> Option<Value> {
        let answer: Value = serde_json::from_str(&self.answer(path)?).ok()?;
        assert_ne!(answer["status"], "error", "{path}: {answer}");
        Some(answer["data"].clone())
    }

    /// Waits until it has scores of the LMAP of `service`, asked for as the live page does.
    #[expect(clippy::disallowed_methods, reason = "scores are of the present")]
    fn gives_scores(&self, service: &str) {
        let labels = [("job".to_owned(), "lmaps".to_owned())].into();
        let scores = eventually("scores of the past", || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            // The step that goes on, too: a page has it from its own history.
            let end = UnixNanos(now.as_nanos() as u64).plus(Nanos::from_secs(u64::from(Reach::Day.step())));
            let answer = self.answer(&format!("query_range?{}", older::query(service, &labels, Reach::Day, end)))?;
            Some(older::scores(answer.as_bytes(), Reach::Day).unwrap()).filter(|scores| !scores.is_empty())
        });
        assert!(scores.iter().all(|score| score.ratio >= 0.0), "{scores:?}");
    }

    /// Waits until `query` gives data.
    fn gives_data(&self, query: &str) {
        let encoded = query.bytes().fold(String::new(), |mut text, byte| {
            _ = write!(text, "%{byte:02x}");
            text
        });
        eventually(query, || {
            let data = self.get(&format!("query?query={encoded}"))?;
            data["result"].as_array().is_some_and(|series| !series.is_empty()).then_some(())
        });
    }
}

/// Queries of all panels, with values for Grafana's variables.
fn panels() -> Vec<String> {
    let files = std::fs::read_dir(deploy().join("grafana")).unwrap().map(|file| file.unwrap().path());
    let dashboards = files.map(|file| serde_json::from_slice::<Value>(&std::fs::read(file).unwrap()).unwrap());
    let queries = |dashboard: Value| {
        let panels = dashboard["panels"].as_array().unwrap().clone();
        let targets = panels.into_iter().filter_map(|panel| panel["targets"].as_array().cloned()).flatten();
        targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let with_values = |query: String| query.replace("$__rate_interval", "1m").replace("$instance", ".*");
    dashboards.flat_map(queries).map(with_values).collect()
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
    static BROKEN: AtomicBool = AtomicBool::new(false);
    let folder = tempfile::tempdir().unwrap();
    let (_agents, host, nic) = agents(folder.path());
    let Some(prometheus) = Prometheus::start(folder.path(), &host, &nic) else {
        // Not `println!`, which the test's harness swallows.
        return writeln!(std::io::stderr(), "NOT RUN: dashboards and alerts: it needs prometheus and promtool")
            .unwrap();
    };
    serve(folder.path().join("run/services.sock"), &BROKEN);
    let alerts = deploy().join("prometheus/uview-alerts.yaml");

    promtool(&["check", "rules", alerts.to_str().unwrap()], "");
    for address in [&host, &nic] {
        let text = eventually("the agent's metrics", || page(address));
        let (_, metrics) = text.split_once("\r\n\r\n").unwrap();
        promtool(&["check", "metrics"], &as_text(metrics));
    }
    for query in panels() {
        prometheus.gives_data(&query);
    }
    prometheus.gives_scores("payment");
    let rules = eventually("all rules are evaluated", || {
        let groups = prometheus.get("rules")?;
        let rules = groups["groups"][0]["rules"].as_array()?.clone();
        rules.iter().all(|rule| rule["health"] == "ok").then_some(rules)
    });
    assert!(rules.len() > 10, "{rules:#?}");
    for rule in rules {
        // A healthy node has nothing above the limit: what is compared has to be there.
        let query = rule["query"].as_str().unwrap();
        let (compared, _) = query.rsplit_once(" == ").or_else(|| query.rsplit_once(" > ")).unwrap();
        prometheus.gives_data(compared);
    }
}
