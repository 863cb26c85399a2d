//! Events: small, shared, and enough to know everything.

use wire::time::Nanos;

use super::*;

const SECOND: u64 = 1_000_000_000;

fn lmap(id: u32, service: &str, at: u64) -> LmapStatus {
    LmapStatus {
        lmap: id,
        service: service.to_owned(),
        state: "armed".to_owned(),
        gamma: 4.0,
        scores: vec![1.0, 2.0],
        columns: 100,
        replicas: 1,
        interval_us: 100_000,
        at_unix_ns: at * SECOND,
        rows: 120,
        rows_needed: 120,
        ..LmapStatus::default()
    }
}

fn status(lmaps: Vec<LmapStatus>) -> StatusReply {
    StatusReply { version: "1".to_owned(), lmaps, ..StatusReply::default() }
}

/// A moment at which nobody has set a clock.
fn now(second: u64) -> Timestamp {
    Timestamp { monotonic: Nanos::from_secs(second), wall: UnixNanos::from_secs(second) }
}

fn feed() -> Feed {
    Feed::new(History::new(8 << 20))
}

fn data(event: &Event) -> Value {
    let (_, data) = event.text.split_once("\ndata: ").unwrap();
    serde_json::from_str(data.trim_end()).unwrap()
}

#[test]
fn an_event_has_what_changed_and_nothing_else() {
    let mut feed = feed();
    let both = status(vec![lmap(1, "cart", 9), lmap(2, "store", 9)]);
    assert_eq!(feed.look(&both, Revisions::default(), now(9)), News::Event);
    assert_eq!(feed.look(&both, Revisions::default(), now(9)), News::None);

    let alarm = LmapStatus { alarm: true, rank: 1, ..lmap(1, "cart", 10) };
    let status = status(vec![alarm, lmap(2, "store", 9)]);
    assert_eq!(feed.look(&status, Revisions::default(), now(10)), News::Event);

    let event = feed.next(Some(1)).unwrap();
    assert!(event.text.starts_with("id: 2\nevent: delta\ndata: {") && event.text.ends_with("}\n\n"), "{event:?}");
    let expected = json!({ "lmaps": [{ "id": 1, "state": "alarm", "rank": 1, "s": 2.0, "at": 10_000 }] });
    assert_eq!(data(&event), expected);
}

#[test]
fn what_is_over_is_null_and_what_is_gone_is_named() {
    let mut feed = feed();
    let reason = Reason {
        column: "latency.p99".to_owned(),
        unit: "s".to_owned(),
        seen: 0.18,
        expected: 0.02,
        ..Reason::default()
    };
    let alarm = LmapStatus { rank: 1, reasons: vec![reason], ..lmap(1, "cart", 9) };
    _ = feed.look(&status(vec![alarm, lmap(2, "store", 9)]), Revisions::default(), now(9));
    _ = feed.look(&status(vec![lmap(1, "cart", 9)]), Revisions { traces: 3, incidents: 2 }, now(9));

    let expected = json!({
        "gone": [2], "lmaps": [{ "id": 1, "rank": null, "reasons": null }], "node": { "traces": 3, "incidents": 2 },
    });
    assert_eq!(data(&feed.next(Some(1)).unwrap()), expected);
}

#[test]
fn a_viewer_that_begins_or_is_too_slow_gets_everything_at_once() {
    let mut feed = feed();
    let all = |second| status((0..100).map(|id| lmap(id, &format!("service-{id}"), second)).collect());
    _ = feed.look(&all(1), Revisions::default(), now(1));
    let first = feed.next(None).unwrap();
    assert_eq!(data(&first)["lmaps"].as_array().unwrap().len(), 100);
    for second in 2..2_000 {
        _ = feed.look(&all(second), Revisions::default(), now(second));
    }

    assert!(first.text.contains("event: snapshot"));
    let late = feed.next(Some(first.sequence)).unwrap();
    assert!(late.text.contains("event: snapshot") && late.sequence == 1_999, "{}", late.sequence);
    assert_eq!(data(&late)["lmaps"][99]["recent"].as_array().unwrap().len(), RECENT);
    assert!(feed.event_bytes <= MAX_EVENT_BYTES);
    assert!(feed.next(Some(late.sequence)).is_none());
    assert!(feed.next(Some(u64::MAX)).is_some(), "a viewer of another run of the agent");
    let behind = feed.next(Some(1_990)).unwrap();
    assert!(behind.text.contains("event: delta") && behind.sequence == 1_991);
}

