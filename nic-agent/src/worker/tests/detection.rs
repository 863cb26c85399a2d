//! Learning, arming, alarms, and changing columns.

use super::*;

const METRICS: u32 = 6;

fn learnt(ticks: u64) -> (Node, LmapSpec) {
    learnt_by(quick(), ticks)
}

fn learnt_by(settings: WorkerSettings, ticks: u64) -> (Node, LmapSpec) {
    let mut node = Node::new(settings);
    let spec = lmap(metrics(METRICS), 1);
    node.set(&spec);
    for tick in 0..ticks {
        node.healthy(METRICS, tick);
    }
    (node, spec)
}

/// Five ticks of healthy load in which one gauge is far off.
fn fault(node: &mut Node, from: u64) -> Vec<Verdict> {
    faults(node, from..from + 5, &[4])
}

/// Ticks of healthy load in which these gauges are far off.
fn faults(node: &mut Node, ticks: core::ops::Range<u64>, gauges: &[u32]) -> Vec<Verdict> {
    node.take_messages();
    for tick in ticks {
        for id in 1..=METRICS {
            let noise = noise(tick << 16 | 1 << 8 | u64::from(id));
            match id {
                _ if gauges.contains(&id) => node.store(1, id - 1, 5000.0_f64.to_bits()),
                _ if id % 2 == 1 => node.add(1, id - 1, 1000 + noise),
                _ => node.store(1, id - 1, (50.0 + noise as f64 / 10.0).to_bits()),
            }
        }
        node.alive();
    }
    node.verdicts()
}

#[test]
fn an_lmap_arms_itself_and_says_so() {
    let (mut node, _) = learnt(30);

    let states: Vec<State> = node.verdicts().iter().map(|verdict| verdict.state).collect();

    assert_eq!(states[..2], [State::Learning, State::Armed]);
    assert_eq!(node.worker.status().lmaps, [0, 1, 0, 0]);
}

#[test]
fn another_fault_in_an_alarm_begins_another_that_names_its_column() {
    let quick = quick();
    let detector = lmap::Settings { novelty: true, ..quick.detector.clone() };
    let (mut node, _) = learnt_by(WorkerSettings { detector, ..quick }, 60);

    let first = faults(&mut node, 60..80, &[4]);
    let both = faults(&mut node, 80..86, &[4, 2]);

    let begins = |verdicts: &[Verdict]| -> Vec<MetricId> {
        let began = verdicts.iter().filter(|verdict| verdict.episode == Episode::Began);
        began.map(|verdict| verdict.reasons[0].metric).collect()
    };
    assert_eq!((begins(&first), begins(&both)), (vec![MetricId(4)], vec![MetricId(2)]));
    assert!(both.iter().all(|verdict| matches!(verdict.episode, Episode::Began | Episode::On)), "{both:?}");
}

#[test]
fn a_fault_begins_an_alarm_that_names_the_column_with_what_was_seen() {
    let (mut node, _) = learnt(60);

    let verdicts = fault(&mut node, 60);

    let began: Vec<_> = verdicts.iter().filter(|verdict| verdict.episode == Episode::Began).collect();
    assert_eq!(began.len(), 1);
    let reason = began[0].reasons[0];
    assert_eq!((reason.metric, reason.statistic), (MetricId(4), wire::metric::Statistic::Value));
    assert_eq!(reason.seen, 5000.0);
    assert!((0.0..1000.0).contains(&reason.expected), "{reason:?}");
    assert!(began[0].score >= began[0].gamma.unwrap());
    assert_eq!(began[0].epoch, Epoch(1));
}

