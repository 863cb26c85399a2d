use super::*;
use crate::judge::judge;
use crate::traces::example;

#[test]
fn what_a_fault_hit_is_kept_whole_in_part_or_missed_and_the_rest_is_beyond() {
    let found = judge(&example::run()).traces;

    let fault = &found.faults[0];
    assert_eq!((fault.requests, fault.hit, fault.failed), (4, 3, 1));
    assert_eq!((fault.whole, fault.part, fault.missed.all(), fault.beyond), (1, 1, 1, 1));
    assert_eq!(fault.kept_bytes, 900 + 800);
    assert_eq!(fault.by_policy, [("lmap".to_owned(), 1), ("unknown".to_owned(), 1)].into());
    assert_eq!(found.healthy_p99[Errand::Buy as usize], Some(Nanos::from_millis(10)));
    assert_eq!((found.requests, found.kept, found.hit_and_whole()), (104, 3, (3, 1)));
    assert!((found.beyond_share() - 1.0 / 104.0).abs() < 1e-9);
}

#[test]
fn a_request_is_hit_if_it_was_under_way_at_any_time_of_the_fault() {
    let mut record = example::run();
    let fault = record.faults[0].clone();
    let moved = |started: Nanos| Visit { started, ..example::visit(9) };
    let before = moved(Nanos(fault.started.0 - Nanos::from_millis(119).0));
    let long_before = moved(Nanos(fault.started.0 - Nanos::from_millis(121).0));
    record.visits.extend([before, long_before, moved(Nanos(fault.ended.0 - 1)), moved(fault.ended)]);

    assert_eq!(judge(&record).traces.faults[0].requests, 4 + 2);
}

#[test]
fn a_missed_trace_is_unwanted_once_its_time_is_over_and_undecided_before() {
    let mut record = example::run();
    record.visits.push(Visit { trace: None, ..example::visit(0) });
    let unwanted = MissedTraces { unwanted: 1, undecided: 0, unanswered: 1 };
    assert_eq!(judge(&record).traces.faults[0].missed, unwanted);

    record.ledger.wait = Nanos::from_secs(90);

    let undecided = MissedTraces { unwanted: 0, undecided: 1, unanswered: 1 };
    assert_eq!(judge(&record).traces.faults[0].missed, undecided);
}

#[test]
fn a_reason_names_a_service_if_it_begins_with_it_or_has_one_of_its_operations() {
    for one in
        ["store: score 9.0, threshold 4.0", "payment: GET /write ended in an error", "store: GET /x ended in an error"]
    {
        assert!(names(one, Service::Store.into()), "{one}");
    }
    for other in [
        "",
        "storeroom: score 9.0",
        "payment: GET /writes ended in an error",
        "payment: score 9.0; http.client.request.duration{peer=\"store\"} 9 ms; store: 3",
    ] {
        assert!(!names(other, Service::Store.into()), "{other}");
    }
    let of_the_link = ["network.payment-store: score 9.0", "payment: score 9.0", "frontend: GET /write took 90 ms"];
    assert!(of_the_link.iter().all(|reason| names(reason, Target::Link)));
    assert!(!names("frontend: score 9.0; payment: 3", Target::Link));
    assert_eq!(judge(&example::run()).traces.faults[0].named, 1);
}

#[test]
fn the_trace_to_open_names_the_service_before_it_is_whole_or_long_and_is_not_hit_only_if_none_is_kept_that_is() {
    let mut record = example::run();
    let longer = Visit { took: Nanos::from_secs(1), ..example::visit(5) };
    record.visits.push(longer);
    let mut unnamed = example::whole_trace();
    unnamed.spans[0].reason = Some("GET /checkout took 1 s".to_owned());
    record.traces.insert(TraceId(5), unnamed);
    record.traces.get_mut(&TraceId(1)).unwrap().spans.pop();
    let shown = |record: &Record| judge(record).traces.faults[0].example.clone().unwrap();
    assert_eq!(shown(&record).trace, TraceId(1));

    record.traces.insert(TraceId(5), example::whole_trace());

    assert_eq!(shown(&record).trace, TraceId(5));
    assert!(shown(&record).hit && shown(&record).reason.starts_with("store: score 31.0"));

    record.traces.retain(|id, _| *id == TraceId(4));

    assert_eq!((shown(&record).trace, shown(&record).hit), (TraceId(4), false));
}

#[test]
fn without_healthy_requests_only_those_are_hit_that_failed() {
    let mut record = example::run();
    record.visits.retain(|visit| visit.started >= record.faults[0].started);

    let found = judge(&record).traces;

    assert_eq!((found.healthy_p99, found.faults[0].hit), ([None, None], 1));
}
