//! Models that are handed over to the host agent and to the next worker, and the end of a worker in good order.

use super::*;

const METRICS: u32 = 6;

/// A node whose host agent wants models every 60 s.
fn node() -> Node {
    let mut node = Node::new(quick());
    node.models_every_s = 60;
    node.welcome(2);
    node
}

/// The models among the messages since the last call, with their LMAPs.
fn models(messages: &[ToHost]) -> Vec<(u32, usize)> {
    let model = |message: &ToHost| match message {
        ToHost::LearntModel(learnt) => Some((learnt.lmap, learnt.model.len())),
        _ => None,
    };
    messages.iter().filter_map(model).collect()
}

fn is_leaving(messages: &[ToHost]) -> bool {
    messages.iter().any(|message| matches!(message, ToHost::Leaving(_)))
}

#[test]
fn a_model_is_handed_over_when_it_is_armed_and_then_as_often_as_is_wanted() {
    let mut node = node();
    node.set(&lmap(metrics(METRICS), 1));
    let mut at = Vec::new();
    for tick in 0..1500 {
        node.healthy(METRICS, tick);
        let messages = node.take_messages();
        at.extend(models(&messages).iter().map(|_| node.now.as_secs_f64()));
    }

    let [first, second, third] = at[..] else { panic!("{at:?}") };
    assert!(first < 10.0, "{at:?}");
    assert!((second - first - 60.0).abs() < 1.5 && (third - second - 60.0).abs() < 1.5, "{at:?}");
}

#[test]
fn a_model_that_was_being_computed_when_it_was_due_is_handed_over_once_it_is_there() {
    let mut node = node();
    node.set(&lmap(metrics(METRICS), 1));
    (0..100).for_each(|tick| node.healthy(METRICS, tick));
    node.take_messages();

    // A decomposition is in flight from here on, and its result does not come.
    node.runs_jobs = false;
    (100..720).for_each(|tick| node.healthy(METRICS, tick));
    let given = models(&node.take_messages());
    assert!(!given.is_empty() && given.iter().all(|(_, bytes)| *bytes == 0), "it is due after a minute: {given:?}");
    node.runs_jobs = true;
    (720..740).for_each(|tick| node.healthy(METRICS, tick));

    let given = models(&node.take_messages());
    assert!(given.iter().filter(|(_, bytes)| *bytes > 0).count() == 1, "{given:?}");
}

#[test]
fn a_worker_says_what_it_retains_to_a_host_agent_that_has_started_anew_if_that_takes_it() {
    for takes in [true, false] {
        let mut node = node();
        node.takes_retained = takes;
        node.set(&lmap(metrics(METRICS), 1));
        (0..100).for_each(|tick| node.healthy(METRICS, tick));
        // This one is removed: only its model is retained.
        let mut second = lmap(metrics(METRICS), 1);
        (second.id, second.service) = (LmapId(2), ServiceName::new("store").unwrap());
        node.set(&second);
        (100..200).for_each(|tick| node.healthy(METRICS, tick));
        node.change(FromHost::RemoveLmap(proto::RemoveLmap { lmap: 2 })).unwrap();
        node.worker.disconnected(node.now);
        node.take_messages();

        node.welcome(3);

        let of = |message| if let ToHost::Retained(retained) = message { Some(retained.services) } else { None };
        let retained: Vec<_> = node.take_messages().into_iter().filter_map(of).collect();
        assert_eq!(retained, if takes { vec![vec!["cart".to_owned()]] } else { Vec::new() });
    }
}

