//! Calls of operators.

use wire::control::DetectorSpec;
use wire::id::MetricId;
use wire::metric::{Aggregation, Statistic};
use wire::name::MetricName;
use wire::registration::Subject;

use super::super::testing::{counter, gauge, histogram, labelled, reason};
use super::*;

fn choice(name: &str) -> Choice {
    Choice { metric: MetricName::new(name).unwrap(), aggregation: Some(Aggregation::Max), every: None, unit: None }
}

fn watched(node: &Node) -> Vec<String> {
    let list = node.plane.list();
    list.lmaps[0].metrics.iter().map(|metric| format!("{}{}", metric.name, metric.labels)).collect()
}

#[test]
fn an_operators_lmap_has_its_settings_and_waits_for_its_service_without_one() {
    let mut node = Node::new(settings());
    let interval = Interval::new(Nanos::from_millis(10)).unwrap();
    let detector = DetectorSpec { rank: Some(3), margin: Some(1.2), ..DetectorSpec::default() };
    let model = TrainedModel::new(model(1)).unwrap();
    let asked = LmapOptions { interval: Some(interval), model: model.clone(), detector, ..LmapOptions::default() };
    let id = node.plane.new_lmap(node.now, &service("cart"), asked).unwrap();
    node.worker(50, 0, 1);
    node.settle();
    assert!(node.set(50).is_empty());

    node.replica(1, "cart", &[counter("a")]);
    node.settle();
    let (_, lmap) = node.set(50).pop().unwrap();
    assert_eq!((lmap.lmap, lmap.interval_us, &lmap.model), (id.0, 10_000, &model.to_vec()));
    assert_eq!(lmap.detector, Some((&detector).into()));
    assert_eq!(node.plane.status().lmaps[0].detector, Some((&detector).into()));

    node.gone(1);
    node.settle();
    assert!(matches!(node.sent(50)[0].1, Message::RemoveLmap(_)));
    assert_eq!(node.only_lmap(), id);
    let again = node.plane.new_lmap(node.now, &service("cart"), LmapOptions::default());
    assert!(matches!(again, Err(OperatorError::Exists { lmap, .. }) if lmap == id));
}

/// A small model with this many columns.
fn model(columns: u64) -> Vec<u8> {
    let of = |title| ::lmap::Column::new(::lmap::ColumnKind::Gauge, title);
    let mut detector = ::lmap::Detector::new((0..columns).map(of).collect(), ::lmap::Settings::default(), 1).unwrap();
    let mut row = 0_u64;
    while detector.model().is_none() {
        row += 1;
        let value = |column: u64| 1000.0 + (row * (column + 7) * 7919 % 101) as f64;
        let _ = detector.score(&(0..columns).map(value).collect::<Vec<_>>()).unwrap();
        if let Some(job) = detector.learn() {
            detector.install(job.run());
        }
    }
    detector.model().unwrap().encode()
}

#[test]
fn bytes_that_are_no_model_are_refused_before_they_are_kept() {
    let mut cut = model(2);
    cut.pop();
    for bytes in [vec![7], vec![0; 8 << 20], cut] {
        assert!(TrainedModel::new(bytes).is_err());
    }
    assert_eq!(TrainedModel::new(Vec::new()), Ok(TrainedModel::default()));
}