#[test]
fn a_verdict_says_what_its_row_says_by_itself_and_of_which_metrics() {
    let (mut node, _) = learnt(60);

    let mut verdicts = fault(&mut node, 60);
    for tick in 65..75 {
        node.healthy(METRICS, tick);
    }
    verdicts.extend(node.verdicts());

    let over = |verdict: &&Verdict| verdict.gamma.is_some_and(|gamma| verdict.score >= gamma);
    for verdict in verdicts.iter().filter(over) {
        let (row, gamma) = (verdict.row.as_ref().unwrap(), verdict.gamma.unwrap());
        let sum: f64 = row.shares.iter().map(|of| of.share).sum();
        assert!(sum < 1.000_1 && row.shares.is_sorted_by(|one, other| one.share >= other.share), "{row:?}");
        let least = 0.01 * (gamma / row.score).powi(2);
        assert!(row.shares.iter().all(|of| of.share >= least * 0.999) && !row.cut, "{row:?}");
    }
    let began = verdicts.iter().find(|verdict| verdict.episode == Episode::Began).unwrap();
    let row = began.row.as_ref().unwrap();
    assert_eq!(row.shares[0].metric, MetricId(4));
    assert!(row.shares[0].share > 0.9 && row.score >= began.score, "{row:?}");
    // A smoothed score falls by half in each row.
    let last = verdicts.iter().rfind(over).unwrap();
    assert!(last.row.as_ref().unwrap().score < last.gamma.unwrap(), "the row is ordinary before the score is");
    let below = verdicts.iter().find(|verdict| verdict.gamma.is_some_and(|gamma| verdict.score < gamma)).unwrap();
    assert_eq!(below.row, None);
}

#[test]
fn a_column_that_stands_out_says_since_when() {
    let (mut node, _) = learnt(60);

    let verdicts = fault(&mut node, 60);

    let is_out = |verdict: &&Verdict| !verdict.reasons.is_empty();
    let ages: Vec<_> = verdicts.iter().filter(is_out).map(|verdict| verdict.reasons[0].since.as_millis()).collect();
    assert_eq!(ages[..4], [0, 100, 200, 300], "a row is 100 ms");
    for tick in 65..75 {
        let noise = noise(tick << 16);
        node.store(1, 3, (5000.0 + noise as f64).to_bits());
        node.alive();
    }
    let mut summaries = node.take_messages().into_iter().filter_map(|message| match message {
        ToHost::Summary(summary) => summary.lmaps.first().cloned(),
        _ => None,
    });
    let reason = summaries.next_back().unwrap().reasons[0];
    assert_eq!(reason.metric, 4);
    assert!((500_000..=1_500_000).contains(&reason.since_us), "a summary says since when, up to now: {reason:?}");
}

#[test]
fn quiet_samples_are_summarised_and_not_sent() {
    let (mut node, _) = learnt(300);
    node.take_messages();

    for tick in 300..400 {
        node.healthy(METRICS, tick);
    }
    let messages = node.take_messages();

    let sent: usize = messages
        .iter()
        .map(|message| match message {
            ToHost::Verdicts(verdicts) => {
                verdicts.verdicts.iter().filter(|verdict| verdict.score < verdict.gamma / 2.0).count()
            }
            _ => 0,
        })
        .sum();
    assert_eq!(sent, 0);
    let summaries: Vec<_> = messages
        .iter()
        .filter_map(|message| match message {
            ToHost::Summary(summary) => Some(summary),
            _ => None,
        })
        .collect();
    assert_eq!(summaries.len(), 10);
    let lmap = &summaries[9].lmaps[0];
    assert_eq!(lmap.scores.len(), 10, "one for each tick");
    assert_eq!((lmap.columns, lmap.unwatched), (METRICS, 0));
    assert!((390..=400).contains(&lmap.samples), "{}", lmap.samples);
    assert!(lmap.gamma > 0.0 && !lmap.reasons.is_empty());
    assert!(summaries[9].at_unix_ns > WALL_START);
}

#[test]
fn verdicts_are_sent_from_the_requested_share_on_and_at_every_change_of_state() {
    let (mut node, _) = learnt(60);
    let set = |node: &mut Node, share| {
        node.receive(0, FromHost::SetLowestShare(proto::SetLowestShare { share })).unwrap();
        node.take_messages();
    };

    set(&mut node, 0.0);
    (60..65).for_each(|tick| node.healthy(METRICS, tick));
    assert_eq!(node.verdicts().len(), 5, "a share of 0 sends all verdicts");
    set(&mut node, 1e9);
    (65..70).for_each(|tick| node.healthy(METRICS, tick));
    assert_eq!(node.verdicts(), []);

    let verdicts = fault(&mut node, 70);
    assert!(verdicts.iter().any(|verdict| verdict.episode == Episode::Began), "{verdicts:?}");
}

