//! What views of the live page ask for while somebody looks: budgets of the node's agents, other nodes, requests on the
//! map, scores and alarms of a Prometheus.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use prost::Message as _;
use region::OwnedRegion;
use serde_json::{Value, json};
use support::otlp::traces;
use wire::proto::control::worker_message::Message as FromWorker;
use wire::proto::control::{MemoryAccount, MemoryRow, MemoryUse, Summary};

use crate::agent::{Agent, WAIT};
use crate::coherence;
use crate::live_page::Browser;
use crate::otlp::{self, upstream};
use crate::reload::replace;
use crate::service::Service;
use crate::worker::Worker;

/// What is at `path`, if it is JSON.
fn document(browser: &Browser, path: &str) -> Value {
    serde_json::from_str(&browser.get(path).1).unwrap_or(Value::Null)
}

/// The row of the host agent's budget whose name begins so.
fn row<'a>(node: &'a Value, what: &str) -> Option<&'a Value> {
    node["budget"]["rows"].as_array()?.iter().find(|row| row["what"].as_str().is_some_and(|of| of.starts_with(what)))
}

#[test]
fn the_node_view_says_what_is_kept_of_what_may_be_and_what_was_refused() {
    let limits = "services: {limits: {series: 4}}\n";
    let agent = Agent::with(&format!("process_metrics: {{enabled: false}}\n{limits}"));
    let browser = Browser::open(&agent);
    let (_service, _region) = Service::register(&agent, "payment", &["a", "b", "c", "d", "e"]);

    let node = WAIT.until("series that are refused", || {
        let node = document(&browser, "/api/node");
        let refused = row(&node, "series of services")?["metric"][1].as_u64()?;
        (refused > 0).then_some(node)
    });

    let series = row(&node, "series of services").unwrap();
    assert_eq!(series["metric"][0], "uview_host_refused_series");
    let used = &series["uses"][0];
    assert!((1..=4).contains(&used["used"].as_u64().unwrap()) && used["most"] == 4, "{series}");
    let connections = &row(&node, "connections of services").unwrap()["uses"];
    let found = connections.as_array().unwrap().iter().find(|of| of["what"] == "services").unwrap();
    assert_eq!(found["used"], 1, "{connections}");
    let page: Vec<_> = row(&node, "the page").unwrap()["uses"].as_array().unwrap().clone();
    assert!(page.iter().all(|of| of["most"] == 16 << 20) && page.len() == 2, "{page:?}");
    assert!(row(&node, "gossip").is_none(), "what is off is not there");
    assert_eq!(node["others"], Value::Null, "it is alone");
    assert!(node["budget"]["resident"].as_u64().unwrap() > 1 << 20, "{node}");
    assert_eq!(node["nics"], json!([]), "no NIC agent is connected");
}

#[test]
fn the_node_view_has_what_a_nic_agent_says_of_its_memory_until_it_is_gone() {
    let agent = Agent::with("process_metrics: {enabled: false}\n");
    let browser = Browser::open(&agent);
    let worker = Worker::connect(&agent, 4);
    let uses = vec![MemoryUse { what: "buffers".to_owned(), used: 5, most: 8, in_bytes: true }];
    let (what, full) = ("buffers of regions".to_owned(), "the LMAP is refused".to_owned());
    let metric = "uview_nic_buffer_bytes".to_owned();
    let row = MemoryRow { what, bytes: 8, full, uses, metric, value: 5 };
    let account = MemoryAccount { services: 600, columns: 100, rows: vec![row], resident_bytes: 0 };
    worker.send(FromWorker::Summary(Summary { account: Some(account), ..Summary::default() }));

    let nics = WAIT.until("an account", || {
        let nics = document(&browser, "/api/node")["nics"].clone();
        nics[0].is_object().then_some(nics)
    });

    let row = json!({
        "what": "buffers of regions", "bytes": 8, "full": "the LMAP is refused", "metric": ["uview_nic_buffer_bytes", 5],
        "uses": [{ "what": "buffers", "used": 5, "most": 8, "bytes": true }],
    });
    let budget = json!({ "services": 600, "columns": 100, "rows": [row], "total": 8, "resident": null });
    assert_eq!(nics, json!([{ "worker": 4, "budget": budget }]));
    drop(worker);
    WAIT.until("it to be gone", || (document(&browser, "/api/node")["nics"] == json!([])).then_some(()));
}

