//! Documents: hostile texts become printable, absent things are absent.

use serde_json::Value;
use wire::proto::operators::{LmapStatus, ReceiptLogs, StatusReply};

use super::*;
use crate::feed::{News, Revisions};
use crate::history::History;
use crate::traces::KeepReason;

const HOSTILE: &str = "<img src=x onerror=alert(1)>\u{202e}\n\"'`";

fn parsed(text: &str) -> Value {
    assert!(text.chars().all(wire::printable::is_printable), "{text}");
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_metric_that_is_not_judged_has_nothing_expected() {
    let reason = |expected| Reason {
        column: "queue<b>\u{202e}".to_owned(),
        unit: "s".to_owned(),
        share: 0.5,
        seen: 0.25,
        expected,
        ..Reason::default()
    };

    let text = metrics(UnixNanos(5_000_000), &[reason(0.5), reason(f64::NAN)], Room::Free);

    let drawn: serde_json::Value = serde_json::from_str(&text).unwrap();
    let [judged, other] = [&drawn["metrics"][0], &drawn["metrics"][1]];
    assert_eq!((&drawn["at"], &drawn["full"]), (&json!(5), &json!(false)));
    assert_eq!(
        (&judged["title"], &judged["seen"], &judged["expected"]),
        (&json!("queue<b>\\u{202e}"), &json!("250 ms"), &json!("500 ms"))
    );
    assert_eq!((&other["expected"], &other["values"]), (&serde_json::Value::Null, &json!([0.25, null])));
}

#[test]
fn a_service_has_its_buckets_and_episodes() {
    let mut feed = Feed::new(History::new(8 << 20));
    let lmap = LmapStatus {
        lmap: 3,
        service: HOSTILE.to_owned(),
        gamma: f64::NAN,
        scores: vec![1.5],
        at_unix_ns: 1_700_000_000_000_000_000,
        alarm: true,
        ..LmapStatus::default()
    };
    assert_eq!(
        feed.look(&StatusReply { lmaps: vec![lmap], ..StatusReply::default() }, Revisions::default()),
        News::Event
    );

    let document = parsed(&service(&feed, 3, OlderScores::Nowhere).unwrap());

    assert_eq!(document["buckets"], json!([[1_700_000_000_u32, 1, 1.5, null, 1]]));
    assert_eq!(document["episodes"][0]["from"], 1_700_000_000_u32);
    assert!(document["service"].as_str().unwrap().starts_with("<img src=x onerror=alert(1)>\\u{202e}\\u{a}"));
    assert_eq!(document["older"], false);
    assert!(service(&feed, 4, OlderScores::Prometheus).is_none());
}

#[test]
fn older_scores_come_with_their_step_or_with_why_there_are_none() {
    let scores = [Score { second: 120, ratio: 2.5 }];

    let found = parsed(&older(Ok(&scores), Reach::Day));
    let failed = parsed(&older(Err(HOSTILE), Reach::Week));

    assert_eq!(found, json!({ "step": 120, "scores": [[120, 2.5]], "error": null }));
    assert_eq!((&failed["step"], &failed["scores"]), (&json!(900), &json!([])));
    assert!(failed["error"].as_str().unwrap().ends_with("\\u{202e}\\u{a}\"'`"), "{failed}");
}

#[test]
fn a_trace_has_its_spans_and_why_it_is_kept() {
    let mut store = Traces::new(1 << 20);
    let span = Span {
        id: u64::MAX,
        parent: None,
        service: HOSTILE.into(),
        name: HOSTILE.into(),
        side: Side::Server,
        start: UnixNanos::from_millis(5),
        end: UnixNanos::from_millis(4),
        outcome: Outcome::Failed,
        kept: Some(KeepReason { policy: "error".into(), reason: HOSTILE.into(), incident: HOSTILE.into() }),
    };
    store.add(1, span.clone());
    store.add(
        1,
        Span {
            id: 2,
            parent: Some(9),
            start: UnixNanos::from_millis(7),
            end: UnixNanos::from_millis(9),
            kept: None,
            ..span
        },
    );

    let document = parsed(&trace(&store, 1, Some("https://tracing.example/1")).unwrap());
    assert_eq!(document["link"], "https://tracing.example/1");
    assert_eq!((&document["took"], &document["spans"][0]["took"]), (&json!(4_000_000), &json!(0)));
    assert_eq!(document["spans"][1]["start"], 2_000_000);
    assert_eq!(document["spans"][0]["id"], "ffffffffffffffff");
    assert!(trace(&store, 2, None).is_none());
    let list = parsed(&traces(&store, Keeping::Tail));
    assert_eq!((&list["traces"][0]["spans"], &list["traces"][0]["policy"]), (&json!(2), &json!("error")));
}

#[test]
fn a_receipt_has_its_days() {
    let logs = ReceiptLogs { seen: 5, dropped: [(HOSTILE.to_owned(), 4)].into(), ..ReceiptLogs::default() };
    let line = ReceiptLine { service: HOSTILE.to_owned(), seen_spans: 9, logs: Some(logs), ..ReceiptLine::default() };
    let mut reply = ReceiptReply {
        days: vec![ReceiptDay { day: 20_000, services: vec![line], ..ReceiptDay::default() }],
        ..ReceiptReply::default()
    };
    reply.waiting_spans.insert(HOSTILE.to_owned(), 4);

    let document = parsed(&receipt(&reply));

    assert_eq!((&document["days"][0]["services"][0]["seen_spans"], &document["waiting"]), (&json!(9), &json!(4)));
    let logs = &document["days"][0]["services"][0]["logs"];
    assert_eq!((&logs["seen"], &logs["dropped"][0][1]), (&json!(5), &json!(4)));
}
