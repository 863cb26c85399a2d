//! `uview check` names services that sample at the head: they count more requests than they send entry spans.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_runtime::clock::unix_now;
use serde_json::{Value, json};
use support::http;

use crate::{ANY, Agent, WAIT, addresses, free_port};

/// Requests of each service per [`BEAT`].
const REQUESTS: u64 = 20;
const BEAT: Duration = Duration::from_millis(100);

/// Sends `spans` entry spans of `service` to `address`. Returns whether they were accepted.
fn send(address: &str, service: &str, first: u64, spans: u64) -> bool {
    let now = unix_now().0;
    let span = |number: u64| {
        json!({"traceId": format!("{:032x}", u128::from(first + number) + 1), "spanId": "0000000000000001", "name": "GET", "kind": 2,
               "startTimeUnixNano": (now - 1_000_000).to_string(), "endTimeUnixNano": now.to_string()})
    };
    let spans: Vec<Value> = (0..spans).map(span).collect();
    let name = json!({"key": "service.name", "value": {"stringValue": service}});
    let request =
        json!({"resourceSpans": [{"resource": {"attributes": [name]}, "scopeSpans": [{"spans": spans}]}]}).to_string();
    http::post(address, "/v1/traces", "application/json", request.as_bytes()).is_ok_and(|response| response.is_ok())
}

/// A service that counts its requests and records every `every`th, until `ended`.
fn serve(name: &'static str, every: u64, socket: std::path::PathBuf, otlp: String, ended: &'static AtomicBool) {
    std::thread::spawn(move || {
        let uview = client::connect(client::Service::new(name).instance(name).socket(socket));
        let requests = uview.counter("http.server.requests").label("route", "/").unit("{request}").register();
        let mut served = 0;
        while !ended.load(Ordering::Relaxed) {
            let recorded = (served + REQUESTS) / every - served / every;
            if recorded == 0 || send(&otlp, name, served / every, recorded) {
                requests.add(REQUESTS);
                served += REQUESTS;
            }
            std::thread::sleep(BEAT);
        }
    });
}

#[test]
fn check_names_a_service_that_records_one_request_in_a_hundred_and_its_share() {
    static ENDED: AtomicBool = AtomicBool::new(false);
    let folder = tempfile::tempdir().unwrap();
    let (run, otlp) = (folder.path().join("run"), free_port());
    let (host_config, nic_config) = (folder.path().join("host.yaml"), folder.path().join("nic.yaml"));
    let text = format!(
        "runtime_dir: {}\nmetrics: {ANY}\notlp: {{upstream: {{endpoint: 'http://127.0.0.1:1'}}, \
         listen_grpc: 127.0.0.1:0, listen_http: '{otlp}', derived: {{delay_ms: 500}}, traces: {{keep: tail}}}}\n",
        run.display()
    );
    std::fs::write(&host_config, text).unwrap();
    let _host = Agent::start("host-agent", &host_config);
    let ready = addresses(&run);
    let (control, regions) = (ready["control"].as_str().unwrap(), ready["regions"].as_str().unwrap());
    let text = format!("control: {{address: '{control}'}}\nregions_socket: {regions}\nmetrics: {ANY}\n");
    std::fs::write(&nic_config, text).unwrap();
    let _nic = Agent::start("nic-agent", &nic_config);
    for (name, every) in [("payment", 100), ("cart", 1)] {
        serve(name, every, run.join("services.sock"), otlp.to_string(), &ENDED);
    }

    let check = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
        let output = command.args(["check", "--json"]).env("UVIEW_RUNTIME_DIR", &run).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let found =
            report["findings"].as_array().unwrap().iter().find(|finding| finding["name"] == "head sampling")?.clone();
        // Not before both services are watched and send rows.
        found["found"].as_str().unwrap().contains("payment").then_some(found)
    };
    let found = WAIT.until("payment is named", check);
    ENDED.store(true, Ordering::Relaxed);

    let text = found["found"].as_str().unwrap();
    // Spans arrive after the requests that they are of: at 2,000 requests, one or two of twenty are on their way.
    let percent =
        text.split_once("the SDK samples about ").and_then(|(_, share)| share.split(' ').next()?.parse().ok());
    assert!(percent.is_some_and(|percent: f64| (0.7..1.3).contains(&percent)), "{text}");
    assert!(!text.contains("cart"), "{text}");
    assert!(found["level"] == "missing" && found["fix"].as_str().unwrap().contains("always_on"), "{found}");
}