#[test]
fn a_summary_tells_how_far_learning_is() {
    let (mut node, _) = learnt(13);

    let mut learning = node.take_messages().into_iter().filter_map(|message| match message {
        ToHost::Summary(summary) => summary.lmaps.first().cloned(),
        _ => None,
    });

    let last = learning.next_back().unwrap();
    assert_eq!((last.rows_needed, last.gamma), (20, 0.0));
    assert!((9..=12).contains(&last.rows), "{}", last.rows);
}

#[test]
fn columns_that_are_added_after_arming_are_learned_by_a_shadow() {
    let (mut node, mut spec) = learnt(60);
    spec.metrics.push(metric(7, "http.server.errors", Kind::Counter));
    spec.replicas[0] = replica(1, &spec.metrics);
    node.set(&spec);

    let verdicts = fault(&mut node, 60);
    assert!(
        verdicts.iter().any(|verdict| verdict.episode == Episode::Began),
        "the fault is still detected: {verdicts:?}"
    );
    for tick in 65..75 {
        node.healthy(7, tick);
    }
    assert_eq!(node.summary().0.unwatched, 1);
    for tick in 75..200 {
        node.healthy(7, tick);
    }

    assert_eq!(node.summary().0.unwatched, 0, "the shadow took over");
    assert_eq!(node.worker.status().lmaps, [0, 1, 0, 0]);
}

#[test]
fn a_removed_metric_is_missing_and_the_detector_goes_on() {
    let (mut node, mut spec) = learnt(60);
    spec.metrics.remove(0);
    spec.replicas[0] = replica(1, &spec.metrics);
    node.set(&spec);

    let verdicts = fault(&mut node, 60);

    let began = verdicts.iter().find(|verdict| verdict.episode == Episode::Began).unwrap();
    assert_eq!(began.reasons[0].metric, MetricId(4));
    assert!(verdicts.iter().flat_map(|verdict| &verdict.reasons).all(|reason| reason.metric != MetricId(1)));
    assert!(verdicts.iter().all(|verdict| verdict.state == State::Armed));
}

#[test]
fn columns_that_come_while_learning_has_hardly_begun_begin_it_again() {
    let (mut node, mut spec) = learnt(3);
    spec.metrics.push(metric(7, "late", Kind::Gauge));
    spec.replicas[0] = replica(1, &spec.metrics);
    node.set(&spec);

    for tick in 3..40 {
        node.healthy(7, tick);
    }

    assert_eq!(node.worker.status().lmaps, [0, 1, 0, 0]);
    assert_eq!(node.summary().0.unwatched, 0);
}

#[test]
fn a_service_that_never_stops_adding_series_is_judged_all_the_same() {
    let mut node = Node::new(quick());
    let mut spec = lmap(metrics(2), 1);
    for tick in 0..100_u32 {
        if tick % 3 == 0 {
            spec.metrics.push(metric(3 + tick, &format!("late.{tick}"), Kind::Counter));
            spec.replicas[0] = replica(1, &spec.metrics);
            node.set(&spec);
        }
        node.healthy(2, u64::from(tick));
    }

    assert_eq!(node.worker.status().lmaps, [0, 1, 0, 0]);
}

#[test]
fn another_interval_is_another_normal_and_the_former_one_judges_until_it_is_learnt() {
    let (mut node, mut spec) = learnt(60);
    spec.interval = Interval::new(Nanos::from_millis(200)).unwrap();
    node.set(&spec);

    node.alive();

    let status = node.worker.status();
    assert_eq!((status.lmaps, status.learning_intervals), ([0, 1, 0, 0], 1));
}

