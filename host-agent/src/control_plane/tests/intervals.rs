//! Intervals that operators set, and what is known at them.

use super::super::testing::counter;
use super::*;

fn interval(millis: u64) -> Interval {
    Interval::new(Nanos::from_millis(millis)).unwrap()
}

fn bounded() -> Settings {
    let mut settings = settings();
    settings.operator_bounds = (interval(10), interval(60_000));
    settings.adaptive = Some(interval(20));
    settings
}

fn change(millis: Option<u64>) -> IntervalChange {
    let choice = millis.map_or(IntervalChoice::Default, |millis| IntervalChoice::Of(interval(millis)));
    IntervalChange { interval: Some(choice), fastest: None, by: "user 7".to_owned() }
}

/// A node whose worker runs an LMAP, as last configured.
fn running() -> (Node, LmapId) {
    let mut node = Node::new(bounded());
    node.worker(50, 0, 1);
    node.replica(1, "cart", &[counter("a")]);
    node.settle();
    let configured = node.set(50).pop().unwrap().1;
    assert_eq!((configured.interval_us, configured.fastest_us), (100_000, 20_000));
    let id = node.only_lmap();
    (node, id)
}

#[test]
fn a_changed_interval_is_sent_and_shown_and_says_what_judges_until_it_is_learnt() {
    let (mut node, id) = running();
    let young = node.plane.set_interval(node.now, id, &change(Some(50))).unwrap();
    assert_eq!((young.judged, young.rows_needed), (None, 120), "nothing is learnt yet");
    node.settle();
    assert_eq!(node.set(50).pop().unwrap().1.interval_us, 50_000);

    node.armed(50, &[id.0]);
    let armed = node.plane.set_interval(node.now, id, &change(Some(200))).unwrap();
    assert_eq!((armed.before, armed.interval, armed.judged), (interval(50), interval(200), Some(interval(50))));
    let status = &node.plane.status().lmaps[0];
    assert_eq!((status.interval_us, status.interval_by.as_str(), status.fastest_us), (200_000, "user 7", 20_000));

    let usual = node.plane.set_interval(node.now, id, &change(None)).unwrap();
    assert_eq!(usual.interval, interval(100));
    assert_eq!(node.plane.status().lmaps[0].interval_by, "");
}

#[test]
fn what_was_learnt_at_an_interval_is_sent_with_it_when_it_comes_back() {
    let (mut node, id) = running();
    let learnt = |node: &mut Node, millis: u64, byte| {
        let model = proto::LearntModel { lmap: id.0, epoch: 0, model: vec![byte; 9], interval_us: 1000 * millis };
        node.receive(50, FromWorker::LearntModel(model));
    };
    learnt(&mut node, 100, 1);
    node.plane.set_interval(node.now, id, &change(Some(50))).unwrap();
    node.settle();
    assert!(node.set(50).pop().unwrap().1.learnt.is_empty(), "what was learnt at 100 ms is no normal at 50");
    // The worker may still judge at the former interval, whose model it hands over.
    learnt(&mut node, 100, 2);

    let back = node.plane.set_interval(node.now, id, &change(Some(100))).unwrap();
    node.settle();

    assert_eq!((back.judged, back.rows_needed), (Some(interval(100)), 0));
    let configured = node.set(50).pop().unwrap().1;
    assert_eq!((configured.interval_us, configured.learnt), (100_000, vec![2; 9]));
}

/// A source of `cart` whose counter changes every `millis`. Returns the interval that worker 50 is sent, in µs.
fn source(node: &mut Node, connection: u64, millis: u64) -> u64 {
    node.connect(connection);
    node.hello_of_measured(connection, "cart", Nanos::from_millis(millis));
    node.region(connection, 0);
    node.series(connection, counter(&format!("every{millis}")), 0);
    node.settle();
    node.set(50).pop().unwrap().1.interval_us
}

/// The last configuration that worker 50 is sent within `seconds`, in which its summaries come; `None`: none was sent.
fn after(node: &mut Node, seconds: u64) -> Option<proto::Lmap> {
    let id = node.only_lmap();
    for _ in 0..seconds {
        let epoch = node.plane.lmaps[&id].sent.as_ref().map_or(0, |sent| sent.epoch.0);
        let state = proto::State::Armed.into();
        let summary = proto::LmapSummary { lmap: id.0, epoch, state, ..Default::default() };
        node.receive(50, FromWorker::Summary(proto::Summary { lmaps: vec![summary], ..Default::default() }));
        node.pass(Nanos::from_secs(1));
    }
    node.set(50).pop().map(|(_, lmap)| lmap)
}

