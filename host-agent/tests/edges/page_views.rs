//! What views of the live page ask for while somebody looks: the node's budget, other nodes, scores of a Prometheus.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use region::OwnedRegion;
use serde_json::{Value, json};

use crate::agent::{Agent, wait_for};
use crate::coherence;
use crate::live_page::Browser;
use crate::otlp::upstream;
use crate::service::Service;

/// What is at `path`, if it is JSON.
fn document(browser: &Browser, path: &str) -> Value {
    serde_json::from_str(&browser.get(path).1).unwrap_or(Value::Null)
}

/// The row of the budget whose name begins so.
fn row<'a>(node: &'a Value, what: &str) -> Option<&'a Value> {
    node["rows"].as_array()?.iter().find(|row| row["what"].as_str().is_some_and(|of| of.starts_with(what)))
}

#[test]
fn the_node_view_says_what_is_kept_of_what_may_be_and_what_was_refused() {
    let limits = "services: {limits: {series: 4}}\n";
    let agent = Agent::with(&format!("process_metrics: {{enabled: false}}\n{limits}"));
    let browser = Browser::open(&agent);
    let (_service, _region) = Service::register(&agent, "payment", &["a", "b", "c", "d", "e"]);

    let node = wait_for("series that are refused", || {
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
    assert!(node["resident"].as_u64().unwrap() > 1 << 20, "{node}");
}

#[test]
fn the_node_view_names_other_nodes_and_those_that_do_not_answer() {
    let (upstream, _spans) = upstream();
    let at = coherence::free(&[81, 82, 83]);
    let (one, other) = (coherence::agent("one", at[0], &at, upstream), coherence::agent("two", at[1], &at, upstream));
    let browser = Browser::open(&one);

    let others = wait_for("the other node, and the address at which nobody is", || {
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
    wait_for("the other node to be gone", || {
        let others = document(&browser, "/api/node")["others"].clone();
        (others[0]["contact"] == "not heard" && others[0]["problem"].is_string()).then_some(())
    });
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
    let agent = Agent::with(&format!(
        "process_metrics: {{enabled: false}}\npage: {{prometheus: {{url: 'http://{}/prom', \
         labels: {{instance: 'node-3:9702'}}, headers: {{Authorization: s3cret}}}}}}\n",
        prometheus.address
    ));
    let service = Service::register(&agent, "payment", &["requests"]);
    let lmap = wait_for("an LMAP", || agent.status().lmaps.first().map(|lmap| lmap.lmap));
    (agent, service, lmap)
}

#[test]
fn scores_before_this_run_come_from_a_prometheus_and_all_viewers_together_ask_it_once() {
    let prometheus = Prometheus::start();
    let (agent, _service, lmap) = asking(&prometheus);
    let browser = Browser::open(&agent);
    let path = format!("/api/older/{lmap}/86400");
    wait_for("the service on the page", || document(&browser, &format!("/api/service/{lmap}"))["older"].as_bool());
    assert!(prometheus.heads().is_empty(), "nobody has looked yet");

    let found: Vec<_> = std::thread::scope(|scope| {
        let viewers: Vec<_> = (0..3).map(|_| scope.spawn(|| document(&browser, &path))).collect();
        wait_for("a request", || (!prometheus.heads().is_empty()).then_some(()));
        prometheus.answer(
            "200 OK",
            r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1700000040,"0.5"],[1700000160,"31.25"]]}]}}"#,
        );
        viewers.into_iter().map(|viewer| viewer.join().unwrap()).collect()
    });

    let expected =
        json!({ "step": 120, "scores": [[1_699_999_920_u32, 0.5], [1_700_000_040_u32, 31.25]], "error": null });
    assert_eq!(found, [expected.clone(), expected.clone(), expected.clone()]);
    assert_eq!(document(&browser, &path), expected, "it is not asked again for a step");
    let heads = prometheus.heads();
    assert_eq!(heads.len(), 1, "{heads:?}");
    let lines = heads[0].to_ascii_lowercase();
    assert!(lines.starts_with("get /prom/api/v1/query_range?query=max%28max_over_time%28uview_lmap_score_ratio%7b"));
    let labels = "lmap%3d%22payment%22%2cinstance%3d%22node-3%3a9702%22";
    assert!(lines.contains(labels) && lines.contains("\r\nauthorization: s3cret\r\n"), "{lines}");
    // A week is asked for by itself, over the same connection.
    prometheus.answer("200 OK", r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#);
    let week = document(&browser, &format!("/api/older/{lmap}/604800"));
    assert_eq!(week, json!({ "step": 900, "scores": [], "error": null }));
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
        wait_for("the service on the page", || document(&browser, &format!("/api/service/{lmap}"))["older"].as_bool());
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
    let lmap = wait_for("an LMAP", || agent.status().lmaps.first().map(|lmap| lmap.lmap));
    let older =
        wait_for("the service on the page", || document(&browser, &format!("/api/service/{lmap}"))["older"].as_bool());

    let (head, _) = browser.get(&format!("/api/older/{lmap}/86400"));

    assert!(!older && head.starts_with("http/1.1 404"), "{head}");
}
