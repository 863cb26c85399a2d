//! A real Prometheus that scrapes running agents and evaluates the alerts of `deploy`, and the queries of its
//! dashboards.
#![expect(clippy::unwrap_used, reason = "what a test prepares has to work, or the test fails")]

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::wait::Wait;
use crate::workspace;

/// How long it may take to have data: five minutes, for busy machines.
const WAIT: Wait = Wait::up_to(Duration::from_mins(5)).pausing(Duration::from_millis(100));

/// The rules of `deploy`.
#[must_use]
pub fn alerts() -> PathBuf {
    workspace().join("deploy/prometheus/uview-alerts.yaml")
}

/// Queries of all panels of `deploy`, with values for Grafana's variables.
#[must_use]
pub fn panels() -> Vec<String> {
    let files = fs::read_dir(workspace().join("deploy/grafana")).unwrap().map(|file| file.unwrap().path());
    let dashboards = files.map(|file| serde_json::from_slice::<Value>(&fs::read(file).unwrap()).unwrap());
    let queries = |dashboard: Value| {
        let panels = dashboard["panels"].as_array().unwrap().clone();
        let targets = panels.into_iter().filter_map(|panel| panel["targets"].as_array().cloned()).flatten();
        targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let with_values = |query: String| query.replace("$__rate_interval", "1m").replace("$instance", ".*");
    dashboards.flat_map(queries).map(with_values).collect()
}

/// A Prometheus, ended with its test.
#[derive(Debug)]
pub struct Prometheus {
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
    /// Scrapes the `host` and the `nic` agent each second, and evaluates the [alerts]; its files are in `folder`.
    /// `None` where there is no such program.
    #[must_use]
    pub fn start(folder: &Path, host: &str, nic: &str) -> Option<Self> {
        let address = TcpListener::bind("127.0.0.9:0").unwrap().local_addr().unwrap();
        let job = |name: &str, path: &str, target: &str| {
            format!("  - job_name: {name}\n    metrics_path: {path}\n    static_configs: [{{targets: ['{target}']}}]\n")
        };
        let jobs =
            [job("host", "/metrics", host), job("lmaps", "/metrics/lmaps", host), job("nic", "/metrics", nic)].concat();
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{}']\nscrape_configs:\n{jobs}",
            alerts().display()
        );
        let file = folder.join("prometheus.yml");
        fs::write(&file, config).unwrap();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
        command.arg(format!("--web.listen-address={address}")).stdout(Stdio::null()).stderr(Stdio::null());
        Some(Self { process: command.spawn().ok()?, address })
    }

    /// The body of what its API answers; `None` until it does.
    #[must_use]
    pub fn answer(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        // Without chunks: HTTP 1.0.
        write!(stream, "GET /api/v1/{path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer.split_once("\r\n\r\n")?.1.to_owned())
    }

    /// The data that its API answers with; `None` until it does.
    ///
    /// # Panics
    ///
    /// It answers with an error.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<Value> {
        let answer: Value = serde_json::from_str(&self.answer(path)?).ok()?;
        assert_ne!(answer["status"], "error", "{path}: {answer}");
        Some(answer["data"].clone())
    }

    /// Alerts that fire, each with its LMAP.
    #[must_use]
    pub fn firing(&self) -> Vec<(String, String)> {
        self.alerts(&["firing"])
    }

    /// Alerts that fire, or will if what they are about lasts, each with its LMAP.
    #[must_use]
    pub fn active(&self) -> Vec<(String, String)> {
        self.alerts(&["pending", "firing"])
    }

    fn alerts(&self, states: &[&str]) -> Vec<(String, String)> {
        let alerts = self.get("alerts").map(|data| data["alerts"].clone()).unwrap_or_default();
        let has_state = |alert: &&Value| alert["state"].as_str().is_some_and(|state| states.contains(&state));
        let label = |alert: &Value, name: &str| alert["labels"][name].as_str().unwrap_or_default().to_owned();
        let wanted = alerts.as_array().into_iter().flatten().filter(has_state);
        wanted.map(|alert| (label(alert, "alertname"), label(alert, "lmap"))).collect()
    }

    /// Waits until `query` gives data.
    #[track_caller]
    pub fn gives_data(&self, query: &str) {
        let encoded = query.bytes().fold(String::new(), |mut text, byte| {
            _ = write!(text, "%{byte:02x}");
            text
        });
        WAIT.until(query, || {
            let data = self.get(&format!("query?query={encoded}"))?;
            data["result"].as_array().is_some_and(|series| !series.is_empty()).then_some(())
        });
    }

    /// Waits until all rules are evaluated, and what each compares gives data, if `is_judged` says so of it: a healthy
    /// node has nothing above a limit.
    ///
    /// # Panics
    ///
    /// There are not more than ten, or one compares nothing.
    #[track_caller]
    pub fn gives_data_to_rules(&self, is_judged: impl Fn(&str) -> bool) {
        let rules = WAIT.until("all rules are evaluated", || {
            let groups = self.get("rules")?;
            let rules = groups["groups"][0]["rules"].as_array()?.clone();
            rules.iter().all(|rule| rule["health"] == "ok").then_some(rules)
        });
        assert!(rules.len() > 10, "{rules:#?}");
        for rule in rules {
            let query = rule["query"].as_str().unwrap();
            let (compared, _) = query.rsplit_once(" == ").or_else(|| query.rsplit_once(" > ")).unwrap();
            if is_judged(compared) {
                self.gives_data(compared);
            }
        }
    }
}
