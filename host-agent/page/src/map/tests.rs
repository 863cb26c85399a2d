//! Rates are of the last seconds, and what is shown is bounded.

use super::*;

fn counts(requests: u64, errors: u64, millis: u64) -> Counts {
    // Half of them within 1 ms, half within 10 ms.
    let classes = [requests / 2, requests - requests / 2, 0].into();
    Counts { requests, errors, took: Nanos::from_millis(millis), classes, unanswered: 0 }
}

fn pair(one: &str, other: &str) -> Pair {
    (one.into(), other.into())
}

fn stream(name: &str) -> Stream {
    Stream { lmap: 9, service: format!("network.{name}") }
}

fn snapshot(requests: u64) -> MapSnapshot {
    let operations = [
        (pair("frontend", "GET /"), counts(requests, 0, requests * 6)),
        (pair("payment", "charge"), counts(requests, requests / 4, requests * 4)),
    ];
    let calls = [(
        pair("frontend", "payment"),
        Counts { classes: [].into(), ..counts(requests / 16, requests / 64, requests / 4) },
    )];
    MapSnapshot {
        operations: Some(operations.into()),
        calls: Some(calls.into()),
        calls_from: 16,
        paths: [(pair("frontend", "GET /"), vec!["frontend".into(), "payment".into()])].into(),
        bounds: vec![Nanos::from_millis(1), Nanos::from_millis(10)],
        ..MapSnapshot::default()
    }
}

fn json(map: &mut Map) -> Value {
    serde_json::from_str(&map.json(|service| service == "payment", &[stream("frontend-payment"), stream("uplink")]))
        .unwrap()
}

#[test]
fn rates_are_of_the_last_seconds() {
    let mut map = Map::default();
    assert_eq!(json(&mut map), Value::Null);
    for second in 0..20 {
        if map.ask(Nanos::from_secs(second)) {
            // 160 requests a second, and 1,600 more in the first two.
            map.take(snapshot(160 * second + 1_600 * second.min(2)), Nanos::from_secs(second));
        }
    }

    let drawn = json(&mut map);

    assert!(map.snapshots.len() <= 4, "{}", map.snapshots.len());
    assert_eq!(drawn["over"], 10.0, "the snapshot at 8 s is compared with that at 18 s");
    // The one that stands out is first.
    assert_eq!(
        drawn["services"][0],
        json!({ "name": "payment", "operations": 1, "figures": [160.0, 0.25, 4.0, 10.0] })
    );
    let entry = json!({ "service": 1, "name": "GET /", "path": [1, 0], "figures": [160.0, 0.0, 6.0, 10.0] });
    assert_eq!(drawn["operations"][0], entry);
    assert_eq!(drawn["operations"][1]["path"], Value::Null, "no request enters there");
    assert_eq!(drawn["calls"], json!([[1, 0, 160.0, 4.0, 0.25, 0.0]]));
    assert_eq!(drawn["streams"], json!([[1, 0, 9]]), "the other one is no edge");
    assert_eq!((&drawn["counted"], &drawn["learnt"]), (&json!(true), &json!(true)));
}

#[test]
fn calls_that_nobody_answers_have_a_rate_when_nobody_answers_any_more() {
    let mut map = Map::default();
    let calls = |unanswered| {
        let counts = Counts { unanswered, ..counts(80, 0, 400) };
        MapSnapshot { calls: Some([(pair("frontend", "payment"), counts)].into()), ..snapshot(160) }
    };
    map.take(calls(0), Nanos::from_secs(0));
    map.take(calls(5), Nanos::from_secs(8));

    let drawn = json(&mut map);

    // Of those that were answered there was none: no delay, no share of failures.
    assert_eq!(drawn["calls"], json!([[1, 0, 0.0, null, null, 10.0]]));
}

#[test]
fn the_first_snapshot_has_no_rates_and_one_that_nobody_asks_for_is_dropped() {
    let mut map = Map::default();
    assert!(map.ask(Nanos::from_secs(100)));
    map.take(snapshot(160), Nanos::from_secs(100));
    assert!(!map.ask(Nanos::from_secs(101)), "it serves all that ask soon");

    let drawn = json(&mut map);
    assert_eq!((&drawn["over"], &drawn["services"][0]["figures"]), (&Value::Null, &json!([null, 0.25, 4.0, 10.0])));

    map.forget(Nanos::from_secs(160));
    assert_ne!(json(&mut map), Value::Null);
    map.forget(Nanos::from_secs(161));
    assert_eq!(json(&mut map), Value::Null);
}

#[test]
fn counters_that_begin_anew_are_no_negative_rates() {
    let mut map = Map::default();
    map.take(snapshot(1_000), Nanos::from_secs(1));
    map.take(snapshot(16), Nanos::from_secs(9));

    assert_eq!(json(&mut map)["services"][1]["figures"], json!([2.0, 0.0, 6.0, 10.0]));
}

#[test]
fn what_is_shown_is_bounded_and_the_rest_is_counted() {
    let mut map = Map::default();
    let service = |number: u64| format!("s{:04}", number % 500);
    let operations = (0..5_000).map(|number| (pair(&service(number), &format!("o{number}")), counts(number, 0, 1)));
    let calls = (0..5_000).map(|number| (pair(&service(number), &service(number / 10)), counts(number, 0, 1)));
    let hostile = "<script>\n\u{202e}";
    let paths = (0..1_000).map(|number| (pair(&service(number), &format!("o{number}")), vec![hostile.into(); 3]));
    let (operations, calls, paths) = (operations.collect(), calls.collect(), paths.collect());
    map.take(
        MapSnapshot { operations: Some(operations), calls: Some(calls), paths, ..MapSnapshot::default() },
        Nanos(0),
    );

    let text = map.json(|service| service == hostile, &[]);
    let drawn: Value = serde_json::from_str(&text).unwrap();

    let numbers = ["services", "operations", "calls"].map(|of| drawn[of].as_array().unwrap().len());
    assert_eq!(numbers[0], 250);
    assert!(numbers[1] <= 1_000 && numbers[2] <= 2_000, "{numbers:?}");
    assert_eq!(drawn["left_out"]["services"], 251);
    assert_eq!(drawn["left_out"]["operations"], 5_000 - numbers[1]);
    assert_eq!(drawn["services"][0]["name"], "<script>\\u{a}\\u{202e}");
    assert!(text.len() < 400_000, "{}", text.len());
}

#[test]
fn nothing_is_known_where_spans_are_not_counted() {
    let mut map = Map::default();
    map.take(MapSnapshot::default(), Nanos(0));

    let drawn = json(&mut map);

    assert_eq!((&drawn["counted"], &drawn["learnt"]), (&json!(false), &json!(false)));
}

#[test]
fn operations_of_paths_are_drawn_without_figures_where_requests_are_not_counted() {
    let mut map = Map::default();
    let seen = |calls| MapSnapshot {
        operations: None,
        calls: Some([(pair("shop", "store"), counts(calls, 0, 1))].into()),
        ..snapshot(0)
    };
    map.take(seen(0), Nanos(0));
    map.take(seen(8), Nanos::from_secs(1));

    let drawn = json(&mut map);

    let operation = &drawn["operations"][0];
    assert_eq!(operation["figures"], json!([null, null, null, null]), "{operation}");
    assert!(operation["path"].is_array(), "{operation}");
    assert_eq!(drawn["services"][0]["figures"], json!([null, null, null, null]));
    assert!(drawn["calls"][0][2].as_f64().is_some_and(|rate| rate > 0.0), "who calls whom is learnt by itself");
}