#[test]
fn another_worker_goes_on_with_a_model_from_the_next_row() {
    let mut node = node();
    let spec = lmap(metrics(METRICS), 1);
    node.set(&spec);
    (0..200).for_each(|tick| node.healthy(METRICS, tick));
    node.take_messages();
    node.receive(node.epoch, FromHost::GiveModel(proto::GiveModel { lmap: 1 })).unwrap();
    node.healthy(METRICS, 200);
    let messages = node.take_messages();
    let learnt = messages.into_iter().find_map(|message| match message {
        ToHost::LearntModel(learnt) => Some(learnt.model),
        _ => None,
    });
    let learnt = learnt.expect("it was asked for");

    for (continues, rows) in [(true, 2), (false, 22)] {
        let mut other =
            Node::new(WorkerSettings { detector: lmap::Settings { settle_rows: 20, ..quick().detector }, ..quick() });
        for region in spec.replicas.iter().flat_map(|replica| &replica.regions) {
            other.regions.insert(region.id, Region::new(region.size));
        }
        let configured = proto::Lmap { learnt: learnt.clone(), continues, ..(&spec).into() };
        other.change(FromHost::SetLmap(configured)).unwrap();
        let armed_after = (1..60).find(|tick| {
            other.healthy(METRICS, *tick);
            other.verdicts().iter().any(|verdict| verdict.state == State::Armed)
        });
        assert!(armed_after.is_some_and(|after| after <= rows), "continues: {continues}, {armed_after:?}");
    }
}

#[test]
fn a_worker_that_gets_an_lmap_back_goes_on_with_what_was_learnt_elsewhere() {
    let learnt_by = |scale: f64| {
        let mut node = node();
        node.set(&lmap(metrics(METRICS), 1));
        for tick in 0..200 {
            node.healthy(METRICS, tick);
            node.store(1, 0, (scale * (tick % 5) as f64).to_bits());
        }
        node.worker.model(&ServiceName::new("cart").unwrap()).unwrap().encode()
    };
    let elsewhere = learnt_by(7.0);
    let mut node = node();
    let spec = lmap(metrics(METRICS), 1);
    node.set(&spec);
    (0..200).for_each(|tick| node.healthy(METRICS, tick));
    node.change(FromHost::RemoveLmap(proto::RemoveLmap { lmap: 1 })).unwrap();

    let back = proto::Lmap { learnt: elsewhere.clone(), continues: true, ..(&spec).into() };
    node.change(FromHost::SetLmap(back)).unwrap();

    let used = node.worker.model(&ServiceName::new("cart").unwrap()).unwrap();
    assert_eq!(used.gamma(), lmap::Model::decode(&elsewhere).unwrap().gamma());
}

#[test]
fn a_worker_with_more_models_than_there_is_time_for_leaves_in_time() {
    let mut node = node();
    for id in 0..700 {
        let mut spec = lmap(metrics(1), 1);
        (spec.id, spec.service) = (LmapId(id + 1), ServiceName::new(&format!("s{id}")).unwrap());
        node.set(&spec);
    }
    node.take_messages();
    assert!(node.worker.leave());
    let begin = node.now;

    while node.now < begin.plus(Nanos::from_millis(1200)) {
        node.tick();
    }

    let messages = node.take_messages();
    assert!(is_leaving(&messages) && models(&messages).len() < 700, "{}", models(&messages).len());
}

#[test]
fn a_model_that_cannot_be_read_is_a_problem_and_the_lmap_learns() {
    let mut node = node();
    let spec = lmap(metrics(METRICS), 1);
    for region in spec.replicas.iter().flat_map(|replica| &replica.regions) {
        node.regions.insert(region.id, Region::new(region.size));
    }
    let broken = proto::Lmap { learnt: vec![7; 100], ..(&spec).into() };

    assert!(matches!(node.change(FromHost::SetLmap(broken)), Err(UnexpectedMessage::Model(_))));

    (0..200).for_each(|tick| node.healthy(METRICS, tick));
    let messages = node.take_messages();
    assert!(messages.iter().any(|message| matches!(message, ToHost::LmapProblem(_))));
    assert_eq!(models(&messages).len(), 1, "it was armed");
}

#[test]
fn a_worker_leaves_after_its_models_and_ticks_until_it_may_go() {
    let mut node = node();
    node.set(&lmap(metrics(METRICS), 1));
    let mut second = lmap(metrics(METRICS), 1);
    (second.id, second.service) = (LmapId(2), ServiceName::new("store").unwrap());
    node.set(&second);
    (0..100).for_each(|tick| node.healthy(METRICS, tick));
    node.take_messages();

    assert!(node.worker.leave());
    let samples = |node: &Node| node.worker.status().counters.fetched_regions;
    let before = samples(&node);
    node.healthy(METRICS, 100);
    let messages = node.take_messages();

    assert_eq!(models(&messages).iter().map(|(lmap, _)| *lmap).collect::<Vec<_>>(), [1, 2]);
    assert!(is_leaving(&messages));
    assert!(matches!(messages.last(), Some(ToHost::Leaving(_) | ToHost::Verdicts(_) | ToHost::Summary(_))));
    assert!(samples(&node) > before && !node.worker.has_left());
    node.receive(node.epoch, FromHost::Goodbye(proto::Goodbye {})).unwrap();
    assert!(node.worker.has_left());
}