#[test]
fn all_viewers_share_one_text() {
    let mut feed = feed();
    _ = feed.look(&status(vec![lmap(1, "cart", 9)]), Revisions::default(), now(9));

    let (one, other) = (feed.next(None).unwrap(), feed.next(None).unwrap());
    assert!(Arc::ptr_eq(&one.text, &other.text));
    let (one, other) = (feed.next(Some(0)).unwrap(), feed.next(Some(0)).unwrap());
    assert!(Arc::ptr_eq(&one.text, &other.text));
}

#[test]
fn whatever_a_service_is_called_an_event_has_one_line_of_data() {
    let mut feed = feed();
    let hostile = "a\n\ndata: {}\r\u{2028}\u{202e}</script>";
    let [column, unit, group, about] = [(); 4].map(|()| hostile.to_owned());
    let reason = Reason { column, unit, group, about, ..Reason::default() };
    let all = LmapStatus { reasons: vec![reason], points_at: hostile.to_owned(), ..lmap(1, hostile, 9) };
    _ = feed.look(&status(vec![all]), Revisions::default(), now(9));

    for event in [feed.next(None).unwrap(), feed.next(Some(0)).unwrap()] {
        assert_eq!(event.text.trim_end().lines().count(), 3, "{}", event.text);
        assert!(event.text.chars().all(|c| wire::printable::is_printable(c) || c == '\n'));
        let lmap = &data(&event)["lmaps"][0];
        assert!(lmap["service"].as_str().unwrap().contains("</script>"));
        assert!(lmap["reasons"][0]["about"].as_str().unwrap().contains("</script>"), "whom it is about");
    }
}

#[test]
fn scores_of_a_summary_are_remembered_once() {
    let mut feed = feed();
    _ = feed.look(&status(vec![lmap(1, "cart", 9)]), Revisions::default(), now(9));
    let again = LmapStatus { scores: vec![7.0], ..lmap(1, "cart", 9) };
    _ = feed.look(&status(vec![again]), Revisions::default(), now(9));
    _ = feed.look(&status(vec![lmap(1, "cart", 10)]), Revisions::default(), now(10));

    assert_eq!(feed.history.recent("cart", 9).collect::<Vec<_>>(), [2.0, 2.0]);
}

#[test]
fn what_nobody_sees_is_remembered_and_told_to_whoever_comes() {
    let (mut seen, mut unseen) = (feed(), feed());
    let reason = Reason { column: "latency.p99".to_owned(), share: 0.9, ..Reason::default() };
    let at = |second| {
        let (alarm, scores) = (second == 11, vec![if second == 11 { 9.0 } else { 1.0 }]);
        vec![LmapStatus { alarm, scores, reasons: vec![reason.clone()], ..lmap(1, "cart", second) }]
    };
    for second in 9..15 {
        _ = seen.look(&status(at(second)), Revisions::default(), now(second));
        unseen.remember(&at(second), now(second));
    }

    assert!(unseen.events.is_empty());
    let [all, remembered] = [&seen, &unseen].map(|feed| {
        let episodes: Vec<_> = feed.history.episodes("cart").cloned().collect();
        (feed.history.buckets("cart"), episodes, feed.history.heat("cart").count())
    });
    assert_eq!(all, remembered);
    assert_eq!((all.1.len(), all.2), (1, 1));
    assert_eq!(unseen.look(&status(at(14)), Revisions::default(), now(14)), News::Event);
    let [all, told] = [&mut seen, &mut unseen].map(|feed| data(&feed.next(None).unwrap())["lmaps"].clone());
    assert_eq!(all, told);
}

#[test]
fn of_a_summary_that_was_seen_its_number_and_time_do() {
    let mut feed = feed();
    assert!(feed.is_new(1, 0), "nothing is known of it");
    feed.remember(&[lmap(1, "cart", 9)], now(9));
    assert!(!feed.is_new(1, 9 * SECOND) && feed.is_new(1, 10 * SECOND));

    let known = LmapStatus { lmap: 1, at_unix_ns: 9 * SECOND, ..LmapStatus::default() };
    feed.remember(&[known], now(10));
    feed.remember(&[lmap(1, "cart", 11)], now(11));

    assert_eq!(feed.history.recent("cart", 9).collect::<Vec<_>>(), [2.0, 2.0]);
    assert_eq!(feed.history.recent("", 9).count(), 0);
}

