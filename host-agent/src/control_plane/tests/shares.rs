//! What one user takes of a node never shuts out another one.

use wire::registration::{PlacedSeries, Shards};

use super::super::testing::{counter, labelled};
use super::*;

const GREEDY: u32 = 65_534;
const NEWCOMER: u32 = 1000;

/// A node with small limits.
fn node() -> Node {
    let limits = Limits {
        connections: 64,
        services: 16,
        series: 16,
        regions: 16,
        region_bytes: 32 * 4096,
        registrations_per_s: 10,
        series_per_s: 10,
        ..Limits::default()
    };
    Node::new(Settings { limits, ..settings() })
}

impl Node {
    /// A replica of `name` on a connection of user `uid`. Returns whether it was welcomed.
    fn joins(&mut self, uid: u32, connection: u64, name: &str) -> bool {
        self.connect_as(uid, connection);
        self.hello(connection, name);
        self.sent_to_service(connection)
            .iter()
            .any(|message| matches!(message, to_service::agent_message::Message::Welcome(_)))
    }

    fn over_share(&self, bound: &str) -> u64 {
        self.plane.over_share().find(|(name, _)| *name == bound).unwrap().1
    }

    fn problems(&self) -> Vec<String> {
        self.plane.status().problems
    }
}

#[test]
fn a_user_with_all_the_connections_that_it_gets_leaves_some_to_others() {
    let mut node = node();

    let joined = (1..=64).filter(|at| node.joins(GREEDY, *at, "greedy")).count();

    assert_eq!((joined, node.over_share("connections")), (48, 16));
    assert!(node.joins(NEWCOMER, 100, "cart"));
    let problem = "refused over a share of connections, 16 times since the start: user 65534 would have 49 of 64 service connections with 15 free";
    assert!(node.problems()[0].starts_with(problem), "{:?}", node.problems());
}

#[test]
fn processes_of_one_pod_share_whatever_their_users_are_and_other_pods_have_shares_of_their_own() {
    let mut node = node();
    let mut joins = |pod: char, connection: u64| {
        let id: String = std::iter::repeat_n(pod, 32).collect();
        let peer = Peer { pid: 1, uid: connection as u32, cgroup: format!("/kubepods/pod{id}/x") };
        node.plane.service_connected(node.now, ConnectionId(connection), peer);
        node.step();
        node.hello(connection, &format!("of-{pod}"));
        let sent = node.sent_to_service(connection);
        sent.iter().any(|message| matches!(message, to_service::agent_message::Message::Welcome(_)))
    };

    assert_eq!((1..=64).filter(|connection| joins('a', *connection)).count(), 48);
    assert!(joins('b', 100));
    assert!(node.problems()[0].contains(&format!("container {} would have 49", "a".repeat(32))));
}

#[test]
fn a_user_that_invents_services_leaves_names_to_others() {
    let mut node = node();

    let joined = (1..=16).filter(|at| node.joins(GREEDY, *at, &format!("greedy-{at}"))).count();

    assert_eq!((joined, node.over_share("services")), (12, 4));
    assert!(node.did(&Action::CloseService { connection: ConnectionId(13) }));
    assert!(node.joins(NEWCOMER, 100, "cart"), "a service of its own");
    assert!(node.joins(NEWCOMER, 101, "greedy-1"), "and one that the other user has, too");
    assert!(node.joins(GREEDY, 102, "greedy-1"), "a further replica is no further service");
}

#[test]
fn a_user_with_all_the_series_that_it_gets_leaves_some_to_others() {
    let mut node = node();
    for (uid, connection) in [(GREEDY, 1), (NEWCOMER, 2)] {
        assert!(node.joins(uid, connection, &format!("of-{uid}")));
        node.region(connection, 0);
    }

    (0..20).for_each(|slot| node.series(1, counter(&format!("m{slot}")), slot));
    node.series(2, counter("requests"), 0);

    let refused = node.refusals(1);
    assert_eq!((refused.len(), node.over_share("series")), (8, 8));
    assert!(refused[0].contains("m12: user 65534 would have 13 of 16 series with 3 free"), "{refused:?}");
    assert_eq!(node.refusals(2), Vec::<String>::new());

    node.retire(1, 0, 3);
    node.settle();
    node.series(1, counter("again"), 30);
    assert_eq!(node.over_share("series"), 8, "what was retired is free again");
}

