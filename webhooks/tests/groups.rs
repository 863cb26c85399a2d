//! What a receiver is told, in virtual time.

use std::collections::{BTreeMap, BTreeSet};

use hooks::time::UnixNanos;
use proptest::prelude::*;
use remote_write::answer::Answer;
use webhooks::message::{From, render};
use webhooks::{Groups, Heard, Rule, Sight, Standing, Step, What};
use wire::time::Nanos;

fn answer(status: u16, retry_after: Option<&str>) -> Answer {
    let retry_after = retry_after.map(str::to_owned);
    Answer::Answered { status, samples_written: None, exemplars_written: None, any_written: false, retry_after }
}

fn seconds(n: u64) -> Nanos {
    Nanos::from_secs(n)
}

fn day(n: u64) -> UnixNanos {
    UnixNanos::from_secs(1_700_000_000 + n)
}

fn sight(service: &str, what: What, firing: bool, at: u64) -> Sight {
    let summary = format!("{service} at {at}");
    Sight { service: service.to_owned(), what, firing, at: day(at), summary, description: String::new() }
}

fn from() -> From {
    From { receiver: "team".into(), external_url: "http://node:9702".into(), node: "n1".into() }
}

/// The message that is due at `now`.
fn told(groups: &mut Groups, now: Nanos) -> Option<serde_json::Value> {
    match groups.next(now) {
        Step::Send(notice) => Some(serde_json::from_slice(&render(&notice, &from())).expect("it is JSON")),
        Step::Wait(_) => None,
    }
}

fn taken(groups: &mut Groups, now: Nanos) {
    assert_eq!(groups.answered(&answer(200, None), day(0), now, 0.0), Heard::Taken);
}