#[test]
fn a_trained_model_arms_at_once_and_a_broken_one_takes_nothing_away() {
    let (mut node, mut spec) = learnt(60);
    let model = node.worker.runtimes[&LmapId(1)].detectors().and_then(crate::detector_slot::Detectors::model).unwrap();

    let mut other = Node::new(quick());
    spec.model = model;
    other.set(&spec);
    other.healthy(METRICS, 0);
    assert_eq!(other.worker.status().lmaps, [0, 1, 0, 0]);

    spec.model.pop();
    let refused = node.change(FromHost::SetLmap((&spec).into())).unwrap_err();
    node.healthy(METRICS, 60);
    assert!(matches!(refused, UnexpectedMessage::Model(_)), "{refused}");
    assert_eq!(node.worker.status().lmaps, [0, 1, 0, 0], "what it has learnt judges");

    let mut young = Node::new(quick());
    young.regions.insert(RegionId(1), Region::new(RegionSize::ONE_PAGE));
    young.change(FromHost::SetLmap((&spec).into())).unwrap_err();
    young.healthy(METRICS, 0);
    assert_eq!(young.worker.status().lmaps, [1, 0, 0, 0], "it learns by itself");
}

/// Problems of LMAPs that the worker has reported since the last call.
fn lmap_problems(node: &mut Node) -> Vec<(u32, String)> {
    let messages = node.take_messages().into_iter().filter_map(|message| match message {
        ToHost::LmapProblem(problem) => Some((problem.lmap, problem.problem)),
        _ => None,
    });
    messages.collect()
}

#[test]
fn the_host_agent_is_sent_one_problem_for_a_model_and_of_an_aggregation_that_cannot_be_used() {
    let mut node = Node::new(quick());
    let mut spec = lmap(metrics(METRICS), 1);
    spec.model = vec![7];
    node.regions.insert(RegionId(1), Region::new(RegionSize::ONE_PAGE));
    node.change(FromHost::SetLmap((&spec).into())).unwrap_err();
    let problems = lmap_problems(&mut node);
    assert!(matches!(&problems[..], [(1, why)] if why.contains("the model cannot be used")), "{problems:?}");

    spec.metrics.push(metric(METRICS + 1, "more", Kind::Gauge));
    spec.replicas[0] = replica(1, &spec.metrics);
    node.set(&spec);
    assert_eq!(lmap_problems(&mut node), [], "the model is the same: it was reported");

    spec.metrics[0].aggregation = Aggregation::Named(MetricName::new("spread").unwrap());
    node.change(FromHost::SetLmap((&spec).into())).unwrap_err();
    let problems = lmap_problems(&mut node);
    assert!(matches!(&problems[..], [(1, why)] if why.contains("no aggregation is named spread")), "{problems:?}");
}

#[test]
fn an_lmap_judges_as_an_operator_asked_for_it_and_the_others_as_configured() {
    let mut node = Node::new(quick());
    let mut spec = lmap(metrics(METRICS), 1);
    spec.detector = DetectorSpec { score: Some(ScoreForm::Relative), ..DetectorSpec::default() };
    node.set(&spec);
    for tick in 0..130 {
        node.healthy(METRICS, tick);
    }

    let verdicts = node.verdicts();

    let scored: Vec<_> = verdicts.iter().filter(|verdict| verdict.gamma.is_some()).collect();
    assert!(!scored.is_empty());
    assert!(scored.iter().all(|verdict| verdict.score <= 1.0), "a relative score is at most 1");
    let (mut configured, _) = learnt(130);
    assert!(configured.verdicts().iter().any(|verdict| verdict.score > 1.0));
}

#[test]
fn settings_that_do_not_go_together_with_the_workers_own_are_said_once_and_the_lmap_runs_all_the_same() {
    let mut settings = quick();
    settings.detector.sketch_rows = Some(20);
    (settings.detector.group_margin, settings.detector.latch_rows) = (Some(3.0), Some(60));
    let mut node = Node::new(settings);
    let mut spec = lmap(metrics(METRICS), 1);
    spec.detector = DetectorSpec { rank: Some(30), ..DetectorSpec::default() };
    node.regions.insert(RegionId(1), Region::new(RegionSize::ONE_PAGE));

    let refused = node.change(FromHost::SetLmap((&spec).into())).unwrap_err();

    assert!(matches!(refused, UnexpectedMessage::Settings(_)), "{refused}");
    let problems = lmap_problems(&mut node);
    assert!(matches!(&problems[..], [(1, why)] if why.contains("rank 30") && why.contains("20 rows")), "{problems:?}");
    node.set(&spec);
    assert_eq!(lmap_problems(&mut node), [], "it was reported");
    for tick in 0..30 {
        node.healthy(METRICS, tick);
    }
    assert_eq!(node.worker.status().lmaps, [0, 1, 0, 0]);
    let judged_by = node.worker.runtimes[&LmapId(1)].detectors().unwrap().settings();
    assert_eq!((judged_by.rank, judged_by.sketch_rows), (None, Some(20)), "the worker's own");
    assert_eq!((judged_by.long_rows, judged_by.pool_rows), (Some(10), Some(20)), "as every detector at 100 ms");
}

