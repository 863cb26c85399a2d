//! Messages to a receiver, in virtual time.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use webhooks::message::{Sender, render};
use webhooks::{AlertEvent, AlertGroups, AlertKind, Delivery, GroupingRule, Reply, ServiceStatus, Step};
use wire::time::{Nanos, UnixNanos};

fn answer(status: u16) -> Reply {
    Reply::Http { status, retry_after: None }
}

fn seconds(n: u64) -> Nanos {
    Nanos::from_secs(n)
}

fn day(n: u64) -> UnixNanos {
    UnixNanos::from_secs(1_700_000_000 + n)
}

fn event(service: &str, kind: AlertKind, firing: bool, at: u64) -> AlertEvent {
    let summary = format!("{service} at {at}");
    AlertEvent {
        service: service.to_owned(),
        kind,
        firing,
        begins: false,
        at: day(at),
        summary,
        description: String::new(),
        incident: String::new(),
    }
}

fn from() -> Sender {
    let incident_link = Some("https://ops.example/{node}/#/incident/{incident}".into());
    Sender { receiver: "team".into(), external_url: "http://node:9702".into(), node: "n1".into(), incident_link }
}

/// The message due at `now`.
fn told(groups: &mut AlertGroups, now: Nanos) -> Option<serde_json::Value> {
    match groups.next(now) {
        Step::Send(notification) => Some(serde_json::from_slice(&render(&notification, &from())).expect("it is JSON")),
        Step::Wait(_) => None,
    }
}

fn taken(groups: &mut AlertGroups, now: Nanos) {
    assert_eq!(groups.complete(answer(200), now, 0.0), Delivery::Accepted);
}

#[test]
fn with_another_rule_an_alert_that_was_sent_is_known_and_its_end_comes_by_the_new_times() {
    let mut groups = AlertGroups::new(GroupingRule::default());
    groups.record(event("payment", AlertKind::Anomaly, true, 0), seconds(0));
    assert!(told(&mut groups, seconds(1)).is_some());
    taken(&mut groups, seconds(1));

    groups.set_rule(GroupingRule { interval: seconds(3), ..GroupingRule::default() });
    groups.record(event("payment", AlertKind::Anomaly, false, 2), seconds(2));

    assert!(matches!(groups.next(seconds(2)), Step::Wait(until) if until == seconds(4)));
    let message = told(&mut groups, seconds(4)).unwrap();
    assert_eq!((&message["status"], groups.len()), (&serde_json::Value::from("resolved"), 1));
}

#[test]
fn a_message_is_what_receivers_of_alertmanager_know() {
    let mut groups = AlertGroups::new(GroupingRule::default());
    groups.record(event("payment", AlertKind::Anomaly, true, 0), seconds(0));
    groups.record(event("payment", AlertKind::SilentReplica("payment-1".into()), true, 1), seconds(1));
    groups.record(event("payment", AlertKind::SilentReplica("payment-1".into()), false, 2), seconds(1));

    let message = told(&mut groups, seconds(1)).unwrap();

    let expected = serde_json::json!({
        "version": "4",
        "groupKey": "{}:{service=\"payment\"}",
        "truncatedAlerts": 0,
        "status": "firing",
        "receiver": "team",
        "groupLabels": {"service": "payment"},
        "commonLabels": {"node": "n1", "service": "payment"},
        "commonAnnotations": {},
        "externalURL": "http://node:9702",
        "alerts": [
            {
                "status": "firing",
                "labels": {"alertname": "UviewAnomaly", "node": "n1", "service": "payment"},
                "annotations": {"summary": "payment at 0"},
                "startsAt": "2023-11-14T22:13:20.000Z",
                "endsAt": "0001-01-01T00:00:00Z",
                "generatorURL": "http://node:9702",
                "fingerprint": message["alerts"][0]["fingerprint"],
            },
            {
                "status": "resolved",
                "labels": {"alertname": "UviewSilentReplica", "instance": "payment-1", "node": "n1", "service": "payment"},
                "annotations": {"summary": "payment at 1"},
                "startsAt": "2023-11-14T22:13:21.000Z",
                "endsAt": "2023-11-14T22:13:22.000Z",
                "generatorURL": "http://node:9702",
                "fingerprint": message["alerts"][1]["fingerprint"],
            },
        ],
    });
    assert_eq!(message, expected);
    assert_ne!(message["alerts"][0]["fingerprint"], message["alerts"][1]["fingerprint"]);
}

