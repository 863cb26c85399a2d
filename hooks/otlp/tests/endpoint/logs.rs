//! Log records that wait: in whose name they are, and what becomes of those that the upstream does not take.

use agent_runtime::clock::unix_now;
use agent_runtime::reload::Reloadable;
use hooks::tracing::LogRule;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use otlp::{Finding, LogSettings, Protocol, SenderRule, SenderRules, Settings, Signal};
use prost::Message as _;
use wire::time::UnixNanos;

use super::client::{WAIT, logs, post};
use super::upstream::Upstream;
use super::{settings, start, tail};

const PROTOBUF: &str = "application/x-protobuf";

/// A record of this severity, which was written just now.
fn request(service: &str, severity: i32) -> ExportLogsServiceRequest {
    request_at(unix_now().0, service, severity)
}

fn request_at(at: u64, service: &str, severity: i32) -> ExportLogsServiceRequest {
    let mut request = logs(service);
    let record = &mut request.resource_logs[0].scope_logs[0].log_records[0];
    (record.time_unix_nano, record.severity_number, record.trace_id) = (at, severity, Vec::new());
    request
}

/// An alarm of `service` at this time, in nanoseconds since 1970.
pub fn finding(at: u64, service: &str) -> Finding<'_> {
    let at = UnixNanos(at);
    Finding {
        service,
        from: at,
        at,
        breakdown: None,
        score: 12.0,
        gamma: 4.0,
        metrics: Vec::new(),
        incident: "".into(),
    }
}

fn log_settings() -> LogSettings {
    LogSettings { rule: LogRule { floor: None, ..LogRule::default() }, ..LogSettings::default() }
}

#[tokio::test]
async fn records_in_the_name_of_anothers_service_are_of_nobodys_alarm() {
    let upstream = Upstream::start().await;
    let payment = SenderRule { services: Some(vec!["payment".to_owned()]), ..SenderRule::default() };
    let settings = Settings {
        tail: Some(tail()),
        logs: Some(log_settings()),
        senders: Reloadable::new(SenderRules::new(&[payment])),
        ..settings(upstream.address, Protocol::Http)
    };
    let (running, address) = start(&settings).await;
    let (path, at) = (Signal::Logs.http_path(), unix_now().0);
    for service in ["payment", "cart"] {
        let request = request_at(at, service, 9).encode_to_vec();
        assert_eq!(post(address, path, PROTOBUF, &[], request).await.status, 200);
    }

    for service in ["payment", "cart"] {
        running.edge().verdict(finding(at, service));
    }

    let came = WAIT.until_async("the record of cart", async || upstream.messages(path).first().cloned()).await;
    let came = ExportLogsServiceRequest::decode(came).unwrap();
    assert_eq!(came.resource_logs[0].resource, logs("cart").resource_logs[0].resource);
    let edge = running.edge();
    assert_eq!((edge.counts.unverified_logs.get(), edge.counts.unverified_spans.get()), (1, 0));
    let unverified = edge.unverified();
    assert_eq!((unverified[0].service.as_str(), unverified[0].logs, unverified[0].spans), ("payment", 1, 0));
    let account = edge.with_tail(|tail, _| *tail.log_account().unwrap()).unwrap();
    assert_eq!((account.kept.spans, account.waiting.spans), (1, 1));
}

#[tokio::test]
async fn kept_records_that_do_not_fit_into_the_queue_are_counted() {
    let upstream = Upstream::start().await;
    let settings = Settings {
        tail: Some(tail()),
        logs: Some(log_settings()),
        queue_bytes: 64,
        ..settings(upstream.address, Protocol::Http)
    };
    let (running, address) = start(&settings).await;
    let path = Signal::Logs.http_path();

    // The client is not told: its request is accepted, and would not be decided otherwise the next time.
    assert_eq!(post(address, path, PROTOBUF, &[], request("payment", 17).encode_to_vec()).await.status, 200);

    let counts = &running.edge().counts;
    assert_eq!((counts.lost_logs.get(), counts.lost_spans.get()), (1, 0));
    assert!(upstream.messages(path).is_empty());
}
