//! `docs/metrics.md` lists exactly the metrics that both agents export: names, types, labels and help texts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use support::http;

use crate::{ANY, Agent, WAIT, addresses, free_port};

/// The metrics page at an address; `None` until it is complete.
pub fn page(address: &str) -> Option<String> {
    page_at(address, "/metrics")
}

/// As [`page`], one with another path.
pub fn page_at(address: &str, path: &str) -> Option<String> {
    let page = http::get(address, path).ok()?.text().ok()?;
    page.ends_with("# EOF\n").then_some(page)
}

/// Remote monitors that do not exist.
const REMOTE: &str =
    "remote_write: {url: 'http://127.0.0.1:1'}\notlp_metrics: {upstream: {endpoint: 'http://127.0.0.1:1'}}\n";

/// An OTLP endpoint that buffers spans, which has the most metrics.
const OTLP: &str = concat!(
    "otlp: {upstream: {endpoint: 'http://127.0.0.1:1'}, listen_grpc: 127.0.0.1:0, listen_http: 127.0.0.1:0, ",
    "traces: {keep: tail, order_key: 00112233445566778899aabbccddeeff}, logs: {keep: tail}}\n",
    // A peer that does not exist.
    "coherence: {peers: ['127.0.0.1:1'], listen: 127.0.0.1:0, insecure: true}\n",
);

/// The rows of the list for the metrics of `page`: `| name{labels} | type | help |`.
fn rows(page: &str) -> BTreeSet<String> {
    let mut labels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, rest) in page.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('{')) {
        let pairs = rest.split_once('}').unwrap().0.split(',').filter_map(|pair| pair.split_once('='));
        let name = name.trim_end_matches("_total").trim_end_matches("_info");
        labels.entry(name).or_default().extend(pairs.map(|(key, _)| key));
    }
    let mut help = BTreeMap::new();
    let mut rows = BTreeSet::new();
    for line in page.lines() {
        if let Some((name, text)) = line.strip_prefix("# HELP ").and_then(|line| line.split_once(' ')) {
            help.insert(name, text);
        }
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' ')) {
            let keys: Vec<_> = labels.get(name).into_iter().flatten().copied().collect();
            let keys = if keys.is_empty() { String::new() } else { format!("{{{}}}", keys.join(",")) };
            rows.insert(format!("| `{name}{keys}` | {kind} | {} |", help[name]));
        }
    }
    rows
}

/// Both agents with all that they can export, and the addresses of their metrics.
pub fn agents(folder: &Path) -> ([Agent; 2], String, String) {
    let (run, metrics) = (folder.join("run"), free_port().to_string());
    let (host_config, nic_config) = (folder.join("host.yaml"), folder.join("nic.yaml"));
    let text = format!("runtime_dir: {}\nmetrics: {ANY}\nlmap: {{interval_ms: 20}}\n{OTLP}{REMOTE}", run.display());
    std::fs::write(&host_config, text).unwrap();
    let host = Agent::start("host-agent", &host_config);
    let ready = addresses(&run);
    let (control, regions) = (ready["control"].as_str().unwrap(), ready["regions"].as_str().unwrap());
    // Metrics of an interface need a stream on it; it need not be readable.
    let text = format!(
        "control: {{address: '{control}'}}\nregions_socket: {regions}\nmetrics: {{listen: '{metrics}'}}\n\
         network: {{streams: [{{name: metrics, interface: lo, pair: dns}}]}}\n"
    );
    std::fs::write(&nic_config, text).unwrap();
    let nic = Agent::start("nic-agent", &nic_config);
    ([host, nic], ready["metrics"].as_str().unwrap().to_owned(), metrics)
}

#[test]
fn the_documented_metrics_are_those_that_both_agents_export() {
    let folder = tempfile::tempdir().unwrap();
    let (_agents, host, nic) = agents(folder.path());

    // The transport is known after the welcome.
    let nic = WAIT.until("the worker's page", || page(&nic).filter(|page| page.contains("uview_nic_transport_info")));
    let host = WAIT.until("the host agent's page", || page(&host));

    let exported: BTreeSet<String> = rows(&host).into_iter().chain(rows(&nic)).collect();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let text = std::fs::read_to_string(file).unwrap();
    let documented: BTreeSet<String> =
        text.lines().filter(|line| line.starts_with("| `uview_")).map(Into::into).collect();
    let missing: Vec<_> = exported.difference(&documented).cloned().collect();
    let obsolete: Vec<_> = documented.difference(&exported).cloned().collect();
    assert!(missing.is_empty(), "docs/metrics.md lacks these rows:\n{}", missing.join("\n"));
    assert!(obsolete.is_empty(), "docs/metrics.md has rows that no agent exports:\n{}", obsolete.join("\n"));
    assert!(exported.len() > 60, "{} rows", exported.len());
}