#[test]
fn a_worker_whose_host_agent_takes_no_models_or_is_gone_may_end_at_once() {
    let mut older = Node::new(quick());
    assert!(!older.worker.leave(), "it wants no models");

    let mut gone = node();
    gone.worker.disconnected(gone.now);
    assert!(!gone.worker.leave());

    let mut lost = node();
    assert!(lost.worker.leave());
    lost.worker.disconnected(lost.now);
    assert!(lost.worker.has_left(), "nobody can say goodbye");
}

#[test]
fn models_do_not_make_the_worker_spin_while_the_network_is_stalled() {
    let mut node = node();
    node.set(&lmap(metrics(METRICS), 1));
    (0..100).for_each(|tick| node.healthy(METRICS, tick));
    assert!(node.worker.leave());

    // Nobody takes messages.
    let mut steps = 0;
    let until = node.now.plus(Nanos::from_millis(90));
    while let Step::SleepUntil(deadline) = node.worker.poll(node.now) {
        assert!(deadline > node.now);
        (node.now, steps) = (deadline, steps + 1);
        if node.now >= until {
            break;
        }
    }
    assert!(steps <= 60, "{steps}");
}

fn cart() -> ServiceName {
    ServiceName::new("cart").unwrap()
}

/// γ of the detector that judges.
fn gamma(node: &Node) -> Option<f64> {
    node.worker.runtimes.values().find_map(|runtime| runtime.detectors()?.gamma())
}

/// An armed LMAP, its configuration, and a model of the same load that was learnt elsewhere, with its γ.
fn armed_beside_a_model() -> (Node, LmapSpec, Vec<u8>, f64) {
    let learnt = |first: u64| {
        let (mut node, spec) = (node(), lmap(metrics(METRICS), 1));
        node.set(&spec);
        (first..first + 200).for_each(|tick| node.healthy(METRICS, tick));
        node.take_messages();
        (node, spec)
    };
    let model = learnt(10_000).0.worker.model(&cart()).unwrap();
    assert_eq!(model.interval_ms(), Some(100), "it says of which rows it is");
    let (node, spec) = learnt(0);
    (node, spec, model.encode(), model.gamma())
}

#[test]
fn an_operators_model_judges_from_the_next_row_on_and_no_row_before_it_is_missed() {
    let (mut node, mut spec, model, of_model) = armed_beside_a_model();
    assert!(gamma(&node).is_some_and(|before| before != of_model));

    spec.model = model;
    node.set(&spec);
    for tick in 200..240 {
        node.healthy(METRICS, tick);
        assert_eq!(node.worker.status().lmaps, [0, 1, 0, 0], "tick {tick}");
    }

    assert_eq!(gamma(&node), Some(of_model));
    assert!(node.worker.model(&cart()).is_none(), "it is a file already");
    let given = models(&node.take_messages());
    assert!(given.iter().all(|(_, bytes)| *bytes == 0), "nor does it take the place of what was learnt: {given:?}");
}

/// Rows in which a gauge is far off.
fn faulty(node: &mut Node, ticks: core::ops::Range<u64>) -> Vec<Episode> {
    for tick in ticks {
        for id in 1..=METRICS {
            let noise = noise(tick << 16 | 1 << 8 | u64::from(id));
            match id {
                4 => node.store(1, 3, 5000.0_f64.to_bits()),
                _ if id % 2 == 1 => node.add(1, id - 1, 1000 + noise),
                _ => node.store(1, id - 1, (50.0 + noise as f64 / 10.0).to_bits()),
            }
        }
        node.alive();
    }
    node.verdicts().iter().map(|verdict| verdict.episode).filter(|episode| *episode != Episode::Quiet).collect()
}

