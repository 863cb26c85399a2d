//! Where an incident is named and what is named in it, over real sockets: in root spans, exemplars and changes; masked
//! attributes nowhere. Its time is not one of the future.

use std::sync::PoisonError;

use agent_runtime::clock::unix_now;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use serde_json::Value;
use support::otlp::{logs, spans_of, string, text, text_of};
use wire::proto::control::worker_message::Message as FromWorker;
use wire::proto::control::{Episode, Lmap, LmapSummary, Summary, Verdict, Verdicts};
use wire::proto::operators::{Incident, IncidentRequest};

use crate::agent::{Agent, Operators, WAIT};
use crate::live_page::Browser;
use crate::logs::{PROTOBUF, post};
use crate::otlp::{ReceivedSpans, send, span, upstream};
use crate::reload::replace;
use crate::service::Service;
use crate::worker::Worker;

const SECRET: &str = "ann@example.com";

/// A verdict of an alarm at this time.
fn alarm((epoch, lmap): &(u64, Lmap), episode: Episode, at_unix_ns: u64) -> FromWorker {
    let (lmap, epoch, episode) = (lmap.lmap, *epoch, episode as i32);
    let verdict = Verdict { lmap, epoch, score: 20.0, gamma: 4.0, state: 2, episode, ..Verdict::default() };
    FromWorker::Verdicts(Verdicts { at_unix_ns, verdicts: vec![verdict] })
}

/// The newest incident, if it is `wanted`.
fn incident(operators: &mut Operators, wanted: impl Fn(&Incident) -> bool) -> Option<Incident> {
    let asked = operators.client.incident(IncidentRequest::default());
    let incident = operators.runtime.block_on(asked).ok()?.into_inner().incident?;
    wanted(&incident).then_some(incident)
}

/// Sixteen requests that pass the frontend and payment, each with a secret.
fn requests(round: u128) -> Vec<u8> {
    let trace = |n: u128| (round << 64) | (n + 1);
    let with_secret = |span: Span| Span { attributes: vec![text("user.email", SECRET)], ..span };
    let entries = (0..16).map(|n| with_secret(span(trace(n), 1, &[], "POST /pay")));
    let inner = (0..16).map(|n| with_secret(span(trace(n), 2, &[1; 8], "handle")));
    let resource_spans = vec![spans_of("payment", inner.collect()), spans_of("frontend", entries.collect())];
    ExportTraceServiceRequest { resource_spans }.encode_to_vec()
}

/// The incident that a root span names.
fn named_in_a_root(received: &ReceivedSpans) -> Option<String> {
    let received = received.lock().unwrap_or_else(PoisonError::into_inner);
    let scopes = received.iter().flat_map(|request| &request.resource_spans).flat_map(|of| &of.scope_spans);
    let mut roots = scopes.flat_map(|scope| &scope.spans).filter(|span| span.parent_span_id.is_empty());
    roots.find_map(|root| text_of(&root.attributes, "uview.incident").map(ToOwned::to_owned))
}

#[test]
fn a_trace_that_an_alarm_keeps_names_the_incident_which_has_nothing_that_is_masked() {
    let ((upstream, received), dir) = (upstream(), tempfile::tempdir().unwrap());
    let agent = Agent::with(&format!(
        "process_metrics: {{enabled: false}}\nincidents: {{dir: '{}'}}\n\
         otlp:\n  upstream: {{endpoint: 'http://{upstream}', protocol: http}}\n  listen_grpc: 127.0.0.1:0\n  listen_http: 127.0.0.1:0\n  \
         derived: {{delay_ms: 0}}\n  redact: [user.email]\n  logs: {{keep: tail, floor: 0}}\n  \
         traces: {{keep: tail, decision_wait_ms: 200, floor: 0, latency: false, frontends: [frontend]}}\n",
        dir.path().display()
    ));
    let mut worker = Worker::connect(&agent, 0);
    let (_service, _region) = Service::register(&agent, "payment", &["requests"]);
    let lmap = worker.set();
    let record = LogRecord {
        time_unix_nano: unix_now().0,
        severity_number: 17,
        body: Some(string("card refused")),
        attributes: vec![text("user.email", SECRET)],
        ..LogRecord::default()
    };
    let mut round = 0;

    // The path is learnt from dropped traces, so requests are repeated until a verdict finds it.
    let address = WAIT.until("a trace that an alarm keeps", || {
        round += 1;
        assert_eq!(send(agent.at.otlp[1], &requests(round)), "HTTP/1.1 200 OK");
        if round == 1 {
            let sent = logs("payment", vec![record.clone()]).encode_to_vec();
            assert_eq!(post(agent.at.otlp[1], PROTOBUF, &sent).0, "HTTP/1.1 200 OK");
        }
        worker.send(alarm(&lmap, Episode::On, unix_now().0));
        named_in_a_root(&received)
    });

    let exemplar = format!("uview_incident=\"{address}\"");
    WAIT.until("an exemplar", || agent.get("/metrics").1.contains(&exemplar).then_some(()));
    let mut operators = agent.operators();
    let found = WAIT.until("the incident with its evidence", || {
        incident(&mut operators, |incident| incident.kept_traces > 0 && incident.kept_logs > 0)
    });
    assert_eq!(address, format!("{}/{}", found.node, found.id));
    let browser = Browser::open(&agent);
    for ending in ["", ".html"] {
        let (head, shown) = browser.get(&format!("/api/incident/{}{ending}", found.id));
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert!(shown.contains("POST /pay") && shown.contains("card refused"), "{ending}: {shown}");
        assert!(!shown.contains(SECRET), "{ending}: {shown}");
    }
    drop(operators);
    drop(agent.stop());
    let files = std::fs::read_dir(dir.path()).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap());
    let stored: Vec<_> = files.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect();
    assert!(stored.iter().any(|text| text.contains("card refused")), "{stored:?}");
    assert!(!stored.iter().any(|text| text.contains(SECRET)), "{stored:?}");
    let sent = format!("{:?}", received.lock().unwrap_or_else(PoisonError::into_inner));
    assert!(sent.contains("user.email") && !sent.contains(SECRET), "it is masked upstream, too");
}

