//! The book on a disk: what a restart finds, and what a disk that is full does. What pods say becomes evidence.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Event as PodEvent;
use serde_json::json;
use wire::id::Incarnation;
use wire::metric::{Series, Statistic};
use wire::name::{InstanceName, ServiceName, Unit};
use wire::time::{Interval, Nanos};

use super::*;
use crate::clock::Clock;
use crate::control_plane::testing::{self, gauge};
use crate::control_plane::{Settings, Suspicion};
use crate::pod_watch::PodPlan;

const BEGAN: UnixNanos = UnixNanos(1_795_761_735_123_456_789);

fn node() -> Node {
    let interval = Interval::new(Nanos::from_millis(100)).unwrap();
    Node::new(Settings::new(Incarnation(1), interval), 4, Clock::start(), None)
}

fn sources(pods: Option<Arc<PodWatch>>) -> EvidenceSources {
    EvidenceSources { traces: Arc::new(KeptTraces::new(None, 1 << 20)), logs: KeptLogs::new(None), pods }
}

fn book(dir: Option<&Path>) -> IncidentBook {
    let config = IncidentsConfig { dir: dir.map(Path::to_owned), ..IncidentsConfig::default() };
    IncidentBook::open(&config, "node-3".to_owned(), sources(None)).unwrap()
}

/// What the API server says of a pod of `shop/payment` that has this version.
fn pod(number: u32, version: &str) -> Pod {
    let metadata = json!({
        "name": format!("payment-{number}"), "namespace": "shop", "uid": format!("{number:032x}"),
        "annotations": { "resource.opentelemetry.io/service.name": "payment" },
        "labels": { "app.kubernetes.io/version": version },
    });
    serde_json::from_value(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata })).unwrap()
}

/// The first verdict of an alarm of payment, in an incident that began then.
fn event(began: UnixNanos) -> Event {
    let series = Series { unit: Some(Unit::new("s").unwrap()), ..gauge("latency.p99") };
    Event {
        reasons: vec![testing::reason(series, Statistic::Value, [0.18, 0.02])],
        silent: vec![InstanceName::new("payment-1").unwrap()],
        suspicion: Some(Suspicion { rank: 1, points_at: None, incident: began }),
        ..testing::event("payment", Episode::Began, began)
    }
}

/// Takes an alarm, and looks once.
fn alarm(book: &IncidentBook, node: &Node, began: UnixNanos) {
    book.take(&event(began));
    let wall = began.plus(Nanos::from_secs(1));
    book.look(node, Timestamp { monotonic: Nanos(wall.0), wall });
}

#[test]
fn an_alarm_becomes_an_incident_that_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("incidents");
    let (before, node) = (book(Some(&dir)), node());
    alarm(&before, &node, BEGAN);
    before.write(&node, false);

    let after = book(Some(&dir));

    let listed = after.list();
    assert_eq!((listed.node.as_str(), listed.in_memory, listed.incidents.len()), ("node-3", false, 1));
    let incident = after.get(after.find("").unwrap()).unwrap();
    assert_eq!(incident.id, "20261127-064215-123");
    assert_eq!(incident.cause, "payment: payment-1 is silent");
    assert_eq!((incident.services[0].peak, incident.services[0].metrics[0].seen), (3.0, 0.18));
    assert!(incident.ended_unix_ns > 0, "no alarm is on: {incident:?}");
    let others = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o027;
    assert_eq!((others(&dir), others(&dir.join("20261127-064215-123.incident"))), (0, 0));
}

