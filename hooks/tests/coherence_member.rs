//! Members that gossip without a network: which decision is carried out where, and when.

use std::sync::Arc;

use hooks::coherence::{Decision, Effect, Member, MemberSettings, ReceiveError, Run};
use hooks::time::UnixNanos;
use hooks::tracing::{Reason, TraceId, TraceStart};
use wire::time::Nanos;

const NOON: UnixNanos = UnixNanos::from_secs(1_700_000_000);

fn at(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

fn wall(millis: u64) -> UnixNanos {
    NOON.plus(at(millis))
}

/// The run of `name` that began at `millis`.
fn member(name: &str, millis: u64) -> Member {
    Member::new(Run { node: name.into(), began: wall(millis) }, MemberSettings::default())
}

fn trace(number: u8) -> TraceId {
    TraceId::new([number; 16]).expect("not zero")
}

fn decide(member: &mut Member, number: u8, millis: u64) {
    let reason = Arc::new(Reason::Trigger { text: "refund".into() });
    let decision = Decision { tenant: "".into(), trace: trace(number), reason, began: None };
    member.decide(decision, at(millis), wall(millis));
}

/// `from` sends a message to `to`, which replies.
fn exchange(from: &mut Member, to: &mut Member, millis: u64) {
    let (name, peer) = (Arc::clone(&from.run().node), Arc::clone(&to.run().node));
    to.receive(from.message(Some(&peer), at(millis)), at(millis), wall(millis)).expect("the message is accepted");
    from.receive(to.message(Some(&name), at(millis)), at(millis), wall(millis)).expect("they know each other");
}

/// Effects at `millis`: k for another node's decision, K for one that the predecessor carried out, r for a release, u
/// for an unacknowledged decision.
fn done(member: &mut Member, millis: u64) -> String {
    member.tick(at(millis), wall(millis));
    let letter = |effect| match effect {
        Effect::Keep(_, Some(TraceStart::CarriedOut)) => 'K',
        Effect::Keep(..) => 'k',
        Effect::Release(_) => 'r',
        Effect::Unacknowledged(..) => 'u',
        _ => '?',
    };
    member.effects().into_iter().map(letter).collect()
}

#[test]
fn a_decision_is_held_until_another_node_has_it_or_patience_ends_and_not_at_all_without_a_live_peer() {
    let (mut a, mut b) = (member("a", 0), member("b", 0));
    decide(&mut a, 1, 0);
    assert_eq!(done(&mut a, 0), "r", "no peer is alive");

    exchange(&mut a, &mut b, 10);
    decide(&mut a, 2, 20);
    assert_eq!(done(&mut a, 30), "");
    exchange(&mut a, &mut b, 40);
    assert_eq!(done(&mut b, 40), "kk");
    assert_eq!(done(&mut a, 50), "r");

    decide(&mut a, 3, 1_000);
    assert_eq!(done(&mut a, 2_900), "", "the last message of b was 2.86 s ago");
    assert_eq!(done(&mut a, 3_000), "r");
    assert_eq!(a.pending().unconfirmed(), 2);
}

#[test]
fn entries_of_a_dead_node_are_relayed_once() {
    let (mut a, mut b, mut c) = (member("a", 0), member("b", 0), member("c", 0));
    exchange(&mut b, &mut c, 0);
    decide(&mut a, 1, 10);
    exchange(&mut a, &mut b, 20);
    exchange(&mut a, &mut b, 30);
    drop(a);

    // The deciding node sends it first.
    exchange(&mut b, &mut c, 500);
    assert_eq!(done(&mut c, 500), "");
    exchange(&mut b, &mut c, 1_100);
    exchange(&mut c, &mut b, 1_200);
    exchange(&mut b, &mut c, 1_300);

    assert_eq!((done(&mut b, 1_400), done(&mut c, 1_400)), ("k".to_owned(), "k".to_owned()));
}

#[test]
fn a_successor_gets_all_entries_and_which_of_them_its_predecessor_had_carried_out_and_exported() {
    let (mut a, mut b) = (member("a", 0), member("b", 0));
    exchange(&mut a, &mut b, 0);
    decide(&mut a, 1, 10);
    decide(&mut b, 2, 10);
    exchange(&mut a, &mut b, 20);
    // b learns from the next message of a that a has its decision.
    exchange(&mut a, &mut b, 25);
    assert_eq!(done(&mut b, 30), "kr");
    exchange(&mut b, &mut a, 2_040);
    decide(&mut a, 3, 4_000);
    exchange(&mut a, &mut b, 4_020);
    assert_eq!(done(&mut b, 4_030), "k");
    exchange(&mut b, &mut a, 4_050);
    // Killed before the last decision reaches it, and may not have exported the one before.
    drop(b);
    decide(&mut a, 4, 4_060);

    let mut b = member("b", 6_000);
    exchange(&mut b, &mut a, 6_100);
    exchange(&mut b, &mut a, 6_200);

    assert_eq!(a.counts().restarts, 1);
    let heard = done(&mut b, 6_300);
    assert_eq!(heard.chars().filter(|letter| *letter == 'K').count(), 2, "{heard}: one of a, and its own one");
    assert_eq!(heard.chars().filter(|letter| *letter == 'k').count(), 2, "{heard}");
    // A message of the dead run is refused.
    let mut old = member("b", 0);
    decide(&mut old, 4, 6_400);
    let message = old.message(Some("a"), at(6_400));
    assert_eq!(a.receive(message, at(6_400), wall(6_400)), Err(ReceiveError::Outdated("b".into())));
}

#[test]
fn a_peer_that_does_not_acknowledge_a_decision_in_time_is_named_unless_it_left() {
    for leaves in [false, true] {
        let (mut a, mut b) = (member("a", 0), member("b", 0));
        exchange(&mut a, &mut b, 0);
        decide(&mut a, 1, 1_000);
        if leaves {
            b.leave();
            a.receive(b.message(Some("a"), at(1_000)), at(1_000), wall(1_000)).expect("they know each other");
        }

        assert_eq!(done(&mut a, 100_000), "r");
        assert_eq!(done(&mut a, 122_000), if leaves { "" } else { "u" });
        assert!(a.log().is_empty());
    }
}

#[test]
fn two_nodes_with_one_name_refuse_each_other() {
    let (mut one, other) = (member("a", 0), member("a", 1));

    let received = one.receive(other.message(None, at(5)), at(5), wall(5));

    assert_eq!(received, Err(ReceiveError::SameName("a".into())));
}
