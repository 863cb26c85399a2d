use k8s_openapi::jiff::Timestamp;
use pods::Pod;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::plan::tests::{objects, pods};
use crate::plan::{Declared, plan};
use crate::testing::{lmap, of_workload, pod};

/// A node that does what it is told: which LMAPs there are, and what was applied.
#[derive(Clone, Debug, Default, PartialEq)]
struct Node {
    present: BTreeMap<String, u32>,
    /// What each LMAP has now, if it is not as configured.
    has: BTreeMap<String, Arc<Settings>>,
    applied: BTreeMap<String, Applied>,
    last: u32,
}

impl Node {
    /// Services without an LMAP get one, as their first replica makes it.
    fn replicas(&mut self, services: impl IntoIterator<Item = String>) {
        for service in services {
            self.last += 1;
            self.present.entry(service).or_insert(self.last);
        }
    }

    /// Applies `objects`. Returns the number of changes.
    fn reconcile(&mut self, objects: &[Declared], pods: &[Pod]) -> usize {
        let plan = plan(objects, pods);
        let changes = changes(&self.applied, &plan.wanted, &self.present);
        for change in &changes {
            match change {
                Change::Reset { name, .. } => {
                    self.has.remove(name);
                    self.applied.remove(name);
                }
                Change::Delete { name, .. } => {
                    self.present.remove(name);
                    self.has.remove(name);
                    self.applied.remove(name);
                }
                Change::Set { name, lmap, settings } => {
                    self.last += u32::from(lmap.is_none());
                    let lmap = lmap.unwrap_or(self.last);
                    self.present.insert(name.clone(), lmap);
                    self.has.insert(name.clone(), Arc::clone(settings));
                    self.applied.insert(name.clone(), Applied { lmap, settings: Arc::clone(settings) });
                }
            }
        }
        changes.len()
    }
}

fn services(pods: &[Pod]) -> Vec<String> {
    pods.iter().map(|pod| pod.service.clone()).collect()
}

proptest! {
    #[test]
    fn the_last_objects_count_whatever_was_before_and_applying_them_twice_changes_nothing(
        steps in prop::collection::vec(objects(), 1..4), pods in pods(),
    ) {
        let mut node = Node::default();
        node.replicas(services(&pods));
        for objects in &steps {
            node.reconcile(objects, &pods);
        }
        prop_assert_eq!(node.reconcile(steps.last().unwrap(), &pods), 0);

        let mut fresh = Node::default();
        fresh.replicas(services(&pods));
        fresh.reconcile(steps.last().unwrap(), &pods);
        prop_assert_eq!(&node.has, &fresh.has);
        prop_assert!(node.present.keys().eq(fresh.present.keys()));

        node.reconcile(&[], &pods);
        prop_assert!(node.has.is_empty() && node.applied.is_empty());
        prop_assert!(!node.present.keys().any(|name| name.contains(':')));
    }
}

#[test]
fn settings_wait_for_the_lmap_and_follow_the_next_one() {
    let (objects, pods) = ([lmap("shop", "a", 1, of_workload("cart", "1s"))], [pod("shop", "cart", 1, &["app"])]);
    let mut node = Node::default();

    assert_eq!(node.reconcile(&objects, &pods), 0, "there is none yet");
    node.replicas(services(&pods));
    assert_eq!(node.reconcile(&objects, &pods), 1);
    assert_eq!(node.has["shop/cart"].interval, Some(1_000_000));
    // The last replica goes, and another one comes.
    node.present.clear();
    node.replicas(services(&pods));
    assert_eq!(node.reconcile(&objects, &pods), 1, "the new LMAP has nothing of the old one");
    assert_eq!(node.reconcile(&objects, &pods), 0);
}

#[test]
fn an_lmap_over_several_that_somebody_deletes_comes_back() {
    let spec = json!({"together": [{"workload": {"name": "cart"}}, {"workload": {"name": "payment"}}]});
    let (objects, pods) = ([lmap("shop", "flow", 1, spec)], [pod("shop", "cart", 1, &["app"])]);
    let mut node = Node::default();

    assert_eq!(node.reconcile(&objects, &pods), 1);
    node.present.remove("shop/lmap:flow");
    assert_eq!(node.reconcile(&objects, &pods), 1);
    assert_eq!(node.reconcile(&[], &pods), 1);

    assert!(node.present.is_empty());
}

fn time(seconds: i64) -> Time {
    Time(Timestamp::from_second(seconds).unwrap())
}

#[test]
fn the_status_says_what_is_in_effect_and_what_to_do_and_keeps_the_time_of_transitions() {
    let pods = [pod("shop", "cart", 1, &["app"]), pod("shop", "payment", 2, &["app"])];
    let objects = [
        lmap("shop", "older", 1, of_workload("cart", "1s")),
        lmap("shop", "same", 2, of_workload("cart", "2s")),
        lmap("shop", "waits", 2, of_workload("payment", "1s")),
        lmap("shop", "wrong", 3, json!({})),
    ];
    let mut node = Node::default();
    node.replicas(["shop/cart".to_owned()]);
    node.reconcile(&objects, &pods);
    let planned = plan(&objects, &pods);

    let first = report(&planned, &node.applied, &BTreeMap::new(), (&[], &time(100)));

    let said = |report: &KindReport, name: &str, of: &str| {
        let state = report.states.iter().find(|state| state.name == name).unwrap();
        let condition = state.conditions.iter().find(|condition| condition.type_ == of).unwrap().clone();
        (condition.status, condition.reason, condition.message, condition.last_transition_time)
    };
    assert_eq!((first.applied, first.not_applied), (1, 3));
    assert_eq!(said(&first, "older", "Applied").1, "Applied");
    let (_, reason, message, _) = said(&first, "same", "Conflicted");
    assert_eq!(reason, "OlderLmap");
    assert!(message.starts_with("shop/cart is set by the older Lmap shop/older: delete one of the two"), "{message}");
    assert_eq!(said(&first, "same", "Applied").1, "Conflicted");
    assert_eq!(said(&first, "waits", "Applied").1, "Waiting");
    assert_eq!(said(&first, "wrong", "Applied").1, "Invalid");
    assert!(
        first.first_problem.starts_with("Lmap shop/same: shop/cart is set by the older"),
        "{}",
        first.first_problem
    );

    // Later the same is known, and then the worker comes.
    let again = report(&planned, &node.applied, &BTreeMap::new(), (&first.states, &time(200)));
    assert_eq!(again, first, "nothing has changed: not even a time");
    node.replicas(["shop/payment".to_owned()]);
    node.reconcile(&objects, &pods);
    let then = report(&planned, &node.applied, &BTreeMap::new(), (&first.states, &time(300)));
    assert_eq!(said(&then, "waits", "Applied").3, time(300));
    assert_eq!(said(&then, "older", "Applied").3, time(100));

    let refused = BTreeMap::from([("shop/cart".to_owned(), "an interval of 1us is outside".to_owned())]);
    let refused = report(&planned, &node.applied, &refused, (&then.states, &time(400)));
    let (status, reason, message, since) = said(&refused, "older", "Applied");
    assert_eq!((status.as_str(), reason.as_str(), since), ("False", "Refused", time(400)));
    assert_eq!(message, "shop/cart: an interval of 1us is outside");
}