#[test]
fn a_user_with_all_the_regions_or_bytes_that_it_gets_leaves_some_to_others() {
    let mut node = node();
    for (uid, connection) in [(GREEDY, 1), (NEWCOMER, 2)] {
        assert!(node.joins(uid, connection, &format!("of-{uid}")));
    }

    for number in 0..16 {
        node.region(1, number);
    }
    node.region(2, 0);
    assert_eq!((node.refusals(1).len(), node.over_share("regions")), (4, 4));
    assert!(node.did(&Action::DropRegion(RegionId(13))), "its descriptor is closed");
    assert_eq!(node.refusals(2), Vec::<String>::new());

    node.gone(1);
    assert!(node.joins(GREEDY, 3, "large"));
    let large = ServiceMessage::AddSpanRing {
        size: RegionSize::new(30 * 4096).unwrap(),
        layout_version: VERSION,
        first_ticket: 0,
    };
    node.plane.service_message(node.now, ConnectionId(3), large, &Descriptor::Accepted(RegionId(99)));
    node.step();
    let refused = node.refusals(3);
    assert!(refused[0].contains("122880 of 131072 bytes of regions"), "{refused:?}");
    assert_eq!(node.over_share("region_bytes"), 1);
}

#[test]
fn what_workers_may_still_read_counts_until_they_have_forgotten_it() {
    let mut node = node();
    node.worker(50, 0, 500);
    for connection in [1, 2] {
        assert!(node.joins(GREEDY, connection, "greedy"));
        (0..6).for_each(|number| _ = node.region(connection, number));
        (0..6).for_each(|slot| node.series(connection, counter(&format!("m{slot}")), slot));
    }
    node.settle();
    node.set(50);

    // The worker reads on.
    node.retire(1, 0, 5);
    node.gone(2);
    node.settle();
    let (epoch, _) = node.set(50).pop().unwrap();
    node.series(1, counter("again"), 30);
    assert_eq!(node.over_share("series"), 0, "the series of the replica that left are free");
    (31..40).for_each(|slot| node.series(1, counter(&format!("more-{slot}")), slot));
    assert_eq!(node.over_share("series"), 4, "five are retired");
    node.region(1, 6);
    assert_eq!(node.over_share("regions"), 1, "twelve may be read");

    node.acknowledge(50, epoch);
    node.settle();
    node.region(1, 7);
    (31..36).for_each(|slot| node.series(1, counter(&format!("last-{slot}")), slot + 10));
    assert_eq!((node.over_share("series"), node.over_share("regions")), (4, 1));
}

#[test]
fn a_series_with_long_labels_counts_as_several() {
    let mut node = node();
    assert!(node.joins(GREEDY, 1, "greedy"));
    node.region(1, 0);
    let long = |at: u32| labelled(counter(&format!("m{at}")), "query", &"q".repeat(250));

    (0..8).for_each(|slot| node.series(1, long(slot), slot));
    assert_eq!(node.over_share("series"), 2, "two each, of twelve");
    node.retire(1, 0, 6);
    node.settle();
    (10..16).for_each(|slot| node.series(1, long(slot), slot));
    assert_eq!(node.over_share("series"), 2);
}

#[test]
fn whoever_leaves_gives_everything_back() {
    let mut node = node();
    for round in 0..10 {
        for at in 1..=12 {
            let connection = round * 100 + at;
            assert!(node.joins(GREEDY, connection, &format!("greedy-{at}")), "round {round}, {at}");
            node.region(connection, 0);
            node.series(connection, counter("a"), 0);
        }
        (1..=12).for_each(|at| node.gone(round * 100 + at));
        node.pass(Nanos::from_secs(10));
    }

    assert!(node.plane.over_share().all(|(_, refused)| refused == 0));
}

#[test]
fn a_user_that_comes_and_goes_is_slowed_down_and_no_other_one_is() {
    let mut node = node();
    let mut welcomed = 0;
    for connection in 1..=100 {
        welcomed += u32::from(node.joins(GREEDY, connection, "greedy"));
        node.gone(connection);
    }

    assert_eq!((welcomed, node.over_share("registrations")), (64, 36));
    assert!(node.joins(NEWCOMER, 200, "cart"));
    let problem = "36 times since the start: user 65534 has registered all replicas that it may at once, and more than 10 per second: try again in 100ms";
    assert!(node.problems()[0].contains(problem), "{:?}", node.problems());
    node.pass(Nanos::from_secs(1));
    let later = (301..=320).filter(|connection| node.joins(GREEDY, *connection, "greedy")).count();
    assert_eq!(later, 10);
}