#[test]
fn an_lmap_whose_faster_source_is_gone_takes_up_again_what_it_knew_at_the_slower_interval_after_a_wait() {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);
    assert_eq!(source(&mut node, 1, 2_000), 2_000_000);
    let id = node.only_lmap();
    let model = proto::LearntModel { lmap: id.0, epoch: 0, model: vec![7; 9], interval_us: 2_000_000 };
    node.receive(50, FromWorker::LearntModel(model));
    assert_eq!(source(&mut node, 2, 1_000), 1_000_000);

    // One that restarts changes nothing.
    node.gone(2);
    assert_eq!(after(&mut node, 300).unwrap().interval_us, 1_000_000);
    assert_eq!(source(&mut node, 3, 1_000), 1_000_000);
    assert!(after(&mut node, 900).is_none());
    node.gone(3);
    let sent = after(&mut node, 590).unwrap();
    assert_eq!((sent.interval_us, sent.metrics.len()), (1_000_000, 1));
    assert!(after(&mut node, 5).is_none());

    let slower = after(&mut node, 10).unwrap();
    assert_eq!((slower.interval_us, slower.learnt), (2_000_000, vec![7; 9]));
    assert_eq!(node.plane.status().lmaps[0].interval_us, 2_000_000);
}

#[test]
fn an_interval_of_which_nothing_is_known_is_waited_for_as_long_as_it_takes_to_learn_and_an_operator_waits_for_none() {
    for asks in [false, true] {
        let mut node = Node::new(settings());
        node.worker(50, 0, 1);
        for (connection, millis) in [(1, 20_000), (2, 1_000)] {
            source(&mut node, connection, millis);
        }
        node.gone(2);
        // 120 rows of 20 s.
        assert_eq!(after(&mut node, 2_390).unwrap().interval_us, 1_000_000);
        if asks {
            let id = node.only_lmap();
            node.plane.set_interval(node.now, id, &change(None)).unwrap();
            node.settle();
            assert_eq!(node.set(50).pop().unwrap().1.interval_us, 20_000_000);
            assert!(after(&mut node, 30).is_none());
        } else {
            assert_eq!(after(&mut node, 20).unwrap().interval_us, 20_000_000);
        }
    }
}

#[test]
fn an_alarm_keeps_its_interval_without_further_configurations() {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);
    source(&mut node, 1, 2_000);
    source(&mut node, 2, 1_000);
    node.gone(2);
    assert!(after(&mut node, 300).is_some());
    let id = node.only_lmap();
    let set_alarm = |node: &mut Node, alarm| node.plane.lmaps.get_mut(&id).unwrap().health.alarm = alarm;

    set_alarm(&mut node, true);
    assert!(after(&mut node, 900).is_none());
    set_alarm(&mut node, false);

    assert_eq!(after(&mut node, 11).unwrap().interval_us, 2_000_000);
}

#[test]
fn intervals_out_of_bounds_are_refused_with_the_keys_that_set_them_and_change_nothing() {
    let (mut node, id) = running();
    for millis in [9, 60_001] {
        let refused = node.plane.set_interval(node.now, id, &change(Some(millis))).unwrap_err().to_string();
        assert!(refused.contains("outside 10ms to 60s: lmap.fastest_ms and lmap.slowest_ms"), "{refused}");
    }
    let fast = IntervalChange { fastest: Some(FastestChoice::AtMost(interval(5))), ..IntervalChange::default() };
    assert!(node.plane.set_interval(node.now, id, &fast).unwrap_err().to_string().contains("lmap.adaptive.fastest_ms"));
    assert!(matches!(
        node.plane.set_interval(node.now, LmapId(99), &change(Some(50))),
        Err(OperatorError::NoLmap(LmapId(99)))
    ));
    node.settle();

    assert!(node.set(50).is_empty());
}

#[test]
fn faster_fetches_are_switched_for_one_lmap_and_outlive_its_replicas() {
    let (mut node, id) = running();
    for (fastest, micros) in [
        (FastestChoice::Never, 0),
        (FastestChoice::AtMost(interval(10)), 10_000),
        (FastestChoice::Default, 20_000),
        (FastestChoice::Never, 0),
    ] {
        let fastest = IntervalChange { fastest: Some(fastest), ..IntervalChange::default() };
        node.plane.set_interval(node.now, id, &fastest).unwrap();
        node.settle();
        assert_eq!(node.set(50).pop().unwrap().1.fastest_us, micros);
    }

    node.gone(1);
    node.settle();
    node.replica(2, "cart", &[counter("a")]);
    node.settle();

    assert_eq!(node.set(50).pop().unwrap().1.fastest_us, 0);
}

#[test]
fn an_lmap_that_learns_another_interval_stays_where_it_is() {
    let (mut node, id) = running();
    node.armed(50, &[id.0]);
    let may_move = |node: &Node| node.plane.lmaps[&id].may_move();
    assert!(may_move(&node));

    let epoch = node.plane.lmaps[&id].sent.as_ref().map_or(0, |sent| sent.epoch.0);
    let state = proto::State::Armed.into();
    let summary = proto::LmapSummary { lmap: id.0, epoch, state, learning_us: 50_000, ..Default::default() };
    node.receive(50, FromWorker::Summary(proto::Summary { lmaps: vec![summary], ..Default::default() }));

    assert!(!may_move(&node), "only its worker knows what judges meanwhile");
}
