//! What is kept of an incident, how long, and what a restart finds.

use page::traces::{KeepReason, Outcome, Side, Span};
use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::streams::StreamLook;

const START: u64 = 1_795_761_735;

fn at(seconds: u64) -> UnixNanos {
    UnixNanos((START + seconds) * 1_000_000_000)
}

fn id(seconds: u64) -> IncidentId {
    IncidentId::of(at(seconds))
}

fn reason(metric: &str) -> Reason {
    let (column, metric) = (metric.to_owned(), metric.to_owned());
    Reason { column, metric, share: 0.8, seen: 9.0, expected: 1.0, ..Reason::default() }
}

fn says(recorder: &mut Recorder, service: &str, seconds: u64, incident: u64, phase: Phase, ratio: f64) {
    let incident = matches!(phase, Phase::Begin | Phase::Middle).then(|| id(incident));
    let metrics = [Reason { seen: ratio, ..reason(&format!("metric.of.{service}")) }];
    recorder.verdict(&Verdict { service, at: at(seconds), incident, phase, ratio, silent: &[], metrics: &metrics });
}

fn ranking(incident: u64, services: &[(&str, u64, bool)]) -> Ranking {
    let service = |(service, began, is_on): &(&str, u64, bool)| RankedService {
        service: (*service).to_owned(),
        points_at: String::new(),
        began: at(*began),
        is_on: *is_on,
    };
    Ranking { id: id(incident), services: services.iter().map(service).collect() }
}

/// Two services in alarm: cart from 200 s on, then payment, which is the suspected cause.
fn recorder() -> Recorder {
    let mut recorder = Recorder::new("node-3", 4 << 20);
    for second in 0..200 {
        recorder.recent.add("payment", (START + second) as u32, 0.3);
        recorder.recent.add("cart", (START + second) as u32, 0.2);
    }
    says(&mut recorder, "cart", 200, 200, Phase::Begin, 2.0);
    says(&mut recorder, "payment", 203, 200, Phase::Begin, 5.0);
    says(&mut recorder, "payment", 204, 200, Phase::Middle, 9.0);
    says(&mut recorder, "payment", 205, 200, Phase::Middle, 7.0);
    recorder.look(&[ranking(200, &[("payment", 203, true), ("cart", 200, true)])], at(205));
    recorder
}

#[test]
fn an_incident_has_its_services_by_suspicion_with_the_metrics_that_made_their_alarms() {
    let recorder = recorder();

    let incident = recorder.get(id(200)).unwrap();

    let services: Vec<_> = incident.services.iter().map(|of| (of.service.as_str(), of.rank, of.peak)).collect();
    assert_eq!(services, [("payment", 1, 9.0), ("cart", 2, 2.0)]);
    let payment = &incident.services[0];
    let [metric] = &payment.metrics[..] else { unreachable!("{payment:?}") };
    assert_eq!((metric.column.as_str(), metric.seen, payment.alarms), ("metric.of.payment", 9.0, 1));
    assert_eq!((payment.usual, payment.usual_maximum), (0.3, 0.3));
    assert_eq!((payment.ratios_from_s, payment.ratios[0], payment.ratios[124]), (START + 80, 0.3, 9.0));
    assert_eq!(incident.cause, "payment: metric.of.payment 9, expected 1");
    assert_eq!((incident.ended_unix_ns, incident.id.as_str()), (0, "20261127-064535-000"));
}

/// A row of the store's alarm: its score, and the metrics that explain it.
fn row(recorder: &mut Recorder, seconds: u64, ratio: f64, metrics: &[Reason]) {
    let phase = if seconds == 300 { Phase::Begin } else { Phase::Middle };
    let (at, incident) = (at(seconds), Some(id(300)));
    recorder.verdict(&Verdict { service: "store", at, incident, phase, ratio, silent: &[], metrics });
}

