//! The operators' API over the network.

use tonic::Code;
use wire::proto::control::{LmapProblem, worker_message};
use wire::proto::operators as proto;

use crate::agent::{Agent, Operators, WAIT};
use crate::service::Service;
use crate::worker::Worker;

macro_rules! call {
    ($operators:expr, $call:ident, $request:expr) => {{
        let Operators { runtime, client } = &mut $operators;
        runtime.block_on(client.$call($request)).map(tonic::Response::into_inner)
    }};
}

fn metric(name: &str) -> proto::MetricConfig {
    proto::MetricConfig { metric: name.into(), aggregation: "max".into(), ..proto::MetricConfig::default() }
}

/// A small model.
fn model() -> Vec<u8> {
    model_of(1)
}

/// A small model of the column with this fingerprint.
fn model_of(fingerprint: u64) -> Vec<u8> {
    let columns = vec![lmap::Column::new(lmap::ColumnKind::Gauge, fingerprint)];
    let mut detector = lmap::Detector::new(columns, lmap::Settings::default(), 1).unwrap();
    let mut row = 0_u64;
    while detector.model().is_none() {
        row += 1;
        let _ = detector.score(&[(row * 7919 % 101) as f64]).unwrap();
        if let Some(job) = detector.learn() {
            detector.install(job.run());
        }
    }
    detector.model().unwrap().encode()
}

#[test]
fn an_lmap_over_two_services_takes_the_dictionary_of_the_table_and_says_which_is_missing() {
    let agent = Agent::start();
    let mut worker = Worker::connect(&agent, 0);
    let mut operators = agent.operators();
    let _cart = Service::register(&agent, "cart", &["a"]);
    let of = |service: &str, name: &str| proto::ServiceMetrics { service: service.into(), metrics: vec![metric(name)] };
    let named = proto::NewLmapRequest { service: "shop".to_owned(), ..proto::NewLmapRequest::default() };
    let lmap = call!(operators, new_lmap, named).unwrap().lmap;

    let services = vec![of("cart", "a"), of("payment", "b")];
    let both = proto::ConfigLmapRequest { lmap, services: services.clone(), ..proto::ConfigLmapRequest::default() };
    assert_eq!(call!(operators, config_lmap, both).unwrap().pending, ["payment/b"]);
    let payment = Service::register(&agent, "payment", &["b"]);
    let (_, set) = worker.set_where(|set| set.lmap == lmap && set.metrics.len() == 2);
    assert!(set.several_services && set.replicas.len() == 2, "{set:?}");
    let names: Vec<_> = set.metrics.iter().map(|of| (of.name.as_str(), of.aggregation.as_str())).collect();
    assert_eq!(names, [("cart/a", "max"), ("payment/b", "max")]);

    drop(payment);
    let (_, set) = worker.set_where(|set| set.lmap == lmap && set.replicas.len() == 1);
    assert_eq!(set.metrics.len(), 2, "its column stays");
    let listed = call!(operators, list, proto::ListRequest {}).unwrap().lmaps;
    let shop = listed.iter().find(|of| of.lmap == lmap).unwrap();
    let missing: Vec<_> = shop.members.iter().map(|of| (of.service.as_str(), of.missing_for_ms.is_some())).collect();
    assert_eq!(missing, [("cart", false), ("payment", true)]);
    let status = agent.status().lmaps.into_iter().find(|of| of.lmap == lmap).unwrap();
    assert_eq!(status.members.iter().filter(|of| of.missing_for_ms.is_some()).count(), 1);

    for (metrics, services, says) in [
        (vec![metric("a")], services, "both metrics and services are set"),
        (vec![metric("a")], Vec::new(), "say of which one each metric is"),
        (Vec::new(), vec![of("cart", "a"), of("cart/b", "a")], "cannot be told apart"),
        (Vec::new(), vec![of("c d", "a")], "service name"),
    ] {
        let refused = call!(operators, config_lmap, proto::ConfigLmapRequest { lmap, metrics, services }).unwrap_err();
        assert!(refused.code() == Code::InvalidArgument && refused.message().contains(says), "{refused:?}");
    }
    call!(operators, delete_lmap, proto::DeleteLmapRequest { lmap }).unwrap();
    // That of payment ended before.
    while worker.removed().1 != lmap {}
}

