//! A service that only exports OTLP metrics is watched: its metrics pass on to the upstream byte for byte, series are
//! chosen, and the LMAP of the service names the one that jumps.

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_runtime::clock::unix_now;
use serde_json::{Value, json};
use support::http::HttpMessage;

use crate::{ANY, Agent, WAIT, addresses, ask};

/// Time between two exports.
const EVERY: Duration = Duration::from_millis(100);
/// Bodies that are compared.
const COMPARED: usize = 50;

type Bodies = Arc<Mutex<Vec<String>>>;

/// Noise in 0 to `below`, by splitmix64.
pub fn noise(seed: u64, below: u64) -> u64 {
    let mut mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 27)) % below
}

/// A Collector that keeps the bodies that it gets.
fn upstream() -> (SocketAddr, Bodies) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, bodies) = (listener.local_addr().unwrap(), Bodies::default());
    let kept = Arc::clone(&bodies);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let kept = Arc::clone(&kept);
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                while let Some(HttpMessage { body, .. }) = HttpMessage::read(&mut reader) {
                    kept.lock().unwrap().push(String::from_utf8(body).unwrap());
                    let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, bodies)
}

/// A service with a counter of each temporality, gauges, and histograms of both kinds.
struct Service {
    exports: u64,
    requests: u64,
    errors: u64,
    durations: [u64; 4],
    sum: f64,
}

