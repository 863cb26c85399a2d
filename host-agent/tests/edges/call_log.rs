//! What the log says of those who call operators' API.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;

use prost::Message as _;
use serde_json::Value;
use support::otlp::traces;
use tonic::Code;
use wire::proto::operators as proto;

use crate::access::{NOBODY, as_user, calls, nothing, outcome};
use crate::agent::Operators;
use crate::logged::{Logged, events};
use crate::otlp::{send, span, upstream};
use crate::service::Service;
use crate::worker::Worker;

/// Workers of tests report nothing by themselves, and are not to be fenced for that. Spans go to `upstream`.
fn configuration(upstream: SocketAddr) -> String {
    format!(
        "control: {{lease_ms: 600000}}\n\
         otlp: {{upstream: {{endpoint: 'http://{upstream}', protocol: http}}, listen_grpc: '127.0.0.1:0', \
         listen_http: '127.0.0.1:0', traces: {{keep: tail}}}}\n"
    )
}

/// What is logged of each call that changes something, in the order of the next test.
const CHANGES: [(&str, &str); 13] = [
    ("NewLmap", "operator created an LMAP"),
    ("ConfigLmap", "operator configured an LMAP"),
    ("RegisterHook", "hook registered"),
    ("ResumeHook", "hook resumed"),
    ("AddMetric", "operator added a metric"),
    ("DeleteMetric", "operator deleted a metric"),
    ("FitAgain", "operator requested a refit"),
    ("SetInterval", "operator set the interval of an LMAP"),
    ("SetModel", "operator set the model of an LMAP"),
    ("DeleteLmap", "operator deleted an LMAP"),
    ("DrainWorker", "operator drained a worker"),
    ("UndrainWorker", "operator undrained a worker"),
    ("Trigger", "operator asked for traces"),
];

macro_rules! call {
    ($operators:expr, $call:ident, $request:expr) => {{
        let Operators { runtime, client } = &mut $operators;
        runtime.block_on(client.$call($request)).unwrap().into_inner()
    }};
}

fn metric(name: &str) -> proto::MetricConfig {
    proto::MetricConfig { metric: name.to_owned(), ..proto::MetricConfig::default() }
}

/// The user of this process, as the log names it.
fn own_name() -> String {
    format!("user {}", rustix::process::geteuid().as_raw())
}

