//! LMAPs over several services.

use wire::id::{MetricId, Owner};
use wire::metric::Aggregation;
use wire::name::{Formula, MetricName};

use super::super::testing::{counter, gauge};
use super::*;

fn choice(name: &str) -> Choice {
    Choice { metric: MetricName::new(name).unwrap(), aggregation: None, every: None, unit: None }
}

fn derived(name: &str, formula: &str) -> Choice {
    Choice { aggregation: Some(Aggregation::Derived(Formula::new(formula).unwrap())), ..choice(name) }
}

fn member(name: &str, metrics: &[&str]) -> MemberChoices {
    MemberChoices { service: service(name), choices: metrics.iter().map(|name| choice(name)).collect() }
}

/// `payment/requests`, and all of `cart`.
fn shop() -> Vec<MemberChoices> {
    vec![member("payment", &["requests"]), member("cart", &[])]
}

impl Node {
    fn over(&mut self, name: &str, members: Vec<MemberChoices>) -> Result<LmapId, OperatorError> {
        let options = LmapOptions { members, ..LmapOptions::default() };
        self.plane.new_lmap(self.now, &service(name), options)
    }

    /// The last configuration of `lmap` sent over this connection.
    fn last(&mut self, connection: u64, lmap: LmapId) -> Option<proto::Lmap> {
        self.set(connection).into_iter().map(|(_, sent)| sent).rfind(|sent| sent.lmap == lmap.0)
    }

    /// Members that are missing, and for how many seconds.
    fn missing(&self, lmap: LmapId) -> Vec<(String, u64)> {
        let members = self.plane.members(lmap, self.now).into_iter();
        members.filter_map(|of| Some((of.service, of.missing_for_ms? / 1000))).collect()
    }
}

fn columns(sent: &proto::Lmap) -> Vec<&str> {
    sent.metrics.iter().map(|metric| metric.name.as_str()).collect()
}

/// Metrics with places, by replica.
fn placed_by_replica(sent: &proto::Lmap) -> Vec<(&str, Vec<&str>)> {
    let name = |id: u32| sent.metrics.iter().find(|metric| metric.metric == id).unwrap().name.as_str();
    let of = |replica: &proto::Replica| replica.places.iter().map(|place| place.metric).collect::<Vec<_>>();
    let all = sent.replicas.iter().map(|one| (one.instance.as_str(), of(one).into_iter().map(name).collect()));
    all.collect()
}

#[test]
fn one_worker_gets_the_replicas_of_all_services_with_columns_named_by_service() {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);
    node.replica(1, "payment", &[counter("requests"), gauge("depth")]);
    node.replica(2, "cart", &[counter("requests"), counter("errors")]);
    let shop = node.over("shop", shop()).unwrap();
    node.settle();

    let sent = node.last(50, shop).unwrap();

    assert_eq!((sent.service.as_str(), sent.several_services), ("shop", true));
    let mut names = columns(&sent);
    names.sort_unstable();
    assert_eq!(names, ["cart/errors", "cart/requests", "payment/requests"]);
    let placed = placed_by_replica(&sent);
    assert_eq!(placed[0].0, "cart-2");
    assert_eq!(placed[1], ("payment-1", vec!["payment/requests"]));
    let owners: Vec<_> = sent.replicas.iter().map(|replica| Owner::of(replica.uid, &replica.container)).collect();
    assert_eq!(owners, [Owner::Agent, Owner::Agent], "the services' owners do not pay for it");
    let listed = node.plane.list().lmaps;
    assert_eq!(listed.iter().filter(|lmap| lmap.service == "cart" && lmap.metrics.len() == 2).count(), 1);
    let info = listed.iter().find(|lmap| lmap.lmap == shop.0).unwrap();
    assert_eq!((info.metrics.len(), info.replicas.len()), (3, 2));
}

