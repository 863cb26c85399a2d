use k8s_openapi::jiff::Timestamp;

use super::*;

fn at(seconds: i64) -> Time {
    Time(Timestamp::from_second(seconds).unwrap())
}

fn key() -> Key {
    ("shop".to_owned(), "fast".to_owned())
}

fn verdict(generation: i64, outcome: Outcome) -> NodeVerdict {
    NodeVerdict { generation, outcome, services: Vec::new() }
}

/// What a node says about the one object.
fn report(of: NodeVerdict) -> Report {
    let verdicts = OfKinds { lmaps: BTreeMap::from([(key(), of)]), ..OfKinds::default() };
    Report { uid: "r".to_owned(), verdicts }
}

/// A cluster with one object of generation 2, and what nodes say about it.
fn cluster(said: &[(&str, i64, Outcome)]) -> Cluster {
    let lmap =
        KnownObject { uid: "u".to_owned(), resource_version: "7".to_owned(), generation: 2, ..Default::default() };
    let said_by = |(node, generation, outcome): &(&str, i64, Outcome)| {
        ((*node).to_owned(), report(verdict(*generation, outcome.clone())))
    };
    Cluster {
        objects: OfKinds { lmaps: BTreeMap::from([(key(), lmap)]), ..OfKinds::default() },
        reports: said.iter().map(said_by).collect(),
        nodes: said.iter().map(|(node, ..)| ((*node).to_owned(), String::new())).collect(),
    }
}

/// The one write, after which the API server has its status.
fn written(cluster: &mut Cluster, now: i64) -> StatusWrite {
    let writes = reconcile(cluster, &at(now), usize::MAX, |_, _| true);
    assert_eq!(writes.len(), 1, "{writes:?}");
    cluster.objects.lmaps.get_mut(&key()).unwrap().status = writes[0].status.clone();
    writes[0].clone()
}

/// Status, reason and message of a condition.
fn condition(write: &StatusWrite, kind: &str) -> [String; 3] {
    let of = write.status.condition(kind).unwrap().clone();
    [of.status, of.reason, of.message]
}

fn refused() -> Outcome {
    Outcome::Refused("interval is 1h: at most 60 s are allowed here".to_owned())
}

#[test]
fn a_status_counts_nodes_and_says_why_the_first_refuses() {
    let mut of = cluster(&[
        ("node-1", 2, Outcome::Applied),
        ("node-2", 2, refused()),
        ("node-3", 1, Outcome::Applied),
        ("node-4", 2, Outcome::Refused("another reason".to_owned())),
    ]);

    let write = written(&mut of, 100);

    let ObjectStatus { observed_generation, nodes_applied, nodes_refused, nodes_pending, .. } = write.status;
    assert_eq!((observed_generation, nodes_applied, nodes_refused, nodes_pending), (2, 1, 2, 1));
    assert_eq!(write.status.first_problem, "node-2: interval is 1h: at most 60 s are allowed here");
    let [status, reason, message] = condition(&write, APPLIED);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "PartlyApplied"));
    assert_eq!(message, "in effect on 1 of 4 nodes; node-2: interval is 1h: at most 60 s are allowed here");
    assert_eq!((write.resource_version.as_str(), write.uid.as_str()), ("7", "u"));
}

#[test]
fn what_is_written_is_not_written_again_and_times_are_those_of_transitions() {
    let mut of = cluster(&[("node-1", 2, Outcome::Applied)]);
    let first = written(&mut of, 100);
    assert_eq!(reconcile(&of, &at(200), usize::MAX, |_, _| true), []);

    of.reports.insert("node-2".to_owned(), report(verdict(2, Outcome::Applied)));
    of.nodes.insert("node-2".to_owned(), String::new());
    let second = written(&mut of, 300);

    assert_eq!(condition(&first, APPLIED)[2], "in effect on the one node that runs its pods");
    assert_eq!(condition(&second, APPLIED)[2], "in effect on all 2 nodes that run its pods");
    let time = |write: &StatusWrite, kind| write.status.condition(kind).unwrap().last_transition_time.clone();
    assert_eq!((time(&second, APPLIED), time(&second, CONFLICTED)), (at(100), at(100)), "both hold as before");
    of.reports.insert("node-2".to_owned(), report(verdict(2, refused())));
    assert_eq!(time(&written(&mut of, 400), APPLIED), at(400));
}

#[test]
fn an_older_generation_is_no_answer_and_a_node_that_is_gone_does_not_count() {
    let mut of = cluster(&[("node-1", 1, refused()), ("node-2", 2, Outcome::Applied)]);
    let [status, reason, message] = condition(&written(&mut of, 1), APPLIED);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Waiting"));
    assert_eq!(message, "in effect on 1 of 2 nodes, not yet on 1");

    of.nodes.remove("node-1");
    let [status, _, message] = condition(&written(&mut of, 2), APPLIED);
    assert_eq!((status.as_str(), message.as_str()), ("True", "in effect on the one node that runs its pods"));

    of.nodes.clear();
    let [status, reason, message] = condition(&written(&mut of, 3), APPLIED);
    assert_eq!((status.as_str(), reason.as_str()), ("Unknown", "NoPods"));
    assert!(message.ends_with("does uview run on their nodes?"), "{message}");
}