#[test]
fn what_is_gone_while_nobody_looks_is_not_shown_to_who_comes_next() {
    let mut feed = feed();
    _ = feed.look(&status(vec![lmap(1, "cart", 9), lmap(2, "store", 9)]), Revisions::default(), now(9));
    assert_eq!(data(&feed.next(None).unwrap())["lmaps"].as_array().unwrap().len(), 2);

    feed.remember(&[lmap(1, "cart", 10)], now(10));
    _ = feed.look(&status(vec![lmap(1, "cart", 11)]), Revisions::default(), now(11));

    let shown = data(&feed.next(None).unwrap());
    assert_eq!(shown["lmaps"].as_array().unwrap().len(), 1, "{shown}");
}

#[test]
fn what_changes_between_two_summaries_is_told_before_the_next_one() {
    let changes: [fn(&mut LmapStatus); 8] = [
        |of| of.alarm = true,
        |of| of.state = "silent".to_owned(),
        |of| of.rank = 2,
        |of| of.points_at = "store".to_owned(),
        |of| of.alarms = 1,
        |of| of.replicas = 7,
        |of| of.worker = Some(3),
        |of| of.interval_us = 7,
    ];
    for change in changes {
        let (mut feed, mut changed) = (feed(), lmap(1, "cart", 9));
        _ = feed.look(&status(vec![changed.clone()]), Revisions::default(), now(9));
        change(&mut changed);

        assert_eq!(feed.look(&status(vec![changed]), Revisions::default(), now(9)), News::Event);
    }
}

#[test]
fn of_ten_thousand_services_each_is_sent_and_events_keep_to_their_bytes() {
    let mut feed = feed();
    for second in 1..=3 {
        let all = (0..10_000).map(|id| lmap(id, &format!("service-{id}"), second)).collect();
        assert_eq!(feed.look(&status(all), Revisions::default(), now(second)), News::Event);
        assert!(feed.event_bytes <= MAX_EVENT_BYTES);
    }

    let snapshot = feed.next(None).unwrap();

    assert_eq!(data(&snapshot)["lmaps"].as_array().unwrap().len(), 10_000);
    assert!(snapshot.text.len() < 8 << 20, "{}", snapshot.text.len());
    // A viewer that is behind gets one event after the other, or everything at once.
    let behind = feed.next(Some(1)).unwrap();
    assert!(behind.sequence >= 2, "{}", behind.sequence);
}

/// Dates of the buckets of `service`, as a viewer gets them, since `from`.
fn dates(feed: &Feed, service: &str, from: u32) -> Vec<u32> {
    feed.history.buckets(service).iter().map(|(_, bucket)| feed.dates.of(bucket.second) - from).collect()
}

#[test]
fn a_wall_clock_that_jumps_forward_and_back_costs_no_bucket_and_no_service_its_history() {
    const DAY: u64 = 86_400;
    let (mut feed, start) = (feed(), 1_700_000_040);
    // So many seconds after the start, the clock and with it the worker's is ahead by so much.
    let mut look = |after: u64, ahead: u64, services: &[&str]| {
        let wall = start + after + ahead;
        let lmaps = (1..).zip(services).map(|(id, service)| lmap(id, service, wall)).collect();
        let now = Timestamp { monotonic: Nanos::from_secs(after), wall: UnixNanos::from_secs(wall) };
        assert_eq!(feed.look(&status(lmaps), Revisions::default(), now), News::Event);
    };
    (0..10).for_each(|after| look(after, 0, &["cart", "store"]));
    // Ten seconds, more than a day ahead, in which a newcomer comes.
    (10..20).for_each(|after| look(after, 2 * DAY, &["cart", "store", "newcomer"]));
    (20..30).for_each(|after| look(after, 0, &["cart", "store", "newcomer"]));

    let from = u32::try_from(start).unwrap();
    let all: Vec<u32> = (0..30).collect();
    assert_eq!((dates(&feed, "cart", from), dates(&feed, "store", from)), (all.clone(), all.clone()));
    assert_eq!(dates(&feed, "newcomer", from), all[10..]);
}

#[test]
fn a_worker_whose_clock_is_wrong_has_the_history_of_others() {
    let mut feed = feed();
    for second in 100..110 {
        // One is ten years ahead, and then right again; one began in 1970.
        let odd = if second < 105 { 315_000_000 + second } else { second };
        let lmaps = vec![lmap(1, "cart", second), lmap(2, "odd", odd), lmap(3, "old", second - 100 + 1)];
        assert_eq!(feed.look(&status(lmaps), Revisions::default(), now(second)), News::Event);
    }

    let all: Vec<u32> = (0..10).collect();
    for service in ["cart", "odd", "old"] {
        assert_eq!(dates(&feed, service, 100), all, "{service}");
    }
    let event = data(&feed.next(Some(9)).unwrap());
    assert!(event["lmaps"].as_array().unwrap().iter().all(|lmap| lmap["at"] == 109_000), "{event}");
}
