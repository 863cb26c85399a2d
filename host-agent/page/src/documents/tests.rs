//! Documents: hostile texts become printable, absent things are absent.

use serde_json::Value;
use wire::proto::operators::{Label, LmapStatus, ReceiptLogs, StatusReply};
use wire::time::{Nanos, Timestamp};

use super::*;
use crate::feed::{News, Revisions};
use crate::history::History;
use crate::older::Score;
use crate::traces::KeepReason;

const HOSTILE: &str = "<img src=x onerror=alert(1)>\u{202e}\n\"'`";

fn parsed(text: &str) -> Value {
    assert!(text.chars().all(wire::printable::is_printable), "{text}");
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_metric_that_is_not_judged_has_nothing_expected() {
    let reason = |expected| Reason {
        column: "queue.p99{route=\"<b>\u{202e}\"}".to_owned(),
        metric: "queue".to_owned(),
        statistic: "p99".to_owned(),
        labels: vec![Label { key: "route".to_owned(), value: "<b>\u{202e}".to_owned() }],
        unit: "s".to_owned(),
        share: 0.5,
        seen: 0.25,
        expected,
        about: "10.0.0.7\u{202e}".to_owned(),
        ..Reason::default()
    };

    let text = metrics(UnixNanos(5_000_000), Some(2.5), &[reason(0.5), reason(f64::NAN)], Availability::Free);

    let drawn: serde_json::Value = serde_json::from_str(&text).unwrap();
    let [judged, other] = [&drawn["metrics"][0], &drawn["metrics"][1]];
    assert_eq!((&drawn["at"], &drawn["ratio"], &drawn["full"]), (&json!(5), &json!(2.5), &json!(false)));
    assert_eq!(
        (&judged["title"], &judged["seen"], &judged["expected"]),
        (&json!("queue.p99{route=\"<b>\\u{202e}\"}"), &json!("250 ms"), &json!("500 ms"))
    );
    assert_eq!(
        (&judged["metric"], &judged["statistic"], &judged["labels"]),
        (&json!("queue"), &json!("p99"), &json!([["route", "<b>\\u{202e}"]]))
    );
    assert_eq!(judged["about"], "10.0.0.7\\u{202e}");
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
        reasons: vec![Reason { column: HOSTILE.to_owned(), share: 0.5, ..Reason::default() }],
        ..LmapStatus::default()
    };
    let now = Timestamp { monotonic: Nanos::from_secs(60), wall: UnixNanos::from_secs(1_700_000_000) };
    let status = StatusReply { lmaps: vec![lmap], ..StatusReply::default() };
    assert_eq!(feed.look(&status, Revisions::default(), now), News::Event);

    let document = parsed(&service(&feed, 3, OlderScores::Nowhere).unwrap());

    assert_eq!(document["buckets"], json!([[1_700_000_000_u32, 1, 1.5, null, 1]]));
    assert_eq!(document["episodes"][0]["from"], 1_700_000_000_u32);
    assert!(document["service"].as_str().unwrap().starts_with("<img src=x onerror=alert(1)>\\u{202e}\\u{a}"));
    assert_eq!((&document["older"], &document["heat"]), (&json!(false), &json!([])), "without γ nothing is above it");
    assert!(service(&feed, 4, OlderScores::Prometheus).is_none());
}

