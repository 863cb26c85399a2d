//! Members that gossip without a network: which decision is carried out where, and when.

use std::num::NonZeroU64;
use std::sync::Arc;

use hooks::coherence::{
    Decision, Effect, Entries, Entry, GossipMessage, Item, Member, MemberSettings, ReceiveError, Refusal, Run, RunId,
    ServiceVerdict, Speaker, VersionVector,
};
use hooks::tracing::{Author, Peers, Rank, Reason, TraceId, TraceStart};
use wire::time::{Nanos, UnixNanos};

const NOON: UnixNanos = UnixNanos::from_secs(1_700_000_000);

fn at(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

fn wall(millis: u64) -> UnixNanos {
    NOON.plus(at(millis))
}

fn run(name: &str, id: u64) -> Run {
    Run { node: name.into(), id: RunId(NonZeroU64::new(id).expect("not zero")) }
}

/// The run `id` of `name`.
fn member(name: &str, id: u64) -> Member {
    Member::new(run(name, id), MemberSettings::default())
}

/// `to` takes `message` over a connection of the node that it says it is from.
fn receive(to: &mut Member, message: GossipMessage, millis: u64) -> Result<(), ReceiveError> {
    let node = Arc::clone(&message.run.node);
    to.receive(message, Speaker::Named(&[&node]), at(millis), wall(millis))
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
    receive(to, from.message(Some(&peer), at(millis)), millis).expect("the message is accepted");
    receive(from, to.message(Some(&name), at(millis)), millis).expect("they know each other");
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
    let (mut a, mut b) = (member("a", 1), member("b", 1));
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
    let (mut a, mut b, mut c) = (member("a", 1), member("b", 1), member("c", 1));
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
    let (mut a, mut b) = (member("a", 1), member("b", 1));
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

    let mut b = member("b", 2);
    exchange(&mut b, &mut a, 6_100);
    exchange(&mut b, &mut a, 6_200);

    assert_eq!(a.counts().restarts, 1);
    let heard = done(&mut b, 6_300);
    assert_eq!(heard.chars().filter(|letter| *letter == 'K').count(), 2, "{heard}: one of a, and its own one");
    assert_eq!(heard.chars().filter(|letter| *letter == 'k').count(), 2, "{heard}");
}

#[test]
fn a_peer_that_does_not_acknowledge_a_decision_in_time_is_named_unless_it_left() {
    for leaves in [false, true] {
        let (mut a, mut b) = (member("a", 1), member("b", 1));
        exchange(&mut a, &mut b, 0);
        decide(&mut a, 1, 1_000);
        if leaves {
            b.leave();
            receive(&mut a, b.message(Some("a"), at(1_000)), 1_000).expect("they know each other");
        }

        assert_eq!(done(&mut a, 100_000), "r");
        assert_eq!(done(&mut a, 122_000), if leaves { "" } else { "u" });
        assert!(a.log().is_empty());
    }
}

#[test]
fn two_nodes_with_one_name_refuse_each_other() {
    let (mut one, other) = (member("a", 1), member("a", 2));

    let received = receive(&mut one, other.message(None, at(5)), 5);

    assert_eq!(received, Err(ReceiveError::SameName("a".into())));
}

/// A message of the run `from`, without words.
fn message(from: Run) -> GossipMessage {
    let (versions, entries) = (VersionVector::new(), Vec::new());
    GossipMessage { run: from, level: None, versions, entries, leaving: false, to: None, appended: 0 }
}

/// The decision to keep trace `number`, as entry `first` of `run`.
fn keep(run: Run, first: u64, number: u8, millis: u64) -> Entries {
    let reason = Arc::new(Reason::Trigger { text: "refund".into() });
    let decision = Decision { tenant: "".into(), trace: trace(number), reason, began: None };
    Entries { run, first, entries: vec![Entry { at: wall(millis), carried_out: false, item: Item::Keep(decision) }] }
}

#[test]
fn nobody_speaks_in_a_name_that_its_certificate_does_not_have() {
    let (mut a, mut b) = (member("a", 1), member("b", 1));
    exchange(&mut a, &mut b, 0);
    let leaves = GossipMessage { leaving: true, ..message(run("b", 1)) };

    for forged in [leaves, message(run("b", 9))] {
        let received = a.receive(forged, Speaker::Named(&["evil", "evil.example"]), at(10), wall(10));
        assert_eq!(received, Err(ReceiveError::Impostor("b".into())));
    }

    assert_eq!((a.sizes(at(10)), a.counts().restarts), ((1, 1), 0));
    assert_eq!(a.refusals().count(Refusal::Impostor), 2);
    assert!(a.refusals().lines(at(10)).any(|line| line.starts_with("gossip: b speaks in a name")));
}

/// Whose share a verdict is of that `speaker` says to `to`, as the first words of `whose`; and whose words they are.
fn payer_and_author(to: &mut Member, speaker: &Run, whose: Run, millis: u64) -> (Peers, Author) {
    let (from, at) = (wall(millis), wall(millis));
    let (service, reason) = ("cart".into(), Arc::new(Reason::Trigger { text: "cart".into() }));
    let item = Item::Verdict(ServiceVerdict { service, from, at, weight: 1.0, breakdown: None, reason });
    let entries = vec![Entries { run: whose, first: 0, entries: vec![Entry { at, carried_out: false, item }] }];
    let said = GossipMessage { entries, appended: 1, ..message(speaker.clone()) };
    receive(to, said, millis).expect("the message is accepted");
    let taken = |effect| if let Effect::Verdict(_, peers, author) = effect { Some((peers, author)) } else { None };
    to.effects().into_iter().find_map(taken).expect("the verdict is taken")
}

fn payer(to: &mut Member, speaker: &Run, whose: Run, millis: u64) -> Peers {
    payer_and_author(to, speaker, whose, millis).0
}

#[test]
fn who_relays_words_of_a_run_that_does_not_speak_pays_for_them_itself() {
    let (mut a, mut b, mut evil) = (member("a", 1), member("b", 1), member("evil", 1));
    exchange(&mut b, &mut a, 0);
    exchange(&mut evil, &mut a, 0);

    let of_b = payer(&mut a, b.run(), run("b", 1), 10);
    let of_evil = payer(&mut a, evil.run(), run("evil", 1), 20);
    let forged = payer(&mut a, evil.run(), run("b", 7), 30);

    assert_ne!(of_b, of_evil);
    assert_eq!(forged, of_evil, "a run of b that b does not know");
}

#[test]
fn words_in_another_nodes_name_cannot_make_its_own_words_be_skipped() {
    let (mut a, mut b) = (member("a", 1), member("b", 1));
    exchange(&mut a, &mut b, 0);
    let relays = |first, number| {
        let entries = vec![keep(run("b", 1), first, number, 10)];
        GossipMessage { entries, ..message(run("evil", 1)) }
    };

    receive(&mut a, relays(1 << 50, 7), 10).expect("evil is a member");
    assert_eq!((done(&mut a, 10), a.refusals().count(Refusal::Unannounced)), (String::new(), 1));
    // The numbers that b will use next.
    for number in 0..5 {
        receive(&mut a, relays(u64::from(number), 100 + number), 20).expect("evil is a member");
    }
    assert_eq!(done(&mut a, 20), "", "b speaks for itself");
    for number in 1..=5 {
        decide(&mut b, number, 30);
    }
    exchange(&mut b, &mut a, 40);

    a.tick(at(50), wall(50));
    let kept: Vec<_> = a
        .effects()
        .iter()
        .filter_map(|effect| match effect {
            Effect::Keep(decision, _) => Some(decision.trace),
            _ => None,
        })
        .collect();
    assert_eq!(kept, [1, 2, 3, 4, 5].map(trace));
    assert_eq!(done(&mut b, 60), "rrrrr");
}

#[test]
fn what_was_invented_in_the_name_of_a_silent_node_does_not_stand_for_its_words_when_it_speaks_again() {
    let (mut a, mut b, mut c) = (member("a", 1), member("b", 1), member("c", 1));
    exchange(&mut a, &mut b, 0);
    exchange(&mut c, &mut b, 0);
    for first in 0..3 {
        let entries = vec![keep(run("b", 1), first, 100, 10_000)];
        receive(&mut a, GossipMessage { entries, ..message(run("evil", 1)) }, 10_000).expect("evil is a member");
    }
    assert_eq!(done(&mut a, 10_000), "kkk", "b may be dead, and evil the only one who heard its last words");

    for number in 1..=3 {
        decide(&mut b, number, 10_010);
    }
    // One of the two ways is open.
    exchange(&mut b, &mut c, 10_020);
    exchange(&mut c, &mut a, 11_100);
    exchange(&mut c, &mut a, 11_200);
    assert_eq!(done(&mut a, 11_300), "kkk", "by way of c");
    exchange(&mut b, &mut a, 12_000);
    assert_eq!(done(&mut a, 12_000), "kkk", "from b itself");
}

#[test]
fn a_node_that_restarts_is_heard_whatever_its_clock_and_the_ids_of_its_runs() {
    for (before, after) in [(u64::MAX, 1), (1, u64::MAX)] {
        let mut a = member("a", 5);
        let mut b = member("b", before);
        exchange(&mut a, &mut b, 0);
        drop(b);

        let mut b = member("b", after);
        decide(&mut b, 1, 2_000);
        exchange(&mut b, &mut a, 2_010);
        exchange(&mut b, &mut a, 2_020);

        assert_eq!((done(&mut a, 2_030).as_str(), a.counts().restarts, a.sizes(at(2_030))), ("k", 1, (1, 1)));
    }
}

#[test]
fn two_runs_that_speak_by_turns_are_both_heard_and_named_as_a_problem() {
    let (mut a, mut one, mut two) = (member("a", 1), member("b", 1), member("b", 2));
    for round in 0..3 {
        decide(&mut one, 2 * round + 1, 1);
        decide(&mut two, 2 * round + 2, 1);
        exchange(&mut one, &mut a, 10 * u64::from(round) + 10);
        exchange(&mut two, &mut a, 10 * u64::from(round) + 15);
    }

    assert_eq!(done(&mut a, 50), "kkkkkk");
    assert_eq!((a.counts().restarts, a.refusals().count(Refusal::Alternating)), (1, 4));
}

/// The level of `author`, as `member` knows it.
fn level(member: &Member, author: &str, millis: u64) -> Option<u64> {
    member.peer_eviction_levels(at(millis)).of(Author::named(author)).map(Rank::position)
}

#[test]
fn a_level_beyond_all_reason_leaves_an_eighth_of_the_traces() {
    let (mut a, mut b) = (member("a", 1), member("b", 1));
    b.set_eviction_level(Some(Rank::at(1 << 62)));
    exchange(&mut b, &mut a, 0);
    assert_eq!((level(&a, "b", 0), a.refusals().count(Refusal::Level)), (Some(1 << 62), 0));

    b.set_eviction_level(Some(Rank::at(u64::MAX)));
    exchange(&mut b, &mut a, 1);

    assert_eq!(level(&a, "b", 1), Some(u64::MAX / 8 * 7));
    assert_eq!(a.refusals().count(Refusal::Level), 1);
}

#[test]
fn the_level_of_a_peer_holds_for_its_own_words_whoever_relays_them_and_for_no_others() {
    let (mut a, mut c, mut evil) = (member("a", 1), member("c", 1), member("evil", 1));
    evil.set_eviction_level(Some(Rank::at(u64::MAX)));
    c.set_eviction_level(Some(Rank::at(9)));
    exchange(&mut evil, &mut a, 0);
    exchange(&mut c, &mut a, 0);
    let levels = ["evil", "b", "c"].map(|node| level(&a, node, 0));
    assert_eq!(levels, [Some(u64::MAX / 8 * 7), None, Some(9)], "b never spoke to a");

    let by_evil = payer_and_author(&mut a, evil.run(), run("b", 1), 10);
    let by_c = payer_and_author(&mut a, c.run(), run("b", 1), 20);
    let own = payer_and_author(&mut a, evil.run(), run("evil", 1), 30);

    assert_eq!([by_evil.1, by_c.1, own.1], ["b", "b", "evil"].map(Author::named));
    assert_eq!((by_evil.0, by_evil.0 == by_c.0), (own.0, false), "who relays answers for it all the same");
}

#[test]
fn the_level_of_a_peer_that_leaves_holds_for_a_minute() {
    let (mut a, mut b) = (member("a", 1), member("b", 1));
    b.set_eviction_level(Some(Rank::at(9)));
    exchange(&mut b, &mut a, 0);
    b.leave();
    receive(&mut a, b.message(Some("a"), at(1_000)), 1_000).expect("it leaves");

    let level = |millis| level(&a, "b", millis);
    assert_eq!([level(1_000), level(60_999), level(61_000)], [Some(9), Some(9), None]);
}

#[test]
fn a_peer_that_claims_to_have_what_was_never_decided_releases_nothing() {
    let (mut a, mut b) = (member("a", 1), member("b", 1));
    exchange(&mut a, &mut b, 0);
    let claims = GossipMessage { versions: [(run("a", 1), 1 << 53)].into(), ..message(run("evil", 1)) };
    receive(&mut a, claims, 5).expect("evil is a member");

    decide(&mut a, 1, 10);

    assert_eq!((done(&mut a, 20).as_str(), a.refusals().count(Refusal::Overclaimed)), ("", 1));
    exchange(&mut a, &mut b, 30);
    exchange(&mut a, &mut b, 40);
    assert_eq!(done(&mut a, 50), "r");
}

#[test]
fn a_flood_of_one_node_sheds_its_own_entries_and_no_others() {
    let settings = MemberSettings { memory: 100_000, ..MemberSettings::default() };
    let mut a = Member::new(run("m", 1), settings);
    let mut c = member("c", 1);
    exchange(&mut a, &mut c, 0);
    decide(&mut c, 1, 5);
    decide(&mut a, 2, 5);
    exchange(&mut c, &mut a, 10);
    for first in 0..10_000 {
        // Names that come before and after those of the others.
        for node in ["0", "z"] {
            let entries = vec![keep(run(node, 1), first, 9, 20)];
            receive(&mut a, GossipMessage { entries, ..message(run(node, 1)) }, 20).expect("a member");
        }
    }
    a.tick(at(30), wall(30));

    assert!(a.log().memory() <= 100_000 && a.log().shed() > 15_000, "{} {}", a.log().memory(), a.log().shed());
    let mut late = member("late", 1);
    exchange(&mut late, &mut a, 2_000);
    exchange(&mut late, &mut a, 2_010);
    let effects = late.effects();
    for number in [1, 2] {
        let keeps = |effect: &Effect| matches!(effect, Effect::Keep(decision, _) if decision.trace == trace(number));
        assert!(effects.iter().any(keeps), "{number}");
    }
}

#[test]
fn numbers_of_a_run_go_on_after_minutes_of_silence() {
    let (mut a, mut b) = (member("a", 1), member("b", 1));
    decide(&mut a, 1, 0);
    exchange(&mut a, &mut b, 10);
    exchange(&mut a, &mut b, 20);
    for second in 1..400 {
        exchange(&mut a, &mut b, second * 1_000);
        let _at_first = (done(&mut a, second * 1_000), done(&mut b, second * 1_000));
    }

    decide(&mut a, 2, 400_000);
    exchange(&mut a, &mut b, 400_010);

    assert_eq!(done(&mut b, 400_020), "k");
}

/// Messages from `a` to `n` in 30 s, ten ticks a second, and how many of them have entries of `r`. Meanwhile `r` speaks
/// to `n`, and says another of its words each second; `a` heard all of them at the start.
fn messages_about_a_run_that_speaks(a_decides: bool) -> (usize, usize) {
    let (mut a, mut n, r) = (member("a", 1), member("n", 1), run("r", 1));
    for first in 0..100 {
        let entries = vec![keep(r.clone(), first, 9, 1)];
        receive(&mut a, GossipMessage { entries, appended: 100, ..message(r.clone()) }, 1).expect("a member");
    }
    exchange(&mut a, &mut n, 1);
    let (mut last, mut sent, mut relayed) = (at(1), 0, 0);
    for millis in (2_000..32_000).step_by(100) {
        let second = millis / 1_000;
        let entries = if millis % 1_000 == 0 { vec![keep(r.clone(), second - 2, 9, millis)] } else { Vec::new() };
        let appended = second - 1;
        receive(&mut n, GossipMessage { entries, appended, ..message(r.clone()) }, millis).expect("a member");
        if a_decides {
            decide(&mut a, 1, millis);
        }
        if a.is_due(Some("n"), Some(last), at(millis)) {
            let from_a = a.message(Some("n"), at(millis));
            relayed += usize::from(from_a.entries.iter().any(|block| block.run == r));
            receive(&mut n, from_a, millis).expect("a member");
            receive(&mut a, n.message(Some("a"), at(millis)), millis).expect("a member");
            (last, sent) = (at(millis), sent + 1);
        }
    }
    (sent, relayed)
}

#[test]
fn what_a_peer_does_not_take_is_relayed_at_the_idle_interval() {
    let (sent, relayed) = messages_about_a_run_that_speaks(false);
    assert!((30..=33).contains(&sent) && (29..=33).contains(&relayed), "{sent} messages, {relayed} with relays");

    let (sent, relayed) = messages_about_a_run_that_speaks(true);
    assert!(sent == 300 && (29..=33).contains(&relayed), "{sent} messages, {relayed} with relays");
}

#[test]
fn relays_that_a_peer_takes_follow_each_other_at_once_and_lost_ones_come_again() {
    let (mut a, mut n, r) = (member("a", 1), member("n", 1), run("r", 1));
    exchange(&mut a, &mut n, 1);
    // More than fits into five messages, from a run that is dead by then.
    for first in 0..8_500 {
        let entries = vec![keep(r.clone(), first, 9, 1)];
        receive(&mut a, GossipMessage { entries, appended: first + 1, ..message(r.clone()) }, 1).expect("a member");
    }

    let (mut last, mut taken) = (at(1_900), Vec::new());
    for millis in (2_000..4_000).step_by(100) {
        if a.is_due(Some("n"), Some(last), at(millis)) {
            let from_a = a.message(Some("n"), at(millis));
            last = at(millis);
            // The first two are lost.
            if millis >= 2_200 {
                receive(&mut n, from_a, millis).expect("a member");
                receive(&mut a, n.message(Some("a"), at(millis)), millis).expect("a member");
            }
        }
        taken.push(done(&mut n, millis).len());
    }

    assert_eq!(taken.iter().sum::<usize>(), 8_500, "{taken:?}");
    let first = taken.iter().position(|taken| *taken > 0).expect("some were taken");
    let last = taken.iter().rposition(|taken| *taken > 0).expect("some were taken");
    assert!(first <= 11 && last - first <= 5, "{taken:?}");
}