#[test]
fn an_operator_with_all_the_models_that_it_may_have_leaves_room_to_others_until_it_deletes_some() {
    let mut node = Node::new(settings());
    let large = model(600);
    let asks = |node: &mut Node, by: &str, name: String| {
        let model = TrainedModel::new(large.clone()).unwrap();
        let options = LmapOptions { model, by: by.to_owned(), ..LmapOptions::default() };
        node.plane.new_lmap(node.now, &service(&name), options)
    };

    let mut taken = Vec::new();
    let most = (256 << 20) / TrainedModel::new(large.clone()).unwrap().bytes();
    let refused = (0..=most)
        .find_map(|at| asks(&mut node, "user 65534", format!("flood-{at}")).map(|lmap| taken.push(lmap)).err());

    let refused = refused.expect("more models than fit are not taken").to_string();
    assert!(
        refused.starts_with("user 65534 would have") && refused.contains("bytes of operators' models"),
        "{refused}"
    );
    let quarters = node.plane.model_bytes() * 4 / (256 << 20);
    assert_eq!(quarters, 2, "nearly three of four");
    assert!(asks(&mut node, "user 1000", "cart".to_owned()).is_ok());
    node.plane.delete_lmap(node.now, taken[0]).unwrap();
    node.plane.delete_lmap(node.now, taken[1]).unwrap();
    assert!(asks(&mut node, "user 65534", "again".to_owned()).is_ok());
}

#[test]
fn a_deleted_lmap_stays_deleted_until_it_is_made_again() {
    let mut node = Node::new(settings());
    node.replica(1, "cart", &[counter("a")]);
    let id = node.only_lmap();

    node.plane.delete_lmap(node.now, id).unwrap();
    node.series(1, counter("b"), 1);
    node.gone(1);
    node.replica(2, "cart", &[counter("a")]);
    assert!(node.plane.list().lmaps.is_empty());
    assert_eq!(node.plane.delete_lmap(node.now, id), Err(OperatorError::NoLmap(id)));

    let again = node.plane.new_lmap(node.now, &service("cart"), LmapOptions::default()).unwrap();
    assert_ne!(again, id);
    assert_eq!(watched(&node), ["a"]);
}

#[test]
fn names_of_deleted_lmaps_are_remembered_up_to_a_limit() {
    let limits = Limits { unwatched_services: 2, ..Limits::default() };
    let mut node = Node::new(Settings { limits, ..settings() });
    for name in ["a", "b", "c", "d"] {
        let id = node.plane.new_lmap(node.now, &service(name), LmapOptions::default()).unwrap();
        node.plane.delete_lmap(node.now, id).unwrap();
    }

    for (connection, name) in [(1, "a"), (2, "b"), (3, "c"), (4, "d")] {
        node.replica(connection, name, &[counter("m")]);
    }

    let watched: Vec<_> = node.plane.list().lmaps.into_iter().map(|lmap| lmap.service).collect();
    assert_eq!(watched, ["c", "d"]);
}