#[test]
fn an_alert_of_an_incident_links_to_it() {
    let mut groups = AlertGroups::new(GroupingRule::default());
    let incident = "rack 7/né/20261127-064215-123".to_owned();
    groups.record(AlertEvent { incident, ..event("payment", AlertKind::Anomaly, true, 0) }, seconds(0));

    let message = told(&mut groups, seconds(1)).unwrap();

    let alert = &message["alerts"][0];
    assert_eq!(alert["generatorURL"], "https://ops.example/rack%207%2Fn%C3%A9/#/incident/20261127-064215-123");
    assert_eq!(alert["annotations"]["incident"], "rack 7/né/20261127-064215-123");
}

#[test]
fn an_alarm_is_told_when_it_fires_again_while_it_goes_on_and_once_when_it_is_over() {
    let mut groups = AlertGroups::new(GroupingRule::default());
    groups.record(event("payment", AlertKind::Anomaly, true, 0), seconds(0));
    assert!(told(&mut groups, Nanos::from_millis(999)).is_none(), "others may follow");
    assert_eq!(told(&mut groups, seconds(1)).unwrap()["status"], "firing");
    taken(&mut groups, seconds(1));

    // It goes on: no new message.
    groups.record(event("payment", AlertKind::Anomaly, true, 2), seconds(2));
    assert!(told(&mut groups, seconds(4 * 3600)).is_none());
    assert_eq!(
        told(&mut groups, seconds(4 * 3600 + 1)).unwrap()["alerts"][0]["annotations"]["summary"],
        "payment at 2"
    );
    taken(&mut groups, seconds(4 * 3600 + 1));

    groups.record(event("payment", AlertKind::Anomaly, false, 20_000), seconds(20_000));
    assert_eq!(told(&mut groups, seconds(20_000)).unwrap()["status"], "resolved");
    taken(&mut groups, seconds(20_000));
    assert!(groups.is_empty());
    assert!(matches!(groups.next(seconds(1_000_000)), Step::Wait(Nanos::NEVER)));
}

#[test]
fn another_cause_of_an_alarm_that_goes_on_is_told_with_its_own_text() {
    let mut groups = AlertGroups::new(GroupingRule::default());
    let begins = |at: u64| AlertEvent { begins: true, ..event("payment", AlertKind::Anomaly, true, at) };
    let first = |message: &serde_json::Value| {
        let alert = &message["alerts"][0];
        (alert["annotations"]["summary"].clone(), alert["startsAt"].clone())
    };
    groups.record(begins(0), seconds(0));
    let begun = first(&told(&mut groups, seconds(1)).unwrap()).1;
    taken(&mut groups, seconds(1));

    // At most one message in ten seconds. What goes on meanwhile does not hide the cause.
    groups.record(begins(8), seconds(8));
    groups.record(event("payment", AlertKind::Anomaly, true, 9), seconds(9));
    assert!(told(&mut groups, seconds(10)).is_none());
    let message = told(&mut groups, seconds(11)).unwrap();
    assert_eq!(first(&message), ("payment at 8".into(), begun));
    taken(&mut groups, seconds(11));

    groups.record(event("payment", AlertKind::Anomaly, true, 30), seconds(30));
    assert!(told(&mut groups, seconds(60)).is_none(), "it goes on");
    groups.record(event("payment", AlertKind::Anomaly, false, 61), seconds(61));
    assert_eq!(first(&told(&mut groups, seconds(61)).unwrap()).0, "payment at 30");
}