#[test]
fn a_message_is_what_receivers_of_alertmanager_know() {
    let mut groups = Groups::new(Rule::default());
    groups.see(sight("payment", What::Anomaly, true, 0), seconds(0));
    groups.see(sight("payment", What::Silent("payment-1".into()), true, 1), seconds(1));
    groups.see(sight("payment", What::Silent("payment-1".into()), false, 2), seconds(1));

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
fn an_alarm_is_told_when_it_fires_again_while_it_goes_on_and_once_when_it_is_over() {
    let mut groups = Groups::new(Rule::default());
    groups.see(sight("payment", What::Anomaly, true, 0), seconds(0));
    assert!(told(&mut groups, Nanos::from_millis(999)).is_none(), "others may follow");
    assert_eq!(told(&mut groups, seconds(1)).unwrap()["status"], "firing");
    taken(&mut groups, seconds(1));

    // It goes on: nothing new.
    groups.see(sight("payment", What::Anomaly, true, 2), seconds(2));
    assert!(told(&mut groups, seconds(4 * 3600)).is_none());
    assert_eq!(
        told(&mut groups, seconds(4 * 3600 + 1)).unwrap()["alerts"][0]["annotations"]["summary"],
        "payment at 2"
    );
    taken(&mut groups, seconds(4 * 3600 + 1));

    groups.see(sight("payment", What::Anomaly, false, 20_000), seconds(20_000));
    assert_eq!(told(&mut groups, seconds(20_000)).unwrap()["status"], "resolved");
    taken(&mut groups, seconds(20_000));
    assert!(groups.is_empty());
    assert!(matches!(groups.next(seconds(1_000_000)), Step::Wait(Nanos::NEVER)));
}

#[test]
fn a_receiver_that_is_away_is_tried_less_and_less_often_and_then_told_how_things_stand() {
    let mut groups = Groups::new(Rule::default());
    groups.see(sight("payment", What::Anomaly, true, 0), seconds(0));
    let (mut now, mut pauses) = (seconds(1), Vec::new());
    for _ in 0..12 {
        assert!(told(&mut groups, now).is_some());
        assert!(told(&mut groups, now.plus(seconds(9_999))).is_none(), "one is under way");
        let Heard::Again(pause) = groups.answered(&Answer::None, day(0), now, 0.0) else { unreachable!() };
        assert!(told(&mut groups, Nanos(now.0 + pause.0 - 1)).is_none());
        pauses.push(pause);
        now = now.plus(pause);
    }
    assert!(pauses.is_sorted() && pauses[0] == Nanos::from_millis(100) && pauses[11] == seconds(30), "{pauses:?}");
    // It ended and fired again meanwhile, and another one began and ended: one message each, nothing more.
    groups.see(sight("payment", What::Anomaly, false, 9), now);
    groups.see(sight("payment", What::Anomaly, true, 10), now);
    groups.see(sight("cart", What::Anomaly, true, 11), now);
    groups.see(sight("cart", What::Anomaly, false, 12), now);
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
    // What came back before its end was told is the alarm that it was.
    let began = |at: &str| vec![format!("2023-11-14T22:13:{at}.000Z").into()];
    assert_eq!(
        said,
        [("cart".into(), "resolved".into(), began("31")), ("payment".into(), "firing".into(), began("20"))]
    );
}

#[test]
fn what_a_receiver_asks_for_is_waited_for_and_what_it_refuses_is_not_told_again() {
    let mut groups = Groups::new(Rule::default());
    groups.see(sight("payment", What::Anomaly, true, 0), seconds(0));
    assert!(told(&mut groups, seconds(1)).is_some());
    let heard = groups.answered(&answer(429, Some("7")), day(0), seconds(1), 0.0);
    assert_eq!(heard, Heard::Again(seconds(7)));
    assert!(told(&mut groups, seconds(7)).is_none());
    assert!(told(&mut groups, seconds(8)).is_some());

    assert_eq!(groups.answered(&answer(400, None), day(0), seconds(8), 0.0), Heard::Refused);

    assert!(told(&mut groups, seconds(3600)).is_none());
    assert_eq!(groups.answered(&answer(200, None), day(0), seconds(8), 0.0), Heard::Unasked);
}

#[test]
fn what_is_said_while_a_message_is_under_way_is_told_after_it() {
    let mut groups = Groups::new(Rule::default());
    groups.see(sight("payment", What::Anomaly, true, 0), seconds(0));
    assert!(told(&mut groups, seconds(1)).is_some());
    groups.see(sight("payment", What::Anomaly, false, 2), seconds(2));
    taken(&mut groups, seconds(3));

    assert!(told(&mut groups, seconds(12)).is_none(), "not more often than each ten seconds");
    assert_eq!(told(&mut groups, seconds(13)).unwrap()["status"], "resolved");
}

#[test]
fn an_end_that_was_not_heard_of_is_seen_by_how_things_stand() {
    let mut groups = Groups::new(Rule::default());
    for service in ["gone", "quiet", "on"] {
        groups.see(sight(service, What::Anomaly, true, 0), seconds(0));
    }
    groups.see(sight("on", What::Silent("on-1".into()), true, 0), seconds(0));
    for _ in 0..3 {
        assert!(told(&mut groups, seconds(1)).is_some());
        taken(&mut groups, seconds(1));
    }
    let standing = |alarm, silent: &[&str]| Standing {
        alarm,
        silent: silent.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>(),
    };
    let services =
        BTreeMap::from([("quiet".to_owned(), standing(false, &[])), ("on".to_owned(), standing(true, &["on-1"]))]);

    groups.stand(&services, day(4), seconds(4));
    assert!(told(&mut groups, seconds(100)).is_none(), "what was said a moment ago counts more");
    groups.stand(&services, day(5), seconds(5));

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
    let mut groups = Groups::new(Rule { groups: 2, alerts: 2, ..Rule::default() });
    for n in 0..5 {
        groups.see(sight(&format!("s{n}"), What::Anomaly, true, 0), seconds(0));
        groups.see(sight("s0", What::Silent(format!("s0-{n}")), true, 0), seconds(0));
    }

    assert_eq!((groups.len(), groups.crowded(), groups.crowded()), (2, 7, 0));
}

proptest! {
    /// Whatever is said and however often a receiver fails: once it takes everything, it knows what is firing and was told of every end.
    #[test]
    fn a_receiver_that_comes_back_knows_everything(steps in prop::collection::vec((0_u8..3, any::<bool>(), 0_u16..4), 1..60)) {
        let mut groups = Groups::new(Rule::default());
        let (mut firing, mut known) = (BTreeSet::new(), BTreeSet::new());
        let mut now = seconds(0);
        let mut hear = |groups: &mut Groups, status: Option<u16>, now: Nanos| {
            let Some(message) = told(groups, now) else { return false };
            let answer = status.map_or(Answer::None, |status| answer(status, None));
            if groups.answered(&answer, day(0), now, 0.5) == Heard::Taken {
                let service = message["groupLabels"]["service"].as_str().unwrap().to_owned();
                if message["status"] == "firing" { known.insert(service) } else { known.remove(&service) };
            }
            true
        };
        for (service, on, outcome) in steps {
            now = now.plus(seconds(3));
            let service = format!("s{service}");
            groups.see(sight(&service, What::Anomaly, on, now.as_millis() / 1000), now);
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