#[test]
fn the_node_view_names_other_nodes_and_those_that_do_not_answer() {
    let (upstream, _spans) = upstream();
    let at = coherence::free(&[81, 82, 83]);
    let (one, other) = (coherence::agent("one", at[0], &at, upstream), coherence::agent("two", at[1], &at, upstream));
    let browser = Browser::open(&one);

    let others = WAIT.until("the other node, and the address at which nobody is", || {
        let others = document(&browser, "/api/node")["others"].clone();
        let is_known = others[0]["contact"] == "live" && others[0]["addresses"] == json!([at[1].to_string()]);
        (is_known && others[1]["problem"].is_string()).then_some(others)
    });

    assert_eq!((&others[0]["name"], &others[0]["problem"]), (&json!("two"), &Value::Null));
    assert!(others[0]["silent"].as_u64().is_some(), "{others}");
    let nobody = &others[1];
    assert_eq!((&nobody["name"], &nobody["addresses"]), (&Value::Null, &json!([at[2].to_string()])));
    assert_eq!(others.as_array().unwrap().len(), 2, "this node is not among them: {others}");
    let node = document(&browser, "/api/node");
    assert_eq!(row(&node, "gossip").unwrap()["uses"][0]["what"], "entries");
    drop(other.stop());
    WAIT.until("the other node to be gone", || {
        let others = document(&browser, "/api/node")["others"].clone();
        (others[0]["contact"] == "not heard" && others[0]["problem"].is_string()).then_some(())
    });
}

#[test]
fn requests_that_are_no_columns_are_counted_for_the_map_and_for_metrics() {
    let (upstream, _spans) = upstream();
    let agent = Agent::with(&format!(
        "process_metrics: {{enabled: false}}\notlp:\n  upstream: {{endpoint: 'http://{upstream}', protocol: http}}\n  \
         listen_grpc: 127.0.0.1:0\n  listen_http: 127.0.0.1:0\n  derived: {{delay_ms: 0, columns: false}}\n"
    ));
    let browser = Browser::open(&agent);
    let sent = traces("payment", vec![otlp::span(1, 1, &[], "POST /pay")]).encode_to_vec();

    assert_eq!(otlp::send(agent.at.otlp[1], &sent), "HTTP/1.1 200 OK");

    WAIT.until("the request on the map", || {
        let map = document(&browser, "/api/map");
        (map["counted"] == true && map["operations"][0]["name"] == "POST /pay").then_some(())
    });
    assert!(agent.get("/metrics").1.contains("span_name=\"POST /pay\""));
    assert!(agent.status().lmaps.is_empty(), "no LMAP sees it");
}

/// A Prometheus that answers each request with the next text that a test sends, and keeps heads of requests.
struct Prometheus {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    answers: Sender<String>,
}

impl Prometheus {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, heads) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default());
        let (answers, next) = channel();
        let (into, next) = (Arc::clone(&heads), Arc::new(Mutex::new(next)));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (into, next) = (Arc::clone(&into), Arc::clone(&next));
                std::thread::spawn(move || answer_all(stream, &into, &next));
            }
        });
        Self { address, heads, answers }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Answers the next request with this body.
    fn answer(&self, status: &str, body: &str) {
        let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}", body.len());
        self.answers.send(format!("{head}\r\n\r\n{body}")).unwrap();
    }
}

fn answer_all(stream: TcpStream, into: &Mutex<Vec<String>>, answers: &Mutex<Receiver<String>>) -> Option<()> {
    let mut writer = stream.try_clone().ok()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        into.lock().unwrap_or_else(PoisonError::into_inner).push(head);
        let answer = answers.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()?;
        writer.write_all(answer.as_bytes()).ok()?;
    }
}

/// An agent that asks `prometheus`, and the LMAP of its only service.
fn asking(prometheus: &Prometheus) -> (Agent, (Service, OwnedRegion), u32) {
    asking_with(prometheus, "headers: {Authorization: s3cret}")
}

/// The same with these headers.
fn asking_with(prometheus: &Prometheus, headers: &str) -> (Agent, (Service, OwnedRegion), u32) {
    let agent = Agent::with(&format!(
        "process_metrics: {{enabled: false}}\npage: {{prometheus: {{url: 'http://{}/prom', \
         labels: {{instance: 'node-3:9702'}}, {headers}}}}}\n",
        prometheus.address
    ));
    let service = Service::register(&agent, "payment", &["requests"]);
    let lmap = WAIT.until("an LMAP", || agent.status().lmaps.first().map(|lmap| lmap.lmap));
    (agent, service, lmap)
}

