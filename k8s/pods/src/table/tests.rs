use super::*;
use crate::pod::Stage;
use crate::scraping::ScrapeRequest;
use crate::testing::{ID, pod};

const START: Duration = Duration::ZERO;
const LATER: Duration = Duration::from_hours(1);

fn path(number: u64, container: &str) -> String {
    format!("kubepods/burstable/pod{number:032x}/{container}")
}

/// A table that was listed empty at the start.
fn table() -> Pods {
    let mut pods = Pods::default();
    pods.begin_list();
    pods.end_list();
    pods
}

fn instance(pods: &Pods, number: u64, now: Duration) -> Option<String> {
    pods.member(&path(number, ID), now).map(|member| member.instance)
}

#[test]
fn containers_are_replicas_of_their_workload() {
    let mut pods = Pods::default();
    pods.apply(pod(1), START);
    pods.apply(Pod { container: None, ..pod(2) }, START);
    pods.apply(Pod { is_own: true, ..pod(3) }, START);

    let member = |number| pods.member(&path(number, ID), LATER).map(|member| (member.service, member.instance));
    assert_eq!(member(1), Some(("shop/payment".to_owned(), "payment-1".to_owned())));
    assert_eq!(member(2), Some(("shop/payment/app".to_owned(), "payment-2".to_owned())), "sidecars are others");
    assert_eq!(member(3), None, "our own pods");
    assert_eq!(member(4), None, "not known yet");
    assert_eq!(pods.member(&path(1, &"0".repeat(64)), LATER), None, "the container of the namespaces");
}

#[test]
fn a_group_below_a_containers_own_is_no_further_replica() {
    let mut pods = Pods::default();
    pods.apply(pod(1), START);
    let scope = format!("kubepods.slice/kubepods-pod{:032x}.slice/crio-{ID}.scope", 1);
    let found = |path: &str| (pods.member(path, LATER).is_some(), pods.container(path).map(|(_, name)| name));

    assert_eq!(found(&scope), (true, Some("app")));
    for below in ["container", "own"] {
        assert_eq!(found(&format!("{scope}/{below}")), (false, None), "{below}");
    }
    assert_eq!(found(&scope.replace("crio-", "crio-conmon-")), (false, None), "CRI-O's monitor");
    assert_eq!(found(&format!("user.slice/user-1000.slice/pod{:032x}/{ID}", 1)), (false, None), "a user's own");
}

#[test]
fn a_list_replaces_what_was_known_when_it_is_complete() {
    let mut pods = Pods::default();
    pods.apply(pod(1), START);
    let before = pods.version(LATER);

    pods.begin_list();
    pods.add_listed(pod(2), START);
    assert_eq!((pods.count(), pods.get(pod(1).id).is_some(), pods.version(LATER)), (1, true, before));
    pods.end_list();

    assert_eq!((pods.count(), pods.get(pod(2).id).is_some()), (1, true));
    assert!(pods.version(LATER) > before);
    pods.remove(pod(2).id);
    assert_eq!(pods.count(), 0);
}

#[test]
fn what_changes_nothing_is_no_change() {
    let mut pods = table();
    pods.apply(pod(1), START);
    let version = pods.version(LATER);

    pods.apply(pod(1), LATER);
    pods.remove(pod(9).id);
    pods.begin_list();
    pods.add_listed(pod(1), LATER);
    pods.end_list();

    assert_eq!(pods.version(LATER), version);
}

#[test]
fn no_more_pods_are_kept_than_a_node_can_run() {
    let mut pods = Pods::default();
    for number in 0..=MAX_PODS as u64 {
        pods.apply(pod(number), START);
    }
    assert_eq!((pods.count(), pods.refused()), (MAX_PODS, 1));
    pods.apply(Pod { version: "2".to_owned(), ..pod(0) }, START);
    assert_eq!((pods.get(pod(0).id).unwrap().version.as_str(), pods.refused()), ("2", 1));
}

#[test]
fn a_pod_of_a_new_version_joins_when_it_has_started() {
    let mut pods = table();
    pods.apply(pod(1), START);
    let new = |stage| Pod { version: "2".to_owned(), stage, ..pod(2) };
    let seconds = Duration::from_secs;

    let rollout = pods.apply(new(Stage::Starting), seconds(100)).unwrap();
    assert_eq!((rollout.service.as_str(), rollout.from.as_str(), rollout.to.as_str()), ("shop/payment", "1", "2"));
    assert_eq!(pods.apply(new(Stage::Ready), seconds(130)), None, "it is known");
    assert_eq!(pods.apply(Pod { version: "2".to_owned(), ..pod(3) }, seconds(131)), None, "not the first of it");

    assert_eq!(instance(&pods, 1, seconds(130)).as_deref(), Some("payment-1"), "the old ones stay");
    assert_eq!(instance(&pods, 2, seconds(139)), None, "it starts");
    let before = pods.version(seconds(139));
    assert_eq!(instance(&pods, 2, seconds(140)).as_deref(), Some("payment-2"));
    assert_ne!(pods.version(seconds(140)), before, "joining is a change");
    // Not ready for a while: it stays a member.
    pods.apply(new(Stage::Starting), seconds(200));
    assert_eq!(instance(&pods, 2, seconds(200)).as_deref(), Some("payment-2"));
}

