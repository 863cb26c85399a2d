//! `record` into files and to whoever reads, and `kubectl train`, which reads, with a fake agent and its rows.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use wire::proto::operators::{LmapInfo, MetricInfo, RowEvent};

use crate::fake_agent::FakeAgent;
use crate::{ANY_PORT, uview};

/// A service with a counter and a gauge, and `count` rows of it.
fn lmap_and_rows(count: u64) -> (LmapInfo, Vec<RowEvent>) {
    let metric = |name: &str, kind: &str| MetricInfo {
        name: name.to_owned(),
        kind: kind.to_owned(),
        group: "service".to_owned(),
        ..MetricInfo::default()
    };
    let metrics = vec![metric("requests", "counter"), metric("queue.depth", "gauge")];
    let lmap =
        LmapInfo { lmap: 3, service: "payment".to_owned(), interval_us: 100_000, metrics, ..LmapInfo::default() };
    let row = |number: u64| RowEvent {
        columns: if number == 0 { vec!["requests".to_owned(), "queue.depth".to_owned()] } else { Vec::new() },
        at_unix_ns: 1_760_000_000_000_000_000 + number * 100_000_000,
        values: vec![number as f64, f64::NAN],
        lost: u64::from(number == 7),
        ..RowEvent::default()
    };
    (lmap, (0..count).map(row).collect())
}

#[test]
fn rows_of_a_running_agent_are_recorded_with_their_kinds_and_labelled_in_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let (lmap, rows) = lmap_and_rows(700);
    let agent = FakeAgent::with_rows(ANY_PORT, lmap, rows);
    let faults = directory.path().join("faults.csv");
    std::fs::write(&faults, "service,fault,from_unix_ms,to_unix_ms\npayment,leak,1760000001000,1760000002000\n")
        .unwrap();
    let (address, out) = (agent.address.to_string(), directory.path().join("rows"));
    let arguments = ["record", "payment", "--operators", &address, "--out", out.to_str().unwrap()];

    let output = uview(&[&arguments[..], &["--faults", faults.to_str().unwrap()]].concat());
    let again = uview(&arguments);

    assert_eq!(output.status.code(), Some(2), "the stream ended before anybody wanted it to");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("payment: 700 rows of 2 metrics"), "{text}");
    let recording = recording::decode(&std::fs::read(out.join("payment.uvrec")).unwrap()).unwrap();
    assert_eq!((recording.times.len(), recording.lost_rows, recording.interval.0), (700, 1, 100_000_000));
    let kinds: Vec<_> = recording.columns.iter().map(|column| column.kind).collect();
    assert_eq!(kinds, [recording::ColumnKind::Increment, recording::ColumnKind::Gauge]);
    assert_eq!(recording.spans.len(), 1);
    assert_eq!(again.status.code(), Some(1));
    let text = String::from_utf8(again.stderr).unwrap();
    assert!(text.contains("exists already") && text.contains("--out DIR"), "{text}");
    agent.stop();
}

#[test]
fn a_service_without_rows_leaves_no_file_and_nothing_to_label() {
    let directory = tempfile::tempdir().unwrap();
    let (lmap, rows) = lmap_and_rows(0);
    let agent = FakeAgent::with_rows(ANY_PORT, lmap, rows);
    let faults = directory.path().join("faults.csv");
    std::fs::write(&faults, "service,fault,from_unix_ms,to_unix_ms\npayment,leak,1,2\n").unwrap();
    let (address, out) = (agent.address.to_string(), directory.path().join("rows"));
    let (out, faults) = (out.to_str().unwrap(), faults.to_str().unwrap());

    let output = uview(&["record", "payment", "--operators", &address, "--out", out, "--faults", faults]);

    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("no row arrived") && !text.contains("label"), "{text}");
    assert_eq!(std::fs::read_dir(out).unwrap().count(), 0);
    agent.stop();
}

#[test]
fn record_waits_for_a_missing_service_and_no_row_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let (lmap, rows) = lmap_and_rows(1);
    let agent = FakeAgent::with_rows(ANY_PORT, lmap, rows);
    let (address, out) = (agent.address.to_string(), directory.path().to_str().unwrap().to_owned());

    let output = uview(&["record", "store", "--operators", &address, "--out", &out, "--for-s", "1"]);

    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("waiting for store; the agent watches payment"), "{text}");
    assert!(text.contains("no row arrived"), "{text}");
    agent.stop();
}