#[test]
fn scores_and_alarms_before_this_run_come_from_a_prometheus_and_all_viewers_together_ask_it_once() {
    let prometheus = Prometheus::start();
    let (agent, _service, lmap) = asking(&prometheus);
    let browser = Browser::open(&agent);
    let path = format!("/api/older/{lmap}/86400");
    WAIT.until("the service on the page", || document(&browser, &format!("/api/service/{lmap}"))["older"].as_bool());
    assert!(prometheus.heads().is_empty(), "nobody has looked yet");

    let found: Vec<_> = std::thread::scope(|scope| {
        let viewers: Vec<_> = (0..3).map(|_| scope.spawn(|| document(&browser, &path))).collect();
        WAIT.until("a request", || (!prometheus.heads().is_empty()).then_some(()));
        prometheus.answer(
            "200 OK",
            r#"{"status":"success","data":{"resultType":"matrix","result":[
                {"metric":{"of":"score"},"values":[[1700000040,"0.5"],[1700000160,"31.25"]]},
                {"metric":{"of":"alarm"},"values":[[1700000040,"0"],[1700000160,"1"]]}]}}"#,
        );
        viewers.into_iter().map(|viewer| viewer.join().unwrap()).collect()
    });

    let expected = json!({
        "step": 120, "scores": [[1_699_999_920_u32, 0.5], [1_700_000_040_u32, 31.25]],
        "alarms": [[1_700_000_040_u32, 1_700_000_160_u32, 31.25]], "error": null,
    });
    assert_eq!(found, [expected.clone(), expected.clone(), expected.clone()]);
    assert_eq!(document(&browser, &path), expected, "it is not asked again for a step");
    let heads = prometheus.heads();
    assert_eq!(heads.len(), 1, "{heads:?}");
    let lines = heads[0].to_ascii_lowercase();
    assert!(lines.starts_with(
        "get /prom/api/v1/query_range?query=label_replace%28max%28max_over_time%28uview_lmap_score_ratio%7b"
    ));
    let labels = "lmap%3d%22payment%22%2cinstance%3d%22node-3%3a9702%22";
    assert!(lines.contains(labels) && lines.contains("\r\nauthorization: s3cret\r\n"), "{lines}");
    // A week is asked for by itself, over the same connection.
    prometheus.answer("200 OK", r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#);
    let week = document(&browser, &format!("/api/older/{lmap}/604800"));
    assert_eq!(week, json!({ "step": 900, "scores": [], "alarms": [], "error": null }));
}

#[test]
fn a_prometheus_is_shown_the_key_that_is_in_the_file_by_now() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    replace(&key, "one\n");
    let prometheus = Prometheus::start();
    let headers = format!("header_files: {{authorization: '{}'}}", key.display());
    let (agent, _service, lmap) = asking_with(&prometheus, &headers);
    let browser = Browser::open(&agent);
    WAIT.until("the service on the page", || document(&browser, &format!("/api/service/{lmap}"))["older"].as_bool());
    let shown = |reach: u32, key: &str| {
        prometheus.answer("200 OK", r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#);
        assert_eq!(document(&browser, &format!("/api/older/{lmap}/{reach}"))["error"], Value::Null);
        let heads = prometheus.heads();
        assert!(heads.last().unwrap().contains(&format!("\r\nauthorization: {key}\r\n")), "{heads:?}");
    };

    shown(86_400, "one");
    replace(&key, "two\n");
    WAIT.until("the other key", || agent.get("/metrics").1.contains("uview_host_reloads_total 1\n"));

    shown(604_800, "two");
}

#[test]
fn what_is_wrong_with_a_prometheus_is_said_on_the_page() {
    let long = format!(r#"{{"status":"success","data":{{"result":[]}},"more":"{}"}}"#, "x".repeat(300_000));
    for (status, body, says) in [
        ("503 Service Unavailable", "", "HTTP status 503"),
        ("302 Found", "", "HTTP status 302"),
        ("200 OK", &long, "its body is longer than 262144 bytes"),
        ("200 OK", "<html>", "its answer is not that of /api/v1/query_range"),
        ("200 OK", r#"{"status":"error","error":"too\nmany"}"#, "it says: too\\u{a}many"),
    ] {
        let prometheus = Prometheus::start();
        let (agent, _service, lmap) = asking(&prometheus);
        let browser = Browser::open(&agent);
        let path = format!("/api/older/{lmap}/86400");
        WAIT.until("the service on the page", || {
            document(&browser, &format!("/api/service/{lmap}"))["older"].as_bool()
        });
        prometheus.answer(status, body);

        let document = document(&browser, &path);

        assert!(document["error"].as_str().is_some_and(|error| error.starts_with(says)), "{says}: {document}");
        assert_eq!(document["scores"], json!([]));
    }
}

#[test]
fn without_a_prometheus_nobody_is_asked() {
    let agent = Agent::start();
    let browser = Browser::open(&agent);
    let (_service, _region) = Service::register(&agent, "payment", &["requests"]);
    let lmap = WAIT.until("an LMAP", || agent.status().lmaps.first().map(|lmap| lmap.lmap));
    let older = WAIT
        .until("the service on the page", || document(&browser, &format!("/api/service/{lmap}"))["older"].as_bool());

    let (head, _) = browser.get(&format!("/api/older/{lmap}/86400"));

    assert!(!older && head.starts_with("http/1.1 404"), "{head}");
}