#[test]
fn other_settings_are_another_normal() {
    let (mut node, mut spec) = learnt(60);
    spec.detector.percentile = Some(99.9);
    node.set(&spec);

    node.alive();

    assert_eq!(node.worker.status().lmaps, [1, 0, 0, 0]);
}

#[test]
fn an_operator_can_say_that_this_is_normal_now() {
    let (mut node, _) = learnt(60);
    node.runs_jobs = false;

    node.change(FromHost::FitAgain(proto::FitAgain { lmap: 1 })).unwrap();
    for tick in 60..100 {
        node.healthy(METRICS, tick);
    }

    let (id, job) = node.worker.take_job().unwrap();
    assert!(matches!(job, lmap::Job::Fit(_)));
    node.worker.job_done(id, job.run());
}

#[test]
fn with_rows_that_an_operator_has_kept_what_is_normal_now_is_fitted_at_once() {
    for (rows_kept, at_once) in [(None, false), (Some(120), true)] {
        let mut node = Node::new(quick());
        let mut spec = lmap(metrics(METRICS), 1);
        spec.detector.rows_kept = rows_kept;
        node.set(&spec);
        (0..60).for_each(|tick| node.healthy(METRICS, tick));
        node.runs_jobs = false;

        node.change(FromHost::FitAgain(proto::FitAgain { lmap: 1 })).unwrap();

        let job = node.worker.take_job().map(|(_, job)| job);
        assert_eq!(matches!(job, Some(lmap::Job::Fit(_))), at_once, "{job:?}");
    }
}

#[test]
fn a_clock_that_jumps_by_hours_is_counted_and_no_alarm_as_long_as_counters_have_grown_as_ever() {
    const HOURS: u64 = 6 * 3600 * 10; // in intervals
    let (mut node, _) = learnt(130);
    node.take_messages();
    let before = node.worker.status().counters.late_ticks;
    (1..=METRICS).step_by(2).for_each(|id| node.add(1, id - 1, HOURS * 1050));
    node.now = node.now.plus(Nanos(HOURS * INTERVAL.0));

    (130..160).for_each(|tick| node.healthy(METRICS, tick));

    let late = node.worker.status().counters.late_ticks - before;
    assert!((HOURS - 1..=HOURS).contains(&late), "{late}");
    let verdicts = node.verdicts();
    assert!(verdicts.iter().all(|verdict| verdict.episode == Episode::Quiet && verdict.state == State::Armed));
    assert!(fault(&mut node, 160).iter().any(|verdict| verdict.episode == Episode::Began), "it judges on");
}

#[test]
fn a_job_whose_lmap_is_gone_is_dropped() {
    let (mut node, _) = learnt(19);
    node.runs_jobs = false;
    node.healthy(METRICS, 19);
    node.healthy(METRICS, 20);
    let (id, job) = node.worker.take_job().unwrap();

    node.change(FromHost::RemoveLmap(proto::RemoveLmap { lmap: 1 })).unwrap();
    node.worker.job_done(id, job.run());

    assert!(node.worker.take_job().is_none());
    assert_eq!(node.worker.status().regions, 0);
}

#[test]
fn an_lmap_without_metrics_is_not_judged_and_hurts_nobody() {
    let mut node = Node::new(quick());
    node.set(&lmap(Vec::new(), 1));

    for _ in 0..30 {
        node.alive();
    }

    assert_eq!(node.worker.status().lmaps, [1, 0, 0, 0]);
}