#[test]
fn a_counter_of_several_shards_counts_as_many_series_and_gives_them_back() {
    let mut node = node();
    assert!(node.joins(GREEDY, 1, "greedy"));
    node.region(1, 0);
    let sharded = |name: &str, first| {
        let placed = PlacedSeries { shards: Shards::new(8).unwrap(), ..placed(counter(name), 0, first) };
        ServiceMessage::AddSeries(vec![Ok(placed)])
    };

    node.service_sends(1, sharded("a", 0));
    node.service_sends(1, sharded("b", 64));
    let refused = node.refusals(1);
    node.retire(1, 0, 64);
    node.settle();
    node.service_sends(1, sharded("c", 128));

    assert!(refused[0].contains("b: user 65534 would have 16 of 16 series"), "{refused:?}");
    assert_eq!(node.refusals(1), Vec::<String>::new());
}

#[test]
fn a_user_that_registers_and_retires_series_in_a_loop_is_slowed_down_and_no_other_one_is() {
    let limits = Limits { series: 64, series_per_s: 10, ..Limits::default() };
    let mut node = Node::new(Settings { limits, ..settings() });
    for (uid, connection) in [(GREEDY, 1), (NEWCOMER, 2)] {
        assert!(node.joins(uid, connection, &format!("of-{uid}")));
        node.region(connection, 0);
    }
    for round in 0..80 {
        node.series(1, counter(&format!("m{round}")), round);
        node.retire(1, round, 1);
        if round == 39 {
            // What was retired is released, and five more may come.
            node.settle();
        }
    }
    node.series(2, counter("requests"), 0);

    let refused = node.refusals(1);
    assert_eq!((refused.len(), node.over_share("series_registrations"), node.over_share("series")), (11, 11, 0));
    let text = "user 65534 has registered all series that it may at once, and more than 10 per second";
    assert!(
        refused[0].contains(&format!("m69: {text}")) && refused[0].contains("services.limits.series_per_s"),
        "{refused:?}"
    );
    assert_eq!(node.refusals(2), Vec::<String>::new());
    assert!(node.problems().iter().any(|line| line.contains(text)), "{:?}", node.problems());

    node.pass(Nanos::from_secs(1));
    (100..120).for_each(|slot| node.series(1, counter(&format!("later{slot}")), slot));
    assert_eq!(node.over_share("series_registrations"), 21, "ten of twenty after a second");
}

#[test]
fn what_is_refused_for_now_is_said_to_be_and_is_taken_when_it_is_sent_again() {
    let mut node = node();
    assert!(node.joins(GREEDY, 1, "greedy"));
    node.region(1, 0);
    node.sent_to_service(1);
    let retries = |node: &mut Node, slot: u32| {
        node.series(1, counter(&format!("m{slot}")), slot);
        node.sent_to_service(1).into_iter().find_map(|message| match message {
            to_service::agent_message::Message::Refusal(refused) => Some(refused.retry_after_ms),
            _ => None,
        })
    };

    let refused: Vec<_> = (0..13).filter_map(|slot| retries(&mut node, slot)).collect();
    assert_eq!(refused, [60_000], "the thirteenth is above the share");
    assert_eq!(retries(&mut node, 5000), Some(0), "outside of its region it never is");

    node.retire(1, 0, 1);
    node.settle();
    assert_eq!((retries(&mut node, 12), retries(&mut node, 11)), (None, None));
    assert_eq!(node.plane.list().lmaps[0].metrics.len(), 12);
}

#[test]
fn a_refusal_is_no_problem_any_more_after_ten_minutes() {
    let mut node = node();
    for at in 1..=16 {
        node.joins(GREEDY, at, &format!("greedy-{at}"));
    }
    let shown = |node: &Node| node.problems().iter().any(|line| line.starts_with("refused over a share"));
    assert!(shown(&node));

    node.pass(Nanos::from_secs(600));

    assert!(!shown(&node));
    assert_eq!(node.over_share("services"), 4);
}