#[test]
fn a_service_that_is_missing_keeps_its_columns_without_values_and_is_said_since_when() {
    let mut node = Node::new(Settings { lease: Nanos::from_secs(60), ..settings() });
    node.worker(50, 0, 1);
    node.replica(1, "payment", &[counter("requests")]);
    let shop = node.over("shop", shop()).unwrap();
    node.settle();
    let sent = node.last(50, shop).unwrap();
    assert_eq!(columns(&sent), ["payment/requests"], "a service that was never here has no columns");
    node.pass(Nanos::from_secs(2));
    assert_eq!(node.missing(shop), [("cart".to_owned(), 2)]);

    node.replica(2, "cart", &[counter("errors")]);
    node.settle();
    let both = node.last(50, shop).unwrap();
    assert_eq!(columns(&both), ["payment/requests", "cart/errors"]);
    assert!(node.missing(shop).is_empty());

    node.gone(1);
    node.settle();
    let without = node.last(50, shop).unwrap();
    assert_eq!(without.metrics, both.metrics, "the same columns by the same numbers");
    assert_eq!(placed_by_replica(&without), [("cart-2", vec!["cart/errors"])]);
    node.pass(Nanos::from_secs(7));
    assert_eq!(node.missing(shop), [("payment".to_owned(), 7)]);
    let pending = node.plane.pending(shop, node.now).into_iter().map(|of| (of.metric, of.for_ms / 1000));
    assert_eq!(pending.collect::<Vec<_>>(), [("payment/requests".to_owned(), 7)]);

    node.replica(3, "payment", &[counter("requests")]);
    node.settle();
    let back = node.last(50, shop).unwrap();
    assert_eq!((back.metrics, back.replicas.len()), (both.metrics, 2));
    assert!(node.missing(shop).is_empty());

    node.gone(2);
    node.gone(3);
    node.settle();
    assert!(node.sent(50).iter().any(|(_, message)| matches!(message, Message::RemoveLmap(of) if of.lmap == shop.0)));
    assert_eq!(node.only_lmap(), shop, "it stays until it is deleted");
}

#[test]
fn slots_are_given_back_after_the_lmap_over_several_services_has_forgotten_them_too() {
    for (first, last) in [(50, 51), (51, 50)] {
        let mut node = Node::new(settings());
        // The service's own LMAP runs on one worker, and the other one on another.
        node.worker(50, 0, 1);
        node.replica(1, "payment", &[counter("requests"), counter("errors")]);
        node.settle();
        node.worker(51, 1, 2);
        let shop = node.over("shop", vec![member("payment", &["errors"])]).unwrap();
        node.settle();
        let all = |node: &mut Node, connection| {
            let epochs = node.sent(connection).into_iter().map(|(epoch, _)| epoch);
            if let Some(epoch) = epochs.max() {
                node.acknowledge(connection, epoch);
            }
        };
        let workers: Vec<_> = node.plane.list().lmaps.into_iter().map(|lmap| (lmap.lmap, lmap.worker)).collect();
        assert_eq!(workers, [(1, 0), (shop.0, 1)]);
        for connection in [50, 51] {
            all(&mut node, connection);
        }

        node.retire(1, 1, 1);
        node.settle();

        assert_eq!(node.released(1), 0);
        all(&mut node, first);
        assert_eq!(node.released(1), 0, "one worker reads it still");
        all(&mut node, last);
        assert_eq!(node.released(1), 1);
    }
}

#[test]
fn slots_of_a_service_that_was_taken_out_or_whose_lmap_was_deleted_wait_for_the_worker() {
    for deleted in [false, true] {
        let mut node = Node::new(settings());
        node.worker(50, 0, 1);
        node.replica(1, "payment", &[counter("requests"), counter("errors")]);
        node.replica(2, "cart", &[counter("errors")]);
        let own = LmapId(1);
        node.plane.delete_lmap(node.now, own).unwrap();
        let shop = node.over("shop", vec![member("payment", &[]), member("cart", &[])]).unwrap();
        node.settle();
        let last = node.sent(50).into_iter().map(|(epoch, _)| epoch).max().unwrap();
        node.acknowledge(50, last);

        if deleted {
            node.plane.delete_lmap(node.now, shop).unwrap();
        } else {
            node.plane.config_members(node.now, shop, vec![member("cart", &[])]).unwrap();
        }
        node.settle();
        let change = node.sent(50).into_iter().map(|(epoch, _)| epoch).max().unwrap();
        node.retire(1, 0, 1);
        node.settle();
        assert_eq!(node.released(1), 0, "the worker has not said that it has forgotten it: {deleted}");
        node.acknowledge(50, change);
        assert_eq!(node.released(1), 1);
    }
}