#[test]
fn a_rollout_before_an_alarm_is_named_first_in_its_incident() {
    let pods = Arc::new(PodWatch::new(PodPlan::default(), Clock::start()));
    let of_pods = sources(Some(Arc::clone(&pods)));
    let book = IncidentBook::open(&IncidentsConfig::default(), "node-3".to_owned(), of_pods).unwrap();
    let node = node();
    let look = |seconds_before: u64| {
        let wall = UnixNanos(BEGAN.0 - seconds_before * 1_000_000_000);
        book.look(&node, Timestamp { monotonic: Nanos(wall.0), wall });
    };
    for event in [PodEvent::Init, PodEvent::InitApply(pod(1, "1.4")), PodEvent::InitDone] {
        pods.apply(Ok(event));
    }
    look(20);
    pods.apply(Ok(PodEvent::Apply(pod(2, "1.5"))));
    look(10);

    book.take(&Event { service: ServiceName::new("shop/payment").unwrap(), ..event(BEGAN) });
    look(0);

    let incident = book.get(book.find("").unwrap()).unwrap();
    let changes = incident.changes.iter().map(|of| (&*of.service, &*of.kind, &*of.text, of.precedes_alarm));
    let expected = ("shop/payment", "version", "version 1.5 after 1.4", true);
    assert_eq!((changes.collect::<Vec<_>>(), node.counts.noted_changes.get()), (vec![expected], 1));
    assert!(incident.cause.starts_with("shop/payment: version 1.5 after 1.4, "), "{}", incident.cause);
}

#[test]
fn without_a_directory_incidents_are_in_memory() {
    let (book, node) = (book(None), node());
    alarm(&book, &node, BEGAN);
    book.write(&node, true);

    assert!(book.list().in_memory && book.list().incidents.len() == 1 && book.problem().is_none());
}

#[test]
fn a_disk_that_takes_nothing_is_said_and_loses_nothing_that_is_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("incidents");
    let (book, node) = (book(Some(&dir)), node());
    // A folder is where the draft would be: that fails for root, too.
    let draft = dir.join(".20261127-064215-123.incident.new");
    fs::create_dir_all(draft.join("full")).unwrap();
    alarm(&book, &node, BEGAN);

    book.write(&node, false);

    let problem = book.problem().unwrap();
    assert!(problem.starts_with("incidents: they cannot be written, and a restart loses"), "{problem}");
    assert_eq!((book.list().incidents.len(), node.counts.failed_incident_writes.get()), (1, 1));
    alarm(&book, &node, BEGAN.plus(Nanos::from_secs(60)));
    book.write(&node, false);
    assert!(dir.join("20261127-064315-123.incident").exists(), "others are written");
    assert!(book.problem().is_some(), "one still is not");

    fs::remove_dir_all(&draft).unwrap();
    book.write(&node, false);
    assert!(dir.join("20261127-064215-123.incident").exists() && book.problem().is_none());
}

#[test]
fn files_that_cannot_be_read_are_set_aside_and_drafts_go() {
    let folder = tempfile::tempdir().unwrap();
    let (before, node) = (book(Some(folder.path())), node());
    for minute in 0..3 {
        alarm(&before, &node, BEGAN.plus(Nanos::from_secs(60 * minute)));
    }
    before.write(&node, true);
    let file = |name: &str| folder.path().join(name);
    let whole = fs::read(file("20261127-064315-123.incident")).unwrap();
    fs::write(file("20261127-064315-123.incident"), &whole[..whole.len() / 2]).unwrap();
    fs::write(file(".20261127-064215-123.incident.new"), b"uview").unwrap();
    fs::write(file("notes.txt"), b"of somebody").unwrap();

    let after = book(Some(folder.path()));

    let ids: Vec<_> = after.list().incidents.iter().map(|of| of.id.clone()).collect();
    assert_eq!(ids, ["20261127-064415-123", "20261127-064215-123"]);
    assert!(file("incident.set-aside").exists() && file("notes.txt").exists());
    assert!(!file(".20261127-064215-123.incident.new").exists());
}

#[test]
fn a_smaller_budget_removes_the_oldest_files() {
    let folder = tempfile::tempdir().unwrap();
    let node = node();
    let first = book(Some(folder.path()));
    for minute in 0..950 {
        alarm(&first, &node, BEGAN.plus(Nanos::from_secs(600 * minute)));
        first.write(&node, true);
    }
    drop(first);
    let files = || fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files(), 950);

    let config = IncidentsConfig { dir: Some(folder.path().to_owned()), bytes: 4 << 20, ..IncidentsConfig::default() };
    let smaller = IncidentBook::open(&config, "node-3".to_owned(), sources(None)).unwrap();
    smaller.write(&node, false);

    let kept = smaller.list().incidents.len();
    assert!(kept < 950 && kept == files(), "{kept} {}", files());
    assert!(lock(&smaller.recorder).bytes() <= 4 << 20);
}
