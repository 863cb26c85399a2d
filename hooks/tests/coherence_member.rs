//! Members that speak to each other without a network: who is told what, and when.

use std::sync::Arc;

use hooks::coherence::{Decision, Effect, HearError, Member, MemberSettings, Run};
use hooks::time::UnixNanos;
use hooks::tracing::{Began, Reason, TraceId};
use wire::time::Nanos;

const NOON: UnixNanos = UnixNanos::from_secs(1_700_000_000);

fn at(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

fn day(millis: u64) -> UnixNanos {
    NOON.plus(at(millis))
}

/// The run of `name` that began at `millis`.
fn member(name: &str, millis: u64) -> Member {
    Member::new(Run { node: name.into(), began: day(millis) }, MemberSettings::default())
}

fn trace(number: u8) -> TraceId {
    TraceId::new([number; 16]).expect("not zero")
}

fn decide(member: &mut Member, number: u8, millis: u64) {
    let reason = Arc::new(Reason::Code { text: "refund".into() });
    let decision = Decision { tenant: "".into(), trace: trace(number), reason, began: None };
    member.decide(decision, at(millis), day(millis));
}

/// `from` speaks to `to`, which answers.
fn exchange(from: &mut Member, to: &mut Member, millis: u64) {
    let (name, peer) = (Arc::clone(&from.run().node), Arc::clone(&to.run().node));
    to.hear(from.words(Some(&peer), at(millis)), at(millis), day(millis)).expect("they know each other");
    from.hear(to.words(Some(&name), at(millis)), at(millis), day(millis)).expect("they know each other");
}

/// What is to be done at `millis`: k for another's decision, K for one that its predecessor dealt with, r for an own one, u for one that somebody was not
/// told of.
fn done(member: &mut Member, millis: u64) -> String {
    member.tick(at(millis), day(millis));
    let letter = |effect| match effect {
        Effect::Keep(_, Some(Began::Before)) => 'K',
        Effect::Keep(..) => 'k',
        Effect::Release(_) => 'r',
        Effect::Untold(..) => 'u',
        _ => '?',
    };
    member.effects().into_iter().map(letter).collect()
}

#[test]
fn a_decision_is_held_until_another_node_has_it_or_patience_ends_and_not_at_all_where_nobody_is() {
    let (mut a, mut b) = (member("a", 0), member("b", 0));
    decide(&mut a, 1, 0);
    assert_eq!(done(&mut a, 0), "r", "nobody is there");

    exchange(&mut a, &mut b, 10);
    decide(&mut a, 2, 20);
    assert_eq!(done(&mut a, 30), "");
    exchange(&mut a, &mut b, 40);
    assert_eq!(done(&mut b, 40), "kk");
    assert_eq!(done(&mut a, 50), "r");

    decide(&mut a, 3, 1_000);
    assert_eq!(done(&mut a, 2_900), "", "b was heard 2.86 s ago");
    assert_eq!(done(&mut a, 3_000), "r");
    assert_eq!(a.leader().alone(), 2);
}

#[test]
fn what_a_node_said_before_it_died_is_told_on_by_who_heard_it_once() {
    let (mut a, mut b, mut c) = (member("a", 0), member("b", 0), member("c", 0));
    exchange(&mut b, &mut c, 0);
    decide(&mut a, 1, 10);
    exchange(&mut a, &mut b, 20);
    exchange(&mut a, &mut b, 30);
    drop(a);

    // Whoever decided says it first itself.
    exchange(&mut b, &mut c, 500);
    assert_eq!(done(&mut c, 500), "");
    exchange(&mut b, &mut c, 1_100);
    exchange(&mut c, &mut b, 1_200);
    exchange(&mut b, &mut c, 1_300);

    assert_eq!((done(&mut b, 1_400), done(&mut c, 1_400)), ("k".to_owned(), "k".to_owned()));
}

#[test]
fn a_successor_is_told_everything_and_what_its_predecessor_had_dealt_with_and_surely_sent() {
    let (mut a, mut b) = (member("a", 0), member("b", 0));
    exchange(&mut a, &mut b, 0);
    decide(&mut a, 1, 10);
    decide(&mut b, 2, 10);
    exchange(&mut a, &mut b, 20);
    // That a has its decision, b knows from what a says next.
    exchange(&mut a, &mut b, 25);
    assert_eq!(done(&mut b, 30), "kr");
    exchange(&mut b, &mut a, 2_040);
    decide(&mut a, 3, 4_000);
    exchange(&mut a, &mut b, 4_020);
    assert_eq!(done(&mut b, 4_030), "k");
    exchange(&mut b, &mut a, 4_050);
    // Killed before it hears of the last one, and may not have sent the one before.
    drop(b);
    decide(&mut a, 4, 4_060);

    let mut b = member("b", 6_000);
    exchange(&mut b, &mut a, 6_100);
    exchange(&mut b, &mut a, 6_200);

    assert_eq!(a.counts().restarts, 1);
    let heard = done(&mut b, 6_300);
    assert_eq!(heard.chars().filter(|letter| *letter == 'K').count(), 2, "{heard}: one of a, and its own one");
    assert_eq!(heard.chars().filter(|letter| *letter == 'k').count(), 2, "{heard}");
    // What the dead run says is heard no more.
    let mut old = member("b", 0);
    decide(&mut old, 4, 6_400);
    let words = old.words(Some("a"), at(6_400));
    assert_eq!(a.hear(words, at(6_400), day(6_400)), Err(HearError::Outdated("b".into())));
}

#[test]
fn who_was_not_told_as_long_as_decisions_are_remembered_is_named_unless_it_left() {
    for leaves in [false, true] {
        let (mut a, mut b) = (member("a", 0), member("b", 0));
        exchange(&mut a, &mut b, 0);
        decide(&mut a, 1, 1_000);
        if leaves {
            b.leave();
            a.hear(b.words(Some("a"), at(1_000)), at(1_000), day(1_000)).expect("they know each other");
        }

        assert_eq!(done(&mut a, 100_000), "r");
        assert_eq!(done(&mut a, 122_000), if leaves { "" } else { "u" });
        assert!(a.follower().is_empty());
    }
}

#[test]
fn two_nodes_of_one_name_do_not_hear_each_other() {
    let (mut one, other) = (member("a", 0), member("a", 1));

    let heard = one.hear(other.words(None, at(5)), at(5), day(5));

    assert_eq!(heard, Err(HearError::SameName("a".into())));
}