#[test]
fn a_name_is_a_services_or_an_lmaps_over_several_and_not_both() {
    let mut node = Node::new(settings());
    node.replica(1, "payment", &[counter("requests")]);
    let taken = node.over("payment", shop()).unwrap_err();
    assert!(matches!(taken, OperatorError::Exists { .. }), "{taken}");
    let own = node.only_lmap();
    let refused = node.plane.config_members(node.now, own, shop()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "payment is a service: make an LMAP of another name for metrics of several services"
    );
    node.plane.config_members(node.now, own, vec![member("payment", &["requests"])]).unwrap();

    let shop = node.over("shop", shop()).unwrap();
    node.connect(2);
    node.hello(2, "shop");
    let refusals = node.refusals(2);
    assert!(refusals[0].contains("shop is the name of an LMAP over several services"), "{refusals:?}");
    let nested = node.over("mall", vec![member("shop", &[])]).unwrap_err();
    assert_eq!(nested.to_string(), "shop is an LMAP over several services: name the services themselves");
    let which = node.plane.config_lmap(node.now, shop, vec![choice("requests")]).unwrap_err();
    assert_eq!(which, OperatorError::WhichService(shop));

    node.plane.delete_lmap(node.now, shop).unwrap();
    node.replica(3, "shop", &[counter("requests")]);
    assert!(node.plane.list().lmaps.iter().any(|lmap| lmap.service == "shop"), "it is a service's name again");
}

#[test]
fn spans_of_a_service_of_that_name_are_not_watched_and_the_status_says_so() {
    let mut node = Node::new(settings());
    node.over("shop", shop()).unwrap();
    let (connection, region) = (ConnectionId(9), RegionId(90));
    node.plane.agent_replica(connection, service("shop"), InstanceName::new("spans").unwrap());
    node.plane.agent_region(node.now, connection, region, RegionSize::ONE_PAGE, vec![placed(counter("calls"), 0, 0)]);
    node.step();

    let problems = node.plane.status().problems;
    assert!(
        problems.contains(&"shop is not watched: an LMAP over several services has its name".to_owned()),
        "{problems:?}"
    );
    assert!(node.plane.list().lmaps[0].metrics.is_empty());
}

#[test]
fn lmaps_over_several_services_and_their_services_are_bounded() {
    let mut node = Node::new(settings());
    for at in 0..32 {
        node.over(&format!("over-{at}"), shop()).unwrap();
    }
    let refused = node.over("over-32", shop()).unwrap_err().to_string();
    assert_eq!(refused, "33 LMAPs over several services exceed the limit of 32");
    node.plane.config_members(node.now, LmapId(1), vec![member("cart", &[])]).unwrap();
    let many = (0..17).map(|at| member(&format!("service-{at}"), &[])).collect();
    let refused = node.plane.config_members(node.now, LmapId(1), many).unwrap_err().to_string();
    assert_eq!(refused, "17 services of one LMAP exceed the limit of 16");
}

#[test]
fn what_is_more_than_an_lmap_over_several_services_may_have_is_left_out_and_the_status_says_so() {
    let mut node = Node::new(settings());
    let series: Vec<_> = (0..500).map(|at| counter(&format!("m{at}"))).collect();
    for (connection, name) in [(1, "a"), (2, "b"), (3, "c")] {
        node.replica(connection, name, &series);
    }
    let id = node.over("all", vec![member("a", &[]), member("b", &[]), member("c", &[])]).unwrap();
    node.settle();

    let info = node.plane.list().lmaps.into_iter().find(|lmap| lmap.lmap == id.0).unwrap();
    assert_eq!(info.metrics.len(), 1024);
    let problems = node.plane.status().problems;
    assert!(problems.iter().any(|line| line.starts_with("all: 476 series are left out")), "{problems:?}");
}