#[test]
fn a_receiver_that_is_away_is_tried_less_and_less_often_and_then_told_how_things_stand() {
    let mut groups = AlertGroups::new(GroupingRule::default());
    groups.record(event("payment", AlertKind::Anomaly, true, 0), seconds(0));
    let (mut now, mut pauses) = (seconds(1), Vec::new());
    for _ in 0..12 {
        assert!(told(&mut groups, now).is_some());
        assert!(told(&mut groups, now.plus(seconds(9_999))).is_none(), "one is under way");
        let Delivery::Retry(pause) = groups.complete(Reply::None, now, 0.0) else { unreachable!() };
        assert!(told(&mut groups, Nanos(now.0 + pause.0 - 1)).is_none());
        pauses.push(pause);
        now = now.plus(pause);
    }
    assert!(pauses.is_sorted() && pauses[0] == Nanos::from_millis(100) && pauses[11] == seconds(30), "{pauses:?}");
    // One alarm ended and fired again meanwhile, and another one began and ended: one message each, nothing more.
    groups.record(event("payment", AlertKind::Anomaly, false, 9), now);
    groups.record(event("payment", AlertKind::Anomaly, true, 10), now);
    groups.record(event("cart", AlertKind::Anomaly, true, 11), now);
    groups.record(event("cart", AlertKind::Anomaly, false, 12), now);
    now = now.plus(seconds(60));
    let mut said = Vec::new();
    while let Some(message) = told(&mut groups, now) {
        said.push((
            message["groupLabels"]["service"].clone(),
            message["status"].clone(),
            message["alerts"].as_array().unwrap().iter().map(|alert| alert["startsAt"].clone()).collect::<Vec<_>>(),
        ));
        taken(&mut groups, now);
    }
    said.sort_by_key(|(service, ..)| service.to_string());
    // An alarm that came back before its end was sent is the same alarm.
    let began = |at: &str| vec![format!("2023-11-14T22:13:{at}.000Z").into()];
    assert_eq!(
        said,
        [("cart".into(), "resolved".into(), began("31")), ("payment".into(), "firing".into(), began("20"))]
    );
}

#[test]
fn what_a_receiver_asks_for_is_waited_for_and_what_it_refuses_is_not_told_again() {
    let mut groups = AlertGroups::new(GroupingRule::default());
    groups.record(event("payment", AlertKind::Anomaly, true, 0), seconds(0));
    assert!(told(&mut groups, seconds(1)).is_some());
    let later = Reply::Http { status: 429, retry_after: Some(seconds(7)) };
    let delivery = groups.complete(later, seconds(1), 0.0);
    assert_eq!(delivery, Delivery::Retry(seconds(7)));
    assert!(told(&mut groups, seconds(7)).is_none());
    assert!(told(&mut groups, seconds(8)).is_some());

    assert_eq!(groups.complete(answer(400), seconds(8), 0.0), Delivery::Refused);

    assert!(told(&mut groups, seconds(3600)).is_none());
    assert_eq!(groups.complete(answer(200), seconds(8), 0.0), Delivery::Unexpected);
}

#[test]
fn what_is_said_while_a_message_is_under_way_is_told_after_it() {
    let mut groups = AlertGroups::new(GroupingRule::default());
    groups.record(event("payment", AlertKind::Anomaly, true, 0), seconds(0));
    assert!(told(&mut groups, seconds(1)).is_some());
    groups.record(event("payment", AlertKind::Anomaly, false, 2), seconds(2));
    taken(&mut groups, seconds(3));

    assert!(told(&mut groups, seconds(12)).is_none(), "not more often than each ten seconds");
    assert_eq!(told(&mut groups, seconds(13)).unwrap()["status"], "resolved");
}