#[test]
fn an_lmap_watches_what_is_chosen() {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);
    node.replica(1, "cart", &[counter("a"), gauge("b"), labelled(gauge("b"), "route", "/")]);
    let id = node.only_lmap();

    node.plane.config_lmap(node.now, id, vec![choice("b")]).unwrap();
    node.settle();
    assert_eq!(watched(&node), ["b", r#"b{route="/"}"#]);
    let (_, lmap) = node.set(50).pop().unwrap();
    assert!(lmap.metrics.iter().all(|metric| metric.aggregation == "max"));

    node.plane.config_lmap(node.now, id, vec![]).unwrap();
    assert_eq!(watched(&node).len(), 3);
}

#[test]
fn metrics_are_added_by_name_and_deleted_one_by_one_and_ids_are_not_reused() {
    let mut node = Node::new(settings());
    node.replica(1, "cart", &[counter("a"), gauge("b")]);
    let id = node.only_lmap();

    node.plane.delete_metric(node.now, id, MetricId(1)).unwrap();
    assert_eq!(watched(&node), ["b"]);
    let gone = node.plane.delete_metric(node.now, id, MetricId(1));
    assert_eq!(gone, Err(OperatorError::NoMetric { lmap: id, metric: MetricId(1) }));

    let added = node.plane.add_metric(node.now, id, choice("a"), Some("counter")).unwrap();
    assert_eq!(added, [MetricId(3)]);
    assert_eq!(watched(&node), ["a", "b"]);
}

#[test]
fn a_metric_that_is_not_registered_or_of_another_type_is_not_added() {
    let mut node = Node::new(settings());
    node.replica(1, "cart", &[counter("a")]);
    let id = node.only_lmap();

    let unknown = node.plane.add_metric(node.now, id, choice("nope"), None).unwrap_err();
    assert_eq!(unknown.to_string(), "no replica of cart has registered nope");
    let other = node.plane.add_metric(node.now, id, choice("a"), Some("gauge")).unwrap_err();
    assert_eq!(other.to_string(), "a is a counter, not a gauge");
}

#[test]
fn an_lmap_is_fitted_again_by_the_worker_that_runs_it() {
    let mut node = Node::new(settings());
    node.replica(1, "cart", &[counter("a")]);
    let id = node.only_lmap();
    assert_eq!(node.plane.fit_again(node.now, id), Err(OperatorError::NotRunning(id)));
    node.worker(50, 0, 1);
    node.settle();
    node.sent(50);

    node.plane.fit_again(node.now, id).unwrap();
    node.step();

    assert!(matches!(node.sent(50)[0].1, Message::FitAgain(proto::FitAgain { lmap }) if lmap == id.0));
    node.plane.worker_gone(node.now, ConnectionId(50));
    assert_eq!(node.plane.fit_again(node.now, id), Err(OperatorError::NotRunning(id)));
}

#[test]
fn a_subscription_of_rows_survives_a_reconnect() {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);
    node.replica(1, "cart", &[counter("a")]);
    node.settle();
    let id = node.only_lmap();
    node.sent(50);

    node.plane.subscribe_rows(id, 5).unwrap();
    node.plane.subscribe_rows(id, 5).unwrap();
    node.step();
    let sent = node.sent(50);
    assert!(matches!(&sent[..], [(1, Message::SubscribeRows(s))] if s.every == 5), "{sent:?}");

    node.worker(51, 0, 1);
    assert!(node.sent(51).iter().any(|(_, message)| matches!(message, Message::SubscribeRows(s) if s.every == 5)));
}

#[test]
fn each_column_is_asked_for_and_kept_only_while_somebody_looks() {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);
    node.replica(1, "cart", &[counter("a"), gauge("b")]);
    node.settle();
    let id = node.only_lmap();
    node.sent(50);
    let asked = |sent: &[(u64, Message)]| {
        let [(_, Message::SubscribeRows(subscription))] = sent else { unreachable!("{sent:?}") };
        (subscription.every, subscription.columns)
    };
    let summary = |node: &mut Node| {
        let reason =
            |metric, expected| proto::Reason { metric, seen: 7.0, expected, statistic: 1, ..Default::default() };
        // One column more than there are, and one that is not judged.
        let each = vec![reason(1, f64::NAN), reason(2, 5.0), reason(2, 6.0)];
        let lmaps = vec![proto::LmapSummary { lmap: id.0, epoch: 1, each, ..Default::default() }];
        node.receive(50, FromWorker::Summary(proto::Summary { lmaps, at_unix_ns: 9, ..Default::default() }));
        node.plane.each_column(id).unwrap().1.len()
    };
    assert_eq!(summary(&mut node), 0, "nobody looks");

    node.plane.look_at(&[id].into());
    node.plane.look_at(&[id].into());
    node.step();
    assert_eq!(asked(&node.sent(50)), (0, true));
    assert_eq!(summary(&mut node), 2);
    assert!(node.plane.each_column(LmapId(id.0 + 1)).is_none());

    node.worker(51, 0, 1);
    let is_asked = |(_, message): &(u64, Message)| matches!(message, Message::SubscribeRows(s) if s.columns);
    assert!(node.sent(51).iter().any(is_asked), "a worker's next run is asked, too");
    node.plane.look_at(&[].into());
    node.step();
    assert_eq!(asked(&node.sent(51)), (0, false));
}

