//! `custom.metrics.k8s.io` over TLS, with certificates of a front proxy, and host agents of the tests' own.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use agent_runtime::ClientTls;
use axum::Router;
use axum::routing::get;
use kube::Client;
use serde_json::{Value, json};
use support::certificates::{Authority, Subject};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::{args, intervals, lmap, node, said};
use crate::counts::Counts;
use crate::known::{self, ClusterView};
use crate::serving::{Serving, serve};
use crate::testing::{ApiServer, WAIT};

const API: &str = "/apis/custom.metrics.k8s.io/v1beta1";

/// Writes an authority, and certificates of it: file and common name of each.
fn certificates(folder: &Path, authority: &str, signed: &[(&str, &str)]) {
    let issuer = Authority::new(authority);
    issuer.write(folder, authority);
    for (file, common_name) in signed {
        Subject::new(&["localhost"]).common_name(common_name).signed_by(&issuer).write(folder, file);
    }
}

/// What an agent says, and how often it was asked.
#[derive(Clone, Debug, Default)]
struct Agent(Arc<Mutex<(String, usize)>>);

impl Agent {
    /// A host agent with these scores and alarms, on `address`.
    async fn start(address: SocketAddr, lmaps: &[(&str, f64, u8)]) -> (Self, SocketAddr) {
        let mut page = "# TYPE uview_lmap_score_ratio gauge\n".to_owned();
        page.extend(
            lmaps.iter().map(|(lmap, ratio, _)| format!("uview_lmap_score_ratio{{lmap=\"{lmap}\"}} {ratio:?}\n")),
        );
        page += "# TYPE uview_lmap_alarm gauge\n";
        page.extend(lmaps.iter().map(|(lmap, _, alarm)| format!("uview_lmap_alarm{{lmap=\"{lmap}\"}} {alarm}\n")));
        let agent = Self(Arc::new(Mutex::new((page + "# EOF\n", 0))));
        let asked = agent.clone();
        let answer = async move || {
            let mut of = asked.0.lock().unwrap();
            of.1 += 1;
            of.0.clone()
        };
        let router = Router::new().route("/metrics/lmaps", get(answer));
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        (agent, address)
    }
}

fn agent_pod(on: &str, address: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": on, "containers": []},
        "metadata": {"name": format!("agent-{on}"), "namespace": "uview", "uid": format!("{:032x}", on.len()),
            "labels": {"app.kubernetes.io/name": "uview", "app.kubernetes.io/component": "host-agent"}},
        "status": {"phase": "Running", "podIP": address}})
}

/// A pod of the Deployment `cart`.
fn pod(number: u32, on: &str) -> Value {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "cart-abc", "uid": "1",
        "controller": true}]);
    json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": on, "containers": [{"name": "app"}]},
        "metadata": {"name": format!("cart-abc-{number}"), "namespace": "shop", "uid": format!("{number:032x}"),
            "labels": {"app": "cart", "pod-template-hash": "abc"}, "ownerReferences": owner},
        "status": {"phase": "Running", "podIP": format!("10.0.0.{number}")}})
}

/// A cluster whose metrics are served.
struct Served {
    server: ApiServer,
    address: SocketAddr,
    folder: tempfile::TempDir,
    agent: Agent,
    _tasks: JoinSet<()>,
}

impl Served {
    /// Two nodes run `cart`; the agent of the first one answers, nobody does at the address of the second one.
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        certificates(folder.path(), "own", &[("server", "controller")]);
        certificates(folder.path(), "front", &[("proxy", "front-proxy-client"), ("other-name", "kubelet")]);
        certificates(folder.path(), "stranger", &[("strange", "front-proxy-client")]);