#[test]
fn an_end_that_was_not_heard_of_is_seen_by_how_things_stand() {
    let mut groups = AlertGroups::new(GroupingRule::default());
    for service in ["gone", "quiet", "on"] {
        groups.record(event(service, AlertKind::Anomaly, true, 0), seconds(0));
    }
    groups.record(event("on", AlertKind::SilentReplica("on-1".into()), true, 0), seconds(0));
    for _ in 0..3 {
        assert!(told(&mut groups, seconds(1)).is_some());
        taken(&mut groups, seconds(1));
    }
    let standing = |alarm, silent: &[&str]| ServiceStatus {
        alarm,
        silent_replicas: silent.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>(),
    };
    let services =
        BTreeMap::from([("quiet".to_owned(), standing(false, &[])), ("on".to_owned(), standing(true, &["on-1"]))]);

    groups.reconcile(&services, day(4), seconds(4));
    assert!(told(&mut groups, seconds(100)).is_none(), "what was sent a moment ago counts more");
    groups.reconcile(&services, day(5), seconds(5));

    let mut over = Vec::new();
    while let Some(message) = told(&mut groups, seconds(100)) {
        assert_eq!(message["status"], "resolved");
        over.push(message["groupLabels"]["service"].as_str().unwrap().to_owned());
        taken(&mut groups, seconds(100));
    }
    assert_eq!(over, ["gone", "quiet"]);
    assert_eq!(groups.len(), 1);
}

#[test]
fn services_and_alerts_are_bounded_and_those_beyond_are_counted() {
    let mut groups = AlertGroups::new(GroupingRule { groups: 2, alerts: 2, ..GroupingRule::default() });
    for n in 0..5 {
        groups.record(event(&format!("s{n}"), AlertKind::Anomaly, true, 0), seconds(0));
        groups.record(event("s0", AlertKind::SilentReplica(format!("s0-{n}")), true, 0), seconds(0));
    }

    assert_eq!((groups.len(), groups.over_limit(), groups.over_limit()), (2, 7, 0));
}

#[test]
fn alerts_are_bounded_in_bytes_and_what_was_sent_makes_room() {
    let rule = GroupingRule { bytes: 10_000, wait: seconds(0), ..GroupingRule::default() };
    let mut groups = AlertGroups::new(rule);
    let long = |service: &str, firing: bool| AlertEvent {
        description: "d".repeat(3_000),
        ..event(service, AlertKind::Anomaly, firing, 0)
    };
    for n in 0..5 {
        groups.record(long(&format!("s{n}"), true), seconds(0));
    }
    assert_eq!((groups.len(), groups.over_limit()), (3, 2));

    // One that goes on keeps its text if the new one is too long.
    groups.record(AlertEvent { description: "d".repeat(9_000), ..long("s0", true) }, seconds(1));
    assert_eq!(groups.over_limit(), 1);
    for n in 0..3 {
        groups.record(long(&format!("s{n}"), false), seconds(1));
    }
    while told(&mut groups, seconds(60)).is_some() {
        taken(&mut groups, seconds(60));
    }

    groups.record(AlertEvent { description: "d".repeat(9_000), ..long("s9", true) }, seconds(61));
    assert_eq!((groups.len(), groups.over_limit()), (1, 0));
}

proptest! {
    /// With any events and any failures: once the receiver accepts everything, it knows what is firing, and was sent
    /// every end.
    #[test]
    fn a_receiver_that_comes_back_knows_everything(steps in prop::collection::vec((0_u8..3, any::<bool>(), 0_u16..4), 1..60)) {
        let mut groups = AlertGroups::new(GroupingRule::default());
        let (mut firing, mut known) = (BTreeSet::new(), BTreeSet::new());
        let mut now = seconds(0);
        let mut hear = |groups: &mut AlertGroups, status: Option<u16>, now: Nanos| {
            let Some(message) = told(groups, now) else { return false };
            if groups.complete(status.map_or(Reply::None, answer), now, 0.5) == Delivery::Accepted {
                let service = message["groupLabels"]["service"].as_str().unwrap().to_owned();
                if message["status"] == "firing" { known.insert(service) } else { known.remove(&service) };
            }
            true
        };
        for (service, on, outcome) in steps {
            now = now.plus(seconds(3));
            let service = format!("s{service}");
            groups.record(event(&service, AlertKind::Anomaly, on, now.as_millis() / 1000), now);
            if on { firing.insert(service) } else { firing.remove(&service) };
            hear(&mut groups, [Some(200), Some(503), None, Some(429)][usize::from(outcome)], now);
        }
        for _ in 0..20 {
            now = now.plus(seconds(60));
            while hear(&mut groups, Some(200), now) {}
        }
        prop_assert_eq!(known, firing);
    }
}