#[test]
fn rows_are_passed_on_with_their_columns_and_only_if_they_fit() {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);
    node.replica(1, "cart", &[counter("a"), gauge("b")]);
    node.settle();
    let id = node.only_lmap();
    let row = |values: &[f64]| proto::Row { at_unix_ns: 1, score: 0.0, values: values.to_vec() };
    let rows = vec![row(&[1.0, 2.0]), row(&[1.0])];

    node.receive(50, FromWorker::Rows(proto::Rows { lmap: id.0, epoch: 1, rows: rows.clone() }));
    node.receive(50, FromWorker::Rows(proto::Rows { lmap: id.0, epoch: 0, rows }));

    let batches: Vec<_> = node.actions.iter().filter(|action| matches!(action, Action::Rows(_))).collect();
    let [Action::Rows(batch)] = &batches[..] else { panic!("{batches:?}") };
    assert_eq!(*batch.columns, ["a".to_owned(), "b".to_owned()]);
    assert_eq!(batch.rows.len(), 1);
    assert_eq!(node.plane.counters().stale_rows, 3);
}

#[test]
fn the_status_shows_the_latest_summary_of_an_lmap() {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);
    node.replica(1, "cart", &[counter("a")]);
    node.settle();
    let id = node.only_lmap();
    node.verdict(50, id, 1);
    let summary = proto::LmapSummary {
        lmap: id.0,
        epoch: 1,
        state: proto::State::Learning.into(),
        rows: 7,
        rows_needed: 120,
        discarded_header: 2,
        discarded_unread: 1,
        reasons: vec![proto::Reason {
            metric: 1,
            statistic: 2,
            share: 1.0,
            seen: 3.0,
            expected: 2.0,
            since_us: 4_200_000,
            replica: None,
        }],
        groups: vec![proto::GroupShare { group: 1, share: 0.25 }, proto::GroupShare { group: 0, share: 0.75 }],
        ..proto::LmapSummary::default()
    };
    let counters = proto::WorkerCounters { ticks: 40, late_ticks: 1, ..proto::WorkerCounters::default() };
    let message = proto::Summary { at_unix_ns: 5, lmaps: vec![summary], counters: Some(counters), account: None };
    node.receive(50, FromWorker::Summary(message));

    let status = node.plane.status();

    let lmap = &status.lmaps[0];
    assert_eq!((lmap.state.as_str(), lmap.rows, lmap.rows_needed, lmap.discarded), ("learning", 7, 120, 3));
    assert_eq!(lmap.reasons[0].about, "");
    assert_eq!((lmap.alarm, lmap.alarms), (true, 1));
    assert_eq!((lmap.reasons[0].column.as_str(), lmap.reasons[0].since_us), ("a", 4_200_000));
    let groups: Vec<_> = lmap.groups.iter().map(|group| (group.group.as_str(), group.share)).collect();
    assert_eq!(groups, [("service", 0.75), ("cpu", 0.25)]);
    assert_eq!((lmap.rank, lmap.detector.as_ref()), (1, None), "who is in alarm alone is the suspected cause");
    assert_eq!((status.workers[0].ticks, status.workers[0].late_ticks), (40, 1));
    assert_eq!(status.counters["verdicts"], 1);
}