#[test]
fn a_transient_peak_that_another_metric_leads_does_not_name_the_alarm() {
    let mut recorder = Recorder::new("node-3", 4 << 20);
    let metric = |name: &str, share: f64, seen: f64| Reason { share, seen, ..reason(name) };
    row(&mut recorder, 300, 60.0, &[metric("runtime.tasks", 0.9, 37.0), metric("work.duration.mean", 0.1, 2.0)]);
    for second in 301..=320 {
        let lasting = [metric("work.duration.mean", 0.9, 28.0), metric("runtime.tasks", 0.05, 38.0)];
        row(&mut recorder, second, 28.0, &lasting);
    }
    recorder.look(&[ranking(300, &[("store", 300, true)])], at(320));

    let incident = recorder.get(id(300)).unwrap();

    let store = &incident.services[0];
    let named: Vec<_> = store.metrics.iter().map(|of| (of.column.as_str(), of.seen)).collect();
    assert_eq!((named, store.peak), (vec![("work.duration.mean", 28.0), ("runtime.tasks", 37.0)], 60.0));
    let share = |at: usize| (100.0 * store.metrics[at].share).round();
    assert_eq!((share(0), share(1)), (86.0, 9.0), "of the whole alarm");
    assert_eq!(incident.cause, "store: work.duration.mean 28, expected 1");
    assert_eq!(recorder.list()[0].cause, incident.cause);
    assert!(crate::draw::page(&incident).contains(&incident.cause));
}

#[test]
fn a_short_alarm_of_one_row_names_its_metrics() {
    let mut recorder = Recorder::new("node-3", 4 << 20);
    row(&mut recorder, 300, 1.2, &[reason("queue.depth"), Reason { share: 0.1, ..reason("beside") }]);
    says(&mut recorder, "store", 301, 300, Phase::End, 0.5);
    recorder.look(&[], at(302));

    let incident = recorder.get(id(300)).unwrap();

    let columns: Vec<_> = incident.services[0].metrics.iter().map(|of| of.column.as_str()).collect();
    assert_eq!((columns, incident.cause.as_str()), (vec!["queue.depth", "beside"], "store: queue.depth 9, expected 1"));
}

#[test]
fn it_ends_with_the_last_alarm_and_is_closed_when_nothing_more_can_come() {
    let mut recorder = recorder();
    says(&mut recorder, "payment", 230, 200, Phase::End, 0.5);
    recorder.look(&[ranking(200, &[("payment", 203, false), ("cart", 200, true)])], at(231));
    assert_eq!(recorder.get(id(200)).unwrap().ended_unix_ns, 0);

    recorder.look(&[], at(240));

    let incident = recorder.get(id(200)).unwrap();
    let ends: Vec<_> = incident.services.iter().map(|of| of.ended_unix_ns).collect();
    assert_eq!((ends, incident.ended_unix_ns), (vec![at(230).0, at(240).0], at(240).0));
    recorder.look(&[], at(316));
    assert!(recorder.open.is_empty());
    let closed = recorder.get(id(200)).unwrap();
    assert_eq!(closed.services[0].service, "payment");
    assert!(closed.services[0].ratios.iter().any(|ratio| ratio.is_nan()), "NaN is kept as such");
}

#[test]
fn an_alarm_that_comes_back_goes_on() {
    let mut recorder = recorder();
    says(&mut recorder, "payment", 210, 200, Phase::End, 0.5);
    says(&mut recorder, "payment", 220, 200, Phase::Begin, 3.0);

    let payment = recorder.get(id(200)).unwrap().services[0].clone();
    assert_eq!((payment.alarms, payment.ended_unix_ns, payment.peak), (2, 0, 9.0));
}

#[test]
fn a_change_before_the_alarm_is_named_first_and_one_long_before_is_a_mark() {
    let mut recorder = recorder();
    recorder.changes.add("payment", "restart", "payment-1 was started again".to_owned(), at(188));
    recorder.changes.add("cart", "version", "version 2 after 1".to_owned(), at(100));
    recorder.changes.add("cart", "version", "version 1 after 0".to_owned(), UnixNanos(0));
    let still = ranking(200, &[("payment", 203, true), ("cart", 200, true)]);
    recorder.look(core::slice::from_ref(&still), at(206));
    recorder.look(&[still], at(207));

    let incident = recorder.get(id(200)).unwrap();

    let marks: Vec<_> = incident.changes.iter().map(|of| (of.text.as_str(), of.precedes_alarm)).collect();
    assert_eq!(marks, [("version 2 after 1", false), ("payment-1 was started again", true)]);
    assert!(
        incident.cause.starts_with("payment: payment-1 was started again, 12 s before an alarm; then payment: metric")
    );
}