#[test]
fn a_pod_that_does_not_start_joins_all_the_same() {
    let mut pods = table();
    let starting = |number| Pod { stage: Stage::Starting, ..pod(number) };
    pods.apply(starting(1), START);
    pods.apply(starting(2), START);
    let crashed = Duration::from_secs(7);
    pods.apply(Pod { stage: Stage::Restarted, ..starting(2) }, crashed);

    assert_eq!((instance(&pods, 1, crashed), instance(&pods, 2, crashed).is_some()), (None, true), "it crashes");
    assert_eq!(instance(&pods, 1, STARTS_WITHIN).as_deref(), Some("payment-1"), "it hangs");
}

#[test]
fn pods_that_were_there_before_the_agent_have_joined_and_a_new_list_changes_nothing() {
    let mut pods = Pods::default();
    pods.begin_list();
    pods.add_listed(pod(1), START);
    pods.add_listed(Pod { stage: Stage::Starting, ..pod(2) }, START);
    pods.end_list();
    assert_eq!((instance(&pods, 1, START).is_some(), instance(&pods, 2, START)), (true, None));

    // The API server was away; it lists again.
    let back = Duration::from_mins(10);
    pods.begin_list();
    pods.add_listed(pod(1), back);
    pods.add_listed(pod(3), back);
    pods.end_list();

    assert_eq!((instance(&pods, 1, back).is_some(), instance(&pods, 3, back)), (true, None), "pod 3 starts");
    assert!(instance(&pods, 3, back + SETTLES).is_some());
}

#[test]
fn an_address_is_the_pods_unless_others_have_it_too() {
    let at = |number, addresses: &[&str]| {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        Pod { addresses, ..pod(number) }
    };
    let mut pods = Pods::default();
    pods.apply(at(1, &["10.1.0.1", "fd00::1"]), START);
    pods.apply(at(2, &["10.1.0.2"]), START);
    pods.apply(at(3, &["10.1.0.2"]), START);
    pods.apply(Pod { has_host_network: true, ..at(4, &["192.0.2.1"]) }, START);
    // Its address is another pod's by now.
    pods.apply(Pod { stage: Stage::Over, ..at(5, &["10.1.0.1"]) }, START);

    let found: Vec<_> =
        pods.by_address().into_iter().map(|(address, pod)| (address.to_string(), pod.name.clone())).collect();
    let first = |address: &str| (address.to_owned(), "payment-1".to_owned());
    assert_eq!(found, [first("10.1.0.1"), first("fd00::1")]);
}

#[test]
fn endpoints_are_those_of_pods_that_have_joined_up_to_a_limit() {
    let asking = |number: u64| {
        let scrape = ScrapeRequest::Endpoint { port: Some(80), path: "/metrics".to_owned(), is_https: false };
        Pod { scrape, addresses: vec![format!("10.1.0.{number}").parse().unwrap()], ..pod(number) }
    };
    let mut pods = table();
    (1..=3).for_each(|number| drop(pods.apply(asking(number), START)));
    pods.apply(Pod { scrape: ScrapeRequest::Refused("a number"), ..asking(4) }, START);
    let monitor =
        Monitor::new("shop", "all", &serde_json::from_str(r#"{"podMetricsEndpoints":[{"port":"web"}]}"#).unwrap());
    let monitors = [monitor.unwrap()];
    pods.apply(Pod { ports: vec![("web".to_owned(), 80), ("web".to_owned(), 81)], ..asking(1) }, START);

    assert_eq!(pods.endpoints(&monitors, 9, START), Endpoints::default(), "they start");
    let found = pods.endpoints(&monitors, 2, LATER);
    let names: Vec<_> = found.scraped.iter().map(|endpoint| endpoint.instance.as_str()).collect();
    assert_eq!((names, found.over_limit), (vec!["payment-1:80", "payment-2:80"], 1), "one for each port");
    assert_eq!(found.refused, [("shop/payment-4".to_owned(), "a number")]);
}

#[test]
fn three_hundred_pods_in_any_order_take_less_than_two_kilobytes_each() {
    let full = |number: u64| {
        let text = |what: &str| format!("{what}-with-a-name-that-is-as-long-as-most-of-them-{number}");
        let labels: Vec<_> =
            (0..8).map(|label| format!("app.kubernetes.io/label-{label}={}\n", text("value"))).collect();
        let labels = labels.concat().into();
        let addresses = vec![format!("10.1.{}.{}", number / 250, number % 250).parse().unwrap()];
        Pod { name: text("payment"), labels, addresses, ports: vec![("web".to_owned(), 80)], ..pod(number) }
    };
    // 7 has no common factor with 300.
    let order = |step: u64| (0..300).map(move |at| at * step % 300);
    let (mut pods, mut other) = (table(), table());
    for number in order(7) {
        pods.apply(full(number), START);
    }
    assert_eq!(pods.count(), 300);
    let each = pods.memory_bytes() / pods.count();
    assert!(each < 2_000, "{each} bytes for a pod");
    for number in order(11).filter(|number| number % 2 == 0) {
        pods.remove(full(number).id);
    }
    for number in order(13).filter(|number| number % 2 == 1) {
        other.apply(full(number), START);
    }

    assert_eq!((pods.count(), pods.known == other.known, pods.by_address().len()), (150, true, 150));
}