#[test]
fn every_call_of_the_table_except_hooks_works() {
    let agent = Agent::start();
    let mut worker = Worker::connect(&agent, 0);
    let mut operators = agent.operators();
    let detector = proto::Detector { score: "relative".into(), rank: Some(2), ..proto::Detector::default() };
    let (service, detector) = ("cart".to_owned(), Some(detector));
    let services = Vec::new();
    let request = proto::NewLmapRequest { service, interval_us: 50_000, model: model(), detector, services };
    let lmap = call!(operators, new_lmap, request.clone()).unwrap().lmap;
    let (_service, _region) = Service::register(&agent, "cart", &["a", "b", "c"]);
    let (_, set) = worker.set_where(|lmap| lmap.metrics.len() == 3);
    assert_eq!((set.lmap, set.interval_us, set.model), (lmap, 50_000, model()));
    let detector = set.detector.expect("what was asked for is told");
    assert_eq!((detector.score.as_str(), detector.rank, detector.margin), ("relative", Some(2), None));
    assert_eq!(agent.status().lmaps[0].detector.as_ref().map(|detector| detector.rank), Some(Some(2)));

    let none = proto::NewLmapRequest { service: "other".to_owned(), model: vec![7], ..request.clone() };
    let refused = call!(operators, new_lmap, none).unwrap_err();
    assert!(refused.message().contains("model: ") && refused.message().contains("uview model fetch"), "{refused:?}");
    assert_eq!(agent.counter("refused_models"), 1);

    let problem = LmapProblem { lmap, problem: "not a model file".into() };
    worker.send(worker_message::Message::LmapProblem(problem));
    WAIT.until("the model's problem", || {
        agent.status().problems.iter().any(|line| line.contains("not a model")).then_some(())
    });

    call!(
        operators,
        config_lmap,
        proto::ConfigLmapRequest { lmap, metrics: vec![metric("a")], ..proto::ConfigLmapRequest::default() }
    )
    .unwrap();
    let (_, set) = worker.set_where(|lmap| lmap.metrics.len() == 1);
    assert_eq!(set.metrics[0].aggregation, "max");

    let of = |service: &str, name: &str| proto::ServiceMetrics { service: service.into(), metrics: vec![metric(name)] };
    let several = vec![of("cart", "a"), of("payment", "a")];
    let several = proto::ConfigLmapRequest { lmap, services: several, ..proto::ConfigLmapRequest::default() };
    let refused = call!(operators, config_lmap, several).unwrap_err();
    assert!(
        refused.code() == Code::FailedPrecondition && refused.message().contains("cart is a service"),
        "{refused:?}"
    );
    let services = vec![proto::ServiceMetrics { service: "cart".into(), metrics: vec![metric("a"), metric("later")] }];
    let own = proto::ConfigLmapRequest { lmap, services, ..proto::ConfigLmapRequest::default() };
    assert_eq!(call!(operators, config_lmap, own).unwrap().pending, ["later"]);
    let listed = call!(operators, list, proto::ListRequest {}).unwrap().lmaps;
    assert_eq!(listed[0].pending[0].metric, "later");

    let add = proto::AddMetricRequest { lmap, metric: Some(metric("b")), r#type: "counter".into() };
    let added = call!(operators, add_metric, add).unwrap().metrics;
    worker.set_where(|lmap| lmap.metrics.len() == 2);
    call!(operators, delete_metric, proto::DeleteMetricRequest { lmap, metric: added[0] }).unwrap();
    worker.set_where(|lmap| lmap.metrics.len() == 1);

    call!(operators, fit_again, proto::FitAgainRequest { lmap }).unwrap();
    let told = worker.receive().unwrap();
    assert!(format!("{told:?}").contains("FitAgain"), "{told:?}");
    worker.acknowledge(told.epoch);

    let list = call!(operators, list, proto::ListRequest {}).unwrap();
    assert_eq!(list.lmaps[0].replicas[0].pid, std::process::id());
    assert_eq!(list.lmaps[0].metrics[0].name, "a");
    let status = call!(operators, status, proto::StatusRequest {}).unwrap();
    assert_eq!(status.incarnation, agent.at.incarnation);
    assert!(status.workers[0].connected);
    assert_eq!(status.workers[0].transport, "shm");

    call!(operators, delete_lmap, proto::DeleteLmapRequest { lmap }).unwrap();
    assert_eq!(worker.removed().1, lmap);
    let again = call!(operators, new_lmap, request).unwrap().lmap;
    assert_ne!(again, lmap);
}

#[test]
fn a_model_that_is_set_reaches_the_worker_and_one_that_does_not_fit_says_why_and_changes_nothing() {
    let agent = Agent::start();
    let mut worker = Worker::connect(&agent, 0);
    let (_service, _region) = Service::register(&agent, "cart", &["a"]);
    let (_, set) = worker.set_where(|lmap| lmap.metrics.len() == 1);
    let mut operators = agent.operators();
    let ask = |model: Vec<u8>| proto::SetModelRequest { lmap: set.lmap, model };

    let none = call!(operators, set_model, ask(vec![7])).unwrap_err();
    let foreign = call!(operators, set_model, ask(model())).unwrap_err();
    assert_eq!((none.code(), foreign.code()), (Code::InvalidArgument, Code::FailedPrecondition));
    assert!(none.message().contains("not a model file") && none.message().contains("uview train"), "{none}");
    assert!(foreign.message().contains("does not know 1 of the 1 columns of cart, such as a,"), "{foreign}");
    assert_eq!((agent.counter("refused_models"), agent.status().lmaps[0].model_by.as_str()), (2, ""));

    let model = model_of(wire::metric::fingerprint("a"));
    let reply = call!(operators, set_model, ask(model.clone())).unwrap();
    assert_eq!((reply.columns, reply.unknown, reply.running), (1, 0, true));
    let (_, given) = worker.set_where(|lmap| !lmap.model.is_empty());
    assert_eq!((given.lmap, given.model), (set.lmap, model));
    assert!(agent.status().lmaps[0].model_by.starts_with("user "));

    call!(operators, set_model, ask(Vec::new())).unwrap();
    worker.set_where(|lmap| lmap.model.is_empty());
    assert_eq!(agent.status().lmaps[0].model_by, "");
}

#[test]
fn failed_calls_return_a_code_and_a_reason() {
    let agent = Agent::start();
    let (_service, _region) = Service::register(&agent, "cart", &["a"]);
    let mut operators = agent.operators();
    let lmap = call!(operators, list, proto::ListRequest {}).unwrap().lmaps[0].lmap;

    let new = proto::NewLmapRequest { service: "cart".into(), ..proto::NewLmapRequest::default() };
    let exists = call!(operators, new_lmap, new).unwrap_err();
    assert_eq!(exists.code(), Code::AlreadyExists);
    assert!(exists.message().contains("cart already has lmap-"), "{exists}");
    let new = proto::NewLmapRequest { service: "a b".into(), ..proto::NewLmapRequest::default() };
    assert_eq!(call!(operators, new_lmap, new).unwrap_err().code(), Code::InvalidArgument);
    let new = proto::NewLmapRequest { service: "x".into(), interval_us: 5, ..proto::NewLmapRequest::default() };
    assert_eq!(call!(operators, new_lmap, new).unwrap_err().code(), Code::InvalidArgument);
    let detector = Some(proto::Detector { stride: Some(0), ..proto::Detector::default() });
    let new = proto::NewLmapRequest { service: "x".into(), detector, ..proto::NewLmapRequest::default() };
    let refused = call!(operators, new_lmap, new).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("stride is 0: 1 to"), "{refused}");

    let add = |name, kind: &str| proto::AddMetricRequest { lmap, metric: Some(metric(name)), r#type: kind.into() };
    assert_eq!(call!(operators, add_metric, add("nope", "")).unwrap_err().code(), Code::NotFound);
    assert_eq!(call!(operators, add_metric, add("a", "gauge")).unwrap_err().code(), Code::InvalidArgument);
    let nothing = proto::AddMetricRequest { lmap, metric: None, r#type: String::new() };
    assert_eq!(call!(operators, add_metric, nothing).unwrap_err().code(), Code::InvalidArgument);
    let delete = proto::DeleteMetricRequest { lmap, metric: 99 };
    assert_eq!(call!(operators, delete_metric, delete).unwrap_err().code(), Code::NotFound);
    let fit = call!(operators, fit_again, proto::FitAgainRequest { lmap }).unwrap_err();
    assert_eq!(fit.code(), Code::FailedPrecondition);

    let hook = proto::RegisterHookRequest {
        lmaps: vec![99],
        min_share: 0.0,
        queue: 0,
        ..proto::RegisterHookRequest::default()
    };
    assert_eq!(call!(operators, register_hook, hook).unwrap_err().code(), Code::NotFound);
    let hook = proto::RegisterHookRequest {
        lmaps: vec![],
        min_share: -1.0,
        queue: 0,
        ..proto::RegisterHookRequest::default()
    };
    assert_eq!(call!(operators, register_hook, hook).unwrap_err().code(), Code::InvalidArgument);
    let rows = proto::WatchRowsRequest { lmap: 99, every: 1, ..proto::WatchRowsRequest::default() };
    assert_eq!(call!(operators, watch_rows, rows).unwrap_err().code(), Code::NotFound);
}

#[test]
fn hooks_beyond_the_bound_are_refused() {
    let agent = Agent::with("operators: {hooks: 1}\nprocess_metrics: {enabled: false}\n");
    let mut operators = agent.operators();
    let _first = call!(operators, register_hook, proto::RegisterHookRequest::default()).unwrap();

    let second = call!(operators, register_hook, proto::RegisterHookRequest::default()).unwrap_err();

    assert_eq!(second.code(), Code::ResourceExhausted);
}

#[test]
fn a_hook_resumes_after_the_last_verdict_received() {
    let agent = Agent::start();
    let mut worker = Worker::connect(&agent, 0);
    let (_service, _region) = Service::register(&agent, "cart", &["a"]);
    let (epoch, lmap) = worker.set();
    let mut first = agent.operators();
    let request = proto::RegisterHookRequest {
        lmaps: vec![],
        min_share: 0.0,
        queue: 100,
        ..proto::RegisterHookRequest::default()
    };
    let mut events = call!(first, register_hook, request).unwrap();
    (1..=10).for_each(|score| worker.verdict(&lmap, epoch, f64::from(score)));
    let hook = (1..=3).map(|_| first.runtime.block_on(events.message()).unwrap().unwrap()).last().unwrap();
    assert_eq!(hook.sequence, 3);
    drop((events, first));
    (11..=12).for_each(|score| worker.verdict(&lmap, epoch, f64::from(score)));

    let mut second = agent.operators();
    let request = proto::ResumeHookRequest { hook: hook.hook, after: 3 };
    let mut events = call!(second, resume_hook, request).unwrap();
    let seen: Vec<_> = (4..=12).map(|_| second.runtime.block_on(events.message()).unwrap().unwrap()).collect();
    assert!(seen.iter().zip(4..).all(|(event, n)| event.sequence == n && event.score == n as f64 && event.lost == 0));

    // A third stream takes over while the second is open, and gets what the second missed.
    let mut third = agent.operators();
    let mut again = call!(third, resume_hook, proto::ResumeHookRequest { hook: hook.hook, after: 10 }).unwrap();
    assert_eq!(second.runtime.block_on(events.message()).unwrap_err().code(), Code::Aborted);
    assert_eq!(third.runtime.block_on(again.message()).unwrap().unwrap().sequence, 11);
    let unknown = call!(third, resume_hook, proto::ResumeHookRequest { hook: 999, after: 0 }).unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
}

#[test]
fn a_hook_that_does_not_read_loses_its_own_verdicts_and_delays_no_other() {
    let agent = Agent::start();
    let mut worker = Worker::connect(&agent, 0);
    let (_service, _region) = Service::register(&agent, "cart", &["a"]);
    let (epoch, lmap) = worker.set();
    let mut slow = agent.operators();
    let mut fast = agent.operators();
    let request =
        proto::RegisterHookRequest { lmaps: vec![], min_share: 0.0, queue: 4, ..proto::RegisterHookRequest::default() };
    let mut unread = call!(slow, register_hook, request).unwrap();
    let request = proto::RegisterHookRequest {
        lmaps: vec![],
        min_share: 0.0,
        queue: 8_000,
        ..proto::RegisterHookRequest::default()
    };
    let mut events = call!(fast, register_hook, request).unwrap();
    let (rounds, at_once) = (5, 4_000);
    let count = rounds * at_once;

    let mut lost = 0;
    for round in 0..rounds {
        for score in 0..at_once {
            worker.verdict(&lmap, epoch, f64::from(round * at_once + score));
        }
        for _ in 0..at_once {
            lost += fast.runtime.block_on(events.message()).unwrap().unwrap().lost;
        }
    }
    assert_eq!(lost, 0);
    assert!(agent.counter("lost_verdicts") > 0);
    let (mut seen, mut missed) = (0, 0);
    while seen + missed < u64::from(count as u32) {
        let event = slow.runtime.block_on(unread.message()).unwrap().unwrap();
        (seen, missed) = (seen + 1, missed + event.lost);
        assert_eq!(event.sequence, seen + missed, "every verdict is seen or counted as lost");
    }
    // The agent's own hooks may have lost some, too.
    assert!((1..=agent.counter("lost_verdicts")).contains(&missed), "{missed} verdicts were missed");
}