#[test]
fn every_change_that_an_operator_makes_is_logged_with_who_made_it() {
    let logged = Logged::start("info", &configuration(upstream().0));
    let mut worker = Worker::connect(&logged.agent, 0);
    let mut operators = logged.agent.operators();

    let new = proto::NewLmapRequest { service: "payment".to_owned(), ..proto::NewLmapRequest::default() };
    let lmap = call!(operators, new_lmap, new).lmap;
    let (_service, _region) = Service::register(&logged.agent, "payment", &["a", "b"]);
    worker.set_where(|set| set.lmap == lmap && set.metrics.len() == 2);
    let metrics = vec![metric("a")];
    call!(operators, config_lmap, proto::ConfigLmapRequest { lmap, metrics, ..proto::ConfigLmapRequest::default() });
    let (epoch, set) = worker.set_where(|set| set.metrics.len() == 1);
    let mut hook = call!(operators, register_hook, proto::RegisterHookRequest::default());
    worker.verdict(&set, epoch, 1.0);
    let event = operators.runtime.block_on(hook.message()).unwrap().unwrap();
    let _resumed = call!(operators, resume_hook, proto::ResumeHookRequest { hook: event.hook, after: event.sequence });
    let add = proto::AddMetricRequest { lmap, metric: Some(metric("b")), r#type: String::new() };
    let added = call!(operators, add_metric, add).metrics;
    worker.set_where(|set| set.metrics.len() == 2);
    call!(operators, delete_metric, proto::DeleteMetricRequest { lmap, metric: added[0] });
    worker.set_where(|set| set.metrics.len() == 1);
    call!(operators, fit_again, proto::FitAgainRequest { lmap });
    let interval =
        proto::SetIntervalRequest { lmap, interval_us: Some(200_000), ..proto::SetIntervalRequest::default() };
    call!(operators, set_interval, interval);
    call!(operators, set_model, proto::SetModelRequest { lmap, model: Vec::new() });
    call!(operators, delete_lmap, proto::DeleteLmapRequest { lmap });
    call!(operators, drain_worker, proto::DrainWorkerRequest { worker: 0, force: true });
    call!(operators, undrain_worker, proto::UndrainWorkerRequest { worker: 0 });
    // Only what has come can be asked for.
    let sent = traces("catalog", vec![span(1, 1, &[], "List")]).encode_to_vec();
    assert_eq!(send(logged.agent.at.otlp[1], &sent), "HTTP/1.1 200 OK");
    let reason = "it is \u{1b}slow".to_owned();
    let asked = proto::TriggerRequest { service: "catalog".to_owned(), reason, ..proto::TriggerRequest::default() };
    call!(operators, trigger, asked);
    drop(operators);

    let log = logged.end();
    let (by, events) = (own_name(), events(&log));
    let made: Vec<_> = events.iter().filter(|event| event["by"] == by.as_str()).map(message).collect();
    assert_eq!(made, CHANGES.map(|(_, message)| message), "{log}");
    let asked = events.iter().find(|event| message(event) == "operator asked for traces").unwrap();
    assert!(asked["service"] == "catalog" && asked["why"] == "it is \\u{1b}slow", "{asked}");
    let mut changing: Vec<_> = calls(false).map(|(call, _)| call).collect();
    let mut rows = CHANGES.map(|(call, _)| call);
    changing.sort_unstable();
    rows.sort_unstable();
    assert_eq!(changing, rows, "left: calls of the API; right: those of this test");
}

fn message(event: &Value) -> &str {
    event["message"].as_str().unwrap_or_default()
}

#[test]
fn each_call_is_logged_at_debug_and_at_info_what_failed_and_who_reads() {
    let logged = Logged::start("info,host_agent=debug", "");
    for (call, _) in calls(true).chain(calls(false)) {
        for _ in 0..2 {
            _ = outcome(&logged.agent, call, nothing());
        }
    }

    let log = logged.end();

    let (by, events) = (own_name(), events(&log));
    let number = |level: &str, text: &str, call: &str| {
        let of = |event: &&Value| event["level"] == level && message(event) == text && event["call"] == call;
        events.iter().filter(of).filter(|event| event["by"] == by.as_str()).count()
    };
    for (call, _) in calls(true) {
        assert_eq!((number("DEBUG", "call", call), number("INFO", "reading call", call)), (2, 1), "{call}: {log}");
    }
    for (call, code) in calls(false) {
        let failed = if code == Code::Ok { 0 } else { 2 };
        assert_eq!((number("DEBUG", "call", call), number("INFO", "call failed", call)), (2, failed), "{call}: {log}");
    }
}

#[test]
fn each_call_that_is_refused_is_logged_with_who_called_and_what_grants_it() {
    if !rustix::process::geteuid().is_root() {
        return support::harness::not_run("access of other users needs root");
    }
    let logged = Logged::start("info", "");
    let folder = logged.agent.folder.path();
    for folder in [folder.to_owned(), folder.join("run")] {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    let refused: Vec<String> = as_user(NOBODY, &[], || {
        let all = calls(true).chain(calls(false));
        all.map(|(call, _)| outcome(&logged.agent, call, nothing()).unwrap_err().message().to_owned()).collect()
    });

    let log = logged.end();
    let events = events(&log);
    let logged = events.iter().filter(|event| event["level"] == "WARN" && message(event) == "call refused");
    let denied: Vec<_> = logged.map(|event| event["denied"].as_str().unwrap_or_default()).collect();
    assert_eq!(denied, refused, "{log}");
}