#[test]
fn what_the_agent_took_over_from_its_file_is_named_first_in_an_alarm_soon_after() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("host.yaml");
    let text = "process_metrics: {enabled: false}\n";
    std::fs::write(&file, text).unwrap();
    let agent = Agent::of_file(tempfile::tempdir().unwrap(), &file);
    let mut worker = Worker::connect(&agent, 0);
    let (_service, _region) = Service::register(&agent, "payment", &["requests"]);
    let lmap = worker.set();
    let before = agent.counter("noted_changes");

    replace(&file, &format!("{text}log: {{level: debug}}\n"));
    WAIT.until("the change", || (agent.counter("noted_changes") > before).then_some(()));
    worker.send(alarm(&lmap, Episode::Began, unix_now().0));

    let mut operators = agent.operators();
    let found = WAIT.until("the incident with the change", || {
        incident(&mut operators, |incident| !incident.changes.is_empty() && !incident.cause.is_empty())
    });
    let changes: Vec<_> =
        found.changes.iter().map(|of| (&*of.service, &*of.kind, &*of.text, of.precedes_alarm)).collect();
    assert_eq!(changes, [("", "configuration", "the host agent took over log.level", true)]);
    assert!(found.cause.starts_with("the host agent took over log.level, "), "{}", found.cause);
    assert!(found.cause.contains("; then payment: "), "{}", found.cause);
}

/// Dates of the scores of an LMAP on the page.
fn dates(browser: &Browser, lmap: u32) -> Option<Vec<u64>> {
    let service: Value = serde_json::from_str(&browser.get(&format!("/api/service/{lmap}")).1).ok()?;
    let dates = service["buckets"].as_array()?.iter().filter_map(|bucket| bucket[0].as_u64());
    Some(dates.collect::<Vec<_>>()).filter(|dates| !dates.is_empty())
}

#[test]
fn a_worker_whose_clock_is_years_ahead_costs_no_service_its_history_and_has_no_alarm_of_the_future() {
    const TEN_YEARS: u64 = 315_360_000 * 1_000_000_000;
    let agent = Agent::start();
    let browser = Browser::open(&agent);
    let mut worker = Worker::connect(&agent, 0);
    let (_cart, _region) = Service::register(&agent, "cart", &["a"]);
    let cart = worker.set_where(|lmap| lmap.service == "cart");
    let (_payment, _other) = Service::register(&agent, "payment", &["a"]);
    let payment = worker.set_where(|lmap| lmap.service == "payment");
    let summary = |(epoch, lmap): &(u64, Lmap), at_unix_ns: u64| {
        let (lmap, epoch, scores) = (lmap.lmap, *epoch, vec![1.0]);
        let summary = LmapSummary { lmap, epoch, gamma: 4.0, scores, ..LmapSummary::default() };
        FromWorker::Summary(Summary { at_unix_ns, lmaps: vec![summary], ..Summary::default() })
    };
    let start = unix_now().0;

    worker.send(summary(&cart, start));
    let first = WAIT.until("a score", || dates(&browser, cart.1.lmap));
    worker.send(summary(&payment, start + TEN_YEARS));
    let second = WAIT.until("a score of the other", || dates(&browser, payment.1.lmap));
    worker.send(alarm(&payment, Episode::Began, start + TEN_YEARS));
    let mut operators = agent.operators();
    let found = WAIT.until("the incident", || incident(&mut operators, |_| true));

    let end = unix_now().0;
    let seconds = start / 1_000_000_000 - 1..=end / 1_000_000_000 + 1;
    assert!(first.iter().chain(&second).all(|second| seconds.contains(second)), "{first:?} {second:?} {seconds:?}");
    assert_eq!(dates(&browser, cart.1.lmap).unwrap()[0], first[0], "it is still there");
    assert!((start..=end).contains(&found.began_unix_ns), "{}", found.id);
    let status = agent.status();
    assert!(status.lmaps.iter().all(|lmap| lmap.at_unix_ns <= end), "{status:?}");
}