#[test]
fn kept_traces_of_the_incident_are_counted_and_the_best_are_kept() {
    let mut recorder = recorder();
    let mut traces = Traces::new(1 << 20);
    for number in 0..9_u64 {
        let kept = KeepReason { policy: "error".into(), reason: "failed".into(), incident: "".into() };
        let span = Span {
            id: 1,
            parent: None,
            service: if number < 7 { "payment" } else { "elsewhere" }.into(),
            name: "POST /pay".into(),
            side: Side::Server,
            start: at(204),
            end: at(204).plus(Nanos(number * 1_000)),
            outcome: Outcome::Failed,
            kept: Some(kept),
        };
        traces.add(u128::from(number), span);
    }
    recorder.traces(&traces);

    let incident = recorder.get(id(200)).unwrap();
    let took: Vec<_> = incident.traces.iter().map(|trace| trace.took_ns).collect();
    assert_eq!((took, incident.kept_traces), (vec![6_000, 5_000, 4_000, 3_000, 2_000], 7));
    assert_eq!(recorder.list()[0].kept_traces, 7);
}

/// What a disk would hold after `steps`.
fn carry_out(disk: &mut BTreeMap<IncidentId, Vec<u8>>, steps: Vec<Step>) {
    for step in steps {
        match step {
            Step::Write(id, bytes) => drop(disk.insert(id, bytes)),
            Step::Remove(id) => drop(disk.remove(&id)),
        }
    }
}

#[test]
fn a_restart_finds_what_was_written_and_says_what_was_cut_short() {
    let mut disk = BTreeMap::new();
    let mut before = recorder();
    carry_out(&mut disk, before.take_steps(at(206), false));
    assert!(before.take_steps(at(207), false).is_empty(), "an open one is written every ten seconds");

    let mut after = Recorder::new("node-3", 4 << 20);
    for bytes in disk.values() {
        after.restore(bytes).unwrap();
    }

    let incident = after.get(id(200)).unwrap();
    assert!(incident.cut_short && incident.ended_unix_ns >= at(205).0, "{incident:?}");
    assert_eq!((incident.services.len(), incident.cause.as_str()), (2, "payment: metric.of.payment 9, expected 1"));
    assert_eq!(after.list().len(), 1);
    carry_out(&mut disk, after.take_steps(at(300), false));
    let mut third = Recorder::new("node-3", 4 << 20);
    third.restore(&disk[&id(200)]).unwrap();
    // NaN is not equal to itself.
    let encoded = |of: &Recorder| of.get(id(200)).unwrap().encode_to_vec();
    assert_eq!(encoded(&third), encoded(&after), "and stays as it is");
}

#[test]
fn the_oldest_make_room_on_the_disk_too() {
    let mut disk = BTreeMap::new();
    let mut recorder = Recorder::new("node-3", 4 << 20);
    for number in 0..1_500 {
        let now = 1_000 * number;
        says(&mut recorder, "cart", now, now, Phase::Begin, 2.0);
        recorder.look(&[ranking(now, &[("cart", now, true)])], at(now));
        recorder.look(&[], at(now + 1));
        recorder.look(&[], at(now + 100));
        carry_out(&mut disk, recorder.take_steps(at(now + 100), false));
        assert!(recorder.bytes() <= 4 << 20);
    }

    assert!(disk.len() > 500 && disk.len() < 1_500, "{}", disk.len());
    assert_eq!(disk.keys().copied().collect::<Vec<_>>(), recorder.shelf.summaries().into_keys().collect::<Vec<_>>());
    assert!(disk.contains_key(&id(1_499_000)) && !disk.contains_key(&id(0)), "the newest are there");
}

#[test]
fn an_incident_is_found_by_its_address_or_the_beginning_of_it() {
    let mut recorder = recorder();
    says(&mut recorder, "store", 100_000, 100_000, Phase::Begin, 2.0);
    recorder.look(&[ranking(100_000, &[("store", 100_000, true)])], at(100_000));

    for text in ["20261127-064535-000", "20261127", "node-3/20261127-0645"] {
        assert_eq!(recorder.find(text), Ok(id(200)), "{text}");
    }
    assert_eq!(recorder.find(""), Ok(id(100_000)), "the newest");
    assert!(matches!(recorder.find("2026112"), Err(FindError::Several { fitting: 2, .. })));
    assert!(matches!(recorder.find("2025"), Err(FindError::None { kept: 2, .. })));
    let elsewhere = recorder.find("node-4/20261127").unwrap_err().to_string();
    assert_eq!(elsewhere, "this is the node node-3; incidents of node-4 are there");
}

#[test]
fn more_incidents_at_a_time_than_are_followed_close_the_oldest() {
    let mut recorder = Recorder::new("node-3", 4 << 20);
    for number in 0..20 {
        says(&mut recorder, "cart", number * 20, number * 20, Phase::Begin, 2.0);
    }

    assert_eq!((recorder.open.len(), recorder.list().len()), (MAX_OPEN, 20));
    let closed = recorder.get(id(0)).unwrap();
    assert_eq!((closed.services[0].metrics.len(), closed.cause.as_str()), (1, "cart: metric.of.cart 2, expected 1"));
}