#[test]
fn a_reason_has_its_column_in_one_title_and_in_parts() {
    let says = |series, statistic| {
        let wire::proto::operators::Reason { column, metric, statistic, labels, .. } =
            (&reason(series, statistic, [2.0, 1.0])).into();
        (column, metric, statistic, labels.into_iter().map(|label| (label.key, label.value)).collect::<Vec<_>>())
    };

    let call = says(labelled(histogram("calls"), "peer", "store \"7\""), Statistic::P99);
    let queue = says(gauge("queue"), Statistic::Value);

    let label = ("peer".to_owned(), "store \"7\"".to_owned());
    let [title, calls, p99] = [r#"calls.p99{peer="store \"7\""}"#, "calls", "p99"].map(str::to_owned);
    assert_eq!(call, (title, calls, p99, vec![label]));
    assert_eq!(queue, ("queue".to_owned(), "queue".to_owned(), String::new(), Vec::new()));
}

#[test]
fn a_chosen_name_that_nobody_has_is_pending_since_it_was_chosen_or_its_last_series_went() {
    let mut node = Node::new(settings());
    node.replica(1, "cart", &[counter("a"), counter("b")]);
    let id = LmapId(node.plane.list().lmaps[0].lmap);

    node.plane.config_lmap(Nanos::from_secs(1_000), id, vec![choice("a"), choice("later")]).unwrap();

    let pending = |node: &Node, second| {
        let pending = node.plane.pending(id, Nanos::from_secs(second));
        pending.into_iter().map(|of| (of.metric, of.for_ms)).collect::<Vec<_>>()
    };
    assert_eq!(pending(&node, 1_007), [("later".to_owned(), 7_000)]);
    node.series(1, counter("later"), 2);
    assert_eq!(pending(&node, 1_012), []);
    node.retire(1, 2, 1);
    let now = node.now;
    let gone: Vec<_> = node.plane.pending(id, now.plus(Nanos::from_secs(3))).into_iter().map(|of| of.metric).collect();
    assert_eq!(gone, ["later"]);
}

#[test]
fn a_reason_and_the_list_of_metrics_say_whom_a_metric_is_about_as_the_service_said_last() {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);
    node.replica(1, "network.shop", &[counter("a")]);
    node.settle();
    let id = node.only_lmap();
    let said = |metric: &str, text: &str| Subject::new(MetricName::new(metric).unwrap(), text);
    let reason = proto::Reason { metric: 1, statistic: 2, share: 1.0, seen: 3.0, expected: 2.0, ..Default::default() };
    let summary = proto::LmapSummary { lmap: id.0, epoch: 1, reasons: vec![reason], ..proto::LmapSummary::default() };
    node.receive(50, FromWorker::Summary(proto::Summary { at_unix_ns: 5, lmaps: vec![summary], ..Default::default() }));
    let about = |node: &Node| node.plane.status().lmaps[0].reasons[0].about.clone();
    let listed = |node: &Node| node.plane.list().lmaps[0].metrics[0].about.clone();

    assert!(node.welcomed(1).takes_subjects);
    assert_eq!(listed(&node), "");
    node.service_sends(1, ServiceMessage::Subjects(vec![said("a", "10.0.0.7"), said("b", "10.0.0.8")]));
    assert_eq!((about(&node), listed(&node)), ("10.0.0.7".to_owned(), "10.0.0.7".to_owned()));
    let verdict = proto::Verdict {
        lmap: id.0,
        epoch: 1,
        score: 9.0,
        gamma: 1.0,
        reasons: vec![reason],
        ..proto::Verdict::default()
    };
    node.receive(50, FromWorker::Verdicts(proto::Verdicts { at_unix_ns: 1, verdicts: vec![verdict] }));
    let events: Vec<_> = node.actions.iter().filter(|action| matches!(action, Action::Dispatch(_))).collect();
    let [Action::Dispatch(event)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(event.reasons.iter().map(|reason| reason.about.as_str()).collect::<Vec<_>>(), ["10.0.0.7"]);

    // More metrics than may have one, then the last word about the first.
    let many: Vec<_> = (0..30).map(|number| said(&format!("m{number}"), "x")).collect();
    many.chunks(16).for_each(|some| node.service_sends(1, ServiceMessage::Subjects(some.to_vec())));
    assert_eq!(about(&node), "10.0.0.7");
    node.service_sends(1, ServiceMessage::Subjects(vec![said("a", "")]));
    assert_eq!((about(&node), listed(&node)), (String::new(), String::new()));
}
