//! Services that end and start again, and the alarm budget.

use super::*;

const METRICS: u32 = 6;

/// Settings of detectors that are armed after 20 rows, are fitted again at 60, and ignore the first 5.
fn settings() -> WorkerSettings {
    let detector = lmap::Settings { fit_again_rows: vec![60], settle_rows: 5, ..quick().detector };
    WorkerSettings { detector, ..quick() }
}

/// A service that was monitored for 100 ticks, and has ended.
fn gone(settings: WorkerSettings) -> Node {
    let mut node = Node::new(settings);
    node.set(&lmap(metrics(METRICS), 1));
    (0..100).for_each(|tick| node.healthy(METRICS, tick));
    node.change(FromHost::RemoveLmap(proto::RemoveLmap { lmap: 1 })).unwrap();
    node.take_messages();
    node
}

/// The same service in a new region, as a new LMAP.
fn again(metrics: Vec<MetricSpec>) -> LmapSpec {
    let mut spec = LmapSpec { id: LmapId(2), ..lmap(metrics, 1) };
    spec.replicas[0].regions[0].id = RegionId(9);
    spec.replicas[0].places.iter_mut().for_each(|place| place.region = RegionId(9));
    spec
}

fn states(node: &mut Node) -> Vec<State> {
    node.verdicts().iter().map(|verdict| verdict.state).collect()
}

#[test]
fn a_service_that_comes_again_is_judged_by_what_was_learnt_of_it() {
    let mut node = gone(settings());

    node.set(&again(metrics(METRICS)));
    (100..107).for_each(|tick| node.healthy(METRICS, tick));

    assert_eq!(states(&mut node).last(), Some(&State::Armed), "after the first 5 rows, not after 25");
    for tick in 107..112 {
        node.healthy(METRICS, tick);
        node.store(9, 3, 5000.0_f64.to_bits());
        node.alive();
    }
    assert!(node.verdicts().iter().any(|verdict| verdict.episode == Episode::Began));
}

#[test]
fn series_that_are_registered_one_by_one_are_known_as_they_come() {
    let mut node = gone(settings());

    for (tick, count) in (1..=METRICS).enumerate() {
        node.set(&again(metrics(count)));
        node.healthy(METRICS, 100 + tick as u64);
    }
    (106..112).for_each(|tick| node.healthy(METRICS, tick));

    assert_eq!(states(&mut node).last(), Some(&State::Armed));
    let (summary, _) = node.summary();
    assert_eq!((summary.columns, summary.unwatched), (METRICS, 0));
}

#[test]
fn what_was_learnt_can_be_asked_for_as_long_as_it_is_kept() {
    let cart = ServiceName::new("cart").unwrap();
    let mut node = Node::new(settings());
    node.set(&lmap(metrics(METRICS), 1));
    assert!(node.worker.model(&cart).is_none());

    (0..100).for_each(|tick| node.healthy(METRICS, tick));
    let model = node.worker.model(&cart).unwrap();
    assert_eq!(Some(model.gamma()), node.worker.runtimes.values().find_map(|runtime| runtime.detectors()?.gamma()));
    assert!(node.worker.model(&ServiceName::new("store").unwrap()).is_none());

    node.change(FromHost::RemoveLmap(proto::RemoveLmap { lmap: 1 })).unwrap();
    assert_eq!(node.worker.model(&cart).unwrap().gamma(), model.gamma());
}

#[test]
fn with_a_model_or_another_interval_nothing_is_carried_over() {
    for slower in [true, false] {
        let mut node = gone(settings());
        let mut spec = again(metrics(METRICS));
        if slower {
            spec.interval = Interval::new(Nanos(2 * INTERVAL.0)).unwrap();
        } else {
            spec.detector = DetectorSpec { score: Some(ScoreForm::Absolute), ..DetectorSpec::default() };
        }

        node.set(&spec);
        (100..108).for_each(|tick| node.healthy(METRICS, tick));

        assert!(!states(&mut node).contains(&State::Armed));
    }
}

#[test]
fn what_is_known_of_services_is_bounded_in_number_and_in_time() {
    let mut node = gone(WorkerSettings { max_retained_models: 1, ..settings() });
    let mut other = again(metrics(METRICS));
    other.service = ServiceName::new("store").unwrap();
    node.set(&other);
    (0..40).for_each(|tick| node.healthy(METRICS, tick));
    assert_eq!(node.worker.status().retained_models, 1);

    node.change(FromHost::RemoveLmap(proto::RemoveLmap { lmap: 2 })).unwrap();
    assert_eq!(node.worker.status().retained_models, 2);
    pass(&mut node, Nanos::from_secs(2));
    let status = node.worker.status();
    assert_eq!((status.retained_models, status.evicted_models), (1, 1), "the older one is forgotten");
    assert!((500..50_000).contains(&status.retained_model_bytes), "{} bytes", status.retained_model_bytes);

    pass(&mut node, Nanos::from_secs(86_401));
    assert_eq!(node.worker.status().retained_models, 0);
}

#[test]
fn what_is_known_of_services_is_bounded_in_bytes() {
    let mut node = gone(WorkerSettings { max_retained_model_bytes: 100, ..settings() });
    assert_eq!(node.worker.status().retained_models, 1);

    pass(&mut node, Nanos::from_secs(2));

    let status = node.worker.status();
    assert_eq!((status.retained_models, status.retained_model_bytes, status.evicted_models), (0, 0, 1));
}

/// Time passes with summaries only.
fn pass(node: &mut Node, length: Nanos) {
    node.now = node.now.plus(length);
    for _ in 0..3 {
        if let Step::SleepUntil(deadline) = node.worker.poll(node.now) {
            node.now = deadline;
        }
        node.act();
    }
}

#[test]
fn a_budget_of_alarms_moves_gamma_and_is_in_the_summary() {
    let summary = |alarms_per_day, asked| {
        let mut node = Node::new(WorkerSettings { alarms_per_day, ..quick() });
        let mut spec = lmap(metrics(METRICS), 1);
        spec.detector.alarms_per_day = asked;
        node.set(&spec);
        (0..200).for_each(|tick| node.healthy(METRICS, tick));
        node.summary().0
    };

    let (free, steered) = (summary(None, None), summary(Some(86_400.0), None));

    assert_eq!((free.alarms_per_day, free.gamma_factor), (0.0, 0.0));
    assert!((steered.alarms_per_day - 86_400.0).abs() < 1e-6, "one a second");
    // 180 quiet rows of 100 ms are 18 alarms too few: γ falls by a tenth for each, down to its bound.
    assert!((steered.gamma_factor - 0.5).abs() < 1e-9, "{}", steered.gamma_factor);
    assert!((steered.gamma / free.gamma - 0.5).abs() < 1e-9);
    for configured in [None, Some(3.0)] {
        let asked = summary(configured, Some(86_400.0));
        assert_eq!(
            (asked.alarms_per_day, asked.gamma),
            (steered.alarms_per_day, steered.gamma),
            "an operator's goes first"
        );
    }
    let without = summary(Some(86_400.0), Some(0.0));
    assert_eq!((without.alarms_per_day, without.gamma), (0.0, free.gamma), "0 is none");
}