        let (agent, at) =
            Agent::start("127.0.0.1:0".parse().unwrap(), &[("shop/cart", 0.36, 0), ("shop/x", 9.0, 1)]).await;
        let server = ApiServer::new();
        let authority = std::fs::read_to_string(folder.path().join("front.pem")).unwrap();
        server.put(
            "configmaps",
            json!({"metadata": {"name": "extension-apiserver-authentication",
            "namespace": "kube-system"}, "data": {"requestheader-client-ca-file": authority,
            "requestheader-allowed-names": "[\"front-proxy-client\"]"}}),
        );
        for (name, address) in [("node-1", "127.0.0.1"), ("node-2", "127.0.0.2")] {
            server.put("nodes", node(name));
            server.put("pods", agent_pod(name, address));
        }
        for (number, on) in [(1, "node-1"), (2, "node-1"), (3, "node-2")] {
            server.put("pods", pod(number, on));
        }
        let selector = json!({"matchLabels": {"app": "cart"}});
        server.put(
            "deployments",
            json!({"metadata": {"name": "cart", "namespace": "shop"},
            "spec": {"selector": selector, "template": {}}}),
        );
        server.put("lmaps", lmap("fast", 1));
        server.put("lmapnodestatuses", said("node-1", &[("fast", 1, None)]));

        let path = |name: &str| Some(folder.path().join(name));
        let mut args = args("a");
        (args.certificate, args.key, args.agent_port) = (path("server.pem"), path("server.key"), at.port());
        args.metrics_api = Some("127.0.0.1:0".parse().unwrap());
        let client = Client::try_from(server.start("a").await).unwrap();
        let known = Arc::new(ClusterView::default());
        let serving = Serving::new(&client, &args, &known, &Arc::new(Counts::default())).await.unwrap();
        let address = serving.as_ref().unwrap().listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        let (watching, of) = (client.clone(), Arc::clone(&known));
        tasks.spawn(async move { Box::pin(known::watch(watching, &of)).await });
        tasks.spawn(async move { serve(serving, &client, intervals()).await });
        Self { server, address, folder, agent, _tasks: tasks }
    }

    /// Asks with the certificate `of`; status and body, or why there is no answer.
    async fn ask_as(&self, of: Option<&str>, path: &str) -> Result<(u16, Value), String> {
        let answer = self.text(of, path, "accept: */*").await?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or("no status")?;
        Ok((status, serde_json::from_str(body).map_err(|error| error.to_string())?))
    }

    /// Status line and headers of the answer to the front proxy with one header more.
    async fn head(&self, path: &str, header: &str) -> String {
        let answer = self.text(Some("proxy"), path, header).await.unwrap();
        answer.split_once("\r\n\r\n").unwrap().0.to_owned()
    }

    /// The answer, with its head.
    async fn text(&self, of: Option<&str>, path: &str, header: &str) -> Result<String, String> {
        let file = |name: String| self.folder.path().join(name);
        let [certificate, key] = ["pem", "key"].map(|end| of.map(|of| file(format!("{of}.{end}"))));
        let tls = ClientTls { ca: file("own.pem".to_owned()), domain: None, certificate, key };
        let connector = TlsConnector::from(Arc::new(tls.load().unwrap().library));
        let text = |error: std::io::Error| error.to_string();
        let stream = TcpStream::connect(self.address).await.map_err(text)?;
        let mut stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.map_err(text)?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{header}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.map_err(text)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.map_err(text)?;
        Ok(answer)
    }

    async fn ask(&self, path: &str) -> (u16, Value) {
        self.ask_as(Some("proxy"), path).await.unwrap()
    }

    /// Waits until the watches know the `Lmap`.
    async fn knows_lmaps(&self) {
        let path = format!("{API}/namespaces/shop/lmaps.uview.dev/fast/uview_alarm");
        let known = async || {
            let (status, answer) = self.ask(&path).await;
            if status == 200 { Ok(()) } else { Err(answer) }
        };
        WAIT.until_async("the watches know the Lmap", known).await;
    }
}