#[test]
fn metrics_are_added_derived_and_deleted_by_their_columns() {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);
    node.replica(1, "payment", &[counter("requests"), counter("errors")]);
    node.replica(2, "cart", &[counter("requests")]);
    let members = vec![member("payment", &["requests"]), member("cart", &["requests"])];
    let id = node.over("shop", members).unwrap();

    let max = Choice { aggregation: Some(Aggregation::Max), ..choice("payment/errors") };
    let added = node.plane.add_metric(node.now, id, max, Some("counter")).unwrap();
    assert_eq!(added.len(), 1);
    let unknown = node.plane.add_metric(node.now, id, choice("payment/nope"), None).unwrap_err();
    assert_eq!(unknown.to_string(), "no replica of shop has registered payment/nope");
    let ratio = derived("ratio", "`payment/requests` / `cart/requests`");
    let ratio = node.plane.add_metric(node.now, id, ratio, None).unwrap();
    let wrong = node.plane.add_metric(node.now, id, derived("x", "`payment/requests` / `cart/request`"), None);
    assert!(wrong.unwrap_err().to_string().contains("at 21: cart/request is not known"));
    node.settle();
    let sent = node.last(50, id).unwrap();
    let how: Vec<_> = sent.metrics.iter().map(|of| (of.name.as_str(), of.aggregation.as_str())).collect();
    assert_eq!(how[2..], [("payment/errors", "max"), ("ratio", "expression")]);

    node.plane.delete_metric(node.now, id, MetricId(added[0].0)).unwrap();
    node.plane.delete_metric(node.now, id, ratio[0]).unwrap();
    node.settle();
    assert_eq!(columns(&node.last(50, id).unwrap()), ["cart/requests", "payment/requests"]);
}

#[test]
fn its_alarm_names_the_services_that_stand_out_and_is_ranked_with_no_service() {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);
    node.replica(1, "payment", &[counter("requests")]);
    node.replica(2, "cart", &[counter("requests")]);
    let id = node.over("shop", vec![member("payment", &[]), member("cart", &[])]).unwrap();
    node.settle();
    let (epoch, sent) = node.set(50).into_iter().rfind(|(_, sent)| sent.lmap == id.0).unwrap();
    let payment = sent.metrics.iter().find(|metric| metric.name == "payment/requests").unwrap().metric;
    let reason = proto::Reason {
        metric: payment,
        statistic: proto::Statistic::Increment.into(),
        share: 1.0,
        ..Default::default()
    };
    let verdict = |reasons: Vec<proto::Reason>| proto::Verdict {
        lmap: id.0,
        epoch,
        score: 20.0,
        gamma: 4.0,
        state: proto::State::Armed.into(),
        episode: proto::Episode::Began.into(),
        reasons,
        ..proto::Verdict::default()
    };

    for reasons in [vec![reason], Vec::new()] {
        let verdicts = proto::Verdicts { at_unix_ns: 1, verdicts: vec![verdict(reasons)] };
        node.receive(50, FromWorker::Verdicts(verdicts));
    }

    let events = node.dispatched();
    let of = |event: &Event| {
        let concerned: Vec<_> = event.concerned.iter().map(ToString::to_string).collect();
        (event.service.to_string(), concerned, event.suspicion.is_none())
    };
    let names = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(of(&events[0]), ("shop".to_owned(), names(&["payment"]), true));
    assert_eq!(events[0].reasons[0].column(), "payment/requests");
    assert_eq!(of(&events[1]).1, names(&["cart", "payment"]), "without a reason, it may be any");
}

#[test]
fn what_it_has_learnt_goes_by_its_name() {
    let mut node = Node::new(settings());
    node.worker(50, 0, 1);
    node.replica(1, "payment", &[counter("requests")]);
    let id = node.over("shop", vec![member("payment", &[])]).unwrap();
    node.settle();
    let (epoch, _) = node.set(50).into_iter().rfind(|(_, sent)| sent.lmap == id.0).unwrap();
    let learnt = proto::LearntModel { lmap: id.0, epoch, model: vec![7], interval_us: 0 };
    node.receive(50, FromWorker::LearntModel(learnt));
    let kept: Vec<_> = node.plane.kept_models().map(|((name, _), _, model)| (name.to_string(), model.owner)).collect();
    assert_eq!(kept, [("shop".to_owned(), Owner::Agent)]);

    // Another worker goes on with it.
    node.plane.worker_gone(node.now, ConnectionId(50));
    node.worker(51, 1, 2);
    node.pass(Nanos::from_secs(4));
    node.acknowledge(51, 0);
    node.pass(Nanos::from_secs(2)).settle();
    let sent = node.last(51, id).unwrap();
    assert_eq!((sent.learnt, sent.continues), (vec![7], true));
}