#[test]
fn transitions_are_told_once_and_waiting_is_not() {
    let reasons = |write: &StatusWrite| -> Vec<(bool, String)> {
        write.notices.iter().map(|notice| (notice.is_warning, notice.reason.clone())).collect()
    };
    let mut of = cluster(&[("node-1", 1, Outcome::Applied)]);
    assert_eq!(reasons(&written(&mut of, 1)), []);

    let conflict = Outcome::Conflicted("shop/cart is set by the older Lmap shop/slow".to_owned());
    of.reports.insert("node-1".to_owned(), report(verdict(2, conflict)));
    let write = written(&mut of, 2);
    assert_eq!(reasons(&write), [(true, "Refused".to_owned()), (true, "Conflicted".to_owned())]);
    assert_eq!(write.notices[1].note, "on 1 of 1 nodes; node-1: shop/cart is set by the older Lmap shop/slow");

    of.reports.insert("node-1".to_owned(), report(verdict(2, Outcome::Applied)));
    assert_eq!(reasons(&written(&mut of, 3)), [(false, "Applied".to_owned()), (false, "ConflictResolved".to_owned())]);

    // The number of nodes is no transition.
    of.reports.insert("node-2".to_owned(), report(verdict(2, Outcome::Applied)));
    of.nodes.insert("node-2".to_owned(), String::new());
    assert_eq!(reasons(&written(&mut of, 4)), []);
}

#[test]
fn a_nodes_report_is_read_as_its_agent_writes_it() {
    let state = |[applied, conflicted]: [(&str, &str, &str); 2]| {
        let condition = |kind: &str, (status, reason, message): (&str, &str, &str)| Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            observed_generation: Some(3),
            last_transition_time: at(0),
        };
        let conditions = vec![condition(APPLIED, applied), condition(CONFLICTED, conflicted)];
        let services = vec!["shop/cart".to_owned()];
        NodeVerdict::from(&ObjectState { namespace: "shop".to_owned(), name: "fast".to_owned(), services, conditions })
    };
    let none = ("False", "NoConflict", "");

    let applied = state([("True", "Applied", ""), none]);
    assert_eq!((applied.generation, applied.services), (3, vec!["shop/cart".to_owned()]));
    assert_eq!(applied.outcome, Outcome::Applied);
    let of = |applied, conflicted| state([applied, conflicted]).outcome;
    assert_eq!(of(("False", "Waiting", "no LMAP yet"), none), Outcome::Pending("no LMAP yet".to_owned()));
    assert_eq!(of(("False", "Invalid", "twice"), none), Outcome::Refused("twice".to_owned()));
    let older = ("True", "OlderLmap", "an older one");
    assert_eq!(of(("True", "Applied", ""), older), Outcome::Conflicted("an older one".to_owned()), "in part");
}

#[test]
fn a_policy_has_a_status_of_its_own_that_says_which_kind_is_in_the_way() {
    let mut of = cluster(&[("node-1", 2, Outcome::Applied)]);
    let policy = KnownObject { uid: "p".to_owned(), generation: 1, ..KnownObject::default() };
    of.objects.policies.insert(key(), policy);
    let older = Outcome::Conflicted("shop/cart is set by the older SamplingPolicy shop/all".to_owned());
    of.reports.get_mut("node-1").unwrap().verdicts.policies.insert(key(), verdict(1, older));

    let writes = reconcile(&of, &at(1), usize::MAX, |_, _| true);

    let kinds: Vec<_> = writes.iter().map(|write| (write.kind, write.uid.as_str())).collect();
    assert_eq!(kinds, [(ObjectKind::Lmap, "u"), (ObjectKind::SamplingPolicy, "p")]);
    assert_eq!(condition(&writes[0], APPLIED)[1], "Applied", "of the same name, and another kind");
    assert_eq!(condition(&writes[1], CONFLICTED)[1], "OlderSamplingPolicy");
    assert_eq!(writes[1].status.nodes_refused, 1);
}

#[test]
fn a_report_without_its_node_is_an_orphan_but_not_where_no_node_is_known() {
    let mut of = cluster(&[("node-1", 2, Outcome::Applied), ("node-2", 2, Outcome::Applied)]);
    assert_eq!(orphans(&of), BTreeMap::new());
    of.nodes.remove("node-2");
    assert_eq!(orphans(&of), BTreeMap::from([("node-2".to_owned(), "r".to_owned())]));
    of.nodes.clear();
    assert_eq!(orphans(&of), BTreeMap::new());
}