impl Service {
    /// The next export. `is_slow`: requests take ten times as long.
    fn export(&mut self, is_slow: bool) -> String {
        self.exports += 1;
        let (at, now) = (self.exports, unix_now().0);
        let requests = 100 + noise(at, 20);
        self.requests += requests;
        self.errors += noise(at + 7, 3);
        let (bucket, each) = if is_slow { (2, 0.4) } else { (0, 0.04) };
        self.durations[bucket] += requests;
        self.sum += requests as f64 * (each + noise(at + 9, 100) as f64 / 20_000.0);
        let point = |mut fields: Value| {
            fields["startTimeUnixNano"] = json!("1000");
            fields["timeUnixNano"] = json!(now.to_string());
            fields
        };
        let method = json!([{"key": "http.request.method", "value": {"stringValue": "POST"}}]);
        let queues = (0..5_u64).map(|queue| {
            let attributes = json!([{"key": "queue", "value": {"intValue": queue.to_string()}}]);
            point(json!({"asInt": (20 + noise(at * 10 + queue, 10)).to_string(), "attributes": attributes}))
        });
        let counts: Vec<_> = self.durations.iter().map(ToString::to_string).collect();
        let small: Vec<_> = (0..8_u64).map(|bucket| noise(at * 100 + bucket, 9).to_string()).collect();
        let metrics = json!([
            {"name": "http.server.requests", "unit": "{request}", "sum": {"aggregationTemporality": 2,
                "isMonotonic": true, "dataPoints": [point(json!({"asInt": self.requests.to_string(),
                "attributes": method}))]}},
            {"name": "http.server.errors", "sum": {"aggregationTemporality": 2, "isMonotonic": true,
                "dataPoints": [point(json!({"asInt": self.errors.to_string()}))]}},
            {"name": "jobs.done", "sum": {"aggregationTemporality": 1, "isMonotonic": true,
                "dataPoints": [point(json!({"asInt": (5 + noise(at + 1, 5)).to_string()}))]}},
            {"name": "queue.depth", "gauge": {"dataPoints": queues.collect::<Vec<_>>()}},
            {"name": "http.server.request.duration", "unit": "s", "histogram": {"aggregationTemporality": 2,
                "dataPoints": [point(json!({"count": self.requests.to_string(), "sum": self.sum,
                "explicitBounds": [0.1, 0.2, 1.0], "bucketCounts": counts, "attributes": method}))]}},
            {"name": "payload.size", "unit": "By", "exponentialHistogram": {"aggregationTemporality": 1,
                "dataPoints": [point(json!({"count": "20", "sum": 9000.0, "scale": 3, "zeroCount": "0",
                "positive": {"offset": 60, "bucketCounts": small}}))]}},
        ]);
        let resource = json!({"attributes": [{"key": "service.name", "value": {"stringValue": "payment"}},
            {"key": "service.instance.id", "value": {"stringValue": "payment-1"}}]});
        json!({"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"metrics": metrics}]}]}).to_string()
    }
}

/// Exports until `ends`.
fn service(address: &str, sent: &Bodies, is_slow: &AtomicBool, ends: &AtomicBool) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut service = Service { exports: 0, requests: 0, errors: 0, durations: [0; 4], sum: 0.0 };
    while !ends.load(Ordering::Relaxed) {
        let body = service.export(is_slow.load(Ordering::Relaxed));
        let head = format!(
            "POST /v1/metrics HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        sent.lock().unwrap().push(body);
        HttpMessage::read(&mut reader).ok_or(std::io::ErrorKind::UnexpectedEof)?;
        std::thread::sleep(EVERY);
    }
    Ok(())
}

/// The LMAP of the service.
fn lmap(runtime_dir: &Path) -> Option<Value> {
    crate::lmap(runtime_dir, "payment")
}

/// The alarm whose reasons name `metric`.
fn alarm(runtime_dir: &Path, metric: &str) -> Option<Value> {
    crate::alarm(runtime_dir, "payment", metric)
}

#[test]
fn a_service_that_only_exports_otlp_metrics_is_watched_and_its_slowness_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let (host_config, nic_config) = (folder.path().join("host.yaml"), folder.path().join("nic.yaml"));
    let (collector, came) = upstream();
    let text = format!(
        "runtime_dir: {}\nmetrics: {ANY}\nlmap: {{interval_ms: 100}}\n\
         otlp: {{upstream: {{endpoint: 'http://{collector}', protocol: http}}, listen_grpc: 127.0.0.1:0, \
         listen_http: 127.0.0.1:0}}\n",
        run.display()
    );
    std::fs::write(&host_config, text).unwrap();
    let _host = Agent::start("host-agent", &host_config);
    let ready = addresses(&run);
    let (control, regions) = (ready["control"].as_str().unwrap(), ready["regions"].as_str().unwrap());
    let text = format!("control: {{address: '{control}'}}\nregions_socket: {regions}\nmetrics: {ANY}\n");
    std::fs::write(&nic_config, text).unwrap();
    let _nic = Agent::start("nic-agent", &nic_config);
    let endpoint = ready["otlp"][1].as_str().unwrap().to_owned();
    let (sent, is_slow, ends) = (Bodies::default(), AtomicBool::new(false), AtomicBool::new(false));

    std::thread::scope(|threads| {
        threads.spawn(|| service(&endpoint, &sent, &is_slow, &ends));
        let ended = End(&ends);
        WAIT.until("the LMAP is armed", || lmap(&run).filter(|lmap| lmap["state"] == "armed"));
        let sources = ask(&run, &["sources"]).unwrap();
        let payment = &sources[0];
        assert_eq!((&payment["url"], &payment["state"]), (&"otlp:payment-1".into(), &"watching".into()), "{payment}");
        let families = payment["families"].as_array().unwrap();
        let family = |family: &str| families.iter().find(|of| of["name"] == family).unwrap();
        let watched = |name: &str| family(name)["watched"].as_u64().unwrap();
        assert_eq!(family("http.server.requests")["why"], "as http.server.request.duration");
        for (family, count) in [
            ("http.server.errors", 1),
            ("jobs.done", 1),
            ("queue.depth", 5),
            ("http.server.request.duration", 1),
            ("payload.size", 1),
        ] {
            assert_eq!(watched(family), count, "{family}: {payment}");
        }

        is_slow.store(true, Ordering::Relaxed);
        WAIT.until("the alarm names the duration", || alarm(&run, "http.server.request.duration"));
        drop(ended);
    });

    let compared = || Some(came.lock().unwrap().iter().take(COMPARED).cloned().collect::<Vec<_>>());
    let mut came = WAIT.until("the upstream has them", || compared().filter(|came| came.len() == COMPARED));
    // Several connections lead to the upstream.
    came.sort();
    let sent = sent.lock().unwrap();
    assert!(came.iter().all(|body| sent.contains(body)), "they pass on byte for byte");
}

/// Ends the service also if the test fails.
struct End<'e>(&'e AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