#[tokio::test]
async fn only_the_front_proxy_is_answered() {
    let served = Served::start().await;

    let (status, list) = served.ask_as(Some("proxy"), API).await.unwrap();
    assert_eq!((status, &list["groupVersion"]), (200, &json!("custom.metrics.k8s.io/v1beta1")));
    assert!(list["resources"].as_array().unwrap().iter().any(|of| of["name"] == "pods/uview_score_ratio"), "{list}");
    for certificate in [None, Some("other-name"), Some("strange"), Some("server")] {
        let answer = served.ask_as(certificate, API).await;
        assert!(answer.is_err(), "{certificate:?}: {answer:?}");
    }
}

#[tokio::test]
async fn pods_have_the_score_of_their_service_on_their_node_and_those_of_an_unread_node_are_absent() {
    let served = Served::start().await;

    let path = format!("{API}/namespaces/shop/pods/*/uview_score_ratio?labelSelector=app%3Dcart");
    let (status, list) = served.ask(&path).await;
    assert_eq!((status, &list["kind"]), (200, &json!("MetricValueList")));
    let names: Vec<_> = list["items"].as_array().unwrap().iter().map(|item| &item["describedObject"]["name"]).collect();
    assert_eq!(names, ["cart-abc-1", "cart-abc-2"], "cart-abc-3 is on node-2");
    let item = &list["items"][0];
    assert_eq!((&item["value"], &item["metricName"]), (&json!("360m"), &json!("uview_score_ratio")));
    assert_eq!(item["describedObject"]["kind"], "Pod");

    let (status, answer) = served.ask(&format!("{API}/namespaces/shop/pods/cart-abc-3/uview_alarm")).await;
    assert_eq!((status, &answer["reason"]), (404, &json!("NotFound")));
    let message = answer["message"].as_str().unwrap();
    assert!(message.starts_with("the host agent of node-2 cannot be read: no connection to 127.0.0.2"), "{message}");
    let newer = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/cart-abc-1/uview_alarm";
    let item = served.ask(newer).await.1["items"][0].clone();
    assert_eq!((&item["value"], &item["metric"]["name"]), (&json!("0m"), &json!("uview_alarm")));
    assert_eq!(served.agent.0.lock().unwrap().1, 1, "a page is good for a while");
}

#[tokio::test]
async fn a_workload_and_an_lmap_are_their_worst_part_and_absent_while_a_node_cannot_be_read() {
    let served = Served::start().await;
    let of_deployment = format!("{API}/namespaces/shop/deployments.apps/cart/uview_score_ratio");

    let (status, answer) = served.ask(&of_deployment).await;
    assert_eq!(status, 404, "{answer}");
    served.server.delete("pods", "shop/cart-abc-3");
    let (status, answer) = served.ask(&of_deployment).await;
    assert_eq!((status, &answer["items"][0]["value"]), (200, &json!("360m")));
    assert_eq!(answer["items"][0]["describedObject"]["apiVersion"], "apps/v1");

    served.knows_lmaps().await;
    let (status, answer) = served.ask(&format!("{API}/namespaces/shop/lmaps.uview.dev/fast/uview_score_ratio")).await;
    assert_eq!((status, &answer["items"][0]["value"]), (200, &json!("360m")));
    assert_eq!(answer["items"][0]["describedObject"]["kind"], "Lmap");

    for wrong in ["pods/cart-abc-1/cpu", "nodes/node-1/uview_alarm", "deployments.apps/gone/uview_alarm"] {
        assert_eq!(served.ask(&format!("{API}/namespaces/shop/{wrong}")).await.0, 404, "{wrong}");
    }
}

#[tokio::test]
async fn a_new_authority_is_taken_over_while_it_serves() {
    let served = Served::start().await;
    assert_eq!(served.ask(API).await.0, 200);

    certificates(served.folder.path(), "newer", &[("newer-proxy", "front-proxy-client")]);
    let authority = std::fs::read_to_string(served.folder.path().join("newer.pem")).unwrap();
    served.server.put(
        "configmaps",
        json!({"metadata": {"name": "extension-apiserver-authentication",
        "namespace": "kube-system"}, "data": {"requestheader-client-ca-file": authority}}),
    );
    WAIT.until_async("the new authority is taken over", async || served.ask_as(Some("newer-proxy"), API).await).await;
    assert!(served.ask_as(Some("proxy"), API).await.is_err());
}