#[test]
fn more_services_than_are_kept_are_counted() {
    let mut recorder = Recorder::new("node-3", 4 << 20);
    for second in 1..4 {
        (0..40).for_each(|number| says(&mut recorder, &format!("service-{number}"), second, 0, Phase::Middle, 2.0));
    }

    let incident = recorder.get(id(0)).unwrap();
    assert_eq!((incident.services.len(), incident.further_services), (MAX_SERVICES, 8));
}

#[test]
fn clocks_that_jump_break_nothing() {
    let mut recorder = recorder();
    for now in [UnixNanos(0), UnixNanos(u64::MAX), at(206)] {
        recorder.look(&[ranking(200, &[("payment", 203, true)])], now);
        let steps = recorder.take_steps(now, false);
        assert!(steps.len() <= 1);
    }
    recorder.look(&[], UnixNanos(0));
    recorder.look(&[], UnixNanos(u64::MAX));
    assert_eq!(recorder.list().len(), 1);
}

#[test]
fn a_clock_that_is_set_back_keeps_no_incident_open() {
    let mut recorder = recorder();
    recorder.look(&[], at(230));

    // Set back by an hour: the record settles from then on.
    for second in 0..75 {
        recorder.look(&[], UnixNanos(at(230 + second).0 - 3_600_000_000_000));
        assert!(recorder.is_following(), "{second} s after it");
    }
    recorder.look(&[], UnixNanos(at(305).0 - 3_600_000_000_000));

    assert!(!recorder.is_following());
    assert_eq!(recorder.list().len(), 1);
}

proptest! {
    #[test]
    fn any_bytes_are_a_record_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..400), cut in 0..4_000_usize) {
        let mut recorder = Recorder::new("node-3", 4 << 20);
        _ = recorder.restore(&bytes);
        let mut whole = self::recorder();
        let steps = whole.take_steps(at(206), true);
        let Some(Step::Write(_, mut record)) = steps.into_iter().next() else { unreachable!("it is written") };
        record.truncate(cut);
        _ = recorder.restore(&record);
        for of in recorder.list() {
            let drawn = crate::draw::page(&recorder.get(of.id.parse().unwrap()).unwrap());
            prop_assert!(drawn.ends_with("</html>\n"));
        }
    }
}

#[test]
fn each_service_has_one_profile_and_an_incident_three() {
    let mut recorder = recorder();
    let profile = |service: &str, samples| IncidentProfile {
        service: service.to_owned(),
        samples,
        names: vec!["a\n\u{1b}".repeat(400)],
        ..IncidentProfile::default()
    };
    assert!(recorder.wants_profile(id(200), "payment") && !recorder.wants_profile(id(199), "payment"));

    for (service, samples) in [("payment", 1), ("payment", 2), ("cart", 3), ("store", 4), ("frontend", 5)] {
        recorder.profile(id(200), &profile(service, samples));
    }

    let profiles = recorder.get(id(200)).unwrap().profiles;
    let kept: Vec<_> = profiles.iter().map(|of| (of.service.as_str(), of.samples)).collect();
    assert_eq!(kept, [("payment", 1), ("cart", 3), ("store", 4)]);
    assert!(profiles[0].names[0].chars().all(|c| !c.is_control()) && profiles[0].names[0].len() < 400);
    assert!(!recorder.wants_profile(id(200), "frontend"));
}

#[test]
fn streams_of_packets_are_looked_at_while_an_incident_goes_on_and_not_after_it() {
    let mut recorder = recorder();
    let names = ["network.uplink", "network.payment-store"];
    assert_eq!(recorder.wanted_streams(names.into_iter()), ["network.payment-store", "network.uplink"]);
    let look = |recorder: &mut Recorder, seconds: u64, delay: f64| {
        let metrics = [Reason { seen: delay, ..reason("network.delay.p50") }];
        recorder.streams(&[StreamLook { service: names[1], at: at(seconds), metrics: &metrics }]);
        recorder.get(id(200)).unwrap().streams[0].figures[0].largest
    };
    assert_eq!((look(&mut recorder, 206, 3.0), look(&mut recorder, 207, 7.0)), (3.0, 7.0));

    recorder.look(&[], at(240));

    assert!(recorder.wanted_streams(names.into_iter()).is_empty());
    assert_eq!(look(&mut recorder, 241, 9.0), 7.0);
}