#[test]
fn a_service_has_what_made_its_scores_above_the_threshold_and_nothing_of_quiet_seconds() {
    let mut feed = Feed::new(History::new(8 << 20));
    let reason = |column: &str, share| Reason { column: column.to_owned(), share, ..Reason::default() };
    let lmap = |second: u64, highest: f32| LmapStatus {
        lmap: 3,
        service: "store".to_owned(),
        gamma: 2.0,
        scores: vec![0.5, highest, 0.5],
        at_unix_ns: second * 1_000_000_000,
        reasons: vec![reason(HOSTILE, 0.75), reason("beside", 0.24), reason("hardly", 0.002)],
        ..LmapStatus::default()
    };
    // A quiet second, two above γ, and a quiet one.
    for (second, highest) in [(100, 1.9), (101, 6.0), (102, 4.0), (103, 1.0)] {
        let now = Timestamp { monotonic: Nanos::from_secs(second), wall: UnixNanos::from_secs(second) };
        let status = StatusReply { lmaps: vec![lmap(second, highest)], ..StatusReply::default() };
        assert_eq!(feed.look(&status, Revisions::default(), now), News::Event);
    }

    let document = parsed(&service(&feed, 3, OlderScores::Nowhere).unwrap());

    let [first, second] = &document["heat"].as_array().unwrap()[..] else { unreachable!("{document}") };
    assert!(first[0].as_str().unwrap().ends_with("\\u{202e}\\u{a}\"'`"), "{first}");
    // Shares of (6 / 2)² and (4 / 2)².
    assert_eq!(first[1], json!([[101, 6.75], [102, 3.0]]));
    assert_eq!(*second, json!(["beside", [[101, 2.16], [102, 0.96]]]));
}

#[test]
fn older_scores_and_alarms_come_with_their_step_or_with_why_there_are_none() {
    let (scores, alarms) = (vec![Score { second: 120, ratio: 2.5 }], vec![(120, 240, Some(2.5)), (960, 1_080, None)]);
    let alarms = alarms.into_iter().map(|(from, to, peak)| PastAlarm { from, to, peak }).collect();

    let found = parsed(&older(Ok(&PastScores { scores, alarms }), Reach::Day));
    let failed = parsed(&older(Err(HOSTILE), Reach::Week));

    let alarms = json!([[120, 240, 2.5], [960, 1_080, null]]);
    assert_eq!(found, json!({ "step": 120, "scores": [[120, 2.5]], "alarms": alarms, "error": null }));
    assert_eq!((&failed["step"], &failed["scores"], &failed["alarms"]), (&json!(900), &json!([]), &json!([])));
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
            service: "cart".into(),
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
    let services = list["traces"][0]["services"].as_array().unwrap();
    assert!(services.len() == 2 && services[1] == "cart", "whose traces they are: {services:?}");
    assert!(list["traces"][0]["incident"].as_str().unwrap().starts_with("<img"), "which incident they are about");
}

#[test]
fn a_receipt_has_its_days() {
    let logs = ReceiptLogs { seen: 5, dropped: [(HOSTILE.to_owned(), 4)].into(), ..ReceiptLogs::default() };
    let line = ReceiptLine {
        service: HOSTILE.to_owned(),
        seen_spans: 9,
        dropped_spans: [("aged".to_owned(), 7)].into(),
        logs: Some(logs),
        ..ReceiptLine::default()
    };
    let grown = [("sent_bytes.traces".to_owned(), 2), ("cpu_ms".to_owned(), 4_200), (HOSTILE.to_owned(), 1)].into();
    let mut reply =
        ReceiptReply { days: vec![ReceiptDay { day: 20_000, services: vec![line], grown }], ..ReceiptReply::default() };
    reply.waiting_spans.insert(HOSTILE.to_owned(), 4);

    let document = parsed(&receipt(&reply, Some(45 << 20)));

    assert_eq!((&document["days"][0]["services"][0]["seen_spans"], &document["waiting"]), (&json!(9), &json!(4)));
    assert_eq!(document["days"][0]["services"][0]["dropped"], json!([["aged", 7]]));
    let logs = &document["days"][0]["services"][0]["logs"];
    assert_eq!((&logs["seen"], &logs["dropped"][0][1]), (&json!(5), &json!(4)));
    let counts = document["days"][0]["node"].as_array().unwrap();
    assert!(counts[0][0].as_str().unwrap().ends_with("\\u{202e}\\u{a}\"'`"), "{counts:?}");
    assert_eq!(counts[1..], [json!(["cpu_ms", 4_200]), json!(["sent_bytes.traces", 2])]);
    assert_eq!((&document["resident"], &parsed(&receipt(&reply, None))["resident"]), (&json!(45 << 20), &Value::Null));
}