#[test]
fn the_recording_of_one_service_goes_to_the_standard_output_and_all_words_to_stderr() {
    let (lmap, rows) = lmap_and_rows(700);
    let agent = FakeAgent::with_rows(ANY_PORT, lmap, rows);
    let address = agent.address.to_string();

    let Output { status, stdout, stderr } = uview(&["record", "payment", "--operators", &address, "--out", "-"]);

    let text = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(2), "the stream ended before anybody wanted it to: {text}");
    assert!(text.contains("payment: 700 rows of 2 metrics") && text.contains("in the standard output"), "{text}");
    let recording = recording::decode(&stdout).unwrap();
    assert_eq!((recording.times.len(), recording.complete, recording.lost_rows), (700, true, 1));
    for arguments in [&["payment", "cart"][..], &["payment", "--faults", "a.csv"], &[]] {
        let refused = uview(&[&["record", "--operators", &address, "--out", "-"][..], arguments].concat());
        let text = String::from_utf8(refused.stderr).unwrap();
        assert_eq!((refused.status.code(), refused.stdout.len()), (Some(64), 0), "{text}");
        assert!(text.contains("--out - > FILE"), "{text}");
    }
    agent.stop();
}

#[test]
fn a_recording_ends_with_the_standard_input_if_that_is_asked_for() {
    let (lmap, rows) = lmap_and_rows(1);
    let agent = FakeAgent::with_rows(ANY_PORT, lmap, rows);
    let address = agent.address.to_string();

    // Its input has no byte. Without an end it would wait for the service.
    let output = uview(&["record", "store", "--operators", &address, "--out", "-", "--until-eof"]);

    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert!(String::from_utf8(output.stderr).unwrap().contains("no row arrived"));
    agent.stop();
}

/// A kubectl that knows one agent, in whose container uview asks the fake one.
const KUBECTL: &str = r#"#!/bin/sh
case "$*" in
    *" get pods "*) echo '{"items": [
        {"metadata": {"name": "agent-1"}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}]}'
        exit ;;
esac
while [ "$1" != -- ]; do shift; done
shift 2
exec UVIEW "$@" --operators ADDRESS
"#;

#[test]
fn rows_of_an_agent_come_through_kubectl_and_a_model_is_trained_on_them() {
    let folder = tempfile::tempdir().unwrap();
    let (lmap, mut rows) = lmap_and_rows(700);
    let mut noise = 1_u32;
    for row in &mut rows {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        row.values = vec![f64::from(noise >> 24), f64::from((noise >> 16) & 255)];
    }
    let agent = FakeAgent::with_rows(ANY_PORT, lmap, rows);
    let kubectl = folder.path().join("kubectl");
    let script = KUBECTL.replace("UVIEW", env!("CARGO_BIN_EXE_uview"));
    std::fs::write(&kubectl, script.replace("ADDRESS", &agent.address.to_string())).unwrap();
    std::fs::set_permissions(&kubectl, std::fs::Permissions::from_mode(0o755)).unwrap();
    let train = |service: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uview"));
        command.args(["kubectl", "train", service, "--out", "a.model"]).current_dir(&folder);
        command.env("PATH", folder.path()).env("NO_COLOR", "1").output().unwrap()
    };

    let none = train("store");
    let Output { status, stdout, stderr } = train("payment");

    let text = String::from_utf8([none.stdout, none.stderr].concat()).unwrap();
    assert_eq!(none.status.code(), Some(1), "{text}");
    assert!(text.contains("no LMAP has that name") && !text.contains("is recorded"), "{text}");
    let (text, said) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert_eq!(status.code(), Some(2), "{text}{said}");
    assert!(said.contains("payment is recorded on n1 for 10 min"), "{said}");
    assert!(said.contains("payment: the agent ended the stream of rows"), "it ended early: {said}");
    assert!(text.contains("payment: 700 rows of 2 metrics, every 100 ms"), "{text}");
    let model = lmap::Model::decode(&std::fs::read(folder.path().join("a.model")).unwrap()).unwrap();
    assert_eq!((model.summary().columns.len(), model.summary().rows), (2, 700));
    agent.stop();
}