/// Whether `value` is as `schema` of `document` says, which knows each of its keys.
fn fits(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let pointer = reference.strip_prefix('#').ok_or("a reference to another document")?;
        let schema = document.pointer(pointer).ok_or(format!("{reference} leads nowhere"))?;
        return fits(document, schema, value);
    }
    match (schema["type"].as_str(), value) {
        (Some("string"), Value::String(_)) | (Some("boolean"), Value::Bool(_)) => Ok(()),
        (Some("array"), Value::Array(all)) => all.iter().try_for_each(|one| fits(document, &schema["items"], one)),
        (Some("object"), Value::Object(all)) => {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            if let Some(missing) = required.into_iter().find(|key| !all.contains_key(*key)) {
                return Err(format!("{missing} is missing in {value}"));
            }
            all.iter().try_for_each(|(key, value)| {
                let of = schema["properties"].get(key).ok_or(format!("{key} is unknown in {schema}"))?;
                fits(document, of, value)
            })
        }
        _ => Err(format!("{value} is no {schema}")),
    }
}

/// The path with the names of real objects.
fn real(path: &str) -> String {
    let names = [("namespace", "shop"), ("resource", "pods"), ("name", "cart-abc-1"), ("metric", "uview_alarm")];
    names.iter().fold(path.to_owned(), |path, (key, value)| path.replace(&format!("{{{key}}}"), value))
}

#[tokio::test]
async fn openapi_of_both_versions_describes_what_is_answered() {
    let served = Served::start().await;
    let (_, two) = served.ask("/openapi/v2").await;
    let (_, root) = served.ask("/openapi/v3").await;
    assert_eq!(two["swagger"], "2.0");
    let mut documents = vec![(two, "/responses/200/schema")];
    for (name, at) in root["paths"].as_object().unwrap() {
        let url = at["serverRelativeURL"].as_str().unwrap();
        assert!(url.starts_with(&format!("/openapi/v3/{name}?hash=")), "{url}");
        let (status, three) = served.ask(url).await;
        assert_eq!((status, &three["openapi"]), (200, &json!("3.0.0")));
        documents.push((three, "/responses/200/content/application~1json/schema"));
    }
    let paths: Vec<_> = documents.iter().map(|(document, _)| document["paths"].as_object().unwrap().len()).collect();
    assert_eq!(paths, [4, 2, 2], "each version has two");

    let mut ids = Vec::new();
    for (document, schema) in &documents {
        for (path, operations) in document["paths"].as_object().unwrap() {
            let (status, answer) = served.ask(&real(path)).await;
            assert_eq!(status, 200, "{path}");
            let schema = operations["get"].pointer(schema).unwrap();
            fits(document, schema, &answer).unwrap();
            assert!(fits(document, schema, &json!({"more": 1})).is_err());
            ids.push(operations["get"]["operationId"].as_str().unwrap().to_owned());
        }
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4, "names of operations are their own: {ids:?}");
    let head = served.head("/openapi/v3/apis/custom.metrics.k8s.io/v9", "accept: */*").await;
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
}

#[tokio::test]
async fn openapi_that_is_known_is_not_sent_again_and_other_forms_are_not_served() {
    let served = Served::start().await;
    for path in ["/openapi/v2", "/openapi/v3", "/openapi/v3/apis/custom.metrics.k8s.io/v1beta2"] {
        let head = served.head(path, "accept: application/json").await;
        let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_owned();
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("content-type: application/json"), "{head}");

        let head = served.head(path, &format!("if-none-match: \"other\", {tag}")).await;
        assert!(head.starts_with("HTTP/1.1 304"), "{head}");
        let head = served.head(path, "if-none-match: \"other\"").await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
        let head = served.head(path, &format!("accept: {protobuf}")).await;
        assert!(head.starts_with("HTTP/1.1 406"), "{head}");
        let head = served.head(path, &format!("accept: {protobuf}, application/json;q=0.5")).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    }
}