#[test]
fn an_alarm_that_is_on_goes_on_under_an_operators_model_and_ends_once() {
    let (mut node, mut spec, model, _) = armed_beside_a_model();
    assert_eq!(faulty(&mut node, 200..205).first(), Some(&Episode::Began));

    spec.model = model;
    node.set(&spec);
    let after = faulty(&mut node, 205..210);
    (210..230).for_each(|tick| node.healthy(METRICS, tick));

    assert!(!after.is_empty() && after.iter().all(|episode| *episode == Episode::On), "{after:?}");
    let ends = node.verdicts().iter().filter(|verdict| verdict.episode == Episode::Ended).count();
    assert_eq!(ends, 1);
}

#[test]
fn a_model_that_cannot_be_used_is_said_once_and_what_judged_before_goes_on_until_there_is_a_good_one() {
    let (mut node, mut spec, model, of_model) = armed_beside_a_model();
    let before = gamma(&node);

    spec.model = vec![7; 100];
    let refused = node.change(FromHost::SetLmap((&spec).into()));
    assert!(matches!(refused, Err(UnexpectedMessage::Model(_))), "{refused:?}");
    // Another change, with the same model: it was said.
    spec.fastest = Some(Interval::new(Nanos::from_millis(50)).unwrap());
    node.set(&spec);
    (200..220).for_each(|tick| node.healthy(METRICS, tick));
    assert_eq!((gamma(&node), node.worker.status().lmaps), (before, [0, 1, 0, 0]));
    assert!(node.worker.model(&cart()).is_some(), "it learns on");

    spec.model = model;
    node.set(&spec);
    node.healthy(METRICS, 220);
    assert_eq!(gamma(&node), Some(of_model));
}

#[test]
fn without_an_operators_model_it_goes_on_with_what_was_learnt_before_or_from_that_model() {
    for is_known in [true, false] {
        let (mut node, mut spec, model, of_model) = armed_beside_a_model();
        let known = node.worker.model(&cart()).unwrap();
        spec.model = model;
        node.set(&spec);
        (200..220).for_each(|tick| node.healthy(METRICS, tick));

        spec.model = Vec::new();
        let learnt = if is_known { known.encode() } else { Vec::new() };
        node.change(FromHost::SetLmap(proto::Lmap { learnt, continues: true, ..(&spec).into() })).unwrap();
        node.healthy(METRICS, 220);

        let expected = if is_known { known.gamma() } else { of_model };
        assert_eq!((gamma(&node), node.worker.status().lmaps), (Some(expected), [0, 1, 0, 0]));
        assert!(node.worker.model(&cart()).is_some(), "it learns by itself");
    }
}

#[test]
fn a_host_agent_that_starts_anew_and_knows_of_no_model_gets_an_lmap_that_judges_by_it_and_learns_on() {
    let (mut node, mut spec, model, of_model) = armed_beside_a_model();
    spec.model = model;
    node.set(&spec);
    (200..220).for_each(|tick| node.healthy(METRICS, tick));

    node.worker.disconnected(node.now);
    node.welcome(3);
    spec.model = Vec::new();
    node.set(&spec);
    node.healthy(METRICS, 220);

    assert_eq!((gamma(&node), node.worker.status().lmaps), (Some(of_model), [0, 1, 0, 0]));
    assert!(node.worker.model(&cart()).is_some());
}

#[test]
fn an_interval_for_which_there_is_no_model_is_learnt_while_the_operators_model_judges() {
    let (mut node, mut spec, model, of_model) = armed_beside_a_model();
    spec.model = model;
    node.set(&spec);
    (200..220).for_each(|tick| node.healthy(METRICS, tick));

    spec.model = Vec::new();
    spec.interval = Interval::new(Nanos::from_millis(200)).unwrap();
    node.set(&spec);
    (220..224).for_each(|tick| node.healthy(METRICS, tick));

    let status = node.worker.status();
    assert_eq!((status.lmaps, status.learning_intervals, gamma(&node)), ([0, 1, 0, 0], 1, Some(of_model)));
}
